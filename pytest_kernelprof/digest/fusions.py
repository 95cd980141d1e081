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
        before, after: the kernels, one of the sides with a single one.
        old_us, new_us: what they take, in microseconds.
    """

    before: tuple[Kernel, ...]
    after: tuple[Kernel, ...]
    old_us: float
    new_us: float

    @property
    def words(self) -> str:
        """For example ``triton_poi_fused [gelu, mul] is now gelu + mul``: of several kernels with
        one operator each the operators."""
        one = self.before if len(self.before) == 1 else self.after
        inside = [_operators(k) for k in (self.after if one is self.before else self.before)]
        several = " + ".join(", ".join(sorted(names.elements())) for names in inside)
        if one is self.before:
            return f"{one[0].short_name} is now {several}"
        return f"{several} is now {one[0].short_name}"


def fusions_of(diff: ProfileDiff) -> tuple[Fusion, ...]:
    """Those that the operators in the kernels' names show, wherever they stand in the sequence."""
    changes = [(change, hunk.times) for hunk in diff.hunks for change in hunk.changes]
    gone = [(one, times) for one, times in changes if one.new is None]
    come = [(one, times) for one, times in changes if one.old is None]
    if len(gone) + len(come) > _MOST_KERNELS:
        return ()
    taken: set[int] = set()
    found = [
        Fusion(_olds([one]), _news(parts), one.old_us / times, _sum_new(parts, times))
        for one, times in gone
        if (parts := _parts(one.old, come, times, taken))
    ]
    found += [
        Fusion(_olds(parts), _news([one]), _sum_old(parts, times), one.new_us / times)
        for one, times in come
        if (parts := _parts(one.new, gone, times, taken))
    ]
    return tuple(found)


def _parts(
    whole: Kernel | None, others: Sequence[tuple[Change, int]], times: int, taken: set[int]
) -> list[Change]:
    """The others that together do what one does, each as often; none where that is not so."""
    left = _operators(whole) if whole is not None else Counter()
    if left.total() < 2:
        return []
    parts = []
    for change, often in others:
        kernel = change.new or change.old
        does = _operators(kernel) if kernel is not None else Counter()
        if often == times and id(change) not in taken and does and does <= left:
            parts.append(change)
            left -= does
    if left or len(parts) < 2:
        return []
    taken.update(map(id, parts))
    return parts


def _operators(kernel: Kernel) -> Counter[str]:
    """The operators in its short name: of ``triton_poi_fused [gelu, mul]`` two."""
    brackets = _BRACKETS.search(kernel.short_name)
    return Counter(re.split(r"\s*,\s*", brackets[1])) if brackets else Counter()


def _olds(changes: Sequence[Change]) -> tuple[Kernel, ...]:
    return tuple(one.old for one in changes if one.old is not None)


def _news(changes: Sequence[Change]) -> tuple[Kernel, ...]:
    return tuple(one.new for one in changes if one.new is not None)


def _sum_old(changes: Sequence[Change], times: int) -> float:
    return sum(one.old_us for one in changes) / times


def _sum_new(changes: Sequence[Change], times: int) -> float:
    return sum(one.new_us for one in changes) / times
