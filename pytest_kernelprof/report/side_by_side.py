"""Two traces as one list of kernels: the time of each stands on the side that it belongs to."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pytest_kernelprof.digest.fusions import fusions_of
from pytest_kernelprof.digest.words import chain_words, lines_words
from pytest_kernelprof.names.apart import tell_apart
from pytest_kernelprof.report.cells import time_unit
from pytest_kernelprof.report.diff import change_lines, metric_lines, note_lines, pace_lines
from pytest_kernelprof.report.name_last import Numbers
from pytest_kernelprof.report.spans import Span
from pytest_kernelprof.report.text_columns import Words, text_table
from pytest_kernelprof.report.widths import wrapped
from pytest_kernelprof.units import format_time

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_kernelprof.report.cells import Unit
    from pytest_kernelprof.report.spans import Colour, Line
    from pytest_kernelprof.report.style import Style
    from pytest_kernelprof.schema.diff import Beside, ProfileDiff
    from pytest_kernelprof.schema.run import Kernel

_LEAST_FOLDED = 4
_NAME, _CHAIN = 24, 16


def side_by_side_lines(
    diff: ProfileDiff, kernels: Sequence[Beside], style: Style, *, most: int
) -> list[Line]:
    """The verdict, both sides in launch order, which kernel does what others did, and the metrics
    that differ.

    Args:
        most: so many rows are told; where there are more, what changed and no more, repeats once.
    """
    verdict = wrapped(style.say(_verdict(diff)), style.width)
    lines: list[Line] = [(Span(one, "bold"),) for one in verdict]
    for note in note_lines(diff):
        lines += [(Span(one, "yellow"),) for one in wrapped(style.say(note), style.width)]
    rows = list(_folded(kernels))
    if diff.hunks or diff.paces:
        if len(rows) <= most:
            lines += [(), *_table(rows, diff, style)]
            paces = pace_lines(diff, most=most)
            lines += [(), *((Span(style.say(one)),) for one in paces)] if paces else []
        else:
            told = change_lines(diff, most=most)
            lines += [(), *((Span(style.say(one), _colour(one[:1])),) for one in told)]
    about = [*_fused(diff), *metric_lines(diff)]
    if diff.hunks or diff.paces:
        about.append("one trace of each says nothing of noise")
    if about:
        lines += [
            (),
            *((Span(one),) for words in about for one in wrapped(style.say(words), style.width)),
        ]
    return lines


def _verdict(diff: ProfileDiff) -> str:
    """``4 kernels -> 5, GPU time 200.7us -> 231.4us (+15.3 %).``"""
    told = f"{diff.old_kernels} {diff.what} -> {diff.new_kernels}"
    if diff.old_kernels == diff.new_kernels:
        told = f"{diff.new_kernels} {diff.what}"
        told += ", the same" if diff.same_kernels else ", of which some are others"
    if not diff.old_us and not diff.new_us:
        return f"{told}."
    share = f" ({(diff.new_us / diff.old_us - 1) * 100:+.1f} %)" if diff.old_us else ""
    device = "CPU" if diff.what == "operators" else "GPU"
    return f"{told}, {device} time {format_time(diff.old_us)} -> {format_time(diff.new_us)}{share}."


def _folded(kernels: Sequence[Beside]) -> Iterator[Beside | int]:
    """The rows; of more than three in a row that both sides have, the first, how many, the last."""
    run: list[Beside] = []
    for one in (*kernels, None):
        if one is not None and one.old is not None and one.new is not None:
            run.append(one)
            continue
        if len(run) >= _LEAST_FOLDED:
            yield from (run[0], len(run) - 2, run[-1])
        else:
            yield from run
        run = []
        if one is not None:
            yield one


def _table(rows: Sequence[Beside | int], diff: ProfileDiff, style: Style) -> Iterator[Line]:
    kernels = [k for row in rows if not isinstance(row, int) for k in (row.old, row.new) if k]
    names = tell_apart(kernel.name for kernel in kernels)
    unit = time_unit([kernel.duration_us for kernel in kernels])
    cells = [_cells(row, names, unit, style) for row in rows]
    cells.append(
        (unit.words(diff.old_us), unit.words(diff.new_us), " ", f"{unit.name} in all", "", "")
    )
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


def _cells(row: Beside | int, names: dict[str, str], unit: Unit, style: Style) -> _Cells:
    if isinstance(row, int):
        return "", "", " ", f"({row} the same)", "", ""
    kernel = row.new or row.old
    assert kernel is not None  # one side has it
    sign = " " if row.old and row.new else "+" if row.new else "-"
    return (
        unit.words(row.old.duration_us) if row.old else "",
        unit.words(row.new.duration_us) if row.new else "",
        sign,
        style.say(names[kernel.name]),
        style.say(_chain(kernel)),
        style.say(os.path.basename(kernel.source) + lines_words(row.lines)),
    )


def _chain(kernel: Kernel) -> str:
    return chain_words(kernel.operators, kernel.name)


def _fused(diff: ProfileDiff) -> Iterator[str]:
    """Which kernel does what others did, with the times of both."""
    for one in fusions_of(diff):
        yield f"{one.words}: {format_time(one.old_us)} -> {format_time(one.new_us)}"
