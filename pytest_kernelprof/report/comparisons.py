"""Comparisons of callables and limits that need a GPU: what every run tells at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_kernelprof.digest.ids import shortened
from pytest_kernelprof.digest.words import is_judged, limits_of
from pytest_kernelprof.report.comparison import comparison_line, comparison_table
from pytest_kernelprof.report.style import style_of
from pytest_kernelprof.report.words import judged_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from pytest_kernelprof.report.style import Style
    from pytest_kernelprof.schema.run import Comparison, Test


def write_unjudged(terminal: pytest.TerminalReporter, tests: Sequence[Test]) -> None:
    """Write how many limits were not judged beside others that were; nothing without."""
    line = unjudged_line(tests)
    if line:
        terminal.write_line(f"kernelprof: {line}", yellow=True)


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
            lines += [shortened(test.id) + ended, *(f"  {line}" for line in _told(one, style))]
    return [style.say(line) for line in lines]


def _told(comparison: Comparison, style: Style) -> list[str]:
    """The table, and below it what was asserted and how it fared."""
    told = [
        f"{style.sign(one.outcome)[0]} {one.outcome}: {comparison_line(comparison, one)}"
        for one in comparison.verdicts
    ]
    return [*comparison_table(comparison, style.width - 2), *told]


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
