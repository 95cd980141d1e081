"""Lines of text with colours, for a terminal: colour carries nothing that the text does not say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from pytest_kernelprof.units import printable

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pytest

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
