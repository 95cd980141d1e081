"""How a comparison with a baseline is told: verdict lines, and a test's failure."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from records import MLP, MUL, held_to, kernel, mlp, profile

from pytest_kernelprof.baselines.snapshots import compare, kept_of
from pytest_kernelprof.comparison.judge import made_with
from pytest_kernelprof.comparison.kernel_diff import diff_profiles
from pytest_kernelprof.limits.evaluate import evaluate
from pytest_kernelprof.limits.kinds import parse_keyword, parse_limit
from pytest_kernelprof.records.comparison import MetricDelta, Paired, ProfileComparison, TimedPair
from pytest_kernelprof.records.profile import Kernel, Place
from pytest_kernelprof.records.recording import Conditions, Neighbour
from pytest_kernelprof.report.failure import failure_message, with_command, worse_message
from pytest_kernelprof.summary import advice, wording
from pytest_kernelprof.summary.verdicts import delta_words, verdict_line

MAIN = "main (abc1234)"
PAIR = TimedPair(None, 1.08, 12, 233.1, 251.0)
SLOWER = Paired(
    "worse", ratio=1.077, pairs=(PAIR,) * 4, agreeing=4, margin=0.05, baseline_us=233.1,
    current_us=251.0,
)  # fmt: skip


TIMES = "GPU time +7.7 % in 4 of 4 interleaved pairs (medians 233.1us -> 251.0us)"


INTENDED = ["  if intended, allow a", "  and b"]


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
        (of(paired=SLOWER, source="revision"),
         f"{TIMES}, margin 5 %"),
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
        ({"change": "same"}, TIMES.replace("4 of 4", "4")),
        ({"change": "same", "pairs": (PAIR,)},
         TIMES.replace("4 of 4 interleaved pairs", "1 interleaved pair")),
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
    told = worse_message("", [held_to(replace(extra, label="step"), found)], MAIN).splitlines()
    lines = [" ".join(line.split()) for line in told]
    times, _, pairs = TIMES.partition(" in ")
    assert lines[:6] == [
        f"worse than main: kernels 5 -> 6, {times}, margin 5 % at mlp.py:31",
        f"in {pairs}",
        "+ vectorized_elementwise [mul]",
        "in step",
        "at test_mlp.py:31",
        "",
    ]
    assert "+ 6 10.0 vectorized_elementwise [mul] mlp.py:31 aten::mul" in lines
    assert lines[-3:] == [
        "to do: remove the added kernel",
        "if intended, run with --kernelprof-warn-only (all tests only warn) until main",
        "has it",
    ]


def test_a_limit_whose_count_is_worse_has_that_of_the_revision_beside_it() -> None:
    over = replace(mlp(), verdicts=evaluate(mlp(), [parse_keyword("max_kernels", 4)]))
    kernels = diff_profiles(profile(MLP[:4]), mlp(), noticed=None)
    found = of(delta("kernels", 4, 5), source="revision", kernels=kernels)
    told = worse_message(f"before\n{failure_message(over)}", [held_to(over, found)], MAIN)
    first, head, against, *_ = told.splitlines()
    assert (first, head) == (
        "before",
        "max_kernels: 5 > 4 (was 4 in main): + nvjet 256x128x64 TNT",
    )
    assert against == "  against main (abc1234): + new"
    assert "worse than main" not in told
    assert told.count("max_kernels:") == 1
    assert told.splitlines()[-2:] == [
        "  if intended, allow max_kernels(5), and accept it in a snapshot with",
        "  --kernelprof-update",
    ]


def test_a_limit_on_some_kernels_has_no_count_of_all_beside_it() -> None:
    limits = [parse_keyword("max_kernels", 4), parse_limit("max_kernels", (0,), {"match": "gelu"})]
    over = replace(mlp(), verdicts=evaluate(mlp(), limits))
    found = of(delta("kernels", 4, 5), source="revision")
    told = worse_message("", [held_to(over, found)], MAIN).splitlines()
    assert told[:2] == [
        "max_kernels: 5 > 4 (was 4 in main) (+1 more limit exceeded)",
        "max_kernels(match='gelu'): 1 > 0: vectorized_elementwise [gelu]",
    ]


def test_a_limit_on_some_kernels_alone_does_not_stand_for_a_worse_count_of_all() -> None:
    limit = parse_limit("max_kernels", (0,), {"match": "gelu"})
    over = replace(mlp(), verdicts=evaluate(mlp(), [limit]))
    found = of(delta("kernels", 4, 5), source="revision")
    told = worse_message("", [held_to(over, found)], MAIN).splitlines()
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
        ({"paired": SLOWER}, "kernels 4 -> 5, GPU time +7.7 %, margin 5 %"),
        ({"metrics": (delta("syncs", 1, 2),)}, "syncs 1 -> 2"),
    ],
)
def test_what_no_broken_limit_is_about_is_told_as_worse_with_all_its_counts(
    more: dict[str, Any], worse: str
) -> None:
    over = replace(mlp(), verdicts=evaluate(mlp(), [parse_keyword("max_kernels", 4)]))
    found = replace(of(delta("kernels", 4, 5), source="revision"), **more)
    told = worse_message("", [held_to(over, found)], MAIN).splitlines()
    assert told[0].startswith("max_kernels: 5 > 4")
    assert f"worse than main: {worse}" in told
    assert " (was " not in "\n".join(told)


def test_of_several_profiles_each_is_told_and_the_command_stands_once_at_the_end() -> None:
    over = replace(mlp(), verdicts=evaluate(mlp(), [parse_keyword("max_kernels", 4)]))
    worse = held_to(mlp(label="step"), of(delta("syncs", 1, 2), source="revision", label="step"))
    before = with_command(failure_message(over), advice.AGAIN, "pytest t.py::test_it")
    assert before.count("pytest t.py::test_it") == 1
    told = worse_message(before, [worse], MAIN, "pytest t.py::test_it")
    assert "max_kernels: 5 > 4" in told
    assert "worse than main: syncs 1 -> 2" in told
    assert told.count("pytest t.py::test_it") == 2
    assert "then run again" not in told
    assert told.splitlines()[-5:] == [
        "  to do: undo the change",
        "  then compare with main again:",
        "    pytest t.py::test_it --kernelprof-against=main",
        "  if intended, accept it in a snapshot:",
        "    pytest t.py::test_it --kernelprof-update",
    ]


def test_a_command_of_a_test_whose_id_has_backslashes_is_as_it_is() -> None:
    worse = held_to(mlp(label="step"), of(delta("syncs", 1, 2), source="revision", label="step"))
    command = r"pytest 't.py::t[\xe9\g<0>\n]'"
    told = worse_message("", [worse], MAIN, command).splitlines()
    assert told[-1] == f"    {command} --kernelprof-update"


def test_a_command_stands_below_what_to_do_last_where_only_an_earlier_profile_may_be_allowed() -> (
    None
):
    earlier = "max_kernels: 5 > 4\n  to do: less\n  if intended, allow it"
    found = with_command(f"{earlier}\nforbid_kernels: mm\n  to do: avoid it", "then", "pytest t.py")
    assert found.splitlines()[-3:] == ["  to do: avoid it", "  then:", "    pytest t.py"]


@pytest.mark.parametrize(
    ("end", "told"),
    [
        ("\n  if intended, allow a\n  and b", ["  then:", "    pytest t.py", *INTENDED]),
        ("", ["  then:", "    pytest t.py"]),
    ],
)
def test_a_command_stands_below_what_to_do_before_what_may_be_allowed(
    end: str, told: list[str]
) -> None:
    found = with_command(f"max_kernels: 5 > 4\n  to do: less{end}", "then", "pytest t.py")
    assert found.splitlines() == ["max_kernels: 5 > 4", "  to do: less", *told]


def test_more_is_allowed_at_the_line_of_the_test_also_against_a_revision() -> None:
    over = replace(mlp(), verdicts=evaluate(mlp(), [parse_keyword("max_kernels", 4)]))
    found = held_to(over, of(delta("kernels", 4, 5), source="revision"))
    before = failure_message(over, at="t.py:8")
    assert before.endswith("\n  if intended, allow max_kernels(5) at t.py:8")
    told = worse_message(before, [found], MAIN, at="t.py:8")
    assert told.count("max_kernels: 5 > 4") == told.count("at t.py:8") == 1
    slower = worse_message(
        "", [held_to(mlp(), of(paired=SLOWER, source="revision"))], MAIN, at="t.py:8"
    )
    assert "  if intended, allow kernelprof(margin='10%') at t.py:8 until main has it" in slower


def test_where_it_cannot_be_told_which_of_equal_kernels_is_new_the_table_marks_each() -> None:
    def muls(*lines: int) -> list[Kernel]:
        return [kernel(MUL, "aten::mul", source=f"mlp.py:{line}") for line in lines]

    new = profile([*MLP[:3], *muls(7, 8), MLP[4]])
    kernels = diff_profiles(profile([*MLP[:3], *muls(7), MLP[4]]), new)
    worse = held_to(new, of(delta("kernels", 5, 6), kernels=kernels))
    told = failure_message(worse).splitlines()
    assert told[0] == "earlier run: kernels 5 -> 6 at mlp.py:7 or 8: + vectorized_elementwise [mul]"
    assert told[1] == "  against the earlier run: ? perhaps new"
    assert told[2].split() == ["#", "us", "kernel", "line", "launched", "by"]
    assert [line[:3] for line in told[3:8]] == ["  1", "  2", "  3", "? 4", "? 5"]
    assert ["  mlp.py:7  " in told[6], "  mlp.py:8  " in told[7]] == [True, True]
    assert not any(line.startswith(("+", "?")) for line in told[8:])
    both = profile([*MLP[:3], *muls(7, 8), MLP[4], kernel("own", "aten::mm")])
    kernels = diff_profiles(profile([*MLP[:3], *muls(7), MLP[4]]), both)
    told = failure_message(held_to(both, of(delta("kernels", 5, 7), kernels=kernels))).splitlines()
    at = told.index("  against the earlier run: + new, ? perhaps new")
    signs = ["  1", "  2", "  3", "? 4", "? 5", "  6", "+ 7"]
    assert [line[:3] for line in told[at + 2 : at + 9]] == signs
    known = held_to(mlp(), of(delta("kernels", 5, 6), kernels=diff_profiles(profile([]), mlp())))
    assert failure_message(known).splitlines()[1] == "  against the earlier run: + new"


@pytest.mark.parametrize(("metric", "is_blamed"), [("syncs", False), ("cuda_time", True)])
def test_a_slower_kernel_is_the_cause_of_a_time_alone(metric: str, *, is_blamed: bool) -> None:
    slow = [replace(MLP[0], duration_us=MLP[0].duration_us * 2), *MLP[1:]]
    kernels = diff_profiles(mlp(), profile(slow))
    assert kernels.of("slower")
    told = failure_message(held_to(profile(slow), of(delta(metric, 1, 2), kernels=kernels)))
    assert ("to do: undo what slows down nvjet" in told) == is_blamed


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
