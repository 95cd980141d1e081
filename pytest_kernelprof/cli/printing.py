"""How a command prints: as wide as the terminal, in signs that it can say, with colours or not."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING

from pytest_kernelprof.report.tables import Style, text_width

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_kernelprof.report.tables import Colour, Line

_CODES: dict[Colour, str] = {
    "red": "31",
    "green": "32",
    "yellow": "33",
    "bold": "1",
    "dim": "2",
}


def style_here() -> Style:
    """That of standard output; a pipe, which has no width, has 100 columns."""
    piped = not sys.stdout.isatty() and not os.environ.get("COLUMNS")
    width = text_width(None if piped else shutil.get_terminal_size((100, 24)).columns)
    return Style(width, getattr(sys.stdout, "encoding", None) or "utf-8")


def print_lines(lines: Iterable[Line]) -> None:
    """Print lines, in colours on a terminal that is not told to have none."""
    coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and _knows_colours()
    for line in lines:
        print("".join(_told(text, colour, coloured=coloured) for text, colour in line).rstrip())


def _knows_colours() -> bool:
    return os.environ.get("TERM") != "dumb" and sys.platform != "win32"


def _told(text: str, colour: Colour, *, coloured: bool) -> str:
    return f"\x1b[{_CODES[colour]}m{text}\x1b[0m" if coloured and colour and text else text
