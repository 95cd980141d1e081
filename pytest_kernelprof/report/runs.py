"""A run against earlier ones in words: what is another, worst first, and one line of all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from pytest_kernelprof.report.diff import diff_lines
from pytest_kernelprof.report.gfm import details, fence, row, tag_text, text
from pytest_kernelprof.report.tables import Column, render
from pytest_kernelprof.units import format_bytes, format_time, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

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
FORMS = {"us": format_time, "bytes": format_bytes, "count": "{:.0f}".format}

_COLUMNS = (
    Column("verdict"),
    Column("test", shrinks=True, keeps="end"),
    Column("metric"),
    Column("before", number=True),
    Column("now", number=True),
    Column("change", number=True),
)
_TEST, _NARROWEST_TEST = 1, 20

_Row = tuple[str, str, str, str, str, str]
"""Verdict, test, metric, before, now, change."""


def table(found: RunsComparison, width: int) -> list[tuple[str, str]]:
    """What is another, worst first, under a line of titles, each line after its verdict; nothing
    where nothing is. Where a table is too wide, the test has a line of its own."""
    rows = _rows(found)
    if not rows:
        return []
    others = [max(len(row[i]) for row in rows) for i in range(len(_COLUMNS)) if i != _TEST]
    if sum(others) + len(others) + _NARROWEST_TEST > width:
        return _list(rows, width)
    return list(zip(("", *(row[0] for row in rows)), render(_COLUMNS, rows, width), strict=True))


def _list(rows: Sequence[_Row], width: int) -> list[tuple[str, str]]:
    """The rows under their tests, in two lines where one is too long."""
    lines = []
    test = ""
    for verdict, of, metric, before, now, change in rows:
        if of != test:
            lines.append(("", of if len(of) <= width else "…" + of[1 - width :]))
        test = of
        what, values = f"  {verdict} {metric} {change}", f"{before} -> {now}" if now else ""
        if len(what) + len(values) + 2 <= width:
            lines.append((verdict, f"{what}  {values}".rstrip()))
        else:
            lines += [(verdict, what), (verdict, f"    {values}")]
    return [(verdict, printable(line)) for verdict, line in lines]


def text_lines(found: RunsComparison, width: int) -> list[str]:
    """The table, the kernels of what became worse, and one line of all."""
    told = [line for _, line in table(found, width)]
    diffs = [
        line
        for one in _with_diffs(found)
        for line in ("", printable(_title(one)), *(f"  {line}" for line in kernel_lines(one)))
    ]
    noted = [printable(line) for line in notes(found)]
    return [*told, *diffs, *([""] if told or diffs else []), *noted, summary(found)]


def markdown_lines(found: RunsComparison) -> list[str]:
    """The same as GitHub shows it: a table, diffs that unfold, one line of all above."""
    lines = [f"**{text(summary(found))}**", ""]
    rows = _rows(found)
    if rows:
        lines += ["| | test | metric | before | now | change |", "|---|---|---|--:|--:|--:|"]
        lines += [row(*map(text, cells)) for cells in rows]
        lines.append("")
    for one in _with_diffs(found):
        lines += details(tag_text(_title(one)), fence(kernel_lines(one), "diff"))
    lines += [f"- {text(line, _LONGEST_NOTE)}" for line in notes(found)]
    return lines


def _rows(found: RunsComparison) -> list[_Row]:
    """Worst first; a profile whose kernels are others at the same counts has a row, too."""
    told = [
        ((_ORDER[metric.verdict], not metric.judged, _test(profile)), _row(profile, metric))
        for profile in found.profiles
        for metric in profile.metrics
    ]
    told += [
        ((1, True, _test(profile)), ("changed", _test(profile), "kernels", "", "", "others"))
        for profile in found.profiles
        if profile.diff is not None and not profile.metrics
    ]
    rows = [row for _, row in sorted(told, key=lambda one: one[0])]
    left = len(rows) - _MOST_ROWS
    more = [("...", f"{left} more rows", "", "", "", "")] if left > 0 else []
    return [*rows[:_MOST_ROWS], *more]


def _row(profile: ProfileComparison, metric: MetricComparison) -> _Row:
    form = FORMS[metric.unit]
    before = " ".join("-" if old is None else form(old) for old in metric.olds)
    verdict = "WORSE" if metric.verdict == "worse" and metric.judged else metric.verdict
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
    told = [f"times not compared of {n}: {why}" for why, n in found.untimed.items()]
    told += [f"no baseline, so nothing fails, of {n}: {why}" for why, n in found.other.items()]
    told += [f"not there any more in {n}: {name}" for name, n in found.lost.items()]
    lists = (
        (
            "incomplete, of another kind of device, or a block here and a call there, not compared",
            found.uncompared,
        ),
        ("named by fail-on, and in no profile", found.nowhere),
        ("only in the earlier run", found.gone),
        ("only in this run", found.fresh),
        ("not a whole run", found.unfinished),
    )
    for words, several in lists:
        if several:
            more = f" and {len(several) - _MOST_TESTS} more" if len(several) > _MOST_TESTS else ""
            told.append(f"{words}: {', '.join(several[:_MOST_TESTS])}{more}")
    left = sum(one.diff is not None and bool(one.diff.hunks) for one in found.profiles)
    if left > _MOST_DIFFS:
        told.append(f"kernels of {left - _MOST_DIFFS} more profiles are others, too")
    return told


def summary(found: RunsComparison) -> str:
    """``212 profiles compared: 1 regression, 2 worse, 3 better, 206 as before``."""
    verdicts = [{one.verdict for one in profile.metrics} for profile in found.profiles]
    counts = {
        "regression": sum(profile.regressed for profile in found.profiles),
        "worse, which nothing judges": sum(
            "worse" in seen and not profile.regressed
            for profile, seen in zip(found.profiles, verdicts, strict=True)
        ),
        "undecided": sum(seen == {"undecided"} for seen in verdicts),
        "better": sum("better" in seen and "worse" not in seen for seen in verdicts),
        "other kernels at the same counts": sum(not seen for seen in verdicts),
    }
    told = [f"{n} {_plural(words, n)}" for words, n in counts.items() if n]
    told.append(f"{found.compared - len(found.profiles)} as before")
    return f"{found.compared} {_plural('profile', found.compared)} compared: {', '.join(told)}"


def _plural(words: str, n: int) -> str:
    return f"{words}s" if n != 1 and words in ("regression", "profile") else words
