"""Two lists of kernels side by side: what went, what came, and how many are the same between."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_kernelprof.digest.words import lines_words
from pytest_kernelprof.report.html.full_names import cut
from pytest_kernelprof.report.html.kernel_rows import inner_and_outer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_kernelprof.schema.diff import Hunk, ProfileDiff
    from pytest_kernelprof.schema.run import Kernel
    from pytest_kernelprof.schema.snapshot import Finding, LineChange

_MOST_ROWS = 200
_LONGEST = 160


@dataclass(frozen=True, slots=True)
class Cell:
    """A kernel on one side.

    Attributes:
        sign: "-" of one that only the old side has, "+" of one that only the new one has.
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

    old: Cell | None = None
    new: Cell | None = None
    same: int = 0


@dataclass(frozen=True, slots=True)
class SideBySide:
    """A diff of two profiles.

    Attributes:
        old_name, new_name: whose they are.
        old_kernels, new_kernels: how many each has; None where nobody counted.
        old_us, new_us: what they take; None where that was not kept.
        left: rows that are not shown.
        notes: what a reader should know.
    """

    old_name: str
    new_name: str
    rows: tuple[Pair, ...]
    old_kernels: int | None
    new_kernels: int | None
    old_us: float | None
    new_us: float | None
    left: int
    notes: tuple[str, ...] = ()


def of_diff(diff: ProfileDiff, old_name: str) -> SideBySide:
    """The diff of two records."""
    rows = list(_rows(diff))
    return SideBySide(
        old_name,
        "this run",
        tuple(rows[:_MOST_ROWS]),
        diff.old_kernels,
        diff.new_kernels,
        diff.old_us or None,
        diff.new_us or None,
        max(0, len(rows) - _MOST_ROWS),
        tuple(_notes(diff)),
    )


def _notes(diff: ProfileDiff) -> Iterator[str]:
    if diff.problems:
        yield f"one side is incomplete: {'; '.join(diff.problems)}"
    if diff.other:
        yield f"times are no comparison: {', '.join(diff.other)}"
    if not diff.ordered:
        yield "rounds differ in their kernels' order, so they are compared without it"


def _rows(diff: ProfileDiff) -> Iterator[Pair]:
    """Hunks, and between them how many kernels are the same, where their places are known."""
    placed = diff.ordered and all(one.times == 1 and one.new_at for one in diff.hunks)
    next_new = 1
    for hunk in diff.hunks:
        if placed and hunk.new_at > next_new:
            yield Pair(same=hunk.new_at - next_new)
        yield from _pairs(hunk)
        if placed:
            come = sum(change.new is not None for change in hunk.changes)
            next_new = max(next_new, hunk.new_at) + come
    come = sum(
        hunk.times for hunk in diff.hunks for change in hunk.changes if change.new is not None
    )
    left = diff.new_kernels - (next_new - 1) if placed else diff.new_kernels - come
    if left > 0:
        yield Pair(same=left)


def _pairs(hunk: Hunk) -> Iterator[Pair]:
    for change in hunk.changes:
        yield Pair(
            _cell("-", change.old, change.old_us, hunk.times, change.lines) if change.old else None,
            _cell("+", change.new, change.new_us, hunk.times, change.lines) if change.new else None,
        )


def _cell(sign: str, kernel: Kernel, us: float, times: int, lines: Sequence[str]) -> Cell:
    inner, _ = inner_and_outer(kernel)
    line = cut(os.path.basename(kernel.source) + lines_words(lines), _LONGEST)
    return Cell(sign, kernel.short_name, inner, line, times, us)


def of_finding(finding: Finding) -> SideBySide:
    """What a kernel snapshot has, and what ran."""
    rows = list(_lines(finding.changes))
    kept = {one.metric: one.kept for one in finding.counts}.get("kernels", finding.kernels)
    notes = ["the same kernels come in another order"] if finding.moved else []
    if finding.unknown:
        notes.append(f"could not be compared: {', '.join(finding.unknown)}")
    if finding.other:
        notes.append(f"another than when it was kept: {', '.join(finding.other)}")
    gone = sum(one.times for one in finding.changes if one.sign == "-")
    same = kept - gone
    if same > 0:
        rows.append(Pair(same=same))
    return SideBySide(
        "the snapshot",
        "this run",
        tuple(rows[:_MOST_ROWS]),
        kept,
        finding.kernels,
        None,
        None,
        max(0, len(rows) - _MOST_ROWS),
        tuple(notes),
    )


def _lines(changes: Sequence[LineChange]) -> Iterator[Pair]:
    """What went beside what came, as far as they stand together."""
    at = 0
    while at < len(changes):
        gone = _run(changes, at, "-")
        come = _run(changes, at + len(gone), "+")
        at += len(gone) + len(come)
        for i in range(max(len(gone), len(come))):
            yield Pair(
                _kept(gone[i]) if i < len(gone) else None,
                _kept(come[i]) if i < len(come) else None,
            )


def _run(changes: Sequence[LineChange], start: int, sign: str) -> list[LineChange]:
    found = []
    for one in changes[start:]:
        if one.sign != sign:
            break
        found.append(one)
    return found


def _kept(change: LineChange) -> Cell:
    name, _, by = change.kernel.partition(" | ")
    line = cut(os.path.basename(change.source) + lines_words(change.lines), _LONGEST)
    return Cell(change.sign, cut(name, _LONGEST), cut(by, _LONGEST), line, change.times)
