"""Who measures: a process has one profiler, and whoever is refused it is told who holds it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_holders: list[str] = []


@contextlib.contextmanager
def held_by(who: str) -> Iterator[None]:
    """Say who measures until the block ends."""
    _holders.append(who)
    try:
        yield
    finally:
        _holders.remove(who)


def outer_holder() -> str:
    """Who began to measure first and has not ended; empty where that is the one that asks."""
    return _holders[0] if len(_holders) > 1 else ""
