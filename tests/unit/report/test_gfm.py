"""Text in GitHub's Markdown, by GitHub's own parser: it is seen as it is, and does nothing."""

from __future__ import annotations

import html
import re
from collections.abc import Callable

import pytest
from gfm_pages import HOSTILE, Page, rendered

from pytest_kernelprof.report.markdown import code, details, fence, line, tag_text, text

INLINE = ("strong", "code", "span", "wbr")


def seen(words: str) -> str:
    """What a reader sees: one line of glyphs, without what has no width."""
    return line(words)


@pytest.mark.parametrize("words", HOSTILE)
@pytest.mark.parametrize("told", [text, code])
def test_in_a_cell_it_is_seen_as_it_is(words: str, told: object) -> None:
    assert callable(told)
    lines = ["| a | b |", "|---|--:|", f"| {told(words)} | end |", "| next | row |"]
    page = rendered("\n".join(lines))
    assert page.tables == [[["a", "b"], [seen(words), "end"], ["next", "row"]]]
    assert page.tags <= {"table", "thead", "tbody", "tr", "th", "td", "code", "span"}
    assert not page.notified


@pytest.mark.parametrize("words", HOSTILE)
@pytest.mark.parametrize("told", [text, code])
def test_in_a_cell_a_long_name_may_break_and_is_seen_as_it_is(
    words: str, told: Callable[[str], str]
) -> None:
    for long in (f"test_{'a_name::_of::' * 4}_{words}", f"{words}_{'a_name_' * 9}{words}"):
        lines = ["| a | b |", "|---|--:|", f"| **{told(long)}** | end |"]
        page = rendered("\n".join([*lines, "| next | row |"]))
        assert page.tables == [[["a", "b"], [seen(long), "end"], ["next", "row"]]]
        assert page.tags <= {*("table", "thead", "tbody", "tr", "th", "td"), *INLINE}
        assert {"strong", "wbr"} <= page.tags
        assert not page.notified
        unbroken = re.split("<wbr>| ", told(long))
        assert max(len(Page(one).text) for one in unbroken) < 40
    is_long = re.search("[^ ]{33}", line(words))
    assert ("<wbr>" in told(words)) == bool(is_long)


@pytest.mark.parametrize("words", HOSTILE)
def test_in_a_heading_and_a_paragraph_it_is_seen_as_it_is(words: str) -> None:
    page = rendered(f"### Of {text(words)}\n\nis **{text(words)}** here\n")
    of = f"Of {seen(words)}".strip()
    assert page.texts("h3") == [of]
    assert page.tags <= {"h3", "p", "strong", "span"}
    assert not page.notified


@pytest.mark.parametrize("words", HOSTILE)
def test_at_the_end_of_a_heading_it_is_seen_as_it_is(words: str) -> None:
    page = rendered(f"#### Of {text(words)}\n")
    assert page.texts("h4") == [f"Of {seen(words)}".strip()]
    assert page.tags <= {"h4", "span"}
    assert not page.notified


@pytest.mark.parametrize("words", HOSTILE)
def test_where_a_paragraph_or_an_item_begins_it_is_seen_as_it_is(words: str) -> None:
    items = f"- {text(words)}\n- end\n"
    page = rendered(f"{text(words)}<br>end\n\n{items}\n<sub>{text(words)}<br>end</sub>\n")
    told = f"{seen(words)} / end".strip()
    assert page.texts("p") == [told, told]
    assert page.texts("li") == [seen(words), "end"]
    assert page.texts("sub") == [told]
    assert page.tags <= {"p", "br", "ul", "li", "sub", "span"}
    assert page.unclosed == []
    assert not page.notified


@pytest.mark.parametrize("words", HOSTILE)
def test_what_unfolds_shows_it_as_it_is(words: str) -> None:
    inside = fence([f"+ {words}", "- gone"])
    page = rendered("\n".join(["before", "", *details(f"<b>{tag_text(words)}</b>", inside), "end"]))
    assert page.texts("b") == [seen(words)]
    (block,) = page.raw_texts("pre")
    assert block.splitlines()[1] == "- gone"
    assert len(block.splitlines()) == 2
    assert page.tags <= {"p", "details", "summary", "b", "pre", "code"}
    assert page.texts("p") == ["before", "end"]
    assert not page.notified


def test_of_long_text_both_ends_are_told() -> None:
    for told in (text, code, tag_text):
        found = Page(told("<" + "x" * 100_000 + ">")).text
        assert len(found) < 400
    assert re.fullmatch("<x+…x+>", html.unescape(tag_text("<" + "x" * 100_000 + ">")))
    (shown,) = fence(["+ " + "y" * 100_000])[1:-1]
    assert len(shown) < 400
