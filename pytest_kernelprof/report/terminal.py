"""``--kernelprof-report``: the verdict, the table of profiles, and what follows from them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_kernelprof.report.comparison import ending_words
from pytest_kernelprof.report.row_table import tables
from pytest_kernelprof.report.style import Span, style_of, write_lines
from pytest_kernelprof.report.tables import wrapped
from pytest_kernelprof.report.totals import labelled, short_name_of, totals_lines
from pytest_kernelprof.summary.records import NEEDS_A_LOOK
from pytest_kernelprof.summary.rows import COSTLIEST, all_of, by_file, folded, listed
from pytest_kernelprof.summary.totals import integrity_line
from pytest_kernelprof.summary.whole import summary_of
from pytest_kernelprof.summary.words import count_words, shortened
from pytest_kernelprof.units import format_time

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    import pytest

    from pytest_kernelprof.report.style import Colour, Line, Style
    from pytest_kernelprof.schema.run import Run, Test
    from pytest_kernelprof.summary.records import Summary, Told
    from pytest_kernelprof.summary.rows import Listed

_ALL = "--kernelprof-report-all"


def write_report(
    terminal: pytest.TerminalReporter,
    run: Run,
    *,
    every_row: bool = False,
    only: Collection[str] | None = None,
) -> None:
    """Write what a run says, as wide as the terminal; nothing if there is nothing to say.

    Args:
        every_row: list each profile.
        only: the tests whose rows are listed, beside those that need a look; None for all.
    """
    digest = summary_of(run)
    if only is not None:
        rows = [row for row in digest.rows if row.test in only or row.told in NEEDS_A_LOOK]
        digest = replace(digest, rows=tuple(rows), folded=by_file(folded(rows)))
    if digest.rows or digest.endings or digest.open:
        terminal.section("kernel profiles")
        style = style_of(terminal, every_row=every_row)
        write_lines(terminal, report_lines(digest, style))


def report_lines(digest: Summary, style: Style) -> list[Line]:
    """The verdict, the rows that ask for a look or cost most, totals and advice, and how far all
    of it can be trusted."""
    if style.verbosity < 0:
        asking = [*_asking(digest, style), *_endings(digest, style)]
        return [*_verdict(digest, style), *asking, *_trust(digest, style)]
    found = all_of(digest) if style.every_row else listed(digest, unfolded=style.verbosity > 0)
    ten = found.costliest and len(digest.rows) > COSTLIEST
    below = [
        *labelled("not judged", _not_judged(digest), style),
        *totals_lines(digest, style),
        *labelled("next", _next(digest), style),
        *labelled("again", _again(digest), style),
    ]
    return [
        *_verdict(digest, style, "The ten that cost the most:" if ten else ""),
        *tables(found.rows, style, marked=digest.counts.marked),
        *_endings(digest, style),
        *(_left_out(digest, style) if style.every_row else ()),
        *_rest(found, style),
        *([()] if below else []),
        *below,
        *_trust(digest, style),
    ]


def _asking(digest: Summary, style: Style) -> list[Line]:
    """The rows that ask for a look."""
    rows = [row for row in digest.folded if row.told in NEEDS_A_LOOK]
    return tables(by_file(rows), style, marked=digest.counts.marked)


def _verdict(digest: Summary, style: Style, more: str = "") -> list[Line]:
    colour: Colour = "green" if digest.overall == "passed" else "bold"
    sentence = f"{digest.sentence} {more}".rstrip()
    return style.sentence(sentence, colour)


def _rest(found: Listed, style: Style) -> Iterator[Line]:
    """What is not listed, as numbers."""
    kept, more = found.kept, found.unlimited
    if kept.tests:
        keep = "keep their limits" if kept.tests > 1 else "keeps its limits"
        words = f"{count_words(kept.tests, 'more test')} in {count_words(kept.files, 'file')}"
        yield from style.sentence(f"{style.sign('passed')[0]} {words} {keep}")
    expected = sum(found.expected.values())
    if expected:
        files = list(found.expected)
        where = files[0] if len(files) == 1 else count_words(len(files), "file")
        words = f"{count_words(expected, 'test fails', 'tests fail')} as expected, in {where}"
        yield from style.sentence(f"{style.sign('expected failure')[0]} {words}")
    if more.tests and found.costliest:
        told = f"{count_words(more.tests, 'more test')}: {count_words(more.kernels, 'kernel')}"
        time = f", {format_time(more.us)}" if more.us else ""
        silent = f"; {more.silent} launch nothing" if more.silent else ""
        yield ()
        yield from style.sentence(f"{told}{time}{silent}. All of them: {_ALL}")
    elif more.tests:
        told = count_words(more.tests, "more has no limit", "more have no limit")
        yield ()
        yield from style.sentence(f"{told}: {_ALL}")


def _endings(digest: Summary, style: Style) -> list[Line]:
    """The tests that failed without a profile, each with what ended it."""
    lines: list[Line] = []
    for one in digest.endings:
        if one.comparison is None:  # comparisons have tables of their own
            why = ending_words(one) or one.found.words
            lines += _test_lines(one.test, one.found.told, why, style)
    return lines


def _left_out(digest: Summary, style: Style) -> Iterator[Line]:
    """The tests none of whose limits was judged, each with the reason."""
    for test in digest.left_out:
        yield from _test_lines(test, "not judged", f"not judged: {test.not_judged}", style)


def _test_lines(test: Test, told: Told, why: str, style: Style) -> Iterator[Line]:
    """A test that has no row."""
    sign, colour = style.sign(told)
    first, *more = wrapped(style.say(f"{shortened(test.id)}: {why}"), style.width - 2)
    yield Span(sign, colour), Span(f" {first}")
    for line in more:
        yield (Span(f"  {line}"),)


def _not_judged(digest: Summary) -> str:
    """The option that makes a missing GPU a failure."""
    missing = "no CUDA device" in digest.counts.unjudged
    return "to fail where there is no CUDA device: --kernelprof-require-gpu" if missing else ""


def _next(digest: Summary) -> str:
    """How to hold what was seen, while nothing is held."""
    row = max(digest.rows, key=lambda row: row.profile.kernel_count, default=None)
    if digest.counts.marked or row is None or not row.profile.kernel_count:
        return ""
    mark = f"@pytest.mark.max_kernels({row.profile.kernel_count})"
    return (
        f"to hold a test: {mark} on {short_name_of(row)}, or pytest --kernelprof-update for a "
        "snapshot of each that uses kernel_profile"
    )


def _again(digest: Summary) -> str:
    failed = any(row.failed and row.told in ("failed", "failed otherwise") for row in digest.rows)
    words = "pytest --lf --kernelprof-report -vv shows the kernels of what failed"
    return words if failed and digest.counts.marked else ""


def _trust(digest: Summary, style: Style) -> list[Line]:
    """Devices and versions, and how complete the profiles are."""
    missing = [
        line
        for why in digest.unfinished
        for line in labelled("unfinished", f"tests may be missing: {why}", style)
    ]
    told = [*digest.places, integrity_line(digest.trust)]
    return [*missing, *(line for words in told for line in style.sentence(words))]
