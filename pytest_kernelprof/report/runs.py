"""A run against earlier ones in words: what is another, worst first, and one line of all."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from msgspec import structs

from pytest_kernelprof.digest.base import changes_of_runs
from pytest_kernelprof.digest.changes import WORDS, row_of_runs
from pytest_kernelprof.digest.changes_verdict import fails_nothing_words, why_runs_fail
from pytest_kernelprof.digest.words import count_words, value_words
from pytest_kernelprof.report.changed_rows import changed_lines
from pytest_kernelprof.report.diff import diff_lines
from pytest_kernelprof.report.gfm import details, fence, row, tag_text, text
from pytest_kernelprof.report.spans import Span
from pytest_kernelprof.report.widths import wrapped

if TYPE_CHECKING:
    from pytest_kernelprof.report.spans import Colour, Line
    from pytest_kernelprof.report.style import Style
    from pytest_kernelprof.schema.runs import (
        MetricComparison,
        ProfileComparison,
        RunsComparison,
    )

_MOST_TESTS = 5
_MOST_DIFFS = 10
_MOST_ROWS = 200
_DIFF_LINES = 12
_LONGEST_NOTE = 2000
_ORDER = {"worse": 0, "undecided": 1, "better": 2}

_Row = tuple[str, str, str, str, str, str]
"""Verdict, test, metric, before, now, change."""


def run_lines(
    found: RunsComparison, than: str, style: Style, *, ends: str, run_fails: bool = False
) -> list[Line]:
    """The verdict, only the rows that changed, what was not compared and why, and last what fails
    by it.

    Args:
        than: what it was compared with. ends: how what fails is said: ``exit status 1``.
        run_fails: whether the run fails, by this comparison or for another reason.
    """
    changes = changes_of_runs(found, than)
    colour: Colour = "red" if not found.passed else "" if run_fails else "green"
    sentence = style.say(changes.sentence)
    lines: list[Line] = [(Span(one, colour),) for one in wrapped(sentence, style.width)]
    table = changed_lines(changes.rows, style)
    lines += [(), *table] if table else []
    told = [line for note in notes(found) for line in wrapped(style.say(note), style.width)]
    lines += [(), *((Span(line),) for line in told)] if told else []
    why = why_runs_fail(found)
    last = f"{ends}: {why}" if why else fails_nothing_words(run_fails=run_fails)
    return [*lines, (), *((Span(one),) for one in wrapped(style.say(last), style.width))]


def markdown_lines(found: RunsComparison, than: str) -> list[str]:
    """The same as GitHub shows it: a table, diffs that unfold, one line of all above."""
    lines = [f"**{text(changes_of_runs(found, than).sentence)}**", ""]
    rows = _rows(found)
    if rows:
        lines += ["| | test | metric | before | now | change |", "|---|---|---|--:|--:|--:|"]
        lines += [row(*map(text, cells)) for cells in rows]
        lines.append("")
    for one in _with_diffs(found):
        lines += details(tag_text(_title(one)), fence(kernel_lines(one), "diff"))
    left = sum(one.diff is not None and bool(one.diff.hunks) for one in found.profiles)
    if left > _MOST_DIFFS:
        lines.append(f"- kernels of {left - _MOST_DIFFS} more profiles are others, too")
    lines += [f"- {text(line, _LONGEST_NOTE)}" for line in notes(found)]
    why = why_runs_fail(found)
    return [*lines, *([f"- {text(f'fails: {why}', _LONGEST_NOTE)}"] if why else [])]


def _rows(found: RunsComparison) -> list[_Row]:
    """Worst first; a profile whose kernels are others at the same counts has a row, too."""
    told = [
        ((_ORDER[metric.verdict], not metric.judged, _test(profile)), _row(profile, metric))
        for profile in found.profiles
        for metric in profile.metrics
    ]
    told += [
        ((1, True, _test(profile)), _changed_row(profile))
        for profile in found.profiles
        if profile.diff is not None and not profile.metrics
    ]
    rows = [row for _, row in sorted(told, key=lambda one: one[0])]
    left = len(rows) - _MOST_ROWS
    more = [("...", f"{left} more rows", "", "", "", "")] if left > 0 else []
    return [*rows[:_MOST_ROWS], *more]


def _changed_row(profile: ProfileComparison) -> _Row:
    return (WORDS["changed"], _test(profile), "kernels", "", "", row_of_runs(profile).reasons)


def _row(profile: ProfileComparison, metric: MetricComparison) -> _Row:
    form = partial(value_words, metric.unit)
    before = " ".join("-" if old is None else form(old) for old in metric.olds)
    looked_at = metric.verdict == "worse" and not metric.judged
    verdict = WORDS["not judged" if looked_at else metric.verdict]
    return (verdict, _test(profile), metric.name, before, form(metric.new), change_words(metric))


def change_words(metric: MetricComparison) -> str:
    """By how much it is another, for example ``+7.7 %`` or ``+1``."""
    old = [one for one in metric.olds if one is not None][-1]
    if metric.unit == "count" or not old:
        return f"{metric.new - old:+.0f}"
    return f"{(metric.new / old - 1) * 100:+.1f} %"


def _with_diffs(found: RunsComparison) -> list[ProfileComparison]:
    """Those whose kernels are told: what fails first."""
    there = [one for one in found.profiles if one.diff is not None and one.diff.hunks]
    return sorted(there, key=lambda one: not one.regressed)[:_MOST_DIFFS]


def kernel_lines(profile: ProfileComparison) -> list[str]:
    """Which kernels came and went; metrics stand in the table."""
    if profile.diff is None:
        return []
    return diff_lines(structs.replace(profile.diff, metrics=()), most=_DIFF_LINES)


def _title(profile: ProfileComparison) -> str:
    return f"{_test(profile)}: kernels"


def _test(profile: ProfileComparison) -> str:
    return f"{profile.test} ({profile.label})" if profile.label else profile.test


def notes(found: RunsComparison) -> list[str]:
    """What was not compared, and why."""
    told = [
        f"times not compared for {count_words(n, 'profile')}: {why}"
        for why, n in found.untimed.items()
    ]
    told += [
        f"differences fail nothing in {count_words(n, 'profile')}: {why}"
        for why, n in found.other.items()
    ]
    lists = (
        (
            "incomplete, of another kind of device, or a block here and a call there, not compared",
            found.uncompared,
        ),
        ("only in the earlier run", found.gone),
        ("only in this run", found.fresh),
        ("not a whole run", found.unfinished),
    )
    for words, several in lists:
        if several:
            more = f" and {len(several) - _MOST_TESTS} more" if len(several) > _MOST_TESTS else ""
            told.append(f"{words}: {', '.join(several[:_MOST_TESTS])}{more}")
    return told
