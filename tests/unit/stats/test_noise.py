"""The arithmetic of noise, against values worked out otherwise."""

from __future__ import annotations

import math
import random
import statistics

import numpy as np
import pytest

from pytest_kernelprof.stats.intervals import Margin, margins, spreads, tolerance_factor, variation


def covered(factor: float, n: int, simulated: int = 20_000) -> float:
    """How often mean + factor * deviation of n normal values covers 99 % of all values."""
    values = np.random.default_rng(0).normal(size=(simulated, n))
    limit = statistics.NormalDist().inv_cdf(0.99)
    reached = values.mean(axis=1) + factor * values.std(axis=1, ddof=1)
    return float((reached >= limit).mean())


@pytest.mark.parametrize("n", [2, 3, 5, 10, 20])
def test_tolerance_factors_cover_what_they_promise(n: int) -> None:
    assert covered(tolerance_factor(n), n) == pytest.approx(0.95, abs=0.008)


def test_between_table_entries_the_factor_of_the_smaller_sample_holds() -> None:
    assert tolerance_factor(17) == tolerance_factor(15)
    assert tolerance_factor(1000) == tolerance_factor(20)


def test_variation() -> None:
    assert variation([9, 10, 11]) == pytest.approx(0.1)
    assert variation([5]) == 0
    assert variation([0, 0]) == 0


RUNS = [{"add": {"cuda_time": [m - 1, m, m + 1] * 4}} for m in (99.0, 100.0, 101.0)]


def test_the_margin_is_the_factor_times_the_deviation_and_half_an_interval() -> None:
    (spread,) = spreads(RUNS)
    assert (spread.workload, spread.metric, spread.median_us) == ("add", "cuda_time", 100.0)
    assert spread.between == pytest.approx(0.02)
    assert spread.margin_us == pytest.approx(10.553 * 1.0 + 1.0)
    assert spread.margin == pytest.approx(0.11553)


def test_the_widest_interval_of_all_processes_counts() -> None:
    steady, uneven = [100.0] * 12, [90.0, 110.0] * 6
    (spread,) = spreads([{"add": {"cuda_time": steady}}, {"add": {"cuda_time": uneven}}])
    assert spread.margin_us == pytest.approx(10.0)


def test_a_limit_with_the_margin_raises_no_false_alarm() -> None:
    """Machines whose processes differ by 3 %: a later median lies above in few of them."""
    source = random.Random(2)
    alarms = 0
    for _ in range(500):
        runs = [{"w": {"latency": [100 * (1 + 0.03 * source.gauss(0, 1))] * 12}} for _ in range(5)]
        (spread,) = spreads(runs)
        assert spread.margin is not None
        alarms += 100 * (1 + 0.03 * source.gauss(0, 1)) > spread.median_us * (1 + spread.margin)
    assert alarms <= 5


def test_one_process_has_no_margin() -> None:
    (spread,) = spreads(RUNS[:1])
    assert (spread.between, spread.margin_us, spread.margin) == (None, None, None)
    assert margins([spread]) == []


def test_what_not_all_processes_measured_is_left_out() -> None:
    assert spreads([RUNS[0], {"add": {"cuda_time": []}}]) == []
    assert spreads([RUNS[0], {}]) == []


def test_the_largest_margin_of_all_workloads_counts() -> None:
    small = [{"tiny": {"cuda_time": [m] * 12}} for m in (1.0, 1.1, 1.2)]
    found = spreads([a | b for a, b in zip(RUNS, small, strict=True)])
    (margin,) = margins(found)
    assert margin.fraction == pytest.approx(10.553 * 0.1 / 1.1)
    assert margin.text == "max_cuda_time: median + 96 %"


def test_a_margin_on_the_overhead_is_in_microseconds() -> None:
    runs = [{"w": {"launch_overhead": [m] * 12}} for m in (0.0, 0.0, 1.0)]
    (margin,) = margins(spreads(runs))
    assert margin.fraction is None
    assert margin.text == "max_launch_overhead: median + 7us"


def test_margins_are_rounded_up() -> None:
    assert Margin("latency", 0.0301, None).text == "max_latency: median + 4 %"
    assert Margin("latency", 0.0, None).text == "max_latency: median + 1 %"


def test_no_spread_is_not_a_number() -> None:
    runs = [{"w": {"latency": [0.0] * 12}} for _ in range(3)]
    (spread,) = spreads(runs)
    assert math.isfinite(spread.within)
    assert spread.margin is None
