"""What is called: the callable with its arguments, made fresh for each round where asked."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any

Call = Callable[[], Any]
Prepare = Callable[[], Call]
"""Hands back the next call, its arguments ready; runs outside of what is measured."""

_LAZY = (GeneratorType, CoroutineType, AsyncGeneratorType, map, filter)


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
        TypeError: ``args`` are no tuple or list, ``kwargs`` no mapping, ``setup`` no callable.
    """
    args, kwargs, setup = arguments.args, arguments.kwargs, arguments.setup
    if not isinstance(args, (tuple, list)):  # a tensor would be taken apart into its rows
        raise TypeError(
            f"args: expected the arguments as a tuple, got {type(args).__name__}; write (x,) for "
            "one argument, or call without .run: kernel_profile(fn, x)"
        )
    if not isinstance(kwargs, Mapping):
        raise TypeError(
            f"kwargs: expected keyword arguments as a dict, got {type(kwargs).__name__}"
        )
    if setup is not None and not callable(setup):
        raise TypeError(
            f"setup={setup!r}: expected a callable that hands back the arguments of a call"
        )
    if setup is None:
        ready = functools.partial(call, *args, **kwargs)
        return lambda: ready
    return functools.partial(_fresh_call, call, arguments, setup)


def _fresh_call(call: Callable[..., Any], arguments: Arguments, setup: Callable[[], Any]) -> Call:
    fresh = setup()
    if fresh is None:
        return functools.partial(call, *arguments.args, **arguments.kwargs)
    if _is_args_and_kwargs(fresh):
        return functools.partial(call, *fresh[0], **fresh[1])
    if isinstance(fresh, (tuple, list)):
        return functools.partial(call, *fresh)
    raise TypeError(
        f"setup returned {type(fresh).__name__}; expected the arguments as a tuple, "
        "(args, kwargs) with a tuple and a dict, or None to keep the given ones"
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
        TypeError: the call only made an object that would do the work later: measured, it would
            look as if there were none.
    """
    call = prepare()
    result = call()
    if isinstance(result, _LAZY):
        name = getattr(getattr(call, "func", call), "__name__", "the callable")
        kind = type(result).__name__.replace("_", " ")
        if isinstance(result, CoroutineType):
            result.close()  # Python would warn of it as well
        raise TypeError(
            f"{name} returned a {kind}: its body has not run, so there is nothing to measure; hand "
            "over a callable that runs it to its end, such as lambda: list(f(x)) for a generator "
            "and lambda: asyncio.run(f(x)) for a coroutine"
        )
    return result
