"""What became of kernels that only one of two sequences has: hunks of changes, repeats folded."""

from __future__ import annotations

import linecache
import os
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import TYPE_CHECKING

from pytest_kernelprof.baseline.alignment import Block, align
from pytest_kernelprof.baseline.pairing import Pairing, stem
from pytest_kernelprof.schema.diff import Change, Hunk

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_kernelprof.baseline.keys import Keys, Numbered
    from pytest_kernelprof.schema.diff import ChangeKind
    from pytest_kernelprof.schema.run import Kernel

_MOST_EQUAL, _AROUND, _MOST_LINES = 32, 8, 8
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
        lines: of a kernel that may be another of its equals, the lines of all of them: by its row
            in the new ones, by ``~row`` in the old ones.
    """

    old: Sequence[Kernel]
    new: Sequence[Kernel]
    keys: Keys
    old_keys: list[int]
    new_keys: list[int]
    same_old: Rows = field(default_factory=list)
    same_new: Rows = field(default_factory=list)
    lines: dict[int, tuple[str, ...]] = field(default_factory=dict)
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
        for block in self._by_lines(align(self.old_keys, self.new_keys)):
            gaps.append((list(range(i, block.old)), list(range(j, block.new))))
            i, j = block.old + block.size, block.new + block.size
            self.same_old.extend(range(block.old, i))
            self.same_new.extend(range(block.new, j))
        return [gap for gap in gaps if gap[0] or gap[1]]

    def _by_lines(self, blocks: Sequence[Block]) -> list[Block]:
        """Move what was added or removed to where the source lines agree best.

        An alignment by keys puts a new kernel behind its equals. Lines only choose among equals:
        they never make two kernels different.
        """
        old, new = self.old, self.new
        found = [*blocks, Block(len(old), len(new), 0)]
        for at in range(1, len(found)):
            before, after = found[at - 1], found[at]
            i, j = before.old + before.size, before.new + before.size
            gone, come = after.old - i, after.new - j
            if bool(gone) == bool(come):
                continue
            size, end = gone + come, after.new if come else after.old
            kernels, keys = self._side(bool(come))
            equal, most = 0, min(before.size, _MOST_EQUAL)
            while equal < most and keys[end - equal - 1] == keys[end - equal - 1 - size]:
                equal += 1
            first = end - size - equal
            sources = [one.source for one in kernels[first:end]] if equal else []
            if len(set(sources)) < 2:
                continue
            reach = range(1, min(before.size, equal + _AROUND) + 1)
            below = [(after.old + k, after.new + k) for k in range(min(after.size, _AROUND))]
            costs = []
            for shift in range(equal + 1):
                above = [(i - k + gone * (k <= shift), j - k + come * (k <= shift)) for k in reach]
                costs.append(_line_cost((old[a].source, new[b].source) for a, b in above + below))
            best = [shift for shift in range(equal, -1, -1) if costs[shift] == min(costs)]
            found[at - 1] = before._replace(size=before.size - best[0])
            found[at] = Block(after.old - best[0], after.new - best[0], after.size + best[0])
            for k in range(size):
                row = end - size - best[0] + k
                equals = [sources[equal - shift + k] for shift in best]
                self.lines[row if come else ~row] = _told(kernels[row].source, equals)
        return found

    def _side(self, is_new: bool) -> tuple[Sequence[Kernel], list[int]]:
        return (self.new, self.new_keys) if is_new else (self.old, self.old_keys)

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
        for is_new, kept, same in ((False, kept_gone, same_gone), (True, kept_come, same_come)):
            kernels, keys = self._side(is_new)
            for row in kept:
                if keys[row] in same:
                    equals = sorted((row, *same[keys[row]][-_MOST_EQUAL:]))
                    sources = [kernels[one].source for one in equals]
                    self.lines[row if is_new else ~row] = _told(kernels[row].source, sources)
        return kept_gone, kept_come

    def _changes(self, signature: Signature, several: Sequence[Gap]) -> list[_Marked]:
        """The changes of gaps with the same kernels, each with the time of all of them."""
        gone, come = several[0]
        before, after = [self.old[i] for i in gone], [self.new[j] for j in come]
        a_keys, b_keys = signature
        old_us = [_sum(self.old, (gap[0][k] for gap in several)) for k in range(len(before))]
        new_us = [_sum(self.new, (gap[1][k] for gap in several)) for k in range(len(after))]
        gone_at = [self.lines.get(~row, ()) for row in gone]
        come_at = [self.lines.get(row, ()) for row in come]
        found: list[_Marked] = []
        i = j = 0
        pairs = self._pairing.pairs(before, after, signature)
        for a, b in (*pairs, (len(before), len(after))):
            found += [
                ((a_keys[k], -1), Change("removed", before[k], None, old_us[k], 0.0, gone_at[k]))
                for k in range(i, a)
            ]
            found += [
                ((-1, b_keys[k]), Change("added", None, after[k], 0.0, new_us[k], come_at[k]))
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


def _line_cost(sources: Iterable[tuple[str, str]]) -> tuple[int, int]:
    """Return what speaks against old and new lines being the same, the lower the better.

    Returns:
        How many have another text; and how many lines an edit must have removed. An edit that only
        adds lines moves all lines below it down.
    """
    pairs = {(*_parsed(old), *_parsed(new)) for old, new in sources if old and new}
    removed = 0
    for _, of_files in groupby(sorted(pairs), key=lambda one: (one[0], one[2])):
        moved = [0, *(new - old for _, old, _, new in of_files)]
        removed += sum(max(0, a - b) for a, b in pairwise(moved))
    texts = [(_text(*one[:2]), _text(*one[2:])) for one in pairs if one[0] != one[2]]
    return sum(all(both) and both[0] != both[1] for both in texts), removed


def _parsed(source: str) -> tuple[str, int]:
    file, _, line = source.rpartition(":")
    return file, int(line) if line.isdecimal() else 0


def _text(file: str, line: int) -> str:
    """Return a line of a file; empty if it is not here, as the files of run documents."""
    linecache.checkcache(file)
    return linecache.getline(file, line).strip() if os.path.isabs(file) else ""


def _told(own: str, sources: Sequence[str]) -> tuple[str, ...]:
    """Return the lines in words; those of another file with its name. Empty where they are one."""
    different, file = dict.fromkeys(sources), own.rpartition(":")[0] + ":"
    told = [os.path.basename(one.removeprefix(file)) or "unknown" for one in different]
    return tuple(told) if len(told) > 1 else ()


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
    if len(changes) == 1:
        return first
    old_us, new_us = sum(c.old_us for c in changes), sum(c.new_us for c in changes)
    lines = list(dict.fromkeys(line for c in changes for line in c.lines))
    lines[_MOST_LINES:] = ["..."] if len(lines) > _MOST_LINES else []
    return Change(first.kind, first.old, first.new, old_us, new_us, tuple(lines))


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
