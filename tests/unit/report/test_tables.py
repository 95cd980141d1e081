"""Tables fit the width that they are given."""

from __future__ import annotations

import pytest

from pytest_kernelprof.report.tables import Column, render

COLUMNS = (
    Column("name", shrinks=True, keeps="end"),
    Column("kernel", shrinks=True, keeps="brackets"),
    Column("time", number=True),
)
ROWS = [["tests/test_a_very_long_name.py::test_it", "vectorized_elementwise [gelu]", "234.9us"]]


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_no_line_is_longer_than_the_width(width: int) -> None:
    assert max(map(len, render(COLUMNS, ROWS, width))) <= width


def test_names_are_cut_where_they_may_be_and_numbers_never() -> None:
    line = render(COLUMNS, ROWS, 40)[1]
    assert line.startswith("…")
    assert "::test_it" in line
    assert line.endswith("234.9us")


def test_a_wide_terminal_shows_everything() -> None:
    assert render(COLUMNS, ROWS, 200)[1].split("  ") == ROWS[0]


@pytest.mark.parametrize(
    ("width", "told"),
    [
        (29, "vectorized_elementwise [gelu]"),
        (24, "vectorized_eleme… [gelu]"),
        (12, "vectorized_…"),
        (10, "vectorize…"),
    ],
)
def test_what_stands_in_brackets_is_cut_last(width: int, told: str) -> None:
    column = Column("kernel", shrinks=True, keeps="brackets")
    assert render([column], [["vectorized_elementwise [gelu]"]], width)[1] == told
