"""Rounds that two processes take in turn: what they say to each other, and what came of them."""

from __future__ import annotations

from typing import Literal

import msgspec

from pytest_kernelprof.schema.environment import Conditions

Side = Literal["candidate", "reference"]
"""Of a pair of processes: today's code, and the revision's."""
TimingOutcome = Literal["worse", "better", "held", "undecided", "not timed"]


class Go(msgspec.Struct, frozen=True, tag=True):
    """To who holds inside a call: run on, to the next call or the end; ``holds``: hold there."""

    holds: bool = True


class OpenRounds(msgspec.Struct, frozen=True, tag=True):
    """To who holds: open a profiler session for rounds of the call."""


class TakeRounds(msgspec.Struct, frozen=True, tag=True):
    """To who holds: take so many rounds now, in the open session."""

    rounds: int


class CloseRounds(msgspec.Struct, frozen=True, tag=True):
    """To who holds: close the session, and say what its rounds took."""


class LeaveRounds(msgspec.Struct, frozen=True, tag=True):
    """To who holds: close the session, if one is open; nobody wants what it has."""


class At(msgspec.Struct, frozen=True, tag=True):
    """From who runs a test: a call has been measured, and it holds inside of it.

    Attributes:
        label: which of the test's profiles it is.
        work: its arguments and result, a line for each tensor: shape, type, strides, device.
        cuda: whether CUDA is up in that process.
    """

    label: str
    work: tuple[str, ...] = ()
    cuda: bool = False


class Took(msgspec.Struct, frozen=True, tag=True):
    """From who holds: that is done; ``problem``: why it could not be, in words."""

    problem: str = ""


class Sampled(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """From who holds: what the rounds of a session took.

    Attributes:
        us: the kernels of each round, together, in microseconds.
        kernels_us: of each kernel in launch order the median over the rounds.
        problem: why these are no ground for a verdict, in words; empty where they are.
    """

    us: tuple[float, ...] = ()
    kernels_us: tuple[float, ...] = ()
    problem: str = ""


class TimedPair(msgspec.Struct, frozen=True):
    """What one pair of processes says.

    Attributes:
        first: whose CUDA context was made first; None where both came up at once.
        ratio: how many times as long the candidate takes.
        turns: how many turns each took.
        old_us, new_us: the medians of the reference and the candidate.
    """

    first: Side | None
    ratio: float
    turns: int
    old_us: float
    new_us: float


class Timing(msgspec.Struct, frozen=True, omit_defaults=True):
    """How ``cuda_time`` of one call compares.

    Attributes:
        outcome: what follows. why: of "undecided" and "not timed" the reason, in words.
        ratio: how many times as long the candidate takes, by all pairs.
        agreeing: how many pairs are beyond the margin on the side of the outcome.
        margin: the fraction that it was judged by.
        old_us, new_us: of the reference and the candidate, over all pairs.
        old_latency_us, new_latency_us: shown where both were measured, never judged.
        disturbed: what the GPU was like, where no verdict can stand on that.
        took_s: how long that took, in seconds.
    """

    outcome: TimingOutcome
    why: str = ""
    ratio: float = 1.0
    pairs: tuple[TimedPair, ...] = ()
    agreeing: int = 0
    margin: float = 0.0
    old_us: float = 0.0
    new_us: float = 0.0
    old_latency_us: float = 0.0
    new_latency_us: float = 0.0
    disturbed: Conditions | None = None
    took_s: float = 0.0
