"""Comparisons in words: how many times as good, how sure, all callables in a table; and what each
run says at its end, with or without a report: what is open, and its comparisons."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_kernelprof.report.failure import INDENT, code_lines
from pytest_kernelprof.report.tables import Column, render
from pytest_kernelprof.summary.verdicts import compared_metric, comparison_line, unstable_words
from pytest_kernelprof.summary.words import shortened
from pytest_kernelprof.units import format_bytes, format_time, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_kernelprof.report.style import Style
    from pytest_kernelprof.schema.run import Comparison, Contestant, Test

WIDTH = 98


def comparison_message(comparison: Comparison) -> str:
    """What was asserted and is not so, or is not known to be; where; then all callables."""
    told = [
        verdict
        for outcome in ("failed", "undecided")
        for verdict in comparison.verdicts
        if verdict.outcome == outcome
    ]
    places = dict.fromkeys(one.place for one in told if one.place is not None)
    below = [*(line for one in places for line in code_lines(one)), *comparison_table(comparison)]
    verdicts = [comparison_line(comparison, one) for one in told]
    return "\n".join([*verdicts, *(INDENT + line for line in below)])


def comparison_table(comparison: Comparison, width: int = WIDTH) -> list[str]:
    """One line a callable: kernels, value with its spread, speedup with its interval; then what is
    known of their results."""
    columns = (
        Column("callable", shrinks=True),
        Column("kernels", number=True),
        Column(compared_metric(comparison), number=True),
        Column("speedup", number=True),
        Column("99 % CI", number=True),
    )
    rows = [cells_of(comparison, one) for one in comparison.contestants]
    return [
        *render(columns, rows, width),
        *check_lines(comparison),
        *unstable_words(comparison),
    ]


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


def cells_of(comparison: Comparison, one: Contestant) -> list[str]:
    """A callable's name, kernels, value with its spread, speedup and its interval."""
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
