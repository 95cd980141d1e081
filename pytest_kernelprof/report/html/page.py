"""The page: what the digest says, each profile in detail, styles and script in the one file."""

from __future__ import annotations

import base64
import functools
import hashlib
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any

from pytest_kernelprof.errors import KernelprofError
from pytest_kernelprof.report.html.cases import ALL, LESS, case_of
from pytest_kernelprof.report.html.kernel_names import FullNames, cut, family_of
from pytest_kernelprof.report.html.tests_table import table_rows, to_look_at
from pytest_kernelprof.summary.comparisons import (
    RESULTS,
    deltas_of,
    range_words,
    result_of,
    share_of,
    why_of,
)
from pytest_kernelprof.summary.records import MARKS, NEEDS_A_LOOK
from pytest_kernelprof.summary.run import listed, summary_of
from pytest_kernelprof.summary.words import (
    count_words,
    is_judged,
    parts_of,
    percent_words,
)
from pytest_kernelprof.units import format_bytes, format_time, printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import jinja2

    from pytest_kernelprof.report.html.drawing import ScriptData
    from pytest_kernelprof.report.html.tests_table import Look
    from pytest_kernelprof.schema.run import Run
    from pytest_kernelprof.summary.records import Row
    from pytest_kernelprof.summary.run import Summary

MOST_BYTES_OF_DETAILS = 12_000_000
"""Details of so much text are on a page, the worst first; the others are rows of its table."""
_FEW = 100
"""Of so few profiles all is told, of more only of those that need a look."""
_MOST_HOT = 12
_MOST_ADVISED = 20
_MOST_CHANGED = 100
_LONGEST = 400
_LONGEST_OF_ALL = 2_000


class NoTemplatesError(KernelprofError):
    """Jinja2 is not installed, without which no page can be made."""


def html_of(run: Run) -> str:
    """The run as one HTML page, which loads nothing from anywhere.

    Raises:
        NoTemplatesError: Jinja2 is not installed.
    """
    templates = _templates()
    from pytest_kernelprof.report.html.drawing import ScriptData

    digest = summary_of(run)
    rows = digest.rows
    names, data = FullNames(), ScriptData()
    details = _details(rows, templates, names, data)
    places = [f"p{i}" if i < len(details) else "" for i in range(len(rows))]
    title, _, lede = digest.sentence.partition("; ")
    if digest.open:  # the first line says what was not judged
        title, lede = digest.sentence, ""
    looks, more_looks = _looks(digest, rows, places)
    return templates.get_template("page.html.j2").render(
        title=title.rstrip("."),
        lede=lede[:1].upper() + lede[1:],
        digest=digest,
        run=run,
        **_assets(),
        bar_parts=_bar(digest),
        looks=looks,
        more_looks=more_looks,
        facts=list(_facts(digest, run)),
        compared=[(one, _changed(digest, rows, places)) for one in digest.compared],
        most_changed=_MOST_CHANGED,
        rows=table_rows(rows, places),
        chips=_chips(rows),
        details=details,
        without_details=len(rows) - len(details),
        hottest=list(_hottest(digest, names)),
        more_hot=max(0, len(digest.hottest) - _MOST_HOT),
        advised=list(_advised(digest)),
        comparisons=list(_comparisons(run)),
        integrity=digest.integrity,
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

    found = jinja2.Environment(
        loader=jinja2.PackageLoader("pytest_kernelprof.report.html", ""),
        autoescape=True,
        finalize=_harmless,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters.update(
        time=format_time,
        size=format_bytes,
        counted=count_words,
        breakable=_breakable,
        percent=percent_words,
    )
    return found


def _harmless(value: Any) -> Any:
    """Text in which nothing is left that a browser does not show (control characters, marks that
    turn the direction of writing), without the middle of what nobody reads to its end. What is
    markup in it is escaped later."""
    return printable(cut(value, _LONGEST_OF_ALL)) if type(value) is str else value


def _breakable(words: str) -> Any:
    """A long name that may go on in the next line after each underscore."""
    from markupsafe import Markup, escape

    return Markup("_<wbr>").join(map(escape, str(_harmless(words)).split("_")))


@functools.cache
def _text(name: str) -> str:
    file = resources.files("pytest_kernelprof.report.html") / name
    return file.read_text(encoding="utf-8").strip()


def _assets() -> dict[str, Any]:
    """Style and script, which nothing escapes, and what the page's policy knows them by."""
    from markupsafe import Markup

    files = {"style": "style.css", "script": "script.js"}
    texts = {what: Markup(_text(name)) for what, name in files.items()}
    return {**texts, **{f"{what}_hash": _hash(name) for what, name in files.items()}}


def _hash(name: str) -> Any:
    from markupsafe import Markup

    digest = hashlib.sha256(_text(name).encode()).digest()
    return Markup(f"'sha256-{base64.b64encode(digest).decode()}'")


def _details(
    rows: Sequence[Row],
    templates: jinja2.Environment,
    names: FullNames,
    data: ScriptData,
) -> list[Any]:
    """The details of rows from the first, as far as they go on a page."""
    from markupsafe import Markup

    is_short = len(rows) <= _FEW
    template = templates.get_template("case.html.j2")
    found: list[Any] = []
    size = 0
    for i, row in enumerate(rows):
        amount = ALL if is_short or row.told in NEEDS_A_LOOK else LESS
        case = case_of(row, f"p{i}", amount, names, data)
        found.append(Markup(template.render(case=case, is_open=i == 0 and case.mark.tone == "bad")))
        size += len(found[-1]) + (case.round.data_bytes if case.round else 0)
        if size > MOST_BYTES_OF_DETAILS:
            break
    return found


@dataclass(frozen=True, slots=True)
class _Part:
    """A piece of the bar: how many tests, where it lies in 1,000."""

    tone: str
    word: str
    number: int
    left: float
    width: float


def _bar(digest: Summary) -> list[_Part]:
    """The tests by how they fared, worst first."""
    told = {mark: digest.counts.told.get(mark, 0) for mark in MARKS if mark is not None}
    numbers = {MARKS[mark]: number for mark, number in told.items()}
    numbers[MARKS[None]] = digest.counts.tests - sum(told.values())
    left, parts = 0.0, []
    for mark, number in numbers.items():
        if number:
            width = number / digest.counts.tests * 1000
            parts.append(_Part(mark.tone, mark.word, number, round(left, 1), round(width, 1)))
            left += width
    return parts


def _looks(digest: Summary, rows: Sequence[Row], places: Sequence[str]) -> tuple[list[Look], int]:
    place_of = {id(row.profile): place for row, place in zip(rows, places, strict=True)}
    found = [row for problem in digest.problems for row in problem.rows]
    return to_look_at(found, [place_of.get(id(getattr(r, "profile", None)), "") for r in found])


def _chips(rows: Sequence[Row]) -> list[tuple[str, str, str, int]]:
    """What the table can be filtered by: sign, word, tone, number of rows."""
    return [
        (mark.sign, mark.word, mark.tone, number)
        for told, mark in MARKS.items()
        if (number := sum(row.told == told for row in rows))
    ]


def _facts(digest: Summary, run: Run) -> Iterator[tuple[str, str]]:
    yield from digest.facts.items()


def _changed(found: Summary, rows: Sequence[Row], places: Sequence[str]) -> list[dict[str, Any]]:
    """What is not as it was, and where its profile stands on the page."""
    of = {id(row.profile): place for row, place in zip(rows, places, strict=True)}
    changed: list[Any] = [
        one
        for one in (*(r for p in found.problems for r in p.rows), *listed(found).changed)
        if getattr(one, "comparison", None) is not None
    ]
    return [
        {
            "name": cut(one.name, _LONGEST),
            "place": of.get(id(one.profile), ""),
            "mark": RESULTS[result_of(one.comparison)],
            "kernels": deltas_of(one.comparison).get("kernels"),
            "gpu_time": deltas_of(one.comparison).get("cuda_time"),
            "share": share_of(one.comparison),
            "range": range_words(one.comparison),
            "reasons": why_of(one.comparison),
        }
        for one in changed[:_MOST_CHANGED]
    ]


def _hottest(digest: Summary, names: FullNames) -> Iterator[dict[str, Any]]:
    most = digest.hottest[0].us if digest.hottest else 0.0
    for one in digest.hottest[:_MOST_HOT]:
        yield {
            "kernel": one,
            "full": names.place_of(one.full) if one.full != one.name else 0,
            "family": family_of(one.full),
            "bar": round(max(one.us / most * 56, 0.8), 1) if most else 0.0,
        }


def _advised(digest: Summary) -> Iterator[tuple[str, str, str]]:
    for one in digest.hints[:_MOST_ADVISED]:
        yield cut(one.test, _LONGEST), cut(one.limit, _LONGEST), f"{one.kind}: {one.words}"


def _comparisons(run: Run) -> Iterator[dict[str, Any]]:
    """Callables that tests measured in turn, each with its interval on one scale."""
    from pytest_kernelprof.report.comparison import check_lines
    from pytest_kernelprof.summary.verdicts import comparison_line

    for test in run.tests:
        for one in test.comparisons:
            top = max((c.high or c.value for c in one.contestants), default=0.0) * 1.05 or 1.0
            yield {
                "test": cut(parts_of(test.id)[1], _LONGEST),
                "comparison": one,
                "form": format_bytes if one.metric == "peak_memory" else format_time,
                "top": top,
                "said": [
                    (MARKS[v.outcome], cut(comparison_line(one, v), _LONGEST))
                    for v in one.verdicts
                    if is_judged(v)
                ],
                "checks": [cut(line, _LONGEST) for line in check_lines(one)],
            }
