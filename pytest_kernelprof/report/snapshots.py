"""Kernel snapshots in words: what is more or other in a profile, and the lines at the end."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from typing import TYPE_CHECKING

from pytest_kernelprof.digest.words import first_of, lines_words, pair_words
from pytest_kernelprof.units import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_kernelprof.schema.run import Run
    from pytest_kernelprof.schema.snapshot import (
        CountChange,
        Edited,
        Finding,
        LineChange,
        Taken,
        TestState,
    )

MOST_LINES = 40
_FEW_LINES = 12
_COMMAND = "pytest --kernelprof-update"
_SAID: tuple[tuple[TestState, str], ...] = (
    ("held", "held"),
    ("changed", "changed (stale)"),
    ("over", "over"),
    ("not judged", "not judged"),
    ("missing", "missing"),
)


def accept_words(test: str, device: str) -> str:
    """The command that makes a snapshot of what a test launches now.

    Args:
        test: how pytest is told to run it. device: "cpu", or a GPU's kind or folder.
    """
    on_cpu = " --kernelprof-device=cpu" if device == "cpu" else ""
    return printable(f"to accept this as the new snapshot: {_COMMAND} {shlex.quote(test)}{on_cpu}")


def finding_words(finding: Finding) -> str:
    """What is another, for example ``kernels 5 > 4, syncs 1 > 0``."""
    if finding.state == "held":
        return f"{finding.kernels} kernels, as they are kept"
    counts = sorted(finding.counts, key=lambda one: one.found <= one.kept)
    told = [_count_words(one, "<" if one.found < one.kept else ">") for one in counts]
    if finding.state == "changed" and not told:
        told = ["another order" if finding.moved else "other kernels"]
    return ", ".join(told)


def line_changes(changes: Iterable[LineChange]) -> list[str]:
    """Return a line for each kernel that only one side has (``-`` the snapshot, ``+`` the test)."""
    rows = [
        (
            f"{one.sign} {one.kernel}{f'  x{one.times}' if one.times > 1 else ''}",
            os.path.basename(one.source) + lines_words(one.lines),
        )
        for one in changes
    ]
    wide = max((len(row) for row, _ in rows), default=0)
    told = [f"{row.ljust(wide)}  {source}".rstrip() for row, source in rows]
    return list(map(printable, first_of(told, MOST_LINES, "... and {} more lines")))


def looser_words(test: str, label: str, changes: Iterable[CountChange]) -> str:
    """What an update allows that was not allowed before."""
    where = f"{test} [{label}]" if label else test
    counts = ", ".join(_count_words(one, "->") for one in changes)
    return printable(f"looser: {where}: {counts}")


def last_line(taken: Sequence[Taken], unused: int) -> str:
    """How the tests of a run compare with their snapshots; empty where all held, or there are
    none."""
    counts = Counter(one.state for one in taken)
    if not unused and set(counts) <= {None, "held"}:
        return ""
    parts = [f"{counts[state]} {words}" for state, words in _SAID if counts[state]]
    whys = dict.fromkeys(one.why for one in taken if one.state == "not judged" and one.why)
    parts = [
        f"{part} ({'; '.join(list(whys)[:2])})" if whys and part.endswith("not judged") else part
        for part in parts
    ]
    bare = {one.device: one.elsewhere for one in taken if one.elsewhere}
    if bare:
        none = ", ".join(f"none for {d}, some for {', '.join(e)}" for d, e in bare.items())
        parts[-1] += f" ({none})"
    if unused:
        parts.append(f"{unused} unused")
    return printable(f"snapshots: {', '.join(parts)}: {_COMMAND}")


def line_of_run(run: Run) -> str:
    """The same of a run that has ended, by its record."""
    unused = len(run.snapshots.unused) if run.snapshots is not None else 0
    return last_line([one.snapshot for one in run.tests if one.snapshot], unused)


def update_lines(
    edited: Sequence[Edited], looser: Sequence[str], refused: Sequence[tuple[str, str]]
) -> list[str]:
    """What an update has done: how many entries, each that now allows more, and what is not kept.

    Args:
        refused: tests of which nothing is kept, and why.
    """
    counts = {
        "written": sum(one.written for one in edited),
        "as they were": sum(one.same for one in edited),
        "removed": sum(one.removed for one in edited),
        "not kept": len(refused),
    }
    told = [f"{count} {what}" for what, count in counts.items() if count]
    not_kept = [printable(f"not kept: {test}: {why}") for test, why in refused]
    not_kept = first_of(not_kept, MOST_LINES, "... and {} more that are not kept")
    return [*([f"snapshots: {', '.join(told)}"] if told else []), *looser, *not_kept]


def detail_lines(taken: Iterable[Taken], *, verbose: bool) -> list[str]:
    """Each test that does not hold its snapshot, with the kernels that differ.

    Args:
        verbose: tell all tests; else those whose kernels differ, in a few lines.
    """
    lines = []
    for one in taken:
        if one.changes or (verbose and one.state not in (None, "held")):
            lines.append(f"  {one.state}: {one.test}{f' ({one.why})' if one.why else ''}")
            lines += [f"    {line}" for line in line_changes(one.changes)]
    most = len(lines) if verbose else _FEW_LINES
    return list(map(printable, first_of(lines, most, "  ... and {} more lines with -v")))


def _count_words(one: CountChange, sign: str) -> str:
    old, new = pair_words(one.unit, one.kept, one.found)
    return f"{one.metric} {old} -> {new}" if sign == "->" else f"{one.metric} {new} {sign} {old}"
