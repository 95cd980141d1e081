"""Text, marks and tables as HTML: escaped, bounded, without what a browser does not show."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from pytest_kernelprof.summary.records import MARKS
from pytest_kernelprof.units import printable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_kernelprof.report.tables import Column
    from pytest_kernelprof.summary.records import Told


class Html(str):
    """Markup in which every text is escaped."""

    __slots__ = ()


LONGEST = 400
"""So many characters of one text are on the page; of longer ones both ends."""


def cut(words: str, longest: int = LONGEST) -> str:
    """Both ends of what is longer, and how much is missing between."""
    if len(words) <= longest:
        return words
    half = longest // 2
    return f"{words[:half]} … {len(words) - 2 * half:,} characters … {words[-half:]}"


def text(words: str, longest: int = LONGEST) -> Html:
    """Text that is seen as it is, whatever it holds: control characters and marks that turn the
    direction of writing become their escapes. Markup stays as it is."""
    return words if isinstance(words, Html) else Html(html.escape(printable(cut(words, longest))))


def joined(parts: Iterable[Html], between: str = "") -> Html:
    """Pieces of markup, one after the other."""
    return Html(between.join(parts))


def element(tag: str, inside: Html, kind: str = "") -> Html:
    """An element around markup; nothing around nothing.

    Args:
        kind: its class.
    """
    named = f' class="{kind}"' if kind else ""
    return Html(f"<{tag}{named}>{inside}</{tag}>" if inside else "")


def word_of(told: Told | None) -> str:
    """A mark in words; "failed" whether by a limit or by a baseline."""
    return "failed" if told == "failed" else MARKS[told].word


def mark(told: Told | None) -> Html:
    """A sign in its colour, with its word for who does not see it."""
    one = MARKS[told]
    named = f'role="img" aria-label="{word_of(told)}"'
    return Html(f'<b class="s x-{one.tone}" {named}>{text(one.sign)}</b>')


_SIGNS = {
    "+": ("ins", "new"),
    "-": ("del", "gone"),
    "~": ("span", "changed"),
    ">": ("span", "fails a limit"),
}


def signed(sign: str, inside: Html) -> Html:
    """The name in a row that has a sign, with its word for who does not see it."""
    if not sign:
        return inside
    tag, word = _SIGNS[sign]
    told = f'<b aria-hidden="true">{text(sign)}</b><span class="sr">{word}: </span> '
    return element(tag, joined([Html(told), inside]))


_CLASSES = {"number": " class=n", "name": " class=c", "words": ""}


def table(columns: Iterable[Column], kind: str = "") -> Html:
    """A table that scrolls by itself where it is too wide; a column without a word is left out, and
    a table without one is empty.

    Args:
        kind: the class of the table.
    """
    shown = [one for one in columns if any(one.cells)]
    kinds = [_CLASSES[one.kind] for one in shown]
    titles = (
        f"<th{kind}>{text(one.title)}</th>" if one.title else "<td></td>"
        for one, kind in zip(shown, kinds, strict=True)
    )
    rows = (
        "".join(f"<td{kind}>{text(cell)}" for cell, kind in zip(cells, kinds, strict=True))
        for cells in zip(*(one.cells for one in shown), strict=True)
    )
    body = "".join(f"<tr>{row}\n" for row in rows)
    named = f' class="{kind}"' if kind else ""
    return Html(
        f'<div class="scroll"><table{named}><thead><tr>{"".join(titles)}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
        if shown
        else ""
    )
