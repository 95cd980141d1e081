"""The section at the end of a run: the verdict, where and what to do; the table of profiles, with
what changed; totals and hints."""

from __future__ import annotations

import re
from itertools import groupby
from typing import TYPE_CHECKING

from pytest_kernelprof.report.kernel_tables import (
    comparison_lines,
    kernel_table,
    lines_of_ranks,
)
from pytest_kernelprof.report.tables import (
    LABEL,
    Column,
    Span,
    labelled,
    lay_out,
    left,
    right,
    style_of,
    width_of,
    wrapped,
    write_lines,
)
from pytest_kernelprof.schema.run import Cause
from pytest_kernelprof.summary.comparisons import (
    RESULTS,
    deltas_of,
    differs,
    range_words,
    result_of,
    share_of,
    why_of,
)
from pytest_kernelprof.summary.records import FAILED_OTHERWISE, NEEDS_A_LOOK, Row
from pytest_kernelprof.summary.run import listed, summary_of
from pytest_kernelprof.summary.verdicts import change_words, comparison_line, verdict_line
from pytest_kernelprof.summary.words import (
    count_words,
    doubt_words,
    first_of,
    line_words,
    pair_words,
    percent_words,
    shortened,
    value_of,
    value_words,
)
from pytest_kernelprof.units import TimeUnit, format_time, printable, time_unit

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    import pytest

    from pytest_kernelprof.report.tables import Colour, Line, Style
    from pytest_kernelprof.schema.comparison import MetricDelta
    from pytest_kernelprof.schema.run import Run
    from pytest_kernelprof.summary.records import Entry, Problem, Remedy
    from pytest_kernelprof.summary.run import Summary

_MOST_CAUSES, _MOST_TESTS, _MOST_KERNELS, _MOST_NOTES = 3, 8, 40, 3
_SIGN, _INDENT = 2, 4


def write_report(
    terminal: pytest.TerminalReporter,
    run: Run,
    *,
    brief: bool = False,
    only: Collection[str] | None = None,
    warn_only: bool = False,
) -> None:
    """Write what a run says, as wide as the terminal; nothing if there is nothing to say. See
    ``report_lines``."""
    summary = summary_of(run)
    compares = any(one.comparisons for one in run.tests)
    if summary.rows or summary.problems or summary.open or summary.compared or compares:
        terminal.section(printable(heading_of(summary)))
        style = style_of(terminal)
        lines = report_lines(summary, style, brief=brief, only=only, warn_only=warn_only)
        write_lines(terminal, lines)


def heading_of(summary: Summary) -> str:
    """What stands above: ``kernel profiles against main (abc1234)``."""
    bases = " and ".join(one.base for one in summary.compared)
    return f"kernel profiles against {bases}" if bases else "kernel profiles"


def report_lines(
    summary: Summary,
    style: Style,
    *,
    brief: bool = False,
    only: Collection[str] | None = None,
    warn_only: bool = False,
    ends: str = "the run fails",
) -> list[Line]:
    """The verdict, the rows that ask for a look or cost most, totals and hints, and how far all of
    it can be trusted.

    Args:
        brief: without the rows that pass, and without totals: of a run that asked for a comparison
            alone.
        only: the tests whose rows are listed, beside those that need a look.
        warn_only: whether what is worse fails nothing.
        ends: how what fails is said: ``exit status 1``.
    """
    brief = brief or style.verbosity < 0
    every_row = style.verbosity > 0
    found = listed(summary, unfolded=every_row)
    rest = () if brief else tuple(one for one in found.rows if only is None or one.test.id in only)
    below = [
        *_against_lines(summary, style),
        *([] if brief else _totals_lines(summary, style)),
    ]
    ten = found.costliest and len(rest) > 1 and bool(found.left)
    return [
        *_head_lines(summary, style, "The ten that cost the most:" if ten else ""),
        *_table_lines(summary.problems, found.changed, rest, style, marked=summary.counts.marked),
        *([(Span(found.more),)] if found.more else []),
        *([] if brief or only is not None else _left_lines(summary, found.left, every_row, style)),
        *_compared_lines(summary, style, brief=brief),
        *([(), *below] if below else []),
        *_last_lines(summary, style, warn_only=warn_only, ends=ends),
    ]


def _head_lines(summary: Summary, style: Style, more: str) -> list[Line]:
    colours: dict[str, Colour] = {"passed": "green", "failed": "red"}
    colour = colours.get(summary.overall, "bold")
    lines = style.sentence(f"{summary.sentence} {more}".rstrip(), colour)
    lines += labelled("where", summary.where, style)
    for at, one in enumerate(summary.todo):
        lines += _remedy_lines("" if at else "to do", one, style)
    for why in summary.run.unfinished:
        lines += labelled("unfinished", f"tests may be missing: {why}", style)
    return lines


def _remedy_lines(label: str, one: Remedy, style: Style) -> Iterator[Line]:
    """The command whole, so that it can be pasted, however wide; what it does as its comment."""
    head, command = Span(left(label, LABEL), "dim"), style.say(one.command)
    comment = style.say(f"# {one.what}")
    if LABEL + width_of(command) + 2 + width_of(comment) <= style.width:
        yield head, Span(command), Span(f"  {comment}", "dim")
    else:
        yield head, Span(command)
        yield (Span(" " * LABEL + comment, "dim"),)


def _last_lines(summary: Summary, style: Style, *, warn_only: bool, ends: str) -> Iterator[Line]:
    """Devices and versions, how complete the profiles are, and what a comparison fails."""
    for words in (*summary.places, summary.integrity if summary.rows else ""):
        yield from style.sentence(words) if words else ()
    for one in summary.compared:
        if one.failure:
            failed = one.fails(warn_only=warn_only)
            words = f"{ends if failed else 'only a warning'}: {one.failure}"
            yield from style.sentence(words, "red" if failed else "")


def _left_lines(
    summary: Summary, left_out: Sequence[str], every_row: bool, style: Style
) -> Iterator[Line]:
    """What is not listed, as numbers."""
    if every_row:
        for test in summary.left_out:
            words = f"{shortened(test.id)}: not judged: {test.not_judged}"
            yield from style.sentence(f"{style.sign('not judged')[0]} {words}")
    for words in left_out:
        yield from style.sentence(words)


def _compared_lines(summary: Summary, style: Style, *, brief: bool) -> Iterator[Line]:
    """The tables of compared callables, each under its test; in brief of those to look at."""
    looked = {row.test.id for problem in summary.problems for row in problem.rows}
    tests = [
        one for one in summary.run.tests if one.comparisons and (not brief or one.id in looked)
    ]
    lines = comparison_lines(tests, style)
    yield from ((Span(line),) for line in (["", *lines] if lines else []))


# The table: numbers left, the name last, why below.

_COUNT = TimeUnit("", 1.0, 0)
_FEWEST_ALIKE = 3
ARROW = " -> "
# Of each metric that is a column: its title, and when it gives way where space is short.
_COUNTED = {
    "syncs": ("waits", 4),
    "would_wait": ("would wait", 4),
    "memcpys": ("copies", 3),
}
_ASKED = 20
"""What is broken or changed somewhere gives way after all that is not."""
_CELLS = {"kernels", "launches", "cuda_time", "latency", "launch_overhead", *_COUNTED}
# Of what follows from a column beside it nothing is said.
_FOLLOWS = {
    "launches": "kernels",
    "gpu_busy": "cuda_time",
    "dispatch_time": "latency",
    "launch_overhead": "latency",
}


def _table_lines(
    problems: Sequence[Problem],
    changed: Sequence[Row],
    rest: Sequence[Row],
    style: Style,
    *,
    marked: bool,
) -> list[Line]:
    """One table of the rows on a GPU and one of those on the CPU, each where there are some; then
    the tests without a row."""
    every = [one for problem in problems for one in problem.rows]
    rows = [*(one for one in every if isinstance(one, Row)), *changed, *rest]
    lines: list[Line] = []
    for kind in ("cuda", "cpu"):
        of_kind = [row for row in rows if row.profile.environment.kind == kind]
        if of_kind:
            table = _Table(of_kind, style, marked=marked)
            lines += [(), *table.lines(problems, changed)]
    for problem in problems:
        for one in problem.rows:
            if not isinstance(one, Row) and one.told in FAILED_OTHERWISE:  # limits have tables
                lines += _entry_lines(one, style)
    return lines


def _entry_lines(one: Entry, style: Style) -> Iterator[Line]:
    """A test that has no row."""
    sign, colour = style.sign(one.told)
    why = "; ".join(cause.text for cause in one.causes)
    first, *more = wrapped(style.say(f"{shortened(one.test.id)}: {why}"), style.width - 2)
    yield Span(sign, colour), Span(f" {first}")
    yield from ((Span(f"  {line}"),) for line in more)


class _Table:
    """Rows of one kind of device."""

    def __init__(self, rows: Sequence[Row], style: Style, *, marked: bool) -> None:
        self._style, self._marked = style, marked
        self._rows = rows
        unit = _unit_of(rows, "cuda_time")
        columns = columns_of(rows, verbose=style.verbosity > 0)
        names = tuple(_name_of(row, unit) for row in rows)
        self._laid = lay_out([*columns, Column("test", names, kind="name")], style.within(_SIGN))
        self._shown = self._laid.shown
        self._at = {id(row): at for at, row in enumerate(rows)}

    def lines(self, problems: Sequence[Problem], changed: Sequence[Row]) -> Iterator[Line]:
        """The title; the problems, one cause once; what changed, by its result; the rest."""
        yield (Span(" " * _SIGN + self._laid.title, "dim"),)
        told, file = set[int](), ""
        for problem in problems:
            ours = [one for one in problem.rows if id(one) in self._at and isinstance(one, Row)]
            shared = problem.tests > 1 and len(problem.rows) > 1
            if ours and shared and problem.cause is not None:
                words = f"{count_words(problem.tests, 'test')}: {_signed(problem.cause)}"
                yield from self._cause(words, problem.cause, 0)
                file = ""
            for row in ours[:_MOST_TESTS]:
                yield from self._row(row, file, row.causes[1 if shared else 0 :])
                file = row.file
            left_out = count_words(sum(len(one.each) for one in ours[_MOST_TESTS:]), "more profile")
            if len(ours) > _MOST_TESTS:
                yield (Span(f"  and {left_out}"),)
            told |= set(map(id, ours))
        results = [(result_of(one.comparison), one) for one in changed if one.comparison]
        for result, group in groupby(results, lambda one: one[0]):
            ours = [row for _, row in group if id(row) in self._at]
            if ours:
                yield (Span(RESULTS[result].word, "bold"),)
                file = ""
            for row in ours:
                yield from self._row(row, file, row.causes)
                file = row.file
            told |= set(map(id, ours))
        for row in self._rows:
            if id(row) not in told:
                yield from self._row(row, file, row.causes if self._marked else ())
                file = row.file

    def _row(self, row: Row, file: str, causes: Sequence[Cause]) -> Iterator[Line]:
        style = self._style
        if row.file != file:
            yield from _file_lines(row.file, style)
        cells, name = self._laid.rows[self._at[id(row)]]
        marks = self._marked or row.told in NEEDS_A_LOOK
        sign, colour = style.sign(row.told if marks else None)
        spans = [Span(sign, colour), Span(" ")]
        for cell in cells:
            bad = " > " in cell or (ARROW in cell and row.told == "failed")
            spans += [Span(cell, "red" if bad else ""), Span("  ")]
        yield (*spans, *_name_spans(name[0]))
        yield from ((Span(" " * (_SIGN + self._laid.indent) + more),) for more in name[1:])
        yield from self._below(row, causes)
        if row.least_us is None:  # of several that agree -v has the ranks of each
            table = lines_of_ranks(row.profile, style.within(_INDENT))
            yield from ((Span(" " * _INDENT), *line) for line in table)
        if style.verbosity > 1 and self._marked and not row.failed:
            kernels = kernel_table(row.profile, most=_MOST_KERNELS).lines(style.within(_INDENT))
            yield from ((Span(" " * _INDENT + line),) for line in kernels)

    def _below(self, row: Row, causes: Sequence[Cause]) -> Iterator[Line]:
        """Why it is marked; what no column says of it."""
        for cause in causes[:_MOST_CAUSES]:
            yield from self._cause(_signed(cause), cause, _INDENT)
        more = [f"and {len(causes) - _MOST_CAUSES} more"] if len(causes) > _MOST_CAUSES else []
        more += beside_words(row, self._shown)
        words = "; ".join(filter(None, more))
        for line in wrapped(self._style.say(words), self._style.width - _INDENT) if words else ():
            yield (Span(" " * _INDENT + line),)

    def _cause(self, words: str, cause: Cause, indent: int) -> Iterator[Line]:
        """Why, and where at the right if both fit; else one after the other, wrapped."""
        style, room = self._style, self._style.width - indent
        text, place = style.say(words), style.say(line_words(cause.place))
        colour: Colour = "red" if cause.sign == "+" else ""
        for less in (_OUTER, _OPERATORS) if ";" in text else (_OUTER,):  # operators give way
            if width_of(text) + 2 + width_of(place) > room:
                text = less.sub("", text)
        if place and width_of(text) + 2 + width_of(place) <= room:
            at = right(place, room - width_of(text))
            yield Span(" " * indent), Span(text, colour), Span(at, "dim")
            return
        told = f"{text}, {place}" if place else text
        for line in wrapped(told, room):
            yield Span(" " * indent), Span(line, colour)


_OUTER, _OPERATORS = re.compile(r" < [^;]*"), re.compile(r", from [^;]*")


def _signed(cause: Cause) -> str:
    return f"{cause.sign} {cause.text}".lstrip()


def _file_lines(file: str, style: Style) -> Iterator[Line]:
    told = style.say(file)
    if width_of(told) > style.width:
        yield from ((Span(line, "bold"),) for line in wrapped(told, style.width))
        return
    folder, slash, name = told.rpartition("/")
    yield (Span(folder + slash, "dim"), Span(name, "bold"))


def _name_of(row: Row, unit: TimeUnit) -> str:
    """Of a folded row with the smallest GPU time: ``test_it[x3, from 98.2]``; of several ranks with
    the one whose numbers these are."""
    name, number = row.name, len(row.each)
    if row.least_us is not None:
        name = name.replace(f"x{number}]", f"x{number}, from {unit.words(row.least_us)}]", 1)
    return f"{name} (rank {row.profile.rank})" if row.profile.other_ranks else name


def _name_spans(name: str) -> Line:
    """The name, what stands in brackets dim."""
    stem, bracket, rest = name.partition("[")
    return (Span(stem), Span(bracket + rest, "dim")) if bracket else (Span(name),)


def columns_of(rows: Sequence[Row], *, verbose: bool) -> list[Column]:
    """The columns that say something, with what gives way first where space is short.

    Args:
        verbose: also with launches and latency where the rest does not ask for them.
    """
    on_cpu = all(row.profile.environment.kind == "cpu" for row in rows)
    launches = [(value_of(r.profile, "launches"), value_of(r.profile, "kernels")) for r in rows]
    others = any(one is not None and one != kernels for one, kernels in launches)
    alone = any("launches" in row.broken and "kernels" not in row.broken for row in rows)
    wanted = {
        "launches": verbose or others or alone,
        "latency": verbose or _is_asked(rows, "latency", on_cpu=on_cpu),
    }
    columns = [
        _counted(rows, "kernels", "operators" if on_cpu else "kernels"),
        _counted(rows, "launches", "launches", 2),
        _timed(rows, "cuda_time", "GPU"),
        Column("change", tuple(map(_share_cell, rows)), key="change"),
        Column("range", tuple(map(_range_cell, rows)), gives_way=_ASKED, key="range"),
        _timed(rows, "latency", "latency", 5),
        _timed(rows, "launch_overhead", "overhead", 6),
        *(_counted(rows, metric, *title) for metric, title in _COUNTED.items()),
        Column("bound", tuple(map(_bound, rows)), gives_way=1, key="bound"),
        Column("headroom", tuple(map(_headroom, rows)), gives_way=0, key="headroom"),
    ]
    told = [one for one in columns if wanted.get(one.key, True) and _says_something(one)]
    return told if told and told[0].key == "kernels" else [columns[0], *told]


def _says_something(column: Column) -> bool:
    """Not zero or unknown in every row, nor the same in several; that is told with the totals."""
    values = set(column.cells)
    alike = len(values) == 1 and len(column.cells) >= _FEWEST_ALIKE
    of_rows = column.key in ("kernels", "cuda_time", "change", "range", "headroom")
    return bool(values - {"", "0"}) and (of_rows or not alike)


def _is_asked(rows: Sequence[Row], metric: str, *, on_cpu: bool) -> bool:
    """Whether it is broken or changed; on the CPU, which has no other times, whether a limit is on
    it."""
    if any(metric in row.broken or differs(_delta(row, metric)) for row in rows):
        return True
    limited = (row for row in rows if any(one.metric == metric for one in row.profile.verdicts))
    return on_cpu and any(value_of(row.profile, metric) is not None for row in limited)


def _counted(rows: Sequence[Row], metric: str, title: str, gives_way: int | None = None) -> Column:
    cells = tuple(_cell(row, metric, _COUNT) for row in rows)
    return Column(title, cells, _yields(rows, metric, gives_way), metric)


def _timed(rows: Sequence[Row], metric: str, title: str, gives_way: int | None = None) -> Column:
    unit = _unit_of(rows, metric)
    cells = tuple(_cell(row, metric, unit) for row in rows)
    return Column(f"{title} {unit.name}", cells, _yields(rows, metric, gives_way), metric)


def _yields(rows: Sequence[Row], metric: str, gives_way: int | None) -> int | None:
    asked = any(metric in row.broken or differs(_delta(row, metric)) for row in rows)
    return gives_way if gives_way is None or not asked else gives_way + _ASKED


def _unit_of(rows: Sequence[Row], metric: str) -> TimeUnit:
    """What a column of times is written in."""
    deltas = (_delta(row, metric) for row in rows)
    sides = ((*one.baselines, one.current) for one in deltas if one is not None)
    known = [us for several in sides for us in several if us is not None]
    return time_unit([*known, *(value_of(row.profile, metric) or 0.0 for row in rows)])


def _delta(row: Row, metric: str) -> MetricDelta | None:
    one = row.comparison
    return deltas_of(one).get(metric) if one is not None and one.source != "snapshot" else None


def _cell(row: Row, metric: str, unit: TimeUnit) -> str:
    """A value, with the baseline's where that is another, and with its limit where it is beyond
    that: ``14 -> 16 > 15``; empty where it is not available, which of an incomplete profile is
    everything."""
    if row.told == "incomplete":
        return ""
    broken = row.broken.get(metric) if row.told in ("failed", "failed otherwise") else None
    delta, before = _delta(row, metric), ""
    value = broken.measured if broken else value_of(row.profile, metric)
    value = delta.current if value is None and delta is not None else value
    if value is None:
        return ""
    told = unit.words(value)
    if delta is not None and differs(delta):
        olds = ("-" if one is None else unit.words(one) for one in delta.baselines)
        before, told = " ".join(olds) + ARROW, unit.words(delta.current or 0.0)
    if broken is None or (before and broken.by in ("against", "earlier run")):
        return before + told
    allowed = f"{broken.allowed / unit.scale:.6g}" if unit.name else f"{broken.allowed:.0f}"
    rank = "" if broken.rank in (None, row.profile.rank) else f" (rank {broken.rank})"
    for decimals in range(unit.decimals + 1, 7):  # as many as show that it is beyond its limit
        if float(told) > float(allowed):
            break
        told = unit.words(value, decimals)
    return f"{before}{told} > {allowed}{rank}"


def _share_cell(row: Row) -> str:
    one = row.comparison
    share = share_of(one) if one is not None and result_of(one) != "same" else None
    return "" if share is None else percent_words(share)


def _range_cell(row: Row) -> str:
    one = row.comparison
    return "" if one is None or result_of(one) == "same" else range_words(one)


def _bound(row: Row) -> str:
    verdict = row.profile.bound.verdict
    return "" if verdict == "unknown" else verdict


def _headroom(row: Row) -> str:
    """How much is left of the timed limit that is nearest: ``3 % of 240us``."""
    left_of = [
        (1 - one.measured / one.allowed, one.allowed)
        for one in row.profile.verdicts
        if one.outcome in ("passed", "undecided") and one.unit == "us"
        if one.measured is not None and one.allowed
    ]
    if not left_of:
        return ""
    share, allowed = min(left_of)
    percent = f"{share * 100:.0f}" if abs(share) >= 0.01 else f"{share * 100:.1f}"
    return f"{percent} % of {_SHORT_TIME.sub('', format_time(allowed))}"


_SHORT_TIME = re.compile(r"\.0+(?=[mnu]?s)|(?<=\.\d)0+(?=[mnu]?s)")
"""What goes from a limit as people write it: ``240us``, not ``240.0us``."""


def beside_words(row: Row, shown: Collection[str]) -> list[str]:
    """What of a row is broken or changed and has no column; how sure its change is.

    Args:
        shown: the keys of the columns.
    """
    found = []
    if row.told in ("failed", "failed otherwise"):
        kernels = row.broken.get("kernels")
        for one in row.broken.values():
            follows = one.metric == "launches" and kernels and kernels.by == one.by
            if one.metric not in shown and one.metric in _CELLS and not follows:
                told = " > ".join(pair_words(one.unit, one.measured, one.allowed))
                found.append(f"{one.by}: {told}")
    compared = row.comparison
    if compared is not None and compared.source != "snapshot":
        found += _also(row, shown)
        found += [why_of(compared)] if row.told not in NEEDS_A_LOOK else []
    return found


def _also(row: Row, shown: Collection[str]) -> Iterator[str]:
    """Metrics that changed and have no column, unless they follow from one that has."""
    assert row.comparison is not None  # the caller has seen it
    values = deltas_of(row.comparison)
    for name, delta in values.items():
        beside = values.get(_FOLLOWS.get(name, ""))
        if name in shown or not differs(delta) or (differs(beside) and _follows(delta, beside)):
            continue
        unit = delta.spec.unit
        sides = (value_words(unit, one or 0.0) for one in (delta.baseline, delta.current))
        share = "" if unit == "count" else f" ({change_words(delta)})"
        yield f"{name} {ARROW.join(sides)}{share}"


def _follows(delta: MetricDelta, beside: MetricDelta | None) -> bool:
    """Whether it says what the column beside it says: of a time, that it is longer or shorter."""
    if beside is None:
        return False
    more, other = ((one.current or 0.0) - (one.baseline or 0.0) for one in (delta, beside))
    return (more > 0) == (other > 0) if delta.spec.unit == "us" else more == other


# Below the table.


def _several(label: str, texts: Sequence[str], style: Style) -> Iterator[Line]:
    """A few of them, each on lines of its own, and how many there are beyond."""
    most = len(texts) if style.verbosity > 0 else _MOST_NOTES
    for at, text in enumerate(first_of(texts, most)):
        yield from labelled("" if at else label, text, style)


def _against_lines(summary: Summary, style: Style) -> Iterator[Line]:
    for one in summary.compared:
        yield from labelled("against", f"{one.short}: {one.words}", style)
        for label, texts in (("not compared", one.uncompared), ("note", one.notes)):
            for at, text in enumerate(texts):
                yield from labelled("" if at else label, text, style)


def _totals_lines(summary: Summary, style: Style) -> Iterator[Line]:
    """What there is to say of the suite; a line with nothing to say is not there."""
    whole = not summary.counts.marked or style.verbosity > 0
    facts = summary.facts
    suite = "; ".join(filter(None, [facts.get("suite", ""), facts.get("CPU", "")]))
    if "no CUDA device" in summary.counts.unjudged:
        missing = "to fail where there is no CUDA device: --kernelprof-require-gpu"
        yield from labelled("not judged", missing, style)
    yield from labelled("suite", suite, style)
    yield from _hottest_lines(summary, style)
    for what in ("overhead", *(("waits", "copies", "idle") if whole else ()), "snapshots"):
        yield from labelled(what, facts.get(what, ""), style)
    for kind in ("near", "tighten"):
        told = [f"{h.test}: {h.limit} {h.words}" for h in summary.hints if h.kind == kind]
        yield from _several(kind, told, style)
    row = max(summary.rows, key=lambda row: row.profile.kernel_count, default=None)
    if not summary.counts.marked and row is not None and row.profile.kernel_count:
        mark = f"@pytest.mark.max_kernels({row.profile.kernel_count})"
        yield from labelled("next", f"to limit a test: {mark} on {row.name}", style)


def _hottest_lines(summary: Summary, style: Style) -> list[Line]:
    """The kernels that take the most: three, or as many as make up 60 %; ten in a verbose run."""
    share, most = 0.0, 10 if style.verbosity > 0 else 3
    shown = []
    for one in summary.hottest[:most]:
        shown.append(one)
        share += one.share
        if share >= 0.6 and style.verbosity <= 0:
            break
    columns = [
        Column("", tuple(count_words(one.calls, "call") for one in shown)),
        Column("", tuple(format_time(one.us) for one in shown)),
        Column("", tuple(f"{one.share * 100:.0f} %" for one in shown)),
        Column("", tuple(one.name for one in shown), kind="name"),
    ]
    lines = [line for block in lay_out(columns, style.within(LABEL)).blocks for line in block]
    return [
        (Span(left("" if at else "hottest", LABEL), "dim"), Span(line))
        for at, line in enumerate(lines)
    ]


# A run without a report.

_MOST_UNDECIDED = 10


def open_lines(summary: Summary) -> list[str]:
    """What a run without a report has to say all the same: what was not judged, and what is
    undecided; nothing if all was judged."""
    counts, lines = summary.counts, []
    if summary.open:
        lines.append(f"kernelprof: {count_words(counts.tests, 'test')}: {summary.open}")
    undecided = [
        f"kernelprof: {shortened(row.test.id)}: "
        f"{verdict_line(one, doubt_words(row.profile.conditions))}"
        for row in summary.rows
        for one in row.profile.verdicts
        if one.outcome == "undecided" and row.told != "rerun"
    ]
    undecided += [
        f"kernelprof: {shortened(test.id)}: {comparison_line(one, verdict)}"
        for test in summary.run.tests
        for one in test.comparisons
        for verdict in one.verdicts
        if verdict.outcome == "undecided" and test.outcome != "rerun"
    ]
    lines += first_of(undecided, _MOST_UNDECIDED, "kernelprof: {} more undecided")
    if any(row.told == "failed" for row in summary.rows):  # no failure says where it was measured
        lines += (f"kernelprof: measured on {place}" for place in summary.places)
    return list(map(printable, lines))
