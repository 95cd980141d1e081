"""The diff of two profiles as lines of text: what came, what went, what takes another time; and two
traces as one list of kernels, the time of each on the side that it belongs to."""

from __future__ import annotations

import os
from itertools import groupby
from typing import TYPE_CHECKING

from pytest_kernelprof.names.apart import tell_apart
from pytest_kernelprof.report.style import Span
from pytest_kernelprof.report.tables import Numbers, Words, text_table, time_unit
from pytest_kernelprof.summary.new_kernels import fusions_of
from pytest_kernelprof.summary.words import chain_words, first_of, lines_words, value_words
from pytest_kernelprof.units import format_bytes, format_time, printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_kernelprof.comparison.kernel_diff import Pair
    from pytest_kernelprof.comparison.kernel_keys import AnyKernel
    from pytest_kernelprof.report.style import Colour, Line, Style
    from pytest_kernelprof.report.tables import Unit
    from pytest_kernelprof.schema.comparison import (
        KernelChange,
        KernelDiff,
        KernelSide,
        MetricDelta,
        ProfileComparison,
        TracesComparison,
    )

MOST_LINES = 40
_SHORTEST_NAME = 24
_LEAST_FOLDED = 4
_NAME, _CHAIN = 24, 16
_TextCells = tuple[str, str, str, str]
"""Sign and name; times; operators; line."""


def diff_lines(found: ProfileComparison, *, most: int = MOST_LINES) -> list[str]:
    """The verdict, then one line a change: ``-`` gone, ``+`` new, ``~`` another time; last the
    metrics that differ.

    Args:
        most: so many lines of changes are told, and how many are left out.
    """
    return [*kernel_lines(found, most=most), *metric_lines(found)]


def kernel_lines(found: ProfileComparison, *, most: int = MOST_LINES) -> list[str]:
    """The same without the metrics. A change that repeats stands once, with ``x48`` and the time
    of one."""
    if found.kernels is None:
        return []
    notes = note_lines(found)
    return [_counts(found.kernels), *notes, *change_lines(found.kernels, most=most)]


def change_lines(
    diff: KernelDiff, *, most: int = MOST_LINES, retimed_alone: bool = False
) -> list[str]:
    """One line a change, ``most`` at most, and how many are left out.

    Args:
        retimed_alone: of kernels that both sides have alone.
    """
    changes = () if retimed_alone else diff.came_or_went
    told = (*changes, *diff.retimed)
    sides = [side for one in told for side in (one.baseline, one.current) if side is not None]
    names = tell_apart(side.name for side in sides)
    hunks: dict[int, list[KernelChange]] = {}
    for one in changes:
        hunks.setdefault(one.hunk, []).append(one)
    lines = [line for hunk in hunks.values() for line in _hunk_lines(hunk, names)]
    lines += [_retimed_line(one, names) for one in diff.retimed]
    found = first_of(_aligned(lines), most, "... and {} more lines")
    return [*found, *([f"... and {diff.left_out} more changes"] if diff.left_out else [])]


def metric_lines(found: ProfileComparison) -> list[str]:
    """One line for each metric that differs and that both sides have."""
    return list(filter(None, map(_metric_line, found.metrics)))


def processes_words(found: TracesComparison) -> str:
    """That one side has processes that the other has not; empty where both have the same."""
    before, now, both = found.baseline_processes, found.current_processes, len(found.processes)
    if before == now == both:
        return ""
    return f"{before} -> {now} processes: compared are the {both} that both have"


def _same_or_others(diff: KernelDiff) -> str:
    return ", of which some are others" if diff.came_or_went else ", the same"


def _counts(diff: KernelDiff) -> str:
    counts = f"{diff.baseline_kernels} -> {diff.current_kernels} {diff.what}"
    if diff.baseline_kernels == diff.current_kernels:
        counts = f"{diff.current_kernels} {diff.what}{_same_or_others(diff)}"
    times = _times(diff)
    return f"{counts}; {times}" if times else counts


def _times(diff: KernelDiff) -> str:
    """``200.7us -> 231.4us (+15.3 %)``; empty where times were not compared, or there are none."""
    before, now = diff.baseline_us or 0.0, diff.current_us or 0.0
    if not before and not now:
        return ""
    share = f" ({(now / before - 1) * 100:+.1f} %)" if before else ""
    return f"{format_time(before)} -> {format_time(now)}{share}"


def note_lines(found: ProfileComparison) -> list[str]:
    """What keeps it from being the whole comparison."""
    diff, told = found.kernels, []
    if found.incomplete:
        words = "INCOMPLETE: what is missing on one side may be lost, not gone: "
        told.append(words + "; ".join(found.incomplete))
    if found.differences:
        told.append(f"times are no comparison: {', '.join(found.differences)}")
    if diff is not None:
        told += _steps_words(diff.baseline_steps, diff.current_steps)
        if not diff.ordered:
            told.append("rounds differ in their kernels' order, so they are compared without it")
    return [printable(line) for line in told]


def _steps_words(old: int, new: int) -> list[str]:
    """What of traces with the profiler's own steps was compared."""
    if old > 1 and new > 1:
        return [f"of {old} and {new} steps, one of the most frequent kind each"]
    if old <= 1 and new <= 1:
        return []
    stepped, steps, whole = ("first", old, "second") if old > 1 else ("second", new, "first")
    has = "one step" if min(old, new) else "no steps"
    return [
        f"of the {stepped} trace one of {steps} steps, of the most frequent kind; of the {whole} "
        f"one, which has {has}, all"
    ]


def _hunk_lines(hunk: Sequence[KernelChange], names: dict[str, str]) -> list[_TextCells]:
    """Gone and new in launch order; how often on the first line."""
    lines = [line for change in hunk for line in _change_lines(change, names)]
    times = hunk[0].times
    if times > 1:
        first = lines[0]
        together = f" (and {len(lines) - 1} below)" if len(lines) > 1 else ""
        lines[0] = (f"{first[0]}  x{times}{together}", *first[1:])
    return lines


def _change_lines(change: KernelChange, names: dict[str, str]) -> Iterator[_TextCells]:
    for sign, side in (("-", change.baseline), ("+", change.current)):
        if side is not None:
            yield (
                f"{sign} {names[side.name]}",
                format_time(change.us(side)) if side.duration_us is not None else "",
                _chain(side) or "-",
                os.path.basename(side.source) + lines_words(change.lines),
            )


def _retimed_line(change: KernelChange, names: dict[str, str]) -> _TextCells:
    before, now = change.baseline, change.side
    times = f"{format_time(change.us(before))} -> {format_time(change.us(now))}"
    repeats = f"  x{change.times}" if change.times > 1 else ""
    what: str = change.kind
    if change.kind == "reconfigured" and before is not None:
        what = f"reconfigured: {_configuration(before, now)}"
    head = f"~ {names[now.name]}{repeats}"
    return head, times, f"{_chain(now) or '-'}; {what}", os.path.basename(now.source)


def _configuration(old: KernelSide, new: KernelSide) -> str:
    """What of the launch is another."""
    pairs = {
        "grid": (_size(old.grid), _size(new.grid)),
        "block": (_size(old.block), _size(new.block)),
        "registers": (str(old.registers), str(new.registers)),
        "shared memory": tuple(format_bytes(one.shared_memory or 0) for one in (old, new)),
    }
    return ", ".join(f"{what} {a} -> {b}" for what, (a, b) in pairs.items() if a != b)


def _size(size: tuple[int, int, int] | None) -> str:
    return "x".join(map(str, size or ()))


def _chain(kernel: AnyKernel) -> str:
    return chain_words(kernel.operators, kernel.name)


def _aligned(lines: Sequence[_TextCells]) -> list[str]:
    """Names to the left, times to the right below each other."""
    wide = max((len(name) for name, *_ in lines), default=0)
    wide_time = max((len(time) for _, time, *_ in lines), default=0)
    return [
        printable(
            f"{name.ljust(max(wide, _SHORTEST_NAME))}  {time.rjust(wide_time)}  {chain}  {source}"
        ).rstrip()
        for name, time, chain, source in lines
    ]


def _metric_line(delta: MetricDelta) -> str:
    """Empty where one side could not have it: that is no change."""
    before, now = delta.baseline, delta.current
    if before is None or now is None or delta.name in ("kernels", "cuda_time"):
        return ""
    old, new = (value_words(delta.spec.unit, one) for one in (before, now))
    if delta.spec.kind != "timed":
        return f"{delta.name}: {old} -> {new}"
    share = "" if delta.share is None else f" ({delta.share * 100:+.1f} %)"
    return f"{delta.name}: {old} -> {new}{share}" if old != new else ""


def side_by_side_lines(
    found: ProfileComparison, kernels: Sequence[Pair], style: Style, *, most: int
) -> list[Line]:
    """The verdict, both sides in launch order, which kernel does what others did, and the metrics
    that differ.

    Args:
        most: so many rows are told; where there are more, what changed and no more, repeats once.
    """
    diff = found.kernels
    assert diff is not None  # of two traces there always is one
    lines = style.sentence(_verdict(diff), "bold")
    for note in note_lines(found):
        lines += style.sentence(note, "yellow")
    rows = list(_folded(kernels))
    differs = bool(diff.came_or_went or diff.retimed)
    if differs and len(rows) <= most:
        retimed = change_lines(diff, most=most, retimed_alone=True)
        lines += [(), *_table(rows, diff, style)]
        lines += [(), *((Span(style.say(one)),) for one in retimed)] if retimed else []
    elif differs:
        told = change_lines(diff, most=most)
        lines += [(), *((Span(style.say(one), _colour(one[:1])),) for one in told)]
    about = [*_fused(diff), *metric_lines(found)]
    if differs:
        about.append("one trace of each cannot separate change from noise")
    said = [one for words in about for one in style.sentence(words)]
    return [*lines, *([(), *said] if said else [])]


def _verdict(diff: KernelDiff) -> str:
    """``4 kernels -> 5, GPU time 200.7us -> 231.4us (+15.3 %).``"""
    told = f"{diff.baseline_kernels} {diff.what} -> {diff.current_kernels}"
    if diff.baseline_kernels == diff.current_kernels:
        told = f"{diff.current_kernels} {diff.what}{_same_or_others(diff)}"
    times = _times(diff)
    device = "CPU" if diff.what == "operators" else "GPU"
    return f"{told}, {device} time {times}." if times else f"{told}."


def _folded(kernels: Sequence[Pair]) -> Iterator[Pair | int]:
    """The rows; of more than three in a row that both sides have, the first, how many, the last."""
    for same, found in groupby(kernels, lambda one: one[0] is not None and one[1] is not None):
        run = list(found)
        folds = same and len(run) >= _LEAST_FOLDED
        yield from (run[0], len(run) - 2, run[-1]) if folds else run


def _table(rows: Sequence[Pair | int], diff: KernelDiff, style: Style) -> Iterator[Line]:
    kernels = [k for row in rows if not isinstance(row, int) for k in row[:2] if k]
    names = tell_apart(kernel.name for kernel in kernels)
    unit = time_unit([kernel.duration_us or 0.0 for kernel in kernels])
    cells = [_cells(row, names, unit, style) for row in rows]
    before, now = (unit.words(one or 0.0) for one in (diff.baseline_us, diff.current_us))
    cells.append((before, now, " ", f"{unit.name} in all", "", ""))
    old, new, sign, name, chain, line = (tuple(column) for column in zip(*cells, strict=True))
    on_cpu = diff.what == "operators"
    words = [
        Words(
            "operator" if on_cpu else "kernel",
            tuple(map(" ".join, zip(sign, name, strict=True))),
            _NAME,
            3,
        ),
        Words("called by" if on_cpu else "launched by", chain, _CHAIN, 2),
        Words("line", line, 0, 1, goes=True),
    ]
    told = text_table([Numbers("old", old), Numbers("new", new)], words, style.width, style.cut)
    yield (Span(told[0], "dim"),)
    for cell, text in zip(cells, told[1:], strict=True):
        yield (Span(text, _colour(cell[2])),)


def _colour(sign: str) -> Colour:
    colours: dict[str, Colour] = {"+": "red", "-": "dim"}
    return colours.get(sign, "")


_Cells = tuple[str, str, str, str, str, str]
"""Times of both sides, sign, name, operators, line."""


def _cells(row: Pair | int, names: dict[str, str], unit: Unit, style: Style) -> _Cells:
    if isinstance(row, int):
        return "", "", " ", f"({row} the same)", "", ""
    before, now, lines = row
    kernel = now or before
    assert kernel is not None  # one side has it
    return (
        unit.words(before.duration_us or 0.0) if before else "",
        unit.words(now.duration_us or 0.0) if now else "",
        " " if before and now else "+" if now else "-",
        style.say(names[kernel.name]),
        style.say(_chain(kernel)),
        style.say(os.path.basename(kernel.source) + lines_words(lines)),
    )


def _fused(diff: KernelDiff) -> Iterator[str]:
    """Which kernel does what others did, with the times of both."""
    for one in fusions_of(diff):
        yield f"{one.words}: {format_time(one.baseline_us)} -> {format_time(one.current_us)}"
