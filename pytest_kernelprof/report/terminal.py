"""The tables of ``--kernelprof-report`` and the integrity line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_kernelprof.report.comparison import comparison_table
from pytest_kernelprof.report.tables import Column, render
from pytest_kernelprof.report.words import place_words
from pytest_kernelprof.schema.run import OUTCOMES
from pytest_kernelprof.units import format_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from pytest_kernelprof.schema.run import Metric, Outcome, Profile, Test

_COLUMNS = (
    Column("test", shrinks=True, keep_end=True),
    Column("kernels", number=True),
    Column("launch", number=True),
    Column("sync", number=True),
    Column("copy", number=True),
    Column("cuda time", number=True),
    Column("overhead", number=True),
    Column("bound"),
    Column("verdict"),
)
_GLYPHS: dict[Outcome, str] = {
    "over": "✗",
    "incomplete": "!",
    "undecided": "?",
    "kept": "✓",
    "expected": "x",
    "not judged": "-",
}
_COLOURS: dict[Outcome, str] = {
    "over": "red",
    "incomplete": "red",
    "undecided": "yellow",
    "kept": "green",
}


def write_report(terminal: pytest.TerminalReporter, tests: Sequence[Test]) -> None:
    """Write the table of all profiles, worst first, as wide as the terminal; nothing without."""
    rows = sorted(
        ((test.id, profile) for test in tests for profile in test.profiles), key=_worst_first
    )
    if not rows:
        return
    profiles = [profile for _, profile in rows]
    terminal.section("kernel profiles")
    lines = render(_COLUMNS, [_cells(*row) for row in rows], terminal._tw.fullwidth)
    terminal.write_line(lines[0], bold=True)
    for profile, line in zip(profiles, lines[1:], strict=True):
        terminal.write_line(line, **_markup(profile.outcome))
    for place in sorted({place_words(profile.environment) for profile in profiles}):
        terminal.write_line(f"on {place}")
    terminal.write_line(integrity_line(profiles))


def write_comparisons(terminal: pytest.TerminalReporter, tests: Sequence[Test]) -> None:
    """Write the tables of comparisons, each under the test that made it; nothing without."""
    tables = [(test.id, comparison_table(one)) for test in tests for one in test.comparisons]
    if not tables:
        return
    terminal.section("comparisons")
    for test, lines in sorted(tables):
        terminal.write_line(_without_folders(test))
        for line in lines:
            terminal.write_line(f"  {line}")


def integrity_line(profiles: Sequence[Profile]) -> str:
    """How many profiles there were, and how many could not be trusted, at first or at all."""
    integrities = [profile.integrity for profile in profiles]
    conditions = [profile.conditions for profile in profiles]
    always = [
        f"{len(profiles)} profile{'s' if len(profiles) != 1 else ''}",
        f"{sum(one.retakes > 0 for one in integrities)} taken again",
        f"{sum(not one.complete for one in integrities)} incomplete",
    ]
    where_any = {
        "cold": sum(bool(one.cold) or not one.settled for one in integrities),
        "with unproven graph replays": sum(one.graph_replays == "unproven" for one in integrities),
        "timed while other processes worked on the GPU": sum(one.contended for one in conditions),
        "rounds discarded, since the GPU throttled": sum(
            one.discarded_rounds for one in conditions
        ),
        "of CPU operators, which are no kernels": sum(
            profile.environment.kind == "cpu" for profile in profiles
        ),
    }
    return ", ".join([*always, *(f"{count} {what}" for what, count in where_any.items() if count)])


def _worst_first(row: tuple[str, Profile]) -> tuple[int, str, int, str]:
    """Then by test, and "profile 2" before "profile 10"."""
    test, profile = row
    severity = len(OUTCOMES) if profile.outcome is None else OUTCOMES.index(profile.outcome)
    return severity, test, len(profile.label), profile.label


def _cells(test: str, profile: Profile) -> list[str]:
    name, metrics = _without_folders(test), profile.metrics
    counts = [_count(metrics.get(key)) for key in ("kernels", "launches", "syncs", "memcpys")]
    return [
        f"{name} [{profile.label}]" if profile.label else name,
        *counts,
        _time_and_spread(metrics.get("cuda_time")),
        _time(metrics.get("launch_overhead")),
        "-" if profile.bound.verdict == "unknown" else profile.bound.verdict,
        _outcome_words(profile.outcome),
    ]


def _outcome_words(outcome: Outcome | None) -> str:
    return "-" if outcome is None else f"{_GLYPHS[outcome]} {outcome}"


def _without_folders(test: str) -> str:
    """A test's node id from its file's name on; a slash in a parameter is no folder."""
    path, separator, rest = test.partition("::")
    return path.rsplit("/", 1)[-1] + separator + rest


def _count(metric: Metric | None) -> str:
    return "-" if metric is None or metric.value is None else f"{metric.value:.0f}"


def _time(metric: Metric | None) -> str:
    return "-" if metric is None or metric.value is None else format_time(metric.value)


def _time_and_spread(metric: Metric | None) -> str:
    if metric is None or metric.low is None or metric.high is None or not metric.value:
        return _time(metric)
    return f"{_time(metric)} ±{(metric.high - metric.low) / 2 / metric.value * 100:.1f}%"


def _markup(outcome: Outcome | None) -> dict[str, bool]:
    colour = _COLOURS.get(outcome) if outcome else None
    return {colour: True} if colour else {}
