"""What is written can be read: no sentence of the pages is long."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
MOST_WORDS = 35


def sentences(page: str) -> Iterator[str]:
    """Those of paragraphs and items of lists; tables, code and headings have none."""
    prose = re.sub(r"^```.*?^```|<!--.*?-->", "\n\n", page, flags=re.S | re.M)
    prose = re.sub(r"^(?:\||#).*$", "", prose, flags=re.M)
    prose = re.sub(r"^\s*(?:[-*]|\d+\.) ", "\n\n", prose, flags=re.M)
    for paragraph in re.split(r"\n\s*\n", prose):
        yield from re.split(r"(?<=[.!?:])\)?\s+", " ".join(paragraph.split()))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_sentence_is_long(page: Path) -> None:
    told = sentences(page.read_text(encoding="utf-8"))
    assert [one for one in told if len(one.split()) > MOST_WORDS] == []
