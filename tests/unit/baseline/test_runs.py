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

from pytest_kernelprof.baseline.allowance import Allowance, allowances, parse_allowance
from pytest_kernelprof.baseline.earlier import DISTURBED, Key, compare_profile
from pytest_kernelprof.baseline.runs import compare_runs, gather
from pytest_kernelprof.schema.run import (
    Conditions,
    Contestant,
    Environment,
    Integrity,
    KernelGroup,
    Profile,
    Run,
    Test,
    Verdict,
)
from pytest_kernelprof.schema.runs import ProfileComparison, RunsComparison

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


def compared(*profiles: Profile, allowed: dict[str, Allowance] = USUAL) -> RunsComparison:
    *olds, new = map(run_of, profiles)
    return compare_runs(olds, new, allowed)


def only(found: RunsComparison) -> ProfileComparison:
    (one,) = found.profiles
    return one


def verdicts(found: RunsComparison) -> dict[str, str]:
    return {one.name: one.verdict for profile in found.profiles for one in profile.metrics}


def test_a_run_is_as_itself() -> None:
    found = compared(calls_of(5), calls_of(5))
    assert (found.compared, found.profiles, found.regressed) == (1, (), False)


def test_a_kernel_more_is_a_regression_with_the_kernels_beside_it() -> None:
    found = compared(calls_of(4), calls_of(5))
    one = only(found)
    assert found.regressed
    assert verdicts(found) == {"kernels": "worse", "launches": "worse"}
    assert one.diff is not None
    assert [change.kind for hunk in one.diff.hunks for change in hunk.changes] == ["added"]


def test_a_kernel_less_is_better_and_no_regression() -> None:
    found = compared(calls_of(5), calls_of(4))
    assert not found.regressed
    assert verdicts(found) == {"kernels": "better", "launches": "better"}


def test_other_kernels_at_the_same_counts_are_told_and_fail_nothing() -> None:
    found = compared(calls_of(1), profile([kernel("relu", "aten::relu")]))
    assert only(found).diff is not None
    assert only(found).metrics == ()
    assert not found.regressed


def test_counts_are_compared_with_the_last_run_that_has_the_profile() -> None:
    assert verdicts(compared(calls_of(9), calls_of(4), calls_of(5)))["kernels"] == "worse"
    both = run_of(calls_of(4)), Run(), run_of(calls_of(5))
    assert compare_runs(both[:2], both[2], USUAL).regressed


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
    assert found.regressed is (verdict == "worse")


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
    assert (verdicts(found)["kernels"], found.regressed) == ("worse", False)
    assert found.other == {"torch 2.10.0 -> 2.11.0+cu130": 1}


@pytest.mark.parametrize(
    "environment", [with_version("python", "3.12.1"), replace(H200, power_limit_w=600)]
)
def test_what_only_times_depend_on_excuses_no_kernel(environment: Environment) -> None:
    found = compared(calls_of(4, environment=environment), calls_of(5))
    assert (found.regressed, found.other) == (True, {})


def test_more_in_a_block_that_was_cold_is_no_regression() -> None:
    cold = Integrity(cold=("lazy loading",))
    found = compared(calls_of(4, one_shot=True), calls_of(5, one_shot=True, integrity=cold))
    assert (verdicts(found)["kernels"], found.regressed) == ("undecided", False)
    assert compared(calls_of(4), calls_of(5, integrity=cold)).regressed  # which was run until warm


def test_a_block_is_not_compared_with_a_call() -> None:
    found = compared(calls_of(4, one_shot=True), calls_of(5))
    assert (found.compared, found.uncompared) == (0, ("test_it.py::test_it",))


def test_memsets_of_which_traces_miss_some_fail_only_where_they_are_named() -> None:
    pair = calls_of(1, counted("memsets", 0)), calls_of(1, counted("memsets", 1))
    assert not compared(*pair).regressed
    assert compared(*pair, allowed=allowances((Allowance("memsets"),))).regressed


def test_of_several_runs_the_slowest_is_what_a_time_may_be_as() -> None:
    assert verdicts(compared(lasting(120), lasting(100), lasting(115), allowed=ON_TIME)) == {}


def test_times_fail_only_where_that_was_asked_for() -> None:
    found = compared(lasting(100), lasting(200))
    assert verdicts(found) == {"cuda_time": "worse"}
    assert not found.regressed


def test_what_is_named_alone_fails() -> None:
    assert not compared(calls_of(4), calls_of(5), allowed=ON_TIME).regressed


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
    ((words, times),) = found.untimed.items()
    assert (why in words, times) == (True, 1)


def test_times_at_the_same_power_limit_compare() -> None:
    found = compared(lasting(100, **at_watts(700)), lasting(200, **at_watts(700)), allowed=ON_TIME)
    assert (verdicts(found)["cuda_time"], found.untimed) == ("worse", {})


def test_a_run_on_another_device_among_several_says_nothing_of_times() -> None:
    other = lasting(500, environment=with_version("torch", "2.10.0"))
    (metric,) = only(compared(other, lasting(100), lasting(120), allowed=ON_TIME)).metrics
    assert (metric.olds, metric.verdict) == ((None, 105.5), "worse")


@pytest.mark.parametrize(
    "other",
    [
        calls_of(3, integrity=Integrity(problems=("2 launches without a kernel",))),
        calls_of(3, environment=CPU),  # which counts operators
    ],
)
def test_a_side_that_is_incomplete_or_of_another_kind_of_device_is_told_and_not_compared(
    other: Profile,
) -> None:
    for pair in ((other, calls_of(5)), (calls_of(5), other)):
        found = compared(*pair)
        assert (found.uncompared, found.compared) == (("test_it.py::test_it",), 0)
        assert not found.passed


def test_an_incomplete_run_between_does_not_hide_a_complete_one_before() -> None:
    lost = calls_of(3, integrity=Integrity(problems=("2 launches without a kernel",)))
    assert verdicts(compared(calls_of(4), lost, calls_of(5)))["kernels"] == "worse"


def test_what_only_one_side_has_is_told() -> None:
    found = compare_runs([run_of(calls_of(1), name="a")], run_of(calls_of(1), name="b"), USUAL)
    assert (found.gone, found.fresh) == (("test_it.py::a",), ("test_it.py::b",))
    assert not found.passed  # nothing was compared


def test_what_any_earlier_run_has_is_not_new() -> None:
    found = compare_runs([run_of(calls_of(1)), Run()], run_of(calls_of(1)), USUAL)
    assert (found.fresh, found.compared) == ((), 1)


def test_profiles_belong_together_by_their_labels() -> None:
    a, b = calls_of(1, label="a"), calls_of(3, label="b")
    assert compare_runs([run_of(a, b)], run_of(b, a), USUAL).profiles == ()
    found = compare_runs([run_of(a, b)], run_of(a), USUAL)
    assert (found.compared, found.gone) == (1, ("test_it.py::test_it (b)",))
    twice = compare_runs([run_of(a, a)], run_of(a, calls_of(2, label="a")), USUAL)
    assert verdicts(twice)["kernels"] == "worse"


def test_of_a_test_that_ran_again_the_last_time_counts() -> None:
    twice = Run((Test("t", (calls_of(9), calls_of(9)), outcome="rerun"), Test("t", (calls_of(4),))))
    found = compare_runs([Run((Test("t", (calls_of(4),)),))], twice, USUAL)
    assert (verdicts(found), found.compared, found.fresh) == ({}, 1, ())


def test_a_metric_that_was_not_had_before_is_not_compared() -> None:
    found = compared(calls_of(1, absent("peak_memory")), calls_of(1, counted("peak_memory", 4096)))
    assert (found.profiles, found.passed) == ((), True)


def test_a_judged_metric_that_is_not_had_any_more_is_no_pass() -> None:
    found = compared(calls_of(1, counted("peak_memory", 4096)), calls_of(1, absent("peak_memory")))
    assert (found.lost, found.passed) == ({"peak_memory": 1}, False)


def test_a_metric_that_was_asked_for_and_that_no_profile_has_is_no_pass() -> None:
    found = compared(calls_of(1), calls_of(1), allowed=ON_TIME)
    assert (found.nowhere, found.passed) == (("cuda_time",), False)


def test_kernels_that_are_kept_no_more_are_no_difference() -> None:
    dropped = replace(calls_of(5), kernels=(), kernels_kept=False)
    assert compared(dropped, calls_of(5)).profiles == ()
    (one,) = compared(dropped, calls_of(6)).profiles
    assert one.diff is None


def test_kernels_beyond_those_that_are_kept_one_by_one_differ_too() -> None:
    def more(*groups: KernelGroup) -> Profile:
        return replace(calls_of(1), more_kernels=groups)

    same = KernelGroup("gelu", 1000, 5.0)
    assert compared(more(same), more(same)).profiles == ()
    other = more(KernelGroup("gelu", 990, 5.0), KernelGroup("mm", 10, 7.0))
    (one,) = compared(more(same), other).profiles
    assert one.diff is not None
    found = [(c.kind, (c.new or c.old).name, h.times) for h in one.diff.hunks for c in h.changes]
    assert found == [("removed", "gelu", 10), ("added", "mm", 10)]
    assert (one.diff.old_kernels, one.diff.new_kernels) == (1001, 1001)


def test_what_was_compared_as_it_was_taken_is_the_same_together() -> None:
    a, b, c = calls_of(4, label="a"), calls_of(5, label="b"), calls_of(6, label="c")
    old, new = run_of(a, b), (calls_of(5, label="a"), b, c)
    judged = []
    for one in new:
        key = Key("test_it.py::test_it", one.label, 0)
        before = {"a": a, "b": b}.get(one.label)
        found = compare_profile(key, [before], one, USUAL)
        kept = (Verdict(limit="compare", outcome="kept", comparison=found),)
        judged.append(one if isinstance(found, str) else replace(one, verdicts=kept))
    assert gather(old, run_of(*judged), USUAL) == compare_runs([old], run_of(*new), USUAL)


def comparing(
    kernels: int, us: float, *, environment: Environment | None = H200, **more: Any
) -> Run:
    contestants = (
        Contestant("fused", kernels, us, us - 1, us + 1),
        Contestant("eager", 5, 300.0, 299.0, 301.0),
    )
    found = comparison(*contestants, **more)
    return Run((Test("t", comparisons=(replace(found, environment=environment),)),))


def test_the_callables_of_comparisons_are_compared_each_with_its_own() -> None:
    found = compare_runs([comparing(1, 100)], comparing(2, 150), ON_TIME)
    assert (found.compared, found.fresh, found.gone) == (2, (), ())
    one = only(found)
    assert (one.test, one.label) == ("t", "compare fused")
    assert [(m.name, m.verdict, m.judged) for m in one.metrics] == [
        ("kernels", "worse", False),
        ("cuda_time", "worse", True),
    ]
    assert compare_runs([comparing(1, 100)], comparing(2, 100), USUAL).regressed


def test_comparisons_on_another_device_or_a_disturbed_one_are_no_baseline() -> None:
    other = comparing(2, 150, environment=with_version("torch", "2.12.0"))
    assert not compare_runs([comparing(1, 100)], other, USUAL).regressed
    busy = comparing(1, 150, conditions=(Conditions(not_alone="held by pid 5"),))
    assert compare_runs([comparing(1, 100)], busy, ON_TIME).untimed == {DISTURBED: 2}
    unknown = comparing(1, 150, environment=None)
    assert compare_runs([unknown], comparing(1, 100), ON_TIME).compared == 0


@pytest.mark.parametrize(
    ("text", "allowance"),
    [
        ("cuda_time:5%", Allowance("cuda_time", share=0.05)),
        ("cuda_time:10us", Allowance("cuda_time", amount=10.0)),
        ("kernels:0", Allowance("kernels")),
        ("kernels:2", Allowance("kernels", amount=2)),
        ("peak_memory:1 MB", Allowance("peak_memory", amount=1e6)),
        ("peak_memory:512", Allowance("peak_memory", amount=512)),
    ],
)
def test_a_margin_is_a_share_or_an_amount(text: str, allowance: Allowance) -> None:
    assert parse_allowance(text) == allowance


def test_a_metric_that_is_named_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="kernels is named twice"):
        allowances((Allowance("kernels"), Allowance("kernels", amount=5)))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("kernel:0", "'kernel' is no metric that can be judged; these are: kernels, "),
        ("gpu_idle:5%", "'gpu_idle' is no metric that can be judged"),
        ("cuda_time", "write cuda_time:5%"),
        ("cuda_time:", "write cuda_time:5%"),
        ("cuda_time:fast", "write for example cuda_time:5%"),
        ("kernels:-1", "no whole number from 0 on"),
        ("kernels:1.5", "no whole number from 0 on"),
        ("kernels:²", "no whole number from 0 on"),
        ("peak_memory:lots", "write for example peak_memory:1 MB"),
        ("cuda_time:nan%", "write for example cuda_time:5%"),
        ("cuda_time:-5%", "write for example cuda_time:5%"),
        ("", "'' is no metric"),
    ],
)
def test_a_margin_that_is_none_says_the_form(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words.replace("(", r"\(")):
        parse_allowance(text)


def test_every_rank_is_compared_with_itself_and_the_first_that_is_worse_is_told() -> None:
    before = of_ranks(calls_of(4), calls_of(2))
    found = only(compared(before, of_ranks(calls_of(4), calls_of(3))))
    assert found.label == "rank 1"
    assert [(one.name, one.olds, one.new) for one in found.metrics if one.judged] == [
        ("kernels", (2,), 3),
        ("launches", (2,), 3),
    ]
    assert found.regressed
    assert compared(before, before).profiles == ()
    assert only(compared(before, of_ranks(calls_of(5), calls_of(3)))).label == ""


def test_a_rank_that_is_incomplete_is_not_compared() -> None:
    lost = calls_of(2, integrity=Integrity(("lost",)))
    found = compared(of_ranks(calls_of(2), calls_of(2)), of_ranks(calls_of(2), lost))
    assert found.uncompared == ("test_it.py::test_it",)


def test_of_a_run_on_one_rank_the_first_is_compared() -> None:
    assert compared(calls_of(2), of_ranks(calls_of(2), calls_of(7))).profiles == ()
    assert only(compared(calls_of(2), of_ranks(calls_of(3), calls_of(2)))).regressed
    assert only(compared(of_ranks(calls_of(2), calls_of(7)), calls_of(3))).regressed
