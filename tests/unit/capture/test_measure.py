"""Measuring: what is called how often, with which arguments, and until the code is warm."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from pytest_kernelprof import profile
from pytest_kernelprof.measure import Plan, measure

X = torch.ones(4)


def test_the_first_calls_result_is_handed_back() -> None:
    numbers = iter(range(100))
    result, _ = measure(lambda: next(numbers), Plan("cpu"))
    assert result == 0


def test_exact_counts_take_one_call_to_warm_up_and_two_profiled() -> None:
    calls: list[int] = []
    measure(lambda: calls.append(1), Plan("cpu"))
    assert len(calls) == 1 + 2


def test_warm_up_and_rounds_are_as_asked() -> None:
    calls: list[int] = []
    measure(lambda: calls.append(1), Plan("cpu", warmup=4, rounds=7, host_rounds=5))
    assert len(calls) == 4 + 7 + 5


@pytest.mark.parametrize(
    ("fresh", "expected"),
    [((1, 2), (1, 2)), ([1, 2], (1, 2)), (((1,), {"b": 2}), (1, 2)), (None, ("a", "b"))],
)
def test_setup_hands_back_the_arguments_of_each_call(fresh: Any, expected: Any) -> None:
    seen = []
    measure(lambda a, b: seen.append((a, b)), Plan("cpu"), ("a", "b"), setup=lambda: fresh)
    assert seen == [expected] * 3


def test_a_setup_of_another_kind_is_refused() -> None:
    with pytest.raises(TypeError, match="setup returned int; expected the arguments as a tuple"):
        measure(lambda: None, Plan("cpu"), setup=lambda: 3)


def test_work_of_setup_does_not_count() -> None:
    _, measurement = measure(lambda x: x.add_(1), Plan("cpu"), setup=lambda: (X.clone() * 2,))
    assert measurement.profile.kernel_count == 1


def test_host_times_are_taken_in_unprofiled_calls() -> None:
    seen: list[bool] = []

    def call() -> None:
        seen.append(torch.autograd.profiler._is_profiler_enabled)

    _, measurement = measure(call, Plan("cpu", rounds=2, host_rounds=9))
    assert seen == [False, True, True, *[False] * 9]
    assert len(measurement.profile.metrics["latency"].rounds) == 9


def test_compiled_code_is_warm_before_it_is_counted() -> None:
    torch.compiler.reset()
    compiled = torch.compile(lambda x: (x * 2).relu() + 1)
    _, measurement = measure(compiled, Plan("cpu"), (X,))
    assert measurement.settled
    assert measurement.profile.recompiles == 0
    assert measurement.profile.kernel_count == 1


def test_code_that_compiles_at_every_call_never_settles_and_says_so() -> None:
    torch.compiler.reset()
    sizes = iter(range(2, 100))
    compiled = torch.compile(lambda x, n: x[:n] * n, dynamic=False)
    x = torch.ones(200)
    with torch._dynamo.config.patch(recompile_limit=1000, accumulated_recompile_limit=1000):
        _, measurement = measure(lambda: compiled(x, next(sizes)), Plan("cpu"))
    assert not measurement.settled
    assert (measurement.profile.recompiles or 0) >= 2


def test_kernels_that_a_compiled_graph_may_hide_make_the_profile_incomplete() -> None:
    torch.compiler.reset()
    import torch._inductor.config as config

    with config.patch({"cpp.enable_kernel_profile": False}):
        compiled = torch.compile(lambda x: (x @ x).relu() + 3)
        _, measurement = measure(compiled, Plan("cpu"), (torch.ones(4, 4),))
    assert "enable_kernel_profile" in measurement.profile.integrity.problems[0]


def test_without_pytest_a_profile_is_one_call() -> None:
    found = profile(torch.mm, torch.ones(4, 4), torch.ones(4, 4), device="cpu", rounds=2)
    assert found.kernel_count == 1
    assert found.latency is not None
