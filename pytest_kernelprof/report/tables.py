"""Text in columns of a terminal, and tables of it that fit a given width.

Three forms: rows whose columns shrink; numbers left and a name last, whole, wrapped under itself,
whose columns never move; numbers left and several columns of text, of which what matters least
gives way first.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_kernelprof.units import printable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Literal


_MILLI, _MANY_MS = 1_000.0, 100_000.0
_STRONG = re.compile(r"(?<=::)|(?=(?<! )\[)|(?= \[)")
_WEAK = re.compile(r"(?<=[_\-/., ])")
_INDENT = 2
_MOST_LINES = 8


def width_of(text: str) -> int:
    """How many columns a terminal gives to it."""
    return len(text) if text.isascii() else sum(map(_width, text))


def _width(one: str) -> int:
    if unicodedata.combining(one):
        return 0
    return 2 if unicodedata.east_asian_width(one) in "WF" else 1


def right(text: str, width: int) -> str:
    """At the right of so many columns."""
    return " " * (width - width_of(text)) + text


def left(text: str, width: int) -> str:
    """At the left of so many columns."""
    return text + " " * (width - width_of(text))


def head_of(text: str, width: int) -> str:
    """As much of its beginning as so many columns hold."""
    if text.isascii():
        return text[:width]
    room = width
    for at, one in enumerate(text):
        room -= _width(one)
        if room < 0:
            return text[:at]
    return text


def cut_end(text: str, width: int, mark: str = "…") -> str:
    """Text that fits, its end left out where it is longer."""
    if width_of(text) <= width:
        return text
    return head_of(text, max(0, width - len(mark))) + mark


def cut_middle(text: str, width: int, mark: str = "…") -> str:
    """Text that fits, its middle left out where it is longer."""
    if width_of(text) <= width:
        return text
    room = max(0, width - len(mark))
    tail = head_of(text[::-1], room // 2)[::-1]
    return head_of(text, room - width_of(tail)) + mark + tail


def wrapped_name(name: str, width: int, mark: str = "…") -> list[str]:
    """The lines of a name: whole, broken at ``::`` or ``[``, else at an underscore, the further
    lines indented. A piece without any is cut in its middle, and so is a name of eight lines."""
    if width_of(name) <= width:
        return [name]
    name = cut_middle(name, _MOST_LINES * (width - _INDENT), mark)
    lines: list[str] = []
    line = ""
    for piece in filter(None, _STRONG.split(name)):
        for part in [piece] if width_of(piece) <= width - _INDENT else _WEAK.split(piece):
            room = width - (_INDENT if lines else 0)
            if line and width_of(line + part) > room:
                lines.append(line)
                line, room = "", width - _INDENT
            line = cut_middle(line + part.lstrip() if not line else line + part, room, mark)
    return [one if not at else " " * _INDENT + one for at, one in enumerate([*lines, line])]


def wrapped(text: str, width: int) -> list[str]:
    """The lines of a sentence, broken at spaces; a longer word breaks anywhere, and one of eight
    lines is cut in its middle."""
    lines: list[str] = []
    for word in text.split(" "):
        if lines and width_of(f"{lines[-1]} {word}") <= width:
            lines[-1] += f" {word}"
        else:
            lines += _pieces(cut_middle(word, _MOST_LINES * width, "..."), width)
    return lines


def _pieces(word: str, width: int) -> list[str]:
    """A word in pieces that fit."""
    pieces = []
    while width_of(word) > width:
        pieces.append(head_of(word, width))
        word = word[len(pieces[-1]) :]
    return [*pieces, word]


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


_GAP = "  "
_MARK = 2
_LEAST_NAME = 40


@dataclass(frozen=True, slots=True)
class Numbers:
    """A column.

    Attributes:
        title: with the unit that all its cells are in.
        cells: one a row, empty where a value could not be had.
        gives_way: where space is short, the least first; None where it never does.
        key: what it is of, for who has to tell it elsewhere where it gave way.
    """

    title: str
    cells: tuple[str, ...]
    gives_way: int | None = None
    key: str = ""

    @property
    def width(self) -> int:
        """Of its widest cell."""
        return max(map(width_of, (self.title, *self.cells)))


@dataclass(frozen=True, slots=True)
class Laid:
    """A table as lines.

    Attributes:
        title: the line of titles.
        rows: of each row what stands before the name, cell by cell, and the lines of its name.
        indent: where names begin, for their further lines.
        gone: the keys of the columns that gave way.
    """

    title: str
    rows: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]
    indent: int
    gone: frozenset[str]


def lay_out(
    columns: Sequence[Numbers], names: Sequence[str], width: int, *, name: str, cut: str = "…"
) -> Laid:
    """The table in so many columns of the terminal; before each row there are two for a mark.

    Args:
        names: one a row, in the order of the cells.
        name: the title of the names. cut: what marks the place where a name is cut.
    """
    shown = _shown(columns, names, width)
    indent = _indent(shown)
    room = max(width - indent, _LEAST_NAME // 2)
    title = _GAP.join([*(right(one.title, one.width) for one in shown), name])
    cells = [[right(one.cells[at], one.width) for one in shown] for at in range(len(names))]
    told = (tuple(wrapped_name(one, room, cut)) for one in names)
    return Laid(
        " " * _MARK + title,
        tuple((tuple(row), lines) for row, lines in zip(cells, told, strict=True)),
        indent,
        frozenset(one.key for one in columns) - {one.key for one in shown},
    )


def _indent(columns: Sequence[Numbers]) -> int:
    return _MARK + sum(one.width + len(_GAP) for one in columns)


def _shown(columns: Sequence[Numbers], names: Sequence[str], width: int) -> list[Numbers]:
    """Those that are left once names have room enough: 40 columns, or what the longest takes."""
    shown = list(columns)
    needed = min(_LEAST_NAME, max(map(width_of, names), default=0))
    while width - _indent(shown) < needed:
        candidates = [one for one in shown if one.gives_way is not None]
        if not candidates:
            return shown
        shown.remove(min(candidates, key=lambda one: one.gives_way or 0))
    return shown


@dataclass(frozen=True, slots=True)
class Words:
    """A column of text.

    Attributes:
        title: what stands above it.
        cells: one a row.
        least: so narrow may it become.
        gives_way: in which order columns become narrow, the least first.
        goes: whether it goes altogether where it would have to be narrower than it is.
    """

    title: str
    cells: tuple[str, ...]
    least: int
    gives_way: int
    goes: bool = False

    @property
    def width(self) -> int:
        """Of its widest cell."""
        return max(map(width_of, (self.title, *self.cells)))


def text_table(
    numbers: Sequence[Numbers], words: Sequence[Words], width: int, cut: str
) -> list[str]:
    """The lines, titles first. A column of text without any cell is none."""
    told = [one for one in words if any(one.cells)]
    room = width - sum(one.width + len(_GAP) for one in numbers)
    widths = _fitted_widths(told, room)
    told = [one for one in told if one.title in widths]
    titles = [right(one.title, one.width) for one in numbers]
    titles += [left(one.title, widths[one.title]) for one in told]
    lines = [titles]
    for at in range(len(told[0].cells) if told else 0):
        cells = [right(one.cells[at], one.width) for one in numbers]
        for one in told:
            wide = widths[one.title]
            cells.append(left(_fitting(one.cells[at], wide, cut), wide))
        lines.append(cells)
    return [_GAP.join(cells).rstrip() for cells in lines]


def _fitted_widths(words: Sequence[Words], room: int) -> dict[str, int]:
    """How wide each column is; of those that are left out, none."""
    widths = {one.title: one.width for one in words}
    for one in sorted(words, key=lambda one: one.gives_way):
        excess = sum(widths.values()) + len(_GAP) * (len(widths) - 1) - room
        if excess <= 0:
            break
        if one.goes:
            del widths[one.title]
        else:
            widths[one.title] = max(min(one.least, one.width), one.width - excess)
    return widths


def _fitting(text: str, width: int, cut: str) -> str:
    """Text that fits; what stands in brackets at its end stays whole where it can."""
    if width_of(text) <= width:
        return text
    stem, bracket, what = text.partition(" [")
    kept = width - width_of(bracket + what)
    if bracket and kept > len(cut) + 4:
        return cut_end(stem, kept, cut) + bracket + what
    return cut_end(text, width, cut)


@dataclass(frozen=True, slots=True)
class Unit:
    """How the values of a column are written: scaled, with so many decimals."""

    name: str
    scale: float
    decimals: int

    def words(self, us: float, decimals: int | None = None) -> str:
        """A value."""
        return f"{us / self.scale:.{self.decimals if decimals is None else decimals}f}"


def time_unit(values: Sequence[float]) -> Unit:
    """Of microseconds: one decimal while the largest is below 1 ms, none above, and milliseconds
    with two once it is above 100 ms."""
    largest = max(values, default=0.0)
    if largest < _MILLI:
        return Unit("us", 1.0, 1)
    return Unit("us", 1.0, 0) if largest <= _MANY_MS else Unit("ms", 1e3, 2)
