"""Read an HTML page as text: what a reader sees, a block a line."""

from __future__ import annotations

import re
from html.parser import HTMLParser

_UNSEEN = {"script", "style", "title", "template", "svg"}
_INSIDE = {"span", "a", "b", "code", "em", "i", "strong", "sub", "sup", "small", "wbr", "abbr"}
_CELLS = {"td", "th"}
_ROWS = {"table", "thead", "tbody", "tfoot", "tr"}  # whose ends may be left out


# What only a phone shows.
_ON_PHONES = re.compile(
    r'<div class="remedy">(?:[^<]|<(?!/?div)|<div class="command">.*?</div>)*</div>', re.DOTALL
)


def text_of(source: str) -> str:
    """The visible text of a page, without tags."""
    reader = _Reader()
    reader.feed(_ON_PHONES.sub("", source))
    reader.close()
    lines = (re.sub(r" +", " ", line).strip() for line in "".join(reader.texts).splitlines())
    return "\n".join(line for line in lines if line.strip(" |"))


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.texts: list[str] = []
        self._unseen = 0
        self._in_row = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _ROWS:
            self.texts.append("\n")
            self._in_row = tag == "tr" and dict(attrs).get("class") != "inside"  # one line a row
        elif tag in _UNSEEN:
            self._unseen += 1
        elif tag in _CELLS:
            self.texts.append(" | ")
        elif tag in ("a", "span"):  # what stands beside each other is no one word
            self.texts.append(" ")
        elif tag not in _INSIDE:
            self._break()

    def handle_endtag(self, tag: str) -> None:
        if tag in _UNSEEN:
            self._unseen -= 1
        if tag in _ROWS:
            self._in_row = False
        if tag not in _UNSEEN | _INSIDE | _CELLS:
            self._break()

    def _break(self) -> None:
        self.texts.append(" " if self._in_row else "\n")

    def handle_data(self, data: str) -> None:
        if not self._unseen:
            self.texts.append(re.sub(r"\s+", " ", data))
