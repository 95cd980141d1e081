"""Full names of kernels: each stands on the page once, and what is short there leads to it."""

from __future__ import annotations

_LONGEST = 2_000


class FullNames:
    """Gathers the names of a page."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    def place_of(self, name: str) -> int:
        """Its number, from 1."""
        return self._places.setdefault(name, len(self._places) + 1)

    def all(self) -> list[tuple[int, str]]:
        """Each with its number, the middle of very long ones cut out."""
        return [(number, cut(name, _LONGEST)) for name, number in self._places.items()]


def cut(words: str, longest: int) -> str:
    """Both ends of what is longer, and how much is missing between."""
    if len(words) <= longest:
        return words
    half = longest // 2
    return f"{words[:half]} … {len(words) - 2 * half:,} characters … {words[-half:]}"
