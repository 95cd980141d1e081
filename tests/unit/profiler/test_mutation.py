"""Tensors that a call changes in place are found wherever a callable holds them."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import torch

from pytest_kernelprof.api import profile
from pytest_kernelprof.measure.arguments import Arguments
from pytest_kernelprof.measure.policy import Plan
from pytest_kernelprof.measure.runner import measure
from pytest_kernelprof.profiler.tensors import watch

COUNTER = "self.num_batches_tracked"
SHARED = torch.zeros(2)


class Layer:
    """A plain object with state."""

    def __init__(self) -> None:
        self.cache = torch.zeros(2)
        self.deep = {"steps": [torch.zeros(2)]}

    def forward(self) -> None:
        self.cache.add_(1)

    def step(self) -> None:
        self.deep["steps"][0].add_(1)

    def __call__(self) -> None:
        self.cache.add_(1)

    def pure(self) -> torch.Tensor:
        self.out = self.cache + 1
        return self.out.relu_()


def closure() -> Callable[[], object]:
    state = torch.zeros(2)
    return lambda: state.add_(1)


def closure_of_a_list() -> Callable[[], object]:
    caches = [torch.zeros(2), torch.zeros(2)]
    return lambda: caches[1].add_(1)


def wrapped() -> Callable[[], object]:
    inner = closure()

    @functools.wraps(inner)
    def outer() -> object:
        return inner()

    return outer


def default() -> Callable[[], object]:
    def call(scale: int = 1, cache: torch.Tensor = torch.zeros(2)) -> object:  # noqa: B008
        return cache.add_(scale)

    return call


def keyword_default() -> Callable[[], object]:
    def call(*, cache: torch.Tensor = torch.zeros(2)) -> object:  # noqa: B008
        return cache.add_(1)

    return call


def batch_norm() -> Callable[[], object]:
    model, x = torch.nn.Sequential(torch.nn.BatchNorm1d(2)), torch.ones(4, 2)
    return lambda: model(x)


def optimizer() -> Callable[[], object]:
    opt = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1)
    opt.param_groups[0]["params"][0].grad = torch.ones(2)
    return lambda: opt.step()


def around(call: Callable[[], object]) -> Callable[[], object]:
    return lambda: call()


@pytest.mark.parametrize(
    ("call", "changed"),
    [
        (closure(), ["closure variable `state`"]),
        (closure_of_a_list(), ["closure variable `caches[1]`"]),
        (around(closure()), ["closure variable `state`"]),
        (wrapped(), ["closure variable `state`"]),
        (functools.partial(closure()), ["closure variable `state`"]),
        (functools.partial(torch.Tensor.add_, torch.zeros(2), 1), ["bound argument `1`"]),
        (functools.partial(lambda x: x.add_(1), x=torch.zeros(2)), ["bound argument `x`"]),
        (default(), ["default of `cache`"]),
        (keyword_default(), ["default of `cache`"]),
        (lambda: SHARED.add_(1), ["global variable `SHARED`"]),
        (Layer().forward, ["self.cache"]),
        (Layer().step, ["self.deep['steps'][0]"]),
        (Layer(), ["self.cache"]),
        (functools.partial(torch.zeros(2).add_, 1), ["self"]),
        (batch_norm(), ["closure variable `model.0.num_batches_tracked`"]),
        (functools.partial(torch.nn.BatchNorm1d(2), torch.ones(4, 2)), [COUNTER]),
        (functools.partial(torch.nn.BatchNorm1d(2).eval(), torch.ones(4, 2)), []),
        (optimizer(), ["closure variable `opt.param_groups[0]['params'][0]`"]),
        (Layer().pure, []),
        (lambda: torch.ones(2) + SHARED, []),
        (functools.partial(torch.zeros, 2), []),
    ],
    ids=lambda one: "",
)
def test_what_a_callable_holds_is_looked_at(
    call: Callable[..., object], changed: list[str]
) -> None:
    assert list(profile(call, device="cpu", rounds=1).record.in_place) == changed


def test_what_the_first_call_alone_changes_is_the_same_in_all_rounds() -> None:
    mask, made = torch.zeros(2), list[bool]()

    def call() -> torch.Tensor:
        if not made:
            mask.fill_(1)
            made.append(True)
        return mask + 1

    assert profile(call, device="cpu", rounds=1).record.in_place == ()


def test_code_that_sets_its_state_back_is_not_told_of() -> None:
    state = torch.zeros(2)
    given = Arguments(setup=lambda: (state,))
    _, measurement = measure(lambda x: x.add_(1), Plan("cpu"), given)
    assert measurement.profile.in_place == ()


def test_of_very_many_the_first_are_named() -> None:
    states = [torch.zeros(2) for _ in range(20)]
    _, *_, last = watched_names = changed_by(lambda: [state.add_(1) for state in states])
    assert len(watched_names) == 9
    assert last == "12 more"


def test_a_tensor_of_inference_mode_has_no_version() -> None:
    with torch.inference_mode():
        hidden = torch.zeros(2)
        assert changed_by(lambda: hidden.add_(1)) == ()


class Hostile:
    """Whoever asks it for anything is told off."""

    def __getattribute__(self, name: str) -> object:
        raise AssertionError(name)

    __eq__ = __hash__ = __bool__ = __len__ = __iter__ = None  # type: ignore[assignment]


class HostileTensor(torch.Tensor):
    """One that notes what is asked of it."""

    asked: ClassVar[list[object]] = []

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.asked.append(func)
        return super().__torch_function__(func, types, args, kwargs or {})


class HostileDict(dict[str, object]):
    """Its own methods raise."""

    items = values = keys = __iter__ = None  # type: ignore[assignment]


def test_nothing_of_a_test_runs_for_it() -> None:
    mine = torch.zeros(2).as_subclass(HostileTensor)
    ring: list[object] = [Hostile(), HostileDict(x=mine), type("T", (), {})(), torch.nn]
    ring.append(ring)
    watched = watch([lambda: (ring, mine)], [Hostile()], {"x": HostileDict()})
    HostileTensor.asked.clear()
    assert watched.changed() == ()
    watched = watch([lambda: (ring, mine)], [Hostile()], {"x": HostileDict()})
    assert HostileTensor.asked == []
    torch._C.TensorBase.add_(SHARED, 1)
    with torch._C.DisableTorchFunctionSubclass():
        mine.add_(1)
    assert watched.changed() == ("closure variable `mine`",)


def test_however_much_a_callable_holds_it_is_looked_at_quickly() -> None:
    chain: list[object] = []
    for _ in range(10_000):
        chain = [chain, torch.zeros(1)]
    many, words = [torch.zeros(1) for _ in range(30_000)], dict.fromkeys(map(str, range(10**6)))
    begun = time.process_time()
    watch([lambda: (chain, many, words)], [], {})
    assert time.process_time() - begun < 0.5


def changed_by(call: Callable[[], object]) -> tuple[str, ...]:
    watched = watch([call], [], {})
    call()
    return watched.changed()
