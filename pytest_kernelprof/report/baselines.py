"""How a run that was compared with a baseline is told: a test's failure, and the section at the
end; the same words for a revision and for an earlier run."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pytest_kernelprof.report.changed_rows import changed_lines
from pytest_kernelprof.report.diff_text import diff_lines, kernel_lines
from pytest_kernelprof.report.gfm import details, fence, row, tag_text, text
from pytest_kernelprof.report.style import Span
from pytest_kernelprof.report.tables import left, wrapped
from pytest_kernelprof.summary.comparisons import (
    RESULTS,
    fails_nothing_words,
    name_of,
    named,
    percent_words,
    reasons_of,
    result_of,
)
from pytest_kernelprof.summary.words import pair_words, paired_words, value_words
from pytest_kernelprof.units import format_time, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_kernelprof.report.style import Colour, Line, Style
    from pytest_kernelprof.schema.comparison import MetricDelta, ProfileComparison
    from pytest_kernelprof.schema.paired import Paired
    from pytest_kernelprof.summary.comparisons import BaselineDigest

_LABEL = 14
_MOST_DIFFS = 10
_MOST_ROWS = 200
_DIFF_LINES = 12
_LONGEST_NOTE = 2000


def failure_words(found: Iterable[ProfileComparison], name: str) -> str:
    """What of a test is worse, by how much, and through which kernels.

    Args:
        name: the baseline's.
    """
    lines: list[str] = []
    for one in found:
        of = f" [{one.label}]" if one.label else ""
        for delta in one.worse:
            if delta.current is not None and delta.baseline is not None:
                values = pair_words(delta.spec.unit, delta.current, delta.baseline)
                lines.append(f"{delta.name}: {' > '.join(values)} of {name}{of}")
        if one.paired is not None and one.paired.change == "worse":
            margin = f"margin {one.paired.margin * 100:.3g} %"
            lines.append(f"{turns_words(one.paired)} ({margin}), against {name}{of}")
        lines += [f"  {line}" for line in diff_lines(one)]
    return "\n".join(map(printable, lines))


def turns_words(paired: Paired) -> str:
    """The GPU time of both sides and, where it is known, the latency; empty where nothing is."""
    if not paired.pairs:
        return f"GPU time is not timed: {paired.why}" if paired.why else ""
    words = paired_words(paired)
    if paired.baseline_latency_us:
        times = (paired.baseline_latency_us, paired.current_latency_us)
        words += f"; latency {' -> '.join(map(format_time, times))}, not judged"
    return words


def delta_words(found: ProfileComparison) -> str:
    """What is another, and judged: ``kernels 5 > 4, cuda_time 234.9us > 200.0us (+17.5 %)``."""
    judged = [one for one in found.metrics if one.judged and one.change in ("worse", "undecided")]
    worse = [one for one in judged if one.change == "worse"]
    told = list(map(_more_words, worse or judged))
    if found.paired is not None and found.paired.change in ("worse", "undecided"):
        told.append(turns_words(found.paired))
    usual = "its times" if found.untimed else "no more than before"
    return ", ".join(told) or usual


def _more_words(one: MetricDelta) -> str:
    form = partial(value_words, one.spec.unit)
    words = f"{one.name} {form(one.current or 0.0)} > {form(one.baseline or 0.0)}"
    if one.spec.unit == "count":
        return words
    sure = ""
    if one.interval is not None and one.spec.kind == "timed":
        sure = f", 99 % CI {'..'.join(map(form, one.interval))}"
    return f"{words} ({_change_words(one)}{sure})"


def baseline_lines(
    found: BaselineDigest,
    style: Style,
    *,
    warn_only: bool = False,
    run_fails: bool = False,
    ends: str = "the run fails",
) -> list[Line]:
    """The verdict, only the rows that changed, what was not compared and why, and last what fails
    by it.

    Args:
        warn_only: whether what is worse fails nothing.
        run_fails: whether the run fails, by this comparison or for another reason.
        ends: how what fails is said: ``exit status 1``.
    """
    failed = found.fails(warn_only=warn_only)
    colour: Colour = "red" if found.failure else "" if run_fails else "green"
    lines = style.sentence(found.sentence, colour)
    table = changed_lines([one for one in found.rows if one.change != "not compared"], style)
    lines += [(), *table] if table else []
    below = [*_listed("not compared", _with_tests(found.uncompared), style)]
    below += _listed("note", found.notes, style)
    below += style.sentence(found.turns, "dim") if found.turns else []
    lines += [(), *below] if below else []
    last = fails_nothing_words(run_fails=run_fails)
    if found.failure:
        last = f"{ends if failed else 'warned of only'}: {found.failure}"
    return [*lines, (), *style.sentence(last, "red" if failed else "")]


def _with_tests(reasons: dict[str, tuple[str, ...]]) -> list[str]:
    return [f"{named(names)}: {words}" for words, names in reasons.items()]


def _listed(label: str, texts: Sequence[str], style: Style) -> Iterator[Line]:
    """Sentences beside a label."""
    for at, told in enumerate(texts):
        for number, piece in enumerate(wrapped(style.say(told), style.width - _LABEL)):
            head = left(label if not at and not number else "", _LABEL)
            yield (Span(head, "dim"), Span(piece))


def markdown_lines(found: BaselineDigest) -> list[str]:
    """The same as GitHub shows it: a table, diffs that unfold, one line of all above."""
    lines = [f"**{text(found.sentence)}**", ""]
    rows = [cells for one in found.rows for cells in _cells(one)]
    if rows:
        lines += ["| | test | metric | before | now | change |", "|---|---|---|--:|--:|--:|"]
        lines += [row(*map(text, cells)) for cells in rows[:_MOST_ROWS]]
        if len(rows) > _MOST_ROWS:
            lines.append(row("...", f"{len(rows) - _MOST_ROWS} more rows", "", "", "", ""))
        lines.append("")
    told = [one for one in found.rows if one.changes]
    for one in told[:_MOST_DIFFS]:
        title = tag_text(f"{name_of(one)}: kernels")
        lines += details(title, fence(kernel_lines(one, most=_DIFF_LINES), "diff"))
    if len(told) > _MOST_DIFFS:
        lines.append(f"- kernels of {len(told) - _MOST_DIFFS} more profiles are others, too")
    notes = [*(f"not compared: {one}" for one in _with_tests(found.uncompared)), *found.notes]
    notes += [f"fails: {found.failure}"] if found.failure else []
    return [*lines, *(f"- {text(one, _LONGEST_NOTE)}" for one in notes)]


_Row = tuple[str, str, str, str, str, str]
"""Result, test, metric, before, now, change."""


def _cells(one: ProfileComparison) -> Iterator[_Row]:
    """A row a metric; a profile whose kernels are others at the same counts has a row, too."""
    deltas = [delta for delta in one.metrics if delta.change is not None]
    if not deltas and one.change != "not compared":
        yield RESULTS[result_of(one)].word, name_of(one), "kernels", "", "", reasons_of(one)
    for delta in deltas:
        form = partial(value_words, delta.spec.unit)
        before = " ".join("-" if old is None else form(old) for old in delta.baselines)
        looked_at = delta.change == "worse" and not delta.judged
        result = RESULTS["not judged" if looked_at else delta.change or "same"].word
        now = form(delta.current or 0.0)
        yield result, name_of(one), delta.name, before, now, _change_words(delta)


def _change_words(one: MetricDelta) -> str:
    """By how much it is another, for example ``+7.7 %`` or ``+1``."""
    if one.spec.unit == "count" or one.share is None:
        return f"{(one.current or 0.0) - (one.baseline or 0.0):+.0f}"
    return percent_words(one.share)
