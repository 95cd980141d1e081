"""Metrics made of numbers: counts, times with their intervals, and what could not be had."""

from __future__ import annotations

import pytest
from records import MIXED

from pytest_kernelprof.analysis.metric_values import absent, extended, metric_of
from pytest_kernelprof.records.metrics import METRICS


def test_a_count_is_judged_by_its_largest_round_and_knows_that_it_is_unstable() -> None:
    metric = metric_of("kernels", [3, 5, 4])
    assert (metric.value, metric.stable) == (5, False)


def test_a_time_is_the_median_with_its_interval() -> None:
    metric = metric_of("cuda_time", [float(i) for i in MIXED])
    assert (metric.value, metric.low, metric.high) == (5.5, 1.0, 10.0)


def test_a_time_of_few_rounds_has_no_interval() -> None:
    metric = metric_of("cuda_time", [1.0, 2.0, 3.0])
    assert (metric.value, metric.low, metric.high) == (2.0, None, None)


def test_the_table_says_kind_and_unit() -> None:
    for name, spec in METRICS.items():
        metric = metric_of(name, [1.0, 2.0])
        assert (metric.name, metric.kind, metric.unit) == (name, spec.kind, spec.unit)
        assert metric.value == (2 if spec.kind == "exact" else 1.5)


def test_a_count_without_rounds_is_zero() -> None:
    assert metric_of("kernels", []).value == 0


def test_a_reason_stays_with_its_metric() -> None:
    assert metric_of("kernels", [1], "compute operators").why == "compute operators"
    assert metric_of("cuda_time", MIXED, "note").why == "note"
    assert metric_of("cuda_time", [1.0], "note").why == "note"


def test_rounds_of_further_sessions_join_the_first() -> None:
    count = extended(metric_of("kernels", [3, 3], "why"), [4.0])
    assert (count.rounds, count.value, count.why) == ((3, 3, 4), 4, "why")
    time = extended(metric_of("cuda_time", MIXED[:2]), [float(i) for i in MIXED[2:]])
    assert time == metric_of("cuda_time", MIXED)


def test_without_further_rounds_a_metric_stays_the_same() -> None:
    metric = metric_of("kernels", [3])
    assert extended(metric, ()) is metric


def test_what_could_not_be_had_stays_so() -> None:
    metric = absent("gpu_idle", "the clocks disagree")
    assert extended(metric, [1.0, 2.0]) is metric


@pytest.mark.parametrize("name", METRICS)
def test_what_could_not_be_had_has_no_value_and_says_why(name: str) -> None:
    metric, spec = absent(name, "since"), METRICS[name]
    assert (metric.kind, metric.unit, metric.why) == (spec.kind, spec.unit, "since")
    assert (metric.value, metric.low, metric.high, metric.rounds) == (None, None, None, ())


def test_all_profiles_share_what_could_not_be_had() -> None:
    assert absent("latency", "since") is absent("latency", "since")
    assert absent("latency", "since") != absent("latency", "for another reason")
