"""One pair of processes clears a call, four of balanced order convict it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from pytest_kernelprof.baselines import timing as module
from pytest_kernelprof.baselines.protocol import At, RunTest
from pytest_kernelprof.baselines.timing import (
    Taken,
    Timed,
    first_difference,
    time_call,
)
from pytest_kernelprof.baselines.worker import WorkerError
from pytest_kernelprof.records.comparison import Paired, Sampled, TimedPair
from pytest_kernelprof.records.recording import Conditions, Neighbour

WORK = ("argument 1: float32 8x8, strides (8, 1), cuda:0",)
CALL = RunTest("t.py::a", holds=True, call="")
QUIET = Conditions()
BUSY = Conditions(contenders=(Neighbour(7, 50),))


def taken(slower: float, us: float = 100.0, conditions: Conditions = QUIET) -> Taken:
    pair = TimedPair(None, 1 + slower, 6, us, us * (1 + slower))
    sampled = {"current": Sampled((), (us * (1 + slower),)), "baseline": Sampled((), (us,))}
    return Taken(pair, sampled, conditions)  # type: ignore[arg-type]


class Pairs:
    """Fresh pairs, as slower as they are told; which sides were asked to be first."""

    def __init__(self, *slower: float, why: str = "", work: tuple[str, ...] = WORK) -> None:
        self.slower, self.why, self.work = slower, why, work
        self.firsts: Sequence[str] = ()
        self.actual: Sequence[str | None] = ()

    @contextlib.contextmanager
    def at(self, firsts: Sequence[str], call: RunTest) -> Iterator[list[Any]]:
        self.firsts = firsts
        if self.why:
            raise WorkerError(self.why)
        at = At(str(call.call), self.work)
        yield [
            SimpleNamespace(
                order=SimpleNamespace(first=first),
                workers={
                    "current": SimpleNamespace(at=at, ask=taken(one)),
                    "baseline": SimpleNamespace(at=at, ask=None),
                },
            )
            for one, first in zip(self.slower, self.actual or firsts, strict=True)
        ]


@pytest.fixture(autouse=True)
def _turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A side is its turns, or why there are none."""

    def take_turns(sides: dict[str, Any], alone: object, first: Any) -> Taken:
        candidate = sides["current"]
        if isinstance(candidate, str):
            raise WorkerError(candidate)
        assert isinstance(candidate, Taken)
        return candidate._replace(pair=replace(candidate.pair, first=first))

    monkeypatch.setattr(module, "take_turns", take_turns)


def found(
    candidate: Taken | str,
    further: Pairs | None = None,
    first: str | None = "baseline",
    work: tuple[str, ...] = WORK,
    judged: Paired | None = None,
) -> Timed:
    reference: Any = SimpleNamespace(at=At("", work), order=SimpleNamespace(first=first), ask=None)
    side: Any = candidate
    pairs: Any = further or Pairs(why="none were asked for")
    return time_call(CALL, WORK, 0.05, side, reference, pairs, None, judged)  # type: ignore[arg-type]


def test_one_pair_clears_a_call() -> None:
    timed = found(taken(0.02))
    assert (timed.paired.change, len(timed.paired.pairs)) == ("same", 1)
    assert timed.kernels_us == {"current": (102.0,), "baseline": (100.0,)}


@pytest.mark.parametrize(
    ("first", "firsts"),
    [
        ("baseline", ["current", "baseline", "current"]),
        ("current", ["baseline", "current", "baseline"]),
        (None, ["current", "baseline", "current", "baseline"]),
    ],
)
def test_four_convict_it_in_two_of_which_each_side_was_first(
    first: str | None, firsts: list[str]
) -> None:
    more = Pairs(*[0.08] * len(firsts))
    paired = found(taken(0.08), more, first).paired
    assert more.firsts == firsts
    assert (paired.change, paired.agreeing, len(paired.pairs)) == ("worse", 4, 4)
    assert paired.ratio == pytest.approx(1.08)
    assert (paired.baseline_us, paired.current_us) == (100.0, 108.0)
    assert [pair.first for pair in paired.pairs].count("baseline") == 2


def test_what_more_pairs_do_not_confirm_is_the_same_or_undecided() -> None:
    assert found(taken(0.06), Pairs(0.0, 0.0, 0.0)).paired.change == "same"
    assert found(taken(0.08), Pairs(0.03, 0.03, 0.03)).paired.change == "undecided"


def test_faster_by_four_pairs_is_better() -> None:
    assert found(taken(-0.2), Pairs(-0.2, -0.2, -0.2)).paired.change == "better"


def test_without_room_for_more_pairs_it_is_undecided_and_said() -> None:
    paired = found(taken(0.08), Pairs(why="CUDA out of memory")).paired
    assert paired.change == "undecided"
    assert paired.why == "no more pairs could be measured: CUDA out of memory"
    assert paired.ratio == pytest.approx(1.08)


def test_a_test_that_is_judged_already_takes_no_more_pairs() -> None:
    judged = Paired("not compared", "more kernels")
    paired = found(taken(0.08), Pairs(why="asked"), judged=judged).paired
    assert (paired.change, paired.why, len(paired.pairs)) == ("not compared", "more kernels", 1)
    assert found(taken(0.02), judged=judged).paired.change == "same"


def test_pairs_whose_order_is_not_known_convict_nobody() -> None:
    more = Pairs(0.08, 0.08, 0.08)
    more.actual = ["current", None, "current"]
    paired = found(taken(0.08), more).paired
    assert (paired.change, paired.why) == (
        "undecided",
        "it is unknown which process of a pair started first",
    )


def test_fresh_processes_that_do_other_work_convict_nobody() -> None:
    paired = found(taken(0.08), Pairs(0.08, 0.08, 0.08, work=())).paired
    assert paired.change == "undecided"
    assert "a fresh process does different work: argument 1 is not in the base" in paired.why


def test_a_disturbed_gpu_leaves_it_undecided() -> None:
    paired = found(taken(0.0, conditions=BUSY)).paired
    assert (paired.change, paired.disturbed) == ("undecided", BUSY)


def test_without_rounds_it_is_not_timed() -> None:
    paired = found("there: the code was cold").paired
    assert (paired.change, paired.why) == ("not compared", "there: the code was cold")


def test_the_margin_of_tiny_kernels_is_a_time() -> None:
    tiny = found(taken(0.06, us=1.6)).paired
    assert tiny.margin == pytest.approx(0.125, rel=0.01)
    assert tiny.change == "same"


def test_other_work_is_not_timed() -> None:
    other = ("argument 1: float32 8x9, strides (9, 1), cuda:0",)
    timed = found(taken(0.08), work=other)
    assert timed.paired.change == "not compared"
    assert timed.another_work == (
        "argument 1 is float32 8x8, strides (8, 1), cuda:0, in the baseline float32 8x9, strides "
        "(9, 1), cuda:0"
    )
    assert first_difference((), WORK) == "argument 1 is only in the baseline"
    assert first_difference(WORK, WORK) == ""
