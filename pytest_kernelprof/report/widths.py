"""Text in columns of a terminal: how wide it is, cut, wrapped; names whole, at their joints."""

from __future__ import annotations

import re
import unicodedata

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
