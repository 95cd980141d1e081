"""How a comparison with a baseline is told: verdict lines, and a test's failure."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from records import MLP, MUL, failure_of, held_to, kernel, mlp, profile

from pytest_kernelprof.baselines.snapshots import compare, kept_of
from pytest_kernelprof.comparison.judge import made_with
from pytest_kernelprof.comparison.kernel_diff import diff_profiles
from pytest_kernelprof.limits.evaluate import evaluate
from pytest_kernelprof.limits.kinds import parse_keyword, parse_limit
from pytest_kernelprof.records.comparison import MetricDelta, Paired, ProfileComparison, TimedPair
from pytest_kernelprof.records.profile import Kernel, Place
from pytest_kernelprof.records.recording import Conditions, Neighbour
from pytest_kernelprof.summary import wording
from pytest_kernelprof.summary.verdicts import delta_words, verdict_line

MAIN = "main (abc1234)"
PAIR = TimedPair(None, 1.08, 12, 233.1, 251.0)
SLOWER = Paired(
    "worse", ratio=1.077, pairs=(PAIR,) * 4, agreeing=4, margin=0.05, baseline_us=233.1,
    current_us=251.0,
)  # fmt: skip


SURE = "mean of 4 interleaved pairs, all beyond the margin; medians 233.1us -> 251.0us"
TIMES = f"GPU time +7.7 %, {SURE}"


def delta(name: str, old: float, new: float, change: Any = "worse", **more: Any) -> MetricDelta:
    facts = {"judged": True, **more}
    return MetricDelta(name=name, baselines=(old,), current=new, change=change, **facts)


def of(*metrics: MetricDelta, **more: Any) -> ProfileComparison:
    facts: dict[str, Any] = {"source": "run", "test": "t.py::test_it", "change": "worse", **more}
    return ProfileComparison(metrics=metrics, **facts)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (of(delta("kernels", 4, 5), delta("launches", 5, 4, "better")), "kernels 4 -> 5"),
        (of(delta("cuda_time", 200.0, 234.9, interval=(230.0, 240.0))),
         "cuda_time 200.0us -> 234.9us (+17.5 %, 99 % CI 230.0..240.0us)"),
        (of(delta("memcpy_bytes", 1e6, 2e6)), "memcpy_bytes 1 MB -> 2 MB (+100.0 %)"),
        (of(delta("cuda_time", 200.0, 234.9, judged=False)), "no more than before"),
        (of(change="undecided", untimed="it ran only once"), "its times"),
        (of(paired=SLOWER, source="revision"), TIMES),
    ],
)  # fmt: skip
def test_what_is_another_and_judged_is_one_line(found: ProfileComparison, words: str) -> None:
    assert delta_words(found) == words
    (verdict,) = held_to(mlp(), found).verdicts
    assert verdict_line(replace(verdict, outcome="failed")) == f"{verdict.limit}: {words}"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({}, TIMES),
        ({"change": "same"}, TIMES.replace(", all beyond the margin", "")),
        ({"change": "same", "pairs": (PAIR,)},
         "GPU time +7.7 %, mean of 1 interleaved pair; medians 233.1us -> 251.0us"),
        ({"agreeing": 3}, TIMES.replace("all beyond", "3 beyond")),
        ({"why": "above half"}, f"{TIMES}; above half"),
        ({"disturbed": Conditions(contenders=(Neighbour(7, 60),)), "why": "hidden"},
         f"{TIMES}; CONTENDED: other processes worked "
         "on this GPU (pid 7 up to 60 %)"),
        ({"baseline_latency_us": 1000.0, "current_latency_us": 1100.0},
         f"{TIMES}; latency 1.00ms -> 1.10ms, not "
         "judged"),
        ({"pairs": (), "why": "no time was left"},
         "GPU time was not compared: no time was left"),
        ({"pairs": ()}, ""),
    ],
)  # fmt: skip
def test_times_in_turn_are_one_line(more: dict[str, Any], words: str) -> None:
    assert wording.paired(replace(SLOWER, **more)) == words


def test_the_failure_of_a_test_names_what_is_worse_of_which_profile_and_its_kernels() -> None:
    place = Place("tests/test_mlp.py", 31)
    extra = profile([*MLP, kernel(MUL, "aten::mul", source="src/mlp.py:31")], place=place)
    kernels = diff_profiles(mlp(), extra, noticed=None)
    found = of(
        *(delta("kernels", 5, 6), delta("syncs", 2, 1, "better")),
        source="revision", label="step", kernels=kernels, paired=SLOWER,
    )  # fmt: skip
    told = failure_of(held_to(replace(extra, label="step"), found), base=MAIN).splitlines()
    lines = [" ".join(line.split()) for line in told]
    assert lines[:6] == [
        "worse than main: kernels 5 -> 6",
        "in step",
        SURE,
        "at mlp.py:31",
        "added kernel: vectorized_elementwise [mul]",
        "measured at test_mlp.py:31",
    ]
    assert "+ 6 10.0 vectorized_elementwise [mul] mlp.py:31 aten::mul" in lines
    assert lines[7:10] == [
        "to do: remove the added kernel, or fuse it (torch.compile)",
        "if intended, run with --kernelprof-warn-only (all tests only warn) until main",
        "has this change",
    ]


def test_a_limit_whose_count_is_worse_has_that_of_the_revision_beside_it() -> None:
    over = replace(mlp(), verdicts=evaluate(mlp(), [parse_keyword("max_kernels", 4)]))
    kernels = diff_profiles(profile(MLP[:4]), mlp(), noticed=None)
    found = of(delta("kernels", 4, 5), source="revision", kernels=kernels)
    told = failure_of(held_to(over, found), base=MAIN)
    assert told.splitlines()[:2] == [
        "max_kernels: 5 > limit 4 (was 4 in main)",
        "  added kernel: nvjet 256x128x64 TNT",
    ]
    assert "  against main (abc1234): + new" in told.splitlines()
    assert "worse than main" not in told
    assert told.count("max_kernels:") == 1
    assert "  if intended, allow max_kernels(5), and accept it in a snapshot\n" in told


def test_a_limit_on_some_kernels_has_no_count_of_all_beside_it() -> None:
    limits = [parse_keyword("max_kernels", 4), parse_limit("max_kernels", (0,), {"match": "gelu"})]
    over = replace(mlp(), verdicts=evaluate(mlp(), limits))
    found = of(delta("kernels", 4, 5), source="revision")
    told = failure_of(held_to(over, found), base=MAIN).splitlines()
    assert told[:2] == [
        "max_kernels: 5 > limit 4 (was 4 in main)",
        "max_kernels(match='gelu'): 1 > limit 0",
    ]


def test_a_limit_on_some_kernels_alone_does_not_stand_for_a_worse_count_of_all() -> None:
    limit = parse_limit("max_kernels", (0,), {"match": "gelu"})
    over = replace(mlp(), verdicts=evaluate(mlp(), [limit]))
    found = of(delta("kernels", 4, 5), source="revision")
    told = failure_of(held_to(over, found), base=MAIN).splitlines()
    assert [line.partition(":")[0] for line in told[:2]] == [
        "max_kernels(match='gelu')",
        "worse than main",
    ]


@pytest.mark.parametrize(
    ("more", "worse"),
    [
        (
            {"metrics": (delta("kernels", 4, 5), delta("syncs", 1, 2))},
            "kernels 4 -> 5, syncs 1 -> 2",
        ),
        ({"paired": SLOWER}, "kernels 4 -> 5"),
        ({"metrics": (delta("syncs", 1, 2),)}, "syncs 1 -> 2"),
    ],
)
def test_what_no_broken_limit_is_about_is_told_as_worse_with_all_its_counts(
    more: dict[str, Any], worse: str
) -> None:
    over = replace(mlp(), verdicts=evaluate(mlp(), [parse_keyword("max_kernels", 4)]))
    found = replace(of(delta("kernels", 4, 5), source="revision"), **more)
    told = failure_of(held_to(over, found), base=MAIN).splitlines()
    assert told[0].startswith("max_kernels: 5 > limit 4")
    assert f"worse than main: {worse}" in told
    assert " (was " not in "\n".join(told)


def test_of_several_profiles_each_is_told_and_the_commands_stand_once_at_the_last() -> None:
    over = replace(mlp(), verdicts=evaluate(mlp(), [parse_keyword("max_kernels", 4)]))
    worse = held_to(mlp(label="step"), of(delta("syncs", 1, 2), source="revision", label="step"))
    told = failure_of(over, worse, base=MAIN, test="t.py::test_it")
    assert "max_kernels: 5 > limit 4" in told
    assert "worse than main: syncs 1 -> 2" in told
    assert told.count("pytest t.py::test_it") == 2
    assert "rerun: " not in told
    at = told.index("worse than main")
    assert told[at:].splitlines()[1:6] == [
        "  in step",
        "  ",
        "  to do: undo the change",
        "  rerun against main: pytest t.py::test_it --kernelprof-against=main",
        "  if intended, accept it in a snapshot: pytest t.py::test_it --kernelprof-update",
    ]


def test_a_command_of_a_test_whose_id_has_backslashes_is_as_it_is() -> None:
    worse = held_to(mlp(label="step"), of(delta("syncs", 1, 2), source="revision", label="step"))
    told = failure_of(worse, base=MAIN, test=r"t.py::t[\xe9\g<0>\n]")
    assert r"    pytest 't.py::t[\xe9\g<0>\n]' --kernelprof-update" in told.splitlines()


def test_more_is_allowed_at_the_line_of_the_test_also_against_a_revision() -> None:
    over = replace(mlp(), verdicts=evaluate(mlp(), [parse_keyword("max_kernels", 4)]))
    found = held_to(over, of(delta("kernels", 4, 5), source="revision"))
    at = Place("t.py", 8)
    assert "\n  if intended, allow max_kernels(5) at t.py:8\n" in failure_of(over, at=at)
    told = failure_of(found, base=MAIN, at=at)
    assert (
        told.count("max_kernels: 5 > limit 4") == told.count("allow max_kernels(5) at t.py:8") == 1
    )
    slower = held_to(mlp(), of(paired=SLOWER, source="revision"))
    allow = "if intended, allow kernelprof(margin='10%') at t.py:8 until main has this change"
    assert allow in " ".join(failure_of(slower, base=MAIN, at=at).split())


def test_where_it_cannot_be_told_which_of_equal_kernels_is_new_the_table_marks_each() -> None:
    def muls(*lines: int) -> list[Kernel]:
        return [kernel(MUL, "aten::mul", source=f"mlp.py:{line}") for line in lines]

    new = profile([*MLP[:3], *muls(7, 8), MLP[4]])
    kernels = diff_profiles(profile([*MLP[:3], *muls(7), MLP[4]]), new)
    worse = held_to(new, of(delta("kernels", 5, 6), kernels=kernels))
    told = failure_of(worse).splitlines()
    assert told[:3] == [
        "worse than the earlier run: kernels 5 -> 6",
        "  at mlp.py:7 or 8",
        "  added kernel: vectorized_elementwise [mul]",
    ]
    title, *rows = told[told.index("  against the earlier run: ? perhaps new") + 1 :]
    assert title.split() == ["#", "us", "kernel", "line", "launched", "by"]
    assert [line[:3] for line in rows] == ["  1", "  2", "  3", "? 4", "? 5", "  6"]
    assert ["  mlp.py:7  " in rows[3], "  mlp.py:8  " in rows[4]] == [True, True]
    both = profile([*MLP[:3], *muls(7, 8), MLP[4], kernel("own", "aten::mm")])
    kernels = diff_profiles(profile([*MLP[:3], *muls(7), MLP[4]]), both)
    told = failure_of(held_to(both, of(delta("kernels", 5, 7), kernels=kernels))).splitlines()
    at = told.index("  against the earlier run: + new, ? perhaps new")
    signs = ["  1", "  2", "  3", "? 4", "? 5", "  6", "+ 7"]
    assert [line[:3] for line in told[at + 2 : at + 9]] == signs
    known = held_to(mlp(), of(delta("kernels", 5, 6), kernels=diff_profiles(profile([]), mlp())))
    assert "  against the earlier run: + new" in failure_of(known).splitlines()


@pytest.mark.parametrize(("metric", "is_blamed"), [("syncs", False), ("cuda_time", True)])
def test_a_slower_kernel_is_the_cause_of_a_time_alone(metric: str, *, is_blamed: bool) -> None:
    slow = [replace(MLP[0], duration_us=MLP[0].duration_us * 2), *MLP[1:]]
    kernels = diff_profiles(mlp(), profile(slow))
    assert kernels.of("slower")
    told = failure_of(held_to(profile(slow), of(delta(metric, 1, 2), kernels=kernels)))
    assert ("to do: find what slows down nvjet" in told) == is_blamed


def with_snapshot(old: list[Kernel], new: list[Kernel]) -> ProfileComparison:
    before, after = profile(old), profile(new)
    return compare(kept_of(before), made_with(before.environment), after)


@pytest.mark.parametrize(
    ("new", "words"),
    [
        ([*MLP], "5 kernels, as in the file"),
        ([*MLP, kernel("own", "aten::mul")], "kernels 5 -> 6"),
        ([*MLP[:4]], "kernels 5 -> 4"),
        ([*MLP[:4], kernel("own", "aten::mm")], "other kernels, same number"),
        ([*MLP[1:], MLP[0]], "order or operators changed"),
        ([*MLP[:3], kernel(MUL, "aten::mul_"), MLP[4]], "order or operators changed"),
    ],
)
def test_what_is_another_than_a_snapshot_is_one_line(new: list[Kernel], words: str) -> None:
    found = with_snapshot(list(MLP), new)
    assert delta_words(found) == words
