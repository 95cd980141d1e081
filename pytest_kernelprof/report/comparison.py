"""Comparisons in words: how many times as good, how sure, all callables in a table; and what each
run says at its end, with or without a report: what is open, and its comparisons."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_kernelprof.report.style import style_of
from pytest_kernelprof.report.tables import Column, render
from pytest_kernelprof.report.words import (
    beyond_words,
    ratio_spread,
    spread_of_ratio,
    undecided_words,
    verdict_line,
)
from pytest_kernelprof.summary.words import count_words, doubt_words, first_of, shortened, title
from pytest_kernelprof.units import format_bytes, format_time, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from pytest_kernelprof.report.style import Style
    from pytest_kernelprof.schema.run import Comparison, Contestant, Test, Verdict
    from pytest_kernelprof.summary.records import Ending, Summary

WIDTH = 98
_MOST_UNDECIDED = 10

_METRICS = {"cuda_time": "GPU time", "latency": "latency", "peak_memory": "peak memory"}


def headline(comparison: Comparison, candidate: str = "") -> str:
    """How a candidate, by default the first, does against the reference, in one line."""
    one = _candidate(comparison, candidate)
    assert one.paired is not None, "it is no reference"
    low, high = one.paired.speedup_interval or (None, None)
    spread = ratio_spread(low, high, comparison.pairs, one.paired.block)
    return _told(comparison, one, one.paired.speedup, spread)


def comparison_line(comparison: Comparison, verdict: Verdict) -> str:
    """A limit of a comparison and how it fared, with the names of both."""
    if verdict.measured is None:
        return printable(f"{title(verdict)}: {verdict.why}")
    one = _candidate(comparison, verdict.candidate)
    told = _told(comparison, one, verdict.measured, spread_of_ratio(verdict))
    doubt = "; ".join(dict.fromkeys(map(doubt_words, comparison.conditions)))
    after = f"{undecided_words(verdict, doubt)}{beyond_words(verdict)}"
    return printable(f"{title(verdict)}: {told}{after}")


def ending_words(ending: Ending) -> str:
    """Why somebody should look at a test that no row of a profile tells of."""
    if ending.comparison is None or ending.verdict is None:
        return ending.test.why
    return comparison_line(ending.comparison, ending.verdict)


def comparison_message(comparison: Comparison) -> str:
    """What was asserted and is not so, or is not known to be; then all callables."""
    told = [
        comparison_line(comparison, verdict)
        for outcome in ("failed", "undecided")
        for verdict in comparison.verdicts
        if verdict.outcome == outcome
    ]
    return "\n".join([*told, *comparison_table(comparison)])


def comparison_table(comparison: Comparison, width: int = WIDTH) -> list[str]:
    """One line a callable: kernels, value with its spread, speedup with its interval; then what is
    known of their results."""
    columns = (
        Column("callable", shrinks=True),
        Column("kernels", number=True),
        Column(_words(comparison), number=True),
        Column("speedup", number=True),
        Column("99 % CI", number=True),
    )
    rows = [_cells(comparison, one) for one in comparison.contestants]
    return [*render(columns, rows, width), *check_lines(comparison), *_unstable(comparison)]


def open_lines(digest: Summary) -> list[str]:
    """What a run without a report has to say all the same: what was not judged, and what is
    undecided; nothing if all was judged."""
    counts, lines = digest.counts, []
    if digest.open:
        lines.append(f"kernelprof: {count_words(counts.tests, 'test')}: {digest.open}")
    undecided = [
        f"kernelprof: {shortened(row.test)}: "
        f"{verdict_line(one, doubt_words(row.profile.conditions))}"
        for row in digest.rows
        for one in row.profile.verdicts
        if one.outcome == "undecided" and row.told != "rerun"
    ]
    undecided += [
        f"kernelprof: {shortened(one.test.id)}: {comparison_line(one.comparison, one.verdict)}"
        for one in digest.endings
        if one.comparison is not None and one.verdict is not None and one.found.told == "undecided"
    ]
    lines += first_of(undecided, _MOST_UNDECIDED, "kernelprof: {} more undecided")
    return list(map(printable, lines))


def write_comparisons(terminal: pytest.TerminalReporter, tests: Sequence[Test]) -> None:
    """Write the tables of comparisons, each under the test that made it; nothing without."""
    lines = comparison_lines(tests, style_of(terminal))
    if lines:
        terminal.section("comparisons")
        for line in lines:
            terminal.write_line(line)


def comparison_lines(tests: Sequence[Test], style: Style) -> list[str]:
    """The tables of comparisons, each under the test that made it."""
    lines = []
    for test in sorted(tests, key=lambda test: test.id):
        ended = "" if test.outcome == "passed" else f" ({test.outcome})"
        for one in test.comparisons:
            told = _with_verdicts(one, style)
            lines += [shortened(test.id) + ended, *(f"  {line}" for line in told)]
    return [style.say(line) for line in lines]


def _with_verdicts(comparison: Comparison, style: Style) -> list[str]:
    """The table, and below it what was asserted and how it fared."""
    told = [
        f"{style.sign(one.outcome)[0]} {one.outcome}: {comparison_line(comparison, one)}"
        for one in comparison.verdicts
    ]
    return [*comparison_table(comparison, style.width - 2), *told]


def check_lines(comparison: Comparison) -> list[str]:
    """How the results of each candidate were held against the reference's."""
    told = (f"{one.name}: {'; '.join(one.checks)}" for one in comparison.contestants if one.checks)
    return list(map(printable, told))


def _words(comparison: Comparison) -> str:
    return _METRICS.get(comparison.metric, comparison.metric)


def _told(comparison: Comparison, one: Contestant, speedup: float, spread: str) -> str:
    unstable = "".join(f"; {note}" for note in _unstable(comparison))
    versus = f"{one.name} over {comparison.reference}, {_words(comparison)}"
    return f"{versus}: {speedup:.3f} times as good ({spread}{unstable})"


def _candidate(comparison: Comparison, name: str) -> Contestant:
    """The contestant of that name; without one, the first that is not the reference."""
    wanted = [
        one
        for one in comparison.contestants
        if (one.name == name if name else one.name != comparison.reference)
    ]
    if not wanted:
        names = ", ".join(repr(one.name) for one in comparison.contestants)
        raise ValueError(f"{name!r} is none of the compared callables: {names}")
    return wanted[0]


def _cells(comparison: Comparison, one: Contestant) -> list[str]:
    values = [one.name, str(one.kernels), _value(comparison, one)]
    if one.paired is None:
        return [*values, "reference", ""]
    interval = one.paired.speedup_interval
    told = "" if interval is None else "{:.3f}..{:.3f}".format(*interval)
    return [*values, f"{one.paired.speedup:.3f}", told]


def _value(comparison: Comparison, one: Contestant) -> str:
    if comparison.metric == "peak_memory":
        return format_bytes(one.value)
    if one.low is None or one.high is None or not one.value:
        return format_time(one.value)
    return f"{format_time(one.value)} ±{(one.high - one.low) / 2 / one.value * 100:.1f}%"


def _unstable(comparison: Comparison) -> list[str]:
    """What to know of callables that launch another number of kernels now and then."""
    return [
        f"UNSTABLE: {one.name} launched {min(one.unstable)} to {max(one.unstable)} kernels a call"
        for one in comparison.contestants
        if one.unstable
    ]
