"""What differs from a baseline, in the rows of the terminal's table."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from records import run_compared

from pytest_kernelprof.records.comparison import (
    Change,
    KernelChange,
    KernelDiff,
    KernelSide,
    MetricDelta,
    Paired,
    ProfileComparison,
    TimedPair,
)
from pytest_kernelprof.report.tables import Style, plain
from pytest_kernelprof.report.terminal import columns_of, report_lines
from pytest_kernelprof.summary.comparisons import deltas_of
from pytest_kernelprof.summary.run import summary_of

COPIED = KernelSide("elementwise [copy]", ("aten::copy_",), "src/train.py:31")
COPY = KernelChange("added", current=COPIED, times=2)
MAIN = "main (abc1234)"
SLOWER = Paired(
    "worse", ratio=1.077, pairs=(TimedPair(None, 1.08, 12, 233.1, 251.0),) * 4, agreeing=4,
    margin=0.05, baseline_us=233.1, current_us=251.0,
)  # fmt: skip


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


def lines(
    *found: ProfileComparison,
    width: int = 80,
    encoding: str = "utf-8",
    ends: str = "the run fails",
    warn_only: bool = False,
    verbosity: int = 0,
    **base: Any,
) -> list[str]:
    summary, style = summary_of(run_compared(*found, **base)), Style(width, encoding, verbosity)
    told = report_lines(summary, style, brief=True, ends=ends, warn_only=warn_only)
    return [plain(line).rstrip() for line in told]


def table(told: list[str]) -> list[str]:
    """From the titles to the first empty line behind which no group begins."""
    begin = next(i for i, line in enumerate(told) if line.endswith("  test"))
    ends = (i for i, line in enumerate(told) if i > begin and not line)
    end = next(i for i in ends if told[i + 1 : i + 2] != ["better"])
    return [line for line in told[begin:end] if "more test" not in line]


def test_what_needs_a_look_comes_first_then_what_changed_with_its_kernels() -> None:
    pairs = tuple(TimedPair(None, ratio, 12, 100.0, 104.6) for ratio in (1.039, 1.054))
    slower = ProfileComparison(
        source="run",
        test="tests/test_b.py::test_b",
        change="undecided",
        kernels=KernelDiff(baseline_kernels=6, current_kernels=6),
        paired=Paired("undecided", "above half of the margin", 1.046, pairs=pairs),
    )
    same = ProfileComparison(source="run", test="tests/test_b.py::test_same")
    better, more = row("test_better", "better", kernels=(2, 1)), row("a", kernels=(4, 5))
    told = lines(better, slower, more, same)
    assert told[1:3] == ["", "✗ train.py:31: added kernel: elementwise [copy] x2 (a)"]
    at = next(i for i, line in enumerate(told) if line.startswith("? "))
    assert told[at : at + 5] == [
        "? tests/test_b.py: undecided against the earlier run: GPU time +3.9..+5.4 %,",
        "  margin 0 % (test_b)",
        "  GPU time +4.6 %, mean of 2 interleaved pairs",
        "  medians 0.0us -> 0.0us",
        "  undecided, above half of the margin",
    ]
    at = next(i for i, line in enumerate(told) if "better" in line)
    assert told[at - 1 : at + 3] == [
        "",
        "✓ better: kernels 2 -> 1; added kernel: elementwise [copy] x2 at train.py:31",
        "  (test_better)",
        "",
    ]
    assert not any(line.endswith("  test") for line in told)
    assert table(lines(better, slower, more, same, verbosity=1)) == [
        "  kernels  launches  change         range  test",
        "tests/test_mlp.py",
        "✗  4 -> 5         5                        a",
        "tests/test_b.py",
        "?       5         5  +4.6 %  +3.9..+5.4 %  test_b",
        "",
        "better",
        "tests/test_mlp.py",
        "✓  2 -> 1         5                        test_better",
        "    + elementwise [copy] x2 at train.py:31",
    ]


def test_a_line_of_what_changed_has_its_time_its_counts_and_three_of_its_kernels() -> None:
    pairs = tuple(TimedPair(None, ratio, 12, 100.0, 90.0) for ratio in (0.89, 0.91) * 2)
    paired = Paired("better", ratio=0.9, pairs=pairs, baseline_us=100.0, current_us=90.0)
    gone = tuple(
        KernelChange("removed", KernelSide(f"k{at}", (), f"m.py:{at}"), at=at) for at in range(4)
    )
    kernels = KernelDiff(baseline_kernels=5, current_kernels=1, changes=gone)
    faster = replace(row("test_faster", "better", kernels=(5, 1)), paired=paired, kernels=kernels)
    told = " ".join(lines(WORSE, faster, width=200))
    assert "✓ better: GPU time -11.0..-9.0 %; kernels 5 -> 1; " in told
    gone_words = [f"kernel gone: k{at} at m.py:{at}" for at in range(3)]
    assert f"; {'; '.join(gone_words)} (test_faster) " in told
    assert "k3" not in told


def test_the_section_says_what_was_not_compared_and_last_what_fails() -> None:
    worse = ProfileComparison(
        source="revision",
        test="t.py::test_it",
        change="worse",
        metrics=row("", kernels=(4, 5)).metrics,
        notes=("other software: torch",),
    )
    same = ProfileComparison(
        source="revision", test="t.py::same", paired=Paired("same", pairs=SLOWER.pairs, margin=0.05)
    )
    refused = ProfileComparison(
        source="revision", test="t.py::new", change="not compared", reason="no such test"
    )
    found: dict[str, Any] = {"name": MAIN, "notes": ("a submodule is left out",)}
    told, whole = (lines(worse, same, refused, verbosity=v, **found) for v in (0, 1))
    assert told[0] == "1 of 2 compared tests is worse than main (abc1234)."
    counts = "against main: 1 worse, 1 not compared, 1 unchanged"
    assert whole[-9:-6] == ["", counts, "1 call timed (interleaved), margin 5 %"]
    assert whole[-6:] == told[-6:]
    assert not any(line.startswith("against") for line in told)
    assert told[-7:] == [
        "",
        "not compared t.py::new: no such test",
        "note         t.py::test_it: other software: torch",
        "             a submodule is left out",
        "",
        "NVIDIA H200, torch 2.11.0+cu130, triton 3.6.0",
        "3 profiles",
    ]


WORSE, SAME = row("a", kernels=(4, 5)), row("b", "same")
BETTER = row("c", "better", kernels=(2, 1))


@pytest.mark.parametrize(
    ("found", "verbosity", "told_of"),
    [
        ((WORSE,), 0, []),  # its number is in the verdict
        ((WORSE,), 1, ["against old.json: 1 worse", "1 more kernel in total"]),
        ((WORSE, SAME), 0, []),
        ((WORSE, SAME), 1, ["against old.json: 1 worse, 1 unchanged", "1 more kernel in total"]),
        ((BETTER,), 0, ["against old.json: 1 better", "1 fewer kernel in total"]),
    ],
)
def test_where_something_is_wrong_counts_and_sums_are_left_to_v(
    found: tuple[ProfileComparison, ...], verbosity: int, told_of: list[str]
) -> None:
    told = lines(*found, verbosity=verbosity)
    assert [line for line in told if line.startswith("against") or "in total" in line] == told_of


@pytest.mark.parametrize(
    ("found", "more", "last"),
    [
        ((WORSE,), {"warn_only": True}, "only a warning: kernels rose in 1 profile"),
        ((WORSE,), {"ends": "exit status 1"}, "exit status 1: kernels rose in 1 profile"),
        ((SAME,), {}, "1 profile"),
        ((), {"warn_only": True}, "the run fails: nothing could be compared"),
    ],
)
def test_the_last_line_says_what_fails(
    found: tuple[ProfileComparison, ...], more: dict[str, Any], last: str
) -> None:
    assert lines(*found, **more)[-1] == last


def test_a_count_has_its_column_where_it_changed_and_what_has_none_a_line() -> None:
    one = row("a", peak_memory=(1e6, 2e6), launches=(4, 6))
    told = table(lines(one, verbosity=1))
    assert told[0].split() == ["kernels", "launches", "test"]
    assert told[3].strip() == "peak_memory 1 MB -> 2 MB (+100.0 %)"
    rows = summary_of(run_compared(one)).rows
    assert [column.key for column in columns_of(rows, verbose=False)] == ["kernels", "launches"]


def test_what_follows_from_a_column_is_not_told_again() -> None:
    def told(change: Change, verbosity: int = 0) -> list[str]:
        found = row(
            "a", change,
            kernels=(4, 5), launches=(4, 5), cuda_time=(100, 120), gpu_busy=(101, 121),
        )  # fmt: skip
        return table(lines(found, verbosity=verbosity))

    assert len(told("worse", verbosity=1)) == 3
    better = told("better")
    assert better[0].split() == ["kernels", "GPU", "us", "change", "test"]
    assert better[1] == "better"
    assert better[4:] == ["    + elementwise [copy] x2 at train.py:31"]


def test_a_latency_that_is_not_judged_is_no_change_of_a_row_that_is_the_same() -> None:
    pairs = (TimedPair(None, 1.0, 12, 50.0, 50.0),) * 4
    same = Paired(
        "same", ratio=1.0, pairs=pairs, baseline_us=50.0, current_us=50.0,
        baseline_latency_us=80.0, current_latency_us=90.0,
    )  # fmt: skip
    kernels = KernelDiff(baseline_kernels=4, current_kernels=4)
    one = ProfileComparison(source="revision", change="same", kernels=kernels, paired=same)
    assert list(deltas_of(one)) == ["kernels"]
    assert "80.0" not in " ".join(lines(replace(one, test="tests/test_mlp.py::same")))
    slower = replace(one, change="worse", paired=replace(same, change="worse", ratio=1.1))
    assert "latency" in deltas_of(slower)


def test_each_earlier_run_has_its_value() -> None:
    delta = MetricDelta(
        name="kernels", baselines=(5, None, 4), current=6, change="worse", judged=True
    )
    one = ProfileComparison(source="run", test="t.py::a", change="worse", metrics=(delta,))
    assert table(lines(one, verbosity=1))[1:] == [
        "t.py",
        "✗ 5 - 4 -> 6         5  a",
    ]


def test_what_fails_nothing_is_told_as_that() -> None:
    unjudged = MetricDelta(name="cuda_time", baselines=(100.0,), current=150.0, change="worse")
    slower = ProfileComparison(source="run", test="t.py::a", change="worse", metrics=(unjudged,))
    run = run_compared(slower)
    assert run.tests[0].outcome == "passed"


@pytest.mark.parametrize("width", [60, 80, 120, 160])
def test_names_stay_whole_at_every_width(width: int) -> None:
    name = "test_it_is_one_launch[" + "-".join(f"form{i}" for i in range(20)) + "]"
    wide = row(name, kernels=(14, 16), syncs=(0, 100), memcpys=(1, 9), latency=(1, 2))
    told = table(lines(wide, width=width, verbosity=1))
    assert max(map(len, told)) <= width
    assert name.split("[")[0] in "".join(told)
    assert "form19]" in "".join(told)


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
    told = lines(evil, encoding="ascii", verbosity=1)
    assert all(line.isprintable() and line.isascii() for line in told)
    assert len(told) < 40


def test_of_very_many_rows_that_changed_sixty_are_told() -> None:
    many = [row(f"test_{i}", "better", kernels=(5 + i, 4)) for i in range(500)]
    assert "  and 440 more profiles" in lines(*many)
