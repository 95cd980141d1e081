"""Who measures: a process has one profiler, and whoever is refused it is told who holds it."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True, eq=False)
class Holder:
    """Somebody who measures.

    Attributes:
        who: in words.
        gives_way: whether nobody has asked for this measurement, so that one that is asked for
            takes its place.
    """

    who: str
    gives_way: bool = False


_holders: list[Holder] = []


@contextlib.contextmanager
def held_by(who: str, *, gives_way: bool = False) -> Iterator[None]:
    """Say who measures until the block ends."""
    holder = Holder(who, gives_way)
    _holders.append(holder)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # forgotten: its test is over
            _holders.remove(holder)


def forget_holders() -> None:
    """Whoever is still there has left its block open, and holds nothing any more."""
    _holders.clear()


def outer_holder() -> Holder | None:
    """Who is in the way of the one that asks: who began first of those that do not give way, or one
    that does; None where nobody is."""
    others = _holders[:-1]
    return next((one for one in others if not one.gives_way), next(iter(others), None))
