"""The rule for times: one pair of processes clears a test, four of balanced order convict it."""

from __future__ import annotations

import math

import pytest

from pytest_kernelprof.stats import pairs
from pytest_kernelprof.stats.pairs import Decision, Pair, Side, Turn, decide


def turn(candidate: float, reference: float) -> Turn:
    """Whose first rounds are far off."""
    return Turn((9e9, *[candidate] * 12), (1.0, *[reference] * 12))


def four(*slower: float) -> list[Pair]:
    """By fractions, candidate first, reference first, and so on."""
    firsts: list[Side] = ["candidate", "reference", "candidate", "reference"]
    return [Pair(f, math.log1p(s)) for f, s in zip(firsts, slower, strict=True)]


def test_a_turn_is_the_ratio_of_medians_without_the_first_rounds() -> None:
    assert pairs.log_ratio_of(turn(110.0, 100.0)) == pytest.approx(math.log(1.1))
    for bad in (Turn((1.0,), (1.0,)), Turn((1.0, 0.0), (1.0, 1.0)), Turn((), ())):
        with pytest.raises(ValueError, match="at least 2 rounds of each side"):
            pairs.log_ratio_of(bad)


def test_turns_that_scatter_are_doubled() -> None:
    steady = [turn(100.0, 100.0)] * 6
    wild = [turn(100.0 + 4 * (i % 2), 100.0) for i in range(6)]
    assert pairs.more_turns([]) == 6
    assert pairs.more_turns(steady[:4]) == 2
    assert pairs.more_turns(steady) == 0
    assert pairs.more_turns(wild) == 6
    assert pairs.more_turns([*wild, *wild]) == 0


def test_a_pair_is_the_median_of_its_turns() -> None:
    found = pairs.pair_of("reference", [turn(n, 100.0) for n in (101.0, 102.0, 190.0)])
    assert (found.first, found.log_ratio) == ("reference", pytest.approx(math.log(1.02)))


@pytest.mark.parametrize(
    ("slower", "outcome"),
    [(0.0, "held"), (0.024, "held"), (0.026, "more"), (-0.04, "held"), (-0.06, "more")],
)
def test_one_pair_clears_a_test_or_asks_for_more(slower: float, outcome: str) -> None:
    assert decide(four(slower, 0, 0, 0)[:1], 0.05).outcome == outcome


@pytest.mark.parametrize(
    ("slower", "outcome"),
    [
        ((0.08, 0.08, 0.08, 0.08), "worse"),
        ((0.065, 0.08, 0.065, 0.08), "worse"),
        # Whoever is first is faster: beyond the margin by one order alone.
        ((0.0, 0.12, 0.0, 0.12), "undecided"),
        ((0.04, 0.04, 0.04, 0.04), "undecided"),
        ((0.04, 0.0, 0.03, 0.0), "held"),
        ((-0.08, -0.08, -0.08, -0.08), "better"),
        ((-0.12, 0.0, -0.12, 0.0), "held"),
    ],
)
def test_four_pairs_decide(slower: tuple[float, ...], outcome: str) -> None:
    assert decide(four(*slower), 0.05).outcome == outcome


def test_what_is_told_beside_it() -> None:
    found = decide(four(0.08, 0.09, 0.07, 0.04), 0.05)
    assert (found.outcome, found.pairs, found.agreeing) == ("worse", 4, 3)
    assert found.ratio == pytest.approx(1.07, abs=1e-3)


def test_pairs_of_one_order_convict_nobody() -> None:
    same = [Pair("candidate", 0.08)] * 4
    assert decide(same, 0.05).outcome == "more"
    with pytest.raises(ValueError, match="no pair"):
        decide([], 0.05)


def test_another_configuration_is_worse_only_if_all_pairs_say_so() -> None:
    assert pairs.unless_reconfigured(decide(four(0.08, 0.09, 0.07, 0.04), 0.05)).outcome == (
        "undecided"
    )
    all_four = decide(four(0.08, 0.09, 0.07, 0.06), 0.05)
    assert pairs.unless_reconfigured(all_four) == all_four
    held = Decision("held", 1.0, 1)
    assert pairs.unless_reconfigured(held) is held


def test_margins() -> None:
    assert pairs.margin_for(13.0) == 0.05
    assert pairs.margin_for(2.0, 0.02) == 0.02
    assert pairs.margin_for(1.0) == 0.2
    assert pairs.margin_for(1.9, 0.15) == 0.15
    for bad in (0.01, float("nan")):
        with pytest.raises(ValueError, match="is below 2%: processes"):
            pairs.margin_for(13.0, bad)


def test_processes_of_the_same_code_that_differ_by_a_tick_of_a_tiny_kernel_are_the_same() -> None:
    # As an H200 had them, of 0.992 us: the pair of the whole run, and the three it asked for.
    firsts: list[Side] = ["reference", "candidate", "reference", "candidate"]
    ratios = [1.1854, 1.0286, 1.0283, 1.0]
    found = [Pair(f, math.log(ratio)) for f, ratio in zip(firsts, ratios, strict=True)]
    assert decide(found, pairs.margin_for(0.992)).outcome == "held"
    faster = [Pair(pair.first, -pair.log_ratio) for pair in found]
    assert decide(faster, pairs.margin_for(1.120)).outcome == "held"


def test_the_noise_of_pairs_is_the_order_and_what_is_beyond_it() -> None:
    quiet = pairs.noise_of([("candidate", 0.99), ("reference", 1.0 / 0.99)] * 4)
    assert quiet.order == pytest.approx(0.01, rel=0.01)
    assert quiet.spread == pytest.approx(0.0, abs=1e-9)
    assert (quiet.margin, quiet.largest) == (pairs.SMALLEST_MARGIN, pytest.approx(0.01, rel=0.01))
    loud = pairs.noise_of(
        [("candidate", 0.97), ("candidate", 1.03), ("reference", 1.03)] * 2
        + [("reference", 0.97)] * 2
    )
    assert loud.spread == pytest.approx(0.034, abs=0.002)
    assert loud.margin == pytest.approx(0.085, abs=0.01)


def test_the_noise_of_pairs_needs_both_orders() -> None:
    with pytest.raises(ValueError, match="2 of each order"):
        pairs.noise_of([("candidate", 1.0)] * 8 + [("reference", 1.0)])
