"""One pair of processes clears a call, four of balanced order convict it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_kernelprof.against import timing as module
from pytest_kernelprof.against.timing import (
    Timed,
    TimedCall,
    first_difference,
    time_call,
    unless_reconfigured,
)
from pytest_kernelprof.against.turns import NoRounds, Taken
from pytest_kernelprof.schema.run import Conditions, Neighbour
from pytest_kernelprof.schema.turns import At, Sampled, TimedPair, Timing
from pytest_kernelprof.stats.pairs import Turn

WORK = ("argument 1: float32 8x8, strides (8, 1), cuda:0",)
CALL = TimedCall("t.py::a", "", WORK, 0.05)
QUIET = Conditions()
BUSY = Conditions(contenders=(Neighbour(7, 50),))


def taken(slower: float, us: float = 100.0, conditions: Conditions = QUIET) -> Taken:
    turns = (Turn((us * (1 + slower),) * 13, (us,) * 13),) * 6
    return Taken(turns, (Sampled((), (us * (1 + slower),)),), (Sampled((), (us,)),), conditions)


class Pairs:
    """Further pairs, as slower as they are told; which sides were asked to be first."""

    def __init__(self, *slower: float, why: str = "", work: tuple[str, ...] = WORK) -> None:
        self.slower, self.why, self.work = slower, why, work
        self.firsts: Sequence[str] = ()
        self.actual: Sequence[str | None] = ()

    @contextlib.contextmanager
    def at(self, firsts: Sequence[str], test: str, label: str) -> Iterator[list[Any]]:
        self.firsts = firsts
        if self.why:
            raise NoRounds(self.why)
        member = SimpleNamespace(at=At(label, self.work))
        yield [
            SimpleNamespace(
                candidate=taken(one), reference=None, first=first, members=(member, member)
            )
            for one, first in zip(self.slower, self.actual or firsts, strict=True)
        ]


@pytest.fixture(autouse=True)
def _turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A side is its turns, or why there are none."""

    def take_turns(candidate: Any, reference: object, alone: object) -> Taken:
        if isinstance(candidate, str):
            raise NoRounds(candidate)
        assert isinstance(candidate, Taken)
        return candidate

    monkeypatch.setattr(module, "take_turns", take_turns)


def found(
    candidate: Taken | str,
    further: Pairs | None = None,
    first: str | None = "reference",
    work: tuple[str, ...] = WORK,
) -> Timed:
    reference = SimpleNamespace(at=At("", work), first=first)
    side: Any = candidate
    pairs: Any = further or Pairs(why="none were asked for")
    return time_call(CALL, side, reference, pairs, None)  # type: ignore[arg-type]


def test_one_pair_clears_a_call() -> None:
    timed = found(taken(0.02))
    assert (timed.timing.outcome, len(timed.timing.pairs)) == ("held", 1)
    assert (timed.old_kernels_us, timed.new_kernels_us) == ((100.0,), (102.0,))


@pytest.mark.parametrize(
    ("first", "firsts"),
    [
        ("reference", ["candidate", "reference", "candidate"]),
        ("candidate", ["reference", "candidate", "reference"]),
        (None, ["candidate", "reference", "candidate", "reference"]),
    ],
)
def test_four_convict_it_in_two_of_which_each_side_was_first(
    first: str | None, firsts: list[str]
) -> None:
    more = Pairs(*[0.08] * len(firsts))
    timing = found(taken(0.08), more, first).timing
    assert more.firsts == firsts
    assert (timing.outcome, timing.agreeing, len(timing.pairs)) == ("worse", 4, 4)
    assert timing.ratio == pytest.approx(1.08)
    assert (timing.old_us, timing.new_us) == (100.0, 108.0)
    assert [pair.first for pair in timing.pairs].count("reference") == 2


def test_what_more_pairs_do_not_confirm_is_held_or_undecided() -> None:
    assert found(taken(0.06), Pairs(0.0, 0.0, 0.0)).timing.outcome == "held"
    assert found(taken(0.08), Pairs(0.03, 0.03, 0.03)).timing.outcome == "undecided"


def test_faster_by_four_pairs_is_better() -> None:
    assert found(taken(-0.2), Pairs(-0.2, -0.2, -0.2)).timing.outcome == "better"


def test_without_room_for_more_pairs_it_is_undecided_and_said() -> None:
    timing = found(taken(0.08), Pairs(why="CUDA out of memory")).timing
    assert timing.outcome == "undecided"
    assert timing.why == "there are no more pairs: CUDA out of memory"
    assert timing.ratio == pytest.approx(1.08)


def test_pairs_whose_order_is_not_known_convict_nobody() -> None:
    more = Pairs(0.08, 0.08, 0.08)
    more.actual = ["candidate", None, "candidate"]
    timing = found(taken(0.08), more).timing
    assert (timing.outcome, timing.why) == ("undecided", "who of a pair came first is not known")


def test_fresh_processes_that_do_other_work_convict_nobody() -> None:
    timing = found(taken(0.08), Pairs(0.08, 0.08, 0.08, work=())).timing
    assert timing.outcome == "undecided"
    assert "a fresh process does other work: argument 1 is here alone" in timing.why


def test_a_disturbed_gpu_leaves_it_undecided() -> None:
    timing = found(taken(0.0, conditions=BUSY)).timing
    assert (timing.outcome, timing.disturbed) == ("undecided", BUSY)


def test_without_rounds_it_is_not_timed() -> None:
    timing = found("there: the code was cold").timing
    assert (timing.outcome, timing.why) == ("not timed", "there: the code was cold")


def test_the_margin_of_tiny_kernels_is_a_time() -> None:
    tiny = found(taken(0.06, us=1.6)).timing
    assert (tiny.margin, tiny.outcome) == (pytest.approx(0.125, rel=0.01), "held")


def test_other_work_is_not_timed() -> None:
    other = ("argument 1: float32 8x9, strides (9, 1), cuda:0",)
    timed = found(taken(0.08), work=other)
    assert timed.timing.outcome == "not timed"
    assert timed.another_work == (
        "argument 1 is float32 8x8, strides (8, 1), cuda:0 here, float32 8x9, strides (9, 1), "
        "cuda:0 there"
    )
    assert first_difference((), WORK) == "argument 1 is there alone"
    assert first_difference(WORK, WORK) == ""


def test_in_another_configuration_it_is_slower_only_where_all_pairs_are() -> None:
    pair = TimedPair("candidate", 1.08, 6, 100.0, 108.0)
    worse = Timing("worse", ratio=1.08, pairs=(pair,) * 4, agreeing=3)
    assert unless_reconfigured(worse).outcome == "undecided"
    assert unless_reconfigured(worse).why == "another configuration was chosen"
    all_agree = Timing("worse", ratio=1.08, pairs=(pair,) * 4, agreeing=4)
    assert unless_reconfigured(all_agree) == all_agree
    held = Timing("held", pairs=(pair,))
    assert unless_reconfigured(held) == held
