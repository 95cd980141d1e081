"""The order-statistic interval of a median."""

from __future__ import annotations

import random

import pytest

from pytest_kernelprof.stats.intervals import autocorrelation, block_size, median_interval, rank

MIXED = [6.0, 1.0, 11.0, 4.0, 9.0, 2.0, 7.0, 0.0, 10.0, 3.0, 8.0, 5.0]


@pytest.mark.parametrize(
    ("n", "k"), [(7, 0), (8, 1), (10, 1), (12, 2), (15, 3), (20, 4), (30, 8), (50, 16), (100, 37)]
)
def test_ranks_are_those_of_the_binomial_table(n: int, k: int) -> None:
    assert rank(n, 0.99) == k


def test_the_bounds_are_the_ranked_values_from_each_end() -> None:
    interval = median_interval(MIXED)
    assert interval is not None
    assert (interval.low, interval.median, interval.high) == (1.0, 5.5, 10.0)


def test_fewer_than_eight_values_have_no_interval() -> None:
    assert median_interval([1.0] * 7) is None


def following(numbers: random.Random, n: int, r: float) -> list[float]:
    """n normal numbers, each ``r`` times the one before and the rest new (median 0)."""
    values, last = [], numbers.gauss(0, 1)
    for _ in range(n):
        last = r * last + (1 - r * r) ** 0.5 * numbers.gauss(0, 1)
        values.append(last)
    return values


def misses(n: int, r: float, tries: int = 1000) -> float:
    """Share of the tries in which there is an interval and it does not hold the true median."""
    numbers = random.Random(0)
    found = [median_interval(following(numbers, n, r)) for _ in range(tries)]
    return sum(one is not None and not one.low <= 0 <= one.high for one in found) / tries


@pytest.mark.parametrize("n", [12, 24, 48, 96])
def test_the_interval_covers_the_true_median_as_often_as_it_says(n: int) -> None:
    assert misses(n, 0.0) <= 0.015


@pytest.mark.parametrize(("n", "plain"), [(48, 0.27), (96, 0.27)])
def test_alike_neighbours_do_not_make_it_too_sure(n: int, plain: float) -> None:
    """At an autocorrelation of 0.8 the plain interval misses in 27 of 100 cases."""
    assert misses(n, 0.8) <= plain / 5


@pytest.mark.parametrize("r", [0.8, 0.9])
def test_however_alike_neighbours_are_96_values_miss_seldom(r: float) -> None:
    assert misses(96, r) <= 0.04


def test_a_short_ramp_has_no_interval_and_a_long_one_its_whole_range() -> None:
    assert median_interval([float(i) for i in range(24)]) is None
    interval = median_interval([float(i) for i in range(96)])
    assert interval is not None
    assert (interval.low, interval.high) == (0.0, 95.0)


def test_autocorrelation_is_that_of_the_process() -> None:
    numbers = random.Random(1)
    assert autocorrelation(following(numbers, 2000, 0.6)) == pytest.approx(0.6, abs=0.06)
    assert autocorrelation([3.0] * 20) == 0.0


def test_blocks_are_as_long_as_neighbours_are_alike() -> None:
    numbers = random.Random(2)
    assert block_size(MIXED) == 1
    assert 3 <= block_size(following(numbers, 2000, 0.6)) <= 5
    assert block_size([float(i) for i in range(11)]) == 1, "too few to tell"


def test_from_48_values_on_the_range_bounds_the_median_however_alike_they_are() -> None:
    drifting = [float(i) for i in range(48)]
    found = median_interval(drifting)
    assert found is not None
    assert (found.low, found.high) == (0.0, 47.0)
    assert median_interval(drifting[:47]) is None
