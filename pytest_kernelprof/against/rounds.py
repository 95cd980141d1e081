"""Rounds that two processes take in turn, each of its own code, on a GPU that they have alone. One
of them holds in a call, and takes rounds of it as the other one asks."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from pytest_kernelprof.against.protocol import DoStep, Lost
from pytest_kernelprof.schema.paired import Sampled, TimedPair
from pytest_kernelprof.stats import pairs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_kernelprof.against.protocol import Step, Wire
    from pytest_kernelprof.device.telemetry import Watch
    from pytest_kernelprof.schema.paired import Side
    from pytest_kernelprof.schema.run import Conditions

    Alone = Callable[[], contextlib.AbstractContextManager[Watch]]

_TRIES = 3
_OF_A_TURN = pairs.ROUNDS + 1
SENT_S = 30.0
"""A message is taken in that time."""

R = TypeVar("R")


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


class Relayed:
    """Rounds of another one, with what has to be done around each step."""

    def open(self) -> None:
        """As of ``Rounds``, and likewise the others."""
        self._have(lambda rounds: rounds.open())

    def take(self, rounds: int) -> None:
        """So many rounds, now."""
        self._have(lambda one: one.take(rounds))

    def close(self) -> None:
        """Begin to end the session."""
        self._have(lambda rounds: rounds.close())

    def sample(self) -> Sampled:
        """What its rounds took."""
        return self._have(lambda rounds: rounds.sample())

    def leave(self) -> None:
        """End a session that nobody wants."""
        self._have(lambda rounds: rounds.leave())

    def _have(self, step: Callable[[Rounds], R]) -> R:
        """Do a step; ``NoRounds`` where that cannot be."""
        raise NotImplementedError


class Order:
    """Whose CUDA context was made first, by what is seen of both between their steps.

    Attributes:
        first: None as long as there is none, and where both were there when they were first seen.
    """

    def __init__(self) -> None:
        self.first: Side | None = None
        self._is_settled = False

    def see(self, current: bool, baseline: bool) -> None:
        """Whether either has one now."""
        if self._is_settled or not (current or baseline):
            return
        self._is_settled = True
        if not (current and baseline):
            self.first = "current" if current else "baseline"


@dataclass(frozen=True, slots=True)
class Taken:
    """The turns of a pair.

    Attributes:
        current, baseline: of each session of rounds, what it took.
        conditions: what the GPU was like.
    """

    turns: tuple[pairs.Turn, ...]
    current: tuple[Sampled, ...]
    baseline: tuple[Sampled, ...]
    conditions: Conditions

    def pair(self, first: Side | None) -> TimedPair:
        """What they say together."""
        return pairs.pair_of(first, self.turns)


def take_turns(current: Rounds, baseline: Rounds, alone: Alone) -> Taken:
    """Six turns; twice as many where they scatter. All of six are of one session on each side, as
    a session costs more than its rounds.

    A batch during which the GPU throttled, or that is not whole, is taken again; where other work
    was on the GPU, all of them are, once.

    Args:
        alone: has the GPU alone, and watches it.

    Raises:
        NoRounds: they could not be had.
    """
    taken = _take_turns(current, baseline, alone)
    if taken.conditions.contended:
        taken = _take_turns(current, baseline, alone)
    return taken


def _take_turns(current: Rounds, baseline: Rounds, alone: Alone) -> Taken:
    turns: list[pairs.Turn] = []
    ours, theirs = list[Sampled](), list[Sampled]()
    kept = 0
    with alone() as watch:
        while more := pairs.more_turns(turns):
            one, other, throttled = _batch(current, baseline, len(turns), more, watch)
            ours.append(one)
            theirs.append(other)
            turns += _turns_of(one.us, other.us)
            kept += throttled
    conditions = watch.conditions().keeping_throttled(kept)
    return Taken(tuple(turns), tuple(ours), tuple(theirs), conditions)


def _batch(
    current: Rounds, baseline: Rounds, first: int, turns: int, watch: Watch
) -> tuple[Sampled, Sampled, int]:
    """What both took, and how many of the rounds were kept although the GPU throttled."""
    rounds = 2 * turns * _OF_A_TURN
    for _ in range(_TRIES):
        one, other = _in_turn(current, baseline, first, turns)
        is_steady = watch.block(rounds)
        problem = _problem(one, other, turns * _OF_A_TURN)
        if is_steady and not problem:
            break
    if problem:
        raise NoRounds(problem)
    return one, other, 0 if is_steady else rounds


def _problem(current: Sampled, baseline: Sampled, rounds: int) -> str:
    for where, one in (("current", current), ("baseline", baseline)):
        if one.problem:
            return f"{where}: {one.problem}"
        if len(one.us) != rounds:
            return f"{where}: {len(one.us)} rounds of {rounds} were seen"
        if min(one.us) <= 0:
            return f"{where}: no kernel was launched, so there is no time"
    return ""


def _in_turn(current: Rounds, baseline: Rounds, first: int, turns: int) -> tuple[Sampled, Sampled]:
    sides = {"current": current, "baseline": baseline}
    try:
        for side in sides.values():
            side.open()
        for name in pairs.order_of_turns(list(sides), first, turns):
            sides[name].take(_OF_A_TURN)
        baseline.close()  # they read at the same time
        current.close()
        return current.sample(), baseline.sample()
    except NoRounds:  # at Ctrl-C nobody is waited for
        for side in sides.values():
            with contextlib.suppress(NoRounds):
                side.leave()
        raise


def _turns_of(current: Sequence[float], baseline: Sequence[float]) -> list[pairs.Turn]:
    starts = range(0, len(current), _OF_A_TURN)
    return [
        pairs.Turn(tuple(current[i : i + _OF_A_TURN]), tuple(baseline[i : i + _OF_A_TURN]))
        for i in starts
    ]


def in_a_line(error: Exception) -> str:
    """An exception by its kind and its first line."""
    lines = str(error).strip().splitlines()
    return ": ".join([type(error).__name__, *lines[:1]])


class HeldRounds:
    """Rounds of who holds, at the other end of a wire. Each raises ``Lost`` where it is gone, or
    takes longer than it may.

    Attributes:
        timeout_s: that.
    """

    def __init__(self, wire: Wire, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._wire = wire
        self._is_closing = False

    def open(self) -> None:
        """Have it open a session for rounds of the call that it holds in.

        Raises:
            NoRounds: it cannot.
        """
        self._have("open")

    def take(self, rounds: int) -> None:
        """Have it take rounds.

        Raises:
            NoRounds: the call raises there.
        """
        self._have("take", rounds)

    def close(self) -> None:
        """Have it end the session and read it, and do not wait for that."""
        self._wire.send(DoStep("close"), SENT_S)
        self._is_closing = True

    def sample(self) -> Sampled:
        """What the rounds took."""
        answer = self._wire.receive(self.timeout_s)
        if not isinstance(answer, Sampled):
            raise Lost(f"it sent {type(answer).__name__}, expected Sampled")
        self._is_closing = False
        return answer

    def leave(self) -> None:
        """Have it end a session that nobody wants."""
        self._have("leave")

    def _have(self, step: Step, rounds: int = 0) -> None:
        if self._is_closing:  # what nobody wants any more
            self.sample()
        self._wire.send(DoStep(step, rounds), SENT_S)
        problem = self.sample().problem
        if problem:
            raise NoRounds(problem)


def serve(wire: Wire, rounds: Rounds) -> object:
    """Take rounds as they are asked for, until something else is: that.

    Raises:
        Lost: nobody asks any more.
    """
    try:
        while isinstance(asked := wire.receive(), DoStep):
            wire.send(_done(asked, rounds))
        return asked
    finally:
        rounds.leave()


def _done(asked: DoStep, rounds: Rounds) -> Sampled:
    """Whatever the call raises is an answer."""
    try:
        if asked.step == "close":
            return rounds.sample()
        if asked.step == "take":
            rounds.take(asked.rounds)
        else:
            getattr(rounds, asked.step)()
    except Exception as error:
        return Sampled(problem=in_a_line(error))
    return Sampled()
