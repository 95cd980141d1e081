"""Measuring: what is called how often, with which arguments, and until the code is warm."""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from corpus import recorded

from pytest_kernelprof import profile
from pytest_kernelprof.analysis.bound import Bound
from pytest_kernelprof.analysis.profile import Profile
from pytest_kernelprof.device.conditions import Quiet
from pytest_kernelprof.device.inventory import Device
from pytest_kernelprof.errors import IncompleteProfile, ProfilerUnavailable
from pytest_kernelprof.measure import runner as measuring
from pytest_kernelprof.measure import taking
from pytest_kernelprof.measure.runner import Plan, _Rounds, measure, measure_once
from pytest_kernelprof.measure.taking import TRIES, require_complete

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


def test_progress_is_told_of_each_round() -> None:
    told: list[tuple[str, int, int, str]] = []

    def progress(what: str, done: int, of: int, reason: str = "") -> None:
        told.append((what, done, of, reason))

    measure(lambda: None, Plan("cpu", warmup=3, rounds=2, host_rounds=2), progress=progress)
    assert told == [
        ("warming up", 1, 3, ""),
        ("warming up", 2, 3, ""),
        ("profiling", 0, 2, ""),
        ("profiling", 1, 2, ""),
        ("timing", 0, 2, ""),
        ("timing", 1, 2, ""),
    ]


def test_progress_says_why_code_is_profiled_again() -> None:
    reasons: list[str] = []
    calls: list[int] = []

    def progress(what: str, done: int, of: int, reason: str = "") -> None:
        reasons.append(reason)

    def compiles_late() -> torch.Tensor:
        calls.append(1)
        return torch.compile(lambda x: x + len(calls), backend="eager")(X) if len(calls) < 4 else X

    measure(compiles_late, Plan("cpu"), progress=progress)
    assert set(reasons) == {"", "not warm yet"}


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


def hidden_kernels() -> Callable[[], object]:
    """A compiled call whose kernels no trace shows: each of its profiles is incomplete."""
    compiled = torch.compile(lambda x: (x @ x).relu() + 5)
    x = torch.ones(4, 4)
    return lambda: compiled(x)


def test_an_incomplete_profile_is_taken_again_and_then_handed_back_as_it_is() -> None:
    torch.compiler.reset()
    calls: list[int] = []
    with torch._inductor.config.patch({"cpp.enable_kernel_profile": False}):
        hidden = hidden_kernels()
        hidden()
        _, measurement = measure(lambda: (calls.append(1), hidden()), Plan("cpu"))
    assert measurement.retakes == TRIES - 1
    assert len(calls) == 1 + 2 * TRIES
    with pytest.raises(IncompleteProfile, match=r"profile incomplete \(taken 3 times\)"):
        require_complete(measurement.profile, measurement.retakes)


def test_a_complete_profile_is_not_taken_again() -> None:
    _, measurement = measure(lambda: X + 1, Plan("cpu"))
    assert measurement.retakes == 0
    require_complete(measurement.profile, measurement.retakes)


def test_without_pytest_an_incomplete_profile_is_an_error() -> None:
    torch.compiler.reset()
    with (
        torch._inductor.config.patch({"cpp.enable_kernel_profile": False}),
        pytest.raises(IncompleteProfile, match="profile incomplete"),
    ):
        profile(hidden_kernels(), device="cpu", rounds=1)


def test_keyword_arguments_reach_the_call() -> None:
    result, _ = measure(lambda a, *, b: (a, b), Plan("cpu"), (1,), {"b": 2})
    assert result == (1, 2)


def test_setup_may_mutate_its_arguments_afresh_for_each_call() -> None:
    seen: list[float] = []

    def in_place(x: torch.Tensor) -> None:
        seen.append(x.add_(1)[0].item())

    measure(in_place, Plan("cpu", host_rounds=2), setup=lambda: (torch.zeros(2),))
    assert set(seen) == {1.0}


def test_an_exception_of_setup_passes_through() -> None:
    def fails() -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        measure(lambda: None, Plan("cpu"), setup=fails)
    assert not torch.autograd.profiler._is_profiler_enabled


def test_the_profile_carries_device_versions_and_label() -> None:
    _, measurement = measure(lambda: X + 1, Plan("cpu"), label="forward")
    assert measurement.profile.label == "forward"
    assert measurement.profile.place.startswith("CPU (")
    assert f"torch {torch.__version__}" in measurement.profile.place


def test_the_arguments_do_not_outlive_the_measurement() -> None:
    argument = torch.ones(3)
    alive = weakref.ref(argument)
    _, measurement = measure(lambda x: None, Plan("cpu"), (argument,))
    found = measurement.profile
    del argument, measurement
    assert found.kernel_count == 0
    assert alive() is None


def test_a_block_is_profiled_once_as_it_stands() -> None:
    calls: list[int] = []
    with measure_once(Plan("cpu", warmup=5, rounds=5)) as found:
        calls.append(1)
        X.exp()
    assert calls == [1]
    assert [kernel.name for kernel in found[0].profile.kernels] == ["aten::exp"]
    assert found[0].attribute is None


def test_a_block_that_compiles_counts_its_compilations() -> None:
    torch.compiler.reset()
    compiled = torch.compile(lambda x: x * 7 + 2)
    with measure_once(Plan("cpu")) as found:
        compiled(X)
    assert found[0].profile.recompiles == 1


def test_a_block_has_no_host_times_and_says_why() -> None:
    with measure_once(Plan("cpu", host_rounds=5)) as found:
        X.exp()
    assert found[0].profile.latency is None
    assert "one-shot" in found[0].profile.metrics["latency"].why


def test_with_stacks_a_block_names_the_frames_of_its_operators() -> None:
    def helper() -> torch.Tensor:
        return X.exp()

    with measure_once(Plan("cpu", stacks=True)) as found:
        helper()
    assert os.path.basename(__file__) + ":" in found[0].profile.kernels[0].source


def test_recompilations_of_the_measured_calls_are_counted() -> None:
    torch.compiler.reset()
    sizes = iter([2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17])
    compiled = torch.compile(lambda x: x * 2, dynamic=False, backend="eager")
    with measure_once(Plan("cpu")) as found:
        for _ in range(3):
            compiled(torch.ones(next(sizes)))
    assert found[0].profile.recompiles == 3


def test_without_a_gpu_asking_for_one_is_refused_before_the_code_runs() -> None:
    calls: list[int] = []
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(ProfilerUnavailable, match="no GPU"):
        profile(lambda: calls.append(1), device="cuda")
    assert calls == []


@pytest.mark.parametrize("verdict", ["gpu", "overhead", "sync", "mixed", "unknown"])
def test_shapes_are_recorded_only_where_the_device_is_the_limit_and_while_it_is_ours(
    verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone: list[bool] = []
    taken: list[bool] = []

    @contextlib.contextmanager
    def quiet(*_: object) -> Iterator[Quiet]:
        alone.append(True)
        yield Quiet(None)
        alone.clear()

    def roofline(_: _Rounds) -> dict[str, Any]:
        taken.append(bool(alone))
        return {"roof": "memory", "reason": "near it"}

    monkeypatch.setattr(measuring, "quiet", quiet)
    monkeypatch.setattr(_Rounds, "roofline", roofline)
    monkeypatch.setattr(Profile, "bound", Bound(verdict, ""))
    measure(lambda: None, Plan("cpu", rounds=8, host_rounds=8, roofline=True))
    assert taken == ([True] if verdict == "gpu" else [])


@pytest.mark.parametrize("flush_l2", [True, False])
def test_rates_are_taken_with_the_cache_as_it_is_in_timed_rounds(
    flush_l2: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}

    def session(device: Device, prepare: Any, rounds: int, **options: Any) -> Profile:
        asked.update(options, rounds=rounds)
        return recorded("memory")

    monkeypatch.setattr(taking, "profile_rounds", session)
    gpu = Device("cuda", 0, "NVIDIA H200", "sm_90", 0, {})
    plan = Plan("cuda", flush_l2=flush_l2, roofline=True)
    prepare = taking.preparer(lambda: None, (), {}, None)
    rounds = _Rounds(gpu, plan, prepare, False, {}, Quiet(None), "", lambda *_: None)
    assert rounds.roofline()["roof"] == "compute"
    assert asked == {"rounds": 1, "flush_l2": flush_l2, "shapes": True, "label": ""}


@pytest.mark.parametrize("rounds", [0, -1, True, 1.5, float("nan"), "2", "many", None])
def test_nonsense_in_rounds_without_pytest(rounds: Any) -> None:
    with pytest.raises(ValueError, match=r"rounds=.*: expected a whole number of one or more"):
        profile(lambda: None, device="cpu", rounds=rounds)


@pytest.mark.parametrize("device", ["tpu", "", "auto", 3])
def test_nonsense_in_device_without_pytest(device: Any) -> None:
    with pytest.raises(ValueError, match=r'device=.*: expected "cuda", "cpu" or None'):
        profile(lambda: None, device=device)


def test_a_result_in_place_of_a_callable_without_pytest() -> None:
    with pytest.raises(TypeError, match="profile takes a callable, got Tensor; write profile"):
        profile(X + 1, device="cpu")  # type: ignore[arg-type]
