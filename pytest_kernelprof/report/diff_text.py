"""Differences of kernels as text: what was added, removed, or takes another time; two traces; what
a run says of its snapshots."""

from __future__ import annotations

import os
from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING

from pytest_kernelprof.names.short_names import tell_apart
from pytest_kernelprof.report.kernel_tables import NOUNS, TableRow, lay_out_rows
from pytest_kernelprof.report.tables import Span, Style
from pytest_kernelprof.schema.comparison import CAME_OR_WENT, RETIMED
from pytest_kernelprof.schema.snapshot import TEST_STATES
from pytest_kernelprof.summary.kernels import fusions_of, times_words
from pytest_kernelprof.summary.verdicts import count_change
from pytest_kernelprof.summary.words import chain_words, first_of, lines_words, value_words
from pytest_kernelprof.units import format_bytes, format_time, printable, time_unit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_kernelprof.comparison.kernel_diff import Pair
    from pytest_kernelprof.report.tables import Colour, Line
    from pytest_kernelprof.schema.comparison import (
        KernelChange,
        KernelDiff,
        KernelSide,
        ProfileComparison,
        TracesComparison,
    )
    from pytest_kernelprof.schema.snapshot import Edited, SnapshotReport, TestState

MOST_LINES, _FEW_LINES = 40, 12
_LEAST_FOLDED = 4
_STYLE = Style()
_COLOURS: dict[str, Colour] = {"+": "red", "-": "dim"}


def diff_lines(found: ProfileComparison, style: Style = _STYLE) -> list[str]:
    """Return the verdict, a line for each change, and the metrics that differ."""
    return [*kernel_lines(found, style), *metric_lines(found)]


def kernel_lines(
    found: ProfileComparison, style: Style = _STYLE, *, most: int = MOST_LINES
) -> list[str]:
    """Return the verdict on the kernels, and a line for each change; of a snapshot, which has no
    times, the changes alone."""
    if found.kernels is None:
        return []
    lines = change_lines(found.kernels.changes, style, most=most)
    left_out = found.kernels.left_out
    lines += [f"... and {left_out} more changes"] if left_out else []
    if found.source == "snapshot":
        return lines
    return [_verdict(found.kernels), *note_lines(found), *lines]


def changed_lines_of(found: ProfileComparison, style: Style = _STYLE) -> list[str]:
    """Return the first of these lines."""
    return kernel_lines(found, style, most=MOST_LINES if found.source == "snapshot" else _FEW_LINES)


def change_lines(
    changes: Sequence[KernelChange], style: Style = _STYLE, *, most: int = MOST_LINES
) -> list[str]:
    """Return a line for each change: ``-`` removed, ``+`` added, ``~`` another time or launch. What
    repeats is told once, with ``x48`` and the time of one.

    Args:
        most: how many lines there are.
    """
    sides = [side for one in changes for side in (one.baseline, one.current) if side is not None]
    names = tell_apart(side.name for side in sides)
    together: dict[tuple[bool, int], list[KernelChange]] = {}
    for at, one in enumerate(changes):
        is_alone = one.kind not in CAME_OR_WENT
        together.setdefault((is_alone, at if is_alone else one.hunk), []).append(one)
    rows = [row for several in together.values() for row in _rows(several, names)]
    shown = rows[:most]
    laid = lay_out_rows(("",), "", "", shown, style.within(2))
    lines = laid.marked([row.sign for row in shown])[1:] if shown else []
    more = len(rows) - len(shown)
    return [*lines, *([f"... and {more} more lines"] if more else [])]


def _rows(changes: Sequence[KernelChange], names: dict[str, str]) -> list[TableRow]:
    """The rows of changes that stand together; how often on the first."""
    first = changes[0]
    if first.kind in RETIMED:
        return [_retimed_row(first, names)]
    sides = [
        (sign, side, change)
        for change in changes
        for sign, side in (("-", change.baseline), ("+", change.current))
        if side is not None and change.kind != "moved"
    ]
    below = f" (with {len(sides) - 1} below)" if first.times > 1 and len(sides) > 1 else ""
    return [
        TableRow(
            ("" if side.duration_us is None else format_time(change.us(side)),),
            names[side.name] if at else times_words(names[side.name], first.times) + below,
            _chain(side),
            os.path.basename(side.source) + lines_words(change.lines if sign == "+" else ()),
            sign=sign,
        )
        for at, (sign, side, change) in enumerate(sides)
    ]


def _retimed_row(change: KernelChange, names: dict[str, str]) -> TableRow:
    before, now = change.baseline, change.side
    what: str = change.kind
    if change.kind == "reconfigured" and before is not None:
        what = f"reconfigured: {_configuration(before, now)}"
    return TableRow(
        (f"{format_time(change.us(before))} -> {format_time(change.us(now))}",),
        times_words(names[now.name], change.times),
        "; ".join(filter(None, [_chain(now), what])),
        os.path.basename(now.source),
        sign="~",
    )


def _configuration(old: KernelSide, new: KernelSide) -> str:
    """What of the launch is different."""
    pairs = {
        "grid": ["x".join(map(str, one.grid or ())) for one in (old, new)],
        "block": ["x".join(map(str, one.block or ())) for one in (old, new)],
        "registers": [str(one.registers) for one in (old, new)],
        "shared memory": [format_bytes(one.shared_memory or 0) for one in (old, new)],
    }
    return ", ".join(f"{what} {a} -> {b}" for what, (a, b) in pairs.items() if a != b)


def _chain(kernel: KernelSide) -> str:
    return chain_words(kernel.operators, kernel.name)


def metric_lines(found: ProfileComparison) -> list[str]:
    """Return a line for each metric that differs and that both sides have."""
    lines = []
    for delta in found.metrics:
        if (
            delta.baseline is None
            or delta.current is None
            or delta.name in ("kernels", "cuda_time")
        ):
            continue
        old, new = (value_words(delta.spec.unit, one) for one in (delta.baseline, delta.current))
        timed = delta.spec.kind == "timed"
        share = f" ({delta.share * 100:+.1f} %)" if timed and delta.share is not None else ""
        lines += [f"{delta.name}: {old} -> {new}{share}"] if old != new or not timed else []
    return lines


def _verdict(diff: KernelDiff) -> str:
    """``4 kernels -> 5, GPU time 200.7us -> 231.4us (+15.3 %).``"""
    words = f"{diff.baseline_kernels} {diff.what} -> {diff.current_kernels}"
    if diff.baseline_kernels == diff.current_kernels:
        state = "some changed" if diff.came_or_went else "unchanged"
        words = f"{diff.current_kernels} {diff.what}, {state}"
    before, now = diff.baseline_us or 0.0, diff.current_us or 0.0
    if before or now:
        share = f" ({(now / before - 1) * 100:+.1f} %)" if before else ""
        device = NOUNS[_kind(diff)].device
        words += f", {device} time {format_time(before)} -> {format_time(now)}{share}"
    return f"{words}."


def _kind(diff: KernelDiff) -> str:
    return "cpu" if diff.what == "operators" else "cuda"


def note_lines(found: ProfileComparison) -> list[str]:
    """Return what was not compared, and why."""
    diff, told = found.kernels, []
    if found.incomplete:
        words = "INCOMPLETE: kernels that one side lacks may be lost, not removed: "
        told.append(words + "; ".join(found.incomplete))
    if found.differences:
        told.append(f"times not compared: {', '.join(found.differences)}")
    if diff is not None:
        told += _steps_words(diff.baseline_steps, diff.current_steps)
        if not diff.ordered:
            told.append("compared without order, since rounds differ in the order of kernels")
    return [printable(line) for line in told]


def _steps_words(old: int, new: int) -> list[str]:
    """What was compared of traces with the profiler's own steps."""
    if old <= 1 and new <= 1:
        return []
    sides = (
        f"one of {steps} steps of the {name} trace" if steps > 1 else f"all of the {name} trace"
        for name, steps in (("first", old), ("second", new))
    )
    return [f"compared: {', '.join(sides)}; a step is one of the most frequent kind"]


# Two traces.


def processes_words(found: TracesComparison) -> str:
    """Return that one side has other processes; empty if both have the same."""
    before, now, both = found.baseline_processes, found.current_processes, len(found.processes)
    if before == now == both:
        return ""
    return f"{before} -> {now} processes: the {both} that both have are compared"


def side_by_side_lines(
    found: ProfileComparison, kernels: Sequence[Pair], style: Style, *, most: int
) -> list[Line]:
    """Return the verdict, both sides in launch order, which kernels do the work of others, and the
    metrics that differ.

    Args:
        most: how many rows there are; of more, only the changes are told.
    """
    diff = found.kernels
    assert diff is not None  # of two traces there always is one
    lines = style.sentence(_verdict(diff), "bold")
    for note in note_lines(found):
        lines += style.sentence(note, "yellow")
    rows = list(_folded(kernels))
    fits = len(rows) <= most
    differs = bool(diff.came_or_went or diff.retimed)
    if differs and fits:
        lines += [(), *_table(rows, diff, style)]
    told = change_lines(diff.retimed if fits else diff.changes, style, most=most)
    told += [f"... and {diff.left_out} more changes"] if diff.left_out else []
    if differs and told:
        lines += [(), *((Span(style.say(one), _COLOURS.get(one[:1], "")),) for one in told)]
    about = [f"{one.words}: {' -> '.join(map(format_time, one.us))}" for one in fusions_of(diff)]
    about += metric_lines(found)
    about += ["one trace of each cannot separate change from noise"] if differs else []
    return [*lines, *([()] if about else []), *(s for one in about for s in style.sentence(one))]


def _folded(kernels: Sequence[Pair]) -> Iterator[Pair | int]:
    """The rows; of more than three in a row that both sides have, the first, how many, the last."""
    for same, found in groupby(kernels, lambda one: one[0] is not None and one[1] is not None):
        run = list(found)
        folds = same and len(run) >= _LEAST_FOLDED
        yield from (run[0], len(run) - 2, run[-1]) if folds else run


def _table(pairs: Sequence[Pair | int], diff: KernelDiff, style: Style) -> Iterator[Line]:
    kernels = [k for pair in pairs if not isinstance(pair, int) for k in pair[:2] if k]
    names = tell_apart(kernel.name for kernel in kernels)
    unit = time_unit(kernel.duration_us or 0.0 for kernel in kernels)
    rows = []
    for pair in pairs:
        if isinstance(pair, int):
            rows.append(TableRow(("", ""), f"  ({pair} unchanged)"))
            continue
        before, now, lines = pair
        kernel = now or before
        assert kernel is not None  # one side has it
        sign = " " if before and now else "+" if now else "-"
        times = (unit.words(one.duration_us or 0.0) if one else "" for one in (before, now))
        chain = chain_words(kernel.operators, kernel.name)
        line = os.path.basename(kernel.source) + lines_words(lines)
        rows.append(TableRow((*times,), f"{sign} {names[kernel.name]}", chain, line, sign=sign))
    totals = (unit.words(one or 0.0) for one in (diff.baseline_us, diff.current_us))
    rows.append(TableRow((*totals,), f"  {unit.name} in all"))
    nouns = NOUNS[_kind(diff)]
    laid = lay_out_rows(("old", "new"), nouns.kernel, nouns.caller, rows, style)
    yield from laid.coloured([_COLOURS.get(row.sign, "") for row in rows])


# Snapshots, at the end of a run.

_COMMAND = "pytest --kernelprof-update"
_SHOWN: tuple[TestState, ...] = ("same", "changed", "worse", "not compared", "missing")


def last_line(taken: Sequence[SnapshotReport], unused: int) -> str:
    """Return how the tests of a run compare with their snapshots; empty if all are as agreed, or
    there are none."""
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
    reasons = {state: f" ({words})" for state, words in more.items() if words}
    parts = [
        f"{counts[state]} {TEST_STATES[state]}{reasons.get(state, '')}"
        for state in _SHOWN
        if counts[state]
    ]
    parts += [f"{unused} unused"] if unused else []
    return printable(f"snapshots: {', '.join(parts)}: {_COMMAND}")


def detail_lines(told: Iterable[tuple[str, SnapshotReport]], *, verbose: bool) -> list[str]:
    """Return the tests that differ from their snapshots, with their kernels.

    Args:
        told: the tests, by their ids.
        verbose: all tests; else those whose kernels differ, in a few lines.
    """
    lines = []
    for test, one in told:
        if one.changes or (verbose and one.state not in (None, "same")):
            why = f" ({one.why})" if one.why else ""
            lines.append(f"  {TEST_STATES[one.state or 'same']}: {test}{why}")
            lines += [f"    {line}" for line in change_lines(one.changes)]
    most = len(lines) if verbose else _FEW_LINES
    return list(map(printable, first_of(lines, most, "  ... and {} more lines with -v")))


def update_lines(
    edited: Sequence[tuple[str, Edited]], refused: Sequence[tuple[str, str]]
) -> list[str]:
    """Return what an update has done: how many entries, each that now allows more, and what is not
    kept.

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
