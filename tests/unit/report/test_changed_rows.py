"""The table of what is another than before."""

from __future__ import annotations

import pytest

from pytest_kernelprof.digest.changes import Changed, RowResult, Was, worst_first
from pytest_kernelprof.report.changed_rows import changed_lines
from pytest_kernelprof.report.spans import plain
from pytest_kernelprof.report.style import Style
from pytest_kernelprof.schema.run import Cause, Place

COPY = Cause("elementwise [copy] x2, from aten::copy_", Place("src/train.py", 31), "+")


def row(test: str, result: RowResult = "worse", **values: tuple[float, float]) -> Changed:
    known = {name: Was((old,), new) for name, (old, new) in values.items()}
    return Changed(f"tests/test_mlp.py::{test}", result, values=known, causes=(COPY,))


def lines(*rows: Changed, width: int = 80, encoding: str = "utf-8") -> list[str]:
    return [plain(line) for line in changed_lines(worst_first(rows), Style(width, encoding))]


def test_only_what_changed_worst_first_with_its_kernels_and_their_place() -> None:
    slower = Changed(
        "test_b.py::test_b",
        "undecided",
        values={"kernels": Was((6,), 6)},
        ratio=1.046,
        ratios=(1.039, 1.054),
        why="above half of the margin",
    )
    told = lines(row("test_better", "better", kernels=(2, 1)), slower, row("a", kernels=(4, 5)))
    assert told == [
        "  kernels  GPU time         range  test",
        "worse",
        "✗  4 -> 5                          test_mlp.py::a",
        "    + elementwise [copy] x2, from aten::copy_                        train.py:31",
        "undecided",
        "?       6    +4.6 %  +3.9..+5.4 %  test_b.py::test_b",
        "    above half of the margin",
        "better",
        "   2 -> 1                          test_mlp.py::test_better",
        "    + elementwise [copy] x2, from aten::copy_                        train.py:31",
    ]


def test_where_all_ran_on_the_cpu_operators_are_counted() -> None:
    on_cpu = Changed("t.py::a", "worse", values={"kernels": Was((3,), 4)}, counted="operators")
    assert lines(on_cpu)[0].split() == ["operators", "test"]
    assert lines(on_cpu, row("b", kernels=(1, 2)))[0].split() == ["kernels", "test"]


def test_a_count_has_its_column_where_it_changed_and_what_has_none_a_line() -> None:
    told = lines(row("a", kernels=(4, 4), syncs=(0, 2), peak_memory=(1e6, 2e6), launches=(4, 6)))
    assert told[0].split() == ["kernels", "waits", "test"]
    assert told[2].split() == ["✗", "4", "0", "->", "2", "test_mlp.py::a"]
    assert told[4].strip() == "peak_memory 1 MB -> 2 MB (+100.0 %); launches 4 -> 6"


def test_what_follows_from_a_column_is_not_told_again() -> None:
    told = lines(
        row("a", kernels=(4, 5), launches=(4, 5), cuda_time=(100, 120), gpu_busy=(101, 121))
    )
    assert " ".join(told[2].split()) == "✗ 4 -> 5 100.0 -> 120.0 +20.0 % test_mlp.py::a"
    assert len(told) == 4


def test_each_earlier_run_has_its_value() -> None:
    one = Changed("t.py::a", "worse", values={"kernels": Was((5, None, 4), 6)})
    assert lines(one)[2].split() == ["✗", "5", "-", "4", "->", "6", "t.py::a"]


def test_nothing_changed_is_no_table() -> None:
    assert lines() == []


@pytest.mark.parametrize("width", [60, 80, 120, 160])
def test_no_line_is_wider_than_the_terminal_and_names_stay_whole(width: int) -> None:
    name = "test_it_is_one_launch[" + "-".join(f"form{i}" for i in range(20)) + "]"
    wide = row(name, kernels=(14, 16), syncs=(0, 100), memcpys=(1, 9), latency=(1, 2))
    told = lines(wide, width=width)
    assert max(map(len, told)) <= width
    assert name.split("[")[0] in "".join(told)
    assert "form19]" in "".join(told)


def test_signs_are_ascii_where_the_terminal_has_no_others() -> None:
    told = lines(row("test_ü", kernels=(4, 5)), encoding="ascii")
    assert all(line.isascii() for line in told)
    assert told[2].startswith("F  4 -> 5  test_mlp.py::test_")


def test_hostile_names_are_text() -> None:
    evil = Changed(
        "t.py::\x1b[2J\n" + "n" * 100_000,
        "worse",
        label="\u202e",
        values={"kernels": Was((1,), 2)},
        why="\x00",
        causes=(Cause("k\x1b\ud800", Place("a\x1b.py", 1), "+"),),
    )
    told = lines(evil)
    assert all(line.isprintable() for line in told)
    assert len(told) < 20


def test_of_very_many_rows_sixty_are_told() -> None:
    told = lines(*(row(f"test_{i}", kernels=(4, 5)) for i in range(500)))
    assert told[-1] == "440 more rows"
