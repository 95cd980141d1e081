"""The kernels of a profile as rows: in launch order; where they are very many, by what is alike;
and beside those of a baseline: what went, what came, and how many are the same between."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_kernelprof.names.short import short_name
from pytest_kernelprof.report.html.kernel_names import cut, family_of
from pytest_kernelprof.schema.comparison import BASELINE_WORDS, CAME_OR_WENT
from pytest_kernelprof.summary.kernel_groups import groups_of
from pytest_kernelprof.summary.words import callers_of, lines_words

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from pytest_kernelprof.comparison.kernel_keys import AnyKernel
    from pytest_kernelprof.report.html.kernel_names import FullNames
    from pytest_kernelprof.schema.comparison import (
        KernelChange,
        KernelDiff,
        KernelSide,
        ProfileComparison,
    )
    from pytest_kernelprof.schema.run import Kernel, Profile

MOST_ROWS = 200
"""Kernels that are told one by one; of a profile that has more, those that are alike are a row."""
FEWER_ROWS = 12
"""The same of a profile of less interest."""
MOST_KINDS, FEWER_KINDS = 100, 30
"""Rows of kernels that are alike; the others are counted."""
_BAR = 56
_LONGEST = 160


@dataclass(frozen=True, slots=True)
class KernelRow:
    """One kernel, or several that are alike.

    Attributes:
        number: its place in launch order, from 1; 0 of several. count: how many there are.
        name: the short one. full: the number of the full one; 0 where that is the same.
        inner, outer: the innermost operator, and the outermost where it is another.
        line: of the user's code. size: grid and block. registers: a thread.
        us: microseconds. bar: its length in pixels. share: of the profile's GPU time.
        fresh: whether it is new since what the run is compared with.
    """

    number: int
    count: int
    name: str
    full: int
    family: str
    us: float
    bar: float
    share: float
    inner: str = ""
    outer: str = ""
    line: str = ""
    size: str = ""
    registers: int = 0
    fresh: bool = False


@dataclass(frozen=True, slots=True)
class KernelTable:
    """The table.

    Attributes:
        folded: whether kernels that are alike are a row.
        kernels, us: how many there are, and what they take. left: kinds without a row.
        lines, sizes: whether any row has some.
    """

    rows: tuple[KernelRow, ...]
    folded: bool
    kernels: int
    us: float
    left: int
    lines: bool
    sizes: bool


def table_of(
    profile: Profile,
    names: FullNames,
    fresh: Collection[int] = (),
    most: int = MOST_ROWS,
    most_kinds: int = MOST_KINDS,
) -> KernelTable:
    """The kernels of one call.

    Args:
        names: which gets the full names.
        fresh: the new ones, by their place in launch order, from 0.
        most: of more kernels than that, those that are alike are one row.
        most_kinds: so many of these rows.
    """
    groups = groups_of(profile)
    number = sum(count for count, _ in groups.values())
    us = sum(time for _, time in groups.values())
    folded = bool(profile.more_kernels) or len(profile.kernels) > most
    if folded:
        rows, left = _folded(profile, us, names, most_kinds)
    else:
        rows, left = _one_by_one(profile.kernels, us, names, fresh), 0
    lines, sizes = any(row.line for row in rows), any(row.size for row in rows)
    return KernelTable(rows, folded, number, us, left, lines, sizes)


def _one_by_one(
    kernels: Sequence[Kernel], us: float, names: FullNames, fresh: Collection[int]
) -> tuple[KernelRow, ...]:
    longest = max((kernel.duration_us for kernel in kernels), default=0.0)
    return tuple(
        replace(
            _row(_kind(kernel), 1, kernel.duration_us, (us, longest), names),
            number=i,
            size=f"{_size(kernel.grid)} · {_size(kernel.block)}"
            if any(kernel.grid) or any(kernel.block)
            else "",
            registers=kernel.registers,
            fresh=i - 1 in fresh,
        )
        for i, kernel in enumerate(kernels, 1)
    )


_Kind = tuple[str, str, str, str]
"""Name, operators, line."""


def _kind(kernel: Kernel) -> _Kind:
    return kernel.name, *inner_and_outer(kernel), os.path.basename(kernel.source)


def _row(
    kind: _Kind, count: int, took_us: float, of: tuple[float, float], names: FullNames
) -> KernelRow:
    """Args: of: what all take, and what the longest takes."""
    name, inner, outer, line = kind
    short, (us, longest) = short_name(name), of
    return KernelRow(
        number=0,
        count=count,
        name=short,
        full=names.place_of(name) if name != short else 0,
        family=family_of(name),
        us=took_us,
        bar=_length(took_us, longest),
        share=took_us / us if us else 0.0,
        inner=inner,
        outer=outer,
        line=cut(line, _LONGEST),
    )


def _folded(
    profile: Profile, us: float, names: FullNames, most_kinds: int
) -> tuple[tuple[KernelRow, ...], int]:
    """Kernels of one name, launched by one operator at one line, together; by their time."""
    groups: dict[_Kind, tuple[int, float]] = {}
    for kernel in profile.kernels:
        key = _kind(kernel)
        count, time = groups.get(key, (0, 0.0))
        groups[key] = count + 1, time + kernel.duration_us
    for group in profile.more_kernels:
        count, time = groups.get((group.name, "", "", ""), (0, 0.0))
        groups[group.name, "", "", ""] = count + group.count, time + group.duration_us
    most = sorted(groups.items(), key=lambda one: (-one[1][1], one[0]))
    longest = most[0][1][1] if most else 0.0
    rows = (_row(kind, *of_kind, (us, longest), names) for kind, of_kind in most[:most_kinds])
    return tuple(rows), max(0, len(groups) - most_kinds)


def inner_and_outer(kernel: AnyKernel) -> tuple[str, str]:
    """The operator that launched it, and the outermost around that; empty where there is none."""
    inner, outer, *_ = (*callers_of(kernel.operators, kernel.name), "", "")
    return cut(inner, _LONGEST), cut(outer, _LONGEST)


def _length(us: float, longest: float) -> float:
    return round(max(us / longest * _BAR, 0.8), 1) if longest > 0 else 0.0


def _size(size: tuple[int, int, int]) -> str:
    return "x".join(str(one) for one in size if one != 1) or "1"


_MOST_ROWS = 200
_LONGEST = 160


@dataclass(frozen=True, slots=True)
class Cell:
    """A kernel on one side.

    Attributes:
        sign: "-" of one that only the baseline has, "+" of one that only the current side has.
        times: how often it is found so. us: its microseconds; None where nobody kept them.
    """

    sign: str
    name: str
    by: str
    line: str = ""
    times: int = 1
    us: float | None = None


@dataclass(frozen=True, slots=True)
class Pair:
    """A row: what both sides have at one place. ``same`` is how many kernels it stands for that
    both have."""

    baseline: Cell | None = None
    current: Cell | None = None
    same: int = 0


@dataclass(frozen=True, slots=True)
class SideBySide:
    """A diff of two profiles.

    Attributes:
        baseline: whose the first is.
        kernels: how many each has, and what they take; no times where these are no comparison.
        left: rows that are not shown.
        notes: what a reader should know.
    """

    baseline: str
    rows: tuple[Pair, ...]
    kernels: KernelDiff
    left: int
    notes: tuple[str, ...] = ()


def side_by_side_of(found: ProfileComparison) -> SideBySide | None:
    """What a baseline has beside what ran; None where no kernel came, went or moved."""
    diff = found.kernels
    if diff is None or not (
        diff.came_or_went or (found.source == "snapshot" and found.change != "same")
    ):
        return None
    rows = list(_rows(diff))
    return SideBySide(
        BASELINE_WORDS[found.source],
        tuple(rows[:_MOST_ROWS]),
        diff,
        max(0, len(rows) - _MOST_ROWS) + diff.left_out,
        tuple(_notes(found, diff)),
    )


def _notes(found: ProfileComparison, diff: KernelDiff) -> Iterator[str]:
    if found.incomplete:
        yield f"one side is incomplete: {'; '.join(found.incomplete)}"
    if diff.of("moved"):
        yield "some kernels come in another order"
    if found.lost:
        yield f"could not be compared: {', '.join(found.lost)}"
    if found.differences:
        yield f"another than the baseline's: {', '.join(found.differences)}"
    if not diff.ordered:
        yield "rounds differ in their kernels' order, so they are compared without it"


def _rows(diff: KernelDiff) -> Iterator[Pair]:
    """Changes, and between them how many kernels are the same, where their places are known."""
    changes = diff.of(*CAME_OR_WENT, "operator")
    come = sum(one.times for one in changes if one.current is not None)
    placed = diff.ordered and all(one.times == 1 and one.at for one in changes)
    next_row, hunk = 1, -1
    for one in changes:
        if placed and one.hunk != hunk and one.at > next_row:
            yield Pair(same=one.at - next_row)
            next_row = one.at
        hunk = one.hunk
        yield Pair(_cell("-", one, one.baseline), _cell("+", one, one.current))
        next_row += one.current is not None
    left = diff.current_kernels - (next_row - 1 if placed else come)
    if left > 0 and not diff.left_out:  # else some of them are changes that are not named
        yield Pair(same=left)


def _cell(sign: str, change: KernelChange, kernel: KernelSide | None) -> Cell | None:
    if kernel is None:
        return None
    inner, _ = inner_and_outer(kernel)
    line = cut(os.path.basename(kernel.source) + lines_words(change.lines), _LONGEST)
    us = None if kernel.duration_us is None else change.us(kernel) * change.times
    return Cell(sign, cut(kernel.short_name, _LONGEST), inner, line, change.times, us)
