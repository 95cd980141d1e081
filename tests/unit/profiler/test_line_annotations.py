"""Source lines of kernels: of the call, not of the def; of the forward, for a backward."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from compiled import fused

from pytest_kernelprof.measure.arguments import Arguments
from pytest_kernelprof.measure.policy import Plan
from pytest_kernelprof.measure.runner import measure
from pytest_kernelprof.profiler.line_annotations import annotate_lines
from pytest_kernelprof.records.recording import OwnNames

X = torch.ones(4, 4)


def lines_of(call: Callable[[], object]) -> list[tuple[str, int]]:
    """Operators and their lines, counted from the ``def`` of the call."""
    _, measurement = measure(call, Plan("cpu"))
    assert measurement.attribute is not None
    first = call.__code__.co_firstlineno
    return [
        (kernel.name.removeprefix("aten::"), int(kernel.source.rsplit(":", 1)[1]) - first)
        for kernel in measurement.attribute().kernels
    ]


def sources(call: Callable[..., object], **measuring: Any) -> list[str]:
    """``file:line`` of each operator of a call."""
    _, measurement = measure(call, Plan("cpu"), Arguments(**measuring))
    assert measurement.attribute is not None
    return [kernel.source for kernel in measurement.attribute().kernels]


def line(function: Any, offset: int) -> str:
    """``file:line`` at an offset from the ``def`` of a function."""
    return f"{__file__}:{function.__code__.co_firstlineno + offset}"


def helper(x: torch.Tensor) -> torch.Tensor:
    return x.relu()


def test_each_operator_has_the_line_of_its_call() -> None:
    def work() -> None:
        a = X * 2
        b = a @ a
        F.layer_norm(b, (4,))

    assert lines_of(work) == [("mul", 1), ("mm", 2), ("native_layer_norm", 3)]


def test_an_expression_over_several_lines_has_the_line_of_each_part() -> None:
    def work() -> None:
        F.gelu(
            X * 2
        ) + (
            X @ X
        )  # fmt: skip

    found = dict(lines_of(work))
    assert (found["mul"], found["mm"]) == (2, 4)


def test_a_function_of_the_user_has_its_own_lines() -> None:
    def work() -> None:
        helper(X)

    assert lines_of(work) == [
        ("relu", helper.__code__.co_firstlineno + 1 - work.__code__.co_firstlineno)
    ]


def test_code_goes_on_after_an_exception_that_it_handles() -> None:
    def work() -> None:
        try:
            X.exp()
            raise KeyError
        except KeyError:
            X.log()
        X.sin()

    assert lines_of(work) == [("exp", 2), ("log", 5), ("sin", 6)]


def test_generators_keep_their_lines() -> None:
    def work() -> None:
        def parts() -> Iterator[torch.Tensor]:
            yield X + 1
            yield X * 2

        for _ in parts():
            X.exp()

    assert lines_of(work) == [("add", 2), ("exp", 6), ("mul", 3), ("exp", 6)]


def test_a_backward_operator_has_the_line_of_its_forward() -> None:
    w = torch.ones(4, 4, requires_grad=True)

    def work() -> None:
        w.grad = None
        y = X @ w
        z = F.gelu(y)
        z.sum().backward()

    found = lines_of(work)
    assert ("gelu_backward", 3) in found
    assert found.count(("mm", 2)) == 2


def test_threads_started_by_the_call_are_followed() -> None:
    def work() -> None:
        def inside() -> None:
            X.exp()

        worker = threading.Thread(target=inside)
        worker.start()
        worker.join()

    assert lines_of(work) == [("exp", 2)]


def test_a_tracer_that_was_set_before_comes_back() -> None:
    seen: list[str] = []

    def mine(frame: object, event: str, argument: object) -> None:
        seen.append(event)

    before = sys.gettrace()
    sys.settrace(mine)
    try:
        _, measurement = measure(lambda: X + 1, Plan("cpu"))
        assert measurement.attribute is not None
        measurement.attribute()
        assert sys.gettrace() is mine
    finally:
        sys.settrace(before)


def test_another_run_of_the_code_keeps_its_lines_to_itself() -> None:
    calls = iter(range(100))

    def changes() -> None:
        if next(calls) < 3:
            X.exp()
        else:
            X.log()

    _, measurement = measure(changes, Plan("cpu"))
    assert measurement.attribute is not None
    assert [kernel.source for kernel in measurement.attribute().kernels] == [""]


def test_recursive_calls_have_the_line_that_ran_each_operator() -> None:
    def work() -> None:
        def down(n: int) -> None:
            X.exp()
            if n:
                down(n - 1)
            X.log()

        down(1)

    assert lines_of(work) == [("exp", 2), ("exp", 2), ("log", 5), ("log", 5)]


def test_a_loop_has_one_line_for_all_its_turns() -> None:
    def work() -> None:
        for _ in range(3):
            X.exp()

    assert lines_of(work) == [("exp", 2)] * 3


def test_a_context_manager_of_the_user_keeps_its_lines() -> None:
    @contextlib.contextmanager
    def around() -> Iterator[None]:
        X.sin()
        yield
        X.cos()

    def work() -> None:
        with around():
            X.exp()

    inside = around.__wrapped__  # type: ignore[attr-defined]
    assert sources(work) == [line(inside, 2), line(work, 2), line(inside, 4)]


def test_an_exception_out_of_a_called_function_leaves_the_callers_lines_right() -> None:
    def work() -> None:
        def fails() -> None:
            X.exp()
            raise KeyError

        with contextlib.suppress(KeyError):
            fails()
        X.log()

    assert lines_of(work) == [("exp", 2), ("log", 7)]


def test_code_that_handles_exceptions_in_a_loop_keeps_its_lines() -> None:
    def work() -> None:
        for key in ("a", "b"):
            try:
                {}[key]
            except KeyError:  # noqa: PERF203 (this is what is tested)
                X.exp()
            finally:
                X.log()

    assert lines_of(work) == [("exp", 5), ("log", 7)] * 2


def test_a_module_of_torch_has_the_line_of_the_users_forward() -> None:
    class Net(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.exp()

    net = torch.nn.Sequential(Net())
    assert sources(lambda: net(X)) == [line(Net.forward, 1)]


def test_what_a_library_runs_has_the_users_line_that_called_it() -> None:
    def work() -> None:
        torch.nn.functional.normalize(X)

    assert set(sources(work)) == {line(work, 1)}


def test_a_backward_whose_forward_was_not_measured_has_its_own_line() -> None:
    w = torch.ones(4, 4, requires_grad=True)

    def work(loss: torch.Tensor) -> None:
        loss.backward()

    assert set(sources(work, setup=lambda: ((X @ w).sum(),))) == {line(work, 1)}


def test_a_thread_that_was_there_before_has_no_line_rather_than_a_wrong_one() -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: None).result()
        assert sources(lambda: pool.submit(X.exp).result()) == [""]


def test_compiled_code_has_the_line_of_the_function_that_was_compiled() -> None:
    torch.compiler.reset()

    def written(x: torch.Tensor) -> torch.Tensor:
        return (x * 2).relu() + 1

    assert sources(torch.compile(written), args=(X,)) == [line(written, 0)]


def test_attribution_compiles_nothing_anew() -> None:
    _, measurement = measure(fused(), Plan("cpu"), Arguments((X,)))
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    assert measurement.attribute is not None
    measurement.attribute()
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == graphs


def test_an_exception_in_the_extra_run_passes_through_and_leaves_no_tracer() -> None:
    calls = iter(range(100))

    def fails_late() -> None:
        if next(calls) >= 3:
            raise KeyError("mine")
        X.exp()

    _, measurement = measure(fails_late, Plan("cpu"))
    assert measurement.attribute is not None
    before = sys.gettrace(), threading.gettrace()
    with pytest.raises(KeyError, match="mine"):
        measurement.attribute()
    assert (sys.gettrace(), threading.gettrace()) == before
    assert not torch.autograd.profiler._is_profiler_enabled


def test_a_tracer_of_threads_comes_back_too() -> None:
    def mine(frame: object, event: str, argument: object) -> None:
        """A tracer that follows nothing."""

    before = threading.gettrace()
    threading.settrace(mine)
    try:
        with annotate_lines(OwnNames()):
            assert threading.gettrace() is not mine
        assert threading.gettrace() is mine
    finally:
        threading.settrace(before)  # type: ignore[arg-type]


def test_a_profile_without_attribution_names_no_lines() -> None:
    _, measurement = measure(lambda: X.exp(), Plan("cpu"))
    assert [kernel.source for kernel in measurement.profile.kernels] == [""]


def test_lines_beyond_the_bound_of_a_long_run_are_unknown_rather_than_wrong() -> None:
    def work() -> None:
        X.log()
        for _ in range(30_000):
            pass
        X.exp()

    assert sources(work) == [line(work, 1), ""]


def test_an_annotation_of_the_user_in_the_form_of_a_line_is_no_line() -> None:
    def work() -> None:
        with torch.profiler.record_function("kernelprof::line#elsewhere.py:7"):
            X.exp()

    assert sources(work) == [line(work, 2)]
