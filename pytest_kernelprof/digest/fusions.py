"""Kernels that do what others did: one in the place of several, or several in the place of one."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_kernelprof.schema.diff import Change, ProfileDiff
    from pytest_kernelprof.schema.run import Kernel

_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_MOST_KERNELS = 200


@dataclass(frozen=True, slots=True)
class Fusion:
    """What one kernel did, or does, and several do, or did.

    Attributes:
        gone, come: the changes, one of the sides with a single one.
        times: how often they are found so.
    """

    gone: tuple[Change, ...]
    come: tuple[Change, ...]
    times: int

    @property
    def before(self) -> tuple[Kernel, ...]:
        """The kernels that are gone."""
        return tuple(one.old for one in self.gone if one.old is not None)

    @property
    def after(self) -> tuple[Kernel, ...]:
        """The kernels that came."""
        return tuple(one.new for one in self.come if one.new is not None)

    @property
    def old_us(self) -> float:
        """What those that are gone took, in microseconds, of one of the times."""
        return sum(one.old_us for one in self.gone) / self.times

    @property
    def new_us(self) -> float:
        """What those that came take, likewise."""
        return sum(one.new_us for one in self.come) / self.times

    @property
    def words(self) -> str:
        """For example ``triton_poi_fused [gelu, mul] is now gelu + mul``: of several kernels with
        one operator each the operators."""
        if len(self.gone) == 1:
            return f"{self.before[0].short_name} is now {_together(self.come)}"
        return f"{_together(self.gone)} is now {self.after[0].short_name}"


def fusions_of(diff: ProfileDiff) -> tuple[Fusion, ...]:
    """Those that the operators in the kernels' names show, wherever they stand in the sequence."""
    changes = [(change, hunk.times) for hunk in diff.hunks for change in hunk.changes]
    gone = [(one, times) for one, times in changes if one.new is None]
    come = [(one, times) for one, times in changes if one.old is None]
    if len(gone) + len(come) > _MOST_KERNELS:
        return ()
    taken: set[int] = set()  # changes by identity: kernels that are alike may be one object
    found = [
        Fusion((one,), parts, times)
        for one, times in gone
        if (parts := _parts(one, come, times, taken))
    ]
    found += [
        Fusion(parts, (one,), times)
        for one, times in come
        if (parts := _parts(one, gone, times, taken))
    ]
    return tuple(found)


def _together(changes: Sequence[Change]) -> str:
    return " + ".join(", ".join(sorted(_operators(one).elements())) for one in changes)


def _parts(
    whole: Change, others: Sequence[tuple[Change, int]], times: int, taken: set[int]
) -> tuple[Change, ...]:
    """The others that together do what one does, each as often; none where that is not so.

    Args:
        taken: those that are parts of others; these are added.
    """
    left = _operators(whole)
    if left.total() < 2 or id(whole) in taken:
        return ()
    parts = []
    for change, often in others:
        does = _operators(change)
        if often == times and id(change) not in taken and does and does <= left:
            parts.append(change)
            left -= does
    if left or len(parts) < 2:
        return ()
    taken.update(map(id, (whole, *parts)))
    return tuple(parts)


def _operators(change: Change) -> Counter[str]:
    """The operators in a kernel's short name: of ``triton_poi_fused [gelu, mul]`` two."""
    kernel = change.new or change.old
    brackets = _BRACKETS.search(kernel.short_name) if kernel is not None else None
    return Counter(re.split(r"\s*,\s*", brackets[1])) if brackets else Counter()
