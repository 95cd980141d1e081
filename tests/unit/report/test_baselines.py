"""How a comparison with a baseline is told: verdict lines, a test's failure, the last section."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from records import MLP, MUL, held_to, kernel, mlp, profile

from pytest_kernelprof.baseline.snapshots import compare, kept_of
from pytest_kernelprof.comparison.comparability import made_with
from pytest_kernelprof.comparison.kernel_diff import diff_profiles
from pytest_kernelprof.report.baselines import (
    baseline_lines,
    delta_words,
    failure_words,
    markdown_lines,
    turns_words,
)
from pytest_kernelprof.report.failure import failure_message
from pytest_kernelprof.report.snapshots import snapshot_words
from pytest_kernelprof.report.style import Style, plain
from pytest_kernelprof.report.words import verdict_line
from pytest_kernelprof.schema.comparison import KernelDiff, MetricDelta
from pytest_kernelprof.schema.paired import Paired, TimedPair
from pytest_kernelprof.schema.run import (
    Conditions,
    Kernel,
    Neighbour,
    ProfileComparison,
    RunComparison,
)
from pytest_kernelprof.summary.comparisons import BaselineDigest

MAIN = "main (abc1234)"
PAIR = TimedPair(None, 1.08, 12, 233.1, 251.0)
SLOWER = Paired(
    "worse", ratio=1.077, pairs=(PAIR,) * 4, agreeing=4, margin=0.05, baseline_us=233.1,
    current_us=251.0,
)  # fmt: skip


def delta(name: str, old: float, new: float, change: Any = "worse", **more: Any) -> MetricDelta:
    facts = {"judged": True, **more}
    return MetricDelta(name=name, baselines=(old,), current=new, change=change, **facts)


def of(*metrics: MetricDelta, **more: Any) -> ProfileComparison:
    facts: dict[str, Any] = {"source": "run", "test": "t.py::test_it", "change": "worse", **more}
    return ProfileComparison(metrics=metrics, **facts)


def section(found: BaselineDigest, **more: Any) -> list[str]:
    return [plain(line).rstrip() for line in baseline_lines(found, Style(90), **more)]


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (of(delta("kernels", 4, 5), delta("launches", 5, 4, "better")), "kernels 5 > 4"),
        (of(delta("cuda_time", 200.0, 234.9, interval=(230.0, 240.0))),
         "cuda_time 234.9us > 200.0us (+17.5 %, 99 % CI 230.0us..240.0us)"),
        (of(delta("memcpy_bytes", 1e6, 2e6)), "memcpy_bytes 2 MB > 1 MB (+100.0 %)"),
        (of(delta("cuda_time", 200.0, 234.9, judged=False)), "no more than before"),
        (of(change="undecided", untimed="it ran only once"), "its times"),
        (of(paired=SLOWER, source="revision"),
         "GPU time 233.1us -> 251.0us, +7.7 % in 4 of 4 pairs"),
    ],
)  # fmt: skip
def test_what_is_another_and_judged_is_one_line(found: ProfileComparison, words: str) -> None:
    assert delta_words(found) == words
    (verdict,) = held_to(mlp(), found).verdicts
    assert verdict_line(replace(verdict, outcome="failed")) == f"{verdict.limit}: {words}"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({}, "GPU time 233.1us -> 251.0us, +7.7 % in 4 of 4 pairs"),
        ({"change": "same"}, "GPU time 233.1us -> 251.0us, +7.7 % in 4 pairs"),
        ({"change": "same", "pairs": (PAIR,)}, "GPU time 233.1us -> 251.0us, +7.7 % in 1 pair"),
        ({"why": "above half"}, "GPU time 233.1us -> 251.0us, +7.7 % in 4 of 4 pairs; above half"),
        ({"disturbed": Conditions(contenders=(Neighbour(7, 60),)), "why": "hidden"},
         "GPU time 233.1us -> 251.0us, +7.7 % in 4 of 4 pairs; CONTENDED: other processes worked "
         "on this GPU (pid 7 up to 60 %)"),
        ({"baseline_latency_us": 1000.0, "current_latency_us": 1100.0},
         "GPU time 233.1us -> 251.0us, +7.7 % in 4 of 4 pairs; latency 1.00ms -> 1.10ms, not "
         "judged"),
        ({"pairs": (), "why": "no time was left"}, "GPU time is not timed: no time was left"),
        ({"pairs": ()}, ""),
    ],
)  # fmt: skip
def test_times_in_turn_are_one_line(more: dict[str, Any], words: str) -> None:
    assert turns_words(replace(SLOWER, **more)) == words


def test_the_failure_of_a_test_names_what_is_worse_of_which_profile_and_its_kernels() -> None:
    extra = profile([*MLP, kernel(MUL, "aten::mul", source="src/mlp.py:31")])
    kernels = diff_profiles(mlp(), extra, noticed=None)
    found = of(
        *(delta("kernels", 5, 6), delta("syncs", 2, 1, "better")),
        source="revision", label="step", kernels=kernels, paired=SLOWER,
    )  # fmt: skip
    told = failure_words([found], MAIN).splitlines()
    assert [" ".join(line.split()) for line in told] == [
        "kernels: 6 > 5 of main (abc1234) [step]",
        "GPU time 233.1us -> 251.0us, +7.7 % in 4 of 4 pairs (margin 5 %), against main (abc1234)"
        " [step]",
        "5 -> 6 kernels",
        "+ vectorized_elementwise [mul] 10.0us aten::mul mlp.py:31",
        "syncs: 2 -> 1",
    ]


def test_where_it_cannot_be_told_which_kernels_are_new_they_stand_above_the_table() -> None:
    def muls(*lines: int) -> list[Kernel]:
        return [kernel(MUL, "aten::mul", source=f"mlp.py:{line}") for line in lines]

    new = profile([*MLP[:3], *muls(7, 8), MLP[4]])
    kernels = diff_profiles(profile([*MLP[:3], *muls(7), MLP[4]]), new)
    worse = held_to(new, of(delta("kernels", 5, 6), kernels=kernels))
    told = failure_message(worse).splitlines()
    assert told[0] == "earlier run: kernels 6 > 5"
    assert told[1].strip().startswith("5 -> 6 kernels")
    assert "(one of lines 7, 8)" in told[2]
    known = held_to(mlp(), of(delta("kernels", 5, 6), kernels=diff_profiles(profile([]), mlp())))
    assert failure_message(known).splitlines()[1] == "  + and - against the earlier run"


def with_snapshot(old: list[Kernel], new: list[Kernel]) -> ProfileComparison:
    before, after = profile(old), profile(new)
    return compare(kept_of(before), made_with(before.environment), after)


@pytest.mark.parametrize(
    ("new", "words"),
    [
        ([*MLP], "5 kernels, as they are kept"),
        ([*MLP, kernel("own", "aten::mul")], "kernels 6 > 5, launches 6 > 5"),
        ([*MLP[:4]], "kernels 4 < 5, launches 4 < 5"),
        ([*MLP[:4], kernel("own", "aten::mm")], "other kernels"),
        ([*MLP[1:], MLP[0]], "another order"),
        ([*MLP[:3], kernel(MUL, "aten::mul_"), MLP[4]], "other operators"),
    ],
)
def test_what_is_another_than_a_snapshot_is_one_line(new: list[Kernel], words: str) -> None:
    found = with_snapshot(list(MLP), new)
    assert snapshot_words(found) == words


def digest(*found: ProfileComparison, **more: Any) -> BaselineDigest:
    facts: dict[str, Any] = {"source": "revision", "name": MAIN, **more}
    return BaselineDigest(RunComparison(**facts), found)


WORSE = of(delta("kernels", 4, 5), source="revision", notes=("other software: torch",))
SAME = of(
    source="revision", test="t.py::same", change="same", paired=replace(SLOWER, change="same")
)
REFUSED = of(source="revision", test="t.py::new", change="not compared", reason="no such test")


def test_the_section_says_the_verdict_the_rows_what_was_not_compared_and_what_fails() -> None:
    assert section(digest(WORSE, SAME, REFUSED, notes=("a submodule is left out",))) == [
        "1 of 2 tests is worse than main; 1 unchanged, 1 not compared.",
        "",
        "  kernels  test",
        "worse",
        "✗  4 -> 5  t.py::test_it",
        "",
        "not compared  new: no such test",
        "note          test_it: other software: torch",
        "              a submodule is left out",
        "1 call timed in turn, margin 5 %, 1 of them in 4 pairs",
        "",
        "the run fails: 1 test is worse than main",
    ]


@pytest.mark.parametrize(
    ("found", "more", "last"),
    [
        ((WORSE,), {"warn_only": True}, "warned of only: 1 test is worse than main"),
        ((WORSE,), {"ends": "exit status 1"}, "exit status 1: 1 test is worse than main"),
        ((SAME,), {}, "this comparison fails nothing"),
        ((SAME,), {"run_fails": True},
         "this comparison fails nothing; the run fails for another reason"),
        ((REFUSED,), {"warn_only": True}, "the run fails: nothing could be compared"),
        ((), {}, "the run fails: nothing could be compared"),
    ],
)  # fmt: skip
def test_the_last_line_says_what_fails_by_it(
    found: tuple[ProfileComparison, ...], more: dict[str, Any], last: str
) -> None:
    assert section(digest(*found), **more)[-1] == last


def test_without_changes_there_is_no_table_and_nothing_between() -> None:
    plain_same = replace(SAME, paired=None)
    assert section(digest(plain_same)) == [
        "The only test is no worse than main; 1 unchanged.",
        "",
        "this comparison fails nothing",
    ]


def test_as_markdown_there_is_a_row_for_each_metric_and_kernels_unfold() -> None:
    extra = profile([*MLP, kernel(MUL, "aten::mul", source="src/mlp.py:31")])
    more = of(
        *(delta("kernels", 5, 6), delta("cuda_time", 100.0, 150.0, judged=False)),
        kernels=diff_profiles(mlp(), extra),
    )
    other = of(
        test="t.py::other",
        change="changed",
        kernels=diff_profiles(mlp(), profile([*MLP[:4], kernel("own", "aten::mm")])),
    )
    refused = of(test="t.py::lost", change="not compared", reason="incomplete")
    found = digest(other, more, refused, source="run", name="old.json", gone=("t.py::gone",))
    told = markdown_lines(found)
    assert [line for line in told if line.startswith("|")] == [
        "| | test | metric | before | now | change |",
        "|---|---|---|--:|--:|--:|",
        "| worse | t.py::test_it | kernels | 5 | 6 | +1 |",
        "| worse (not checked) | t.py::test_it | cuda_time | 100.0us | 150.0us | +50.0 % |",
        "| changed (other kernels, same counts) | t.py::other | kernels |  |  | "
        "own: was nvjet 256x128x64 TNT |",
    ]
    summaries = [line for line in told if "<summary>" in line]
    assert len(summaries) == 2
    assert "test_it: kernels" in summaries[0]
    assert told[-3:] == [
        "- not compared: lost: incomplete",
        "- only in the earlier run: t.py::gone",
        "- fails: kernels rose in 1 profile",
    ]


def test_very_many_diffs_and_rows_are_counted() -> None:
    kernels = diff_profiles(profile([]), profile([kernel("k")]))
    many = [of(delta("kernels", 0, 1), test=f"t.py::test_{i}", kernels=kernels) for i in range(250)]
    told = markdown_lines(digest(*many, source="run", name="old.json"))
    assert sum("<summary>" in line for line in told) == 10
    assert "- kernels of 240 more profiles are others, too" in told
    assert any("50 more rows" in line for line in told)


def test_of_a_diff_of_the_cpu_operators_are_told() -> None:
    diff = KernelDiff(baseline_kernels=5, current_kernels=6, what="operators")
    found = digest(of(delta("kernels", 5, 6), source="revision", kernels=diff))
    assert section(found)[2].split() == ["operators", "test"]
