"""Which kernel stands for which: of kernels that only one side has, those that do the same work."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_kernelprof.baseline.alignment import align
from pytest_kernelprof.names.short import short_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_kernelprof.schema.run import Kernel

    Pairs = tuple[tuple[int, int], ...]

_LIKE_ENOUGH = 3
_CELLS, _CELLS_IN_ALL = 4_096, 200_000


@dataclass(slots=True)
class Pairing:
    """Pairs kernels of hunks. What it spends on exact pairing is bounded: a hunk that is too large,
    or comes after too many, is paired by operators alone. Hunks of repeated layers cost nothing.

    Attributes:
        cells_left: how many pairs may still be looked at.
    """

    cells_left: int = _CELLS_IN_ALL
    _known: dict[tuple[tuple[int, ...], tuple[int, ...]], Pairs] = field(default_factory=dict)

    def pairs(
        self,
        old: Sequence[Kernel],
        new: Sequence[Kernel],
        keys: tuple[tuple[int, ...], tuple[int, ...]],
    ) -> Pairs:
        """Indices of kernels that stand for each other, in order.

        Args:
            keys: numbers of the kernels; hunks of equal numbers have equal pairs.
        """
        if not old or not new:
            return ()
        if keys not in self._known:
            cells = len(old) * len(new)
            if cells > min(_CELLS, self.cells_left):
                return _by_operators(old, new)
            self.cells_left -= cells
            self._known[keys] = _by_likeness(old, new)
        return self._known[keys]


def stem(name: str) -> str:
    """The first word of a short name: the family or the template."""
    return short_name(name).split(" ", 1)[0]


def likeness(old: Kernel, new: Kernel) -> int:
    """How much speaks for one standing for the other: its operators, then its name."""
    if old.operators and new.operators:
        found = 0
        if old.operators[0] == new.operators[0]:
            found = 5 if old.operators == new.operators else 4
        alike = 1
    else:  # in the replay of a graph no operator is known
        found, alike = 0, _LIKE_ENOUGH
    if old.name == new.name:
        return found + 2 * _LIKE_ENOUGH
    if short_name(old.name) == short_name(new.name):
        return found + _LIKE_ENOUGH
    return found + alike if stem(old.name) == stem(new.name) else found


def _by_likeness(old: Sequence[Kernel], new: Sequence[Kernel]) -> Pairs:
    """The pairing in order with the most in its favour (Needleman and Wunsch, gaps are free)."""
    like = functools.cache(lambda i, j: likeness(old[i], new[j]))
    best = [[0] * (len(new) + 1) for _ in range(len(old) + 1)]
    for i in range(len(old) - 1, -1, -1):
        for j in range(len(new) - 1, -1, -1):
            paired = best[i + 1][j + 1] + like(i, j) if like(i, j) >= _LIKE_ENOUGH else 0
            best[i][j] = max(paired, best[i + 1][j], best[i][j + 1])
    found = []
    i = j = 0
    while i < len(old) and j < len(new):
        if like(i, j) >= _LIKE_ENOUGH and best[i][j] == best[i + 1][j + 1] + like(i, j):
            found.append((i, j))
            i, j = i + 1, j + 1
        elif best[i][j] == best[i + 1][j]:
            i += 1
        else:
            j += 1
    return tuple(found)


def _by_operators(old: Sequence[Kernel], new: Sequence[Kernel]) -> Pairs:
    numbers: dict[str, int] = {}

    def keys(kernels: Sequence[Kernel]) -> list[int]:
        said = ((k.operators or (stem(k.name),))[0] for k in kernels)
        return [numbers.setdefault(one, len(numbers)) for one in said]

    return tuple(
        (block.old + k, block.new + k)
        for block in align(keys(old), keys(new))
        for k in range(block.size)
    )
