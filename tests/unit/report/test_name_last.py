"""Tables whose name comes last, and text in columns of a terminal."""

from __future__ import annotations

import pytest

from pytest_kernelprof.report.tables import (
    Numbers,
    cut_end,
    cut_middle,
    head_of,
    lay_out,
    left,
    right,
    width_of,
    wrapped,
    wrapped_name,
)


def test_columns_stand_at_the_right_of_their_widest_cell() -> None:
    laid = lay_out([Numbers("kernels", ("5", "1234567890"))], ["a", "b"], 80, name="test")
    assert laid.title == "     kernels  test"
    assert [cells for cells, _ in laid.rows] == [("         5",), ("1234567890",)]
    assert laid.indent == 14


def test_a_short_name_needs_no_forty_columns() -> None:
    columns = [Numbers(f"c{i}" * 5, ("1",), gives_way=i) for i in range(5)]
    assert lay_out(columns, ["short"], 70, name="n").gone == frozenset()


def test_what_gives_way_first_is_gone_first_and_what_never_does_stays() -> None:
    columns = [
        Numbers("a" * 20, ("1",), None, "a"),
        Numbers("b" * 20, ("1",), 2, "b"),
        Numbers("c" * 20, ("1",), 1, "c"),
    ]
    name = ["n" * 60]
    assert lay_out(columns, name, 110, name="n").gone == frozenset()
    assert lay_out(columns, name, 100, name="n").gone == {"c"}
    assert lay_out(columns, name, 60, name="n").gone == {"b", "c"}


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("test_short", ["test_short"]),
        ("TestIt::test_it_is_rather_long", ["TestIt::test_it_is_", "  rather_long"]),
        ("test_it_is_long[a parameter]", ["test_it_is_long", "  [a parameter]"]),
        ("test_it_is_long_too [backward]", ["test_it_is_long_too", "  [backward]"]),
        ("a" * 30, ["aaaaaaaaaa…aaaaaaaaa"]),
    ],
)
def test_a_name_wraps_at_its_joints(name: str, lines: list[str]) -> None:
    assert [one.rstrip() for one in wrapped_name(name, 20)] == lines


def test_a_name_of_very_many_lines_is_cut_in_its_middle() -> None:
    lines = wrapped_name("test_" + "of_many_words_" * 1_000, 40)
    assert len(lines) <= 10
    assert any("…" in line for line in lines)


def test_wide_signs_count_twice_and_marks_above_others_not_at_all() -> None:
    assert width_of("日本") == 4
    assert width_of("e\u0301") == 1
    assert head_of("日本語", 3) == "日"
    assert right("日", 4) == "  日"
    assert left("日", 4) == "日  "


@pytest.mark.parametrize("text", ["a" * 50, "日本語" * 20, "e\u0301" * 50])
def test_what_is_cut_fits_and_says_where(text: str) -> None:
    for width in range(1, 30):
        assert width_of(cut_end(text, width)) <= max(1, width)
        assert width_of(cut_middle(text, width)) <= max(1, width)
    assert cut_end("abcdef", 4) == "abc…"
    assert cut_end("abcdef", 5, "...") == "ab..."
    assert cut_middle("abcdef", 5) == "ab…ef"


def test_a_sentence_breaks_at_spaces_and_a_long_word_anywhere() -> None:
    assert wrapped("to be or not", 6) == ["to be", "or not"]
    assert wrapped("a " + "b" * 14, 6) == ["a", "bbbbbb", "bbbbbb", "bb"]
    assert len(wrapped("b" * 100_000, 60)) == 8
