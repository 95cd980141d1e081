"""The tables of the reference are those of the code."""

from __future__ import annotations

from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "reference.md"
COMMAND = "run python docs/make_reference.py"


def test_the_tables_are_those_of_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(DOCS)
    from make_reference import filled

    page = PAGE.read_text(encoding="utf-8")
    assert page == filled(page), COMMAND


@pytest.mark.parametrize("name", ["markers", "options", "signatures"])
def test_a_page_that_lacks_a_block_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(DOCS)
    from make_reference import filled

    page = PAGE.read_text(encoding="utf-8").replace(f"<!-- generated: {name} -->", "")
    with pytest.raises(ValueError, match="each once"):
        filled(page)


def test_an_edited_table_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(DOCS)
    from make_reference import BLOCKS, filled

    page = PAGE.read_text(encoding="utf-8")
    for name, make in BLOCKS.items():
        assert page.count(make()) == 1, f"{name}: {COMMAND}"
        assert filled(page.replace(make(), "| old |")) == page
