"""What became of kernels that only one of two sequences has: hunks of changes, repeats folded."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_kernelprof.baseline.alignment import align
from pytest_kernelprof.baseline.keys import Keys
from pytest_kernelprof.baseline.pairing import Pairing, stem
from pytest_kernelprof.schema.diff import Change, Hunk

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_kernelprof.schema.run import Kernel

Rows = list[int]
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
    def of(cls, old: Sequence[Kernel], new: Sequence[Kernel]) -> Sides:
        """Number the kernels of both."""
        keys = Keys()
        return cls(old, new, keys, keys.of(old), keys.of(new))

    def hunks(self, *, ordered: bool) -> tuple[Hunk, ...]:
        """All changes; those of repeated layers once.

        Args:
            ordered: whether the order of kernels says anything. If not, they are sets that count.
        """
        gaps = self._aligned() if ordered else [self._sorted()]
        found = []
        for gone, come in self._without_moved(gaps):
            changes = self._changes(gone, come)
            if changes:
                at = (_place(gone), _place(come)) if ordered else (0, 0)
                found.append((changes, at))
        return _folded(found)

    def _aligned(self) -> list[tuple[Rows, Rows]]:
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

    def _without_moved(self, gaps: Iterable[tuple[Rows, Rows]]) -> list[tuple[Rows, Rows]]:
        """Gaps without what both sides have, first in each gap, then in all of them."""
        nearer = [self._cancelled(gone, come) for gone, come in gaps]
        gone_in_all = [row for gone, _ in nearer for row in gone]
        come_in_all = [row for _, come in nearer for row in come]
        kept_gone, kept_come = map(set, self._cancelled(gone_in_all, come_in_all))
        return [
            ([i for i in gone if i in kept_gone], [j for j in come if j in kept_come])
            for gone, come in nearer
        ]

    def _cancelled(self, gone: Rows, come: Rows) -> tuple[Rows, Rows]:
        """The rows that the other side has nothing for. Of equal kernels the last ones are the
        same, so that what is new stands where it begins."""
        both = Counter(self.old_keys[i] for i in gone) & Counter(self.new_keys[j] for j in come)
        if not both:
            return gone, come
        kept_gone, same_gone = _parted(gone, self.old_keys, both)
        kept_come, same_come = _parted(come, self.new_keys, both)
        for key, rows in same_gone.items():
            self.same_old.extend(rows)
            self.same_new.extend(same_come[key])
        return kept_gone, kept_come

    def _changes(self, gone: Rows, come: Rows) -> list[_Marked]:
        before, after = [self.old[i] for i in gone], [self.new[j] for j in come]
        a_keys, b_keys = (
            tuple(self.old_keys[i] for i in gone),
            tuple(self.new_keys[j] for j in come),
        )
        found: list[_Marked] = []
        i = j = 0
        pairs = self._pairing.pairs(before, after, (a_keys, b_keys))
        for a, b in (*pairs, (len(before), len(after))):
            found += [((a_keys[k], -1), _removed(before[k])) for k in range(i, a)]
            found += [((-1, b_keys[k]), _added(after[k])) for k in range(j, b)]
            if a == len(before):
                break
            if self.keys.name_of(before[a]) == self.keys.name_of(after[b]):
                self.same_old.append(gone[a])
                self.same_new.append(come[b])
            else:
                found.append(((a_keys[a], b_keys[b]), _renamed(before[a], after[b])))
            i, j = a + 1, b + 1
        return found


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


def _removed(kernel: Kernel) -> Change:
    return Change("removed", old=kernel, old_us=kernel.duration_us)


def _added(kernel: Kernel) -> Change:
    return Change("added", new=kernel, new_us=kernel.duration_us)


def _renamed(old: Kernel, new: Kernel) -> Change:
    kind = "renamed" if stem(old.name) == stem(new.name) else "replaced"
    return Change(kind, old, new, old.duration_us, new.duration_us)  # type: ignore[arg-type]


def _folded(hunks: Iterable[tuple[list[_Marked], tuple[int, int]]]) -> tuple[Hunk, ...]:
    """Hunks of the same changes as one, also those that are repeats of one behind each other."""
    found: dict[tuple[tuple[int, int], ...], tuple[list[list[Change]], tuple[int, int]]] = {}
    for changes, at in hunks:
        marks = [mark for mark, _ in changes]
        period = _period(marks)
        repeats, _ = found.setdefault(tuple(marks[:period]), ([], at))
        for begin in range(0, len(changes), period):
            repeats.append([change for _, change in changes[begin : begin + period]])
    return tuple(
        Hunk(tuple(map(_summed, zip(*repeats, strict=True))), len(repeats), *at)
        for repeats, at in found.values()
    )


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
