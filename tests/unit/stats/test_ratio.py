"""The ratio of two series that were taken in turn."""

from __future__ import annotations

import random

import pytest

from pytest_kernelprof.stats.ratio import ratio


def noisy(
    numbers: random.Random, n: int, noise: float, slower: float = 1.0, ramp: float = 0.0
) -> tuple[list[float], list[float]]:
    """A candidate and a reference of 100 us; the clock ramps by a share over the run."""
    clocks = [1 + ramp * i / n for i in range(n)]
    one = [100 * slower * clock * numbers.lognormvariate(0, noise) for clock in clocks]
    other = [100 * clock * numbers.lognormvariate(0, noise) for clock in clocks]
    return one, other


def test_twice_as_fast_is_two() -> None:
    found = ratio([50.0] * 12, [100.0] * 12)
    assert found is not None
    assert (found.median, found.low, found.high, found.pairs) == pytest.approx((2, 2, 2, 12))


def test_fewer_than_eight_pairs_have_a_median_and_no_interval() -> None:
    found = ratio([50.0, 40.0, 25.0], [100.0, 100.0, 100.0])
    assert found is not None
    assert found.median == pytest.approx(2.5)
    assert found.low is None


def test_a_round_that_took_nothing_has_no_ratio() -> None:
    assert ratio([0.0] * 12, [1.0] * 12) is None


def test_series_of_different_lengths_are_no_pairs() -> None:
    with pytest.raises(ValueError, match="3 candidate rounds, 2 of the reference"):
        ratio([1.0] * 3, [1.0] * 2)


@pytest.mark.parametrize(
    ("candidate", "reference"), [([0.0, 1.0], [1.0, 1.0]), ([1.0, 1.0], [1.0, 0.0]), ([], [])]
)
def test_a_round_of_nothing_has_no_ratio(candidate: list[float], reference: list[float]) -> None:
    assert ratio(candidate, reference) is None


@pytest.mark.parametrize("ramp", [0.0, 0.03, 0.3])
def test_a_ramp_of_the_clock_is_in_both_and_cancels(ramp: float) -> None:
    """All of one, then all of the other, would make 3 % a change almost always."""
    numbers = random.Random(0)
    false = 0
    for _ in range(1000):
        found = ratio(*noisy(numbers, 24, 0.01, ramp=ramp))
        false += found is not None and found.low is not None and not found.low <= 1 <= found.high
    assert false <= 15


def test_five_percent_are_found_in_two_percent_of_noise() -> None:
    numbers = random.Random(0)
    found = [ratio(*noisy(numbers, 48, 0.02, slower=1.05)) for _ in range(300)]
    assert (
        sum(one is not None and one.high is not None and one.high < 1 / 1.02 for one in found)
        >= 297
    )
