"""Text for terminals: the engine of all text tables; lines that wrap; signs and colours, which say
nothing that the text does not say."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

from _pytest._io import TerminalWriter
from _pytest._io.wcwidth import wcwidth

from pytest_kernelprof.summary.records import MARKS, Told, Tone
from pytest_kernelprof.units import printable

if TYPE_CHECKING:
    import pytest

Colour = Literal["", "red", "yellow", "green", "cyan", "bold", "light"]


class Span(NamedTuple):
    """A piece of a line, of one colour."""

    text: str
    colour: Colour = ""


Line = tuple[Span, ...]


def plain(line: Line) -> str:
    """Return the text of a line."""
    return "".join(span.text for span in line)


def write_lines(terminal: pytest.TerminalReporter | TerminalWriter, lines: Iterable[Line]) -> None:
    """Write lines to pytest's terminal, which knows whether it has colours."""
    for line in lines:
        for text, colour in line:
            terminal.write(text, **({colour: True} if colour else {}))
        terminal.write("\n")


def print_lines(lines: Iterable[Line]) -> None:
    """Print lines, in colours on a terminal that is not told to have none."""
    write_lines(TerminalWriter(sys.stdout), lines)


_COLOURS: dict[Tone, Colour] = {"bad": "red", "lost": "red", "unsure": "yellow"}
_NARROWEST, _WIDEST, _PIPED = 60, 160, 100


@dataclass(frozen=True, slots=True)
class Style:
    """What a terminal can show.

    Attributes:
        width: how many columns text has.
        encoding: of the terminal.
        verbosity: as pytest counts it: -1 with ``-q``, 1 with ``-v``.
    """

    width: int = _PIPED
    encoding: str = "utf-8"
    verbosity: int = 0

    def sign(self, told: Told | None) -> tuple[str, Colour]:
        """Return the sign of a status, or a letter where it has to be ASCII, with its colour; a
        space for none."""
        mark = MARKS[told]
        sign = mark.sign if told is not None and self.say("✓") == "✓" else mark.letter
        return sign, _COLOURS.get(mark.tone, "")

    def say(self, text: str) -> str:
        """Return text in one line that does nothing to a terminal, and that its encoding has; the
        rest is escaped."""
        told = printable(text)
        try:
            return told.encode(self.encoding, "backslashreplace").decode(self.encoding)
        except LookupError:
            return told.encode("ascii", "backslashreplace").decode()

    def sentence(self, text: str, colour: Colour = "") -> list[Line]:
        """Wrap a sentence."""
        return [(Span(one, colour),) for one in wrapped(self.say(text), self.width)]

    def within(self, indent: int) -> Style:
        """Return the style of text that is indented."""
        return replace(self, width=self.width - indent)


_STYLE = Style()


def style_of(terminal: pytest.TerminalReporter) -> Style:
    """Return the style of pytest's terminal; a pipe, which has no width, has 100 columns."""
    writer, is_one = terminal._tw, getattr(terminal, "isatty", False)
    return _style(writer.fullwidth, is_one, getattr(writer, "_file", None), terminal.verbosity)


def style_of_output() -> Style:
    """Return the style of standard output; a pipe, which has no width, has 100 columns."""
    return _style(shutil.get_terminal_size((100, 24)).columns, sys.stdout.isatty(), sys.stdout)


def _style(columns: int, is_terminal: bool, file: object, verbosity: int = 0) -> Style:
    is_pipe = not is_terminal and not os.environ.get("COLUMNS")
    width = _PIPED if is_pipe else max(_NARROWEST, min(_WIDEST, columns))
    return Style(width, getattr(file, "encoding", None) or "utf-8", verbosity)


LABEL = 13
"""Columns of the labels beside sentences."""


def labelled(label: str, texts: Iterable[str], style: Style) -> Iterator[Line]:
    """Wrap sentences below each other, the first beside a label; nothing without a word."""
    told = (line for text in texts if text for line in style.within(LABEL).sentence(text))
    for at, line in enumerate(told):
        yield Span(left("" if at else label, LABEL), "light"), *line


# Not inside of quotes.
_BEFORE_OWN = re.compile(r"(?<!pytest) (?='?([\w./-]+\.py|--kernelprof))(?=([^']*'[^']*')*[^']*$)")


def command_lines(command: str, width: int) -> list[str]:
    """Break a command that is too wide before each further test and option of ours, so that a
    shell takes the lines for one."""
    between = " " if width_of(command) <= width else " \\\\\n  "
    return _BEFORE_OWN.sub(between, command).splitlines()


# Text in columns of a terminal.


def width_of(text: str) -> int:
    """Return how many columns a terminal gives to a text."""
    return len(text) if text.isascii() else sum(map(wcwidth, text))


def left(text: str, width: int) -> str:
    """Align a text to the left."""
    return text + " " * (width - width_of(text))


def head_of(text: str, width: int) -> str:
    """Return as much of the beginning of a text as fits."""
    if text.isascii():
        return text[:width]
    room = width
    for at, one in enumerate(text):
        room -= wcwidth(one)
        if room < 0:
            return text[:at]
    return text


def cut_middle(text: str, width: int) -> str:
    """Return text that fits, without its middle if it is longer."""
    if width_of(text) <= width:
        return text
    mark = "..."[:width]
    room = width - len(mark)
    tail = head_of(text[::-1], room // 2)[::-1]
    return head_of(text, room - width_of(tail)) + mark + tail


_MOST_LINES, _INDENT = 8, 2
_SPACES = (re.compile(r"(?<![<>] )(?<= )(?!%|->|> |\S{1,4}$|\d %$)"),)
_JOINTS = (
    re.compile(r"(?<=[,;] )(?![^\[]*\])|(?= in )"),
    re.compile(r"(?<=::)|(?=(?<! )\[)|(?= \[)"),
    re.compile(r"(?<=[_\-/., ])"),
)


def wrapped(text: str, width: int) -> list[str]:
    """Break a sentence at spaces, but not beside ``->``, behind ``<``, before ``%`` or before a
    short last word. A longer word breaks anywhere; one of eight lines is cut in its middle."""
    return _packed(text, width, 0, _SPACES)


def wrapped_name(name: str, width: int, indent: int = _INDENT) -> list[str]:
    """Break a name at ``::`` or ``[``, else at an underscore, else anywhere; a chain of operators
    before `` in `` if it can. Further lines are indented. A name of eight lines is cut in its
    middle."""
    room = width - indent
    return _packed(cut_middle(name, _MOST_LINES * room), width, indent, _JOINTS)


def _packed(text: str, width: int, indent: int, joints: Sequence[re.Pattern[str]]) -> list[str]:
    if width_of(text) <= width:
        return [text]
    lines = [""]
    for piece in _pieces(text, width - indent, joints):
        if lines[-1].strip() and width_of((lines[-1] + piece).rstrip()) > width:
            lines.append(" " * indent + piece.lstrip())
        else:
            lines[-1] += piece
    return [line.rstrip() for line in lines]


def _pieces(text: str, room: int, joints: Sequence[re.Pattern[str]]) -> Iterator[str]:
    """Break a text at the first of the joints, its longer pieces at the others, else anywhere."""
    if width_of(text.rstrip()) - text.startswith(" in ") <= room:  # which begins no line
        yield text
    elif joints:
        for one in filter(None, joints[0].split(text)):
            yield from _pieces(one, room, joints[1:])
    else:
        text = cut_middle(text, _MOST_LINES * room)
        while text:
            piece = head_of(text, room) or text[0]
            yield piece
            text = text[len(piece) :]


# Tables.

_GAP = "  "
_SIGN_COLOURS: dict[str, Colour] = {"+": "red", "?": "red", "-": "light"}
_LEAST_LAST, _LEAST_ROOM, _BELOW = 40, 10, 4


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table, in any format; without a text in any cell it is not shown.

    Attributes:
        title: with the unit of its cells.
        cells: one a row, empty if unknown.
        gives_way: in which order columns give way where space is short; None if it never does.
        key: what it is of, for a caller that tells elsewhere what gave way.
        least: how narrow it becomes where it is cut; 0 if it goes as a whole. Where it is the last
            one, others go until it has so much room.
        kind: numbers stand at the right, names and words at the left; a page writes names as code.
        full: for each cell the full name of its kernel, which a page links to; empty where no
            cell has one.
    """

    title: str
    cells: tuple[str, ...] = ()
    gives_way: int | None = None
    key: str = ""
    least: int = 0
    kind: Literal["number", "name", "words"] = "number"
    full: tuple[str, ...] = ()

    def align(self, text: str, width: int) -> str:
        """Align the title or a cell."""
        return " " * (width - width_of(text)) + text if self.kind == "number" else left(text, width)


@dataclass(frozen=True, slots=True)
class Table:
    """A table before it has a format.

    Attributes:
        columns: in text, the last one is whole and wraps under itself.
        signs: one a row, empty where a row has none; without any sign it may be empty.
        extra: columns that stand before the last two where there is room for all: on a page, in
            what commands print, and with ``-v`` where the last one has a word.
    """

    columns: tuple[Column, ...]
    signs: tuple[str, ...] = ()
    extra: tuple[Column, ...] = ()

    @classmethod
    def of(cls, heads: Sequence[Column | str], rows: Iterable[Sequence[str]]) -> Table:
        """Make a table of rows; a head that is only a title is one of numbers."""
        cells = list(zip(*rows, strict=True)) or [()] * len(heads)
        columns = (Column(one) if isinstance(one, str) else one for one in heads)
        return cls(tuple(replace(one, cells=of) for one, of in zip(columns, cells, strict=True)))

    @property
    def shown(self) -> list[Column]:
        """The columns that have a word."""
        return [one for one in self.columns if any(one.cells)]

    @property
    def whole(self) -> Table:
        """The table with its extra columns."""
        return Table((*self.columns[:-2], *self.extra, *self.columns[-2:]), self.signs)

    def coloured(self, style: Style = _STYLE) -> Iterator[Line]:
        """Lay out the table as text: the titles, then each row behind its sign."""
        indent = 2 if any(self.signs) else 0
        is_whole = style.verbosity > 0 and any(self.columns[-1].cells)  # which ends it in any width
        columns = self.whole.columns if is_whole else self.columns
        laid = lay_out(columns, style.within(indent))
        yield (Span(" " * indent + laid.title, "light"),)
        signs, pad = self.signs or [""] * len(laid.rows), " " * laid.indent
        for sign, (cells, (first, *more)) in zip(signs, laid.rows, strict=True):
            lines = [_GAP.join([*cells, first]).rstrip(), *(pad + one for one in more)]
            for at, line in enumerate(lines):
                yield (Span(left("" if at else sign, indent) + line, _SIGN_COLOURS.get(sign, "")),)

    def lines(self, style: Style = _STYLE) -> list[str]:
        """Return these lines without colours."""
        return list(map(plain, self.coloured(style)))


@dataclass(frozen=True, slots=True)
class Laid:
    """A table in lines.

    Attributes:
        title: the line of titles.
        rows: for each row its cells, without the last, and the lines of the last.
        indent: where the last column begins.
        shown: the keys of the columns that are there.
    """

    title: str
    rows: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]
    indent: int
    shown: frozenset[str]


def lay_out(columns: Sequence[Column], style: Style) -> Laid:
    """Lay out a table. The last column is whole and wraps under itself. Where it has no room beside
    columns that can be cut, it stands below each row, and they are whole."""
    known = [replace(one, cells=tuple(map(style.say, one.cells))) for one in columns]
    *before, last = [one for one in known if any(one.cells)] or known[-1:]
    cuts = any(one.least for one in before)
    needed = _needed(last, whole=cuts)
    roomy = max(needed, min(_LEAST_LAST, _width_of(last)))
    widths = _widths(before, style.width - roomy, cuts=False)
    if is_below := cuts and _indent(widths.values()) + needed > style.width:
        widths = _widths(before, style.width + len(_GAP), cuts=True)
    shown = [(before[at], width) for at, width in widths.items()]
    indent = _BELOW if is_below else _indent(widths.values())
    room = max(style.width - indent, _LEAST_ROOM)
    rows = []
    for at, cell in enumerate(last.cells):
        cells = [one.align(cut_middle(one.cells[at], width), width) for one, width in shown]
        if last.kind == "number":
            lines = [last.align(cell, _width_of(last))]
        elif is_below:
            told = f"{last.title} {cell}" if cell else ""
            lines = ["", *filter(None, wrapped_name(told, room))]
        else:
            lines = wrapped_name(cell, room, 0 if cuts else _INDENT)
        rows.append((tuple(cells), tuple(lines)))
    titles = [one.align(one.title, width) for one, width in shown]
    titles += [] if is_below else [last.align(last.title, _width_of(last))]
    keys = frozenset(one.key for one in (*(one for one, _ in shown), last))
    return Laid(_GAP.join(titles).rstrip(), tuple(rows), indent, keys)


def _needed(last: Column, *, whole: bool) -> int:
    """Return how much room the last column has to have.

    Args:
        whole: whether a chain of operators breaks only before `` in ``.
    """
    if not whole:
        return min(last.least or _LEAST_LAST, _width_of(last))
    pieces = [piece.strip() for cell in last.cells for piece in _JOINTS[0].split(cell)]
    return max(map(width_of, (last.title, *pieces)))


def _widths(before: Sequence[Column], room: int, *, cuts: bool) -> dict[int, int]:
    """Return the widths of the columns before the last, by their places; none for those that go."""
    widths = {at: _width_of(one) for at, one in enumerate(before)}
    order = [(one.gives_way, at) for at, one in enumerate(before) if one.gives_way is not None]
    for _, at in sorted(order):
        excess = _indent(widths.values()) - room
        if excess <= 0:
            break
        if cuts and before[at].least:
            widths[at] = max(min(before[at].least, widths[at]), widths[at] - excess)
        elif not before[at].least:
            del widths[at]
    return widths


def _indent(widths: Collection[int]) -> int:
    return sum(widths) + len(_GAP) * len(widths)


def _width_of(column: Column) -> int:
    return max(map(width_of, (column.title, *column.cells)))
