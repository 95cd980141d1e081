"""The section at the end of a run: the verdict, where and what to do; the table of profiles, with
what changed; totals and hints."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pytest_kernelprof.records.comparison import LIMIT_OF, MetricDelta, ProfileComparison
from pytest_kernelprof.records.document import Run
from pytest_kernelprof.records.metrics import METRICS
from pytest_kernelprof.records.profile import Cause
from pytest_kernelprof.report import tables
from pytest_kernelprof.report.failure import Code, code_of, step_lines, task_lines
from pytest_kernelprof.report.kernel_tables import comparison_lines, kernel_table, lines_of_ranks
from pytest_kernelprof.report.tables import Colour, Column, Line, Span, Style, Table, left, wrapped
from pytest_kernelprof.summary import comparisons, records, wording
from pytest_kernelprof.summary.advice import MOST_TASKS, commands_of, signed_words
from pytest_kernelprof.summary.records import FAILED_OTHERWISE, Entry, Problem, Row, Task, Told
from pytest_kernelprof.summary.run import Summary, listed, summary_of
from pytest_kernelprof.summary.verdicts import delta_line, size_words
from pytest_kernelprof.units import TimeUnit, format_time, printable, time_unit

if TYPE_CHECKING:
    import pytest

MOST_CAUSES = 3
"""So many causes of a row are told."""
_MOST_TESTS, _MOST_CHANGED, _MOST_NOTES = 8, 60, 3
_SIGN, _INDENT = 2, 4


def write_report(terminal: pytest.TerminalReporter, run: Run, **asked: Any) -> None:
    """Write what a run says, as wide as the terminal; nothing if there is nothing to say.

    Args:
        asked: what ``report_lines`` takes.
    """
    summary = summary_of(run)
    found = summary.rows or summary.problems or summary.open or summary.compared
    if found or any(one.comparisons for one in run.tests):
        bases = " and ".join(one.base for one in summary.compared)
        heading = f"kernel profiles against {bases}" if bases else "kernel profiles"
        terminal.section(printable(heading))
        style = tables.style_of(terminal)
        tables.write_lines(terminal, report_lines(summary, style, code=code_of, **asked))


def report_lines(
    summary: Summary,
    style: Style,
    *,
    brief: bool = False,
    only: Collection[str] | None = None,
    told: Collection[str] = (),
    warn_only: bool = False,
    ends: str = "the run fails",
    code: Code = lambda _: "",
) -> list[Line]:
    """The verdict, the rows that ask for a look or cost most, totals and hints, and how far all of
    it can be trusted.

    Args:
        brief: without the rows that pass, and without totals: of a run that asked for a comparison
            alone.
        only: the tests whose rows are listed, beside those that need a look.
        told: the tests whose failures, above, say why and how to run them again.
        warn_only: whether what is worse fails nothing.
        ends: how what fails is said: ``exit status 1``. code: what is written at a line, if this is
            the code that ran.
    """
    brief = brief or style.verbosity < 0
    found = listed(summary, unfolded=style.verbosity > 0)
    rest = [one for one in found.rows if not brief and (only is None or one.test.id in only)]
    all_listed = not brief and only is None
    marked = summary.counts.marked
    ten = rest and found.left and not marked
    left_out = summary.left_out if style.verbosity > 0 and all_listed else ()
    is_red = bool(summary.problems) and style.verbosity <= 0
    groups = () if is_red else groups_of(summary, found.changed, rest, left_out)
    listed_groups = by_device(_listed_groups(summary, groups))
    differ = found.changed if is_red else ()
    changes = [Task("", change_words(one), one.name, told=one.told) for one in differ]
    below = [line for one in changes[:_MOST_TESTS] for line in _task_lines(one, code, style)]
    more = f"{len(changes) - _MOST_TESTS} more changed: -v lists all"
    below += style.sentence(more) if changes[_MOST_TESTS:] else []
    below += _against_lines(summary, style, whole=not is_red)
    below += () if brief or is_red else _totals_lines(summary, style)
    left = style.sentence(found.left) if found.left and all_listed else []
    return [
        *_head_lines(summary, style, "The ten that cost the most:" if ten else "", code, told),
        *(line for _, ours in listed_groups for line in _table(ours, style, marked=marked)),
        *(() if summary.problems else left),
        *_compared_lines(summary, style, brief=brief),
        *([(), *below] if below else []),
        *([(), *left] if summary.problems else []),
        *_last_lines(summary, style, warn_only=warn_only, ends=ends),
    ]


def _head_lines(
    summary: Summary, style: Style, more: str, code: Code, told: Collection[str]
) -> list[Line]:
    colour = style.sign(summary.told)[1] or ("green" if summary.told == "passed" else "bold")
    lines: list[Line] = []
    words = style.say(f"{summary.sentence} {more}".rstrip())
    is_mixed = summary.overall == "failed" and summary.beside
    room = len(style.say(summary.lead)) if is_mixed else len(words)
    for line in wrapped(words, style.width):
        both = Span(line[:room], colour), Span(line[room:])
        lines.append(tuple(one for one in both if one.text))
        room = max(0, room - len(line) - 1)  # only what fails is red
    missing = [f"tests may be missing: {why}" for why in summary.run.unfinished]
    lines += tables.labelled("unfinished", missing, style)
    for one in summary.tasks:
        task = one._replace(sure=())  # its failure says how sure that is
        if len(one.remedy.tests) == 1 and one.remedy.tests[0] in told:  # and the rest
            remedy, whys = records.Remedy(one.remedy.first), one.facts if len(one.facts) < 3 else ()
            facts = tuple(wording.without_lines(why, one.lines) for why in whys)
            task = task._replace(places=(), facts=facts, remedy=remedy)
        elif one.told == "to update":  # by one command for all, below
            task = task._replace(remedy=one.remedy._replace(command=""))
        lines += [(), *_task_lines(task, code, style)]
    problems = enumerate(summary.problems)
    left = [one for at, one in problems if at >= MOST_TASKS or one.rows[0].told == "to update"]
    for does, command in commands_of(left):
        pasted = tables.command_lines(style.say(command), style.width - _INDENT)
        lines += [(), *style.sentence(f"{does}:", "bold"), *_indented(pasted, _SIGN)]
    return lines


def _task_lines(one: Task, code: Code, style: Style) -> Iterator[Line]:
    """Where and what, the lines of code, what else is known, what to do."""
    sign, colour = style.sign(one.told)
    inside = style.within(_SIGN)
    for at, line in enumerate(wrapped(style.say(one.where), inside.width)):
        there = one.lines if not at and line.startswith(one.lines) else ""
        what = line.removeprefix(there).removesuffix(f"({style.say(one.test)})")
        mark = Span(" " * _SIGN) if at else Span(left(sign, _SIGN), colour)
        name = Span(line.removeprefix(there).removeprefix(what))
        yield mark, Span(there, "cyan"), Span(what, "bold"), name
    below = task_lines(one, code, inside)
    yield from ((Span(" " * _SIGN), *told) for told in (*below, *step_lines(one.remedy, inside)))


def _indented(lines: Iterable[str], indent: int, colour: Colour = "") -> Iterator[Line]:
    return ((Span(" " * indent), Span(line, colour)) for line in lines)


def _last_lines(summary: Summary, style: Style, *, warn_only: bool, ends: str) -> Iterator[Line]:
    """Devices and versions, how complete the profiles are, and what a comparison fails."""
    for words in (*summary.places, summary.integrity if summary.rows else ""):
        yield from style.sentence(words, "light") if words else ()
    for one in summary.compared:
        failed = one.fails(warn_only=warn_only)
        is_said = failed and one.what == "test" and not one.lacking  # by the tests that failed
        if one.failure and not is_said:
            words = f"{ends if failed else 'only a warning'}: {one.failure}"
            yield from style.sentence(words, "red" if failed else "")


def _compared_lines(summary: Summary, style: Style, *, brief: bool) -> Iterator[Line]:
    """The tables of compared callables, each under its test; in brief of those to look at."""
    looked = {row.test.id for problem in summary.problems for row in problem.rows}
    tests = [one for one in summary.run.tests if not brief or one.id in looked]
    lines = comparison_lines(tests, style)
    yield from ((Span(line),) for line in (["", *lines] if lines else []))


# The table: numbers left, the name last, why below.

_COUNT = TimeUnit("", 1.0, 0)
ARROW = " -> "
_ASKED = 20
"""What is broken or changed somewhere gives way after all that is not."""
_OVER: tuple[Told | None, ...] = ("failed", "failed otherwise")
# Of what follows from a column beside it nothing is said.
_FOLLOWS = {
    "launches": "kernels",
    "gpu_busy": "cuda_time",
    "dispatch_time": "latency",
    "launch_overhead": "latency",
}


class Group(NamedTuple):
    """Rows below one heading, in the order of every report.

    Attributes:
        kind: whether they need a look, changed against a baseline, are the others, or were not
            judged.
        entries: each with the causes that the heading does not say.
        named: what they have in common, in words; may be empty.
        problem: that they need a look for.
        most: so many are shown at once; None is all.
    """

    kind: Literal["look", "changed", "other", "not judged"]
    entries: Sequence[tuple[Entry, Sequence[Cause]]]
    named: str = ""
    problem: Problem | None = None
    most: int | None = None

    def on(self, kinds: Collection[str]) -> Group:
        """Return the group with what ran on these kinds of device; "" is a test without a
        profile."""
        return self._replace(entries=[one for one in self.entries if _kind(one[0]) in kinds])


def groups_of(
    summary: Summary, changed: Iterable[Row], rest: Iterable[Row], left_out: Iterable[Entry]
) -> Iterator[Group]:
    """Yield the problems, one cause once; what changed, by its result; the others.

    Args:
        changed: rows that differ from their baseline, worst first. rest: those that do not.
        left_out: what was not judged and has no row.
    """
    for problem in summary.problems:
        entries = [(one, one.causes[1 if problem.shared else 0 :]) for one in problem.rows]
        named = wording.count(problem.tests, "test") if problem.shared else ""
        yield Group("look", entries, named, problem, _MOST_TESTS)
    results = [(comparisons.result_of(one.comparison), one) for one in changed if one.comparison]
    for result, several in groupby(results, lambda one: one[0]):
        entries = [(row, row.causes) for _, row in several]
        yield Group("changed", entries, comparisons.RESULTS[result], most=_MOST_CHANGED)
    marked = summary.counts.marked
    yield Group("other", [(one, one.causes if marked else ()) for one in rest])
    unjudged = wording.grouped(left_out, lambda one: one.causes[0].text)
    for why, ours in sorted(unjudged.items()):
        yield Group("not judged", [(one, ()) for one in ours], f"not judged: {why}")


def by_device(groups: Iterable[Group]) -> Iterator[tuple[str, list[Group]]]:
    """Yield the kind of a device with what ran there, the GPU first: a table each. Tests that ended
    without a profile are in the first."""
    told = list(groups)
    kinds = {_kind(one) for group in told for one, _ in group.entries} - {""}
    for at, kind in enumerate(sorted(kinds, reverse=True) or [""]):
        ours = [group.on((kind,) if at else (kind, "")) for group in told]
        if shown := [group for group in ours if group.entries]:
            yield kind, shown


def _kind(one: Entry) -> str:
    return one.profile.environment.kind if isinstance(one, Row) else ""


def _table(groups: Sequence[Group], style: Style, *, marked: bool) -> Iterator[Line]:
    entries = [one for group in groups for one, _ in group.entries[: group.most]]
    columns = columns_of(entries, verbose=style.verbosity > 0)
    names = Column("test", tuple(map(_name_of, entries)), kind="name")
    laid = tables.lay_out([*columns, names], style.within(_SIGN))
    yield ()
    if columns:
        yield (Span(" " * _SIGN + laid.title, "light"),)
    texts, file = iter(laid.rows), ""
    for group in groups:
        shown = group.entries[: group.most]
        if group.named:
            yield from [()] if file else []
            yield (Span(group.named, "bold"),)
            file = ""
        for row, causes in shown:
            if row.file != file:
                yield from style.sentence(row.file, "bold")
                file = row.file
            cells, (name, *more) = next(texts)
            yield (*_sign_and_cells(row, cells, style, marked=marked), Span(name))
            yield from _indented(more, _SIGN + laid.indent)
            yield from _below_lines(row, causes, laid.shown, style)
            if isinstance(row, Row) and style.verbosity > 1 and marked and not row.failed:
                kernels = kernel_table(row.profile).lines(style.within(_INDENT))
                yield from _indented(kernels, _INDENT)
        if left_out := sum(len(row.each) for row, _ in group.entries[len(shown) :]):
            yield (Span(f"  and {wording.count(left_out, 'more profile')}"),)


def _listed_groups(summary: Summary, groups: Iterable[Group]) -> Iterator[Group]:
    """Without the causes that are said above; others stand below their rows. Comparisons of
    callables have tables of their own."""
    said = sum(one.told is not None for one in summary.tasks)
    for at, group in enumerate(groups):
        is_look = group.kind == "look"
        entries = [
            (one, () if at < said else one.causes if is_look else why)
            for one, why in group.entries
            if isinstance(one, Row) or not one.test.comparisons or one.told in FAILED_OTHERWISE
        ]
        yield group._replace(entries=entries, named="" if is_look else group.named)


def _sign_and_cells(
    row: Entry, cells: Sequence[str], style: Style, *, marked: bool
) -> Iterator[Span]:
    sign, colour = style.sign(row.told if marked or row.told in records.NEEDS_A_LOOK else None)
    yield from (Span(sign, colour), Span(" "))
    for cell in cells:
        bad = " > " in cell or (row.told == "failed" and (ARROW in cell or cell.endswith(" %")))
        yield from (Span(cell, "red" if bad else ""), Span("  "))


def _below_lines(
    row: Entry, causes: Sequence[Cause], shown: Collection[str], style: Style
) -> Iterator[Line]:
    """Why a row is marked; what no column says of it; its ranks."""
    for cause in causes[:MOST_CAUSES]:
        colour: Colour = "red" if cause.sign == "+" else ""
        for one in wording.located(cause):
            yield from _indented(wrapped(style.say(one), style.width - _INDENT), _INDENT, colour)
    inside, indent = style.within(_INDENT), Span(" " * _INDENT)
    more = more_words(row, causes, shown)
    lines = inside.sentence(more) if more else []
    # Of several that agree -v has the ranks of each, and a failure has those of its own.
    if isinstance(row, Row) and not row.folded and not row.failed:
        lines += lines_of_ranks(row.profile, inside)
    yield from ((indent, *line) for line in lines)


def _name_of(row: Entry) -> str:
    """Return the name of a row; of several ranks with the one whose numbers these are."""
    if isinstance(row, Row) and row.profile.other_ranks:
        return f"{row.name} (rank {row.shown.rank})"
    return row.name


def columns_of(entries: Sequence[Entry], *, verbose: bool) -> list[Column]:
    """Return the columns that say something, with what gives way first where space is short. What
    has no profile has empty cells.

    Args:
        verbose: also with launches and latency where the rest does not ask for them.
    """
    rows = [one for one in entries if isinstance(one, Row)]
    on_cpu = all(_kind(row) == "cpu" for row in rows)
    limited = [row for row in rows if any(v.metric == "latency" for v in row.profile.verdicts)]
    is_limited = any(wording.value_of(row.profile, "latency") is not None for row in limited)
    wanted = {
        "kernels": bool(rows),
        "launches": verbose or any(map(_has_other_launches, rows)),
        "latency": verbose or _stands_out(rows, "latency") or (on_cpu and is_limited),
    }
    bound = tuple(row.shown.bound.verdict.replace("unknown", "") for row in rows)
    columns = [
        _column(rows, "kernels", "operators" if on_cpu else "kernels", None),
        _column(rows, "launches", "launches", 2),
        _column(rows, "cuda_time", "GPU", None),
        Column("change", tuple(map(_share_cell, rows)), key="change"),
        Column("range", tuple(map(_range_cell, rows)), gives_way=_ASKED, key="range"),
        _column(rows, "latency", "latency", 5),
        _column(rows, "launch_overhead", "overhead", 6),
        _column(rows, "syncs", "waits", 4),
        _column(rows, "would_wait", "would wait", 4),
        _column(rows, "memcpys", "copies", 3),
        Column("bound", bound, gives_way=1, key="bound"),
    ]
    shown = (one for one in columns if one.key == "kernels" or set(one.cells) - {"", "0"})
    spread = ((one, iter(one.cells)) for one in shown if wanted.get(one.key, True))
    return [
        replace(one, cells=tuple(next(cells) if isinstance(e, Row) else "" for e in entries))
        for one, cells in spread
    ]


def _has_other_launches(row: Row) -> bool:
    if "launches" in row.broken and "kernels" not in row.broken:
        return True
    launches, kernels = (wording.value_of(row.profile, name) for name in ("launches", "kernels"))
    return launches not in (None, kernels)


def _stands_out(rows: Sequence[Row], metric: str) -> bool:
    """Whether a metric is broken or changed in some row."""
    return any(metric in row.broken or comparisons.differs(_delta(row, metric)) for row in rows)


def _column(rows: Sequence[Row], metric: str, title: str, gives_way: int | None) -> Column:
    """Return the column of a metric, and when it gives way where space is short."""
    unit = _COUNT if METRICS[metric].unit == "count" else _unit_of(rows, metric)
    if gives_way is not None and _stands_out(rows, metric):
        gives_way += _ASKED
    cells = tuple(_cell(row, metric, unit) for row in rows)
    return Column(f"{title} {unit.name}".rstrip(), cells, gives_way, metric)


def _unit_of(rows: Sequence[Row], metric: str) -> TimeUnit:
    """What a column of times is written in."""
    deltas = (_delta(row, metric) for row in rows)
    sides = ((*one.baselines, one.current) for one in deltas if one is not None)
    known = [us for several in sides for us in several if us is not None]
    return time_unit([*known, *(wording.value_of(row.shown, metric) or 0.0 for row in rows)])


def _delta(row: Row, metric: str) -> MetricDelta | None:
    one = row.comparison
    return None if one is None else comparisons.deltas_of(one).get(metric)


def _cell(row: Row, metric: str, unit: TimeUnit) -> str:
    """Return a value: with the baseline's where that is another, ``14 -> 16``; beyond its limit,
    ``16 > 15``; both, ``16 > 15 (was 14)``. Empty where it is not available, which of an incomplete
    profile is everything."""
    if row.told == "incomplete":
        return ""
    broken = row.broken.get(metric) if row.told in _OVER else None
    delta, was = _delta(row, metric), ""
    is_compared = broken is None or broken.by in LIMIT_OF.values()
    compared = _differing(row)
    paired = compared.paired if compared else None
    if metric == "cuda_time" and is_compared and paired and paired.baseline_us:  # timed in turn
        return ARROW.join(map(unit.words, (paired.baseline_us, paired.current_us)))
    value = broken.measured if broken else wording.value_of(row.shown, metric)
    if delta is not None and comparisons.differs(delta):
        was = " ".join("-" if one is None else unit.words(one) for one in delta.baselines)
        if is_compared:
            return f"{was}{ARROW}{unit.words(delta.current or 0.0)}"
    value = delta.current if value is None and delta is not None else value
    if value is None or broken is None:
        return "" if value is None else unit.words(value)
    told = unit.words(value)
    allowed = f"{broken.allowed / unit.scale:.6g}" if unit.name else f"{broken.allowed:.0f}"
    for decimals in range(unit.decimals + 1, 7):  # as many as show that it is beyond its limit
        if float(told) > float(allowed):
            break
        told = unit.words(value, decimals)
    rank = "" if broken.rank in (None, row.shown.rank) else f"rank {broken.rank}"
    beside = ", ".join(filter(None, [f"was {was}" if was else "", rank]))
    return f"{told} > {allowed} ({beside})" if beside else f"{told} > {allowed}"


def _share_cell(row: Row) -> str:
    share = comparisons.share_of(one) if (one := _differing(row)) else None
    return "" if share is None else wording.percent(share)


def _range_cell(row: Row) -> str:
    return comparisons.range_words(one) if (one := _differing(row)) else ""


def _differing(row: Row) -> ProfileComparison | None:
    one = row.comparison
    return None if one is None or comparisons.result_of(one) == "same" else one


def change_words(one: Row) -> str:
    """Return how a row differs from its baseline: ``better; GPU time -11.0 %; kernels 5 -> 3``."""
    assert one.comparison is not None  # it differs from something
    result = comparisons.RESULTS[comparisons.result_of(one.comparison)]
    paired = one.comparison.paired
    share = (_range_cell(one) or _share_cell(one)) if paired is not None and paired.pairs else ""
    timed = [f"GPU time {share}"] if share else []
    whys = signed_words(one.causes[:MOST_CAUSES], on_cpu=one.profile.on_cpu)
    return ": ".join(filter(None, [result, "; ".join([*timed, *beside_words(one, ()), *whys])]))


def more_words(row: Entry, causes: Sequence[Cause], shown: Collection[str]) -> str:
    """Return how many causes are not told, then what no column says.

    Args:
        causes: all of the row. shown: the keys of the columns.
    """
    more = [f"and {left} more"] if (left := len(causes) - MOST_CAUSES) > 0 else []
    return "; ".join([*more, *(beside_words(row, shown) if isinstance(row, Row) else ())])


def beside_words(row: Row, shown: Collection[str]) -> list[str]:
    """Return why a row took long; what of it has changed and has no column, and how sure that is.

    Args:
        shown: the keys of the columns.
    """
    found = [size_words(row.profile)]
    if (compared := row.comparison) is not None:
        is_said = compared.source == "snapshot" or row.told in records.NEEDS_A_LOOK
        why = "" if is_said else comparisons.why_of(compared)
        found += [*_changes_beside(compared, shown), why]
    return list(filter(None, found))


def _changes_beside(compared: ProfileComparison, shown: Collection[str]) -> Iterator[str]:
    """Metrics that changed and have no column, unless they follow from one that has."""
    values = comparisons.deltas_of(compared)
    for name, delta in values.items():
        follows = comparisons.differs(values.get(_FOLLOWS.get(name, "")))
        if name not in shown and comparisons.differs(delta) and not follows:
            yield delta_line(delta, compared.counted)


# Below the table.


def _against_lines(summary: Summary, style: Style, *, whole: bool) -> Iterator[Line]:
    """How it compares with baselines, with all counts or without; before that, how to judge what
    needs a GPU."""
    if "no CUDA device" in summary.counts.unjudged:
        yield from tables.labelled("not judged", _WITHOUT_A_GPU, style)
    for one in summary.compared:
        for words in f"against {one.short}: {one.words}".split("; ") if whole else ():
            yield from style.sentence(words)
        yield from tables.labelled("not compared", one.uncompared, style)
        yield from tables.labelled("note", one.notes, style)


_WITHOUT_A_GPU = (
    "to count CPU operators instead: --kernelprof-device=cpu",
    "to fail without a GPU: --kernelprof-require-gpu",
)


def _totals_lines(summary: Summary, style: Style) -> Iterator[Line]:
    """What there is to say of the suite; a line with nothing to say is not there."""
    yield from tables.labelled("suite", [summary.suite], style)
    yield from tables.labelled("hottest", _hottest_lines(summary, style), style)
    told = [f"{one.test}: {one.limit} {one.words}" for one in summary.hints]
    most = len(told) if style.verbosity > 0 else _MOST_NOTES
    yield from tables.labelled("tighten", wording.first_of(told, most), style)


def _hottest_lines(summary: Summary, style: Style) -> list[str]:
    """The three kernels that take the most; ten in a verbose run."""
    hottest = summary.hottest[: 10 if style.verbosity > 0 else 3]
    calls = Column("", tuple(wording.count(one.calls, "call") for one in hottest))
    times = Column("", tuple(format_time(one.us) for one in hottest))
    shares = Column("", tuple(f"{one.share * 100:.0f} %" for one in hottest))
    names = Column("", tuple(one.name for one in hottest), kind="name")
    return Table((calls, times, shares, names)).lines(style.within(tables.LABEL))[1:]


def open_lines(summary: Summary) -> list[str]:
    """What a run without a report has to say all the same: that something was not judged or is
    undecided; where broken limits were measured, which no failure says."""
    is_open = summary.open or summary.counts.told["undecided"]
    lines = [f"kernelprof: {summary.sentence}"] if is_open else []
    lines += [f"kernelprof: {_WITHOUT_A_GPU[0]}"] * ("no CUDA device" in summary.counts.unjudged)
    if any(row.told == "failed" for row in summary.rows):
        lines += (f"kernelprof: measured on {place}" for place in summary.places)
    return list(map(printable, lines))
