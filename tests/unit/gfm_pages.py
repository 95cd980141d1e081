"""What a reader of Markdown sees on GitHub: by its own parser, as tags, tables and texts."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

_VOID = {"br", "hr", "img", "input"}
# Where GitHub looks for no name and no number.
_NOT_READ = {"code", "pre", "a", "tt", "script", "style"}
# Of numbers GitHub has two emoji: 100 and 1234. ``model.py:17:`` is none.
_EMOJI = r"(?<!:):(?:100|1234|[\w+-]*[^\W\d][\w+-]*):(?!:)"
_NOTIFIES = re.compile(rf"(?<![\w/])@\w|(?<!&)#\d|\bGH-\d|{_EMOJI}")

HOSTILE = [
    "plain",
    "test__init__ and _x_ and a_b",
    "a|b",
    "a\\|b",
    "a\\\\|b",
    "`tick` ``two``",
    "`",
    "``` fence",
    "*bold* **b** ~~gone~~",
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "</details></summary></code></td>",
    "&lt; &amp; &#65;",
    "[link](javascript:alert(1)) ![i](x)",
    "http://evil.example/x www.evil.example a@evil.example ftp://x.example",
    "@someone and @org/team, #1, owner/repo#2, GH-3",
    ":tada: TestA::test_b::c",
    "$\\alpha$ $$x$$",
    "line\nbreak\r\nand\ttab",
    "\x1b[31mred\x1b[0m\x07\0",
    "\u202eltr\u202c \u2066x\u2069",
    "😀 héé 中文",
    "\ud800 lone",
    "--- | ---",
    "# heading",
    "- item",
    "+ item",
    "1. item",
    "> quote",
    "---",
    "at the end #",
    " spaces ",
    "",
    "-->",
    "<!--",
    "]]>",
]
"""Names that would do something in Markdown, in HTML or in a terminal."""


def rendered(markdown: str) -> Page:
    """A page as GitHub renders it, HTML included, before it takes tags out that it does not allow:
    what is harmless here is harmless there."""
    cmarkgfm = pytest.importorskip("cmarkgfm")
    markdown.encode()  # a lone surrogate is no text
    html_too = cmarkgfm.cmark.Options.CMARK_OPT_UNSAFE
    return Page(cmarkgfm.github_flavored_markdown_to_html(markdown, html_too))


class Page(HTMLParser):
    """HTML taken apart.

    Attributes:
        tags: of all elements. tables: of each the texts of its rows' cells. text: all of it.
        notified: what GitHub would make a link of that notifies, or a picture.
        unclosed: tags that are open at the end, or closed where they are not open.
    """

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: set[str] = set()
        self.tables: list[list[list[str]]] = []
        self.text = ""
        self.notified: list[str] = []
        self.unclosed: list[str] = []
        self._open: list[str] = []
        self._texts: list[tuple[str, list[str]]] = []
        self._opened: list[int] = []
        self._blocks: list[int] = []
        self.feed(source)
        self.close()
        self.unclosed += self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag == "br":
            self.handle_data(" / ")
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        if tag in ("h3", "h4", "p", "li") and "details" not in self._open:
            self._blocks.append(len(self._texts))
        self._texts.append((tag, []))
        if tag not in _VOID:
            self._open.append(tag)
            self._opened.append(len(self._texts) - 1)

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open[-1] != tag:
            self.unclosed.append(tag)
            return
        self._open.pop()
        at = self._opened.pop()
        if tag in ("td", "th"):
            self.tables[-1][-1].append(_seen("".join(self._texts[at][1])))

    def handle_data(self, data: str) -> None:
        self.text += data
        for at in self._opened:
            self._texts[at][1].append(data)
        if not _NOT_READ & set(self._open):
            self.notified += _NOTIFIES.findall(data)

    def raw_texts(self, tag: str) -> list[str]:
        """What is inside of each element of a tag."""
        return ["".join(told) for name, told in self._texts if name == tag]

    def texts(self, tag: str) -> list[str]:
        """The same as it is seen."""
        return [_seen(told) for told in self.raw_texts(tag)]

    def items(self) -> list[str]:
        """What needs a look: its heading, and the paragraphs and items of lists that stand below
        it, up to the next heading or the facts at the end; not what unfolds."""
        facts, found = self.texts("sub"), list[list[str]]()
        for tag, told in (self._texts[at] for at in self._blocks):
            seen = _seen("".join(told))
            if tag in ("h3", "h4") or seen in facts:
                found.append([f"{tag} {seen}"])
            elif found:
                found[-1].append(seen)
        entries = (" / ".join(one).partition(" ") for one in found)
        return [told for tag, _, told in entries if tag == "h4" and told.startswith(("❌", "⚠️"))]


def _seen(told: str) -> str:
    return re.sub(r"\s+", " ", told.replace("\u200c", "")).strip()
