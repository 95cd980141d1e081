"""Which workers run next: pure, from what was seen so far.

One pair of workers, this process and the reference, clears a call that is not slower. Where a call
looks slower, more pairs of fresh workers confirm it. Whose CUDA context is made first is up to
1.3 % faster, so in two of four pairs each side has to be first. All that does not decide that order
happens at the same time in all fresh workers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pytest_kernelprof.schema.comparison import Side, TimedPair
from pytest_kernelprof.stats import intervals

SIDES: tuple[Side, ...] = ("current", "baseline")

StartStep = Literal["start", "collect", "run"]
"""How a worker comes to a call: its process "starts" with pytest, "collects" the tests, which
loads the code, and "runs" the test up to the call."""
START_STEPS: tuple[StartStep, ...] = ("start", "collect", "run")

BringsUp = Mapping[Side, StartStep]
"""The first step of each side after which CUDA is up."""


@dataclass(frozen=True, slots=True)
class Next:
    """A step for one worker of a pair, by the pair's number."""

    pair: int
    side: Side
    step: StartStep


@dataclass(frozen=True, slots=True)
class Shown:
    """A step that a worker has taken, and whether CUDA was up in it afterwards."""

    taken: Next
    cuda: bool


def next_steps(
    firsts: Sequence[Side], history: Sequence[Shown], brings_up: BringsUp
) -> tuple[Next, ...]:
    """The steps that all workers take next, at the same time; none once all are at the call.

    The second of a pair waits with a step that may bring up CUDA until the first has it, or is at
    the call without it.

    Args:
        firsts: for each pair, whose CUDA context has to be made first.
        history: the steps so far. A worker from an earlier test has begun with the first two.
    """
    has_cuda = {(one.taken.pair, one.taken.side) for one in history if one.cuda}
    found = []
    for pair, first in enumerate(firsts):
        for side in SIDES:
            left = _left(pair, side, history)
            is_free = side == first or not _left(pair, first, history)
            is_free = is_free or not has_cuda.isdisjoint({(pair, side), (pair, first)})
            if left and (is_free or not may_bring_up(side, left[0], brings_up)):
                found.append(Next(pair, side, left[0]))
    return tuple(found)


def _left(pair: int, side: Side, history: Sequence[Shown]) -> tuple[StartStep, ...]:
    """The steps that a worker still has to take."""
    taken = [one for one in history if (one.taken.pair, one.taken.side) == (pair, side)]
    return START_STEPS[len(taken) :]


def may_bring_up(side: Side, step: StartStep, brings_up: BringsUp) -> bool:
    """Whether a step may bring up CUDA: to run a test always may."""
    known = brings_up.get(side, "run")
    return START_STEPS.index(step) >= START_STEPS.index(known)


def more_pairs(taken: Sequence[TimedPair], margin: float) -> list[Side]:
    """The pairs that a call still needs, each by the side that has to be first; none where those
    that were taken decide."""
    decided = intervals.decide(taken, margin).change is not None
    return [] if decided else missing_firsts([pair.first for pair in taken])


def missing_firsts(firsts: Sequence[Side | None]) -> list[Side]:
    """Whose context has to be first in more pairs, so that two of four begin with each side; in
    turn, the side with more of them first."""
    missing = {side: intervals.PAIRS // 2 - firsts.count(side) for side in SIDES}
    order = sorted(SIDES, key=lambda side: -missing[side])
    return [side for i in range(max(missing.values())) for side in order if i < missing[side]]


class ContextOrder:
    """Whose CUDA context was made first, by what is seen of both sides between their steps.

    Attributes:
        first: None until one is up, and where both were up when they were first seen.
    """

    def __init__(self) -> None:
        self.first: Side | None = None
        self._is_settled = False

    def see(self, current: bool, baseline: bool) -> None:
        """Note whether each has a context now."""
        if self._is_settled or not (current or baseline):
            return
        self._is_settled = True
        if not (current and baseline):
            self.first = "current" if current else "baseline"
