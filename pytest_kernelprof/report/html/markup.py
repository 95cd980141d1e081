"""Text, marks and tables as HTML: escaped, bounded, without what a browser does not show."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, NamedTuple, NewType

from pytest_kernelprof.summary.records import MARKS
from pytest_kernelprof.units import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_kernelprof.summary.records import Told

Html = NewType("Html", str)
"""Markup in which every text is escaped."""

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
    direction of writing become their escapes."""
    return Html(html.escape(printable(cut(words, longest))))


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


class Column(NamedTuple):
    """A column of a table.

    Attributes:
        title: what stands above it. cells: one a row.
        kind: the class of its cells: "n" of numbers, "c" of names in code; empty of words.
        foot: what stands below it.
    """

    title: str
    cells: Sequence[Html]
    kind: str = ""
    foot: Html = Html("")


def table(columns: Iterable[Column], kind: str = "") -> Html:
    """A table that scrolls by itself where it is too wide; a column without a word is left out.

    Args:
        kind: the class of the table.
    """
    shown = [one for one in columns if any(one.cells)]
    kinds = [f" class={one.kind}" if one.kind else "" for one in shown]
    titles = (_title(one, of_kind) for one, of_kind in zip(shown, kinds, strict=True))
    rows = (_row(cells, kinds) for cells in zip(*(one.cells for one in shown), strict=True))
    foot = [one.foot for one in shown]
    below = f"<tfoot>{_row(foot, kinds)}</tfoot>" if any(foot) else ""
    named = f' class="{kind}"' if kind else ""
    return Html(
        f'<div class="scroll"><table{named}><thead><tr>{"".join(titles)}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody>{below}</table></div>"
    )


def _title(one: Column, kind: str) -> str:
    return f"<th{kind}>{text(one.title)}</th>" if one.title else "<td></td>"


def _row(cells: Iterable[Html], kinds: Iterable[str]) -> str:
    told = (f"<td{kind}>{cell}" for cell, kind in zip(cells, kinds, strict=True))
    return f"<tr>{''.join(told)}\n"
