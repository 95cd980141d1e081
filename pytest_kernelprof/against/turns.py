"""Rounds that two processes take in turn, each of its own code, on a GPU that they have alone."""

from __future__ import annotations

import contextlib
import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pytest_kernelprof.measure.turns import order_of_turns
from pytest_kernelprof.schema.turns import Sampled, TimedPair
from pytest_kernelprof.stats import pairs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_kernelprof.device.telemetry import Watch
    from pytest_kernelprof.schema.run import Conditions
    from pytest_kernelprof.schema.turns import Side

    Alone = Callable[[], contextlib.AbstractContextManager[Watch]]

_TRIES = 3
_OF_A_TURN = pairs.ROUNDS + 1


class NoRounds(Exception):  # noqa: N818 (a state)
    """There are no rounds to judge by; the message says why."""


class Rounds(Protocol):
    """One side, which holds in a call: each may raise ``NoRounds``."""

    def open(self) -> None:
        """Open a profiler session."""

    def take(self, rounds: int) -> None:
        """Take so many rounds now."""

    def close(self) -> None:
        """Begin to end the session."""

    def sample(self) -> Sampled:
        """What its rounds took."""

    def leave(self) -> None:
        """End a session that nobody wants, if there is one."""


class Order:
    """Whose CUDA context was made first, by what is seen of both between their steps.

    Attributes:
        first: None as long as there is none, and where both were there when they were first seen.
    """

    def __init__(self) -> None:
        self.first: Side | None = None
        self._is_settled = False

    def see(self, candidate: bool, reference: bool) -> None:
        """Whether either has one now."""
        if self._is_settled or not (candidate or reference):
            return
        self._is_settled = True
        if not (candidate and reference):
            self.first = "candidate" if candidate else "reference"


@dataclass(frozen=True, slots=True)
class Taken:
    """The turns of a pair.

    Attributes:
        candidate, reference: of each session of rounds, what it took.
        conditions: what the GPU was like.
    """

    turns: tuple[pairs.Turn, ...]
    candidate: tuple[Sampled, ...]
    reference: tuple[Sampled, ...]
    conditions: Conditions

    def pair(self, first: Side | None) -> TimedPair:
        """What they say together."""
        ratio = math.exp(pairs.pair_of(first or "candidate", self.turns).log_ratio)
        medians = [
            statistics.median(value for turn in self.turns for value in one(turn)[1:])
            for one in (_of_reference, _of_candidate)
        ]
        return TimedPair(first, ratio, len(self.turns), *medians)


def _of_candidate(turn: pairs.Turn) -> tuple[float, ...]:
    return turn.candidate


def _of_reference(turn: pairs.Turn) -> tuple[float, ...]:
    return turn.reference


def take_turns(candidate: Rounds, reference: Rounds, alone: Alone) -> Taken:
    """Six turns; twice as many where they scatter. All of six are of one session on each side, as
    a session costs more than its rounds.

    A batch during which the GPU throttled, or that is not whole, is taken again; where other work
    was on the GPU, all of them are, once.

    Args:
        alone: has the GPU alone, and watches it.

    Raises:
        NoRounds: they could not be had.
    """
    taken = _take_turns(candidate, reference, alone)
    if taken.conditions.contended:
        taken = _take_turns(candidate, reference, alone)
    return taken


def _take_turns(candidate: Rounds, reference: Rounds, alone: Alone) -> Taken:
    turns: list[pairs.Turn] = []
    ours, theirs = list[Sampled](), list[Sampled]()
    kept = 0
    with alone() as watch:
        while more := pairs.more_turns(turns):
            one, other, throttled = _batch(candidate, reference, len(turns), more, watch)
            ours.append(one)
            theirs.append(other)
            turns += _turns_of(one.us, other.us)
            kept += throttled
    conditions = watch.conditions().keeping_throttled(kept)
    return Taken(tuple(turns), tuple(ours), tuple(theirs), conditions)


def _batch(
    candidate: Rounds, reference: Rounds, first: int, turns: int, watch: Watch
) -> tuple[Sampled, Sampled, int]:
    """What both took, and how many of the rounds were kept although the GPU throttled."""
    rounds = 2 * turns * _OF_A_TURN
    for _ in range(_TRIES):
        one, other = _in_turn(candidate, reference, first, turns)
        is_steady = watch.block(rounds)
        problem = _problem(one, other, turns * _OF_A_TURN)
        if is_steady and not problem:
            break
    if problem:
        raise NoRounds(problem)
    return one, other, 0 if is_steady else rounds


def _problem(candidate: Sampled, reference: Sampled, rounds: int) -> str:
    for where, one in (("here", candidate), ("there", reference)):
        if one.problem:
            return f"{where}: {one.problem}"
        if len(one.us) != rounds:
            return f"{where}: {len(one.us)} rounds of {rounds} were seen"
        if min(one.us) <= 0:
            return f"{where}: no kernel was launched, so there is no time"
    return ""


def _in_turn(
    candidate: Rounds, reference: Rounds, first: int, turns: int
) -> tuple[Sampled, Sampled]:
    sides = {"candidate": candidate, "reference": reference}
    try:
        for side in sides.values():
            side.open()
        for name in order_of_turns(list(sides), first, turns):
            sides[name].take(_OF_A_TURN)
        reference.close()  # they read at the same time
        candidate.close()
        return candidate.sample(), reference.sample()
    except NoRounds:  # at Ctrl-C nobody is waited for
        for side in sides.values():
            with contextlib.suppress(NoRounds):
                side.leave()
        raise


def _turns_of(candidate: Sequence[float], reference: Sequence[float]) -> list[pairs.Turn]:
    starts = range(0, len(candidate), _OF_A_TURN)
    return [
        pairs.Turn(tuple(candidate[i : i + _OF_A_TURN]), tuple(reference[i : i + _OF_A_TURN]))
        for i in starts
    ]


def in_a_line(error: Exception) -> str:
    """An exception by its kind and its first line."""
    lines = str(error).strip().splitlines()
    return ": ".join([type(error).__name__, *lines[:1]])
