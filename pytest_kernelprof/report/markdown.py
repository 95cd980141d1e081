"""A run as GitHub's Markdown: the verdict; where to look, what is wrong and what to do; details
folded."""

from __future__ import annotations

import html
import os
import re
from collections import Counter
from functools import partial
from textwrap import dedent
from typing import TYPE_CHECKING, Literal

from pytest_kernelprof.report.failure import MOST_LINES, code_of, what_ran
from pytest_kernelprof.report.kernel_tables import NOUNS, lines_of_ranks
from pytest_kernelprof.report.tables import Style, plain
from pytest_kernelprof.report.terminal import beside_words
from pytest_kernelprof.summary import wording
from pytest_kernelprof.summary.advice import tasks_of
from pytest_kernelprof.summary.comparisons import RESULTS, range_words, result_of
from pytest_kernelprof.summary.records import MARKS, NEEDS_A_LOOK, Row
from pytest_kernelprof.summary.run import listed, summary_of
from pytest_kernelprof.units import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pytest_kernelprof.records.comparison import Source
    from pytest_kernelprof.records.document import Run
    from pytest_kernelprof.records.profile import Place
    from pytest_kernelprof.summary.records import Entry, Task, Tone
    from pytest_kernelprof.summary.run import Summary

    Link = Callable[[Place], str]
    """The address of a line of code; empty where there is none."""

LIMIT = 200_000
"""So many bytes: a step's summary on GitHub has room for 1 MiB, and several may share it."""

_SIGNS: Mapping[Tone, str] = {"bad": "❌", "lost": "❌", "unsure": "⚠️", "kept": "✅", "none": ""}
_MOST_NOTES, _MOST_CAUSES, _MOST_KERNELS = 10, 3, 3
_LONGEST_CAUSE, _LONGEST_NOTE = 240, 2000
_FOR_THE_CUT = 400
_TITLES = ["| | test | what changed |", "|:-:|---|---|"]
_STYLE = Style()


def markdown_of(run: Run, limit: int = LIMIT, link: Link = lambda _: "") -> str:
    """Return the whole file; where nothing is wrong and nothing changed, a few lines.

    Args:
        link: where lines of code lead to. What is written at those that have an address is shown.
        limit: so many bytes at most. What matters least is cut: what changed and needs no look,
            then details and items from the least bad upward. A line says how much.
    """
    summary = summary_of(run)
    head, totals = (
        [line for paragraph in paragraphs for line in (paragraph, "")]
        for paragraphs in (_head(summary), _totals(summary))
    )
    room = limit - sum(map(_size, (*head, *totals, *_TITLES))) - _FOR_THE_CUT
    kept: dict[_What, list[str]] = {"task": [], "detail": [], "change": []}
    cut = Counter[_What]()
    for what, make in _blocks(summary, link):
        lines = make() if room >= 0 else []
        room -= sum(map(_size, lines))
        if room < 0:  # also for all that follows
            cut[what] += 1
        else:
            kept[what] += lines
    told = [*head, *kept["task"], *totals, *kept["detail"]]
    if kept["change"]:
        results = Counter(
            RESULTS[result_of(one.comparison)] for one in listed(summary).changed if one.comparison
        )
        named = ", ".join(f"{wording.count(n, 'profile')}: {one}" for one, n in results.items())
        told += details(named, [*_TITLES, *kept["change"]])
    if cut:
        words = ", ".join(wording.count(number, what) for what, number in cut.items())
        told += [f"and {words} more, left out for their size.", ""]
    return "\n".join(told)


def _head(summary: Summary) -> Iterator[str]:
    """The verdict, where it was measured, and why it may be of a part of the tests alone."""
    sign, sentence = _SIGNS[MARKS[summary.told].tone], summary.sentence.removesuffix(".")
    yield " ".join(filter(None, ["###", sign, "kernelprof:", text(sentence, _LONGEST_NOTE)]))
    facts = (*summary.places, summary.integrity, summary.suite)
    yield f"<sub>{' · '.join(map(text, filter(None, facts)))}</sub>"
    for why in summary.run.unfinished:
        yield f"**Unfinished:** tests may be missing: {text(why)}."


def _totals(summary: Summary) -> Iterator[str]:
    """How the run compares with baselines."""
    for compared in summary.compared:
        yield f"Against {code(compared.base)}: {text(compared.words, _LONGEST_NOTE)}."
        notes = [f"not compared: {words}" for words in compared.uncompared[:_MOST_NOTES]]
        notes += compared.notes[:_MOST_NOTES]
        if notes:
            yield "\n".join(f"- {text(words, _LONGEST_NOTE)}" for words in notes)


def _inside(words: str) -> str:
    """A part of a sentence, with the spaces at its ends."""
    return f"{' ' * words.startswith(' ')}{text(words)}{' ' * words.endswith(' ')}"


def _item(task: Task, link: Link) -> list[str]:
    """An item of a list: where, the lines of code, and what to do; the command as a block that has
    a button to copy it; what else may be done."""
    todo, command, intended = task.remedy
    limit, semicolon, excess = task.what.partition("; ")
    wrong = f"**{text(limit)}**{semicolon}{text(excess)}" if limit else ""
    named = f"({text(task.test)})" if task.test else ""
    where = [_SIGNS[MARKS[task.told].tone], _linked(task.lines, task.places, link), wrong, named]
    written = [code_of(one) for one in task.places if one != task.call and link(one)]
    written = list(filter(None, written))
    told = [text(one, _LONGEST_CAUSE) for one in (*task.found, *task.whys)]
    do = f"**To do:** {_with_code(todo)}{':' * bool(command)}" if todo else ""
    told += [do] if do else []
    head = " ".join(filter(None, where))
    item = [head, *fence(written[:MOST_LINES], "python")] if written else []
    item.append("<br>".join(told if written else [head, *told]))
    item += fence([command], "sh") if command else []
    item += [f"{_with_code(intended[:1].upper() + intended[1:])}."] if intended else []
    return ["- " + "\n  ".join(item), ""]


def _with_code(words: str) -> str:
    return "".join((_inside, code)[at % 2](one) for at, one in enumerate(wording.in_code(words)))


_What = Literal["task", "detail", "change"]


def _blocks(summary: Summary, link: Link) -> Iterator[tuple[_What, Callable[[], list[str]]]]:
    """What stands below the head, the most important first, and what makes its lines: what to do;
    of each cause the kernels of its first tests; tables of ranks; what changed and needs no
    look."""
    for task in tasks_of(summary.problems, len(summary.problems)):
        yield "task", partial(_item, task, link)
    bases = {one.baseline.source: one.base for one in summary.compared}
    for row in (row for problem in summary.problems for row in problem.rows[:_MOST_KERNELS]):
        if isinstance(row, Row) and row.told in ("failed", "to update"):
            yield "detail", partial(_kernels_of, row, bases)
    for one in summary.folded:
        if one.profile.other_ranks and (one.told in NEEDS_A_LOOK or not summary.problems):
            yield "detail", partial(_ranks_of, one)
    for one in listed(summary).changed:
        yield "change", partial(_change_of, one)


def _kernels_of(one: Row, bases: Mapping[Source, str]) -> list[str]:
    shown = wording.shown_rank(one.profile)
    kernels = shown.kernel_count, NOUNS[shown.environment.kind].kernel, ""
    counts = [(len(shown.waits), "wait", ""), (len(shown.copies), "copy", "copies"), kernels]
    of_rank = f" of rank {shown.rank}" if one.profile.other_ranks else ""
    counted = ", ".join(wording.count(*each) for each in counts if each[0]) + of_rank
    told = what_ran(one.profile, _STYLE, bases)
    return _detail(one, counted, dedent("\n".join(told)).split("\n"))


def _ranks_of(one: Row) -> list[str]:
    table = list(map(plain, lines_of_ranks(one.profile, _STYLE)))
    return _detail(one, wording.count(len(one.profile.ranks), "rank"), table)


def _change_of(one: Row) -> list[str]:
    whys = ("; ".join(wording.located(each)) for each in one.causes[:_MOST_CAUSES])
    told = [text(_changed(one), _LONGEST_NOTE), *(text(why, _LONGEST_CAUSE) for why in whys)]
    named = f"{code(os.path.basename(one.file))} **{text(one.name)}**".lstrip()
    return [row(_SIGNS[MARKS[one.told].tone], named, "<br>".join(told))]


def _detail(one: Entry, words: str, lines: Sequence[str]) -> list[str]:
    return details(f"<b>{tag_text(one.name)}</b>: {tag_text(words)}", fence(lines))


def _changed(one: Row) -> str:
    """How it differs from its baseline: ``better; GPU time -11.0 %; kernels 5 -> 3``."""
    assert one.comparison is not None  # it differs from something
    paired, timed = one.comparison.paired, ""
    if paired is not None and paired.pairs:
        timed = f"GPU time {range_words(one.comparison) or wording.percent(paired.ratio - 1)}"
    result = RESULTS[result_of(one.comparison)]
    return "; ".join(filter(None, [result, timed, *beside_words(one, ())]))


def _linked(words: str, places: Sequence[Place], link: Link) -> str:
    """Lines of code, as a link to them where they have an address."""
    lines = [one.line for one in places if one.file == places[0].file]
    url = link(places[0]) if places else ""
    url += f"-L{max(lines)}" if url and len(lines) > 1 and lines[0] == min(lines) else ""
    return f"[{code(words)}]({url})" if url and words else code(words)


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
    r"""@(?=\w)
    | \#(?=\d)
    | \bGH-(?=\d)
    | (?<!:):(?=(?:100|1234|[\w+-]*[^\W\d][\w+-]*):(?!:))
    | \b(?:https?|ftp|mailto|xmpp):
    | \bwww(?=\.)""",
    re.IGNORECASE | re.VERBOSE,
)
_PLAIN_CODE = re.compile(r"[\w ./:,=()+*#@%!?<>&'\"\[\]{}~-]+")


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


def tag_text(words: str) -> str:
    """Words between tags of HTML, where no Markdown is read."""
    return _unlinked(html.escape(line(words), quote=False))


def code(words: str) -> str:
    """Words as code, in a paragraph or a cell; nothing of nothing."""
    told = line(words)
    if _PLAIN_CODE.fullmatch(told):
        return f"`{told}`"
    # A backtick, a pipe in a table, a backslash before one: as tags and numbers all are certain.
    shown = "".join(one if one.isalnum() or one == " " else f"&#{ord(one)};" for one in told)
    return f"<code>{shown}</code>" if told else ""


def fence(lines: Sequence[str], language: str = "text") -> list[str]:
    """Lines as a block of code. Not as a ``diff``, which would show what is worse in green."""
    most = MOST if language == "text" else _LONGEST_NOTE
    told = [printable(one if len(one) <= most else f"{one[:most]}…") for one in lines]
    ticks = max((len(run) for one in told for run in re.findall("`+", one)), default=0)
    marks = "`" * max(3, ticks + 1)
    return [f"{marks}{language}", *told, marks]


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
