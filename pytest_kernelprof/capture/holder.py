"""Who measures: a process has one profiler, and whoever is refused it is told who holds it."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_kernelprof.errors import IncompleteProfile
from pytest_kernelprof.system import Real

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True, eq=False)
class Holder:
    """Somebody who measures.

    Attributes:
        who: in words.
        gives_way: whether nobody has asked for this measurement, so that one that is asked for
            takes its place.
        thread: the thread that measures.
    """

    who: str
    gives_way: bool = False
    thread: int = field(default_factory=Real.this_thread)

    @property
    def refusal(self) -> str:
        """Why nobody else measures meanwhile, in words."""
        if self.thread == Real.this_thread():
            return (
                f"{self.who} is being profiled, and torch.profiler cannot nest: profile one after "
                "the other, or only one of them"
            )
        return (
            f"{self.who} is being profiled in {thread_words(self.thread)}, and a process has one "
            "profiler: profile one at a time, for example join that thread before this one begins"
        )


_holders: list[Holder] = []
_taking = Real.lock_of_thread()
_of_thread = threading.local()


@contextlib.contextmanager
def held_by(who: str, *, gives_way: bool = False) -> Iterator[None]:
    """Say who measures until the block ends, from the first warm-up to the last read.

    Raises:
        IncompleteProfile: somebody else does who does not give way.
    """
    holder = Holder(who, gives_way)
    with _taking:
        refuse_others()
        _holders.append(holder)
    _of_thread.newest = holder
    try:
        yield
    finally:
        if getattr(_of_thread, "newest", None) is holder:
            del _of_thread.newest
        with contextlib.suppress(ValueError):  # forgotten: its test is over
            _holders.remove(holder)


def refuse_others(*, may_be_own: bool = False) -> None:
    """Raise if somebody measures who does not give way.

    Args:
        may_be_own: whether this thread may be the one, unless its test has ended meanwhile.

    Raises:
        IncompleteProfile: with who it is.
    """
    for one in tuple(_holders):
        if not (one.gives_way or (may_be_own and one.thread == Real.this_thread())):
            raise IncompleteProfile(one.refusal)
    own: Holder | None = getattr(_of_thread, "newest", None)
    if may_be_own and own is not None and own not in _holders:
        raise IncompleteProfile(
            f"the test of {own.who} has ended: join the thread that measures before it does"
        )


def forget_holders() -> None:
    """Whoever is still there has left its block open, and holds nothing any more."""
    _holders.clear()
    _of_thread.__dict__.clear()


def who_gives_way() -> Holder | None:
    """Who has to make room for the newest that measures; None where nobody is there."""
    return next((one for one in _holders[:-1] if one.gives_way), None)


def thread_words(number: int) -> str:
    """A thread by its name, for example ``thread 'worker-1'``."""
    name = next((str(one.name) for one in Real.threads() if one.ident == number), str(number))
    return f"thread {name!r}"
