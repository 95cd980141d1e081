"""The page: what the summary says, each test once with its detail, style and script in one file."""

from __future__ import annotations

import base64
import functools
import hashlib
from importlib import resources
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_kernelprof.errors import KernelprofError
from pytest_kernelprof.report.html.details import Detailer, FullNames
from pytest_kernelprof.report.html.markup import (
    Html,
    cut,
    element,
    joined,
    mark,
    table,
    text,
    word_of,
)
from pytest_kernelprof.report.html.script_data import ScriptData
from pytest_kernelprof.report.kernel_tables import comparison_notes, comparison_table
from pytest_kernelprof.report.tables import Column
from pytest_kernelprof.report.terminal import ARROW, beside_words, columns_of
from pytest_kernelprof.schema.run import Cause
from pytest_kernelprof.summary.comparisons import RESULTS, result_of
from pytest_kernelprof.summary.records import MARKS, NEEDS_A_LOOK, Entry, Row
from pytest_kernelprof.summary.run import by_file, listed, summary_of
from pytest_kernelprof.summary.verdicts import comparison_line
from pytest_kernelprof.summary.words import count_words, line_words, parts_of
from pytest_kernelprof.units import format_time, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import jinja2

    from pytest_kernelprof.schema.run import Run, Source, Test
    from pytest_kernelprof.summary.records import Overall, Tone
    from pytest_kernelprof.summary.run import Summary

WHOLE_BYTES, MOST_BYTES = 400_000, 1_600_000
"""The worst profiles are told whole, in so many bytes; then others more compactly, in so many in
all. The rest are rows of the table alone."""
_MOST_ROWS, _MOST_OF_A_CAUSE = 40, 8
"""Rows of a group that are seen at once: the script has a button for the others."""
_MOST_CAUSES, _MOST_HOT, _MOST_HINTS = 3, 12, 20
_LONGEST_OF_ALL = 2_000
_TONES: dict[Overall, Tone] = {
    "failed": "bad",
    "undecided": "unsure",
    "passed": "kept",
    "not judged": "none",
}


class NoTemplatesError(KernelprofError):
    """Jinja2 is not installed, without which no page can be made."""


def html_of(run: Run) -> str:
    """The run as one HTML page, which loads nothing from anywhere.

    Raises:
        NoTemplatesError: Jinja2 is not installed.
    """
    templates = _templates()
    summary = summary_of(run)
    names, data = FullNames(), ScriptData()
    baselines: dict[Source, str] = {one.baseline.source: one.base for one in summary.compared}
    tests = _Tests(summary, Detailer(names, data, {"snapshot": "the kernel snapshot", **baselines}))
    sentence, _, lede = summary.sentence.partition("; ")
    if summary.open:  # the first line says what was not judged
        sentence, lede = summary.sentence, ""
    return templates.get_template("page.html.j2").render(
        title=sentence.removesuffix("."),
        lede=f"{lede[:1].upper()}{lede[1:]}",
        tone=_TONES[summary.overall],
        summary=summary,
        run=run,
        **_assets(),
        facts=list(_facts(summary)),
        tests=tests,
        hottest=_hottest(summary, names),
        hints=_hints(summary),
        comparisons=list(_comparisons(run)),
        full_names=names.all(),
        data=data.block(),
    )


def why_no_html() -> str:
    """Why no page can be made, and what to install; empty where it can."""
    try:
        import jinja2  # noqa: F401
    except ImportError as error:
        return f"it needs Jinja2 ({error}); pip install 'pytest-kernelprof[html]'"
    return ""


@functools.cache
def _templates() -> jinja2.Environment:
    if why := why_no_html():
        raise NoTemplatesError(f"no HTML page can be made: {why}")
    import jinja2

    return jinja2.Environment(
        loader=jinja2.PackageLoader("pytest_kernelprof.report.html", ""),
        autoescape=True,
        finalize=_harmless,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _harmless(value: Any) -> Any:
    """As ``text``, for what the template escapes itself."""
    return printable(cut(value, _LONGEST_OF_ALL)) if type(value) is str else value


@functools.cache
def _file(name: str) -> Html:
    file = resources.files("pytest_kernelprof.report.html") / name
    return Html(file.read_text(encoding="utf-8").strip())


def _assets() -> dict[str, Html]:
    """Style and script, and what the page's policy knows them by."""
    found: dict[str, Html] = {}
    for what, name in {"style": "style.css", "script": "script.js"}.items():
        digest = base64.b64encode(hashlib.sha256(_file(name).encode()).digest()).decode()
        found |= {what: _file(name), f"{what}_hash": Html(f"'sha256-{digest}'")}
    return found


# The table of tests: what needs a look, what changed, the others; each test once.


class _Group(NamedTuple):
    """Rows below one heading.

    Attributes:
        title: of the section that they stand in. head: what they have in common; may be empty.
        entries: each with the causes that the heading does not say.
        most: so many of them are seen at once.
    """

    title: str
    head: Html
    entries: Sequence[tuple[Entry, Sequence[Cause]]]
    most: int


def _groups(summary: Summary) -> Iterator[_Group]:
    """All that ran and all that is wrong, in the order in which it is told."""
    rows = {(id(row.test), row.number): row for row in summary.rows}
    left = dict(rows)

    def unfolded(one: Entry) -> Iterator[Entry]:
        """Each profile by itself: folded rows stand for several."""
        for each in one.each:
            if isinstance(each, Row):
                left.pop((id(each.test), each.number), None)
                yield rows[id(each.test), each.number]
            else:
                yield each

    for problem in summary.problems:
        entries = [each for one in problem.rows for each in unfolded(one)]
        if len(entries) == 1:  # it says its causes itself
            told_of: list[tuple[Entry, Sequence[Cause]]] = [(one, one.causes) for one in entries]
            yield _Group("What needs a look", Html(""), told_of, _MOST_OF_A_CAUSE)
            continue
        named = count_words(problem.tests, "test")
        why = _cause(problem.cause) if problem.cause else text(word_of(problem.told))
        head = joined([mark(problem.told), element("b", text(f"{named}:")), why], " ")
        told_of = [(one, one.causes[1:]) for one in entries]
        yield _Group("What needs a look", head, told_of, _MOST_OF_A_CAUSE)
    against = " and ".join(one.base for one in summary.compared)
    changed = (
        (result_of(one.comparison), each)
        for one in listed(summary).changed
        if one.comparison is not None
        for each in unfolded(one)
    )
    for result, several in groupby(changed, lambda one: one[0]):
        head = element("b", text(RESULTS[result].word))
        told_of = [(one, one.causes) for _, one in several]
        yield _Group(f"What changed against {against}", head, told_of, _MOST_ROWS)
    is_marked = summary.counts.marked
    told_of = [(one, one.causes if is_marked else ()) for one in by_file(left.values())]
    title = "All other tests" if len(left) < len(rows) else "Tests"
    yield _Group(title, Html(""), told_of, _MOST_ROWS)
    told_of = [(one, one.causes) for one in map(_unjudged, summary.left_out)]
    yield _Group("Not judged", Html(""), told_of, _MOST_ROWS)


def _unjudged(test: Test) -> Entry:
    file, name = parts_of(test.id)
    causes = (Cause(test.not_judged),) if test.not_judged else ()
    return Entry(test=test, file=file, name=name, told="not judged", causes=causes)


def _cause(one: Cause) -> Html:
    place = element("code", text(line_words(one.place)))
    return joined([text(f"{one.sign} {one.text}".lstrip()), place], " " if place else "")


class _Tests:
    """The tables of tests, for the template: one for those on a GPU, one for those on the CPU.

    Attributes:
        tables: each as markup.
        chips: what they can be filtered by: the mark, its word, how many rows have it.
        number: of rows. without: how many have no detail on the page.
    """

    def __init__(self, summary: Summary, detailer: Detailer) -> None:
        self._marked = summary.counts.marked
        self._detailer = detailer
        self._size = self._number = self.without = 0
        groups = list(_groups(summary))
        rows = [one for group in groups for one, _ in group.entries]
        self.number = len(rows)
        kinds = {_kind(one) for one in rows}
        self._first = "cuda" if "cuda" in kinds else "cpu"
        self.tables = [
            self._table(groups, kind)
            for kind in ("cuda", "cpu")
            if kind in kinds or ("" in kinds and kind == self._first)
        ]
        told = [self._told(one) for one in rows]
        self.chips = [(mark(one), word_of(one), told.count(one)) for one in MARKS if one in told]

    def _table(self, groups: Iterable[_Group], kind: str) -> Html:
        ours = [(one, [e for e in one.entries if self._is_in(e[0], kind)]) for one in groups]
        rows = [one for _, entries in ours for one, _ in entries if isinstance(one, Row)]
        columns = columns_of(rows, verbose=False) if rows else []
        cells = {id(row): at for at, row in enumerate(rows)}
        heads = (f'<th class="n" data-sort="n">{text(one.title)}' for one in columns)
        bodies: list[str] = []
        section = ""
        for group, entries in ours:
            if not entries:
                continue
            wide = len(columns) + 2
            if group.title != section:
                section = group.title
                head = f'<th colspan="{wide}" scope="rowgroup"><h2>{text(section)}</h2></th>'
                bodies.append(f'<tbody class="section"><tr>{head}</tbody>')
            named = f'<td colspan="{wide}">{group.head}' if group.head else "<td>"
            kind_of = "group" if group.head else "group bare"
            bodies.append(f'<tbody class="{kind_of}" data-most="{group.most}"><tr>{named}</tbody>')
            bodies += (
                self._row(one, causes, columns, cells.get(id(one))) for one, causes in entries
            )
        named = f"Tests{' on the CPU' if kind == 'cpu' else ''} with their counts and times"
        return Html(
            f'<table class="tests"><caption class="sr">{named}</caption><thead><tr>'
            f'<th data-sort="t"><span class="sr">verdict</span>'
            f'<th data-sort="t">test{"".join(heads)}</tr></thead>{"".join(bodies)}</table>'
        )

    def _is_in(self, one: Entry, kind: str) -> bool:
        return (_kind(one) or self._first) == kind

    def _told(self, one: Entry) -> Any:
        return one.told if self._marked or one.told in NEEDS_A_LOOK else None

    def _row(
        self, one: Entry, causes: Sequence[Cause], columns: Sequence[Column], at: int | None
    ) -> str:
        """A body of the table: the numbers of a profile, and its detail, which opens below them."""
        stem, bracket, rest = one.name.partition("[")
        name = joined([text(stem), element("i", text(bracket + rest))])
        said = [_cause(cause) for cause in causes[:_MOST_CAUSES]]
        left = len(causes) - _MOST_CAUSES
        more = [f"and {left} more"] if left > 0 else []
        inside = Html("")
        if isinstance(one, Row):
            more += filter(None, beside_words(one, {column.key for column in columns}))
            if one.profile.other_ranks:
                name = joined([name, text(f" (rank {one.profile.rank})")])
            inside = self._detail(one)
        if one.file:
            name = joined([name, element("span", text(one.file), "file")], " ")
        said += [text("; ".join(more))] if more else []
        below = joined(element("p", words) for words in said)
        if inside:
            self._number += 1
            name = Html(f'<details id="p{self._number}"><summary>{name}</summary></details>')
            wide = len(columns) + 2
            inside = Html(f'<tr class="inside"><td colspan="{wide}"><div>{inside}</div>')
        cells = (
            f'<td class="n">{_cell(c.cells[at] if at is not None else "", one)}' for c in columns
        )
        told = self._told(one)
        return (
            f'<tbody data-word="{word_of(told)}"><tr><td>{mark(told)}<td>{name}{below}'
            f"{''.join(cells)}{inside}</tbody>\n"
        )

    def _detail(self, row: Row) -> Html:
        """As much of it as the page has room for."""
        if self._size > MOST_BYTES:
            self.without += 1
            return Html("")
        if self._size > WHOLE_BYTES:
            found, size = self._detailer.compact(row), 0
        else:
            found, size = self._detailer.whole(row, f"p{self._number + 1}")
        self._size += len(found) + size
        return found


def _kind(one: Entry) -> str:
    return one.profile.environment.kind if isinstance(one, Row) else ""


def _cell(words: str, one: Entry) -> Html:
    is_bad = " > " in words or (ARROW in words and one.told == "failed")
    told = text(words.replace(ARROW, " → "))
    return element("b", told, "x-bad") if is_bad else told


# Below the table.


def _facts(summary: Summary) -> Iterator[tuple[str, Sequence[str]]]:
    """What all of it comes to, by what it is of."""
    for one in summary.compared:
        yield f"against {one.short}", [one.words]
        yield "not compared", one.uncompared
        yield "notes", one.notes
    for what, words in summary.facts.items():
        yield what, [words]


def _hottest(summary: Summary, names: FullNames) -> Html:
    found = summary.hottest[:_MOST_HOT]
    columns = [
        Column("kernel", tuple(names.told(one.name, one.full) for one in found), kind="name"),
        Column("calls", tuple(f"{one.calls:,}" for one in found)),
        Column("tests", tuple(f"{one.tests:,}" for one in found)),
        Column("GPU time", tuple(format_time(one.us) for one in found)),
        Column("share", tuple(f"{one.share * 100:.0f} %" for one in found)),
    ]
    return table(columns)


def _hints(summary: Summary) -> Html:
    found = summary.hints[:_MOST_HINTS]
    columns = [
        Column("hint", tuple(one.kind for one in found), kind="words"),
        Column("test", tuple(one.test for one in found), kind="words"),
        Column("limit", tuple(one.limit for one in found), kind="name"),
        Column("now", tuple(one.words for one in found), kind="words"),
    ]
    return table(columns)


def _comparisons(run: Run) -> Iterator[tuple[str, Html]]:
    """Callables that tests measured in turn: the test, and a table of them."""
    for test in run.tests:
        for one in test.comparisons:
            said = [
                joined([mark(verdict.outcome), text(comparison_line(one, verdict))], " ")
                for verdict in one.verdicts
            ]
            said += map(text, comparison_notes(one))
            below = joined(element("p", words, "fact") for words in said)
            yield parts_of(test.id)[1], joined([table(comparison_table(one).columns), below])
