"""A run against earlier ones: counts by the last of them, times by all that compare."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from records import (
    CPU,
    H200,
    MIXED,
    absent,
    around,
    calls_of,
    comparison,
    counted,
    kernel,
    of_ranks,
    profile,
    timed,
)

from pytest_kernelprof.baselines.run_documents import (
    compare_runs,
    compared_run,
    comparison_of,
    profiles_of,
)
from pytest_kernelprof.comparison.judge import DISTURBED, Allowance, allowances
from pytest_kernelprof.records.comparison import KernelDiff, ProfileComparison, RunComparison
from pytest_kernelprof.records.document import ComparedCallable, Run, Test, pack, unpack
from pytest_kernelprof.records.profile import KernelGroup, Profile
from pytest_kernelprof.records.recording import Conditions, Environment, Integrity
from pytest_kernelprof.summary.comparisons import BaselineSummary

LOST_RUN = Integrity(problems=("1 of 2 launches has no kernel",))
NEWER_TORCH = replace(H200, versions={**H200.versions, "torch": "2.12.0+cu130"})
USUAL = allowances(())
ON_TIME = allowances((Allowance("cuda_time", share=0.05),))


def run_of(*profiles: Profile, name: str = "test_it") -> Run:
    return Run((Test(f"test_it.py::{name}", profiles),))


def with_version(name: str, version: str) -> Environment:
    return replace(H200, versions={**H200.versions, name: version})


def at_watts(limit: int) -> dict[str, Any]:
    return {"environment": replace(H200, power_limit_w=limit)}


def lasting(us: float, **more: Any) -> Profile:
    """Of one kernel; its interval is us + 1 to us + 10 of a median of us + 5.5."""
    return calls_of(1, around("cuda_time", us), **more)


def compared(*profiles: Profile, allowed: dict[str, Allowance] = USUAL) -> RunComparison:
    *olds, new = map(run_of, profiles)
    return compare_runs(olds, new, allowed)


def only(found: RunComparison) -> ProfileComparison:
    (one,) = found.profiles
    return one


def different(found: RunComparison) -> list[ProfileComparison]:
    return [one for one in found.profiles if one.change != "same"]


def verdicts(found: RunComparison) -> dict[str, str | None]:
    return {one.name: one.change for profile in found.profiles for one in profile.metrics}


def regressed(found: RunComparison) -> bool:
    return any(one.worse for one in found.profiles)


def failure(found: RunComparison) -> str:
    """What fails by it, in words."""
    return BaselineSummary(found, found.profiles).failure


def test_a_run_is_as_itself() -> None:
    found = compared(calls_of(5), calls_of(5))
    assert (only(found).change, only(found).changes, failure(found)) == ("same", (), "")


def test_a_kernel_more_is_a_regression_with_the_kernels_beside_it() -> None:
    found = compared(calls_of(4), calls_of(5))
    assert only(found).change == "worse"
    assert verdicts(found) == {"kernels": "worse", "launches": "worse"}
    assert [change.kind for change in only(found).changes] == ["added"]
    assert failure(found) == "kernels rose in 1 profile, launches rose in 1 profile"


def test_a_kernel_less_is_better_and_no_regression() -> None:
    found = compared(calls_of(5), calls_of(4))
    assert (only(found).change, failure(found)) == ("better", "")
    assert verdicts(found) == {"kernels": "better", "launches": "better"}


def test_other_kernels_at_the_same_counts_are_told_and_fail_nothing() -> None:
    found = compared(calls_of(1), profile([kernel("relu", "aten::relu")]))
    assert (only(found).change, only(found).metrics, failure(found)) == ("changed", (), "")
    assert {change.kind for change in only(found).changes} == {"added", "removed"}


def test_kernels_that_moved_or_take_another_time_are_no_change_of_their_own() -> None:
    a, b = kernel("a", "f"), kernel("b", "g")
    found = compared(profile([a, b]), profile([b, replace(a, duration_us=30.0)]))
    assert (only(found).change, only(found).metrics) == ("same", ())
    assert only(found).kernels == KernelDiff(
        baseline_kernels=2, current_kernels=2, baseline_us=20.0, current_us=40.0
    )


def test_counts_are_compared_with_the_last_run_that_has_the_profile() -> None:
    assert verdicts(compared(calls_of(9), calls_of(4), calls_of(5)))["kernels"] == "worse"
    both = run_of(calls_of(4)), Run(), run_of(calls_of(5))
    assert regressed(compare_runs(both[:2], both[2], USUAL))


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        (100.0, 111.0, "worse"),  # above 105.5 + 5 %, by its interval, too
        (100.0, 107.0, "undecided"),  # the interval still holds that
        (100.0, 103.0, None),
        (100.0, 85.0, "better"),
    ],
)
def test_a_time_is_judged_by_its_interval(old: float, new: float, verdict: str | None) -> None:
    found = compared(lasting(old), lasting(new), allowed=ON_TIME)
    assert verdicts(found).get("cuda_time") == verdict
    assert regressed(found) is (verdict == "worse")


def test_a_time_that_is_inside_of_the_old_interval_is_not_worse() -> None:
    wide = calls_of(1, timed("cuda_time", [100 + 3 * i for i in MIXED]))  # 103 to 130, median 116.5
    found = compared(wide, lasting(125), allowed=ON_TIME)  # 126 to 135: 5 % above the median
    assert verdicts(found) == {"cuda_time": "undecided"}


@pytest.mark.parametrize(("us", "verdict"), [(150.0, "worse"), (100.0, "undecided")])
def test_a_time_of_the_host_is_worse_only_if_a_second_look_confirms_it(
    us: float, verdict: str
) -> None:
    on_latency = allowances((Allowance("latency", share=0.05),))
    old = calls_of(1, around("latency", 100))
    new = calls_of(1, around("latency", 150), second_look=[around("latency", us)])
    assert verdicts(compared(old, new, allowed=on_latency)) == {"latency": verdict}


def test_with_other_software_more_kernels_are_told_and_fail_nothing() -> None:
    found = compared(calls_of(4, environment=with_version("torch", "2.10.0")), calls_of(5))
    assert (verdicts(found)["kernels"], failure(found)) == ("worse", "")
    assert only(found).reason == "torch 2.10.0 -> 2.11.0+cu130"
    assert only(found).differences == ("torch 2.10.0 -> 2.11.0+cu130",)


@pytest.mark.parametrize(
    "environment", [with_version("python", "3.12.1"), replace(H200, power_limit_w=600)]
)
def test_what_only_times_depend_on_excuses_no_kernel(environment: Environment) -> None:
    found = compared(calls_of(4, environment=environment), calls_of(5))
    assert (regressed(found), only(found).reason) == (True, "")


def test_more_in_a_block_that_was_cold_is_no_regression() -> None:
    cold = Integrity(cold=("lazy loading",))
    found = compared(calls_of(4, one_shot=True), calls_of(5, one_shot=True, integrity=cold))
    assert (verdicts(found)["kernels"], regressed(found)) == ("undecided", False)
    assert regressed(compared(calls_of(4), calls_of(5, integrity=cold)))  # which was run until warm


def test_a_block_is_not_compared_with_a_call() -> None:
    found = compared(calls_of(4, one_shot=True), calls_of(5))
    assert (only(found).change, only(found).reason) == (
        "not compared",
        "it was a block and is a call",
    )
    assert failure(found) == "nothing could be compared"


def test_memsets_of_which_traces_miss_some_fail_only_where_they_are_named() -> None:
    pair = calls_of(1, counted("memsets", 0)), calls_of(1, counted("memsets", 1))
    assert not regressed(compared(*pair))
    assert regressed(compared(*pair, allowed=allowances((Allowance("memsets"),))))


def test_of_several_runs_the_slowest_is_what_a_time_may_be_as() -> None:
    assert verdicts(compared(lasting(120), lasting(100), lasting(115), allowed=ON_TIME)) == {}


def test_times_fail_only_where_that_was_asked_for() -> None:
    found = compared(lasting(100), lasting(200))
    assert verdicts(found) == {"cuda_time": "worse"}
    assert not regressed(found)


def test_what_is_named_alone_fails() -> None:
    assert not regressed(compared(calls_of(4), calls_of(5), allowed=ON_TIME))


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (
            {"environment": Environment("cuda", "NVIDIA A100", "sm_80")},
            {},
            "device NVIDIA A100",
        ),
        ({"environment": with_version("torch", "2.10.0")}, {}, "torch 2.10.0 -> 2.11.0+cu130"),
        ({"environment": with_version("python", "3.13.9")}, {}, "python 3.13.9 -> 3.13"),
        ({}, {"environment": with_version("cuda", "13.0")}, "cuda none -> 13.0"),
        (at_watts(700), at_watts(600), "power limit 700 W -> 600 W"),
        ({}, at_watts(700), "power limit unknown -> 700 W"),
        ({}, {"conditions": Conditions(not_alone="held by pid 5")}, "disturbed"),
        ({"one_shot": True}, {"one_shot": True}, "ran only once"),
    ],
)
def test_times_that_do_not_compare_are_not_compared_and_it_is_said_why(
    old: dict[str, Any], new: dict[str, Any], why: str
) -> None:
    found = compared(lasting(100, **old), lasting(200, **new), allowed=ON_TIME)
    assert "cuda_time" not in verdicts(found)
    assert why in only(found).untimed


def test_times_at_the_same_power_limit_compare() -> None:
    found = compared(lasting(100, **at_watts(700)), lasting(200, **at_watts(700)), allowed=ON_TIME)
    assert (verdicts(found)["cuda_time"], only(found).untimed) == ("worse", "")


def test_a_run_on_another_device_among_several_says_nothing_of_times() -> None:
    other = lasting(500, environment=with_version("torch", "2.10.0"))
    (metric,) = only(compared(other, lasting(100), lasting(120), allowed=ON_TIME)).metrics
    assert (metric.baselines, metric.change) == ((None, 105.5), "worse")


@pytest.mark.parametrize(
    ("other", "before", "now"),
    [
        (
            calls_of(3, integrity=Integrity(problems=("2 launches without a kernel",))),
            "it was incomplete",
            "incomplete",
        ),
        (
            calls_of(3, environment=CPU),  # which counts operators
            "it ran on CPU (x86_64), and runs on NVIDIA H200",
            "it ran on NVIDIA H200, and runs on CPU (x86_64)",
        ),
    ],
)
def test_a_side_that_is_incomplete_or_of_another_kind_of_device_is_told_and_not_compared(
    other: Profile, before: str, now: str
) -> None:
    for pair, why in (((other, calls_of(5)), before), ((calls_of(5), other), now)):
        found = compared(*pair)
        assert (only(found).change, only(found).reason) == ("not compared", why)
        assert failure(found) == "nothing could be compared"


def test_an_incomplete_run_between_does_not_hide_a_complete_one_before() -> None:
    lost = calls_of(3, integrity=Integrity(problems=("2 launches without a kernel",)))
    assert verdicts(compared(calls_of(4), lost, calls_of(5)))["kernels"] == "worse"


def test_what_only_one_side_has_is_told() -> None:
    found = compare_runs([run_of(calls_of(1), name="a")], run_of(calls_of(1), name="b"), USUAL)
    assert (found.gone, found.fresh) == (("test_it.py::a",), ("test_it.py::b",))
    assert failure(found) == "nothing could be compared"


def test_what_any_earlier_run_has_is_not_new() -> None:
    found = compare_runs([run_of(calls_of(1)), Run()], run_of(calls_of(1)), USUAL)
    assert (found.fresh, len(found.profiles)) == ((), 1)


def test_profiles_belong_together_by_their_labels() -> None:
    a, b = calls_of(1, label="a"), calls_of(3, label="b")
    assert different(compare_runs([run_of(a, b)], run_of(b, a), USUAL)) == []
    found = compare_runs([run_of(a, b)], run_of(a), USUAL)
    assert (only(found).label, found.gone) == ("a", ("test_it.py::test_it (b)",))
    twice = compare_runs([run_of(a, a)], run_of(a, calls_of(2, label="a")), USUAL)
    assert verdicts(twice)["kernels"] == "worse"


def test_of_a_test_that_ran_again_the_last_time_counts() -> None:
    twice = Run((Test("t", (calls_of(9), calls_of(9)), outcome="rerun"), Test("t", (calls_of(4),))))
    found = compare_runs([Run((Test("t", (calls_of(4),)),))], twice, USUAL)
    assert (verdicts(found), len(found.profiles), found.fresh) == ({}, 1, ())


def test_a_metric_that_was_not_had_before_is_not_compared() -> None:
    found = compared(calls_of(1, absent("peak_memory")), calls_of(1, counted("peak_memory", 4096)))
    assert (different(found), failure(found)) == ([], "")


def test_a_judged_metric_that_is_not_had_any_more_is_no_pass() -> None:
    found = compared(calls_of(1, counted("peak_memory", 4096)), calls_of(1, absent("peak_memory")))
    assert only(found).lost == ("peak_memory",)
    assert failure(found) == "peak_memory is missing in 1 profile that had it before"


def test_a_metric_that_was_asked_for_and_that_no_profile_has_is_no_pass() -> None:
    found = compared(calls_of(1), calls_of(1), allowed=ON_TIME)
    assert (found.nowhere, failure(found)) == (("cuda_time",), "no profile has cuda_time")


def test_a_metric_counts_as_there_only_where_it_was_compared() -> None:
    one, other = timed("cuda_time", [5.0] * 12), LOST_RUN
    x, y = calls_of(1, one, label="x"), calls_of(1, label="y")
    found = compare_runs([run_of(replace(x, integrity=other), y)], run_of(x, y), ON_TIME)
    assert found.nowhere == ("cuda_time",)
    found = compare_runs([run_of(x), run_of(y)], run_of(x), allowances((Allowance("kernels"),)))
    assert found.nowhere == ()


def test_with_other_software_nothing_is_missing() -> None:
    had, has = calls_of(1, counted("syncs", 0)), calls_of(1, environment=NEWER_TORCH)
    assert only(compared(had, has)).lost == ()
    assert only(compared(had, calls_of(1))).lost == ("syncs",)
    assert (only(compared(had, calls_of(1))).change, only(compared(had, calls_of(1))).reason) == (
        "not compared",
        "syncs is missing; the earlier run has it",
    )


def test_another_python_forbids_compilations_alone() -> None:
    def compiling(number: int, python: str) -> Profile:
        more = (counted("recompiles", number), counted("syncs", number))
        return calls_of(1, *more, environment=with_version("python", python))

    found = compared(compiling(0, "3.12"), compiling(1, "3.13"))
    assert {one.name: one.judged for one in only(found).metrics} == {
        "syncs": True,
        "recompiles": False,
    }


def test_a_profile_with_more_kernels_than_a_document_keeps_is_as_itself() -> None:
    many = profile([kernel(f"k{i % 2_500}") for i in range(2_500)])
    (kept,) = unpack(pack(run_of(many))).tests[0].profiles
    assert only(compared(kept, many)).change == "same"


def test_kernels_that_are_kept_no_more_are_no_difference() -> None:
    dropped = replace(calls_of(5), kernels=(), kernels_kept=False)
    assert different(compared(dropped, calls_of(5))) == []
    (one,) = different(compared(dropped, calls_of(6)))
    assert one.kernels is None


def test_kernels_beyond_those_that_are_kept_one_by_one_differ_too() -> None:
    def more(*groups: KernelGroup) -> Profile:
        return replace(calls_of(1), more_kernels=groups)

    same = KernelGroup("gelu", 1000, 5.0)
    assert different(compared(more(same), more(same))) == []
    other = more(KernelGroup("gelu", 990, 5.0), KernelGroup("mm", 10, 7.0))
    (one,) = different(compared(more(same), other))
    assert [(change.kind, change.side.name, change.times) for change in one.changes] == [
        ("removed", "gelu", 10),
        ("added", "mm", 10),
    ]
    assert one.kernels
    assert (one.kernels.baseline_kernels, one.kernels.current_kernels) == (1001, 1001)


def test_kernels_of_a_last_run_whose_times_do_not_compare_are_no_slower() -> None:
    busy = lasting(100, conditions=Conditions(not_alone="held by pid 5"))
    slow = profile([kernel("gelu", "aten::gelu", us=99.0)], [around("cuda_time", 200)])
    found = only(compared(lasting(100), lasting(100), slow, allowed=ON_TIME))
    assert found.kernels
    assert [one.kind for one in found.kernels.changes] == ["slower"]
    found = only(compared(lasting(100), busy, slow, allowed=ON_TIME))
    assert (found.kernels, found.change) == (
        KernelDiff(baseline_kernels=1, current_kernels=1),
        "worse",
    )


def test_what_no_profile_says_is_the_same_of_a_run_that_was_compared_test_by_test() -> None:
    a, b, c = calls_of(4, label="a"), calls_of(5, label="b"), calls_of(6, label="c")
    old, new = run_of(a, b), replace(run_of(a, c), unfinished=("stopped",))
    whole = compare_runs([old], new, ON_TIME)
    assert (whole.gone, whole.fresh) == (("test_it.py::test_it (b)",), ("test_it.py::test_it (c)",))
    assert (whole.nowhere, whole.unfinished) == (("cuda_time",), ("stopped",))
    before, now = profiles_of(old.tests), profiles_of(new.tests)
    assert comparison_of(before, now, [a], ON_TIME, ["stopped"]) == replace(whole, profiles=())


def comparing(kernels: int, us: float, *, environment: Environment = H200, **more: Any) -> Run:
    callables = (
        ComparedCallable("fused", kernels, us, us - 1, us + 1),
        ComparedCallable("eager", 5, 300.0, 299.0, 301.0),
    )
    found = comparison(*callables, **more)
    return Run((Test("t", comparisons=(replace(found, environment=environment),)),))


def test_the_callables_of_comparisons_are_compared_each_with_its_own() -> None:
    found = compare_runs([comparing(1, 100)], comparing(2, 150), ON_TIME)
    assert (len(found.profiles), found.fresh, found.gone) == (2, (), ())
    (one,) = different(found)
    assert (one.test, one.label) == ("t", "compare fused")
    assert [(m.name, m.change, m.judged) for m in one.metrics] == [
        ("kernels", "worse", False),
        ("cuda_time", "worse", True),
    ]
    assert regressed(compare_runs([comparing(1, 100)], comparing(2, 100), USUAL))


def test_comparisons_on_another_device_or_a_disturbed_one_are_no_baseline() -> None:
    other = comparing(2, 150, environment=with_version("torch", "2.12.0"))
    assert not regressed(compare_runs([comparing(1, 100)], other, USUAL))
    busy = comparing(1, 150, conditions=(Conditions(not_alone="held by pid 5"),))
    found = compare_runs([comparing(1, 100)], busy, ON_TIME)
    assert [one.untimed for one in found.profiles] == [DISTURBED] * 2


def test_every_rank_is_compared_with_itself_and_the_first_that_is_worse_is_told() -> None:
    before = of_ranks(calls_of(4), calls_of(2))
    found = only(compared(before, of_ranks(calls_of(4), calls_of(3))))
    assert (found.label, found.rank) == ("rank 1", 1)
    assert [(one.name, one.baselines, one.current) for one in found.worse] == [
        ("kernels", (2,), 3),
        ("launches", (2,), 3),
    ]
    assert different(compared(before, before)) == []
    assert only(compared(before, of_ranks(calls_of(5), calls_of(3)))).label == ""


def test_the_run_that_says_so_has_the_profile_of_which_another_rank_is_worse() -> None:
    now = run_of(of_ranks(calls_of(4), calls_of(3)), calls_of(1, label="rank 1"))
    before = run_of(of_ranks(calls_of(4), calls_of(2)), calls_of(1, label="rank 1"))
    (test,) = compared_run(now, compare_runs([before], now, USUAL)).tests
    verdicts = [verdict for one in test.profiles for verdict in one.verdicts]
    assert [(one.outcome, one.ranks) for one in verdicts] == [("failed", (1,)), ("passed", ())]
    assert test.outcome == "failed"


def test_a_rank_that_is_incomplete_is_not_compared() -> None:
    lost = calls_of(2, integrity=Integrity(("lost",)))
    found = only(compared(of_ranks(calls_of(2), calls_of(2)), of_ranks(calls_of(2), lost)))
    assert (found.change, found.reason) == ("not compared", "incomplete")


def test_of_a_run_on_one_rank_the_first_is_compared() -> None:
    assert different(compared(calls_of(2), of_ranks(calls_of(2), calls_of(7)))) == []
    assert only(compared(calls_of(2), of_ranks(calls_of(3), calls_of(2)))).worse
    assert only(compared(of_ranks(calls_of(2), calls_of(7)), calls_of(3))).worse
