"""Text in GitHub's Markdown that is seen as it is, whatever it holds, and nobody notified by it."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING

from pytest_kernelprof.units import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

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
_PLAIN_CODE = re.compile(r"[\w./:,=()+*#@%!?<>&'\"\[\]{}-]+(?: [\w./:,=()+*#@%!?<>&'\"\[\]{}-]+)*")


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
