"""How the kernels of a profile differ from those of its baseline: the one diff that all comparisons
are made of.

Kernels are the same by name and innermost operator. They are aligned in launch order. Everything is
linear in the kernels, but for the pairing inside of hunks, which is bounded.
"""

from __future__ import annotations

import functools
import linecache
import math
import os
from bisect import bisect_left
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from msgspec.structs import replace

from pytest_kernelprof.comparison.kernel_pairing import Block, Keys, Pairing, align, period_of, stem
from pytest_kernelprof.records.comparison import KernelChange, KernelDiff, KernelSide
from pytest_kernelprof.units import grouped

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from pytest_kernelprof.comparison.kernel_pairing import AnyKernel, Numbered, Numbers
    from pytest_kernelprof.records.comparison import KernelChangeKind
    from pytest_kernelprof.records.profile import KernelGroup, Profile

MOST_CHANGES = 200
"""Changes that a diff names; the others are counted."""
SLOWER_BY, SLOWER_US = 0.1, 1.0
"""Of one round each: a kernel is told as slower or faster from so much on, and so many microseconds
of all its repeats together."""
_MOST_EQUAL, _AROUND, _MOST_LINES, _MOST_POSITIONS = 32, 8, 8, 1_000

Rows = list[int]
Gap = tuple[Rows, Rows]
"""Rows of old and of new kernels that stand between the same ones."""
Signature = tuple[tuple[int, ...], tuple[int, ...]]
"""The numbers of a gap's kernels."""
Marks = tuple[tuple[int, int], ...]
_Marked = tuple[int, int, "KernelChangeKind", int, int]
"""The numbers that a change is known by, its kind, its places in the gap; -1 on a side that has
none. There may be very many: of atoms alone, none is the garbage collector's concern."""
_Repeat = tuple[list[Gap], list[_Marked]]
"""Gaps with the same kernels, and the changes of each."""
Pair = tuple["AnyKernel | None", "AnyKernel | None", tuple[str, ...]]
"""A kernel on both sides, None on a side that has it not; lines as in ``KernelChange``."""


def diff_profiles(
    baseline: Profile,
    current: Profile,
    *,
    noticed: tuple[float, float] | None = (SLOWER_BY, SLOWER_US),
    one_code: bool = False,
) -> KernelDiff:
    """How the kernels of ``current`` differ.

    Takes time in proportion to the kernels (``benchmarks/alignment.py``).

    Args:
        noticed: from which fraction, and how many microseconds, on a kernel is slower or faster;
            None where times are no comparison.
        one_code: whether both sides run the same code: then one kernel in the place of another
            that has its operator and line is "renamed".
    """
    sides = _sides_of(baseline, current, one_code=one_code)
    old_more, new_more = _beyond(baseline, sides.old), _beyond(current, sides.new)
    kinds = {baseline.environment.kind, current.environment.kind}
    return replace(
        _diff(sides, _other_groups(old_more, new_more), noticed),
        baseline_kernels=len(sides.old.keys) + sum(one.count for one in old_more.values()),
        current_kernels=len(sides.new.keys) + sum(one.count for one in new_more.values()),
        baseline_us=_duration(sides.old, old_more) if noticed else None,
        current_us=_duration(sides.new, new_more) if noticed else None,
        baseline_steps=sides.old.of_steps,
        current_steps=sides.new.of_steps,
        what="operators" if kinds == {"cpu"} else "kernels",
    )


def diff_sides(
    baseline: Sequence[KernelSide], current: Sequence[KernelSide], *, ordered: bool
) -> KernelDiff:
    """The same of two lists of kernels whose names are comparable as they are; those that have
    moved are told, too, and those that need other resources, where both sides have them."""
    keys = Keys(comparable=str)
    sides = Sides(keys.of(baseline), keys.of(current), keys, ordered)
    found = _diff(sides)
    needs = sides.elsewhere("reconfigured", sides.reconfigured())
    moved = sides.elsewhere("moved", sides.moved())
    changes = (*found.changes, *needs, *moved)
    left_out = found.left_out + max(0, len(changes) - MOST_CHANGES)
    return replace(found, changes=changes[:MOST_CHANGES], left_out=left_out)


def side_by_side(baseline: Profile, current: Profile) -> tuple[Pair, ...]:
    """The kernels of both in launch order, by the rules of ``diff_profiles``: each beside the one
    that it is the same as; what is gone before what came. One that was moved stands where it is
    now."""
    sides = _sides_of(baseline, current)
    sides.changes()
    return tuple(_merged(sides, dict(zip(sides.same_new, sides.same_old, strict=True))))


def _sides_of(baseline: Profile, current: Profile, *, one_code: bool = False) -> Sides:
    keys = Keys()
    old, new = (keys.of(one.kernels).one_step() for one in (baseline, current))
    ordered = not (baseline.variants or current.variants)
    return Sides(old, new, keys, ordered, Pairing(by_line=one_code))


def _merged(sides: Sides, partners: dict[int, int]) -> Iterator[Pair]:
    """Args: partners: of rows of the new the row of the old that is the same."""
    old, new, lines = sides.old.kernels, sides.new.kernels, sides.lines
    there = set(partners.values())
    at = 0
    for row, kernel in enumerate(new):
        partner = partners.get(row)
        reached = partner + 1 if partner is not None else at
        # What stands before the same kernel and is gone comes first.
        while at < reached or (partner is None and at < len(old) and at not in there):
            if at not in there:
                yield old[at], None, lines.get(~at, ())
            at += 1
        if partner is None:
            yield None, kernel, lines.get(row, ())
        else:
            yield old[partner], kernel, ()
    left = (row for row in range(at, len(old)) if row not in there)
    yield from ((old[row], None, lines.get(~row, ())) for row in left)


def _diff(
    sides: Sides,
    more: Iterable[KernelChange] = (),
    noticed: tuple[float, float] | None = None,
) -> KernelDiff:
    """Args: more: changes of kernels that are not among these."""
    first, number = sides.changes()
    changes = [*first, *more]
    if noticed is not None:
        changes += sides.retimed(noticed)
    changes += sides.elsewhere("operator", sides.other_operator)
    return KernelDiff(
        baseline_kernels=len(sides.old.kernels),
        current_kernels=len(sides.new.kernels),
        changes=tuple(changes[:MOST_CHANGES]),
        left_out=max(0, number - len(first) + len(changes) - MOST_CHANGES),
        ordered=sides.ordered,
    )


def _beyond(profile: Profile, kernels: Numbered) -> dict[str, KernelGroup]:
    """The kernels that a run document has by name alone."""
    return {} if kernels.of_steps else {one.name: one for one in profile.more_kernels}


def _duration(kernels: Numbered, more: Mapping[str, KernelGroup]) -> float:
    return float(sum(kernels.us.tolist())) + sum(one.duration_us for one in more.values())


def _other_groups(
    old: Mapping[str, KernelGroup], new: Mapping[str, KernelGroup]
) -> Iterator[KernelChange]:
    """Of kernels without an order: what there is more and less of, by name."""
    for number, name in enumerate(dict.fromkeys((*old, *new))):
        before, after = old.get(name), new.get(name)
        more = (after.count if after else 0) - (before.count if before else 0)
        if more < 0 and before:
            gone = KernelSide(name, duration_us=before.duration_us * -more / before.count)
            yield KernelChange("removed", baseline=gone, times=-more, hunk=~number)
        elif more > 0 and after:
            came = KernelSide(name, duration_us=after.duration_us * more / after.count)
            yield KernelChange("added", current=came, times=more, hunk=~number)


@dataclass
class Sides:
    """Two sequences of kernels while they are compared.

    Attributes:
        old, new: the kernels. keys: what has numbered them.
        ordered: whether the order of kernels says anything. If not, they are sets that count.
        pairing: pairs those that differ.
        same_old, same_new: rows of kernels that both have, one beside the other.
        lines: of a kernel that may be another of its equals, the lines of all of them: by its row
            in the new ones, by ``~row`` in the old ones.
        other_operator: rows of kernels that both have, and that another operator launches.
    """

    old: Numbered
    new: Numbered
    keys: Keys
    ordered: bool
    pairing: Pairing = field(default_factory=Pairing)
    same_old: Rows = field(default_factory=list)
    same_new: Rows = field(default_factory=list)
    lines: dict[int, tuple[str, ...]] = field(default_factory=dict)
    other_operator: list[tuple[int, int]] = field(default_factory=list)

    def changes(self) -> tuple[list[KernelChange], int]:
        """The first changes, those of repeated layers once; and how many there are."""
        gaps = self._aligned() if self.ordered else [(_by_key(self.old), _by_key(self.new))]
        alike = grouped(self._without_moved(gaps), self._signature)
        hunks: dict[Marks, tuple[int, list[_Repeat]]] = {}
        for signature, several in alike.items():
            changes = self._changes(signature, several)
            come = several[0][1]
            at = come[0] + 1 if come and self.ordered else 0
            marks = tuple([one[:2] for one in changes])
            period = period_of(marks) if changes else 1
            for begin in range(0, len(changes), period):
                _, repeats = hunks.setdefault(marks[:period], (at, []))
                repeats.append((several, changes[begin : begin + period]))
        found: list[KernelChange] = []
        for hunk, (at, repeats) in enumerate(hunks.values()):
            told = range(min(len(repeats[0][1]), MOST_CHANGES - len(found)))
            found += [replace(self._change(repeats, one), hunk=hunk, at=at) for one in told]
        return found, sum(map(len, hunks))

    def _signature(self, gap: Gap) -> Signature:
        old, new = self.old.numbers, self.new.numbers
        return tuple([old[i] for i in gap[0]]), tuple([new[j] for j in gap[1]])

    def _change(self, repeats: Sequence[_Repeat], number: int) -> KernelChange:
        """A change with all that repeat it."""
        old: Rows = []
        new: Rows = []
        lines: dict[str, None] = {}
        for several, changes in repeats:
            _, _, _, a, b = changes[number]
            old += [gap[0][a] for gap in several] if a >= 0 else []
            new += [gap[1][b] for gap in several] if b >= 0 else []
            gone, come = several[0]
            if a < 0 or b < 0:
                lines.update(dict.fromkeys(self.lines.get(come[b] if a < 0 else ~gone[a], ())))
        told = [*lines][:_MOST_LINES]
        return KernelChange(
            repeats[0][1][number][2],
            _side_of(self.old.kernels, old) if old else None,
            _side_of(self.new.kernels, new) if new else None,
            max(len(old), len(new)),
            positions=_positions(new) if self.ordered else (),
            lines=(*told, "...") if len(lines) > _MOST_LINES else tuple(told),
        )

    def elsewhere(
        self, kind: KernelChangeKind, rows: Sequence[tuple[int, int]]
    ) -> list[KernelChange]:
        """Changes of kernels that both sides have, by what they are.

        Args:
            rows: of each the row on both sides.
        """
        alike = grouped(rows, lambda row: (self.old.numbers[row[0]], self.new.numbers[row[1]]))
        return [
            KernelChange(
                kind,
                _side_of(self.old.kernels, [i for i, _ in several]),
                _side_of(self.new.kernels, [j for _, j in several]),
                len(several),
                positions=_positions([j for _, j in several]),
                before=_positions([i for i, _ in several]) if kind == "moved" else (),
            )
            for several in alike.values()
        ]

    def moved(self) -> list[tuple[int, int]]:
        """Rows of kernels that both have, at another place: all but the longest part of them that
        is in one order (patience sorting); none without an order."""
        order = np.argsort(self.same_old)
        old, new = np.array(self.same_old)[order], np.array(self.same_new)[order]
        if not self.ordered or np.all(new[:-1] < new[1:]):
            return []
        ends: list[int] = [-1]  # of the best part of each length, the last new row
        at: list[int] = [-1]  # and which pair that is
        before: list[int] = []
        for number, row in enumerate(new.tolist()):
            if row > ends[-1]:  # nearly all
                before.append(at[-1])
                ends.append(row)
                at.append(number)
            else:
                length = bisect_left(ends, row)
                before.append(at[length - 1])
                ends[length], at[length] = row, number
        moves, number = np.ones(len(new), bool), at[-1]
        while number >= 0:
            moves[number] = False
            number = before[number]
        return list(zip(old[moves].tolist(), new[moves].tolist(), strict=True))

    def retimed(self, noticed: tuple[float, float]) -> list[KernelChange]:
        """Kernels of both sides by key and by how they are launched: what they take in all.

        Args:
            noticed: as of ``diff_profiles``.
        """
        if not self.same_old:
            return []
        old, new, rows, others = self.old, self.new, *self._same
        before, after = old.launches[rows], new.launches[others]
        many = 1 + int(max(old.launches.max(), new.launches.max()))
        codes = ((old.keys[rows] * many + before) * many + after) * 2 + self._is_reconfigured
        _, first, groups, counts = np.unique(
            codes, return_index=True, return_inverse=True, return_counts=True
        )
        sums = (np.bincount(groups, us) for us in (old.us[rows], new.us[others]))
        columns = (rows[first], others[first], counts, *sums, self._is_reconfigured[first])
        found = []
        for i, j, times, earlier, later, other in zip(*(c.tolist() for c in columns), strict=True):
            if kind := _kind(earlier, later, noticed, another=other):
                sides = _side(old.kernels[i], earlier), _side(new.kernels[j], later)
                found.append((abs(later - earlier), KernelChange(kind, *sides, times)))
        return [change for _, change in sorted(found, key=lambda one: -one[0])]

    def reconfigured(self) -> list[tuple[int, int]]:
        """Rows of kernels that both have, and that are launched otherwise, or spill otherwise."""
        rows, others = (column[self._is_reconfigured].tolist() for column in self._same)
        return list(zip(rows, others, strict=True))

    @functools.cached_property
    def _same(self) -> tuple[Numbers, Numbers]:
        """The rows of kernels that both have, once all of them are found."""
        return np.array(self.same_old, np.int64), np.array(self.same_new, np.int64)

    @functools.cached_property
    def _is_reconfigured(self) -> NDArray[np.bool_]:
        """Which of them are launched otherwise, or spill otherwise, where both sides tell."""
        rows, others = self._same
        if not len(rows):
            return np.zeros(0, bool)
        before, after = self.old.launches[rows], self.new.launches[others]
        many = 1 + int(after.max())
        _, first, groups = np.unique(before * many + after, return_index=True, return_inverse=True)
        at = zip(rows[first].tolist(), others[first].tolist(), strict=True)
        launches = (map(Keys.launch_of, (self.old.kernels[i], self.new.kernels[j])) for i, j in at)
        different = [
            any(x != y for x, y in zip(*two, strict=True) if None not in (x, y)) for two in launches
        ]
        spilled: NDArray[np.bool_] = np.abs(self.old.spills[rows] - self.new.spills[others]) > 0
        return np.array(different)[groups] | spilled

    def _aligned(self) -> list[Gap]:
        """What lies between the blocks that agree."""
        gaps = []
        i = j = 0
        for block in self._by_lines(align(self.old.numbers, self.new.numbers)):
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
        old, new = self.old.kernels, self.new.kernels
        found = [*blocks, Block(len(old), len(new), 0)]
        for at in range(1, len(found)):
            before, after = found[at - 1], found[at]
            i, j = before.old + before.size, before.new + before.size
            gone, come = after.old - i, after.new - j
            if bool(gone) == bool(come):
                continue
            size, end = gone + come, after.new if come else after.old
            side = self.new if come else self.old
            kernels, keys = side.kernels, side.numbers
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

    def _without_moved(self, gaps: Iterable[Gap]) -> list[Gap]:
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
        if {self.old.numbers[i] for i in gone}.isdisjoint(self.new.numbers[j] for j in come):
            return gone, come
        both = Counter(self.old.numbers[i] for i in gone) & Counter(
            self.new.numbers[j] for j in come
        )
        kept_gone, same_gone = self._parted(self.old, gone, both)
        kept_come, same_come = self._parted(self.new, come, both)
        for key, rows in same_gone.items():
            self.same_old.extend(rows)
            self.same_new.extend(same_come[key])
        return kept_gone, kept_come

    def _parted(
        self, side: Numbered, rows: Rows, both: Counter[int]
    ) -> tuple[Rows, defaultdict[int, Rows]]:
        """Rows beyond what both sides have of a key, and the others by key."""
        left, kept, keys = Counter(both), list[int](), side.numbers
        same: defaultdict[int, Rows] = defaultdict(list)
        for row in reversed(rows):
            if left[keys[row]]:
                left[keys[row]] -= 1
                same[keys[row]].append(row)
            else:
                kept.append(row)
        for row in kept:
            if keys[row] in same:
                equals = sorted((row, *same[keys[row]][-_MOST_EQUAL:]))
                sources = [side.kernels[one].source for one in equals]
                told = _told(side.kernels[row].source, sources)
                self.lines[row if side is self.new else ~row] = told
        return kept[::-1], same

    def _changes(self, signature: Signature, several: Sequence[Gap]) -> list[_Marked]:
        """The changes of gaps with the same kernels."""
        gone, come = several[0]
        before = [self.old.kernels[i] for i in gone]
        after = [self.new.kernels[j] for j in come]
        a_keys, b_keys = signature
        found: list[_Marked] = []

        i = j = 0
        pairs = self.pairing.pairs(before, after)
        for a, b in (*pairs, (len(before), len(after))):
            found += [(a_keys[k], -1, "removed", k, -1) for k in range(i, a)]
            found += [(-1, b_keys[k], "added", -1, k) for k in range(j, b)]
            if a == len(before):
                break
            if self.keys.name_of(before[a]) == self.keys.name_of(after[b]):
                for old, new in several:
                    self.same_old.append(old[a])
                    self.same_new.append(new[b])
                    self.other_operator.append((old[a], new[b]))
            else:
                alike = stem(before[a].name) == stem(after[b].name)
                alike = alike or self.pairing.is_one(before[a], after[b])
                found.append((a_keys[a], b_keys[b], "renamed" if alike else "replaced", a, b))
            i, j = a + 1, b + 1
        return found


def _side(kernel: AnyKernel, us: float | None) -> KernelSide:
    """A kernel as a side of a diff, with the time of all its repeats."""
    return replace(msgspec.convert(kernel, KernelSide, from_attributes=True), duration_us=us)


def _side_of(kernels: Sequence[AnyKernel], rows: Rows) -> KernelSide:
    """The first of these rows as a side of a diff, with the time of all of them that is known."""
    known = [us for us in (kernels[row].duration_us for row in rows) if us is not None]
    return _side(kernels[rows[0]], sum(known) if known else None)


def _by_key(side: Numbered) -> Rows:
    return sorted(range(len(side.numbers)), key=side.numbers.__getitem__)


def _positions(rows: Sequence[int]) -> tuple[int, ...]:
    return tuple([row + 1 for row in rows]) if len(rows) <= _MOST_POSITIONS else ()


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


def _kind(
    old_us: float, new_us: float, noticed: tuple[float, float], *, another: bool
) -> KernelChangeKind | None:
    if another:
        return "reconfigured"
    share, least_us = noticed
    difference = new_us - old_us
    if math.isnan(difference) or abs(difference) < max(least_us, share * min(old_us, new_us)):
        return None
    return "slower" if new_us > old_us else "faster"
