"""JSON that people and merges edit: where each thing stands, and what plain parsers pass over."""

from __future__ import annotations

import json
import re
from typing import Any

Path = tuple[str | int, ...]

_CONFLICT = re.compile(r"^(<{7}|={7}|>{7}|\|{7})(?: |$)", re.MULTILINE)
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_NO_NUMBERS = ("NaN", "Infinity", "-Infinity")


class BadTextError(ValueError):
    """Why a text is not what it should be, and the line, from 1."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(why)
        self.line = line


def parse(data: bytes) -> tuple[Any, dict[Path, int]]:
    """The value, and the line of everything in it by its path.

    Raises:
        BadTextError: no UTF-8, no JSON, a key twice, a number that is none, or left by a merge.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise BadTextError(data.count(b"\n", 0, error.start) + 1, "no UTF-8") from None
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        conflict = _CONFLICT.search(text)
        if conflict is not None:
            line = text.count("\n", 0, conflict.start()) + 1
            raise BadTextError(line, f"a merge conflict ({conflict[1]})") from None
        raise BadTextError(error.lineno, f"no JSON: {error.msg}") from None
    except (RecursionError, ValueError):  # a number of too many digits
        raise BadTextError(
            1, "no JSON that can be read: nested too deep, or too large a number"
        ) from None
    return value, _lines(text)


def _lines(text: str) -> dict[Path, int]:
    """Of a text that is JSON."""
    found: dict[Path, int] = {(): 1}
    path: list[str | int] = []
    kinds: list[str] = []
    line, at, key_comes = 1, 0, False
    for token in _TOKEN.finditer(text):
        line, at = line + text.count("\n", at, token.start()), token.start()
        word = token[0]
        if word in "}]":
            kinds.pop()
            path.pop()
            key_comes = False
        elif word == ",":
            if kinds[-1] == "[":
                path[-1] = int(path[-1]) + 1
            key_comes = kinds[-1] == "{"
        elif word == ":":
            key_comes = False
        elif key_comes and word[0] == '"':
            path[-1] = json.loads(word)
            if tuple(path) in found:
                raise BadTextError(line, f"the key {word} stands there twice")
            found[tuple(path)] = line
            key_comes = False
        else:
            if word in _NO_NUMBERS:
                raise BadTextError(line, f"{word} is no number")
            found.setdefault(tuple(path), line)
            if word in "{[":
                kinds.append(word)
                path.append("" if word == "{" else 0)
                key_comes = word == "{"
    return found
