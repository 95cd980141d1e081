"""What each run says at its end, with or without a report: what is open, and comparisons."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_kernelprof.digest.conditions import doubt_words
from pytest_kernelprof.digest.ids import shortened
from pytest_kernelprof.digest.words import count_words, first_of
from pytest_kernelprof.report.comparison import comparison_line, comparison_table
from pytest_kernelprof.report.style import style_of
from pytest_kernelprof.report.words import verdict_line
from pytest_kernelprof.units import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from pytest_kernelprof.digest.records import Digest
    from pytest_kernelprof.report.style import Style
    from pytest_kernelprof.schema.run import Comparison, Test

_MOST_UNDECIDED = 10


def open_lines(digest: Digest) -> list[str]:
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
            lines += [shortened(test.id) + ended, *(f"  {line}" for line in _told(one, style))]
    return [style.say(line) for line in lines]


def _told(comparison: Comparison, style: Style) -> list[str]:
    """The table, and below it what was asserted and how it fared."""
    told = [
        f"{style.sign(one.outcome)[0]} {one.outcome}: {comparison_line(comparison, one)}"
        for one in comparison.verdicts
    ]
    return [*comparison_table(comparison, style.width - 2), *told]
