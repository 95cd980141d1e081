"""A long sequence of kernels as a short one: what stands there several times in a row, once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

_LONGEST = 2048
_WORK = 400_000_000
"""So many pairs of kernels are compared at most: a second or so."""
_LEAST_SAVED = 4


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of the sequence.

    Attributes:
        unit: what it repeats. times: how often, 1 for what is there once.
    """

    unit: tuple[str, ...]
    times: int

    @property
    def folded(self) -> tuple[tuple[str, int], ...]:
        """The unit, with neighbours that are equal as one and their number."""
        found: list[tuple[str, int]] = []
        for name in self.unit:
            if found and found[-1][0] == name:
                found[-1] = (name, found[-1][1] + 1)
            else:
                found.append((name, 1))
        return tuple(found)


def stretches(names: Sequence[str]) -> tuple[Stretch, ...]:
    """The sequence as stretches in order, the longest repeats first taken out of it.

    Units of up to 2,048 are looked for. The time is bounded: of a sequence that is long, and has no
    long repeats, short ones may be left in it.
    """
    codes: dict[str, int] = {}
    ids = np.array([codes.setdefault(name, len(codes)) for name in names], np.int64)
    return tuple(
        Stretch(tuple(names[start : start + period]), times) for start, period, times in _split(ids)
    )


def whole_repeats(names: Sequence[str]) -> int:
    """How often the whole sequence repeats one unit; 1 where it does not."""
    found = stretches(names)
    return found[0].times if len(found) == 1 else 1


def _split(ids: NDArray[np.int64]) -> Iterator[tuple[int, int, int]]:
    """Start, period and times of each part."""
    waiting, work = [(0, ids)], _WORK
    while waiting:
        start, part = waiting.pop()
        if not len(part):
            continue
        longest = min(_LONGEST, len(part) // 2, work // len(part))
        work -= longest * len(part)
        best = _best(part, longest)
        if best is None:
            yield start, len(part), 1
            continue
        first, period, times = best
        end = first + period * times
        if first == 0:
            yield start, period, times
            waiting.append((start + end, part[end:]))
        else:  # in order: before it, itself, after it
            waiting.append((start + first, part[first:]))
            waiting.append((start, part[:first]))


def _best(ids: NDArray[np.int64], longest: int) -> tuple[int, int, int] | None:
    """The repeat that saves most; of equals the shortest unit."""
    saved, best = _LEAST_SAVED - 1, None
    for period in range(1, longest + 1):
        if len(ids) - period <= saved:
            break
        first, length = _longest_run(ids[period:] == ids[:-period])
        times = length // period + 1
        if times > 1 and period * (times - 1) > saved:
            saved, best = period * (times - 1), (first, period, times)
    return best


def _longest_run(agree: NDArray[np.bool_]) -> tuple[int, int]:
    """Where the longest run of True begins, and how long it is."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], agree, [False]))))
    if not len(edges):
        return 0, 0
    lengths = edges[1::2] - edges[::2]
    longest = int(lengths.argmax())
    return int(edges[2 * longest]), int(lengths[longest])
