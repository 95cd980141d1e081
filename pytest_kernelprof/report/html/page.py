"""The page: what the summary says, each test once with its detail, style and script in one file.
The template lays it out."""

from __future__ import annotations

import base64
import functools
import hashlib
from collections import Counter
from dataclasses import dataclass
from importlib import resources
from itertools import groupby
from typing import TYPE_CHECKING, Any

from pytest_kernelprof.errors import KernelprofError
from pytest_kernelprof.report.html.details import Detailer, FullNames
from pytest_kernelprof.report.html.markup import Html, cut, element, mark, table, text, word_of
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
    from pytest_kernelprof.summary.records import Told
    from pytest_kernelprof.summary.run import Summary

WHOLE_BYTES, MOST_BYTES = 400_000, 1_600_000
"""The details of the worst profiles are whole, in so many bytes; those of others compact, in so
many in all. The rest are rows of the table alone."""
_MOST_ROWS, _MOST_OF_A_CAUSE = 40, 8
"""Rows of a group that are seen at once: the script has a button for the others."""
_MOST_CAUSES = 3
_LONGEST_OF_ALL = 2_000
_OF_COMPARISONS = (table, comparison_table, comparison_notes, comparison_line)


class NoTemplatesError(KernelprofError):
    """Jinja2 is not installed, without which no page can be made."""


def html_of(run: Run) -> str:
    """Return the run as one HTML page, which loads nothing from anywhere.

    Raises:
        NoTemplatesError: Jinja2 is not installed.
    """
    template = _templates().get_template("page.html.j2")
    summary = summary_of(run)
    names, data = FullNames(), ScriptData()
    baselines: dict[Source, str] = {one.baseline.source: one.base for one in summary.compared}
    detailer = Detailer(names, data, {"snapshot": "the kernel snapshot", **baselines})
    title, _, lede = summary.sentence.partition("; ")
    if summary.open:  # the first line says what was not judged
        title, lede = summary.sentence, ""
    return template.render(
        title=title.removesuffix("."),
        lede=f"{lede[:1].upper()}{lede[1:]}",
        tone=MARKS[summary.overall].tone,
        summary=summary,
        run=run,
        tests=_Tests(summary, detailer),
        most_causes=_MOST_CAUSES,
        names=names,
        data=data,
        **_assets(),
    )


def why_no_html() -> str:
    """Return why no page can be made, and what to install; empty where it can."""
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

    found = jinja2.Environment(
        loader=jinja2.PackageLoader("pytest_kernelprof.report.html", ""),
        autoescape=True,
        finalize=_harmless,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for one in (mark, word_of, line_words, parts_of, format_time, cut, *_OF_COMPARISONS):
        found.globals[one.__name__] = one
    return found


def _harmless(value: Any) -> Any:
    """As ``text``, for what the template escapes itself."""
    return printable(cut(value, _LONGEST_OF_ALL)) if type(value) is str else value


@functools.cache
def _assets() -> dict[str, str]:
    """Style and script, and what the page's policy knows them by."""
    found: dict[str, str] = {}
    for what, name in {"style": "style.css", "script": "script.js"}.items():
        file = resources.files("pytest_kernelprof.report.html") / name
        found[what] = file.read_text(encoding="utf-8").strip()
        digest = base64.b64encode(hashlib.sha256(found[what].encode()).digest()).decode()
        found[f"{what}_hash"] = f"'sha256-{digest}'"
    return found


# The tables of tests: what needs a look, what changed, the others; each test once.


@dataclass(frozen=True, slots=True)
class _Group:
    """Rows below one heading.

    Attributes:
        title: of the section that they stand in.
        entries: each with the causes that the heading does not name.
        most: so many of them are seen at once.
        named: what they have in common; may be empty. told, cause: its mark, and why.
    """

    title: str
    entries: Sequence[tuple[Entry, Sequence[Cause]]]
    most: int = _MOST_ROWS
    named: str = ""
    told: Told | None = None
    cause: Cause | None = None


def _groups(summary: Summary) -> Iterator[_Group]:
    """All that ran and all that is wrong, in the order of the page."""
    rows = {(id(row.test), row.number): row for row in summary.rows}
    left = dict(rows)

    def unfolded(entries: Iterable[Entry]) -> Iterator[Entry]:
        """Each profile by itself: folded rows stand for several."""
        for each in (each for one in entries for each in one.each):
            if isinstance(each, Row):
                left.pop((id(each.test), each.number), None)
                yield rows[id(each.test), each.number]
            else:
                yield each

    for problem in summary.problems:
        title, entries = "What needs a look", list(unfolded(problem.rows))
        if len(entries) == 1:  # it names its causes itself
            yield _Group(title, _with_causes(entries), _MOST_OF_A_CAUSE)
            continue
        told = [(one, one.causes[1:]) for one in entries]
        named = f"{count_words(problem.tests, 'test')}:"
        cause = problem.cause or Cause(word_of(problem.told))
        yield _Group(title, told, _MOST_OF_A_CAUSE, named, problem.told, cause)
    title = f"What changed against {' and '.join(one.base for one in summary.compared)}"
    changed = [(result_of(c), one) for one in listed(summary).changed if (c := one.comparison)]
    for result, several in groupby(changed, lambda one: one[0]):
        entries = list(unfolded(one for _, one in several))
        yield _Group(title, _with_causes(entries), named=RESULTS[result].word)
    title = "All other tests" if len(left) < len(rows) else "Tests"
    is_marked = summary.counts.marked
    yield _Group(title, [(one, one.causes if is_marked else ()) for one in by_file(left.values())])
    yield _Group("Not judged", _with_causes(map(_unjudged, summary.left_out)))


def _with_causes(entries: Iterable[Entry]) -> list[tuple[Entry, Sequence[Cause]]]:
    return [(one, one.causes) for one in entries]


def _unjudged(test: Test) -> Entry:
    file, name = parts_of(test.id)
    causes = (Cause(test.not_judged),) if test.not_judged else ()
    return Entry(test=test, file=file, name=name, told="not judged", causes=causes)


@dataclass(frozen=True, slots=True)
class _Table:
    """The tests on one kind of device; each row with its causes and its cells."""

    on_cpu: bool
    columns: Sequence[Column]
    groups: Sequence[tuple[_Group, Sequence[tuple[Entry, Sequence[Cause], Sequence[Html]]]]]

    def more(self, one: Entry, causes: Sequence[Cause]) -> str:
        """What is wrong or changed in a row and is not in its cells or first causes."""
        left = len(causes) - _MOST_CAUSES
        more = [f"and {left} more"] if left > 0 else []
        if isinstance(one, Row):
            more += beside_words(one, {column.key for column in self.columns})
        return "; ".join(filter(None, more))


def _tables(summary: Summary) -> Iterator[_Table]:
    """A table of the tests on a GPU, and one of those on the CPU; tests without a profile are in
    the first."""
    kinds = [kind for kind in ("cuda", "cpu") if kind in map(_kind, summary.rows)] or [""]
    groups = list(_groups(summary))
    for kind in kinds:
        ours = [
            (group, [one for one in group.entries if (_kind(one[0]) or kinds[0]) == kind])
            for group in groups
        ]
        rows = [one for _, entries in ours for one, _ in entries if isinstance(one, Row)]
        columns = columns_of(rows, verbose=False) if rows else []
        cells = {
            id(row): [_cell(one.cells[at], row) for one in columns] for at, row in enumerate(rows)
        }
        blank = [Html("")] * len(columns)
        told = [
            (group, [(*one, cells.get(id(one[0]), blank)) for one in entries])
            for group, entries in ours
            if entries
        ]
        if told:
            yield _Table(kind == "cpu", columns, told)


class _Tests:
    """The tables of tests, for the template.

    Attributes:
        marks: how many rows have each mark. number: of rows. without: how many have no detail.
    """

    def __init__(self, summary: Summary, detailer: Detailer) -> None:
        self._marked, self._detailer = summary.counts.marked, detailer
        self._size = self._details = self.without = 0
        self.tables = list(_tables(summary))
        rows = (row for table in self.tables for _, several in table.groups for row, *_ in several)
        marks = Counter(map(self.mark_of, rows))
        self.marks = [(told, marks[told]) for told in MARKS if marks[told]]
        self.number = marks.total()

    def mark_of(self, one: Entry) -> Told | None:
        """The mark of a row: none where no test has a limit, unless it needs a look."""
        return one.told if self._marked or one.told in NEEDS_A_LOOK else None

    def detail(self, one: Entry) -> tuple[str, Html]:
        """The place of a row's detail and the detail, as large as the page has room for: whole,
        then compact, then none. The template asks for them in the order of the page."""
        if not isinstance(one, Row):
            return "", Html("")
        if self._size > MOST_BYTES:
            self.without += 1
            return "", Html("")
        self._details += 1
        place = f"p{self._details}"
        if self._size > WHOLE_BYTES:
            found, drawn = self._detailer.compact(one), 0
        else:
            found, drawn = self._detailer.whole(one, place)
        self._size += len(found) + drawn
        return place, found


def _kind(one: Entry) -> str:
    return one.profile.environment.kind if isinstance(one, Row) else ""


def _cell(words: str, one: Entry) -> Html:
    is_bad = " > " in words or (ARROW in words and one.told == "failed")
    told = text(words.replace(ARROW, " → "))
    return element("b", told, "x-bad") if is_bad else told
