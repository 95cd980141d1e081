"""Kernel snapshots in words: what is more or other in a profile, and the lines at the end."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING

from pytest_kernelprof.report.diff_text import kernel_lines
from pytest_kernelprof.schema.comparison import CAME_OR_WENT
from pytest_kernelprof.schema.snapshot import TEST_STATES
from pytest_kernelprof.summary.verdicts import count_change
from pytest_kernelprof.summary.words import first_of, lines_words
from pytest_kernelprof.units import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_kernelprof.schema.comparison import KernelChange, ProfileComparison
    from pytest_kernelprof.schema.snapshot import Edited, SnapshotReport, TestState

MOST_LINES = 40
_FEW_LINES = 12
_COMMAND = "pytest --kernelprof-update"
_TOLD: tuple[TestState, ...] = ("same", "changed", "worse", "not compared", "missing")


def changed_lines_of(found: ProfileComparison) -> list[str]:
    """Which kernels came and went since a baseline."""
    if found.source != "snapshot":
        return kernel_lines(found, most=_FEW_LINES)
    return line_changes(found.kernels.changes if found.kernels is not None else ())


def line_changes(changes: Iterable[KernelChange]) -> list[str]:
    """Return a line for each kernel that only one side has (``-`` the snapshot, ``+`` the test)."""
    rows = [
        (
            f"{sign} {side.line}{f'  x{one.times}' if one.times > 1 else ''}",
            os.path.basename(side.source) + lines_words(one.lines if sign == "+" else ()),
        )
        for one in changes
        if one.kind in (*CAME_OR_WENT, "operator")
        for sign, side in (("-", one.baseline), ("+", one.current))
        if side is not None
    ]
    wide = max((len(row) for row, _ in rows), default=0)
    told = [f"{row.ljust(wide)}  {source}".rstrip() for row, source in rows]
    return list(map(printable, first_of(told, MOST_LINES, "... and {} more lines")))


def last_line(taken: Sequence[SnapshotReport], unused: int) -> str:
    """How the tests of a run compare with their snapshots; empty where all held, or there are
    none."""
    counts = Counter(one.state for one in taken)
    if not unused and set(counts) <= {None, "same"}:
        return ""
    whys = dict.fromkeys(one.why for one in taken if one.state == "not compared" and one.why)
    bare = {one.device: ", ".join(one.elsewhere) for one in taken if one.elsewhere}
    more = {
        "changed": "outdated, not failing",
        "not compared": "; ".join(list(whys)[:2]),
        "missing": ", ".join(f"none for {d}, some for {others}" for d, others in bare.items()),
    }
    parts = [
        f"{counts[state]} {TEST_STATES[state]}" + (f" ({more[state]})" if more.get(state) else "")
        for state in _TOLD
        if counts[state]
    ]
    if unused:
        parts.append(f"{unused} unused")
    return printable(f"snapshots: {', '.join(parts)}: {_COMMAND}")


def update_lines(
    edited: Sequence[tuple[str, Edited]], refused: Sequence[tuple[str, str]]
) -> list[str]:
    """What an update has done: how many entries, each that now allows more, and what is not kept.

    Args:
        edited: by test file. refused: tests of which nothing is kept, and why.
    """
    counts = {
        "written": sum(one.written for _, one in edited),
        "unchanged": sum(one.same for _, one in edited),
        "removed": sum(one.removed for _, one in edited),
        "not kept": len(refused),
    }
    told = [f"{count} {what}" for what, count in counts.items() if count]
    looser = [
        f"looser: {file}::{key}{f' [{label}]' if label else ''}: "
        + ", ".join(count_change(change, "->") for change in changes)
        for file, one in edited
        for key, label, changes in one.looser
    ]
    not_kept = [f"not kept: {test}: {why}" for test, why in refused]
    not_kept = first_of(not_kept, MOST_LINES, "... and {} more that are not kept")
    head = [f"snapshots: {', '.join(told)}"] if told else []
    return list(map(printable, (*head, *looser, *not_kept)))


def detail_lines(told: Iterable[tuple[str, SnapshotReport]], *, verbose: bool) -> list[str]:
    """Each test that does not hold its snapshot, with the kernels that differ.

    Args:
        told: of the tests, by their ids.
        verbose: tell all tests; else those whose kernels differ, in a few lines.
    """
    lines = []
    for test, one in told:
        if one.changes or (verbose and one.state not in (None, "same")):
            lines.append(
                f"  {TEST_STATES[one.state or 'same']}: {test}{f' ({one.why})' if one.why else ''}"
            )
            lines += [f"    {line}" for line in line_changes(one.changes)]
    most = len(lines) if verbose else _FEW_LINES
    return list(map(printable, first_of(lines, most, "  ... and {} more lines with -v")))
