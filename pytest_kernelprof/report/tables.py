"""Renders rows as a plain-text table that fits a given width."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_kernelprof.units import printable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Literal

_NARROWEST = 8
_COMFORTABLE = 24


@dataclass(frozen=True, slots=True)
class Column:
    """A column.

    Attributes:
        title: what stands above it.
        number: whether it holds numbers.
        shrinks: whether it may be cut to fit.
        keeps: what is left of a text that is cut: its "start", its "end", or its start and what
            stands in "brackets" at its end.
    """

    title: str
    number: bool = False
    shrinks: bool = False
    keeps: Literal["start", "end", "brackets"] = "start"


def render(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """The lines of the table, titles first. Where space is short the columns that shrink give way,
    the widest first, down to eight characters, and the gaps narrow; numbers are never cut."""
    told = [[printable(cell) for cell in row] for row in rows]
    lines = [[column.title for column in columns], *told]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    gaps = len(columns) - 1
    needed = [
        min(wide, _COMFORTABLE) if column.shrinks else wide
        for wide, column in zip(widths, columns, strict=True)
    ]
    gap = "  " if sum(needed) + 2 * gaps <= width else " "
    excess = sum(widths) + len(gap) * gaps - width
    shrinkable = [i for i, column in enumerate(columns) if column.shrinks]
    while excess > 0 and any(widths[i] > _NARROWEST for i in shrinkable):
        widest = max(shrinkable, key=lambda i: widths[i])
        widths[widest] -= 1
        excess -= 1
    return [
        gap.join(
            _fit(cell, width, column)
            for cell, width, column in zip(line, widths, columns, strict=True)
        ).rstrip()
        for line in lines
    ]


def _fit(text: str, width: int, column: Column) -> str:
    if len(text) > width:
        return _cut(text, width, column.keeps)
    return text.rjust(width) if column.number else text.ljust(width)


def _cut(text: str, width: int, keeps: str) -> str:
    if keeps == "end":
        return "…" + text[1 - width :]
    stem, bracket, what = text.partition(" [")
    if keeps == "brackets" and bracket and width - len(what) > _NARROWEST:
        return f"{stem[: width - len(what) - 3]}… [{what}"
    return text[: width - 1] + "…"
