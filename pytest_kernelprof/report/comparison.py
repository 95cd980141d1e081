"""A comparison in words: how many times as good, how sure, and all callables in a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_kernelprof.digest.conditions import doubt_words
from pytest_kernelprof.digest.words import title
from pytest_kernelprof.report.tables import Column, render
from pytest_kernelprof.report.words import (
    beyond_words,
    ratio_spread,
    spread_of_ratio,
    undecided_words,
)
from pytest_kernelprof.units import format_bytes, format_time, printable

if TYPE_CHECKING:
    from pytest_kernelprof.digest.records import Ending
    from pytest_kernelprof.schema.run import Comparison, Contestant, Verdict

WIDTH = 98

_METRICS = {"cuda_time": "GPU time", "latency": "latency", "peak_memory": "peak memory"}


def headline(comparison: Comparison, candidate: str = "") -> str:
    """How a candidate, by default the first, does against the reference, in one line."""
    one = _candidate(comparison, candidate)
    if one.speedup is None:
        return f"{_versus(comparison, one)}: no ratio"
    spread = ratio_spread(one.speedup_low, one.speedup_high, comparison.pairs, one.speedup_block)
    return _told(comparison, one, one.speedup, spread)


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
        for outcome in ("over", "undecided")
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


def check_lines(comparison: Comparison) -> list[str]:
    """How the results of each candidate were held against the reference's."""
    told = (f"{one.name}: {'; '.join(one.checks)}" for one in comparison.contestants if one.checks)
    return list(map(printable, told))


def _words(comparison: Comparison) -> str:
    return _METRICS.get(comparison.metric, comparison.metric)


def _versus(comparison: Comparison, one: Contestant) -> str:
    return f"{one.name} over {comparison.reference}, {_words(comparison)}"


def _told(comparison: Comparison, one: Contestant, speedup: float, spread: str) -> str:
    unstable = "".join(f"; {note}" for note in _unstable(comparison))
    return f"{_versus(comparison, one)}: {speedup:.3f} times as good ({spread}{unstable})"


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
    if one.name == comparison.reference:
        return [*values, "reference", ""]
    if one.speedup is None:
        return [*values, "-", ""]
    low, high = one.speedup_low, one.speedup_high
    interval = "" if low is None or high is None else f"{low:.3f}..{high:.3f}"
    return [*values, f"{one.speedup:.3f}", interval]


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
