"""A process that holds in a call, and takes rounds of it as another one asks: both ends of that."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from pytest_kernelprof.against.turns import NoRounds, in_a_line
from pytest_kernelprof.against.wire import Lost
from pytest_kernelprof.schema.against import OfACall
from pytest_kernelprof.schema.turns import (
    CloseRounds,
    LeaveRounds,
    OpenRounds,
    Sampled,
    TakeRounds,
    Took,
)

if TYPE_CHECKING:
    from pytest_kernelprof.against.turns import Rounds
    from pytest_kernelprof.against.wire import Wire

A = TypeVar("A", Took, Sampled)

_SENT_S = 30.0


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
        self._have(OpenRounds())

    def take(self, rounds: int) -> None:
        """Have it take rounds.

        Raises:
            NoRounds: the call raises there.
        """
        self._have(TakeRounds(rounds))

    def close(self) -> None:
        """Have it end the session and read it, and do not wait for that."""
        self._wire.send(CloseRounds(), _SENT_S)
        self._is_closing = True

    def sample(self) -> Sampled:
        """What the rounds took."""
        sampled = self._answer(Sampled)
        self._is_closing = False
        return sampled

    def leave(self) -> None:
        """Have it end a session that nobody wants."""
        if self._is_closing:
            self.sample()
        self._have(LeaveRounds())

    def _have(self, asked: OfACall) -> None:
        self._wire.send(asked, _SENT_S)
        problem = self._answer(Took).problem
        if problem:
            raise NoRounds(problem)

    def _answer(self, kind: type[A]) -> A:
        answer = self._wire.receive(self.timeout_s)
        if not isinstance(answer, kind):
            raise Lost(f"it says {type(answer).__name__} where {kind.__name__} is due")
        return answer


def serve(wire: Wire, rounds: Rounds) -> object:
    """Take rounds as they are asked for, until something else is: that.

    Raises:
        Lost: nobody asks any more.
    """
    try:
        while isinstance(asked := wire.receive(), OfACall):
            wire.send(_done(asked, rounds))
        return asked
    finally:
        rounds.leave()


def _done(asked: OfACall, rounds: Rounds) -> Took | Sampled:
    """Whatever the call raises is an answer."""
    try:
        if isinstance(asked, CloseRounds):
            return rounds.sample()
        if isinstance(asked, OpenRounds):
            rounds.open()
        elif isinstance(asked, TakeRounds):
            rounds.take(asked.rounds)
        else:
            rounds.leave()
    except Exception as error:
        words = in_a_line(error)
        return Sampled(problem=words) if isinstance(asked, CloseRounds) else Took(words)
    return Took()
