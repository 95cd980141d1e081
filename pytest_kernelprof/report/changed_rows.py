"""The table of what is another than before, whatever it was compared with: only rows that changed,
under what became of them, and below each why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_kernelprof.report.style import Span
from pytest_kernelprof.report.tables import Numbers, lay_out, left, time_unit, width_of, wrapped
from pytest_kernelprof.summary.comparisons import (
    RESULTS,
    causes_in,
    name_of,
    percent_words,
    range_words,
    result_of,
    values_of,
    why_of,
)
from pytest_kernelprof.summary.words import line_words, shortened, value_words

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Sequence

    from pytest_kernelprof.report.style import Line, Style
    from pytest_kernelprof.schema.comparison import MetricDelta, ProfileComparison
    from pytest_kernelprof.schema.run import Cause
    from pytest_kernelprof.summary.comparisons import Result

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


def changed_lines(changes: Sequence[ProfileComparison], style: Style) -> list[Line]:
    """The table; nothing where nothing is another.

    Args:
        changes: worst first.
    """
    told = changes[:_MOST_ROWS]
    if not told:
        return []
    columns = _columns(told, style.width)
    names = [style.say(shortened(name_of(one))) for one in told]
    numbers = [number for several in columns.values() for number in several]
    laid = lay_out(numbers, names, style.width, name="test", cut=style.cut)
    lines: list[Line] = [(Span(laid.title, "dim"),)]
    result: Result | None = None
    for one, (cells, name) in zip(told, laid.rows, strict=True):
        if result_of(one) != result:
            result = result_of(one)
            lines.append((Span(RESULTS[result].word, "bold"),))
        spans = [Span(*style.mark(RESULTS[result])), Span(" ")]
        for cell in cells:
            spans += [Span(cell, "red" if _ARROW in cell and result == "worse" else ""), Span("  ")]
        lines.append((*spans, Span(name[0])))
        lines += [(Span(" " * laid.indent + more),) for more in name[1:]]
        lines += _below(one, columns, style)
    if len(changes) > len(told):
        lines.append((Span(f"{len(changes) - len(told)} more rows"),))
    return lines


def _columns(rows: Sequence[ProfileComparison], width: int) -> dict[str, list[Numbers]]:
    """By metric: counts that are another somewhere, times, the ratio of turns. Where names would
    have no room, the last are none; their values stand below the rows."""
    counted = {one.kernels.what for one in rows if one.kernels is not None}
    titles = {**_COUNTS, **({"kernels": counted.pop()} if len(counted) == 1 else {})}
    values = [values_of(one) for one in rows]
    found = {
        metric: [Numbers(title, tuple(_count(one.get(metric)) for one in values))]
        for metric, title in titles.items()
        if metric == "kernels" or any(_differs(one.get(metric)) for one in values)
    }
    if not any(found["kernels"][0].cells):
        del found["kernels"]
    paired = [one.paired if one.paired and one.paired.pairs else None for one in rows]
    if any(paired):
        ratios = tuple("" if one is None else percent_words(one.ratio - 1) for one in paired)
        found["cuda_time"] = [Numbers("GPU time", ratios)]
        ranges = tuple(map(range_words, rows))
        found["cuda_time"] += [Numbers("range", ranges)] if any(ranges) else []
    elif any("cuda_time" in one for one in values):
        found["cuda_time"] = _times([one.get("cuda_time") for one in values], "GPU")
    if any(_differs(one.get("latency")) for one in values):
        found["latency"] = _times([one.get("latency") for one in values], "latency")
    order = [one for one in ("kernels", "cuda_time", "latency", *_COUNTS) if one in found]
    shown: list[str] = []
    room = width - _LEAST_NAME
    for metric in dict.fromkeys(order):
        room -= sum(one.width + 2 for one in found[metric])
        if room < 0 and shown:
            break
        shown.append(metric)
    return {metric: several for metric, several in found.items() if metric in shown}


def _differs(delta: MetricDelta | None) -> bool:
    return delta is not None and any(one not in (None, delta.current) for one in delta.baselines)


def _count(delta: MetricDelta | None) -> str:
    if delta is None or delta.current is None:
        return ""
    form = "{:.0f}".format
    return _sides(delta, form) if _differs(delta) else form(delta.current)


def _sides(delta: MetricDelta | None, form: Callable[[float], str]) -> str:
    """What each baseline has, and what there is now."""
    if delta is None or delta.current is None:
        return ""
    before = " ".join("-" if one is None else form(one) for one in delta.baselines)
    return f"{before}{_ARROW}{form(delta.current)}"


def _times(deltas: Sequence[MetricDelta | None], title: str) -> list[Numbers]:
    """Before and now, and by how much that is more."""
    known = [us for one in deltas if one is not None for us in (*one.baselines, one.current)]
    unit = time_unit([us for us in known if us is not None])
    shares = [
        "" if one is None or one.share is None else percent_words(one.share) for one in deltas
    ]
    return [
        Numbers(f"{title} {unit.name}", tuple(_sides(one, unit.words) for one in deltas)),
        Numbers("change", tuple(shares)),
    ]


def _below(one: ProfileComparison, shown: Container[str], style: Style) -> Iterator[Line]:
    """Which kernels and where; the metrics that have no column."""
    causes = causes_in(one)
    for cause in causes[:_MOST_CAUSES]:
        yield from _cause(cause, style)
    more = len(causes) - _MOST_CAUSES
    told = [f"{more} more changes of kernels"] if more > 0 else []
    words = "; ".join(filter(None, [*told, *_also(one, shown), why_of(one)]))
    if words:
        for line in wrapped(style.say(words), style.width - _INDENT):
            yield (Span(" " * _INDENT + line),)


def _cause(cause: Cause, style: Style) -> Iterator[Line]:
    """A line, with its place at the right where there is room."""
    sign = f"{cause.sign} " if cause.sign else ""
    text = style.say(sign + cause.text)
    place = style.say(line_words(cause.place))
    room = min(style.width, _WIDEST_CAUSE) - _INDENT
    if place and width_of(text) + 2 + width_of(place) <= room:
        yield (Span(" " * _INDENT + left(text, room - width_of(place)) + place),)
        return
    for line in wrapped(f"{text}  {place}".rstrip(), style.width - _INDENT):
        yield (Span(" " * _INDENT + line),)


def _also(one: ProfileComparison, shown: Container[str]) -> Iterator[str]:
    """Metrics without a column, unless they follow from one that has.

    Args:
        shown: those that have one.
    """
    values = values_of(one)
    for name, delta in values.items():
        if name in shown or not _differs(delta):
            continue
        beside = values.get(_FOLLOWS.get(name, ""))
        if beside is not None and _differs(beside) and _follows(delta, beside):
            continue
        unit = delta.spec.unit
        old, new = (value_words(unit, value or 0.0) for value in (delta.baseline, delta.current))
        share = None if unit == "count" else delta.share
        percent = "" if share is None else f" ({percent_words(share)})"
        yield f"{name} {old}{_ARROW}{new}{percent}"


def _follows(delta: MetricDelta, beside: MetricDelta) -> bool:
    """Whether it says what the column beside it says: of a time, that it is longer or shorter."""
    more, other = ((one.current or 0.0) - (one.baseline or 0.0) for one in (delta, beside))
    return (more > 0) == (other > 0) if delta.spec.unit == "us" else more == other
