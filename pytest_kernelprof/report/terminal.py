"""The tables of ``--kernelprof-report`` and the integrity line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_kernelprof.digest.ids import shortened
from pytest_kernelprof.digest.marks import severity, told_of
from pytest_kernelprof.digest.trust import integrity_line, trust_of
from pytest_kernelprof.report.comparison import comparison_line, comparison_table
from pytest_kernelprof.report.tables import Column, render
from pytest_kernelprof.report.words import is_judged, judged_words, limits_of, place_words
from pytest_kernelprof.units import format_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from pytest_kernelprof.digest.marks import Told
    from pytest_kernelprof.schema.run import Comparison, Metric, Profile, Test

_COLUMNS = (
    Column("test", shrinks=True, keeps="end"),
    Column("kernels", number=True),
    Column("launch", number=True),
    Column("sync", number=True),
    Column("copy", number=True),
    Column("cuda time", number=True),
    Column("overhead", number=True),
    Column("bound"),
    Column("verdict"),
)
# What a row may say, worst first: how its limits fared, or how its test ended; with a glyph and a
# colour.
_TOLD: dict[Told, tuple[str, str]] = {
    "over": ("✗", "red"),
    "incomplete": ("!", "red"),
    "failed": ("✗", "red"),
    "error": ("!", "red"),
    "undecided": ("?", "yellow"),
    "kept": ("✓", "green"),
    "expected": ("x", ""),
    "xfailed": ("x", ""),
    "rerun": ("-", ""),
    "skipped": ("-", ""),
    "not judged": ("-", ""),
}


def write_report(terminal: pytest.TerminalReporter, tests: Sequence[Test]) -> None:
    """Write the table of all profiles, worst first, as wide as the terminal; nothing without."""
    rows = sorted(
        ((test.id, profile, told_of(test, profile)) for test in tests for profile in test.profiles),
        key=_worst_first,
    )
    if not rows:
        return
    profiles = [profile for _, profile, _ in rows]
    terminal.section("kernel profiles")
    lines = render(_COLUMNS, [_cells(*row) for row in rows], terminal._tw.fullwidth)
    terminal.write_line(lines[0], bold=True)
    for (_, _, told), line in zip(rows, lines[1:], strict=True):
        terminal.write_line(line, **_markup(told))
    for test, profile, _ in rows:
        if profile.outcome == "incomplete" and not profile.verdicts:
            problems = "; ".join(profile.integrity.problems)
            terminal.write_line(f"{shortened(test)}: no number: {problems}")
    devices = [profile.environment for profile in profiles if profile.environment.device]
    for place in sorted(set(map(place_words, devices))):
        terminal.write_line(f"on {place}")
    terminal.write_line(integrity_line(trust_of(profiles)))


def write_unjudged(terminal: pytest.TerminalReporter, tests: Sequence[Test]) -> None:
    """Write how many limits were not judged beside others that were; nothing without."""
    line = unjudged_line(tests)
    if line:
        terminal.write_line(f"kernelprof: {line}", yellow=True)


def write_comparisons(terminal: pytest.TerminalReporter, tests: Sequence[Test]) -> None:
    """Write the tables of comparisons, each under the test that made it; nothing without."""
    tables = [
        (test.id, test.outcome, _comparison_lines(one))
        for test in tests
        for one in test.comparisons
    ]
    if not tables:
        return
    terminal.section("comparisons")
    for test, outcome, lines in sorted(tables):
        ended = "" if outcome == "passed" else f" ({outcome})"
        terminal.write_line(shortened(test) + ended)
        for line in lines:
            terminal.write_line(f"  {line}")


def _comparison_lines(comparison: Comparison) -> list[str]:
    """The table, and below it what was asserted and how it fared."""
    told = [
        f"{_word(verdict.outcome)}: {comparison_line(comparison, verdict)}"
        for verdict in comparison.verdicts
    ]
    return [*comparison_table(comparison), *told]


def unjudged_line(tests: Sequence[Test]) -> str:
    """How many limits were judged in tests of which others need a GPU; empty without such tests.
    Those that have none but such skip, and say so themselves."""
    concerned = [
        (test.id, limits)
        for test in tests
        if any(map(is_judged, limits := limits_of(test.profiles)))
        and not all(map(is_judged, limits))
    ]
    where = f" in {len(concerned)} tests" if len(concerned) > 1 else ""
    words = judged_words([verdict for _, limits in concerned for verdict in limits], where)
    return f"{words} ({shortened(concerned[0][0])})" if len(concerned) == 1 else words


def _worst_first(row: tuple[str, Profile, Told | None]) -> tuple[int, str, int, str]:
    """Then by test, and "profile 2" before "profile 10"."""
    test, profile, told = row
    return severity(told), test, len(profile.label), profile.label


def _cells(test: str, profile: Profile, told: Told | None) -> list[str]:
    name, metrics = shortened(test), profile.metrics
    counts = [_count(metrics.get(key)) for key in ("kernels", "launches", "syncs", "memcpys")]
    return [
        f"{name} [{profile.label}]" if profile.label else name,
        *counts,
        _time_and_spread(metrics.get("cuda_time")),
        _time(metrics.get("launch_overhead")),
        "-" if profile.bound.verdict == "unknown" else profile.bound.verdict,
        _verdict_cell(profile, told),
    ]


def _verdict_cell(profile: Profile, told: Told | None) -> str:
    """What the row says, with how many of its limits were judged where not all were."""
    if told is None:
        return "-"
    judged = [is_judged(verdict) for verdict in profile.verdicts]
    some = any(judged) and not all(judged)
    return f"{_word(told)} {sum(judged)} of {len(judged)}" if some else _word(told)


def _word(told: Told) -> str:
    return f"{_TOLD[told][0]} {told}"


def _count(metric: Metric | None) -> str:
    return "-" if metric is None or metric.value is None else f"{metric.value:.0f}"


def _time(metric: Metric | None) -> str:
    return "-" if metric is None or metric.value is None else format_time(metric.value)


def _time_and_spread(metric: Metric | None) -> str:
    if metric is None or metric.low is None or metric.high is None or not metric.value:
        return _time(metric)
    return f"{_time(metric)} ±{(metric.high - metric.low) / 2 / metric.value * 100:.1f}%"


def _markup(told: Told | None) -> dict[str, bool]:
    colour = _TOLD[told][1] if told else ""
    return {colour: True} if colour else {}
