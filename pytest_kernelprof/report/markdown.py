"""A run as GitHub's Markdown: the verdict; a table of what is wrong, where, and what to do; details
folded."""

from __future__ import annotations

import html
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from textwrap import dedent
from types import MappingProxyType
from typing import Literal

from pytest_kernelprof.records.comparison import Source
from pytest_kernelprof.records.document import Run
from pytest_kernelprof.records.profile import Place
from pytest_kernelprof.report.failure import code_of, what_ran, written_at
from pytest_kernelprof.report.tables import Style, command_lines
from pytest_kernelprof.report.terminal import change_words
from pytest_kernelprof.summary import wording
from pytest_kernelprof.summary.advice import commands_of, task_of
from pytest_kernelprof.summary.comparisons import RESULTS, result_of
from pytest_kernelprof.summary.records import MARKS, Problem, Row, Tone
from pytest_kernelprof.summary.run import Summary, listed, summary_of
from pytest_kernelprof.units import printable

Link = Callable[[Place], str]
"""The address of a line of code; empty where there is none."""

LIMIT = 200_000
"""So many bytes: a step's summary on GitHub has room for 1 MiB, and several may share it."""

_SIGNS: Mapping[Tone, str] = {"bad": "❌", "lost": "❌", "unsure": "⚠️", "kept": "✅", "none": ""}
_MOST_NOTES, _MOST_KERNELS, _MOST_WHYS = 10, 1, 3
_LONGEST_CAUSE, _LONGEST_NOTE = 240, 2000
_FOR_THE_CUT = 900  # and for the titles of the folds
_WIDEST = 90


def markdown_of(run: Run, limit: int = LIMIT, link: Link = lambda _: "") -> str:
    """Return the whole file; where nothing is wrong and nothing changed, a few lines.

    Args:
        link: where lines of code lead to. What is written at those that have an address is shown.
        limit: so many bytes at most. What matters least is cut: what changed and needs no look,
            then details and items from the least bad upward. A line says how much.
    """
    summary = summary_of(run)
    head = [line for paragraph in _head(summary) for line in (paragraph, "")]
    totals = [_totals(summary), ""]
    room = limit - sum(map(_size, (*head, *_commands(summary.problems), *totals))) - _FOR_THE_CUT
    kept = defaultdict[_What, list[list[str]]](list)
    cut, made = Counter[_What](), Counter[_What]()
    for what, make in _blocks(summary, link):
        lines = make() if room >= 0 else []
        room -= sum(map(_size, lines))
        if room < 0:  # also for all that follows
            cut[what] += 1
        else:
            made[what] += 1
            kept[what] += [lines] if lines else []
    rows, folds, changed = ([*chain(*kept[one])] for one in ("task", "detail", "change"))
    shown = summary.problems[: made["detail"]]
    left = [one for one in summary.problems if one not in shown or not _has_commands(one)]
    told = [*head, *([*_TABLE, *rows, ""] if rows else []), *_commands(left), *folds]
    differ = (one.comparison for one in listed(summary).changed if one.comparison is not None)
    results = Counter(RESULTS[result_of(one)] for one in differ)
    named = ", ".join(f"{number} {result}" for result, number in results.items())
    told += details(f"<b>Also changed:</b> {named}", changed) if changed else []
    told += totals
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


def _commands(problems: Sequence[Problem]) -> Iterator[str]:
    """What checks or accepts them."""
    for does, command in commands_of(problems):
        yield f"**{_with_code(does[:1].upper() + does[1:])}:**"
        yield from (*fence(command_lines(command, _WIDEST), "sh", _LONGEST_NOTE), "")


def _totals(summary: Summary) -> str:
    """How the run compares with baselines, where it was measured, how complete it is."""
    facts = []
    for one in summary.compared:
        facts += [] if summary.problems else [f"against {one.base}: {one.words}"]
        facts += [f"not compared: {words}" for words in one.uncompared[:_MOST_NOTES]]
        facts += one.notes[:_MOST_NOTES]
    suite = "" if summary.problems else summary.suite
    facts.append(" · ".join(filter(None, (*summary.places, summary.integrity, suite))))
    return f"<sub>{'<br>'.join(text(one, _LONGEST_NOTE) for one in facts)}</sub>"


def _inside(words: str) -> str:
    """A part of a sentence, with the spaces at its ends."""
    return f"{' ' * words.startswith(' ')}{text(words)}{' ' * bool(re.search(r'[^ ] $', words))}"


def _row(problem: Problem, link: Link) -> list[str]:
    """What is wrong with which test, at which lines, why; what to do."""
    task, told = task_of(problem), _told(problem, link)
    whose = f"in {code(task.test)}" if problem.tests == 1 else f"({text(task.test)})"
    # No line ends beside these.
    held = text(task.what.replace("->", "→")).replace(" > limit ", "&nbsp;> limit&nbsp;")
    why = [f"**{held}** {whose}" if task.what else whose]
    facts = (*task.sure, *task.facts)[:_MOST_WHYS]
    is_open = task.lines.endswith("...") or not task.places
    written = written_at(task, lambda one: code_of(one) if link(one) else "")
    for at in () if is_open else task.places:
        whole = (_shown(wording.line_of(at), link(at)), code(written.get(at, "")))
        either = "or " * (" or " in task.lines and at != task.places[0])
        own = [one for one in facts if task.labels.get(one) == at]
        here = (told(wording.without_lines(one, wording.line_of(at))) for one in own)
        why += [either + ": ".join(filter(None, whole)), *here]
        facts = tuple(one for one in facts if one not in own)
    why += [_shown(task.lines, None)] if is_open else []
    why += map(told, facts)
    does = (task.remedy.first, task.remedy.shown)
    todo = "<br>".join(told(one[:1].upper() + one[1:]) for one in does if one)
    todo = todo.replace(" % ", "&nbsp;% ")
    return [f"| {_SIGNS[MARKS[task.told].tone]} | {'<br>'.join(why)} | {todo} |"]


def _told(problem: Problem, link: Link) -> Callable[[str], str]:
    """What shows words of a problem, with its lines of code as links."""
    task, worst = task_of(problem), problem.rows[0]
    sources = [one.source for one in worst.profile.kernels] if isinstance(worst, Row) else []
    known = [*map(wording.source_place, dict.fromkeys(sources)), task.call, *task.places]
    for test in (each.test for row in problem.rows for each in row.each):
        known += [test.place, *(one.place for one in test.verdicts)]
    found = wording.grouped(filter(None, known), wording.line_of)
    leads = ((shown, {*map(link, several)}) for shown, several in found.items())
    # Files of one name may be in several folders.
    urls = {shown: several.pop() for shown, several in leads if len(several) == 1}
    return lambda words: _with_code(line(words, _LONGEST_CAUSE).replace("->", "→"), urls)


def _detail(
    problem: Problem, link: Link, bases: Mapping[Source, str], *, opened: bool
) -> list[str]:
    """What the row does not say, kernels and ranks of the first test, the commands."""
    task, told, ran = task_of(problem), _told(problem, link), _ran(problem)
    facts = [f"- {told(one)}" for one in (*task.sure, *task.facts)[_MOST_WHYS:]]
    inside = [*facts, *([""] if facts else [])]
    for row in ran:
        lines = dedent("\n".join(what_ran(row.profile, Style(_WIDEST), bases))).split("\n")
        inside += [f"**{text(row.name)}:**"] if len(problem.rows) > 1 else []
        inside += [*fence(lines), ""]
    of = "Kernels" if ran else "Causes"
    if _has_commands(problem):
        of, inside = f"{of} and commands", [*inside, *_commands([problem])]
    named = f"{of} of <b>{tag_text(task.test)}</b>"
    return details(named, inside[:-1], opened=opened) if inside else []


def _ran(problem: Problem) -> list[Row]:
    """The tests whose kernels are shown."""
    rows = [one for one in problem.rows if isinstance(one, Row)]
    return [one for one in rows if one.told in ("failed", "to update")][:_MOST_KERNELS]


def _has_commands(problem: Problem) -> bool:
    """Whether its details have its commands: one updates the snapshots of all tests."""
    return bool(_ran(problem)) and problem.rows[0].told != "to update"


def _with_code(words: str, urls: Mapping[str, str] = MappingProxyType({})) -> str:
    """Limits, options and lines of code as code, which leads to what has an address."""
    parts = enumerate(wording.in_code(words))
    return "".join(_shown(one, urls.get(one)) if at % 2 else _inside(one) for at, one in parts)


def _shown(words: str, url: str | None) -> str:
    if not url or not words:
        return code(words)
    held = text(words).replace(", ", ",&nbsp;").replace(" or ", "&nbsp;or&nbsp;")
    return f"[{held}]({url})"


_TABLE = ("| | what is wrong | to do |", "|:-:|---|---|")
_What = Literal["task", "detail", "change"]


def _blocks(summary: Summary, link: Link) -> Iterator[tuple[_What, Callable[[], list[str]]]]:
    """What stands below the head, the most important first, and what makes its lines: a row for
    each problem; its details; what changed and needs no look."""
    problems = summary.problems
    for problem in problems:
        yield "task", partial(_row, problem, link)
    bases = {one.baseline.source: one.base for one in summary.compared}
    for problem in problems:
        yield "detail", partial(_detail, problem, link, bases, opened=len(problems) == 1)
    for row in listed(summary).changed:
        yield "change", partial(_change_of, row)


def _change_of(one: Row) -> list[str]:
    sign, named = _SIGNS[MARKS[one.told].tone], (os.path.basename(one.file), one.name)
    named_in_code = code("::".join(filter(None, named)))
    return [f"- {sign} {named_in_code}: {text(change_words(one), _LONGEST_NOTE)}"]


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
    | (?<![^\W_])GH-(?=\d)
    | (?<!:):(?=(?:100|1234|[\w+-]*[^\W\d][\w+-]*):(?!:))
    | (?:https?|ftp|mailto|xmpp):
    | www(?=\.)""",
    re.IGNORECASE | re.VERBOSE,
)
_LONG = re.compile(r"[^ ]{33}")
"""What holds a word of so many characters makes a table wider than its page unless it breaks."""
_PLAIN_CODE = re.compile(r"[\w ./:,=()+*#@%!?<>&'\"\[\]{}~-]+")


def line(words: str, most: int = MOST) -> str:
    """Words in one line of glyphs, of a bounded length."""
    if len(words) > most:
        words = f"{words[: most // 2]}…{words[-(most // 2) :]}"
    return printable(re.sub(r"[ \t\r\n]+", " ", words)).strip()


def text(words: str, most: int = MOST) -> str:
    """Words in a paragraph, a heading or a cell."""
    told = line(words, most)
    shown = _ACTIVE.sub(r"\\\g<0>", told.replace("&", "&amp;").replace("<", "&lt;"))
    shown = _unlinked(shown.replace("$", "<span>$</span>"))
    breaks = r"(?<=[^ ])(?:\\?_|::)(?=[^ ])"
    return re.sub(breaks, r"\g<0><wbr>", shown) if _LONG.search(told) else shown


def tag_text(words: str) -> str:
    """Words between tags of HTML, where no Markdown is read."""
    return _unlinked(html.escape(line(words), quote=False))


def code(words: str) -> str:
    """Words as code, in a paragraph or a cell; nothing of nothing."""
    told = line(words)
    if _PLAIN_CODE.fullmatch(told) and not _LONG.search(told):
        return f"`{told}`"
    # A backtick, a pipe in a table, a backslash before one: as tags and numbers all are certain.
    shown = "".join(one if one.isalnum() or one == " " else f"&#{ord(one)};" for one in told)
    shown = re.sub("&#(95|58|46|47);(?=.)", r"\g<0><wbr>", shown) if _LONG.search(told) else shown
    return f"<code>{shown}</code>" if told else ""


def fence(lines: Sequence[str], language: str = "text", most: int = MOST) -> list[str]:
    """Lines as a block of code. Not as a ``diff``, which would show what is worse in green."""
    told = [printable(one if len(one) <= most else f"{one[:most]}…") for one in lines]
    ticks = max((len(run) for one in told for run in re.findall("`+", one)), default=0)
    marks = "`" * max(3, ticks + 1)
    return [f"{marks}{language}", *told, marks]


def details(summary: str, inside: Sequence[str], *, opened: bool = False) -> list[str]:
    """What unfolds.

    Args:
        summary: of ``tag_text`` and tags.
        inside: lines of Markdown, with the empty lines around it without which GitHub reads none.
        opened: whether it is unfolded at first.
    """
    tag = "<details open>" if opened else "<details>"
    return [f"{tag}<summary>{summary}</summary>", "", *inside, "", "</details>", ""]


def _unlinked(told: str) -> str:
    return _LINKED.sub(lambda found: found[0] + _UNSEEN, told)
