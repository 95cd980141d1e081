"""A run as GitHub's Markdown: the verdict, what is broken and why, what changed; details folded."""

from __future__ import annotations

import os
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from pytest_kernelprof.report.baselines import turns_words
from pytest_kernelprof.report.comparison import ending_words
from pytest_kernelprof.report.gfm import code, details, fence, line, row, tag_text, text
from pytest_kernelprof.report.kernel_tables import kernel_table
from pytest_kernelprof.report.ranks import RankTable, ranks_told
from pytest_kernelprof.report.snapshots import (
    accept_words,
    changed_lines_of,
    line_changes,
    line_of_run,
)
from pytest_kernelprof.schema.snapshot import TEST_STATES
from pytest_kernelprof.summary.comparisons import (
    RESULTS,
    digests_of,
    name_of,
    percent_words,
    range_words,
    reasons_of,
    result_of,
    share_of,
    values_of,
)
from pytest_kernelprof.summary.findings import findings_of
from pytest_kernelprof.summary.new_kernels import new_kernels
from pytest_kernelprof.summary.records import FAILED_OTHERWISE, NEEDS_A_LOOK, severity
from pytest_kernelprof.summary.totals import integrity_line
from pytest_kernelprof.summary.whole import summary_of
from pytest_kernelprof.summary.words import count_words, judged_rank, line_words, parts_of
from pytest_kernelprof.units import format_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pytest_kernelprof.schema.comparison import ProfileComparison
    from pytest_kernelprof.schema.run import Cause, Profile, Run, Verdict
    from pytest_kernelprof.schema.snapshot import SnapshotReport
    from pytest_kernelprof.summary.comparisons import BaselineDigest
    from pytest_kernelprof.summary.records import Ending, Found, Overall, Row, Summary, Told

LIMIT = 200_000
"""So many bytes: a step's summary on GitHub has room for 1 MiB, and several may share it."""

_BROKEN, _DOUBTED, _WELL = "❌", "⚠️", "✅"
_MARKS: Mapping[Told, str] = {
    one: _BROKEN if one in ("failed", *FAILED_OTHERWISE) else _DOUBTED for one in NEEDS_A_LOOK
}
_OVERALL: Mapping[Overall, str] = {
    "failed": _BROKEN,
    "undecided": _DOUBTED,
    "passed": _WELL,
    "not judged": "",
}
_MOST_CAUSES, _LONGEST_CAUSE = 3, 240
_FOR_THE_CUT = 400
_TITLES = [row("", "test", "limit", "measured", "allowed", "cause"), "|:-:|---|---|--:|--:|---|"]
_CHANGE_TITLES = [
    row("result", "test", "kernels", "GPU time", "range", "cause"),
    "|---|---|--:|--:|--:|---|",
]


class _Body(NamedTuple):
    """What can be cut, each from its end, in the order of their weight.

    Attributes:
        rows: lines of the table. worse, others: of the tables of changes, each with the number of
            its baseline.
        details: what makes the lines of each.
    """

    rows: list[str]
    worse: list[tuple[int, str]]
    details: list[Callable[[], list[str]]]
    others: list[tuple[int, str]]


def markdown_of(run: Run, limit: int = LIMIT) -> str:
    """The whole file; where nothing is broken and nothing changed, two lines.

    Args:
        limit: so many bytes at most. What matters least is cut: of what changed, what did not get
            worse, then details and rows from the least bad upward. A line says how much.
    """
    digest, compared = summary_of(run), digests_of(run)
    marked = _marked(digest)
    endings = list(map(_ending_row, digest.endings))
    foot = f"<sub>{' · '.join(map(text, (*digest.places, integrity_line(digest.trust))))}</sub>"
    verdict = ["###", _OVERALL[digest.overall], text(digest.sentence.removesuffix("."))]
    head = [" ".join(filter(None, verdict)), ""]
    first = " ".join(_sentences(run, digest, compared))
    of_ranks = [row for row in digest.folded if row.profile.other_ranks]
    stale = [(one.id, one.snapshot) for one in run.tests if one.snapshot and one.snapshot.changes]
    changed_base = [one for one in compared if one.rows]
    listed = (marked, endings, of_ranks, stale, changed_base, digest.unfinished)
    if not any(listed):
        return "\n".join([*head, f"{first} {foot}", ""])
    changed = [(i, one) for i, base in enumerate(compared) for one in base.rows]
    body = _Body(
        rows=[*(told for one in marked for told in _rows(one)), *endings],
        worse=[(i, _change_row(one)) for i, one in changed if result_of(one) == "worse"],
        details=[
            *_details(marked, run),
            *(partial(_ranks_detail, one) for one in of_ranks),
            *(partial(_stale_detail, *one) for one in stale),
        ],
        others=[(i, _change_row(one)) for i, one in changed if result_of(one) != "worse"],
    )
    head += [first, ""]
    room = limit - sum(map(_size, (*head, foot))) - _FOR_THE_CUT
    return "\n".join([*head, *_fitted(body, compared, room), foot, ""])


def _marked(digest: Summary) -> list[Row]:
    """The rows that somebody should look at, in the order of the terminal, but worst first over
    all files."""
    rows = [one for one in digest.folded if one.told in _MARKS]
    return sorted(rows, key=lambda one: severity(one.told))


def _sentences(run: Run, digest: Summary, compared: Sequence[BaselineDigest]) -> Iterator[str]:
    """What there is in all, what changed, and what is not as it should be."""
    totals = digest.totals
    told = []
    if totals.kernels or not totals.operators:
        told.append(count_words(totals.kernels, "kernel"))
    if totals.operators:
        told.append(f"{count_words(totals.operators, 'operator')} on the CPU")
    if totals.gpu_us is not None:
        told.append(f"{format_time(totals.gpu_us)} on the GPU")
    if totals.comm_us:
        told.append(f"{format_time(totals.comm_us)} communicating")
    yield f"{', '.join(told)}."
    for one in compared:
        yield f"Against {code(one.base)}: {text(one.told)}."
    if snapshots := line_of_run(run):
        yield f"{text(snapshots[0].upper() + snapshots[1:])}."
    if digest.unfinished:
        yield f"**Unfinished:** tests may be missing: {text('; '.join(digest.unfinished))}."


def _ending_row(one: Ending) -> str:
    """The row of a test without a profile, or of a comparison that is not as asserted."""
    mark = _MARKS.get(one.found.told, _DOUBTED)
    return _row(mark, _named(one.file, one.name), one.found, text(ending_words(one)))


def _rows(one: Row) -> Iterator[str]:
    """A line for each limit that is broken, each with its causes; what is of none stands in the
    first."""
    findings, named = findings_of(one), _named(one.file, one.name)
    causes: dict[int, list[Cause]] = {}
    for cause in one.causes:
        of = (i for i, found in enumerate(findings) if _is_about(cause, found))
        causes.setdefault(next(of, 0), []).append(cause)
    for i, found in enumerate(findings):
        mark, told = _MARKS.get(found.told, _DOUBTED), _causes(causes.get(i, []), found)
        yield _row(mark, named, found, told)


def _is_about(cause: Cause, found: Found) -> bool:
    """A cause that no cell of the terminal's table tells says its limit first."""
    return bool(found.limit) and cause.text.startswith(f"{found.limit}: ")


def _causes(causes: Sequence[Cause], found: Found) -> str:
    """Without what stands in the cells beside them."""
    told = []
    for cause in causes[:_MOST_CAUSES]:
        words = cause.text.removeprefix(found.words).removeprefix("; ")
        if _is_about(cause, found):
            words = words.removeprefix(f"{found.limit}: ")
        place = line_words(cause.place)
        whole = ", ".join(filter(None, [f"{cause.sign}{words}", place]))
        told.append(line(whole, _LONGEST_CAUSE))
    left = len(causes) - len(told)
    told += [f"{left} more"] if left > 0 else []
    return text("; ".join(filter(None, told)), 2 * _MOST_CAUSES * _LONGEST_CAUSE)


def _row(mark: str, named: str, found: Found, cause: str) -> str:
    limit, measured, allowed = map(text, (found.limit, found.measured + found.where, found.allowed))
    return row(mark, named, limit, measured, allowed, cause)


def _named(file: str, name: str) -> str:
    return " ".join(filter(None, [code(os.path.basename(file)), f"**{text(name)}**"]))


def _details(marked: Sequence[Row], run: Run) -> list[Callable[[], list[str]]]:
    """What unfolds, of rows whose cause does not say all."""
    snapshots = {test.id: test.snapshot for test in run.tests}
    found: list[Callable[[], list[str]]] = []
    for one in marked:
        inside = _inside(one)
        if inside is not None:
            found.append(partial(_detail, one, inside, snapshots[one.test]))
    return found


def _detail(one: Row, inside: Callable[[], list[str]], taken: SnapshotReport | None) -> list[str]:
    words = "; ".join(found.words for found in findings_of(one))
    accept = ["", text(accept_words(one.test, taken.device))] if taken and taken.accepts else []
    return details(f"<b>{tag_text(one.name)}</b>: {tag_text(words)}", [*inside(), *accept])


def _stale_detail(test: str, one: SnapshotReport) -> list[str]:
    """The kernels that differ from a snapshot that fails nothing."""
    summary = f"<b>{tag_text(parts_of(test)[1])}</b>: snapshot {TEST_STATES[one.state or 'same']}"
    return details(summary, fence(line_changes(one.changes), "diff"))


def _ranks_detail(one: Row) -> list[str]:
    """A row a rank, a total, and who waits for whom."""
    told = ranks_told(one.profile)
    table, sentences = told if told is not None else (RankTable((), ()), ())
    lines = [row(*map(text, cells.cells)) for cells in table.rows]
    rule = "|" + "|".join(["---", *["--:"] * (len(table.titles) - 1)]) + "|"
    said = [line for words in sentences for line in ("", text(words))]
    number = count_words(len(one.profile.ranks), "rank")
    summary = f"<b>{tag_text(one.name)}</b>: {number}"
    return details(summary, [row(*map(text, table.titles)), rule, *lines, *said])


def _inside(one: Row) -> Callable[[], list[str]] | None:
    """The kernels that came and went, where there is something to compare with; else those that
    there are."""
    over = [verdict for verdict in one.profile.verdicts if verdict.outcome == "failed"]
    known = one.profile.kernels or any(verdict.comparison for verdict in over)
    return partial(_kernels, one.profile, over) if over and known else None


def _kernels(profile: Profile, over: Sequence[Verdict]) -> list[str]:
    """The table of the failure's message; where it cannot say which of its kernels came, what came
    and went alone."""
    found = [verdict.comparison for verdict in over if verdict.comparison is not None]
    times = [text(words) for one in found if one.paired for words in [turns_words(one.paired)]]
    below = [line for words in times if words for line in ("", words)]
    new = new_kernels(profile)
    if new is not None and profile.kernels:
        told = [f"  against {new.since}", *kernel_table(profile, new=new)]
        return [*fence(told, "diff"), *below]
    for one in found:
        if one.kernels is not None:
            return [*fence(changed_lines_of(one), "diff"), *below]
    judged = judged_rank(profile, over[0])
    of_rank = [f"kernels of rank {judged.rank}:"] if profile.other_ranks else []
    return fence([*of_rank, *kernel_table(judged)], "text")


def _change_row(one: ProfileComparison) -> str:
    delta, share = values_of(one).get("kernels"), share_of(one)
    kernels = ""
    if delta is not None and delta.current is not None:
        sides = (delta.baseline, delta.current)
        kernels = " → ".join(dict.fromkeys(f"{value:.0f}" for value in sides if value is not None))
    return row(
        text(RESULTS[result_of(one)].word),
        _named(*parts_of(name_of(one))),
        kernels,
        "" if share is None else percent_words(share),
        text(range_words(one)),
        text(reasons_of(one), 2 * _MOST_CAUSES * _LONGEST_CAUSE),
    )


def _fitted(body: _Body, compared: Sequence[BaselineDigest], room: int) -> Iterator[str]:
    """As much as there is room for, the weightiest first."""
    folded = [
        details(f"What changed against {tag_text(one.base)}: {tag_text(one.words)}", _CHANGE_TITLES)
        if one.rows
        else []
        for one in compared
    ]
    room -= sum(map(_size, (*_TITLES, *chain(*folded))))
    rows, room = _as_many(([one] for one in body.rows), room)
    worse, room = _as_many(([one] for _, one in body.worse), room)
    unfolding, room = _as_many((make() for make in body.details), room)
    others, room = _as_many(([one] for _, one in body.others), room)
    if rows:
        yield from (*_TITLES, *chain(*rows), "")
    yield from chain(*unfolding)
    changed = (*body.worse[: len(worse)], *body.others[: len(others)])
    for number, frame in enumerate(folded):
        inside = [one for i, one in changed if i == number]
        yield from (*frame[:-3], *inside, *frame[-3:]) if inside else ()
    left = {
        "row": len(body.rows) - len(rows),
        "detail": len(body.details) - len(unfolding),
        "change": len(body.worse) + len(body.others) - len(worse) - len(others),
    }
    if told := ", ".join(count_words(n, what) for what, n in left.items() if n):
        yield from (f"and {told} more, left out for their size.", "")


def _as_many(blocks: Iterable[list[str]], room: int) -> tuple[list[list[str]], int]:
    """The first blocks that there is room for, and what is left of it: nothing once one did not
    fit."""
    kept: list[list[str]] = []
    for block in blocks:
        size = sum(map(_size, block))
        if size > room:
            return kept, 0
        kept.append(block)
        room -= size
    return kept, room


def _size(told: str) -> int:
    return len(told.encode()) + 1
