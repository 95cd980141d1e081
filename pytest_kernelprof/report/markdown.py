"""A run as GitHub's Markdown: the verdict, where and what to do, a row a test, details folded."""

from __future__ import annotations

import html
import os
import re
from functools import partial
from typing import TYPE_CHECKING

from pytest_kernelprof.report.kernel_tables import kernel_lines, kernel_table
from pytest_kernelprof.summary.comparisons import (
    RESULTS,
    deltas_of,
    differs,
    range_words,
    result_of,
    share_of,
    why_of,
)
from pytest_kernelprof.summary.kernels import guilty_kernels, new_kernels
from pytest_kernelprof.summary.ranks import ranks_told
from pytest_kernelprof.summary.records import NEEDS_A_LOOK, Row
from pytest_kernelprof.summary.run import listed, summary_of
from pytest_kernelprof.summary.verdicts import turns_words
from pytest_kernelprof.summary.words import count_words, judged_rank, line_words, percent_words
from pytest_kernelprof.units import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pytest_kernelprof.schema.run import Cause, Profile, Run, Verdict
    from pytest_kernelprof.summary.comparisons import BaselineSummary
    from pytest_kernelprof.summary.records import Entry, Overall, Problem
    from pytest_kernelprof.summary.run import Summary

LIMIT = 200_000
"""So many bytes: a step's summary on GitHub has room for 1 MiB, and several may share it."""

_SIGNS: Mapping[Overall, str] = {
    "failed": "❌",
    "undecided": "⚠️",
    "passed": "✅",
    "not judged": "",
}
_MOST_TESTS, _MOST_NOTES, _MOST_CAUSES = 8, 10, 3
_LONGEST_CAUSE, _LONGEST_NOTE = 240, 2000
_FOR_THE_CUT = 400
_TITLES = ["| | test | cause | exceeded or changed |", "|:-:|---|---|---|"]


def markdown_of(run: Run, limit: int = LIMIT) -> str:
    """The whole file; where nothing is wrong and nothing changed, a few lines.

    Args:
        limit: so many bytes at most. What matters least is cut: what changed and needs no look,
            then details and rows from the least bad upward. A line says how much.
    """
    summary = summary_of(run)
    changed = listed(summary).changed
    foot = f"<sub>{' · '.join(map(text, (*summary.places, summary.integrity)))}</sub>"
    head = [*_head(summary), *(line for one in summary.compared for line in _against(one))]
    room = limit - sum(map(_size, (*head, foot, *_TITLES, *_TITLES))) - _FOR_THE_CUT
    rows, room, left = _as_many(([row] for one in summary.problems for row in _rows(one)), room)
    makers = _details(summary)
    makers += [partial(_ranks_detail, one) for one in _of_ranks(summary)]
    unfolding, room, more = _as_many((make() for make in makers), room)
    others, room, less = _as_many(([_changed_row(one)] for one in changed), room)
    told = [*head, *([*_TITLES, *rows, ""] if rows else []), *unfolding]
    if others:
        told += details(f"{count_words(len(changed), 'more profile')} changed", [*_TITLES, *others])
    cut = {"row": left, "detail": more, "change": less}
    if words := ", ".join(count_words(n, what) for what, n in cut.items() if n):
        told += [f"and {words} more, left out for their size.", ""]
    return "\n".join([*told, foot, ""])


def _head(summary: Summary) -> Iterator[str]:
    """The verdict, where and what to do; the totals; what is not as it should be."""
    sentence = text(summary.sentence.removesuffix("."), _LONGEST_NOTE)
    yield " ".join(filter(None, ["###", _SIGNS[summary.overall], sentence]))
    yield ""
    if summary.where:
        yield f"**Where:** {text(summary.where, _LONGEST_NOTE)}"
        yield ""
    for remedy in summary.todo:
        yield f"**To do:** {text(remedy.what)}: {code(remedy.command, _LONGEST_NOTE)}"
        yield ""
    facts = [summary.facts[one] for one in ("suite", "CPU") if one in summary.facts]
    if snapshots := summary.facts.get("snapshots"):
        facts.append(f"snapshots: {snapshots}")
    for why in summary.run.unfinished:
        yield f"**Unfinished:** tests may be missing: {text(why)}."
        yield ""
    if facts:
        yield f"{text('; '.join(facts))}."
        yield ""


def _against(one: BaselineSummary) -> Iterator[str]:
    yield f"Against {code(one.base)}: {text(one.words, _LONGEST_NOTE)}."
    yield ""
    notes = [f"not compared: {words}" for words in one.uncompared[:_MOST_NOTES]]
    notes += one.notes[:_MOST_NOTES]
    if notes:
        yield from (*(f"- {text(words, _LONGEST_NOTE)}" for words in notes), "")


def _rows(problem: Problem) -> Iterator[str]:
    """A row a test, a few of those with one cause; the first of them has it."""
    shared = problem.tests > 1 and len(problem.rows) > 1
    for at, one in enumerate(problem.rows[:_MOST_TESTS]):
        causes = list(map(_cause, one.causes[1 if shared else 0 :]))
        if shared and problem.cause is not None:
            number = f"{count_words(problem.tests, 'test')}: "
            causes.insert(0, "as above" if at else number + _cause(problem.cause))
        exceeded = "; ".join(one.found)
        if isinstance(one, Row) and not exceeded:
            exceeded = "; ".join(_delta_words(one)) or "other kernels than in the snapshot"
        yield row(_sign(one), _named(one), _joined(causes), text(exceeded, _LONGEST_NOTE))
    more = sum(len(one.each) for one in problem.rows[_MOST_TESTS:])
    if more:
        yield row("", f"and {count_words(more, 'more profile')}", "as above", "")


def _changed_row(one: Row) -> str:
    """Of a profile that differs from its baseline, and needs no look."""
    assert one.comparison is not None  # it differs from something
    result = RESULTS[result_of(one.comparison)].word
    told = "; ".join(filter(None, [result, *_delta_words(one), why_of(one.comparison)]))
    causes = _joined(list(map(_cause, one.causes)))
    return row("", _named(one), causes, text(told, _LONGEST_NOTE))


def _delta_words(one: Row) -> Iterator[str]:
    """What the baseline has another value of: ``kernels 3 → 4``, ``GPU time +8.4 %``."""
    compared = one.comparison
    if compared is None:
        return
    delta = deltas_of(compared).get("kernels")
    if delta is not None and differs(delta) and delta.baseline is not None:
        yield f"kernels {delta.baseline:.0f} → {delta.current or 0:.0f}"
    share = share_of(compared)
    if share is not None:
        yield f"GPU time {range_words(compared) or percent_words(share)}"


def _sign(one: Entry) -> str:
    if one.told == "undecided" or one.told not in NEEDS_A_LOOK:
        return "⚠️"
    return "❌" if one.failed or one.told == "failed" else "⚠️"


def _cause(one: Cause) -> str:
    words = ", ".join(filter(None, [f"{one.sign}{one.text}", line_words(one.place)]))
    return line(words, _LONGEST_CAUSE)


def _joined(causes: Sequence[str]) -> str:
    told = list(causes[:_MOST_CAUSES])
    told += [f"{len(causes) - len(told)} more"] if len(causes) > len(told) else []
    return text("; ".join(filter(None, told)), 2 * _MOST_CAUSES * _LONGEST_CAUSE)


def _named(one: Entry) -> str:
    return " ".join(filter(None, [code(os.path.basename(one.file)), f"**{text(one.name)}**"]))


def _of_ranks(summary: Summary) -> list[Row]:
    return [one for one in summary.folded if one.profile.other_ranks]


def _details(summary: Summary) -> list[Callable[[], list[str]]]:
    """What unfolds: of each cause the kernels of its first test."""
    found: list[Callable[[], list[str]]] = []
    for problem in summary.problems:
        one = problem.rows[0]
        if isinstance(one, Row) and one.told in ("failed", "passed"):
            inside = partial(_kernels, one.profile)
            found.append(partial(_detail, problem, one, inside))
    return found


def _detail(problem: Problem, one: Row, inside: Callable[[], list[str]]) -> list[str]:
    words = "; ".join(one.found) or "outdated snapshot"
    remedy = problem.remedy
    told = f"{text(remedy.what)}: {code(remedy.command, _LONGEST_NOTE)}" if remedy else ""
    below = ["", told] if told else []
    return details(f"<b>{tag_text(one.name)}</b>: {tag_text(words)}", [*inside(), *below])


def _kernels(profile: Profile) -> list[str]:
    """The table of the failure's message; where it cannot say which of its kernels came, what came
    and went alone."""
    found = [one.comparison for one in profile.verdicts if one.comparison is not None]
    times = filter(None, map(turns_words, found))
    below = [told for words in times for told in ("", text(words))]
    new = new_kernels(profile)
    if new is not None and profile.kernels:
        told = [f"  against {new.since}", *kernel_table(profile, new=new).lines()]
        return [*fence(told, "diff"), *below]
    for one in found:
        if one.change != "same" and one.kernels is not None and one.kernels.changes:
            return [*fence(kernel_lines(one), "diff"), *below]
    over: list[Verdict] = [one for one in profile.verdicts if one.outcome == "failed"]
    judged = judged_rank(profile, over[0]) if over else profile
    of_rank = [f"kernels of rank {judged.rank}:"] if profile.other_ranks else []
    table = kernel_table(judged, guilty=guilty_kernels(profile, judged)).lines()
    return fence([*of_rank, *table], "text") if judged.kernels else below


def _ranks_detail(one: Row) -> list[str]:
    """A row a rank, a total, and who waits for whom."""
    told = ranks_told(one.profile)
    if told is None:
        return []
    table, sentences = told
    rule = "|" + "|".join(["---", *["--:"] * (len(table.titles) - 1)]) + "|"
    lines = [row(*map(text, cells.cells)) for cells in table.rows]
    said = [part for words in sentences for part in ("", text(words))]
    summary = f"<b>{tag_text(one.name)}</b>: {count_words(len(one.profile.ranks), 'rank')}"
    return details(summary, [row(*map(text, table.titles)), rule, *lines, *said])


def _as_many(blocks: Iterable[list[str]], room: int) -> tuple[list[str], int, int]:
    """The lines of the first blocks that there is room for, what is left of it (nothing once one
    did not fit), and how many blocks were cut."""
    kept: list[str] = []
    left = 0
    for block in blocks:
        size = sum(map(_size, block))
        if left or size > room:
            left, room = left + 1, 0
        else:
            kept += block
            room -= size
    return kept, room, left


def _size(told: str) -> int:
    return len(told.encode()) + 1


# Text that is seen as it is, whatever it holds, and nobody notified by it.

MOST = 300
"""So many characters of one text are told; of longer ones both ends."""

_UNSEEN = "\u200c"
"""Of no width: what it stands in is no name, number or link to GitHub."""
# What begins or ends something in a line, an underscore inside of a word apart. A dollar sign
# would begin a formula, which no backslash keeps it from.
_ACTIVE = re.compile(r"[\\`*\[\]|~]|(?<![^\W_])_|_(?![^\W_])")
# What GitHub links, pictures or notifies: people and teams, issues, emoji, addresses.
_LINKED = re.compile(
    r"""[@\#](?=\w)
    | \bGH-(?=\d)
    | (?<!:):(?=[\w+-]+:(?!:))
    | \b(?:https?|ftp|mailto|xmpp):
    | \bwww(?=\.)""",
    re.IGNORECASE | re.VERBOSE,
)
_PLAIN_CODE = re.compile(
    r"[\w./:,=()+*#@%!?<>&'\"\[\]{}~-]+(?: [\w./:,=()+*#@%!?<>&'\"\[\]{}~-]+)*"
)


def line(words: str, most: int = MOST) -> str:
    """Words in one line of glyphs, of a bounded length."""
    if len(words) > most:
        words = f"{words[: most // 2]}…{words[-(most // 2) :]}"
    return printable(re.sub(r"[ \t\r\n]+", " ", words)).strip()


def text(words: str, most: int = MOST) -> str:
    """Words in a paragraph, a heading or a cell."""
    told = line(words, most).replace("&", "&amp;").replace("<", "&lt;")
    told = _ACTIVE.sub(r"\\\g<0>", told).replace("$", "<span>$</span>")
    return _unlinked(told)


def tag_text(words: str, most: int = MOST) -> str:
    """Words between tags of HTML, where no Markdown is read."""
    return _unlinked(html.escape(line(words, most), quote=False))


def code(words: str, most: int = MOST) -> str:
    """Words as code, in a paragraph or a cell; nothing of nothing."""
    told = line(words, most)
    if _PLAIN_CODE.fullmatch(told):
        return f"`{told}`"
    # A backtick, a pipe in a table, a backslash before one: as tags and numbers all are certain.
    shown = "".join(one if one.isalnum() or one == " " else f"&#{ord(one)};" for one in told)
    return f"<code>{shown}</code>" if told else ""


def fence(lines: Sequence[str], kind: str, most: int = MOST) -> list[str]:
    """Lines as a block of code: ``diff`` colours those that begin with ``+`` or ``-``."""
    told = [printable(one if len(one) <= most else f"{one[:most]}…") for one in lines]
    ticks = max((len(run) for one in told for run in re.findall("`+", one)), default=0)
    marks = "`" * max(3, ticks + 1)
    return [f"{marks}{kind}", *told, marks]


def row(*cells: str) -> str:
    """A row of a table, of cells that are Markdown already."""
    return "| " + " | ".join(cells) + " |"


def details(summary: str, inside: Sequence[str]) -> list[str]:
    """What unfolds.

    Args:
        summary: of ``tag_text`` and tags.
        inside: lines of Markdown, with the empty lines around it without which GitHub reads none.
    """
    return [f"<details><summary>{summary}</summary>", "", *inside, "", "</details>", ""]


def _unlinked(told: str) -> str:
    return _LINKED.sub(lambda found: found[0] + _UNSEEN, told)
