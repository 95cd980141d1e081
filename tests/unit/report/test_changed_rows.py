"""The table of what is another than before."""

from __future__ import annotations

import pytest

from pytest_kernelprof.report.changed_rows import changed_lines
from pytest_kernelprof.report.style import Style, plain
from pytest_kernelprof.schema.comparison import (
    Change,
    KernelChange,
    KernelDiff,
    KernelSide,
    MetricDelta,
    ProfileComparison,
    RunComparison,
)
from pytest_kernelprof.schema.paired import Paired, TimedPair
from pytest_kernelprof.summary.comparisons import BaselineDigest

COPIED = KernelSide("elementwise [copy]", ("aten::copy_",), "src/train.py:31")
COPY = KernelChange("added", current=COPIED, times=2)


def row(test: str, change: Change = "worse", **values: tuple[float, float]) -> ProfileComparison:
    """Of metrics before and now; two copies came."""
    old, new = values.pop("kernels", (4, 4))
    metrics = tuple(
        MetricDelta(name=name, baselines=(a,), current=b, change=change, judged=True)
        for name, (a, b) in (("kernels", (old, new)), *values.items())
        if a != b
    )
    return ProfileComparison(
        source="run",
        test=f"tests/test_mlp.py::{test}",
        change=change,
        kernels=KernelDiff(baseline_kernels=int(old), current_kernels=int(new), changes=(COPY,)),
        metrics=metrics,
    )


def counted(*baselines: float | None, current: float, what: str = "kernels") -> ProfileComparison:
    """Of nothing but kernels, of several earlier runs."""
    delta = MetricDelta(
        name="kernels", baselines=baselines, current=current, change="worse", judged=True
    )
    diff = KernelDiff(baseline_kernels=1, current_kernels=2, what=what)  # type: ignore[arg-type]
    return ProfileComparison(
        source="run", test="t.py::a", change="worse", kernels=diff, metrics=(delta,)
    )


def lines(*rows: ProfileComparison, width: int = 80, encoding: str = "utf-8") -> list[str]:
    found = BaselineDigest(RunComparison(source="run", name="old.json"), rows)
    return [plain(line) for line in changed_lines(found.rows, Style(width, encoding))]


def test_only_what_changed_worst_first_with_its_kernels_and_their_place() -> None:
    pairs = tuple(TimedPair(None, ratio, 12, 100.0, 104.6) for ratio in (1.039, 1.054))
    slower = ProfileComparison(
        source="revision",
        test="test_b.py::test_b",
        change="undecided",
        kernels=KernelDiff(baseline_kernels=6, current_kernels=6),
        paired=Paired("undecided", "above half of the margin", 1.046, pairs=pairs),
    )
    same = ProfileComparison(source="revision", test="test_b.py::test_same")
    told = lines(
        row("test_better", "better", kernels=(2, 1)), slower, row("a", kernels=(4, 5)), same
    )
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
    on_cpu = counted(3, current=4, what="operators")
    assert lines(on_cpu)[0].split() == ["operators", "test"]
    assert lines(on_cpu, row("b", kernels=(1, 2)))[0].split() == ["kernels", "test"]


def test_a_count_has_its_column_where_it_changed_and_what_has_none_a_line() -> None:
    told = lines(row("a", syncs=(0, 2), peak_memory=(1e6, 2e6), launches=(4, 6)))
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
    one = counted(5, None, 4, current=6)
    assert lines(one)[2].split() == ["✗", "5", "-", "4", "->", "6", "t.py::a"]


def test_what_fails_nothing_is_told_as_that() -> None:
    unjudged = MetricDelta(name="cuda_time", baselines=(100.0,), current=150.0, change="worse")
    slower = ProfileComparison(source="run", test="t.py::a", change="worse", metrics=(unjudged,))
    told = lines(slower)
    assert told[1] == "worse (not checked)"
    assert told[2].split() == ["100.0", "->", "150.0", "+50.0", "%", "t.py::a"]


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
    odd = KernelSide("k\x1b\ud800", ("op\x1b",), "a\x1b.py:1")
    evil = ProfileComparison(
        source="revision",
        test="t.py::\x1b[2J\n" + "n" * 100_000,
        label="\u202e",
        change="undecided",
        kernels=KernelDiff(
            baseline_kernels=1, current_kernels=2, changes=(KernelChange("added", current=odd),)
        ),
        paired=Paired("undecided", "\x00"),
    )
    told = lines(evil)
    assert all(line.isprintable() for line in told)
    assert len(told) < 20


def test_of_very_many_kernels_six_are_told_and_of_very_many_rows_sixty() -> None:
    came = tuple(
        KernelChange("added", current=KernelSide(f"k{i}"), hunk=i, at=i + 1) for i in range(10)
    )
    diff = KernelDiff(baseline_kernels=0, current_kernels=10, changes=came)
    many = ProfileComparison(source="run", test="t.py::a", change="changed", kernels=diff)
    told = lines(many)
    assert [line.split()[:2] for line in told[3:9]] == [["+", f"k{i}"] for i in range(6)]
    assert told[9].strip() == "4 more changes of kernels"
    assert lines(*(row(f"test_{i}", kernels=(4, 5)) for i in range(500)))[-1] == "440 more rows"
