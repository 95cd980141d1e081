"""Verdicts on profiles as facts: over, kept, undecided, incomplete or not judged, and by what."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from records import (
    CPU,
    absent,
    around,
    calls_of,
    comparison,
    counted,
    kernel,
    mlp,
    of_ranks,
    profile,
    timed,
)

from pytest_kernelprof.limits.evaluate import evaluate, evaluate_comparison, if_names_exist
from pytest_kernelprof.limits.kinds import parse_assertion, parse_limit
from pytest_kernelprof.records.comparison import Paired
from pytest_kernelprof.records.document import ComparedCallable
from pytest_kernelprof.records.profile import Hit, Place, Profile, Verdict
from pytest_kernelprof.records.recording import Conditions, Integrity, Neighbour
from pytest_kernelprof.summary.verdicts import verdict_line

LOST = Integrity(("the profiler stopped collecting", "2 launches have no kernel"))


def verdict(of: Profile, name: str, *args: Any, **kwargs: Any) -> Verdict:
    return evaluate(of, [parse_limit(name, args, kwargs)])[0]


FULL = mlp(
    counted("syncs", 7),
    counted("memcpys", 6),
    counted("memcpys_d2h", 2),
    counted("memcpy_bytes", 20_975_616),
    counted("peak_memory", 150_994_944),
    counted("recompiles", 0),
    timed("cuda_time", [240.0]),
)


@pytest.mark.parametrize(
    ("name", "args", "kwargs", "outcome"),
    [
        ("max_kernels", (5,), {}, "passed"),
        ("max_kernels", (4,), {}, "failed"),
        ("max_kernels", (2,), {"match": "nvjet"}, "failed"),
        ("max_kernels", (3,), {"match": "NVJET"}, "passed"),
        ("max_launches", (5,), {}, "passed"),
        ("max_syncs", (6,), {}, "failed"),
        ("max_memcpys", (2,), {"direction": "d2h"}, "passed"),
        ("max_memcpys", (5,), {}, "failed"),
        ("max_memcpy_bytes", ("20 MB",), {}, "failed"),
        ("max_memcpy_bytes", ("21 MB",), {}, "passed"),
        ("max_peak_memory", ("150 MB",), {}, "failed"),
        ("max_peak_memory", ("151 MB",), {}, "passed"),
        ("max_recompiles", (0,), {}, "passed"),
        ("max_cuda_time", ("1us",), {}, "failed"),
        ("max_cuda_time", ("1s",), {}, "passed"),
        ("max_latency", ("1s",), {}, "incomplete"),
        ("max_launch_overhead", ("1s",), {}, "incomplete"),
        ("max_launch_overhead", ("30%",), {}, "incomplete"),
        ("max_allocations", (0,), {}, "incomplete"),
        ("forbid_kernels", ("softmax",), {}, "passed"),
        ("forbid_kernels", ("softmax", "gelu"), {}, "failed"),
        ("expect_kernels", ("mm", "gelu", "mm", "mul", "mm"), {}, "passed"),
        ("expect_kernels", ("mm", ..., "mm"), {}, "passed"),
        ("expect_kernels", (..., "gelu"), {}, "failed"),
        ("expect_kernels", ("mm", "gelu", "mm", "mul"), {}, "failed"),
        ("expect_kernels", (), {}, "failed"),
    ],
)
def test_outcomes(name: str, args: tuple[Any, ...], kwargs: dict[str, Any], outcome: str) -> None:
    assert verdict(FULL, name, *args, **kwargs).outcome == outcome


def test_verdicts_come_in_the_order_of_the_limits() -> None:
    limits = [parse_limit("max_syncs", (0,), {}), parse_limit("max_kernels", (9,), {})]
    assert [one.limit for one in evaluate(FULL, limits)] == ["max_syncs", "max_kernels"]


def test_a_count_is_told_with_value_limit_and_rounds() -> None:
    found = verdict(FULL, "max_kernels", 4)
    assert (found.measured, found.allowed, found.rounds, found.unit) == (5, 4, 2, "count")


def test_a_limit_on_a_direction_is_told_with_it() -> None:
    found = verdict(FULL, "max_memcpys", 0, direction="d2h")
    assert (found.qualifier, found.metric) == ("d2h", "memcpys_d2h")


def test_each_verdict_names_the_place_that_it_is_given() -> None:
    place = Place("tests/test_mlp.py", 31)
    placed = replace(FULL, place=place)
    assert evaluate(placed, [parse_limit("max_kernels", (9,), {})])[0].place == place


# Times.


@pytest.mark.parametrize(
    ("bound", "outcome"), [("90us", "failed"), ("105us", "undecided"), ("120us", "passed")]
)
def test_a_time_is_judged_by_its_whole_interval(bound: str, outcome: str) -> None:
    assert verdict(mlp(around("cuda_time", 100.0)), "max_cuda_time", bound).outcome == outcome


def test_a_time_is_told_with_its_interval_and_rounds() -> None:
    found = verdict(mlp(around("cuda_time", 100.0)), "max_cuda_time", "90us")
    assert (found.measured, found.low, found.high, found.rounds) == (105.5, 101.0, 110.0, 12)


def test_an_undecided_time_says_that_its_interval_holds_the_limit() -> None:
    found = verdict(mlp(around("cuda_time", 100.0)), "max_cuda_time", "105us")
    assert found.reason == "interval"


@pytest.mark.parametrize(("bound", "outcome"), [("1us", "failed"), ("1s", "passed")])
def test_a_time_of_few_rounds_is_judged_by_its_median(bound: str, outcome: str) -> None:
    found = verdict(mlp(timed("cuda_time", [100.0])), "max_cuda_time", bound)
    assert (found.outcome, found.low, found.rounds) == (outcome, None, 1)


@pytest.mark.parametrize("bound", ["1us", "1s"], ids=["would be over", "would be kept"])
def test_rounds_too_alike_for_an_interval_decide_nothing(bound: str) -> None:
    """By their median alone a machine that drifts would fail what has not changed."""
    drifting = mlp(timed("cuda_time", [100.0 + i for i in range(12)]))
    found = verdict(drifting, "max_cuda_time", bound)
    assert (found.outcome, found.reason) == ("undecided", "alike")


def test_a_bound_that_is_met_exactly_is_kept() -> None:
    same = mlp(timed("cuda_time", [100.0] * 12))
    assert verdict(same, "max_cuda_time", "100us").outcome == "passed"


@pytest.mark.parametrize(("share", "outcome"), [("30%", "failed"), ("40%", "passed")])
def test_a_share_of_the_latency_is_judged_against_it(share: str, outcome: str) -> None:
    slow = mlp(timed("latency", [300.0] * 12), timed("launch_overhead", [100.0] * 12))
    assert verdict(slow, "max_launch_overhead", share).outcome == outcome


def test_a_share_is_told_with_what_it_is_of() -> None:
    slow = mlp(timed("latency", [300.0] * 12), timed("launch_overhead", [100.0] * 12))
    found = verdict(slow, "max_launch_overhead", "30%")
    assert (found.share, found.share_of, found.allowed) == (0.3, 300.0, 90.0)


def test_what_a_reader_of_a_time_should_know_is_in_its_note() -> None:
    attached = mlp(around("latency", 400.0, "CUPTI is attached"))
    assert verdict(attached, "max_latency", "1ms").note == "CUPTI is attached"


@pytest.mark.parametrize(
    ("second", "outcome", "reason"),
    [
        (520.0, "failed", ""),
        (480.0, "undecided", "second look"),
        (495.0, "undecided", "second look"),
    ],
    ids=["agrees", "kept", "its interval holds the limit"],
)
def test_a_limit_on_host_time_is_over_only_if_a_second_look_agrees(
    second: float, outcome: str, reason: str
) -> None:
    """Enqueue times differ by 40 % between processes and states of a machine."""
    looked = mlp(around("latency", 510.0), second_look=[around("latency", second)])
    found = verdict(looked, "max_latency", "500us")
    assert (found.outcome, found.reason) == (outcome, reason)


def test_a_second_look_is_told() -> None:
    looked = mlp(around("latency", 510.0), second_look=[around("latency", 520.0)])
    assert verdict(looked, "max_latency", "500us").second_look == 525.5


def test_a_kept_limit_needs_no_second_look() -> None:
    looked = mlp(around("latency", 400.0), second_look=[around("latency", 900.0)])
    found = verdict(looked, "max_latency", "500us")
    assert (found.outcome, found.second_look) == ("passed", None)


DISTURBED = [
    Conditions(blocks=1, contenders=(Neighbour(7, 60),)),
    Conditions(blocks=3, discarded_rounds=36, throttle_reasons=("heat",)).keeping_throttled(12),
]


@pytest.mark.parametrize("bound", ["60us", "1s"], ids=["would be over", "would be kept"])
@pytest.mark.parametrize("conditions", DISTURBED, ids=["contended", "throttled"])
def test_no_time_is_judged_by_rounds_of_a_disturbed_gpu(conditions: Conditions, bound: str) -> None:
    noisy = mlp(around("cuda_time", 100.0), conditions=conditions)
    found = verdict(noisy, "max_cuda_time", bound)
    assert (found.outcome, found.reason) == ("undecided", "disturbed")


@pytest.mark.parametrize("conditions", DISTURBED, ids=["contended", "throttled"])
def test_counts_need_no_quiet_gpu(conditions: Conditions) -> None:
    assert verdict(mlp(conditions=conditions), "max_kernels", 5).outcome == "passed"


# Counts that differ, and sequences that do.


def test_counts_that_differ_between_rounds_are_judged_by_the_largest() -> None:
    found = verdict(mlp(counted("kernels", 4, 5)), "max_kernels", 4)
    assert (found.outcome, found.measured, found.values) == ("failed", 5, (4, 5))


def test_counts_that_agree_are_not_told_one_by_one() -> None:
    assert verdict(mlp(), "max_kernels", 4).values == ()


FIRST, SECOND = kernel("first"), kernel("second")


@pytest.mark.parametrize("name", ["first", "second"])
@pytest.mark.parametrize(
    ("limit", "args", "kwargs"),
    [
        ("forbid_kernels", True, {}),
        ("expect_kernels", True, {}),
        ("max_kernels", False, {"match": True}),
    ],
)
def test_limits_on_names_hold_for_every_round(
    limit: str, args: bool, kwargs: dict[str, Any], name: str
) -> None:
    alternating = profile([FIRST], variants=((SECOND,),))
    given = dict.fromkeys(kwargs, name)
    assert verdict(alternating, limit, name if args else 0, **given).outcome == "failed"


def test_a_limit_with_a_pattern_counts_what_matches() -> None:
    found = verdict(mlp(), "max_kernels", 2, match="nvjet")
    assert (found.measured, found.qualifier) == (3, "nvjet")


def test_forbidden_kernels_are_named() -> None:
    found = verdict(mlp(), "forbid_kernels", "softmax", "gelu")
    assert found.hits == (Hit(2, "vectorized_elementwise [gelu]", "gelu"),)


def test_unexpected_kernels_are_told_with_what_was_wanted() -> None:
    found = verdict(mlp(), "expect_kernels", "mm", "relu", ...)
    assert found.mismatch is not None
    assert (found.mismatch.position, found.mismatch.wanted) == (2, ("relu",))
    assert found.patterns == ("mm", "relu", None)


# What could not be had.


def test_a_value_that_could_not_be_had_says_why() -> None:
    without = mlp(absent("latency", "not measured: it needs calls that are not profiled"))
    found = verdict(without, "max_latency", "1s")
    assert found.why == "not measured: it needs calls that are not profiled"


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("max_kernels", (5,)),
        ("max_cuda_time", ("1s",)),
        ("max_cuda_time", ("105us",)),
        ("forbid_kernels", ("softmax",)),
        ("expect_kernels", (...,)),
    ],
    ids=["count", "time", "undecided time", "forbidden", "expected"],
)
def test_nothing_is_kept_where_events_were_lost(name: str, args: tuple[Any, ...]) -> None:
    found = verdict(mlp(around("cuda_time", 100.0), integrity=LOST), name, *args)
    assert found.outcome == "incomplete"
    assert found.why == "the profiler stopped collecting; 2 launches have no kernel"
    assert found.reason == ""


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("max_kernels", (4,)),
        ("max_cuda_time", ("1us",)),
        ("forbid_kernels", ("gelu",)),
        ("expect_kernels", ("relu",)),
    ],
)
def test_what_is_over_is_so_although_events_were_lost(name: str, args: tuple[Any, ...]) -> None:
    found = verdict(mlp(around("cuda_time", 100.0), integrity=LOST), name, *args)
    assert found.outcome == "failed"


def test_rounds_that_differ_because_events_were_lost_say_so() -> None:
    lossy = mlp(counted("kernels", 4, 5), integrity=LOST)
    assert verdict(lossy, "max_kernels", 4).note == "incomplete"


# The CPU.

ON_CPU = profile(environment=CPU)


@pytest.mark.parametrize(
    ("name", "argument"),
    [
        ("max_launches", 0),
        ("max_cuda_time", "0us"),
        ("max_syncs", 0),
        ("max_memcpys", 0),
        ("max_memcpy_bytes", "0 B"),
        ("max_allocations", 0),
        ("max_peak_memory", "0 B"),
        ("max_launch_overhead", "0us"),
    ],
)
def test_limits_of_the_gpu_are_not_judged_on_the_cpu(name: str, argument: Any) -> None:
    found = verdict(ON_CPU, name, argument)
    assert (found.outcome, found.why) == ("not judged", "not applicable on the CPU")


@pytest.mark.parametrize(
    ("of", "name", "args", "kwargs", "outcome"),
    [
        ("cpu", "forbid_kernels", ("elementwise",), {}, "not judged"),
        ("cpu", "forbid_kernels", ("softmax", "nvjet"), {}, "not judged"),
        ("cpu", "forbid_kernels", ("softmax",), {}, "passed"),
        ("cpu", "forbid_kernels", ("elementwise", "mm"), {}, "failed"),
        ("cpu", "max_kernels", (0,), {"match": "elementwise"}, "not judged"),
        ("cpu", "max_kernels", (0,), {"match": "softmax"}, "passed"),
        ("cpu", "max_kernels", (9,), {}, "passed"),
        ("cpu", "expect_kernels", ("elementwise",), {}, "failed"),
        ("lost", "forbid_kernels", ("elementwise",), {}, "not judged"),
        ("lost", "forbid_kernels", ("softmax",), {}, "incomplete"),
        ("gpu", "forbid_kernels", ("triton",), {}, "passed"),
    ],
)
def test_on_the_cpu_a_limit_on_names_is_judged_if_operators_have_such_names(
    of: str, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], outcome: str
) -> None:
    mm = [kernel("aten::mm", "aten::mm")]
    cpu = replace(CPU, versions={"torch": "2.13.0+cpu"})
    of_cpu = profile(mm, environment=cpu, integrity=LOST if of == "lost" else Integrity())
    measured = FULL if of == "gpu" else of_cpu
    made = verdict(measured, name, *args, **kwargs)
    found = if_names_exist(made, measured, lambda: {"aten::mm", "aten::softmax"})
    assert found.outcome == outcome
    if outcome == "not judged":
        impossible = args[-1] if name == "forbid_kernels" else kwargs["match"]
        assert found.why == (
            f"no operator of torch 2.13.0 matches {impossible!r}; name operators, for example "
            "'aten::mul'"
        )


@pytest.mark.parametrize(
    ("name", "args", "outcome"),
    [
        ("max_kernels", (0,), "passed"),
        ("expect_kernels", (), "passed"),
        ("expect_kernels", ("mm",), "failed"),
        ("forbid_kernels", (".",), "passed"),
        ("max_latency", ("1s",), "incomplete"),
        ("max_recompiles", (0,), "incomplete"),
    ],
)
def test_limits_that_the_cpu_can_judge_are_judged(
    name: str, args: tuple[Any, ...], outcome: str
) -> None:
    found = verdict(ON_CPU, name, *args)
    assert (found.outcome, found.device) == (outcome, "cpu")


# Comparisons.


def judged(name: str, value: object, low: float | None, high: float | None, **more: Any) -> Verdict:
    """Of a candidate that is 1.5 times as fast, in rounds that do not matter but beside others."""
    faster = Paired(ratio=1 / 1.5, low=high and 1 / high, high=low and 1 / low)
    fused = ComparedCallable("fused", 1, 100.0, paired=faster)
    found = comparison(fused, ComparedCallable("eager", 3, 150.0), **more)
    return evaluate_comparison(parse_assertion(name, value), found, "fused", [100.0], [150.0])


@pytest.mark.parametrize(
    ("low", "high", "outcome"),
    [
        (1.5, 1.6, "passed"),
        (1.4, 1.6, "undecided"),
        (1.3, 1.5, "undecided"),
        (1.3, 1.4, "failed"),
    ],
)
def test_a_speedup_is_judged_by_its_whole_interval(low: float, high: float, outcome: str) -> None:
    assert judged("min_speedup", 1.5, low, high).outcome == outcome


@pytest.mark.parametrize(
    ("low", "high", "outcome"),
    [(0.96, 0.99, "passed"), (0.94, 0.96, "undecided"), (0.93, 0.95, "failed")],
)
def test_what_may_be_slower_is_judged_by_its_whole_interval(
    low: float, high: float, outcome: str
) -> None:
    assert judged("not_slower", "5%", low, high).outcome == outcome


def test_what_may_be_slower_is_told_as_the_speedup_that_is_enough() -> None:
    assert judged("not_slower", "25%", 0.9, 1.0).allowed == pytest.approx(0.8)


@pytest.mark.parametrize(("pairs", "reason"), [(7, "few"), (12, "alike")])
def test_without_an_interval_a_comparison_is_undecided(pairs: int, reason: str) -> None:
    found = judged("min_speedup", 1.1, None, None, pairs=pairs)
    assert (found.outcome, found.reason) == ("undecided", reason)


@pytest.mark.parametrize("asked", [1.1, 3.0], ids=["would be kept", "would be over"])
def test_a_disturbed_gpu_decides_no_comparison(asked: float) -> None:
    found = judged(
        "min_speedup", asked, 1.4, 1.6, conditions=(Conditions(not_alone="held by pid 5"),)
    )
    assert (found.outcome, found.reason) == ("undecided", "disturbed")


def test_a_comparison_is_told_as_times() -> None:
    found = judged("min_speedup", 1.1, 1.4, 1.6)
    assert (found.unit, found.metric, found.candidate) == ("times", "cuda_time", "fused")
    told = (found.measured, found.low, found.high, found.rounds)
    assert told == pytest.approx((1.5, 1.4, 1.6, 12))


@pytest.mark.parametrize(
    ("counts", "outcome", "measured", "ranks"),
    [
        ((2, 2), "passed", 2, (0, 1)),
        ((2, 4), "failed", 4, (1,)),
        ((5, 2, 4), "failed", 5, (0, 2)),
        ((4, 2, 5), "failed", 5, (2, 0)),
        ((0, 3), "passed", 3, (0, 1)),
    ],
)
def test_a_limit_holds_on_every_rank_and_the_worst_one_is_told(
    counts: tuple[int, ...], outcome: str, measured: int, ranks: tuple[int, ...]
) -> None:
    found = verdict(of_ranks(*map(calls_of, counts)), "max_kernels", 3)
    assert (found.outcome, found.measured) == (outcome, measured)
    assert sorted(found.ranks) == sorted(ranks)
    if outcome == "failed":
        assert found.ranks == ranks


def test_it_is_the_same_whichever_rank_the_profile_is_of() -> None:
    first, other = of_ranks(calls_of(2), calls_of(4)).ranks
    from_the_other = replace(other, other_ranks=(replace(first, other_ranks=()),))
    expected = verdict(replace(first, other_ranks=(other,)), "max_kernels", 3)
    assert verdict(from_the_other, "max_kernels", 3) == expected


def test_of_one_rank_no_rank_is_told() -> None:
    assert verdict(calls_of(4), "max_kernels", 3).ranks == ()


def test_what_one_rank_lost_makes_the_verdict_incomplete_but_over_is_certain() -> None:
    lost = calls_of(2, integrity=LOST)
    found = verdict(of_ranks(calls_of(2), lost), "max_kernels", 3)
    assert (found.outcome, found.ranks) == ("incomplete", (1,))
    assert found.why == "; ".join(LOST.problems)
    assert verdict_line(found).startswith(f"max_kernels: {found.why}")
    assert verdict(of_ranks(calls_of(4), lost), "max_kernels", 3).outcome == "failed"


def test_kernels_by_name_are_judged_on_every_rank() -> None:
    found = verdict(of_ranks(calls_of(1), mlp()), "forbid_kernels", "nvjet")
    assert (found.outcome, found.ranks, len(found.hits)) == ("failed", (1,), 3)
    found = verdict(of_ranks(calls_of(1), mlp()), "max_kernels", 2, match="nvjet")
    assert (found.outcome, found.ranks, found.measured) == ("failed", (1,), 3)


@pytest.mark.parametrize(
    ("bound", "outcome", "allowed"),
    [
        ("20%", "failed", 40.0),
        ("30%", "passed", 60.0),
        ("45us", "failed", 45.0),
        ("51us", "passed", 51.0),
    ],
)
def test_exposed_communication_is_limited_as_a_time_or_a_share_of_the_busy_time(
    bound: str, outcome: str, allowed: float
) -> None:
    times = timed("exposed_comm_time", [50.0] * 12), timed("gpu_busy", [200.0] * 12)
    found = verdict(mlp(*times), "max_exposed_comm", bound)
    assert (found.outcome, found.allowed) == (outcome, allowed)
    assert found.share_of == (200.0 if "%" in bound else 0.0)


def test_what_could_not_be_had_of_communication_is_no_pass() -> None:
    found = verdict(mlp(absent("exposed_comm_time", "gloo")), "max_exposed_comm", "1us")
    assert (found.outcome, found.why) == ("incomplete", "gloo")
