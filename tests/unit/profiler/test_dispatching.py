"""Custom operators count as one, whichever way torch dispatches them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from pytest_kernelprof.errors import IncompleteProfile
from pytest_kernelprof.gpu.inventory import current_device
from pytest_kernelprof.measure.policy import Plan
from pytest_kernelprof.measure.runner import measure, measure_once
from pytest_kernelprof.profiler import torch_profiler
from pytest_kernelprof.profiler.session import Session

CPU = current_device("cpu")
X = torch.randn(8, 16)


@torch.library.custom_op("kernelprof_tests::double_relu", mutates_args=())
def double_relu(x: torch.Tensor) -> torch.Tensor:
    return (x + x).relu()


@torch.library.custom_op("kernelprof_tests::scale_", mutates_args={"x"})
def scale_(x: torch.Tensor) -> None:
    x.add_(1).mul_(2)


@torch.library.custom_op("kernelprof_tests::both", mutates_args=())
def both(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x + 1, x * 2


@torch.library.custom_op("kernelprof_tests::parts", mutates_args=())
def parts(x: torch.Tensor) -> list[torch.Tensor]:
    return [x + 1, x * 2]


@torch.library.custom_op("kernelprof_tests::outer", mutates_args=())
def outer(x: torch.Tensor) -> torch.Tensor:
    return double_relu(x) + 1


@torch.library.triton_op("kernelprof_tests::of_kernels", mutates_args=())
def of_kernels(x: torch.Tensor) -> torch.Tensor:
    return x + x + 1


@torch.library.custom_op("kernelprof_tests::square", mutates_args=())
def square(x: torch.Tensor) -> torch.Tensor:
    return x * x


@torch.library.custom_op("kernelprof_tests::square_backward", mutates_args=())
def square_backward(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return grad * x * 2


square.register_autograd(
    lambda ctx, grad: square_backward(grad, *ctx.saved_tensors),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


class Subclass(torch.Tensor):
    pass


class PassedOn(TorchDispatchMode):
    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        return func(*args, **(kwargs or {}))


class PassedOnEarly(TorchFunctionMode):
    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        return func(*args, **(kwargs or {}))


def in_a_thread() -> None:
    worker = threading.Thread(target=lambda: double_relu(X))
    worker.start()
    worker.join()


def under(context: Callable[[], Any]) -> Callable[[], None]:
    def call() -> None:
        with context():
            double_relu(X)

    return call


def backward() -> None:
    square(X.clone().requires_grad_()).sum().backward()


SQUARE = ["clone", "square", "sum", "ones_like", "square_backward"]
CASES: list[tuple[str, Callable[[], object], list[str]]] = [
    ("as defined", lambda: double_relu(X), ["double_relu"]),
    ("by its name", lambda: torch.ops.kernelprof_tests.double_relu(X), ["double_relu"]),
    ("by its overload", torch.ops.kernelprof_tests.double_relu.default, ["double_relu"]),
    ("in place", lambda: scale_(X.clone()), ["clone", "scale_"]),
    ("a tuple", lambda: both(X), ["both"]),
    ("a list", lambda: parts(X), ["parts"]),
    ("one in another", lambda: outer(X), ["outer"]),
    ("for Triton", lambda: of_kernels(X), ["of_kernels"]),
    ("with its gradient", backward, SQUARE),
    ("in a thread", in_a_thread, ["double_relu"]),
    ("of a subclass", lambda: double_relu(X.as_subclass(Subclass)), ["double_relu"]),
    ("under a dispatch mode", under(PassedOn), ["double_relu"]),
    ("under a function mode", under(PassedOnEarly), ["double_relu"]),
    ("in inference mode", under(torch.inference_mode), ["double_relu"]),
    ("of torch itself", lambda: torch.ops.prims.add.default(X, X), ["prims::add"]),
]


def names(profile: Any) -> list[str]:
    full = [kernel.name for kernel in profile.kernels]
    return [name.removeprefix("kernelprof_tests::").removeprefix("aten::") for name in full]


@pytest.mark.parametrize(
    ("call", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_a_custom_operator_counts_once(call: Callable[..., object], expected: list[str]) -> None:
    args = (X,) if isinstance(call, torch._ops.OpOverload) else ()
    assert names(measure(lambda: call(*args), Plan("cpu"))[1].profile) == expected


def test_one_that_is_made_and_called_in_the_measured_block_does_too() -> None:
    with measure_once(Plan("cpu")) as found:

        @torch.library.custom_op("kernelprof_tests::made_late", mutates_args=())
        def made_late(x: torch.Tensor) -> torch.Tensor:
            return x + x + 1

        made_late(X)
    assert names(found[0].profile) == ["made_late"]


Overload = torch._ops.OpOverload


@pytest.fixture
def past_the_dispatcher(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """``double_relu``, dispatched in Python as by torch 2.15; by any torch here."""
    overload = torch.ops.kernelprof_tests.double_relu.default
    if not hasattr(overload, "_cpp_dispatch_handle"):  # each has one in 2.15, and calls `_op`
        handles = {id(overload): overload._op}
        monkeypatch.setattr(
            Overload,
            "_cpp_dispatch_handle",
            property(lambda self: handles.get(id(self)) or vars(self)["_op"]),
            raising=False,
        )
        monkeypatch.setattr(overload, "_op", lambda x: (x + x).relu())
    before = vars(overload)["_op"]
    yield overload
    assert vars(overload)["_op"] is before


def recorded(call: Callable[[], object]) -> set[str]:
    """The operators that torch's own profiler has an event of."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as found:
        call()
    return {event.name for event in found.events()}


def test_what_torch_dispatches_past_the_profiler_counts_once(past_the_dispatcher: Any) -> None:
    assert "kernelprof_tests::double_relu" not in recorded(lambda: past_the_dispatcher(X))
    profile = measure(lambda: past_the_dispatcher(X), Plan("cpu"))[1].profile
    assert names(profile) == ["double_relu"]
    assert "kernelprof_tests::double_relu" not in recorded(lambda: past_the_dispatcher(X))


def goes_through_the_dispatcher() -> bool:
    return "_op" in vars(Overload)


def a_session(inside: Callable[[], object]) -> Callable[[], None]:
    def take() -> None:
        with Session(CPU, stacks=False) as session, session.round():
            assert goes_through_the_dispatcher()
            inside()

    return take


def raise_mine() -> None:
    raise KeyError("mine")


def start_another() -> None:
    torch.profiler.profile().start()


@pytest.mark.usefixtures("past_the_dispatcher")
@pytest.mark.parametrize(
    ("inside", "raised"),
    [(lambda: None, ()), (raise_mine, KeyError), (start_another, IncompleteProfile)],
    ids=["well", "by an exception", "by another profiler"],
)
def test_the_way_is_torchs_own_again_however_a_session_ends(
    inside: Callable[[], object], raised: Any
) -> None:
    with pytest.raises(raised) if raised else contextlib.nullcontext():
        a_session(inside)()
    assert not goes_through_the_dispatcher()
    torch_profiler.end_taken_over()


@pytest.mark.usefixtures("past_the_dispatcher")
def test_the_way_is_torchs_own_again_after_a_session_that_was_left_open() -> None:
    session = Session(CPU, stacks=False)
    session.__enter__()
    assert goes_through_the_dispatcher()
    assert torch_profiler.end_left_open()
    assert not goes_through_the_dispatcher()


@pytest.mark.usefixtures("past_the_dispatcher")
def test_times_are_of_what_torch_dispatches_as_it_does() -> None:
    ways: list[bool] = []
    measure(lambda: ways.append(goes_through_the_dispatcher()), Plan("cpu", host_rounds=3))
    assert ways.count(False) >= 3, "a call that is timed"
    assert ways.count(True) >= 2, "a call that is profiled"
