"""Floors: a rate is reached or not, or undecided; a lower bound proves only that it is reached."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from records import around, counted, kernel, mlp, of_ranks

from pytest_kernelprof.analysis.metric_values import rate_metrics, with_said
from pytest_kernelprof.limits.evaluate import evaluate
from pytest_kernelprof.limits.kinds import parse_limit
from pytest_kernelprof.records.profile import Metric, Profile, Verdict
from pytest_kernelprof.records.recording import Conditions, Integrity, Neighbour, Work
from pytest_kernelprof.summary import advice
from pytest_kernelprof.summary.verdicts import causes_of, verdict_line

BUSY = around("gpu_busy", 994.5)
"""Rounds of 1 ms and a little more or less."""
PRODUCT = Work(600 * 10**9, peak=1000e12)
"""What is 600 TFLOP/s in 1 ms, of a peak of 1000."""
PART = replace(PRODUCT, unknown=("my::gemm", "triton_poi_fused"))
NOTHING_KNOWN = Work(0, unknown=("my::gemm",), why="nothing that is known computes")
CONTENDED = Conditions(blocks=3, contenders=(Neighbour(7, 60),))
THROTTLED = Conditions(blocks=3, discarded_rounds=36).keeping_throttled(12)


def profile(work: Work, busy: Metric = BUSY, **more: Any) -> Profile:
    metrics = rate_metrics({"throughput": work, "bandwidth": work}, busy)
    return mlp(busy, *metrics.values(), **more)


def verdict(of: Profile, rate: str, name: str = "min_throughput") -> Verdict:
    return evaluate(of, [parse_limit(name, (rate,), {})])[0]


@pytest.mark.parametrize(
    ("rate", "outcome"),
    [
        ("500 TFLOP/s", "passed"),
        ("600 TFLOP/s", "undecided"),  # within the interval
        ("700 TFLOP/s", "failed"),
        ("50%", "passed"),
        ("60%", "undecided"),
        ("70%", "failed"),
    ],
)
def test_a_floor_is_judged_by_the_whole_interval(rate: str, outcome: str) -> None:
    assert verdict(profile(PRODUCT), rate).outcome == outcome


def test_bytes_are_judged_likewise() -> None:
    of = profile(Work(3 * 10**9, peak=4.8e12))
    assert verdict(of, "2.5 TB/s", "min_bandwidth").outcome == "passed"
    failed = verdict(of, "80%", "min_bandwidth")
    assert failed.outcome == "failed"
    assert "3 TB/s < limit 3.84 TB/s (80% of the peak 4.8 TB/s" in verdict_line(failed)


def test_a_failure_says_the_rate_its_interval_and_what_would_hold() -> None:
    found = verdict(profile(PRODUCT), "700 TFLOP/s")
    line = verdict_line(found)
    assert line.startswith("min_throughput: 600 TFLOP/s < limit 700 TFLOP/s (-14.3 %, 99 % CI 59")
    assert " TFLOP/s, 12 rounds" in line
    assert found.low is not None
    spared = f"{found.low / 1.05 / 1e12:.3g}"
    words = advice.intended_words([found])
    assert words == f"if intended, allow min_throughput('{spared} TFLOP/s') (5 % to spare)"
    assert verdict(profile(PRODUCT), f"{spared} TFLOP/s").outcome == "passed"


def test_a_share_that_is_not_reached_is_lowered_as_a_share() -> None:
    words = advice.intended_words([verdict(profile(PRODUCT), "70%")])
    assert words.startswith("if intended, allow min_throughput('5")
    assert "%')" in words


def test_what_is_reached_has_the_sign_of_a_floor() -> None:
    line = verdict_line(verdict(profile(PRODUCT), "500 TFLOP/s"))
    assert line.startswith("min_throughput: 600 TFLOP/s >= 500 TFLOP/s")


@pytest.mark.parametrize(("rate", "outcome"), [("1 TFLOP/s", "passed"), ("1 PFLOP/s", "failed")])
def test_few_rounds_are_judged_by_their_median(rate: str, outcome: str) -> None:
    busy = replace(BUSY, rounds=(1000.0,), value=1000.0, low=None, high=None)
    assert verdict(profile(PRODUCT, busy), rate).outcome == outcome


@pytest.mark.parametrize("rate", ["1 TFLOP/s", "1 PFLOP/s"])
def test_rounds_too_alike_for_an_interval_decide_nothing(rate: str) -> None:
    alike = replace(BUSY, rounds=tuple(1000.0 + n for n in range(12)), low=None, high=None)
    rates = profile(PRODUCT, alike)
    assert rates.metrics["throughput"].low is None
    found = verdict(rates, rate)
    assert (found.outcome, found.reason) == ("undecided", "alike")


# Work that is known in part.


@pytest.mark.parametrize("rate", ["500 TFLOP/s", "50%"])
def test_a_lower_bound_that_reaches_the_floor_proves_it(rate: str) -> None:
    found = verdict(profile(PART), rate)
    assert found.outcome == "passed"
    assert "the work of my::gemm, triton_poi_fused is not known" in found.note


@pytest.mark.parametrize("rate", ["600 TFLOP/s", "700 TFLOP/s", "70%"])
def test_a_lower_bound_below_the_floor_proves_nothing_and_says_what_to_do(rate: str) -> None:
    found = verdict(profile(PART), rate)
    assert found.outcome == "not judged"
    assert found.why.startswith("at least 59")
    assert found.why.endswith(
        "TFLOP/s: the work of my::gemm, triton_poi_fused is not known: say that of a call with "
        "kernel_profile.work(flops=...)"
    )


@pytest.mark.parametrize(
    ("rate", "outcome"), [("449 TFLOP/s", "not judged"), ("399 TFLOP/s", "passed")]
)
def test_of_few_rounds_the_slowest_is_the_lower_bound(rate: str, outcome: str) -> None:
    busy = replace(BUSY, rounds=(1000.0, 1500.0, 1000.0), value=1000.0, low=None, high=None)
    assert verdict(profile(PART, busy), rate).outcome == outcome


@pytest.mark.parametrize("rate", ["1 MFLOP/s", "80%"])
def test_unknown_work_is_not_judged(rate: str) -> None:
    found = verdict(profile(NOTHING_KNOWN), rate)
    assert found.outcome == "not judged"
    assert found.why == (
        "the work of my::gemm is not known: say that of a call with kernel_profile.work(flops=...)"
    )


def test_a_lower_bound_has_no_value_that_a_reader_could_take_for_the_rate() -> None:
    metric = profile(PART).metrics["throughput"]
    assert metric.value is None
    assert metric.low is not None


# What prevents a number.


def test_a_share_of_an_unknown_peak_is_an_error_and_never_passes() -> None:
    of = profile(replace(PRODUCT, peak=None, why="the peaks of NVIDIA X1 are not known"))
    found = verdict(of, "1%")
    assert (found.outcome, found.why) == ("incomplete", "the peaks of NVIDIA X1 are not known")
    assert verdict(of, "500 TFLOP/s").outcome == "passed"


def test_without_recorded_shapes_it_is_an_error_that_says_what_to_do() -> None:
    of = mlp(BUSY, *rate_metrics({}, BUSY).values())
    found = verdict(of, "1 MFLOP/s")
    assert found.outcome == "incomplete"
    assert "kernel_profile.work(...)" in found.why


def test_without_a_time_it_is_an_error_with_its_reason() -> None:
    busy = replace(BUSY, rounds=(), value=None, low=None, high=None, why="not available under MPS")
    found = verdict(profile(PRODUCT, busy), "1 MFLOP/s")
    assert (found.outcome, found.why) == ("incomplete", "not available under MPS")


def test_a_call_that_does_nothing_has_no_rate() -> None:
    busy = replace(BUSY, rounds=(0.0, 0.0), value=0.0, low=None, high=None)
    found = verdict(profile(PRODUCT, busy), "1 MFLOP/s")
    assert (found.outcome, found.why) == ("incomplete", "the call does nothing on the GPU")


@pytest.mark.parametrize("rate", ["1 MFLOP/s", "1 PFLOP/s"])
def test_nothing_is_judged_where_events_were_lost(rate: str) -> None:
    lost = profile(PRODUCT, integrity=Integrity(("2 launches have no kernel",)))
    assert verdict(lost, rate).outcome == "incomplete"


# What the test says.


def test_what_the_test_says_counts_instead_of_what_shapes_tell() -> None:
    said = with_said({"throughput": PRODUCT}, {"throughput": 300 * 10**9})["throughput"]
    assert said == replace(PRODUCT, amount=300 * 10**9)
    assert verdict(profile(said), "200 TFLOP/s").outcome == "passed"
    assert verdict(profile(said), "500 TFLOP/s").outcome == "failed"


def test_said_work_of_unknown_operators_is_judged_but_not_against_a_peak() -> None:
    said = with_said({"throughput": NOTHING_KNOWN}, {"throughput": 600 * 10**9})["throughput"]
    assert verdict(profile(said), "700 TFLOP/s").outcome == "failed"
    found = verdict(profile(said), "1%")
    assert found.outcome == "incomplete"
    assert found.why == "the peak for my::gemm is not known: write TFLOP/s"


def test_the_peak_of_the_memory_depends_on_no_operator() -> None:
    known = Work(0, unknown=("my::gemm",), peak=4.8e12)
    said = with_said({"bandwidth": known}, {"bandwidth": 10**9})["bandwidth"]
    assert said == Work(10**9, peak=4.8e12)


def test_work_is_said_where_nobody_recorded_shapes() -> None:
    said = with_said({}, {"throughput": 10**12})
    assert said["throughput"].amount == 10**12
    assert "bandwidth" not in said


# A GPU that others disturb.


@pytest.mark.parametrize("conditions", [CONTENDED, THROTTLED], ids=["contended", "throttled"])
@pytest.mark.parametrize(
    ("rate", "outcome"),
    [("500 TFLOP/s", "passed"), ("700 TFLOP/s", "undecided")],
)
def test_what_is_reached_on_a_disturbed_gpu_is_proven(
    conditions: Conditions, rate: str, outcome: str
) -> None:
    assert verdict(profile(PRODUCT, conditions=conditions), rate).outcome == outcome


@pytest.mark.parametrize(
    ("rate", "conditions", "outcome"),
    [
        ("1190 TFLOP/s", CONTENDED, "undecided"),
        ("1250 TFLOP/s", CONTENDED, "failed"),
        ("1250 TFLOP/s", THROTTLED, "undecided"),
    ],
)
def test_twice_the_rate_of_the_fastest_round_is_what_other_work_may_hide(
    rate: str, conditions: Conditions, outcome: str
) -> None:
    found = verdict(profile(PRODUCT, conditions=conditions), rate)
    assert found.outcome == outcome
    assert (found.reason == "beyond") == (outcome == "failed")


def test_of_several_ranks_the_slowest_is_told() -> None:
    slow = around("gpu_busy", 1500.0)
    found = verdict(of_ranks(profile(PRODUCT), profile(PRODUCT, slow)), "700 TFLOP/s")
    assert (found.outcome, found.ranks) == ("failed", (1, 0))


def test_the_kernel_that_takes_longest_is_the_cause() -> None:
    of = replace(profile(PRODUCT), kernels=(kernel("fast", us=10), kernel("slow", us=900)))
    of = replace(of, verdicts=(verdict(of, "700 TFLOP/s"),))
    causes = causes_of(of, "failed")
    assert [one.text.rpartition("; ")[2] for one in causes] == ["slow takes 900.0us"]
    assert advice.cure_words(of, of.verdicts, causes) == "make slow faster"


def test_counts_beside_it_are_judged_as_before() -> None:
    of = profile(NOTHING_KNOWN)
    of = replace(of, metrics={**of.metrics, "syncs": counted("syncs", 2)})
    limits = [parse_limit("min_throughput", ("80%",), {}), parse_limit("max_syncs", (1,), {})]
    assert [one.outcome for one in evaluate(of, limits)] == ["not judged", "failed"]
