"""The order of turns, A B, B A, ..., so that a drift of the machine meets all callables alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def order_of_turns(names: Sequence[str], first: int, turns: int) -> list[str]:
    """Whose call is when, in so many turns.

    Args:
        first: how many turns there were before: every other is in reverse order.
    """
    forth, back = list(names), list(reversed(names))
    return [name for turn in range(first, first + turns) for name in (back if turn % 2 else forth)]
