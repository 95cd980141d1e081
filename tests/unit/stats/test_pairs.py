"""The rule for times: one pair of processes clears a test, four of balanced order convict it; and
the ratio of two series of rounds that were taken in turn."""

from __future__ import annotations

import math
import random

import pytest

from pytest_kernelprof.records.comparison import Paired, Side, TimedPair
from pytest_kernelprof.stats import intervals
from pytest_kernelprof.stats.intervals import Turn, decide, order_of_turns, paired_rounds


def turn(candidate: float, reference: float) -> Turn:
    """Whose first rounds are far off."""
    return Turn((9e9, *[candidate] * 12), (1.0, *[reference] * 12))


def pair(first: Side, ratio: float) -> TimedPair:
    return TimedPair(first, ratio, 6, 100.0, 100.0 * ratio)


def four(*slower: float) -> list[TimedPair]:
    """By fractions, candidate first, reference first, and so on."""
    firsts: list[Side] = ["current", "baseline", "current", "baseline"]
    return [pair(f, 1 + s) for f, s in zip(firsts, slower, strict=True)]


def test_a_turn_is_the_ratio_of_medians_without_the_first_rounds() -> None:
    assert intervals.log_ratio_of(turn(110.0, 100.0)) == pytest.approx(math.log(1.1))


def test_turns_that_scatter_are_doubled() -> None:
    steady = [turn(100.0, 100.0)] * 6
    wild = [turn(100.0 + 4 * (i % 2), 100.0) for i in range(6)]
    assert intervals.more_turns([]) == 6
    assert intervals.more_turns(steady[:4]) == 2
    assert intervals.more_turns(steady) == 0
    assert intervals.more_turns(wild) == 6
    assert intervals.more_turns([*wild, *wild]) == 0


def test_a_pair_is_the_median_of_its_turns() -> None:
    found = intervals.pair_of("baseline", [turn(n, 100.0) for n in (101.0, 102.0, 190.0)])
    assert (found.first, found.ratio) == ("baseline", pytest.approx(1.02))
    assert (found.turns, found.baseline_us, found.current_us) == (3, 100.0, 102.0)


@pytest.mark.parametrize(
    ("slower", "change"),
    [(0.0, "same"), (0.024, "same"), (0.026, None), (-0.04, "same"), (-0.06, None)],
)
def test_one_pair_clears_a_test_or_asks_for_more(slower: float, change: str | None) -> None:
    assert decide(four(slower, 0, 0, 0)[:1], 0.05).change == change


@pytest.mark.parametrize(
    ("slower", "change"),
    [
        ((0.08, 0.08, 0.08, 0.08), "worse"),
        ((0.065, 0.08, 0.065, 0.08), "worse"),
        # Whoever is first is faster: beyond the margin by one order alone.
        ((0.0, 0.12, 0.0, 0.12), "undecided"),
        ((0.04, 0.04, 0.04, 0.04), "undecided"),
        ((0.04, 0.0, 0.03, 0.0), "same"),
        ((-0.08, -0.08, -0.08, -0.08), "better"),
        ((-0.12, 0.0, -0.12, 0.0), "same"),
    ],
)
def test_four_pairs_decide(slower: tuple[float, ...], change: str) -> None:
    assert decide(four(*slower), 0.05).change == change


def test_what_is_told_beside_it() -> None:
    found = decide(four(0.08, 0.09, 0.07, 0.04), 0.05)
    assert (found.change, len(found.pairs), found.agreeing) == ("worse", 4, 3)
    assert found.ratio == pytest.approx(1.07, abs=1e-3)


def test_pairs_of_one_order_convict_nobody() -> None:
    same = [pair("current", 1.08)] * 4
    assert decide(same, 0.05).change is None


def test_another_configuration_is_worse_only_if_all_pairs_say_so() -> None:
    found = intervals.unless_reconfigured(decide(four(0.08, 0.09, 0.07, 0.04), 0.05))
    assert (found.change, found.why) == ("undecided", "another configuration was chosen")
    all_four = decide(four(0.08, 0.09, 0.07, 0.06), 0.05)
    assert intervals.unless_reconfigured(all_four) == all_four
    same = Paired("same")
    assert intervals.unless_reconfigured(same) is same


def test_margins() -> None:
    assert intervals.margin_for(13.0) == 0.05
    assert intervals.margin_for(2.0, 0.02) == 0.02
    assert intervals.margin_for(1.0) == 0.2
    assert intervals.margin_for(1.9, 0.15) == 0.15


def test_processes_of_the_same_code_that_differ_by_a_tick_of_a_tiny_kernel_are_the_same() -> None:
    # As an H200 had them, of 0.992 us: the pair of the whole run, and the three it asked for.
    firsts: list[Side] = ["baseline", "current", "baseline", "current"]
    ratios = [1.1854, 1.0286, 1.0283, 1.0]
    found = [pair(f, ratio) for f, ratio in zip(firsts, ratios, strict=True)]
    assert decide(found, intervals.margin_for(0.992)).change == "same"
    faster = [pair(f, 1 / ratio) for f, ratio in zip(firsts, ratios, strict=True)]
    assert decide(faster, intervals.margin_for(1.120)).change == "same"


# Rounds of one process in turn.


@pytest.mark.parametrize(
    ("names", "first", "turns", "order"),
    [
        ("ab", 0, 3, "abbaab"),
        ("ab", 3, 2, "baab"),
        ("ab", 4, 1, "ab"),
        ("abc", 0, 2, "abccba"),
        ("a", 1, 3, "aaa"),
        ("ab", 0, 0, ""),
    ],
)
def test_the_order_turns_round_each_time_also_from_one_look_to_the_next(
    names: str, first: int, turns: int, order: str
) -> None:
    assert "".join(order_of_turns(list(names), first, turns)) == order


def test_taken_bit_by_bit_the_order_is_that_of_one_go() -> None:
    names = ["a", "b", "c"]
    bits = [name for first in range(10) for name in order_of_turns(names, first, 1)]
    assert bits == order_of_turns(names, 0, 10)


def noisy(
    numbers: random.Random, n: int, noise: float, slower: float = 1.0, ramp: float = 0.0
) -> tuple[list[float], list[float]]:
    """A candidate and a reference of 100 us; the clock ramps by a share over the run."""
    clocks = [1 + ramp * i / n for i in range(n)]
    one = [100 * slower * clock * numbers.lognormvariate(0, noise) for clock in clocks]
    other = [100 * clock * numbers.lognormvariate(0, noise) for clock in clocks]
    return one, other


def test_twice_as_fast_is_two() -> None:
    found = paired_rounds([50.0] * 12, [100.0] * 12)
    assert found is not None
    assert (found.ratio, found.speedup) == pytest.approx((0.5, 2))
    assert found.speedup_interval == pytest.approx((2, 2))


def test_fewer_than_eight_pairs_have_a_median_and_no_interval() -> None:
    found = paired_rounds([50.0, 40.0, 25.0], [100.0, 100.0, 100.0])
    assert found is not None
    assert found.speedup == pytest.approx(2.5)
    assert found.speedup_interval is None


def test_a_round_that_took_nothing_has_no_ratio() -> None:
    assert paired_rounds([0.0] * 12, [1.0] * 12) is None


def test_series_of_different_lengths_are_no_pairs() -> None:
    with pytest.raises(ValueError, match="shorter"):
        paired_rounds([1.0] * 3, [1.0] * 2)


@pytest.mark.parametrize(
    ("current", "baseline"), [([0.0, 1.0], [1.0, 1.0]), ([1.0, 1.0], [1.0, 0.0]), ([], [])]
)
def test_a_round_of_nothing_has_no_ratio(current: list[float], baseline: list[float]) -> None:
    assert paired_rounds(current, baseline) is None


@pytest.mark.parametrize("ramp", [0.0, 0.03, 0.3])
def test_a_ramp_of_the_clock_is_in_both_and_cancels(ramp: float) -> None:
    """All of one, then all of the other, would make 3 % a change almost always."""
    numbers = random.Random(0)
    false = 0
    for _ in range(1000):
        found = paired_rounds(*noisy(numbers, 24, 0.01, ramp=ramp))
        assert found is not None
        low, high = found.speedup_interval or (0.0, 9.0)
        false += not low <= 1 <= high
    assert false <= 15


def test_five_percent_are_found_in_two_percent_of_noise() -> None:
    numbers = random.Random(0)
    found = [paired_rounds(*noisy(numbers, 48, 0.02, slower=1.05)) for _ in range(300)]
    assert sum(one is not None and one.low is not None and one.low > 1.02 for one in found) >= 297
