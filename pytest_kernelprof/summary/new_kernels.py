"""Which kernels of a profile are new since its baseline and which are gone; which do what others
did: one in the place of several, or several in the place of one."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_kernelprof.schema.comparison import BASELINE_WORDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_kernelprof.schema.comparison import (
        KernelChange,
        KernelDiff,
        KernelSide,
        ProfileComparison,
    )
    from pytest_kernelprof.schema.run import Profile


@dataclass(frozen=True, slots=True)
class NewKernels:
    """What is another since a baseline.

    Attributes:
        since: what that is, in words.
        positions: of the kernels that are new, from 0.
        gone: the changes by which kernels are gone.
    """

    since: str
    positions: frozenset[int]
    gone: tuple[KernelChange, ...]


def broken_comparisons(profile: Profile) -> Iterator[ProfileComparison]:
    """Those that are worse, in the order of their verdicts."""
    for verdict in profile.verdicts:
        if verdict.outcome == "failed" and verdict.comparison is not None:
            yield verdict.comparison


def new_kernels(profile: Profile) -> NewKernels | None:
    """By the first comparison that is worse and names kernels; None where there is none, or where
    it cannot be told of each new kernel which one it is."""
    for one in broken_comparisons(profile):
        if one.changes and one.kernels is not None:
            positions = positions_in(one.kernels)
            gone = tuple(change for change in one.changes if change.baseline is not None)
            if positions is None or one.rank not in (None, profile.rank):
                return None
            places = (*positions, *(change.at - 1 for change in gone))
            if max(places, default=0) > len(profile.kernels):
                return None  # only some of the kernels are kept
            return NewKernels(BASELINE_WORDS[one.source], positions, gone)
    return None


def positions_in(diff: KernelDiff) -> frozenset[int] | None:
    """The kernels that the current side alone has, by their positions from 0; None where it cannot
    be told of each which one it is."""
    come = [one for one in diff.came_or_went if one.current is not None]
    if diff.left_out or any(one.lines or len(one.positions) != one.times for one in come):
        return None
    return frozenset(at - 1 for one in come for at in one.positions)


_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_MOST_KERNELS = 200


@dataclass(frozen=True, slots=True)
class Fusion:
    """What one kernel did, or does, and several do, or did.

    Attributes:
        gone, come: the changes, one of the sides with a single one.
    """

    gone: tuple[KernelChange, ...]
    come: tuple[KernelChange, ...]

    @property
    def after(self) -> KernelSide:
        """The first of the kernels that came."""
        return self.come[0].side

    @property
    def baseline_us(self) -> float:
        """What those that are gone took, in microseconds, of one of the times."""
        return sum(one.us(one.baseline) for one in self.gone)

    @property
    def current_us(self) -> float:
        """What those that came take, likewise."""
        return sum(one.us(one.current) for one in self.come)

    @property
    def words(self) -> str:
        """For example ``triton_poi_fused [gelu, mul] is now gelu + mul``: of several kernels with
        one operator each the operators."""
        if len(self.gone) == 1:
            return f"{self.gone[0].side.short_name} is now {_together(self.come)}"
        return f"{_together(self.gone)} is now {self.after.short_name}"


def fusions_of(diff: KernelDiff) -> tuple[Fusion, ...]:
    """Those that the operators in the kernels' names show, wherever they stand in the sequence."""
    gone, come = diff.of("removed"), diff.of("added")
    if len(gone) + len(come) > _MOST_KERNELS:
        return ()
    taken: set[int] = set()  # changes by identity: kernels that are alike may be one object
    found = [Fusion((one,), parts) for one in gone if (parts := _parts(one, come, taken))]
    found += [Fusion(parts, (one,)) for one in come if (parts := _parts(one, gone, taken))]
    return tuple(found)


def _together(changes: Sequence[KernelChange]) -> str:
    return " + ".join(", ".join(sorted(_operators(one).elements())) for one in changes)


def _parts(
    whole: KernelChange, others: Sequence[KernelChange], taken: set[int]
) -> tuple[KernelChange, ...]:
    """The others that together do what one does, each as often; none where that is not so.

    Args:
        taken: those that are parts of others; these are added.
    """
    left = _operators(whole)
    if left.total() < 2 or id(whole) in taken:
        return ()
    parts = []
    for change in others:
        does = _operators(change)
        if change.times == whole.times and id(change) not in taken and does and does <= left:
            parts.append(change)
            left -= does
    if left or len(parts) < 2:
        return ()
    taken.update(map(id, (whole, *parts)))
    return tuple(parts)


def _operators(change: KernelChange) -> Counter[str]:
    """The operators in a kernel's short name: of ``triton_poi_fused [gelu, mul]`` two."""
    brackets = _BRACKETS.search(change.side.short_name)
    return Counter(re.split(r"\s*,\s*", brackets[1])) if brackets else Counter()
