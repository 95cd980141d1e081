"""How a report is told on a terminal: how wide, in which signs, how much of it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_kernelprof.report.spans import sayable

if TYPE_CHECKING:
    import pytest

    from pytest_kernelprof.digest.marks import Told
    from pytest_kernelprof.report.spans import Colour

_NARROWEST, _WIDEST, _PIPED = 60, 160, 100
# Of each mark its sign, pytest's own letter for terminals that cannot say it, and a colour.
_SIGNS: dict[Told, tuple[str, str, Colour]] = {
    "over": ("✗", "F", "red"),
    "incomplete": ("!", "E", "red"),
    "failed": ("✗", "F", "red"),
    "error": ("!", "E", "red"),
    "undecided": ("?", "?", "yellow"),
    "kept": ("✓", ".", ""),
    "expected": ("x", "x", ""),
    "xfailed": ("x", "x", ""),
    "rerun": ("–", "s", ""),
    "skipped": ("–", "s", ""),
    "not judged": ("–", "s", ""),
}


@dataclass(frozen=True, slots=True)
class Style:
    """How it is told.

    Attributes:
        width: columns of the terminal that text has.
        encoding: what the terminal can say.
        verbosity: as pytest counts it: -1 with ``-q``, 1 with ``-v``.
        every_row: whether each row is listed, unfolded.
    """

    width: int = _PIPED
    encoding: str = "utf-8"
    verbosity: int = 0
    every_row: bool = False

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
        if told is None:
            return " ", ""
        sign, letter, colour = _SIGNS[told]
        return (letter if self.ascii else sign), colour

    def say(self, text: str) -> str:
        """Text that this terminal can say, in one line."""
        return sayable(text, self.encoding)


def style_of(terminal: pytest.TerminalReporter, *, every_row: bool = False) -> Style:
    """The style of pytest's terminal; of a pipe, which has no width, one of 100 columns."""
    writer = terminal._tw
    piped = not getattr(terminal, "isatty", False) and not os.environ.get("COLUMNS")
    width = text_width(None if piped else writer.fullwidth)
    encoding = getattr(getattr(writer, "_file", None), "encoding", None) or "utf-8"
    return Style(width, encoding, terminal.verbosity, every_row)


def text_width(columns: int | None) -> int:
    """How wide text is on a terminal of so many columns; None of a pipe, which has no width."""
    return _PIPED if columns is None else max(_NARROWEST, min(_WIDEST, columns))
