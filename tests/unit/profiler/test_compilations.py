"""How often torch.compile has compiled, or given up, whatever is reset meanwhile."""

from __future__ import annotations

import collections
import itertools
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from pytest_kernelprof.profiler import compiled_code as watched
from pytest_kernelprof.profiler.compiled_code import Compilations, compilations

LIMIT = 8


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """A compiler without memory, which says nothing of its limit."""
    torch.compiler.reset()
    log = logging.getLogger("torch._dynamo.convert_frame")
    log.disabled = True
    yield
    log.disabled = False


def compiling_at_every_call() -> Callable[[], object]:
    sizes, long = itertools.count(2), torch.ones(200)
    compiled = torch.compile(lambda x, n: x[:n] * n, dynamic=False, backend="eager")
    return lambda: compiled(long, next(sizes))


def during(call: Callable[[], object]) -> Compilations:
    before = compilations()
    call()
    return compilations().since(before)


@pytest.mark.parametrize("fullgraph", [False, True])
def test_compilations_are_counted(fullgraph: bool) -> None:
    compiled = torch.compile(lambda x: x * 3 - 1, backend="eager", fullgraph=fullgraph)
    assert during(lambda: compiled(torch.ones(2))).recompiles == 1
    assert during(lambda: compiled(torch.ones(2))).recompiles == 0


def test_each_part_of_a_broken_graph_is_one() -> None:
    def broken(x: torch.Tensor) -> torch.Tensor:
        x = x * 2
        torch._dynamo.graph_break()
        return x + 1

    compiled = torch.compile(broken, backend="eager")
    assert during(lambda: compiled(torch.ones(2))).recompiles == 2


@pytest.mark.parametrize(
    "clear",
    [
        lambda: torch._dynamo.reset(),
        lambda: torch._dynamo.utils.counters.clear(),
        lambda: torch._dynamo.convert_frame.FRAME_COMPILE_COUNTER.clear(),
        lambda: torch._dynamo.callback.callback_handler.clear(),
    ],
    ids=["reset", "counters", "attempts", "callbacks"],
)
def test_nothing_resets_the_count(clear: Callable[[], object]) -> None:
    call = compiling_at_every_call()
    assert during(lambda: (call(), clear(), call(), clear())).recompiles == 2


def test_compilations_on_another_thread_are_counted() -> None:
    call = compiling_at_every_call()

    def on_a_thread() -> None:
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()

    assert during(on_a_thread).recompiles == 1


def test_beyond_its_limit_the_compiler_is_known_to_refuse() -> None:
    call = compiling_at_every_call()
    up_to_it = during(lambda: [call() for _ in range(LIMIT)])
    assert (up_to_it.recompiles, up_to_it.refused) == (LIMIT, 0)
    beyond = during(lambda: [call() for _ in range(5)])
    assert (beyond.recompiles, beyond.refused, beyond.may_refuse) == (1, 1, True)


def test_a_backward_that_is_compiled_when_it_first_runs_is_counted() -> None:
    compiled = torch.compile(lambda x: (x * 2).sin().sum(), backend="aot_eager")
    loss: list[torch.Tensor] = []
    x = torch.ones(4, requires_grad=True)
    assert during(lambda: loss.append(compiled(x))).recompiles == 1
    assert during(lambda: loss[0].backward()).recompiles == 1
    assert during(lambda: compiled(x).backward()).recompiles == 0


@pytest.fixture
def another(monkeypatch: pytest.MonkeyPatch) -> Callable[..., ModuleType]:
    """Put a compiler of these names in the place of torch's, not yet looked at."""

    def put(**names: Any) -> ModuleType:
        monkeypatch.setattr(watched, "_seen", Compilations())
        module = ModuleType("torch._dynamo.convert_frame")
        module.__spec__ = ModuleSpec(module.__name__, None)
        vars(module).update(names)
        monkeypatch.setitem(sys.modules, "torch._dynamo.convert_frame", module)
        monkeypatch.setitem(sys.modules, "torch._dynamo.callback", SimpleNamespace())
        return module

    return put


def told(found: Compilations) -> tuple[int | None, int, bool]:
    return found.recompiles, found.refused, found.may_refuse


def refusing(*_: object) -> tuple[bool, str]:
    return True, "recompile_limit"


def test_what_was_compiled_before_the_first_look_is_counted(
    another: Callable[..., ModuleType],
) -> None:
    attempts: collections.Counter[int] = collections.Counter({0: 1, 1: 1})
    another(FRAME_COMPILE_COUNTER=attempts, exceeds_recompile_limit=refusing)
    assert told(compilations()) == (2, 0, False)


def test_what_was_compiled_twice_before_the_first_look_may_have_been_refused(
    another: Callable[..., ModuleType],
) -> None:
    attempts: collections.Counter[int] = collections.Counter({0: 2})
    module = another(FRAME_COMPILE_COUNTER=attempts, exceeds_recompile_limit=refusing)
    assert told(compilations()) == (2, 0, True)
    module.exceeds_recompile_limit()
    module.FRAME_COMPILE_COUNTER[0] += 1
    assert told(compilations()) == (3, 1, True)


def test_a_compiler_without_the_count_cannot_be_asked(another: Callable[..., ModuleType]) -> None:
    another()
    assert compilations().recompiles is None
    assert compilations().since(Compilations(3)).recompiles is None


def test_where_nothing_was_compiled_the_compiler_is_not_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watched, "_seen", Compilations())
    monkeypatch.delitem(sys.modules, "torch._dynamo.convert_frame", raising=False)
    assert told(compilations()) == (0, 0, False)
    assert "torch._dynamo.convert_frame" not in sys.modules
