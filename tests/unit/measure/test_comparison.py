"""A comparison's rounds, of series that are written out; the turns are a stand-in."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pytest_kernelprof.errors import MarkerError
from pytest_kernelprof.measure.clocks import Clock
from pytest_kernelprof.measure.comparison import Comparison, Rounds
from pytest_kernelprof.measure.turns import Turns


def rounds_of(candidate: Callable[[int], float], taken: int, clock: Clock = "cuda_time") -> Rounds:
    """So many rounds of a candidate by their number, and of a reference that always takes 10 us."""
    turn = itertools.count()

    def take(turns: int) -> dict[str, list[float]]:
        return {
            "candidate": [candidate(next(turn)) for _ in range(turns)],
            "reference": [10.0] * turns,
        }

    profile = SimpleNamespace(
        kernel_count=1, metrics={"kernels": SimpleNamespace(rounds=(1.0, 1.0))}
    )
    profiles: Any = {"candidate": profile, "reference": profile}
    turns = cast(Turns, SimpleNamespace(take=take, kernels={}, doubts=set()))
    rounds = Rounds(turns, clock, profiles)
    rounds.take(taken)
    return rounds


def scattered(i: int) -> float:
    return 5.0 + i * 5 % 12 / 10


def slow_for_a_while(i: int) -> float:
    return 20.0 if i // 6 % 2 else 5.0


@pytest.mark.parametrize(
    ("candidate", "begun", "taken"),
    [(scattered, 12, 12), (slow_for_a_while, 12, 48), (slow_for_a_while, 13, 52)],
    ids=["scattered", "alike", "alike, from thirteen"],
)
def test_pairs_are_added_until_there_is_an_interval(
    candidate: Callable[[int], float], begun: int, taken: int
) -> None:
    rounds = rounds_of(candidate, begun)
    rounds.take_until_sure("reference")
    assert rounds.taken == taken
    assert Comparison(rounds, "candidate", "reference", print).interval is not None


def test_who_begins_with_few_pairs_gets_no_more() -> None:
    rounds = rounds_of(slow_for_a_while, 7)
    rounds.take_until_sure("reference")
    assert rounds.taken == 7
    assert Comparison(rounds, "candidate", "reference", print).interval is None


def test_a_speedup_whose_interval_holds_the_asked_one_is_not_reached() -> None:
    """Its median lies above: that is no proof."""
    rounds, undecided = rounds_of(scattered, 96), list[str]()
    found = Comparison(rounds, "candidate", "reference", undecided.append)
    low, high = found.interval or (0.0, 0.0)
    asked = (low + found.speedup) / 2
    assert low < asked < found.speedup < high
    found.min_speedup(asked)
    assert "INCONCLUSIVE" in undecided[0]


@pytest.mark.parametrize("asked", [1.1, 3.0], ids=["would pass", "would fail"])
def test_a_disturbed_gpu_decides_nothing(asked: float) -> None:
    rounds, undecided = rounds_of(scattered, 12), list[str]()
    rounds._turns.doubts.add("CONTENDED")
    Comparison(rounds, "candidate", "reference", undecided.append).min_speedup(asked)
    assert "CONTENDED" in undecided[0]


def test_a_call_that_allocates_nothing_is_taken_for_a_byte() -> None:
    rounds = rounds_of(lambda i: 0.0, 12, clock="peak_memory")
    assert Comparison(rounds, "candidate", "reference", print).speedup == pytest.approx(10.0)


def test_a_disturbed_gpu_is_asked_for_no_more_pairs() -> None:
    """More of them could not decide: the doubt stays."""
    rounds, undecided = rounds_of(scattered, 12), list[str]()
    rounds._turns.doubts.add("CONTENDED")
    Comparison(rounds, "candidate", "reference", undecided.append).min_speedup(1.8)
    assert rounds.taken == 12
    assert "CONTENDED" in undecided[0]


def test_what_takes_no_time_at_all_cannot_be_compared() -> None:
    rounds = rounds_of(lambda i: 0.0, 12)
    with pytest.raises(MarkerError, match="candidate cannot be compared with reference: a round"):
        rounds.take_until_sure("reference")
