"""Lines of text for a terminal: how wide, in which signs and colours, which carry nothing that the
text does not say."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from pytest_kernelprof.report.tables import wrapped
from pytest_kernelprof.summary.records import MARKS
from pytest_kernelprof.units import printable

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pytest

    from pytest_kernelprof.summary.records import Mark, Told, Tone


Colour = Literal["", "red", "yellow", "green", "bold", "dim"]


class Span(NamedTuple):
    """A piece of a line, of one colour."""

    text: str
    colour: Colour = ""


Line = tuple[Span, ...]


def plain(line: Line) -> str:
    """The text of a line."""
    return "".join(span.text for span in line)


def sayable(text: str, encoding: str) -> str:
    """Text in one line that does nothing to a terminal and that its encoding can say, the rest
    escaped."""
    told = printable(text)
    if told.isascii():
        return told
    try:
        return told.encode(encoding, "backslashreplace").decode(encoding)
    except LookupError:
        return told.encode("ascii", "backslashreplace").decode()


def write_lines(terminal: pytest.TerminalReporter, lines: Iterable[Line]) -> None:
    """Write lines to pytest's terminal, which knows whether it has colours."""
    for line in lines:
        for text, colour in line:
            terminal.write(text, **({_MARKUP.get(colour, colour): True} if colour else {}))
        terminal.write("\n")


_MARKUP = {"dim": "light"}


_NARROWEST, _WIDEST, _PIPED = 60, 160, 100
_COLOURS: dict[Tone, Colour] = {"bad": "red", "lost": "red", "unsure": "yellow"}


@dataclass(frozen=True, slots=True)
class Style:
    """How it is told.

    Attributes:
        width: columns of the terminal that text has.
        encoding: what the terminal can say.
        verbosity: as pytest counts it: -1 with ``-q``, 1 with ``-v``.
    """

    width: int = _PIPED
    encoding: str = "utf-8"
    verbosity: int = 0

    @property
    def ascii(self) -> bool:
        """Whether signs have to be ASCII."""
        return sayable("✓", self.encoding) != "✓"

    @property
    def cut(self) -> str:
        """What marks the place where something is cut out."""
        return "..." if self.ascii else "…"

    def sign(self, told: Told | None) -> tuple[str, Colour]:
        """The sign of a mark, with its colour; a space for none."""
        return self.mark(MARKS[told]) if told is not None else (" ", "")

    def mark(self, mark: Mark) -> tuple[str, Colour]:
        """The same of an entry of a table of marks."""
        return (mark.letter if self.ascii else mark.sign), _COLOURS.get(mark.tone, "")

    def say(self, text: str) -> str:
        """Text that this terminal can say, in one line."""
        return sayable(text, self.encoding)

    def sentence(self, text: str, colour: Colour = "") -> list[Line]:
        """The lines of a sentence, as wide as text may be."""
        return [(Span(one, colour),) for one in wrapped(self.say(text), self.width)]


def style_of(terminal: pytest.TerminalReporter) -> Style:
    """The style of pytest's terminal; of a pipe, which has no width, one of 100 columns."""
    writer = terminal._tw
    piped = not getattr(terminal, "isatty", False) and not os.environ.get("COLUMNS")
    width = text_width(None if piped else writer.fullwidth)
    encoding = getattr(getattr(writer, "_file", None), "encoding", None) or "utf-8"
    return Style(width, encoding, terminal.verbosity)


def text_width(columns: int | None) -> int:
    """How wide text is on a terminal of so many columns; None of a pipe, which has no width."""
    return _PIPED if columns is None else max(_NARROWEST, min(_WIDEST, columns))
