"""Which arguments a call gets, and what is refused before anything is measured."""

from __future__ import annotations

import asyncio
import collections
import concurrent.futures
import contextlib
import csv
import io
import itertools
import threading
import time
import warnings
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from multiprocessing.pool import ThreadPool
from types import MappingProxyType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, Mock

import pytest
import torch

from pytest_kernelprof.measure.arguments import Arguments, first_call, preparer

X = torch.ones(2)


def both(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
    return args, kwargs


def test_without_setup_each_call_has_the_given_arguments() -> None:
    given = [1]
    prepare = preparer(both, Arguments((given,), {"b": 2}))
    assert prepare()() == prepare()() == (([1],), {"b": 2})
    assert prepare()()[0][0] is given


def test_the_code_is_called_whatever_a_test_puts_in_place_of_partial(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("functools.partial", Mock())
        found = preparer(both, Arguments((1,)))()()
    assert found == ((1,), {})


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
        ((), {}, (1, 2), r"setup=\(1, 2\): expected a callable that returns the arguments"),
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


class Lazily:
    """An iterator of one's own."""

    def __iter__(self) -> Lazily:
        return self

    def __next__(self) -> int:
        raise StopIteration


class Awaited:
    def __await__(self) -> Iterator[int]:
        yield 1


@dataclass
class Output:
    first: int
    second: object


THREADS = ThreadPool(1)
LOOP = asyncio.new_event_loop()


@pytest.fixture(scope="module", autouse=True)
def _ended() -> Iterator[None]:
    yield
    THREADS.terminate()
    LOOP.close()


def running(thread: threading.Thread) -> threading.Thread:
    thread.start()
    return thread


def done() -> list[object]:
    """What stands for work that has been done."""
    future: concurrent.futures.Future[int] = concurrent.futures.Future()
    future.set_result(1)
    thread = running(threading.Thread(target=int))
    thread.join()
    result = THREADS.apply_async(int)
    result.wait()
    return [future, thread, result]


@pytest.mark.parametrize("result", [*done(), [1], "text", range(3), {"a": (1, 2)}, X, None])
def test_what_has_been_done_is_handed_back(result: object) -> None:
    assert first_call(preparer(lambda: result, Arguments())) is result


class Slotted:
    """An object of one's own, without a ``__dict__``."""

    __slots__ = ("held",)

    def __init__(self, held: object) -> None:
        self.held = held


class Nosy:
    """Tells who looks at it: its attributes, its class, its truth."""

    def __getattribute__(self, name: str) -> object:
        raise AssertionError(f"{name} was asked for")

    def __bool__(self) -> bool:
        raise AssertionError("bool() was asked for")


def begun(made: Iterator[int]) -> Iterator[int]:
    next(made)
    return made


def ended() -> Iterator[int]:
    made = generator()
    list(made)
    return made


TABLE = ["a,b", "1,2"]


NOTHING = frozenset[int]()


@pytest.mark.parametrize(
    "make",
    [
        io.BytesIO,
        lambda: csv.reader(TABLE),
        lambda: csv.DictReader(io.StringIO("a,b")),
        lambda: weakref.proxy(NOTHING),
        MagicMock,
        Mock,
        Nosy,
        lambda: iter([1, 2]),
        lambda: reversed([1, 2]),
        ended,
        lambda: Slotted(itertools.count()),
        lambda: Slotted(begun(generator())),
        lambda: Slotted(running(threading.Timer(0.1, int))),
        lambda: torch.nn.Sequential(torch.nn.Linear(2, 2)),
    ],
)
def test_what_only_hands_out_data_is_handed_back(make: Callable[[], object]) -> None:
    result = make()
    assert first_call(preparer(lambda: result, Arguments())) is result


def test_a_large_result_is_looked_at_in_little_time() -> None:
    large = [[{"a": (1.0, 2.0)}] * 1_000] * 10_000
    began = time.process_time()
    assert first_call(preparer(lambda: large, Arguments())) is large
    assert time.process_time() - began < 1


@pytest.mark.parametrize(
    ("lazy", "words"),
    [
        (contextlib.contextmanager(generator), "a generator in a GeneratorContextManager"),
        (lambda: collections.deque([generator()]), "returned a generator in a deque: its body"),
        (lambda: SimpleNamespace(a=map(str, [1])), "returned a map in a SimpleNamespace: its body"),
        (lambda: collections.UserDict(a=coroutine()), "returned a coroutine in an UserDict: its"),
        (lambda: Slotted(generator()), "returned a generator in a Slotted: its body"),
        (lambda: [Slotted([generator()])], "returned a generator in a list: its body"),
        (lambda: iter([generator()]), "returned a generator in a list iterator: its body"),
        (lambda: csv.reader(line for line in TABLE), "returned a generator in a reader: its body"),
        (lambda: iter(int, 1), "returned a callable iterator: its body has not run"),
        (lambda: async_generator().__anext__(), "returned an async generator asend: its body"),
        (lambda: THREADS.imap(time.sleep, [0.1]), "returned an IMapIterator: its body has not"),
    ],
)
def test_what_holds_a_body_that_has_not_run_is_refused(
    lazy: Callable[[], object], words: str
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(TypeError, match=words):
            first_call(preparer(lazy, Arguments()))


@pytest.mark.parametrize(
    ("lazy", "words"),
    [
        (generator, "generator returned a generator: its body has not run"),
        (coroutine, "coroutine returned a coroutine: its body has not run"),
        (async_generator, "async_generator returned an async generator: its body has not run"),
        (lambda: map(str, [1]), "<lambda> returned a map: its body has not run"),
        (lambda: filter(None, [1]), "<lambda> returned a filter: its body has not run"),
        (lambda: itertools.starmap(str, [(1,)]), "<lambda> returned a starmap: its body"),
        (lambda: zip([1], strict=True), "<lambda> returned a zip: its body has not run"),
        (lambda: enumerate(map(str, [1])), "<lambda> returned an enumerate: its body"),
        (Lazily, "Lazily returned a Lazily: its body has not run"),
        (lambda: Awaited(), "<lambda> returned an Awaited: its body has not run"),
        (lambda: (1, [generator()]), "<lambda> returned a generator in a tuple: its body"),
        (lambda: {"a": {"b": coroutine()}}, "<lambda> returned a coroutine in a dict: its body"),
        (lambda: Output(1, map(str, [1])), "<lambda> returned a map in an Output: its body"),
        (concurrent.futures.Future, "Future returned a Future: its work may continue"),
        (torch.futures.Future, "Future returned a Future: its work may continue"),
        (lambda: [asyncio.Future(loop=LOOP)], "<lambda> returned a Future in a list: its work"),
        (lambda: THREADS.apply_async(time.sleep, (0.2,)), "returned an ApplyResult: its work"),
        (lambda: running(threading.Timer(0.2, print)), "returned a Timer: its work may continue"),
    ],
)
def test_a_call_that_does_its_work_later_is_refused(lazy: Callable[[], object], words: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a coroutine that was never awaited, among others
        with pytest.raises(TypeError, match=words):
            first_call(preparer(lazy, Arguments()))
