"""The table of profiles: under each file its rows, numbers left, the name last, and why below."""

from __future__ import annotations

import re
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from pytest_kernelprof.digest.kernel_groups import alike
from pytest_kernelprof.digest.rows import name_from
from pytest_kernelprof.digest.words import line_words, pair_words
from pytest_kernelprof.report.cells import columns_of, unit_of
from pytest_kernelprof.report.ranks import lines_of_ranks
from pytest_kernelprof.report.style import Span
from pytest_kernelprof.report.tables import cut_end, lay_out, right, width_of, wrapped
from pytest_kernelprof.schema.run import Cause
from pytest_kernelprof.units import format_time

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_kernelprof.digest.kernel_groups import Alike
    from pytest_kernelprof.digest.records import Row
    from pytest_kernelprof.report.style import Colour, Line, Style

_INDENT = 4
_MOST_CAUSES = 3
_MOST_KERNELS = 40
_OUTER, _OPERATORS = re.compile(r" < [^;]*"), re.compile(r", from [^;]*")


def tables(rows: Sequence[Row], style: Style, *, marked: bool) -> list[Line]:
    """A table of the rows that ran on a GPU, and one of those that ran on the CPU; each where
    there are some.

    Args:
        marked: whether rows are told apart by signs, as they are where anything has a limit.
    """
    lines: list[Line] = []
    for kind in ("cuda", "cpu"):
        of_kind = [row for row in rows if row.profile.environment.kind == kind]
        if of_kind:
            lines += [(), *_table(of_kind, style, marked=marked)]
    return lines


def _table(rows: Sequence[Row], style: Style, *, marked: bool) -> Iterator[Line]:
    unit = unit_of(rows, "cuda_time")
    columns = columns_of(rows, verbose=style.verbosity > 0)
    names = [
        style.say(row.name if row.least_us is None else name_from(row, unit.words(row.least_us)))
        for row in rows
    ]
    laid = lay_out(columns, names, style.width, name="test", cut=style.cut)
    yield (Span(laid.title, "dim"),)
    file = ""
    for row, (cells, name) in zip(rows, laid.rows, strict=True):
        if row.file != file:
            file = row.file
            yield from _file_lines(file, style)
        marks = marked or row.told == "incomplete"
        sign, colour = style.sign(row.told if marks else None)
        spans = [Span(sign, colour), Span(" ")]
        for cell in cells:
            spans += [Span(cell, "red" if " > " in cell else ""), Span("  ")]
        yield (*spans, *_name(name[0]))
        yield from ((Span(" " * laid.indent + more),) for more in name[1:])
        if marks:
            yield from _causes(row, laid.gone, style)
        if row.least_us is None:  # of several that agree -v has the ranks of each
            yield from lines_of_ranks(row.profile, style, _INDENT)
        if style.verbosity > 1:
            yield from _kernels(row, style)


def _file_lines(file: str, style: Style) -> Iterator[Line]:
    told = style.say(file)
    if width_of(told) > style.width:
        yield from ((Span(line, "bold"),) for line in wrapped(told, style.width))
        return
    folder, slash, name = told.rpartition("/")
    yield (Span(folder + slash, "dim"), Span(name, "bold"))


def _name(name: str) -> Line:
    """The name, what stands in brackets dim."""
    stem, bracket, rest = name.partition("[")
    return (Span(stem), Span(bracket + rest, "dim")) if bracket else (Span(name),)


def _causes(row: Row, gone: frozenset[str], style: Style) -> Iterator[Line]:
    """Why it is marked, broken values without a column first."""
    if row.told in ("failed", "failed otherwise"):
        for one in row.broken.values():
            if one.metric in gone:
                told = " > ".join(pair_words(one.unit, one.measured, one.allowed))
                yield cause_line(Cause(f"{one.by}: {told}"), style)
    for cause in row.causes[:_MOST_CAUSES]:
        if row.told in ("incomplete", "undecided"):  # a sentence that says what to do
            lines = wrapped(style.say(cause.text), style.width - _INDENT)
            yield from ((Span(" " * _INDENT + line),) for line in lines)
        else:
            yield cause_line(cause, style)
    left = len(row.causes) - _MOST_CAUSES
    if left > 0:
        yield (Span(f"{' ' * _INDENT}and {left} more"),)


def cause_line(cause: Cause, style: Style) -> Line:
    """Why, and where at the right. What does not fit gives way in this order: the operators, the
    place, the end of the cause."""
    place = style.say(line_words(cause.place))
    text = style.say(f"{cause.sign} {cause.text}".lstrip())
    room = style.width - _INDENT
    beside = room - (width_of(place) + 2 if place else 0)
    shortest = width_of(_OPERATORS.sub("", text))
    if beside < shortest <= room or beside < room // 2:
        place, beside = "", room
    told = _fitting(text, beside, style.cut)
    at = right(place, room - width_of(told)) if place else ""
    colour: Colour = "red" if cause.sign == "+" else ""
    return (Span(" " * _INDENT), Span(told, colour), Span(at, "dim"))


def _fitting(text: str, room: int, cut: str) -> str:
    for operators in (_OUTER, _OPERATORS):
        if width_of(text) > room:
            text = operators.sub("", text)
    return cut_end(text, room, cut)


def _kernels(row: Row, style: Style) -> Iterator[Line]:
    """The kernels of a row in launch order, equal neighbours as one."""
    runs = _runs(row)
    if not runs:
        return
    on_cpu = row.profile.environment.kind == "cpu"
    yield (Span(f"{' ' * _INDENT}{'CPU' if on_cpu else 'GPU'} time  in launch order", "dim"),)
    for run in runs[:_MOST_KERNELS]:
        words = cut_end(style.say(run.words), style.width - _INDENT - 10, style.cut)
        yield (Span(f"{' ' * _INDENT}{format_time(run.us):>8}  {words}"),)
    left = row.profile.kernel_count - sum(run.number for run in runs[:_MOST_KERNELS])
    if left > 0:
        yield (Span(f"{' ' * _INDENT}{'':8}  and {left} more"),)


def _runs(row: Row) -> list[Alike]:
    """Neighbours that are alike, as one."""
    what = attrgetter("short_name", "operators", "source")
    return [one for _, run in groupby(row.profile.kernels, what) for one in alike(run)]
