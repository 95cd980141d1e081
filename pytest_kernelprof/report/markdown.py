"""A run as GitHub's Markdown: the verdict; where to look, what is wrong and what to do; details
folded."""

from __future__ import annotations

import html
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from textwrap import dedent
from types import MappingProxyType
from typing import Literal

from pytest_kernelprof.records.comparison import Source
from pytest_kernelprof.records.document import Run
from pytest_kernelprof.records.profile import Place
from pytest_kernelprof.report.failure import code_of, shows_calls_alone, what_ran, written_at
from pytest_kernelprof.report.kernel_tables import NOUNS, lines_of_ranks
from pytest_kernelprof.report.tables import Style, command_lines, plain
from pytest_kernelprof.report.terminal import beside_words
from pytest_kernelprof.summary import wording
from pytest_kernelprof.summary.advice import commands_of, task_of
from pytest_kernelprof.summary.comparisons import RESULTS, range_words, result_of
from pytest_kernelprof.summary.records import MARKS, NEEDS_A_LOOK, Problem, Row, Tone
from pytest_kernelprof.summary.run import Summary, listed, summary_of
from pytest_kernelprof.units import printable

Link = Callable[[Place], str]
"""The address of a line of code; empty where there is none."""

LIMIT = 200_000
"""So many bytes: a step's summary on GitHub has room for 1 MiB, and several may share it."""

_SIGNS: Mapping[Tone, str] = {"bad": "❌", "lost": "❌", "unsure": "⚠️", "kept": "✅", "none": ""}
_MOST_NOTES, _MOST_CAUSES, _MOST_KERNELS = 10, 3, 3
_LONGEST_CAUSE, _LONGEST_NOTE = 240, 2000
_FOR_THE_CUT = 900  # and for the titles of the folds
_WIDEST, _MOST_OPEN = 96, 6


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
    room = limit - sum(map(_size, (*head, *totals))) - _FOR_THE_CUT
    kept = defaultdict[int, list[str]](list)
    cut = Counter[_What]()
    for what, at, make in _blocks(summary, link):
        lines = make() if room >= 0 else []
        room -= sum(map(_size, lines))
        if room < 0:  # also for all that follows
            cut[what] += 1
        else:
            kept[at] += lines
    number = len(summary.problems)
    most = _MOST_OPEN if number > _MOST_OPEN + 1 else number  # for one a fold saves nothing
    told = [*head, *(line for at in range(most) for line in kept[at])]
    more, changed = [line for at in range(most, number) for line in kept[at]], kept[number + 1]
    told += details(f"<b>{number - most:,} more problems</b>", more) if more else []
    told += [*kept[number], *totals[:-2]]
    differ = (one.comparison for one in listed(summary).changed)
    results = Counter(RESULTS[result_of(one)] for one in differ if one is not None)
    named = ", ".join(f"{number} {result}" for result, number in results.items())
    told += details(f"<b>Also changed:</b> {named}", changed) if changed else []
    told += totals[-2:]
    if cut:
        words = ", ".join(wording.count(number, what) for what, number in cut.items())
        told += [f"and {words} more, left out for their size.", ""]
    return "\n".join(told)


def _head(summary: Summary) -> Iterator[str]:
    """The verdict, and why it may be of a part of the tests alone."""
    sign, sentence = _SIGNS[MARKS[summary.told].tone], summary.sentence.removesuffix(".")
    yield " ".join(filter(None, ["###", sign, "kernelprof:", text(sentence, _LONGEST_NOTE)]))
    for why in summary.run.unfinished:
        yield f"**Unfinished:** tests may be missing: {text(why)}."


def _totals(summary: Summary) -> Iterator[str]:
    """What checks or accepts it, how the run compares with baselines, where it was measured."""
    for at, (does, command) in enumerate(commands_of(summary.problems)):
        block = fence(command_lines(command, _WIDEST), "sh", _LONGEST_NOTE)
        space = "" if at else "<br>"  # apart from the last problem
        yield "\n".join([f"{space}**{_with_code(does[:1].upper() + does[1:])}:**", *block])
    facts = []
    for one in summary.compared:
        facts.append(f"against {one.base}: {one.words}")
        facts += [f"not compared: {words}" for words in one.uncompared[:_MOST_NOTES]]
        facts += one.notes[:_MOST_NOTES]
    facts.append(" · ".join(filter(None, (*summary.places, summary.integrity, summary.suite))))
    yield f"<sub>{'<br>'.join(text(one, _LONGEST_NOTE) for one in facts)}</sub>"


def _inside(words: str) -> str:
    """A part of a sentence, with the spaces at its ends."""
    return f"{' ' * words.startswith(' ')}{text(words)}{' ' * bool(re.search(r'[^ ] $', words))}"


def _item(problem: Problem, link: Link) -> list[str]:
    """Where, what, and which test; the lines of code, what else is known; what to do, and what else
    may be done."""
    task, worst = task_of(problem), problem.rows[0]
    sources = [one.source for one in worst.profile.kernels] if isinstance(worst, Row) else []
    known = [*map(wording.source_place, dict.fromkeys(sources)), task.call, *task.places]
    for test in (each.test for row in problem.rows for each in row.each):
        known += [test.place, *(one.place for one in test.verdicts)]
    found = wording.grouped(filter(None, known), wording.line_of)
    leads = {shown: {*map(link, several)} for shown, several in found.items()}
    # Files of one name may be in several folders.
    urls = {shown: min(several) for shown, several in leads.items() if len(several) == 1}
    told = partial(_with_code, urls=urls)
    is_one = not task.test[:1].isdigit()  # else how many tests
    whose = f"in {code(task.test)}" if is_one else f"({text(task.test)})"
    where = [_SIGNS[MARKS[task.told].tone], _linked(task.lines, task.places, link), text(task.what)]
    lines = written_at(task, lambda one: code_of(one) if link(one) else "")
    todo, intended = task.remedy.first, task.remedy.intended
    what = [f"**To do:** {told(todo)}."] if todo else []
    what += [f"{told(intended[:1].upper() + intended[1:])}."] if intended else []
    head = " ".join(filter(None, (*where, whose)))
    listed = [f"- {told(line(one, _LONGEST_CAUSE))}" for one in task.facts]
    written = fence(lines, "python") if lines else []
    parts = [[f"#### {head}"], written, listed, ["<br>".join(what)]]
    return [line for part in parts if any(part) for line in (*part, "")]


def _with_code(words: str, urls: Mapping[str, str] = MappingProxyType({})) -> str:
    """Limits, options and lines of code as code, which leads to what has an address."""
    parts = enumerate(wording.in_code(words))
    return "".join(_shown(one, urls.get(one)) if at % 2 else _inside(one) for at, one in parts)


def _shown(words: str, url: str | None) -> str:
    return f"[{code(words)}]({url})" if url and words else code(words)


_What = Literal["task", "detail", "change"]


def _blocks(summary: Summary, link: Link) -> Iterator[tuple[_What, int, Callable[[], list[str]]]]:
    """What stands below the head, the most important first, with its place, and what makes its
    lines: what to do about each problem; below that the kernels of its first tests, and tables of
    ranks; last what changed and needs no look."""
    problems, places = summary.problems, dict[int, int]()
    for at, problem in enumerate(problems):
        yield "task", at, partial(_item, problem, link)
    bases = {one.baseline.source: one.base for one in summary.compared}
    for at, one in enumerate(problems):
        places |= {id(row): at for row in one.rows}
        for row in one.rows[:_MOST_KERNELS]:
            if isinstance(row, Row) and row.told in ("failed", "to update"):
                name = row.name if one.tests > 1 else ""
                yield "detail", at, partial(_kernels_of, row, name, bases)
    for row in summary.folded:
        if row.profile.other_ranks and (row.told in NEEDS_A_LOOK or not problems):
            yield "detail", places.get(id(row), len(problems)), partial(_ranks_of, row)
    for row in listed(summary).changed:
        yield "change", len(problems) + 1, partial(_change_of, row)


def _kernels_of(one: Row, name: str, bases: Mapping[Source, str]) -> list[str]:
    shown = wording.shown_rank(one.profile)
    counts = [(len(shown.waits), "wait", ""), (len(shown.copies), "copy", "copies")]
    if not (shows_calls_alone(one.profile) and (shown.waits or shown.copies)):
        counts.append((shown.kernel_count, NOUNS[shown.environment.kind].kernel, ""))
    of_rank = f" of rank {shown.rank}" if one.profile.other_ranks else ""
    counted = ", ".join(wording.count(*each) for each in counts if each[0]) + of_rank
    told = dedent("\n".join(what_ran(one.profile, Style(), bases)))
    return _detail(name, counted, told.split("\n"))


def _ranks_of(one: Row) -> list[str]:
    table = list(map(plain, lines_of_ranks(one.profile, Style())))
    return _detail(one.name, wording.count(len(one.profile.ranks), "rank"), table)


def _change_of(one: Row) -> list[str]:
    whys = ("; ".join(wording.located(each)) for each in one.causes[:_MOST_CAUSES])
    told = [text(_changed(one), _LONGEST_NOTE), *(text(why, _LONGEST_CAUSE) for why in whys)]
    sign, file = _SIGNS[MARKS[one.told].tone], os.path.basename(one.file)
    return [f"- {sign} {code('::'.join(filter(None, (file, one.name))))}: {'; '.join(told)}"]


def _detail(name: str, words: str, lines: Sequence[str]) -> list[str]:
    named = f"<b>{tag_text(name)}</b>: " if name else ""
    return details(named + tag_text(words), fence(lines))


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
    return _shown(words, url)


def _size(told: str) -> int:
    return len(told.encode()) + 1


# Text that is seen as it is, whatever it holds, and nobody notified by it.

MOST = 300
"""So many characters of one text are told; of longer ones both ends."""

_UNSEEN = "\u200c"
"""Of no width: what it stands in is no name, number or link to GitHub."""
# What begins or ends something in a line, an underscore inside of a word apart, or begins a block;
# signs that end a heading. A dollar sign would begin a formula, which no backslash keeps it from.
_ACTIVE = re.compile(
    r"[\\`*\[\]|~]|(?<![^\W_])_|_(?![^\W_])|^>|^[-+#](?=[-+#]*(?: |$))|(?<= )#(?=#*$)"
    r"|(?:(?<=^\d)|(?<=^\d\d)|(?<=^\d{3}))[.)](?= |$)"
)
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
    return _unlinked(_ACTIVE.sub(r"\\\g<0>", told).replace("$", "<span>$</span>"))


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


def fence(lines: Sequence[str], language: str = "text", most: int = MOST) -> list[str]:
    """Lines as a block of code. Not as a ``diff``, which would show what is worse in green."""
    told = [printable(one if len(one) <= most else f"{one[:most]}…") for one in lines]
    ticks = max((len(run) for one in told for run in re.findall("`+", one)), default=0)
    marks = "`" * max(3, ticks + 1)
    return [f"{marks}{language}", *told, marks]


def details(summary: str, inside: Sequence[str]) -> list[str]:
    """What unfolds.

    Args:
        summary: of ``tag_text`` and tags.
        inside: lines of Markdown, with the empty lines around it without which GitHub reads none.
    """
    return [f"<details><summary>{summary}</summary>", "", *inside, "", "</details>", ""]


def _unlinked(told: str) -> str:
    return _LINKED.sub(lambda found: found[0] + _UNSEEN, told)
