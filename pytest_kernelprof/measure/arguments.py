"""What is called: the callable with its arguments, made fresh for each round where asked."""

from __future__ import annotations

import dataclasses
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field
from functools import partial
from types import CoroutineType
from typing import Any

from pytest_kernelprof.errors import CannotMeasureError
from pytest_kernelprof.units import name_of

Call = Callable[[], Any]
Prepare = Callable[[], Call]
"""Hands back the next call, its arguments ready; runs outside of what is measured."""

_DEEPEST = 3
_NOT_BEGUN = "its body has not run, so there is nothing to measure"
_UNFINISHED = "its work may go on when the call has returned, so it is not measured"


@dataclass(frozen=True, slots=True)
class Arguments:
    """What a callable is called with.

    Attributes:
        args, kwargs: its arguments.
        setup: makes fresh ones before each call, or hands back None to keep these.
    """

    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    setup: Callable[[], Any] | None = None


NO_ARGUMENTS = Arguments()


def preparer(call: Callable[..., Any], arguments: Arguments) -> Prepare:
    """What hands back the next call, its arguments made fresh where there is a ``setup``.

    Raises:
        CannotMeasureError: ``args`` are no tuple or list, ``kwargs`` no mapping, ``setup`` no
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
            f"setup={setup!r}: expected a callable that hands back the arguments of a call"
        )
    if setup is None:
        ready = partial(call, *args, **kwargs)
        return lambda: ready
    return partial(_fresh_call, call, arguments, setup)


def _fresh_call(call: Callable[..., Any], arguments: Arguments, setup: Callable[[], Any]) -> Call:
    args, kwargs = args_and_kwargs("setup", setup(), arguments)
    return partial(call, *args, **kwargs)


def args_and_kwargs(
    who: str, fresh: Any, given: Arguments | None = None
) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """The arguments that somebody handed out.

    Args:
        given: what None stands for.

    Raises:
        CannotMeasureError: they are not of the form.
    """
    if fresh is None and given is not None:
        return given.args, given.kwargs
    if _is_args_and_kwargs(fresh):
        return fresh[0], fresh[1]
    if isinstance(fresh, (tuple, list)):
        return fresh, {}
    keep = " (or None to keep the given ones)" if given else ""
    raise CannotMeasureError(
        f"{who} returned {type(fresh).__name__}; expected the arguments as a tuple, or "
        f"(args, kwargs) with a tuple and a dict{keep}"
    )


def _is_args_and_kwargs(fresh: Any) -> bool:
    return (
        isinstance(fresh, tuple)
        and len(fresh) == 2
        and isinstance(fresh[0], (tuple, list))
        and isinstance(fresh[1], dict)
    )


def first_call(prepare: Prepare) -> Any:
    """Call once, before anything is measured; hands back the result.

    Raises:
        CannotMeasureError: the call only made an object that would do the work later, or that
            stands for work under way: measured, it would look as if there were none.
    """
    call = prepare()
    result = call()
    found = _lazy(result, _DEEPEST)
    if found is not None:
        lazy, why = found
        name = name_of(getattr(call, "func", call))
        held = "" if lazy is result else f" in {_named(result)}"
        if isinstance(lazy, CoroutineType):
            lazy.close()  # Python would warn of it as well
        raise CannotMeasureError(
            f"{name} returned {_named(lazy)}{held}: {why}; hand over a callable that runs it to "
            "its end, such as lambda: list(f(x)) for a generator or another iterator, lambda: "
            "asyncio.run(f(x)) for a coroutine and lambda: f(x).result() for a future"
        )
    return result


def _named(value: Any) -> str:
    """A value by its type, for example "an async generator"."""
    kind = type(value).__name__.replace("_", " ")
    return f"{'an' if kind[:1].lower() in 'aeiou' else 'a'} {kind}"


def _lazy(value: Any, depth: int) -> tuple[Any, str] | None:
    """What in a result would do its work later, or does it now, and why it is not measured."""
    if _stands_for_work(value):
        return None if _is_done(value) else (value, _UNFINISHED)
    if isinstance(value, (Iterator, AsyncIterator, Awaitable)):
        return value, _NOT_BEGUN
    found = (_lazy(one, depth - 1) for one in (_parts(value) if depth else ()))
    return next(filter(None, found), None)


def _parts(value: Any) -> Iterable[Any]:
    """What a container of results holds."""
    if isinstance(value, (list, tuple, set, frozenset)):
        return value
    if isinstance(value, Mapping):
        return value.values()
    return vars(value).values() if dataclasses.is_dataclass(value) and _has_vars(value) else ()


def _has_vars(value: Any) -> bool:
    return hasattr(value, "__dict__") and not isinstance(value, type)


def _stands_for_work(value: Any) -> bool:
    """Whether it is what those hand out who work on another thread: futures of any library, results
    of pools, threads and processes."""
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
