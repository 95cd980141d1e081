"""Who runs next, from what was seen: as much as possible at the same time, in a known order."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_kernelprof.baselines.timing import (
    may_bring_up,
    missing_firsts,
    more_pairs,
    next_steps,
)
from pytest_kernelprof.baselines.worker import START_STEPS, ContextOrder, StartStep
from pytest_kernelprof.records.comparison import Side, TimedPair

FIRSTS: list[Side] = ["current", "baseline", "current"]
USUAL: dict[Side, StartStep] = {"current": "run", "baseline": "run"}


class Worker:
    """What is seen of a worker: which steps it has left, and whether CUDA is up in it."""

    def __init__(self, taken: int = 0) -> None:
        self.left = START_STEPS[taken:]
        self.cuda = taken > 0


def waves(
    brings_up: dict[Side, StartStep],
    firsts: list[Side] = FIRSTS,
    *,
    taken: int = 0,
    with_cuda: bool = True,
) -> list[str]:
    """What runs at the same time, wave after wave: pair, side and step, abbreviated.

    Args:
        taken: how many steps all workers took in an earlier test, which brought up CUDA.
    """
    sides: tuple[Side, ...] = ("current", "baseline")
    workers: Any = {(pair, side): Worker(taken) for pair in range(len(firsts)) for side in sides}
    found: list[str] = []
    while steps := next_steps(firsts, workers, brings_up):
        found.append(" ".join(f"{pair}{side[0]}:{step}" for (pair, side), step in steps.items()))
        for (pair, side), step in steps.items():
            worker = workers[pair, side]
            worker.left = worker.left[1:]
            worker.cuda |= with_cuda and may_bring_up(side, step, brings_up)
        assert len(found) < 10
    return found


def test_all_start_and_collect_at_the_same_time_and_the_first_run_before_the_second() -> None:
    assert waves(USUAL) == [
        "0c:start 0b:start 1c:start 1b:start 2c:start 2b:start",
        "0c:collect 0b:collect 1c:collect 1b:collect 2c:collect 2b:collect",
        "0c:run 1b:run 2c:run",
        "0b:run 1c:run 2b:run",
    ]


def test_a_step_that_brings_up_cuda_waits_for_the_first_of_the_pair() -> None:
    collects: dict[Side, StartStep] = {"current": "collect", "baseline": "collect"}
    assert waves(collects, ["baseline"]) == [
        "0c:start 0b:start",
        "0b:collect",
        "0c:collect 0b:run",
        "0c:run",
    ]
    starts: dict[Side, StartStep] = {"current": "start", "baseline": "start"}
    assert waves(starts, ["current"])[:2] == ["0c:start", "0c:collect 0b:start"]


def test_only_one_side_may_bring_it_up_early() -> None:
    early: dict[Side, StartStep] = {"current": "collect", "baseline": "run"}
    assert waves(early, ["baseline"]) == [
        "0c:start 0b:start",
        "0b:collect",
        "0b:run",
        "0c:collect",
        "0c:run",
    ]


def test_workers_of_an_earlier_test_run_at_the_same_time() -> None:
    assert waves(USUAL, ["current"], taken=2) == ["0c:run 0b:run"]


def test_a_call_without_cuda_keeps_nobody_waiting() -> None:
    assert waves(USUAL, ["current"], with_cuda=False)[-1] == "0b:run"


def pair(ratio: float, first: Side | None = "baseline") -> TimedPair:
    return TimedPair(first, ratio, 6, 100.0, 100.0 * ratio)


def test_one_pair_clears_and_a_suspect_call_needs_four() -> None:
    assert more_pairs([pair(1.02)], 0.05) == []
    assert more_pairs([pair(1.08)], 0.05) == ["current", "baseline", "current"]
    assert more_pairs([pair(1.08, "current")], 0.05) == ["baseline", "current", "baseline"]
    assert more_pairs([pair(1.08, None)], 0.05) == ["current", "baseline"] * 2
    four = [pair(1.08, side) for side in ("baseline", "current") * 2]  # type: ignore[arg-type]
    assert more_pairs(four, 0.05) == missing_firsts([one.first for one in four]) == []


@pytest.mark.parametrize(
    ("seen", "first"),
    [
        ([], None),
        ([(False, False)], None),
        ([(False, False), (True, False), (True, True)], "current"),
        ([(False, True), (True, True)], "baseline"),
        ([(True, True), (True, False)], None),
    ],
)
def test_the_order_of_two_contexts(seen: list[tuple[bool, bool]], first: str | None) -> None:
    order = ContextOrder()
    for current, baseline in seen:
        order.see(current, baseline)
    assert order.first == first
