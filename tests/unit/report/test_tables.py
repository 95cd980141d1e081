"""The engine of text tables, and lines that wrap."""

from __future__ import annotations

import pytest

from pytest_kernelprof.report.tables import (
    Column,
    Laid,
    Style,
    Table,
    cut_middle,
    head_of,
    lay_out,
    left,
    width_of,
    wrapped,
    wrapped_name,
)


def names(*cells: str) -> Column:
    return Column("test", cells, kind="name")


def of(columns: list[Column], width: int) -> Laid:
    return lay_out(columns, Style(width))


def texts(laid: Laid) -> list[str]:
    pad, lines = " " * laid.indent, [laid.title]
    for cells, (first, *more) in laid.rows:
        lines += ["  ".join([*cells, first]).rstrip(), *(pad + one for one in more)]
    return lines


def test_numbers_stand_at_the_right_of_their_widest_cell() -> None:
    laid = of([Column("kernels", ("5", "1234567890")), names("a", "b")], 80)
    assert texts(laid) == ["   kernels  test", "         5  a", "1234567890  b"]
    assert laid.indent == 12


def test_a_column_without_any_text_is_not_there() -> None:
    laid = of([Column("a", ("", "")), Column("b", ("1", "")), names("x", "y")], 80)
    assert texts(laid) == ["b  test", "1  x", "   y"]
    last = of([Column("a", ("1",), key="a"), Column("b", ("22",), key="b"), names("")], 80)
    assert texts(last) == ["a   b", "1  22"]
    assert last.shown == {"a", "b"}


def test_a_short_name_needs_no_forty_columns() -> None:
    columns = [Column(f"c{i}" * 5, ("1",), gives_way=i, key=f"c{i}") for i in range(5)]
    assert len(of([*columns, names("short")], 70).shown) == 6


@pytest.mark.parametrize(("width", "shown"), [(110, "abc"), (100, "ab"), (60, "a")])
def test_what_gives_way_first_is_gone_first_and_what_never_does_stays(
    width: int, shown: str
) -> None:
    columns = [
        Column("a" * 20, ("1",), None, "a"),
        Column("b" * 20, ("1",), 2, "b"),
        Column("c" * 20, ("1",), 1, "c"),
    ]
    assert of([*columns, names("n" * 60)], width).shown == {*shown, ""}


COPY = "Memcpy DtoH (Device -> Pageable)"
CHAIN = "aten::copy_ in aten::contiguous"


@pytest.mark.parametrize(
    ("width", "lines"),
    [
        (65, [f"{COPY}  {CHAIN}"]),
        (64, [f"{COPY}  aten::copy_", f"{' ' * 34}in aten::contiguous"]),
        (53, [f"{COPY}  aten::copy_", f"{' ' * 34}in aten::contiguous"]),
        (52, [COPY, f"    by {CHAIN}"]),
        (
            31,
            ["Memcpy DtoH (D...e -> Pageable)", "    by aten::copy_", "      in aten::contiguous"],
        ),
    ],
)
def test_a_chain_wraps_then_stands_below_and_only_then_a_name_is_cut(
    width: int, lines: list[str]
) -> None:
    columns = [
        Column("copy", (COPY,), 0, least=4, kind="name"),
        Column("by", (CHAIN,), kind="name"),
    ]
    assert texts(of(columns, width))[1:] == lines


@pytest.mark.parametrize("encoding", ["ascii", "utf-8", "cp1252", "unknown"])
@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_no_line_is_longer_than_the_width_whatever_the_terminal_can_say(
    width: int, encoding: str
) -> None:
    columns = [
        Column("time", ("234.9us", "1")),
        Column("name", ("test_ä日本語_" * 9, "\x1b[2J\n"), 0, least=8, kind="name"),
        Column("by", ("aten::copy_ < " * 9, "é"), kind="name"),
    ]
    laid = lay_out(columns, Style(width, encoding))
    assert max(map(width_of, texts(laid))) <= width
    assert all(one.isprintable() for one in texts(laid))
    if encoding in ("ascii", "unknown"):
        assert "".join(texts(laid)).isascii()


def test_a_sign_stands_before_the_first_line_of_its_row() -> None:
    columns = (Column("#", ("1", "2")), names("test_" * 8, "b"))
    signed = Table(columns, ("", "+"))
    assert signed.lines(Style(30))[1:] == [
        "  1  test_test_test_test_test_",
        "       test_test_test_",
        "+ 2  b",
    ]
    colours = [line[0].colour for line in signed.coloured(Style(30))]
    assert colours == ["light", "", "", "red"]
    assert Table(columns).lines(Style(80)) == ["#  test", f"1  {'test_' * 8}", "2  b"]


def test_extra_columns_stand_before_the_last_two() -> None:
    some, name, extra = Column("#", ("1",)), names("a"), Column("extra", ("2",))
    table = Table((some, names("b"), name), extra=(extra,))
    assert table.lines() == ["#  test  test", "1  b     a"]
    assert table.whole.lines() == ["#  extra  test  test", "1      2  b     a"]


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("test_short", ["test_short"]),
        ("TestIt::test_it_is_rather_long", ["TestIt::test_it_is_", "  rather_long"]),
        ("test_it_is_long[a parameter]", ["test_it_is_long", "  [a parameter]"]),
        ("test_it_is_long_too [backward]", ["test_it_is_long_too", "  [backward]"]),
        ("aten::copy_ in aten::to_copy", ["aten::copy_", "  in aten::to_copy"]),
        ("gelu [a], gelu [b], mul", ["gelu [a], gelu [b],", "  mul"]),
        ("a" * 30, ["a" * 18, "  " + "a" * 12]),
    ],
)
def test_a_name_wraps_at_its_joints(name: str, lines: list[str]) -> None:
    assert wrapped_name(name, 20) == lines


def test_a_name_of_very_many_lines_is_cut_in_its_middle() -> None:
    lines = wrapped_name("test_" + "of_many_words_" * 1_000, 40)
    assert len(lines) <= 10
    assert any("..." in line for line in lines)


def test_wide_signs_count_twice_and_marks_above_others_not_at_all() -> None:
    assert width_of("日本") == 4
    assert width_of("e\u0301") == 1
    assert head_of("日本語", 3) == "日"
    assert left("日", 4) == "日  "


@pytest.mark.parametrize("text", ["a" * 50, "日本語" * 20, "e\u0301" * 50])
def test_what_is_cut_fits_and_says_where(text: str) -> None:
    for width in range(1, 30):
        assert width_of(cut_middle(text, width)) <= max(1, width)
        assert all(width_of(one) <= max(2, width) for one in wrapped(text, width))
    assert cut_middle("abcdef", 5) == "a...f"


def test_a_sentence_breaks_at_spaces_and_a_long_word_anywhere() -> None:
    assert wrapped("to be or not", 6) == ["to be", "or not"]
    assert wrapped("a " + "b" * 14, 6) == ["a", "bbbbbb", "bbbbbb", "bb"]
    assert len(wrapped("b" * 100_000, 60)) == 8


def test_a_short_last_word_does_not_stand_alone() -> None:
    assert wrapped("to wait for it", 12) == ["to wait", "for it"]
    assert wrapped("to wait for long", 12) == ["to wait", "for long"]
    assert wrapped("to wait for words", 12) == ["to wait for", "words"]


def test_no_line_begins_with_a_percent_sign_or_an_arrow() -> None:
    text = "GPU time +8.0 % of 3 -> 4 kernels"
    for width in range(10, len(text)):
        lines = wrapped(text, width)
        assert " ".join(lines) == text
        assert not any(line.startswith(("%", "->")) for line in lines)
    assert wrapped("it is +8.0 %", 10) == ["it is", "+8.0 %"]
    assert wrapped("kernels 3 -> 4", 10) == ["kernels", "3 -> 4"]
