"""The tables of the reference are those of the code."""

from __future__ import annotations

from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
COMMAND = "run python docs/make_reference.py"
PAGES = ["reference.md", "options.md"]


@pytest.mark.parametrize("name", PAGES)
def test_the_tables_are_those_of_the_code(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(DOCS)
    from make_reference import BLOCKS, filled

    page = (DOCS / name).read_text(encoding="utf-8")
    assert list(BLOCKS) == PAGES
    assert page == filled(page, name), COMMAND


@pytest.mark.parametrize(
    ("name", "block"),
    [("reference.md", "markers"), ("reference.md", "signatures"), ("options.md", "options")],
)
def test_a_page_that_lacks_a_block_is_refused(
    name: str, block: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(DOCS)
    from make_reference import filled

    page = (DOCS / name).read_text(encoding="utf-8").replace(f"<!-- generated: {block} -->", "")
    with pytest.raises(ValueError, match="each once"):
        filled(page, name)


@pytest.mark.parametrize("name", PAGES)
def test_an_edited_table_is_made_again(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(DOCS)
    from make_reference import BLOCKS, filled

    page = (DOCS / name).read_text(encoding="utf-8")
    for block, make in BLOCKS[name].items():
        assert page.count(make()) == 1, f"{block}: {COMMAND}"
        assert filled(page.replace(make(), "| old |"), name) == page
