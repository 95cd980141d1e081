"""How often torch.compile has compiled in this process, or given up; counted where nothing resets.

``torch._dynamo.reset()`` clears dynamo's own count of attempts and the callbacks that users
register, and anybody may clear ``counters``. So the count of attempts is replaced by one that tells
us of each, and what decides on the limit and what announces a compilation are listened to.
"""

from __future__ import annotations

import collections
import functools
import sys
from dataclasses import dataclass, replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    Attempts = collections.Counter[int]


@dataclass(frozen=True, slots=True)
class Compilations:
    """What torch.compile did so far in this process, or between two looks.

    Attributes:
        compiled: frames that were compiled, refused attempts among them, and backward graphs that
            were compiled when they first ran. None where this torch cannot be asked.
        refused: attempts beyond ``recompile_limit``: the code runs without the compiler from then
            on, and nothing is counted any more.
        may_refuse: whether any attempt was refused, or may have been before the first look.
    """

    compiled: int | None = 0
    refused: int = 0
    may_refuse: bool = False

    def since(self, before: Compilations) -> Compilations:
        """What was done since an earlier look."""
        known = self.compiled is not None and before.compiled is not None
        compiled = (self.compiled or 0) - (before.compiled or 0) if known else None
        return replace(self, compiled=compiled, refused=self.refused - before.refused)


def compilations() -> Compilations:
    """What torch.compile did in this process; compare two looks.

    The compiler is watched from the first look at which it is loaded; what it did before that is
    known as far as nobody reset it.
    """
    convert_frame = sys.modules.get("torch._dynamo.convert_frame")
    if convert_frame is None:
        return Compilations()
    _watch(convert_frame)
    return _seen.now()


class _Seen:
    """The counts. Attempts are made under the compiler's own lock, so plain numbers do."""

    def __init__(self) -> None:
        self.attempts = 0
        self.late = 0
        self.refused = 0
        self.may_refuse = False
        self.countable = False

    def now(self) -> Compilations:
        compiled = self.attempts + self.late if self.countable else None
        return Compilations(compiled, self.refused, self.may_refuse)


_seen = _Seen()


class _Telling(collections.Counter[int]):
    """Dynamo's count of attempts by frame, which tells of each, whoever clears it."""

    def __setitem__(self, frame: int, attempts: int) -> None:
        _seen.attempts += 1
        super().__setitem__(frame, attempts)


def _watch(convert_frame: ModuleType) -> None:
    attempts = getattr(convert_frame, "FRAME_COMPILE_COUNTER", None)
    if isinstance(attempts, _Telling):
        return
    _seen.countable = isinstance(attempts, collections.Counter)
    if isinstance(attempts, collections.Counter):
        _seen.attempts += sum(attempts.values())
        # A frame that was tried more than once may have reached the limit before we looked.
        _seen.may_refuse |= any(times > 1 for times in attempts.values())
        convert_frame.FRAME_COMPILE_COUNTER = _telling(attempts)  # type: ignore[attr-defined]
    exceeds = getattr(convert_frame, "exceeds_recompile_limit", None)
    if exceeds is None:
        _seen.may_refuse = True
    else:
        convert_frame.exceeds_recompile_limit = _telling_of_refusals(exceeds)  # type: ignore[attr-defined]
    handler: Any = getattr(
        sys.modules.get("torch._dynamo.callback"), "CompilationCallbackHandler", None
    )
    if hasattr(handler, "install_callbacks"):
        handler.install_callbacks = _telling_of_backward(handler.install_callbacks)


def _telling(attempts: Attempts) -> _Telling:
    """A counter of ours that holds the same."""
    telling = _Telling()
    telling.update(attempts)
    return telling


def _telling_of_refusals(exceeds: Callable[..., Any]) -> Callable[..., Any]:
    """What decides whether the limit is reached, with each yes noted."""

    @functools.wraps(exceeds)
    def decide(*args: Any, **kwargs: Any) -> Any:
        answer = exceeds(*args, **kwargs)
        if answer[0]:
            _seen.refused += 1
            _seen.may_refuse = True
        return answer

    return decide


def _telling_of_backward(announce: Callable[..., Any]) -> Callable[..., Any]:
    """What announces a compilation, with those of a backward graph at its first run noted: no
    frame is tried for them."""

    @functools.wraps(announce)
    def install_callbacks(handler: Any, trigger: Any, *args: Any, **kwargs: Any) -> Any:
        if getattr(trigger, "name", "") == "LAZY_BACKWARD":
            _seen.late += 1
        return announce(handler, trigger, *args, **kwargs)

    return install_callbacks
