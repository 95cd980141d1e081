"""Which arguments a call gets, and what is refused before anything is measured."""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from types import MappingProxyType
from typing import Any

import pytest
import torch

from pytest_kernelprof.measure.arguments import Arguments, first_call, preparer


def both(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
    return args, kwargs


def test_without_setup_each_call_has_the_given_arguments() -> None:
    given = [1]
    prepare = preparer(both, Arguments((given,), {"b": 2}))
    assert prepare()() == prepare()() == (([1],), {"b": 2})
    assert prepare()()[0][0] is given


@pytest.mark.parametrize(
    ("fresh", "called_with"),
    [
        ((1, 2), ((1, 2), {})),
        ([1, 2], ((1, 2), {})),
        ((), ((), {})),
        (((1,), {"b": 2}), ((1,), {"b": 2})),
        (([1], {}), ((1,), {})),
        ([(1,), {"b": 2}], (((1,), {"b": 2}), {})),  # a list is never (args, kwargs)
        (((1,), 2), (((1,), 2), {})),
        (None, (("a",), {"k": "v"})),
    ],
)
def test_setup_hands_back_the_arguments(fresh: Any, called_with: Any) -> None:
    assert preparer(both, Arguments(("a",), {"k": "v"}, lambda: fresh))()() == called_with


def test_setup_runs_before_each_call_and_not_in_it() -> None:
    order: list[str] = []
    prepare = preparer(
        lambda: order.append("call"), Arguments((), {}, lambda: order.append("setup"))
    )
    for _ in range(2):
        call = prepare()
        order.append("ready")
        call()
    assert order == ["setup", "ready", "call"] * 2


@pytest.mark.parametrize(
    ("args", "kwargs", "setup", "words"),
    [
        (torch.ones(2), {}, None, r"args: expected .* a tuple, got Tensor; write \(x,\) for one"),
        (3, {}, None, "args: expected the arguments as a tuple, got int"),
        ("x", {}, None, "args: expected the arguments as a tuple, got str"),
        ((), [1], None, "kwargs: expected keyword arguments as a dict, got list"),
        ((), {}, (1, 2), r"setup=\(1, 2\): expected a callable that hands back the arguments"),
    ],
)
def test_what_is_no_argument_list_is_refused(
    args: Any, kwargs: Any, setup: Any, words: str
) -> None:
    with pytest.raises(TypeError, match=words):
        preparer(both, Arguments(args, kwargs, setup))


def test_keyword_arguments_may_be_any_mapping() -> None:
    assert preparer(both, Arguments((), MappingProxyType({"b": 2}), None))()() == ((), {"b": 2})


@pytest.mark.parametrize("fresh", [3, "ab", {"b": 2}, torch.ones(2)], ids=repr)
def test_a_setup_of_another_kind_is_refused(fresh: Any) -> None:
    words = f"setup returned {type(fresh).__name__}; expected the arguments as a tuple"
    with pytest.raises(TypeError, match=words):
        preparer(both, Arguments(setup=lambda: fresh))()


def test_the_first_call_hands_back_its_result() -> None:
    assert first_call(preparer(both, Arguments((1,)))) == ((1,), {})


def generator() -> Iterator[int]:
    yield 1


async def coroutine() -> int:
    return 1


async def async_generator() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("lazy", "words"),
    [
        (generator, "generator returned a generator: its body has not run"),
        (coroutine, "coroutine returned a coroutine: its body has not run"),
        (async_generator, "async_generator returned a async generator: its body has not run"),
        (lambda: map(str, [1]), "<lambda> returned a map: its body has not run"),
        (lambda: filter(None, [1]), "<lambda> returned a filter: its body has not run"),
    ],
)
def test_a_call_that_does_its_work_later_is_refused(lazy: Callable[[], object], words: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a coroutine that was never awaited, among others
        with pytest.raises(TypeError, match=words):
            first_call(preparer(lazy, Arguments()))
