"""What a reader of Markdown sees on GitHub: by its own parser, as tags, tables and texts."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import NamedTuple

import pytest

_VOID = {"br", "hr", "img", "input", "wbr"}
# Where GitHub looks for no name and no number.
_NOT_READ = {"code", "pre", "a", "tt", "script", "style"}
# Of numbers GitHub has two emoji: 100 and 1234. ``model.py:17:`` is none.
_EMOJI = r"(?<!:):(?:100|1234|[\w+-]*[^\W\d][\w+-]*):(?!:)"
_NOTIFIES = re.compile(rf"(?<![\w/])@\w|(?<!&)#\d|(?<![^\W_])GH-\d|{_EMOJI}")

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
    "a_https://evil.example 1https://evil.example a_www.evil.example a_GH-3",
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
    return Page(html_of(markdown))


def html_of(markdown: str) -> str:
    """The same as HTML."""
    cmarkgfm = pytest.importorskip("cmarkgfm")
    markdown.encode()  # a lone surrogate is no text
    html_too = cmarkgfm.cmark.Options.CMARK_OPT_UNSAFE
    return str(cmarkgfm.github_flavored_markdown_to_html(markdown, html_too))


COLUMNS = ["", "what is wrong", "to do"]
"""Of the table of what needs a look."""


class Look(NamedTuple):
    """A row of that table, which says what needs a look.

    Attributes:
        where: the lines of code. what: what is wrong, and with which test. todo: what to do first.
        code: what is written at these lines. intended: what to do else. whys: why, below ``what``.
    """

    sign: str
    where: str
    what: str
    todo: str
    code: tuple[str, ...] = ()
    intended: str = ""
    whys: tuple[str, ...] = ()


@dataclass
class Fold:
    """What unfolds.

    Attributes:
        opened: whether it is unfolded at first. depth: in how many others it stands.
        title: all of it. name: what is bold in it.
        told: its paragraphs and items of lists, without those of the folds in it.
        commands: what commands in it do.
    """

    opened: bool
    depth: int
    title: str = ""
    name: str = ""
    told: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)


class Page(HTMLParser):
    """HTML taken apart.

    Attributes:
        tags: of all elements. tables: of each the texts of its rows' cells. text: all of it.
        folds: what unfolds, in its order.
        notified: what GitHub would make a link of that notifies, or a picture.
        unclosed: tags that are open at the end, or closed where they are not open.
    """

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: set[str] = set()
        self.tables: list[list[list[str]]] = []
        self.text = ""
        self.folds: list[Fold] = []
        self.notified: list[str] = []
        self.unclosed: list[str] = []
        self._open: list[str] = []
        self._texts: list[tuple[str, list[str]]] = []
        self._opened: list[int] = []
        self._unfolding: list[Fold] = []
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
        elif tag == "details":
            self.folds.append(Fold("open" in dict(attrs), len(self._unfolding)))
            self._unfolding.append(self.folds[-1])
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
        told = _seen("".join(self._texts[at][1]))
        if tag in ("td", "th"):
            self.tables[-1][-1].append(told)
        elif tag == "details":
            self._unfolding.pop()
        elif tag in ("p", "li") and self._unfolding:
            does = tag == "p" and re.match(r"[A-Z].*:$", told)
            (self._unfolding[-1].commands if does else self._unfolding[-1].told).append(told)
        elif tag == "summary":
            self._unfolding[-1].title = told
        elif tag == "b" and "summary" in self._open:
            self._unfolding[-1].name = told

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

    def looks(self) -> list[Look]:
        """The rows of what needs a look."""
        (table,) = [one for one in self.tables if one[0] == COLUMNS] or [[]]
        return [_look_of(*cells) for cells in table[1:]]

    def details(self) -> list[tuple[Look, Fold | None]]:
        """What needs a look, each with its details, which stand in the same order."""
        found, left = [], list(self.folds)
        for look in self.looks():
            own = next((one for one in left if _is_of(one, look)), None)
            left = left[left.index(own) + 1 :] if own else left
            found.append((look, own))
        return found

    def items(self) -> list[str]:
        """What needs a look, each as ``sign where what / to do``, why, what details tell."""
        return [
            " / ".join([" ".join(filter(None, look[:3])), look.todo, *look.whys, *more])
            for look, fold in self.details()
            for more in [fold.told if fold else ()]
        ]


# Of a cause, a place follows "at".
_PLACE = r"((?:or )?(?:(?! at ).)*?\.py(?::\d+|$))(?:: (.*))?"


def _look_of(sign: str, what: str, todo: str) -> Look:
    """A row by its cells, of which each line tells something else."""
    what, *lines = what.replace("→", "->").split(" / ")
    todo, _, intended = todo.partition(" / ")
    found = {one: re.fullmatch(_PLACE, one) for one in lines}
    places = [one for one in found.values() if one]
    code = tuple(one[2] for one in places if one[2])
    whys = tuple(one for one in lines if not found[one])
    return Look(sign, ", ".join(one[1] for one in places), what, todo, code, intended, whys)


def _is_of(fold: Fold, look: Look) -> bool:
    """Whether it has the name of the test, or how many there are, that the row ends with."""
    ends = (f"in {fold.name}".strip(), f"({fold.name})")
    titles = (
        f"{of} of {fold.name}" for of in ("Kernels and commands", "Kernels", "Causes and commands")
    )
    return look.what.endswith(ends) and fold.title in titles


def _seen(told: str) -> str:
    return re.sub(r"\s+", " ", told.replace("\u200c", "")).strip()
