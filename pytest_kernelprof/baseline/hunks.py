"""What became of kernels that only one of two sequences has: hunks of changes, repeats folded."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_kernelprof.baseline.alignment import align
from pytest_kernelprof.baseline.pairing import Pairing, stem
from pytest_kernelprof.schema.diff import Change, Hunk

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_kernelprof.baseline.keys import Keys, Numbered
    from pytest_kernelprof.schema.diff import ChangeKind
    from pytest_kernelprof.schema.run import Kernel

Rows = list[int]
Gap = tuple[Rows, Rows]
"""Rows of old and of new kernels that stand between the same ones."""
Signature = tuple[tuple[int, ...], tuple[int, ...]]
"""The numbers of a gap's kernels."""
Marks = tuple[tuple[int, int], ...]
_Marked = tuple[tuple[int, int], Change]
"""A change, and the numbers that it is known by."""


@dataclass(slots=True)
class Sides:
    """Two sequences of kernels while they are compared.

    Attributes:
        old, new: the kernels. old_keys, new_keys: their numbers.
        same_old, same_new: rows of kernels that both have, one beside the other.
    """

    old: Sequence[Kernel]
    new: Sequence[Kernel]
    keys: Keys
    old_keys: list[int]
    new_keys: list[int]
    same_old: Rows = field(default_factory=list)
    same_new: Rows = field(default_factory=list)
    _pairing: Pairing = field(default_factory=Pairing)

    @classmethod
    def of(cls, old: Numbered, new: Numbered, keys: Keys) -> Sides:
        """Of kernels that these keys have numbered."""
        return cls(old.kernels, new.kernels, keys, old.keys.tolist(), new.keys.tolist())

    def hunks(self, *, ordered: bool) -> tuple[Hunk, ...]:
        """All changes; those of repeated layers once.

        Args:
            ordered: whether the order of kernels says anything. If not, they are sets that count.
        """
        gaps = self._aligned() if ordered else [self._sorted()]
        alike: dict[Signature, list[Gap]] = {}
        for gap in self._without_moved(gaps):
            alike.setdefault(self._signature(gap), []).append(gap)
        found = []
        for signature, several in alike.items():
            changes = self._changes(signature, several)
            if changes:
                gone, come = several[0]
                at = (_place(gone), _place(come)) if ordered else (0, 0)
                found.append((changes, len(several), at))
        return _folded(found)

    def _signature(self, gap: Gap) -> Signature:
        gone, come = gap
        return (
            tuple(map(self.old_keys.__getitem__, gone)),
            tuple(map(self.new_keys.__getitem__, come)),
        )

    def _aligned(self) -> list[Gap]:
        """What lies between the blocks that agree."""
        gaps = []
        i = j = 0
        for block in align(self.old_keys, self.new_keys):
            gaps.append((list(range(i, block.old)), list(range(j, block.new))))
            i, j = block.old + block.size, block.new + block.size
            self.same_old.extend(range(block.old, i))
            self.same_new.extend(range(block.new, j))
        gaps.append((list(range(i, len(self.old))), list(range(j, len(self.new)))))
        return [gap for gap in gaps if gap[0] or gap[1]]

    def _sorted(self) -> tuple[Rows, Rows]:
        return (
            sorted(range(len(self.old)), key=self.old_keys.__getitem__),
            sorted(range(len(self.new)), key=self.new_keys.__getitem__),
        )

    def _without_moved(self, gaps: Iterable[Gap]) -> list[Gap]:
        """Gaps without what both sides have, first in each gap, then in all of them."""
        nearer = [self._cancelled(gone, come) for gone, come in gaps]
        gone_in_all = [row for gone, _ in nearer for row in gone]
        come_in_all = [row for _, come in nearer for row in come]
        left = self._cancelled(gone_in_all, come_in_all)
        if left == (gone_in_all, come_in_all):
            return nearer
        kept_gone, kept_come = map(set, left)
        return [
            ([i for i in gone if i in kept_gone], [j for j in come if j in kept_come])
            for gone, come in nearer
        ]

    def _cancelled(self, gone: Rows, come: Rows) -> tuple[Rows, Rows]:
        """The rows that the other side has nothing for. Of equal kernels the last ones are the
        same, so that what is new stands where it begins."""
        if {self.old_keys[i] for i in gone}.isdisjoint(self.new_keys[j] for j in come):
            return gone, come
        both = Counter(self.old_keys[i] for i in gone) & Counter(self.new_keys[j] for j in come)
        kept_gone, same_gone = _parted(gone, self.old_keys, both)
        kept_come, same_come = _parted(come, self.new_keys, both)
        for key, rows in same_gone.items():
            self.same_old.extend(rows)
            self.same_new.extend(same_come[key])
        return kept_gone, kept_come

    def _changes(self, signature: Signature, several: Sequence[Gap]) -> list[_Marked]:
        """The changes of gaps with the same kernels, each with the time of all of them."""
        gone, come = several[0]
        before, after = [self.old[i] for i in gone], [self.new[j] for j in come]
        a_keys, b_keys = signature
        old_us = [_sum(self.old, (gap[0][k] for gap in several)) for k in range(len(before))]
        new_us = [_sum(self.new, (gap[1][k] for gap in several)) for k in range(len(after))]
        found: list[_Marked] = []
        i = j = 0
        pairs = self._pairing.pairs(before, after, signature)
        for a, b in (*pairs, (len(before), len(after))):
            found += [
                ((a_keys[k], -1), Change("removed", old=before[k], old_us=old_us[k]))
                for k in range(i, a)
            ]
            found += [
                ((-1, b_keys[k]), Change("added", new=after[k], new_us=new_us[k]))
                for k in range(j, b)
            ]
            if a == len(before):
                break
            if self.keys.name_of(before[a]) == self.keys.name_of(after[b]):
                self.same_old.extend(gap[0][a] for gap in several)
                self.same_new.extend(gap[1][b] for gap in several)
            else:
                kind = _renamed(before[a], after[b])
                change = Change(kind, before[a], after[b], old_us[a], new_us[b])
                found.append(((a_keys[a], b_keys[b]), change))
            i, j = a + 1, b + 1
        return found


def _sum(kernels: Sequence[Kernel], rows: Iterable[int]) -> float:
    return sum(kernels[row].duration_us for row in rows)


def _parted(
    rows: Rows, keys: Sequence[int], both: Counter[int]
) -> tuple[Rows, defaultdict[int, Rows]]:
    """Rows beyond what both sides have of a key, and the others by key."""
    left, stays = Counter(both), []
    same: defaultdict[int, Rows] = defaultdict(list)
    for row in reversed(rows):
        if left[keys[row]]:
            left[keys[row]] -= 1
            same[keys[row]].append(row)
        else:
            stays.append(row)
    return stays[::-1], same


def _place(rows: Rows) -> int:
    """Where rows begin, counted from 1; 0 of none."""
    return rows[0] + 1 if rows else 0


def _renamed(old: Kernel, new: Kernel) -> ChangeKind:
    return "renamed" if stem(old.name) == stem(new.name) else "replaced"


def _folded(hunks: Iterable[tuple[list[_Marked], int, tuple[int, int]]]) -> tuple[Hunk, ...]:
    """Hunks of the same changes as one, also those that are repeats of one behind each other.

    Args:
        hunks: their changes, how often they are found so, and where first.
    """
    found: dict[Marks, _Fold] = {}
    for changes, times, at in hunks:
        marks = [mark for mark, _ in changes]
        period = _period(marks)
        fold = found.setdefault(tuple(marks[:period]), _Fold(at))
        fold.times += times * (len(changes) // period)
        for begin in range(0, len(changes), period):
            fold.repeats.append([change for _, change in changes[begin : begin + period]])
    return tuple(
        Hunk(tuple(map(_summed, zip(*one.repeats, strict=True))), one.times, *one.at)
        for one in found.values()
    )


@dataclass(slots=True)
class _Fold:
    """Hunks of the same changes: where the first stands, and how often there is one."""

    at: tuple[int, int]
    times: int = 0
    repeats: list[list[Change]] = field(default_factory=list)


def _summed(changes: Sequence[Change]) -> Change:
    first = changes[0]
    old_us, new_us = sum(c.old_us for c in changes), sum(c.new_us for c in changes)
    return Change(first.kind, first.old, first.new, old_us, new_us)


def _period(marks: Sequence[tuple[int, int]]) -> int:
    """The length of the shortest part that the whole is repeats of (Knuth, Morris and Pratt)."""
    border = [0] * len(marks)
    k = 0
    for i in range(1, len(marks)):
        while k and marks[i] != marks[k]:
            k = border[k - 1]
        k += marks[i] == marks[k]
        border[i] = k
    period = len(marks) - border[-1]
    return period if len(marks) % period == 0 else len(marks)
