"""The call that is measured: a callable with its arguments, new ones for each round if asked."""

from __future__ import annotations

import gc
import inspect
import types
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from pytest_kernelprof.errors import CannotMeasureError
from pytest_kernelprof.profiler.tensors import Watched, watch
from pytest_kernelprof.units import name_of

Call = Callable[[], Any]
Prepare = Callable[[], Call]
"""Returns the next call with its arguments ready; runs outside of what is measured."""

_DEEPEST = 4
_MOST = 5_000
"""Values that are examined on each level of a result."""
_IN_PYTHON, _IN_C = types.FunctionType, types.WrapperDescriptorType
_CODE = (_IN_PYTHON, _IN_C)
_CONTAINERS = (list, tuple, set, frozenset, Mapping, deque, types.SimpleNamespace)
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodType)
_HOLDS_NO_RESULTS = (type, types.ModuleType, *_FUNCTIONS)
_HOLDS_NOTHING = frozenset({types.NoneType, bool, int, float, str, bytes})
_STATES: Mapping[type, Callable[[Any], str]] = {
    types.GeneratorType: inspect.getgeneratorstate,
    types.CoroutineType: inspect.getcoroutinestate,
}
_OPEN = ("CREATED", "SUSPENDED")

_NOT_BEGUN = "its body has not run, so there is nothing to measure"
_UNFINISHED = "its work may continue after the call has returned, so it is not measured"


class Arguments(NamedTuple):
    """The arguments of a call.

    Attributes:
        setup: returns new arguments before each call, or None to keep these.
    """

    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = types.MappingProxyType({})
    setup: Callable[[], Any] | None = None


NO_ARGUMENTS = Arguments()


def preparer(call: Callable[..., Any], arguments: Arguments) -> Prepare:
    """Return a function that returns the next call, with new arguments if there is a ``setup``.

    Raises:
        CannotMeasureError: ``args`` is no tuple or list, ``kwargs`` no mapping, or ``setup`` no
            callable.
    """
    args, kwargs, setup = arguments.args, arguments.kwargs, arguments.setup
    if not isinstance(args, (tuple, list)):  # a tensor would be taken apart into its rows
        raise CannotMeasureError(
            f"args: expected the arguments as a tuple, got {type(args).__name__}; write (x,) for "
            "one argument, or call without .run: kernel_profile(fn, x)"
        )
    if not isinstance(kwargs, Mapping):
        raise CannotMeasureError(
            f"kwargs: expected keyword arguments as a dict, got {type(kwargs).__name__}"
        )
    if setup is not None and not callable(setup):
        raise CannotMeasureError(
            f"setup={setup!r}: expected a callable that returns the arguments of a call"
        )
    if setup is None:
        ready = partial(call, *args, **kwargs)
        return lambda: ready

    def prepare() -> Call:
        fresh_args, fresh_kwargs = args_and_kwargs("setup", setup(), arguments)
        return partial(call, *fresh_args, **fresh_kwargs)

    return prepare


def with_progress(prepares: Iterable[Prepare], report: Callable[[int], None]) -> Prepare:
    """Return a function that calls ``report`` with the number of calls so far, then returns the
    next call: of each of these in turn."""
    turns = enumerate(prepares)

    def prepare() -> Call:
        done, one = next(turns)
        report(done)
        return one()

    return prepare


def watch_in_place(functions: Sequence[Callable[..., Any]], given: Arguments) -> Watched:
    """Watch the tensors that calls may change in place; none if each call gets new arguments."""
    return Watched() if given.setup is not None else watch(functions, given.args, given.kwargs)


def args_and_kwargs(
    who: str, fresh: Any, given: Arguments | None = None
) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """Split what ``setup`` or ``fresh`` returned into arguments and keyword arguments.

    Args:
        who: which of the two it was, for the message.
        fresh: what it returned.
        given: the arguments that None stands for.

    Raises:
        CannotMeasureError: it returned something else than arguments.
    """
    match fresh:
        case None if given is not None:
            return given.args, given.kwargs
        case (tuple() | list() as args, dict() as kwargs) if isinstance(fresh, tuple):
            return args, kwargs
        case tuple() | list():
            return fresh, {}
    keep = " (or None to keep the given ones)" if given else ""
    raise CannotMeasureError(
        f"{who} returned {type(fresh).__name__}; expected the arguments as a tuple, or "
        f"(args, kwargs) with a tuple and a dict{keep}"
    )


def first_call(prepare: Prepare) -> Any:
    """Call once, before anything is measured, and return the result.

    Raises:
        CannotMeasureError: the call returned an object that does the work later, or that stands
            for work under way. If it were measured, there would seem to be no work.
    """
    call = prepare()
    result = call()
    if (found := _lazy(result)) is not None:
        lazy, why = found
        name = name_of(getattr(call, "func", call))
        held = "" if lazy is result else f" in {_named(result)}"
        if isinstance(lazy, types.CoroutineType):
            lazy.close()  # Python would warn of it as well
        raise CannotMeasureError(
            f"{name} returned {_named(lazy)}{held}: {why}; pass a callable that runs it to its "
            "end, for example lambda: list(f(x)) for a generator or another iterator, lambda: "
            "asyncio.run(f(x)) for a coroutine and lambda: f(x).result() for a future"
        )
    return result


def _named(value: Any) -> str:
    """Name a value by its type, for example "an async generator"."""
    kind = type(value).__name__.strip("_").replace("_", " ")
    return f"{'an' if kind[:1].lower() in 'aeiou' else 'a'} {kind}"


def _lazy(result: Any) -> tuple[Any, str] | None:
    """Find what in a result does its work later, or still does it, and why it is not measured.

    This runs no code of the result: types say what it is, the garbage collector what it holds.
    """
    level = [(result, True)]
    for _ in range(_DEEPEST + 1):
        held: list[tuple[Any, bool]] = []
        for value, is_result in level[:_MOST]:
            if why := _why_refused(value, is_result):
                return value, why
            if len(held) < _MOST and not issubclass(type(value), _HOLDS_NO_RESULTS):
                is_data = is_result and _is_data(type(value))
                found = gc.get_referents(value)
                held += [(one, is_data) for one in found if type(one) not in _HOLDS_NOTHING]
        level = held
    return None


def _why_refused(value: Any, is_result: bool) -> str:
    """Return why a value is not measured; empty if it is.

    Args:
        is_result: whether it is a result, alone or in a container of results. Any other object may
            hold threads, counters and generators for its own use; of these, only a body that has
            not begun is refused.
    """
    if (state := _STATES.get(type(value))) is not None:
        return _NOT_BEGUN if state(value).endswith(_OPEN[: 1 + is_result]) else ""
    if is_result and _stands_for_work(value):
        return "" if _is_done(value) else _UNFINISHED
    return _NOT_BEGUN if is_result and _makes_the_next(value) else ""


def _makes_the_next(value: Any) -> bool:
    """Whether a value runs code to return its next item, or to be awaited. A file or another
    reader, and an iterator over existing items, only return data."""
    kind = type(value)
    if _of_type(kind, "read") or kind.__module__ == "csv":
        return False
    following, later, awaited = map(partial(_of_type, kind), ("__next__", "__anext__", "__await__"))
    if isinstance(awaited, _CODE) or isinstance(later, _CODE) or isinstance(following, _IN_PYTHON):
        return True
    if not isinstance(following, _IN_C):  # a mock's, for example
        return False
    if issubclass(kind, (map, filter, zip, enumerate)) or kind.__module__ == "itertools":
        return True
    return any(callable(one) for one in gc.get_referents(value) if one is not kind)


def _of_type(kind: type, name: str) -> Any:
    """Look a name up on a type, not on a value of it."""
    return next((vars(base)[name] for base in kind.__mro__ if name in vars(base)), None)


def _is_data(kind: type) -> bool:
    """Whether values of a type only hold results."""
    if issubclass(kind, _CONTAINERS) or isinstance(_of_type(kind, "__next__"), _IN_C):
        return True
    return _of_type(kind, "__dataclass_fields__") is not None


def _stands_for_work(value: Any) -> bool:
    """Whether it stands for work on another thread: a future of any library, a result of a pool, a
    thread or a process."""
    kind = type(value)
    return any(
        all(callable(getattr(kind, name, None)) for name in names)
        for names in (("done", "add_done_callback"), ("ready", "wait", "get"), ("is_alive", "join"))
    )


def _is_done(value: Any) -> bool:
    for name in ("done", "ready"):
        if callable(getattr(type(value), name, None)):
            return bool(getattr(value, name)())
    return not value.is_alive()
