"""The table of what is another than before, whatever it was compared with: only rows that changed,
under what became of them, and below each why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_kernelprof.digest.changes import WORDS, percent_words
from pytest_kernelprof.digest.ids import shortened
from pytest_kernelprof.digest.words import line_words, value_words
from pytest_kernelprof.report.cells import time_unit
from pytest_kernelprof.report.name_last import Numbers, lay_out
from pytest_kernelprof.report.spans import Span
from pytest_kernelprof.report.widths import left, width_of, wrapped
from pytest_kernelprof.schema.metrics import METRICS

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Sequence

    from pytest_kernelprof.digest.changes import Changed, RowResult, Was
    from pytest_kernelprof.report.spans import Colour, Line
    from pytest_kernelprof.report.style import Style
    from pytest_kernelprof.schema.run import Cause

_SIGNS: dict[RowResult, tuple[str, str, Colour]] = {
    "worse": ("✗", "F", "red"),
    "undecided": ("?", "?", "yellow"),
}
_COUNTS = {"kernels": "kernels", "syncs": "waits", "would_wait": "would wait", "memcpys": "copies"}
# Of what follows from a column beside it nothing is said.
_FOLLOWS = {
    "launches": "kernels",
    "gpu_busy": "cuda_time",
    "dispatch_time": "latency",
    "launch_overhead": "latency",
}
_MOST_ROWS = 60
_MOST_CAUSES = 6
_INDENT = 4
_LEAST_NAME = 26
_WIDEST_CAUSE = 100
_ARROW = " -> "


def changed_lines(changes: Sequence[Changed], style: Style) -> list[Line]:
    """The table; nothing where nothing is another.

    Args:
        changes: worst first.
    """
    told = changes[:_MOST_ROWS]
    if not told:
        return []
    columns = _columns(told, style.width)
    names = [style.say(shortened(one.name)) for one in told]
    numbers = [number for several in columns.values() for number in several]
    laid = lay_out(numbers, names, style.width, name="test", cut=style.cut)
    lines: list[Line] = [(Span(laid.title, "dim"),)]
    result: RowResult | None = None
    for one, (cells, name) in zip(told, laid.rows, strict=True):
        if one.result != result:
            result = one.result
            lines.append((Span(WORDS[result], "bold"),))
        sign, letter, colour = _SIGNS.get(one.result, (" ", " ", ""))
        spans = [Span(letter if style.ascii else sign, colour), Span(" ")]
        for cell in cells:
            spans += [Span(cell, "red" if _ARROW in cell and result == "worse" else ""), Span("  ")]
        lines.append((*spans, Span(name[0])))
        lines += [(Span(" " * laid.indent + more),) for more in name[1:]]
        lines += _below(one, columns, style)
    if len(changes) > len(told):
        lines.append((Span(f"{len(changes) - len(told)} more rows"),))
    return lines


def _columns(rows: Sequence[Changed], width: int) -> dict[str, list[Numbers]]:
    """By metric: counts that are another somewhere, times, the ratio of turns. Where names would
    have no room, the last are none; their values stand below the rows."""
    counted = {one.counted for one in rows}
    titles = {**_COUNTS, **({"kernels": counted.pop()} if len(counted) == 1 else {})}
    found = {
        metric: [Numbers(title, tuple(_count(one.values.get(metric)) for one in rows))]
        for metric, title in titles.items()
        if metric == "kernels" or any(_differs(one.values.get(metric)) for one in rows)
    }
    if not any(found["kernels"][0].cells):
        del found["kernels"]
    if any(one.ratio is not None for one in rows):
        ratios = tuple("" if one.ratio is None else percent_words(one.ratio - 1) for one in rows)
        found["cuda_time"] = [Numbers("GPU time", ratios)]
        if any(len(one.ratios) > 1 for one in rows):
            found["cuda_time"].append(Numbers("range", tuple(one.range for one in rows)))
    elif any("cuda_time" in one.values for one in rows):
        found["cuda_time"] = _times(rows, "cuda_time", "GPU")
    if any(_differs(one.values.get("latency")) for one in rows):
        found["latency"] = _times(rows, "latency", "latency")
    order = [one for one in ("kernels", "cuda_time", "latency", *_COUNTS) if one in found]
    shown: list[str] = []
    room = width - _LEAST_NAME
    for metric in dict.fromkeys(order):
        room -= sum(one.width + 2 for one in found[metric])
        if room < 0 and shown:
            break
        shown.append(metric)
    return {metric: several for metric, several in found.items() if metric in shown}


def _differs(was: Was | None) -> bool:
    return was is not None and any(one not in (None, was.new) for one in was.olds)


def _count(was: Was | None) -> str:
    if was is None:
        return ""
    if not _differs(was):
        return f"{was.new:.0f}"
    before = " ".join("-" if one is None else f"{one:.0f}" for one in was.olds)
    return f"{before}{_ARROW}{was.new:.0f}"


def _times(rows: Sequence[Changed], metric: str, title: str) -> list[Numbers]:
    """Before and now, and by how much that is more."""
    values = [one.values.get(metric) for one in rows]
    known = [us for was in values if was is not None for us in (*was.olds, was.new)]
    unit = time_unit([us for us in known if us is not None])
    told = [
        ""
        if was is None
        else " ".join("-" if us is None else unit.words(us) for us in was.olds)
        + _ARROW
        + unit.words(was.new)
        for was in values
    ]
    shares = [
        "" if was is None or was.share is None else percent_words(was.share) for was in values
    ]
    return [Numbers(f"{title} {unit.name}", tuple(told)), Numbers("change", tuple(shares))]


def _below(one: Changed, shown: Container[str], style: Style) -> Iterator[Line]:
    """Which kernels and where; the metrics that have no column."""
    for cause in one.causes[:_MOST_CAUSES]:
        yield from _cause(cause, style)
    more = len(one.causes) - _MOST_CAUSES
    told = [*([f"{more} more changes of kernels"] if more > 0 else []), *_also(one, shown), one.why]
    words = "; ".join(filter(None, told))
    if words:
        for line in wrapped(style.say(words), style.width - _INDENT):
            yield (Span(" " * _INDENT + line),)


def _cause(cause: Cause, style: Style) -> Iterator[Line]:
    """A line, with its place at the right where there is room."""
    sign = f"{cause.sign} " if cause.sign else ""
    text = style.say(sign + cause.text)
    place = style.say(line_words(cause.place)) if cause.place is not None else ""
    room = min(style.width, _WIDEST_CAUSE) - _INDENT
    if place and width_of(text) + 2 + width_of(place) <= room:
        yield (Span(" " * _INDENT + left(text, room - width_of(place)) + place),)
        return
    for line in wrapped(f"{text}  {place}".rstrip(), style.width - _INDENT):
        yield (Span(" " * _INDENT + line),)


def _also(one: Changed, shown: Container[str]) -> Iterator[str]:
    """Metrics without a column, unless they follow from one that has.

    Args:
        shown: those that have one.
    """
    for name, was in one.values.items():
        if name in shown or not _differs(was):
            continue
        beside = one.values.get(_FOLLOWS.get(name, ""))
        if beside is not None and _differs(beside) and _follows(name, was, beside):
            continue
        unit = METRICS[name].unit
        old, new = (value_words(unit, one) for one in (was.old, was.new))
        share = None if unit == "count" else was.share
        percent = "" if share is None else f" ({percent_words(share)})"
        yield f"{name} {old}{_ARROW}{new}{percent}"


def _follows(name: str, was: Was, beside: Was) -> bool:
    """Whether it says what the column beside it says: of a time, that it is longer or shorter."""
    if METRICS[name].unit == "us":
        return (was.new > was.old) == (beside.new > beside.old)
    return was.new - was.old == beside.new - beside.old
