"""The table of profiles: under each file its rows, numbers left, the name last, and why below."""

from __future__ import annotations

import re
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from pytest_kernelprof.report.ranks import lines_of_ranks
from pytest_kernelprof.report.style import Span
from pytest_kernelprof.report.tables import (
    Numbers,
    Unit,
    cut_end,
    lay_out,
    right,
    time_unit,
    width_of,
    wrapped,
)
from pytest_kernelprof.schema.run import Cause
from pytest_kernelprof.summary.findings import value_of
from pytest_kernelprof.summary.kernel_groups import alike
from pytest_kernelprof.summary.rows import name_from
from pytest_kernelprof.summary.words import line_words, pair_words
from pytest_kernelprof.units import format_time

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_kernelprof.report.style import Colour, Line, Style
    from pytest_kernelprof.summary.kernel_groups import Alike
    from pytest_kernelprof.summary.records import Row

_FEWEST_ALIKE = 3
_BROKEN = 10
_COUNT = Unit("", 1.0, 0)


def columns_of(rows: Sequence[Row], *, verbose: bool) -> list[Numbers]:
    """The columns that say something, with what gives way first where space is short.

    Args:
        verbose: also with launches and latency where the rest does not ask for them.
    """
    on_cpu = all(row.profile.environment.kind == "cpu" for row in rows)
    kernels = _counted(rows, "kernels", "operators" if on_cpu else "kernels")
    launches = _counted(rows, "launches", "launches", 2)
    latency = _timed(rows, "latency", "latency", 5)
    columns = [
        kernels,
        *([launches] if verbose or _are_launches_others(rows) else []),
        _timed(rows, "cuda_time", "GPU"),
        *([latency] if verbose or _is_asked(rows, "latency", on_cpu=on_cpu) else []),
        _timed(rows, "launch_overhead", "overhead", 6),
        _counted(rows, "syncs", "waits", 4),
        _counted(rows, "would_wait", "would wait", 4),
        _counted(rows, "memcpys", "copies", 3),
        Numbers("bound", tuple(map(_bound, rows)), gives_way=1),
        Numbers("headroom", tuple(map(_headroom, rows)), gives_way=0),
    ]
    return [columns[0], *(one for one in columns[1:] if _says_something(one))]


def _says_something(column: Numbers) -> bool:
    """Not zero or unknown in every row, nor the same in several; that is told with the totals."""
    values = set(column.cells)
    alike = len(values) == 1 and len(column.cells) >= _FEWEST_ALIKE
    return bool(values - {"", "0"}) and not alike


def alike_words(rows: Sequence[Row]) -> list[str]:
    """What columns would say that say the same in every row, in words."""
    found = []
    told = {"syncs": "waits", "would_wait": "would wait on a GPU", "memcpys": "copies"}
    for metric, words in told.items():
        values = {value_of(row.profile, metric) for row in rows}
        value = next(iter(values), None)
        if len(values) == 1 and value and len(rows) >= _FEWEST_ALIKE:
            found.append(f"{value:.0f} {words} in each")
    bounds = {_bound(row) for row in rows}
    if len(bounds) == 1 and bounds != {""} and len(rows) >= _FEWEST_ALIKE:
        found.append(f"{next(iter(bounds))}-bound all")
    return found


def _are_launches_others(rows: Sequence[Row]) -> bool:
    """Whether launches are not as many as kernels anywhere, or broken where kernels are not."""
    values = [(value_of(r.profile, "launches"), value_of(r.profile, "kernels")) for r in rows]
    return any(launches is not None and launches != kernels for launches, kernels in values) or any(
        "launches" in row.broken and "kernels" not in row.broken for row in rows
    )


def _is_asked(rows: Sequence[Row], metric: str, *, on_cpu: bool) -> bool:
    """Whether it is broken; on the CPU, which has no other times, whether a limit is on it."""
    broken = any(metric in row.broken for row in rows)
    limited = (row for row in rows if any(one.metric == metric for one in row.profile.verdicts))
    return broken or (on_cpu and any(_cell(row, metric, _COUNT) for row in limited))


def _counted(rows: Sequence[Row], metric: str, title: str, gives_way: int | None = None) -> Numbers:
    cells = tuple(_cell(row, metric, _COUNT) for row in rows)
    return Numbers(title, cells, _yields(rows, metric, gives_way), metric)


def _timed(rows: Sequence[Row], metric: str, title: str, gives_way: int | None = None) -> Numbers:
    unit = unit_of(rows, metric)
    cells = tuple(_cell(row, metric, unit) for row in rows)
    return Numbers(f"{title} {unit.name}", cells, _yields(rows, metric, gives_way), metric)


def _yields(rows: Sequence[Row], metric: str, gives_way: int | None) -> int | None:
    """What is broken somewhere gives way after all that is not."""
    if gives_way is None:
        return None
    return gives_way + _BROKEN if any(metric in row.broken for row in rows) else gives_way


def unit_of(rows: Sequence[Row], metric: str) -> Unit:
    """What a column of times is written in."""
    return time_unit([value_of(row.profile, metric) or 0.0 for row in rows])


def _cell(row: Row, metric: str, unit: Unit) -> str:
    """A value, with its limit where it is beyond that; empty where it could not be had, which of an
    incomplete profile is everything."""
    if row.told == "incomplete":
        return ""
    broken = row.broken.get(metric)
    value = broken.measured if broken else value_of(row.profile, metric)
    if value is None:
        return ""
    if broken is None or row.told not in ("failed", "failed otherwise"):
        return unit.words(value)
    return f"{_more_than(value, broken.allowed, unit)} > {_as_written(broken.allowed, unit)}"


def _as_written(allowed: float, unit: Unit) -> str:
    """A limit without decimals that say nothing: ``40``, ``0.001``."""
    return f"{allowed / unit.scale:.6g}" if unit.name else f"{allowed:.0f}"


def _more_than(value: float, allowed: float, unit: Unit) -> str:
    """A value with as many decimals as it takes to see that it is beyond its limit."""
    told = unit.words(value)
    for decimals in range(unit.decimals + 1, 7):
        if float(told) > float(_as_written(allowed, unit)):
            break
        told = unit.words(value, decimals)
    return told


def _bound(row: Row) -> str:
    verdict = row.profile.bound.verdict
    return "" if verdict == "unknown" else verdict


def _headroom(row: Row) -> str:
    """How much is left of the timed limit that is nearest: ``3 % of 240us``."""
    left = [
        (1 - one.measured / one.allowed, one.allowed)
        for one in row.profile.verdicts
        if one.outcome in ("passed", "undecided") and one.unit == "us"
        if one.measured is not None and one.allowed
    ]
    if not left:
        return ""
    share, allowed = min(left)
    percent = f"{share * 100:.0f}" if abs(share) >= 0.01 else f"{share * 100:.1f}"
    return f"{percent} % of {_short_time(allowed)}"


def _short_time(us: float) -> str:
    """A limit as people write it: ``240us``, not ``240.0us``."""
    told = format_time(us)
    number = told.rstrip("mnus")
    return f"{number.rstrip('0').rstrip('.') if '.' in number else number}{told[len(number) :]}"


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
