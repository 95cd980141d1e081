"""Source lines of kernels: of the call, not of the def; of the forward, for a backward."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F

from pytest_kernelprof.measure import Plan, measure

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
