"""The diff of two profiles as lines of text: what came, what went, what takes another time."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from msgspec import structs

from pytest_kernelprof.digest.words import chain_words, first_of, lines_words, value_words
from pytest_kernelprof.names.apart import tell_apart
from pytest_kernelprof.units import format_bytes, format_time, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_kernelprof.schema.diff import (
        Change,
        Hunk,
        MetricChange,
        Pace,
        ProfileDiff,
        ProfileDiffs,
    )
    from pytest_kernelprof.schema.run import Kernel

MOST_LINES = 40
_SHORTEST_NAME = 24


def diff_lines(diff: ProfileDiff, *, most: int = MOST_LINES) -> list[str]:
    """The verdict, then one line a change: ``-`` gone, ``+`` new, ``~`` another time.

    A change that repeats stands once, with ``x48`` and the time of one.

    Args:
        most: so many lines of changes are told, and how many are left out.
    """
    return [
        _verdict(diff),
        *note_lines(diff),
        *change_lines(diff, most=most),
        *metric_lines(diff),
    ]


def change_lines(diff: ProfileDiff, *, most: int = MOST_LINES) -> list[str]:
    """One line a change, ``most`` at most, and how many are left out."""
    names = tell_apart(kernel.name for kernel in _kernels(diff))
    changed = [line for hunk in diff.hunks for line in _hunk_lines(hunk, names)]
    told = _aligned([*changed, *(line for one in diff.paces for line in _pace_lines(one, names))])
    return first_of(told, most, "... and {} more lines")


def pace_lines(diff: ProfileDiff, *, most: int = MOST_LINES) -> list[str]:
    """The same of kernels that both sides have and that take another time."""
    return change_lines(structs.replace(diff, hunks=()), most=most)


def metric_lines(diff: ProfileDiff) -> list[str]:
    """One line for each metric that differs and that both sides have."""
    return list(filter(None, map(_metric_line, diff.metrics)))


def processes_words(diffs: ProfileDiffs) -> str:
    """That one side has processes that the other has not; empty where both have the same."""
    if diffs.old_processes == diffs.new_processes == len(diffs.processes):
        return ""
    return (
        f"{diffs.old_processes} -> {diffs.new_processes} processes: compared are the "
        f"{len(diffs.processes)} that both have"
    )


def _verdict(diff: ProfileDiff) -> str:
    counts = f"{diff.old_kernels} -> {diff.new_kernels}"
    if diff.old_kernels == diff.new_kernels:
        counts = f"{diff.new_kernels} {diff.what}"
        counts += ", the same" if diff.same_kernels else ", of which some are others"
    else:
        counts = f"{counts} {diff.what}"
    if not diff.old_us and not diff.new_us:
        return counts
    change = f" ({(diff.new_us / diff.old_us - 1) * 100:+.1f} %)" if diff.old_us else ""
    return f"{counts}; {format_time(diff.old_us)} -> {format_time(diff.new_us)}{change}"


def note_lines(diff: ProfileDiff) -> list[str]:
    """What keeps it from being the whole comparison."""
    found = []
    if diff.problems:
        words = "INCOMPLETE: what is missing on one side may be lost, not gone: "
        found.append(words + "; ".join(diff.problems))
    if diff.other:
        found.append(f"times are no comparison: {', '.join(diff.other)}")
    found += _steps_words(diff.old_steps, diff.new_steps)
    if not diff.ordered:
        found.append("rounds differ in their kernels' order, so they are compared without it")
    return [printable(line) for line in found]


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


_Cells = tuple[str, str, str, str]
"""Sign and name; times; operators; line."""


def _hunk_lines(hunk: Hunk, names: dict[str, str]) -> list[_Cells]:
    """Gone and new in launch order; how often on the first line."""
    lines: list[_Cells] = []
    for change in hunk.changes:
        lines += _change_lines(change, names, hunk.times)
    if hunk.times > 1:
        first = lines[0]
        together = f" (and {len(lines) - 1} below)" if len(lines) > 1 else ""
        lines[0] = (f"{first[0]}  x{hunk.times}{together}", *first[1:])
    return lines


def _change_lines(change: Change, names: dict[str, str], times: int) -> list[_Cells]:
    found, unsure = [], lines_words(change.lines)
    if change.old is not None:
        found.append(_line("-", change.old, change.old_us / times, names, unsure))
    if change.new is not None:
        found.append(_line("+", change.new, change.new_us / times, names, unsure))
    return found


def _line(sign: str, kernel: Kernel, us: float, names: dict[str, str], unsure: str) -> _Cells:
    return (
        f"{sign} {names[kernel.name]}",
        format_time(us),
        _operators(kernel),
        os.path.basename(kernel.source) + unsure,
    )


def _pace_lines(pace: Pace, names: dict[str, str]) -> list[_Cells]:
    old_us, new_us = pace.old_us / pace.times, pace.new_us / pace.times
    times = f"{format_time(old_us)} -> {format_time(new_us)}"
    repeats = f"  x{pace.times}" if pace.times > 1 else ""
    what: str = pace.kind
    if pace.kind == "reconfigured":
        what = f"reconfigured: {_configuration(pace.old, pace.new)}"
    head = f"~ {names[pace.new.name]}{repeats}"
    return [(head, times, f"{_operators(pace.new)}; {what}", os.path.basename(pace.new.source))]


def _configuration(old: Kernel, new: Kernel) -> str:
    """What of the launch is another."""
    pairs = {
        "grid": (_size(old.grid), _size(new.grid)),
        "block": (_size(old.block), _size(new.block)),
        "registers": (str(old.registers), str(new.registers)),
        "shared memory": (format_bytes(old.shared_memory), format_bytes(new.shared_memory)),
    }
    return ", ".join(f"{what} {a} -> {b}" for what, (a, b) in pairs.items() if a != b)


def _size(size: tuple[int, int, int]) -> str:
    return "x".join(map(str, size))


def _operators(kernel: Kernel) -> str:
    return chain_words(kernel.operators, kernel.name) or "-"


def _aligned(lines: Sequence[_Cells]) -> list[str]:
    """Names to the left, times to the right below each other."""
    wide = max((len(name) for name, *_ in lines), default=0)
    wide_time = max((len(time) for _, time, *_ in lines), default=0)
    return [
        printable(
            f"{name.ljust(max(wide, _SHORTEST_NAME))}  {time.rjust(wide_time)}  {chain}  {source}"
        ).rstrip()
        for name, time, chain, source in lines
    ]


def _metric_line(change: MetricChange) -> str:
    """Empty where one side could not have it: that is no change."""
    if change.old is None or change.new is None or change.name in ("kernels", "cuda_time"):
        return ""
    old, new = (value_words(change.unit, one) for one in (change.old, change.new))
    if change.kind == "timed":
        share = f" ({(change.new / change.old - 1) * 100:+.1f} %)" if change.old else ""
        return f"{change.name}: {old} -> {new}{share}" if old != new else ""
    return f"{change.name}: {old} -> {new}"


def _kernels(diff: ProfileDiff) -> list[Kernel]:
    of_changes = [one for h in diff.hunks for c in h.changes for one in (c.old, c.new)]
    of_paces = [one for pace in diff.paces for one in (pace.old, pace.new)]
    return [kernel for kernel in (*of_changes, *of_paces) if kernel is not None]
