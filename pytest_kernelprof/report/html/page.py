"""The page: what the summary says, each test once with its detail, style and script in one file.
The template lays it out."""

from __future__ import annotations

import base64
import functools
import hashlib
from collections import Counter
from dataclasses import replace
from importlib import resources
from typing import TYPE_CHECKING, Any

import jinja2

from pytest_kernelprof.report.html.details import Detailer, FullNames
from pytest_kernelprof.report.html.markup import Html, cut, element, mark, table, text, word_of
from pytest_kernelprof.report.html.script_data import ScriptData
from pytest_kernelprof.report.kernel_tables import comparison_notes, comparison_table
from pytest_kernelprof.report.terminal import ARROW, Group, beside_words, columns_of, groups_of
from pytest_kernelprof.summary.records import MARKS, NEEDS_A_LOOK, Entry, Row
from pytest_kernelprof.summary.run import listed, summary_of
from pytest_kernelprof.summary.verdicts import comparison_line
from pytest_kernelprof.summary.words import cause_lines, parts_of
from pytest_kernelprof.units import format_time, printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_kernelprof.records.comparison import Source
    from pytest_kernelprof.records.document import Run
    from pytest_kernelprof.records.profile import Cause
    from pytest_kernelprof.report.tables import Column
    from pytest_kernelprof.summary.records import Told
    from pytest_kernelprof.summary.run import Summary


WHOLE_BYTES, MOST_BYTES = 400_000, 1_600_000
"""The details of the worst profiles are whole, in so many bytes; those of others compact, in so
many in all. The rest are rows of the table alone."""
_MOST_ROWS, _MOST_CAUSES = 40, 3
"""Rows of a group that are seen at once, where it has no number of its own: the script has a button
for the others. Causes of a row."""
_LONGEST_OF_ALL = 2_000
_IN_TEMPLATE = (
    *(mark, word_of, cause_lines, parts_of, format_time, cut),
    *(table, comparison_table, comparison_notes, comparison_line),
)


def html_of(run: Run) -> str:
    """Return the run as one HTML page, which loads nothing from anywhere."""
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
        most_rows=_MOST_ROWS,
        most_causes=_MOST_CAUSES,
        names=names,
        data=data,
        **_assets(),
    )


@functools.cache
def _templates() -> jinja2.Environment:
    found = jinja2.Environment(
        loader=jinja2.PackageLoader("pytest_kernelprof.report.html", ""),
        autoescape=True,
        finalize=_harmless,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for one in _IN_TEMPLATE:
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


def _groups(summary: Summary) -> Iterator[Group]:
    """All that ran and all that is wrong, in the order of the page: each profile by itself, where
    the terminal folds those that agree."""
    found = listed(summary, unfolded=True)
    problems = tuple(
        replace(problem, rows=tuple(each for row in problem.rows for each in row.each))
        for problem in summary.problems
    )
    changed = [each for row in found.changed for each in row.each]
    yield from groups_of(replace(summary, problems=problems), changed, found.rows)
    yield Group("not judged", [(one, one.causes) for one in summary.left_out])


class _Table:
    """The tests on one kind of device.

    Attributes:
        on_cpu: whether that is the CPU.
        groups: their headings, each with its rows.
        columns: after the name of the test.
    """

    def __init__(self, kind: str, groups: Sequence[Group]) -> None:
        self.on_cpu, self.groups = kind == "cpu", groups
        rows = [one for group in groups for one, _ in group.entries if isinstance(one, Row)]
        self.columns = columns_of(rows, verbose=False) if rows else []
        cells = zip(*(one.cells for one in self.columns), strict=True)
        self._cells = dict(zip(map(id, rows), cells, strict=True))

    def cells(self, one: Entry) -> Iterator[tuple[Column, Html]]:
        """The columns with the cells of a row: empty ones where it has no profile."""
        blank = ("",) * len(self.columns)
        for column, words in zip(self.columns, self._cells.get(id(one), blank), strict=True):
            is_change = ARROW in words or column.key == "change"
            is_bad = " > " in words or (is_change and one.told == "failed")
            told = text(words.replace(ARROW, " → "))
            yield column, element("b", told, "x-bad") if is_bad else told

    def more(self, one: Entry, causes: Sequence[Cause]) -> str:
        """What is wrong or changed in a row and is not in its cells or first causes."""
        left = len(causes) - _MOST_CAUSES
        more = [f"and {left} more"] if left > 0 else []
        if isinstance(one, Row):
            more += beside_words(one, {column.key for column in self.columns})
        return "; ".join(more)


def _tables(summary: Summary) -> Iterator[_Table]:
    """A table of the tests on a GPU, and one of those on the CPU; tests without a profile are in
    the first."""
    ran_on = {row.profile.environment.kind for row in summary.rows}
    kinds: list[str] = [kind for kind in ("cuda", "cpu") if kind in ran_on] or [""]
    groups = list(_groups(summary))
    for kind in kinds:
        ours = [group.on((kind, "") if kind == kinds[0] else (kind,)) for group in groups]
        if shown := [group for group in ours if group.entries]:
            yield _Table(kind, shown)


class _Tests:
    """The tables of tests, for the template.

    Attributes:
        titles: the headings of sections, by the kind of their groups.
        marks: how many rows have each mark. number: of rows. without: how many have no detail.
    """

    def __init__(self, summary: Summary, detailer: Detailer) -> None:
        self._marked, self._detailer = summary.counts.marked, detailer
        self._size = self._details = self.without = 0
        self.tables = list(_tables(summary))
        groups = [group for table in self.tables for group in table.groups]
        marks = Counter(self.mark_of(one) for group in groups for one, _ in group.entries)
        self.marks = [(told, marks[told]) for told in MARKS if marks[told]]
        self.number = marks.total()
        self.titles = {
            "look": "What needs a look",
            "changed": f"What changed against {' and '.join(one.base for one in summary.compared)}",
            "other": "All other tests" if groups and groups[0].kind != "other" else "Tests",
            "not judged": "Not judged",
        }

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
            found, drawn = self._detailer.compact(one.profile), 0
        else:
            found, drawn = self._detailer.whole(one.profile, place)
        self._size += len(found) + drawn
        return place, found
