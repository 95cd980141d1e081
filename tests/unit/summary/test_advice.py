"""What to do about a profile: each advice names the number that it rests on."""

from __future__ import annotations

import ast
import re
from typing import Any

import pytest
from msgspec.structs import replace
from records import held_to, kernel, mlp, profile

from pytest_kernelprof.comparison.kernel_diff import diff_profiles
from pytest_kernelprof.limits import kinds
from pytest_kernelprof.limits.kinds import COMPARISONS, KINDS, parse_keyword
from pytest_kernelprof.records.comparison import (
    KernelDiff,
    MetricDelta,
    Paired,
    ProfileComparison,
    RunComparison,
    TimedPair,
)
from pytest_kernelprof.records.document import Run, Test
from pytest_kernelprof.records.profile import Cause, Place, Verdict
from pytest_kernelprof.summary.advice import (
    cure_words,
    intended_words,
    tasks_of,
    update_command,
)
from pytest_kernelprof.summary.run import summary_of

TIMES = ("max_cuda_time", "max_launch_overhead", "max_exposed_comm", "max_latency")
SIZES = ("max_memcpy_bytes", "max_peak_memory")
VALUES = {
    **dict.fromkeys(TIMES, "1us"),
    **dict.fromkeys(SIZES, "1 MB"),
    "expect_kernels": ["mm"],
    "forbid_kernels": "mm",
}


@pytest.mark.parametrize("name", sorted(set(KINDS) - set(COMPARISONS)))
def test_each_limit_has_its_own_advice(name: str) -> None:
    limit = parse_keyword(name, VALUES.get(name, 1))
    told = cure_words([Verdict(limit=name, outcome="failed", metric=limit.metric)])
    assert told
    assert told != "change the code"


METRIC_OF = {
    name: parse_keyword(name, VALUES.get(name, 1)).metric for name in set(KINDS) - set(COMPARISONS)
}
RAISED = [
    ("max_kernels", "", "count", 5, {}),
    ("max_kernels", "gelu", "count", 5, {}),
    ("max_launches", "", "count", 5, {}),
    ("max_syncs", "", "count", 2, {}),
    ("max_allocations", "", "count", 2, {}),
    ("max_recompiles", "", "count", 1, {}),
    ("max_memcpys", "d2h", "count", 1, {}),
    ("max_memcpy_bytes", "", "bytes", 4_096, {}),
    ("max_memcpy_bytes", "d2h", "bytes", 4, {}),
    ("max_peak_memory", "", "bytes", 214_000_001, {}),
    ("max_cuda_time", "", "us", 250.0, {"high": 252.0}),
    ("max_cuda_time", "", "us", 2_345_678.0, {}),
    ("max_latency", "", "us", 0.04, {}),
    ("max_launch_overhead", "", "us", 60.0, {"share": 0.1, "share_of": 200.0}),
    ("max_exposed_comm", "", "us", 60.0, {}),
]


@pytest.mark.parametrize(("name", "qualifier", "unit", "measured", "more"), RAISED)
def test_the_limit_that_is_advised_can_be_written_and_would_hold(
    name: str, qualifier: str, unit: Any, measured: float, more: dict[str, float]
) -> None:
    metric = f"{METRIC_OF[name]}_{qualifier}" if qualifier == "d2h" else METRIC_OF[name]
    verdict = Verdict(
        limit=name, qualifier=qualifier, outcome="failed", unit=unit, metric=metric,
        measured=measured, **more,
    )  # fmt: skip
    call = ast.parse(cure_words([verdict]).partition("or allow ")[2], mode="eval").body
    assert isinstance(call, ast.Call)
    keywords = {one.arg or "": ast.literal_eval(one.value) for one in call.keywords}
    limit = getattr(kinds, ast.unparse(call.func))(*map(ast.literal_eval, call.args), **keywords)
    allowed = limit.bound * (more["share_of"] if "share" in more else 1.0)
    assert limit.metric == metric
    assert allowed >= measured


def test_a_command_is_never_about_every_test_where_only_some_need_it() -> None:
    tests = [f"test_{i}.py::test_it" for i in range(9)]
    assert update_command(tests, "H200") == "pytest --kernelprof-update test_0.py::test_it"
    in_one = [f"test_a.py::test_{i}" for i in range(9)]
    assert update_command(in_one, "H200") == "pytest --kernelprof-update test_a.py"
    assert update_command(["t.py::test_it[a b]"], "cpu") == (
        "pytest --kernelprof-update 't.py::test_it[a b]' --kernelprof-device=cpu"
    )


def test_a_speedup_that_is_missed_is_no_limit_to_raise() -> None:
    slow = Verdict(
        limit="min_speedup", qualifier="1.5", outcome="failed", unit="times", metric="cuda_time",
        measured=1.05,
    )  # fmt: skip
    over = Verdict(limit="max_kernels", outcome="failed", metric="kernels", measured=3)
    assert cure_words([over, slow]).endswith("or allow max_kernels(3)")


@pytest.mark.parametrize(
    ("kernels", "command"),
    [
        ("kernels", "accept the snapshot with --kernelprof-update"),
        ("operators", "accept the snapshot with --kernelprof-update --kernelprof-device=cpu"),
    ],
)
def test_a_limit_and_a_snapshot_that_are_exceeded_are_accepted_where_they_were_measured(
    kernels: Any, command: str
) -> None:
    over = Verdict(limit="max_kernels", outcome="failed", metric="kernels", measured=3)
    diff = KernelDiff(baseline_kernels=2, current_kernels=3, what=kernels)
    found = ProfileComparison(source="snapshot", change="worse", kernels=diff)
    exceeded = Verdict(limit="snapshot", outcome="failed", comparison=found)
    assert cure_words([over, exceeded]).endswith(f"max_kernels(3); then {command}")
    assert intended_words([over, exceeded], "main") == (
        f"if intended, allow max_kernels(3), and {command}"
    )
    until = "--kernelprof-warn-only (for all tests) until main has it"
    assert intended_words([over], "main").endswith(until)


def test_a_time_that_is_worse_is_allowed_by_a_margin_counts_by_warnings_alone() -> None:
    pairs = (TimedPair(None, 1.084, 12, 40.0, 43.3), TimedPair(None, 1.09, 12, 40.0, 43.6))
    slower = Paired("worse", ratio=1.084, pairs=pairs, agreeing=2)
    more = MetricDelta(name="kernels", baselines=(3,), current=4, change="worse", judged=True)

    def intended(*metrics: MetricDelta, also: tuple[Verdict, ...] = ()) -> str:
        found = ProfileComparison(source="revision", change="worse", metrics=metrics, paired=slower)
        against = Verdict(limit="against", outcome="failed", comparison=found)
        return intended_words([*also, against], "main")

    assert intended() == "if intended, allow kernelprof(margin='10%') until main has it"
    over = Verdict(limit="max_launches", outcome="failed", metric="launches", measured=3)
    assert intended(also=(over,)) == (
        "if intended, allow max_launches(3) and kernelprof(margin='10%') until main has it"
    )
    assert intended(more).startswith("if intended, add --kernelprof-warn-only ")


def test_where_no_line_launches_what_is_too_much_the_call_is_where_to_look() -> None:
    over = Verdict(limit="max_kernels", outcome="failed", metric="kernels", measured=5, allowed=4)
    called = mlp(verdicts=(over,), place=Place("test_it.py", 7))
    run = Run((Test("test_it.py::test_a", (called,), outcome="failed"),))
    (task,) = tasks_of(summary_of(run).problems)
    assert task.places == (Place("test_it.py", 7),)


@pytest.mark.parametrize(("line", "place"), [("new.py:4", "new.py"), ("", "test_it.py")])
def test_what_is_gone_is_nowhere_to_look(line: str, place: str) -> None:
    old = profile([kernel("was", "aten::a", source="gone.py:3")])
    new = profile(
        [kernel(one, one, source=line) for one in ("b", "c")], place=Place("test_it.py", 7)
    )
    worse = ProfileComparison(source="revision", change="worse", kernels=diff_profiles(old, new))
    run = Run((Test("test_it.py::test_a", (held_to(new, worse),), outcome="failed"),))
    (task,) = tasks_of(summary_of(run).problems)
    assert [one.file for one in task.places] == [place]


def over_by(measured: int, *lines: int, name: str = "test_a") -> Test:
    over = Verdict(
        limit="max_kernels", outcome="failed", metric="kernels", unit="count", measured=measured,
        allowed=3,
    )  # fmt: skip
    kernels = [kernel("k", "aten::k", source=f"m.py:{line}") for line in lines]
    return Test(f"t.py::{name}", (profile(kernels, verdicts=(over,)),), outcome="failed")


@pytest.mark.parametrize(("number", "more"), [(2, ()), (8, ()), (11, ("and 3 more",))])
def test_of_several_tests_it_is_told_what_is_wrong_with_each(
    number: int, more: tuple[str, ...]
) -> None:
    tests = tuple(over_by(20 - i, 7, 7, 7, 7, name=f"test_{i}") for i in range(number))
    (task,) = tasks_of(summary_of(Run(tests)).problems)
    assert task.test == f"{number} tests"
    each = [f"test_{i}: max_kernels: {20 - i} > 3" for i in range(min(number, 8))]
    assert task.found == (*each, *more)


def test_of_one_test_what_is_wrong_is_told_beside_a_new_kernel_alone() -> None:
    (task,) = tasks_of(summary_of(Run((over_by(4, 7, 7, 7, 7),))).problems)
    assert task.what == "max_kernels: 4 > 3; k x4"
    assert task.found == ()
    old, new = (profile([kernel(one, one) for one in names]) for names in ("abc", "abcd"))
    more = MetricDelta(name="kernels", baselines=(3,), current=4, change="worse", judged=True)
    worse = ProfileComparison(
        source="snapshot", change="worse", kernels=diff_profiles(old, new), metrics=(more,)
    )
    run = Run((Test("t.py::test_a", (held_to(new, worse),), outcome="failed"),))
    (task,) = tasks_of(summary_of(run).problems)
    assert task.what == "new kernel: d"
    assert task.found == ("snapshot: kernels 3 -> 4",)


def test_of_very_many_problems_the_first_are_told_and_the_others_counted() -> None:
    def failed(number: int) -> Test:
        over = Verdict(limit="max_kernels", outcome="failed", metric="kernels", measured=number)
        kernels = [kernel(f"k{number}", source=f"m.py:{number}")] * number
        return Test(f"t.py::test_{number}", (profile(kernels, verdicts=(over,)),), outcome="failed")

    problems = summary_of(Run(tuple(map(failed, range(1, 6))))).problems
    assert len(problems) == 5
    assert len(tasks_of(problems, 5)) == 5
    *told, left = tasks_of(problems, 3)
    assert len(told) == 3
    assert "2 more" in left.what


@pytest.mark.parametrize(("ratios", "margin"), [((), ""), ((1.02, 1.17), "20%"), ((0.9,), "")])
def test_a_margin_is_advised_where_a_round_in_turn_was_slower(
    ratios: tuple[float, ...], margin: str
) -> None:
    pairs = tuple(TimedPair(None, ratio, 12, 40.0, 40.0 * ratio) for ratio in ratios)
    found = ProfileComparison(source="revision", paired=Paired("same", pairs=pairs))
    open_ = Verdict(limit="against", outcome="undecided", metric="cuda_time", comparison=found)
    test = Test("t.py::test_a", (mlp(verdicts=(open_,)),))
    run = Run((test,), baselines=(RunComparison(source="revision", name="main (abc1234)"),))
    (problem,) = summary_of(run).problems
    assert "compare with main again" in problem.remedy.what
    advised = re.findall(r"kernelprof\(margin='(.*)'\)", problem.remedy.intended)
    assert advised == ([margin] if margin else [])


def test_a_cause_is_told_although_the_first_words_end_in_its_letters() -> None:
    def over(qualifier: str = "") -> Verdict:
        return Verdict(
            limit="max_kernels",
            outcome="failed",
            metric="kernels",
            unit="count",
            qualifier=qualifier,
            measured=2,
            allowed=1,
        )

    kernels = [kernel(name, source=f"m.py:{at}") for at, name in enumerate(("fused_add", "add"))]
    fused = replace(over(), cause=Cause("fused_add", Place("m.py", 1)))
    of_add = replace(over("^add$"), cause=Cause("add", Place("m.py", 9)))
    taken = profile(kernels, verdicts=(fused, of_add))
    (problem,) = summary_of(Run((Test("t.py::t", (taken,), outcome="failed"),))).problems
    (task,) = tasks_of((problem,))
    assert task.what.endswith("; fused_add")
    assert task.whys == ("add at m.py:9",)
