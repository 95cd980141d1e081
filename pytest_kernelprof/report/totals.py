"""Below the table: the suite's totals, its hottest kernels, and what to do, each in a few lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_kernelprof.report.row_table import alike_words
from pytest_kernelprof.report.style import Span
from pytest_kernelprof.report.tables import cut_middle, left, right, width_of, wrapped
from pytest_kernelprof.summary.words import count_words, value_words
from pytest_kernelprof.units import format_time

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_kernelprof.report.style import Line, Style
    from pytest_kernelprof.summary.records import HotKernel, Row, Summary, Tighten

_LABEL = 11
_MOST = 3
_ENOUGH = 0.6
_LONGEST_NAME = 60


def totals_lines(digest: Summary, style: Style) -> list[Line]:
    """What there is to say of the suite; a line with nothing to say is not there."""
    whole = not digest.counts.marked or style.verbosity > 0
    lines = [*labelled("suite", _suite(digest), style), *_hottest(digest, style)]
    lines += labelled("overhead", _overhead(digest), style)
    if whole:
        lines += labelled("waits", _waits(digest), style)
        lines += labelled("copies", _copies(digest), style)
        lines += labelled("idle", _idle(digest), style)
    near = [
        f"{short_name_of(one.row)}: {format_time(one.verdict.measured or 0)} of "
        f"{one.verdict.limit} {format_time(one.verdict.allowed or 0)}"
        for one in digest.near
    ]
    lines += _several("near", near, style)
    lines += _several("tighten", [_tighten(one) for one in digest.tighten], style)
    return lines


def labelled(label: str, text: str, style: Style) -> list[Line]:
    """A label, and a sentence beside it; nothing without one."""
    if not text:
        return []
    told = wrapped(style.say(text), style.width - _LABEL)
    return [
        (Span(left("" if at else label, _LABEL), "dim"), Span(one)) for at, one in enumerate(told)
    ]


def _several(label: str, texts: Sequence[str], style: Style) -> Iterator[Line]:
    """A few of them, each on lines of its own, and how many there are beyond."""
    more = len(texts) - _MOST
    shown = list(texts) if style.verbosity > 0 or more <= 0 else [*texts[:_MOST], f"{more} more"]
    for at, text in enumerate(shown):
        yield from labelled("" if at else label, text, style)


def _suite(digest: Summary) -> str:
    totals = digest.totals
    if not totals.kernels:
        return ""
    words = count_words(totals.kernels, "kernel")
    if totals.gpu_us is not None:
        if not digest.counts.marked:
            together = totals.gpu_us + (totals.comm_us or 0.0)
            words += f" of {format_time(together / totals.kernels)} on average"
        words += f", {format_time(totals.gpu_us)} on the GPU"
        words += f" and {format_time(totals.comm_us)} communicating" if totals.comm_us else ""
    if totals.extra_kernels:
        words += f"; {count_words(totals.extra_kernels, 'kernel')} more than the snapshots"
    rows = [row for row in digest.rows if row.profile.environment.kind == "cuda"]
    return "; ".join([words, *alike_words(rows)])


def _hottest(digest: Summary, style: Style) -> list[Line]:
    """The kernels that take the most: three, or as many as make up 60 %; ten in a verbose run."""
    shown = digest.hottest[:10] if style.verbosity > 0 else _leading(digest.hottest)
    if not shown or not digest.totals.gpu_us:
        return []
    cells = [
        (count_words(one.calls, "call"), format_time(one.us), f"{one.share * 100:.0f} %")
        for one in shown
    ]
    widths = [max(map(width_of, column)) for column in zip(*cells, strict=True)]
    room = style.width - _LABEL - sum(widths) - 3 * 3
    names = [cut_middle(style.say(one.name), room, style.cut) for one in shown]
    wide = max(map(width_of, names))
    return [
        (
            Span(left("" if at else "hottest", _LABEL), "dim"),
            Span("   ".join([left(name, wide), *map(right, row, widths)])),
        )
        for at, (name, row) in enumerate(zip(names, cells, strict=True))
    ]


def _leading(hottest: Sequence[HotKernel]) -> Sequence[HotKernel]:
    share = 0.0
    for at, one in enumerate(hottest[:_MOST], 1):
        share += one.share
        if share >= _ENOUGH:
            return hottest[:at]
    return hottest[:_MOST]


def _overhead(digest: Summary) -> str:
    short = digest.short
    if short is None:
        return ""
    are = "is" if short.kernels == 1 else "are"
    return (
        f"{count_words(short.kernels, 'kernel')} in {count_words(short.tests, 'test')} {are} "
        f"shorter than {short.below_us:.0f}us: fuse them or take a CUDA graph, first in "
        f"{short_name_of(short.worst)} ({format_time(short.overhead_us)} of "
        f"{format_time(short.latency_us)})"
    )


def _waits(digest: Summary) -> str:
    totals = digest.totals
    if not totals.waits or totals.most_waits is None:
        return ""
    tests = count_words(totals.waiting_tests, "test")
    number = totals.most_waits.profile.metrics["syncs"].value or 0
    most = f"{short_name_of(totals.most_waits)} ({number:.0f})"
    return f"{totals.waits:,} in {tests}; most in {most}"


def _copies(digest: Summary) -> str:
    totals = digest.totals
    if not totals.copies:
        return ""
    pageable = totals.pageable or 0
    waits = f", of which {pageable:,} pageable: the host waits for each of those"
    return f"{totals.copies:,}{waits if pageable else ''}"


def _idle(digest: Summary) -> str:
    """Under the profiler, and of code that ran once cold, the GPU waits longer than without."""
    idle, span = digest.totals.idle_us, digest.totals.span_us
    if not idle or not span:
        return ""
    once = any(row.profile.one_shot for row in digest.rows)
    how = "profiled once and cold" if once else "profiled"
    return (
        f"{format_time(idle)} of {format_time(span)} between first and last kernel; the code is "
        f"{how}, so take this as an upper bound"
    )


def _tighten(one: Tighten) -> str:
    seen = value_words(one.unit, one.seen) + (" seen" if one.unit == "us" else "")
    return f"{_short(one.name)}: {one.limit} {value_words(one.unit, one.allowed)} -> {seen}"


def short_name_of(row: Row) -> str:
    """The name of a test, without its file, which the table has."""
    return _short(row.name)


def _short(name: str) -> str:
    return cut_middle(name, _LONGEST_NAME, "...")
