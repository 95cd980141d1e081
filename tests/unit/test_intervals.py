"""The order-statistic interval of a median."""

from __future__ import annotations

import random

import pytest

from pytest_kernelprof.intervals import median_interval, rank


@pytest.mark.parametrize(
    ("n", "k"), [(7, 0), (8, 1), (10, 1), (12, 2), (15, 3), (20, 4), (30, 8), (50, 16), (100, 37)]
)
def test_ranks_are_those_of_the_binomial_table(n: int, k: int) -> None:
    assert rank(n, 0.99) == k


def test_the_bounds_are_the_ranked_values_from_each_end() -> None:
    interval = median_interval([float(i) for i in range(12)])
    assert interval is not None
    assert (interval.low, interval.median, interval.high) == (1.0, 5.5, 10.0)


def test_fewer_than_eight_values_have_no_interval() -> None:
    assert median_interval([1.0] * 7) is None


def test_the_interval_covers_the_true_median_at_least_as_often_as_it_says() -> None:
    numbers = random.Random(0)
    covered = 0
    for _ in range(2000):
        interval = median_interval([numbers.gauss(0, 1) for _ in range(12)])
        covered += interval is not None and interval.low <= 0 <= interval.high
    assert covered >= 2000 * 0.985
