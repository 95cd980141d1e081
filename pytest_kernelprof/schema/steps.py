"""The steps that a measurement is made of, as records: what the engine decides and executes; and
how far it is."""

from __future__ import annotations

import contextlib
from typing import Protocol

import msgspec


class WarmUp(msgspec.Struct, frozen=True, tag=True):
    """Call once, unmeasured; ``done`` of ``of`` such calls have been made."""

    done: int
    of: int


class ProfileRounds(msgspec.Struct, frozen=True, tag=True):
    """One profiler session of so many rounds.

    Attributes:
        batch: 0 for the session that the kernels are of; 1, 2, ... for further rounds, which join
            it. A batch that is taken again keeps its number.
        flush_l2: whether the L2 cache is flushed before each round.
        reason: why it is taken, where it is more than usual, in words.
    """

    rounds: int
    batch: int = 0
    flush_l2: bool = False
    reason: str = ""


class TimeCalls(msgspec.Struct, frozen=True, tag=True):
    """So many unprofiled calls, timed on the host.

    Attributes:
        batch: 0 for the first, 1, 2, ... for further rounds, which join it.
        second_look: a measurement of its own, beside the others.
        reason: why it is taken, where it is more than usual, in words.
    """

    rounds: int
    batch: int = 0
    second_look: bool = False
    reason: str = ""


class WatchMemory(msgspec.Struct, frozen=True, tag=True):
    """So many unprofiled calls whose memory is watched."""

    rounds: int


class Judge(msgspec.Struct, frozen=True, tag=True):
    """Ask how the limits fare by what there is."""


class RecordShapes(msgspec.Struct, frozen=True, tag=True):
    """One profiler session of one round that records the shapes of operators' inputs."""


Step = WarmUp | ProfileRounds | TimeCalls | WatchMemory | Judge | RecordShapes
Batch = ProfileRounds | TimeCalls


class Progress(Protocol):
    """Told now and then how far a measurement is; called outside of everything that is timed."""

    def __call__(self, what: str, done: int, of: int, reason: str = "") -> None:
        """Note how far it is.

        Args:
            what: what is being done, for example "profiling". done, of: rounds.
            reason: why it takes more than usual, in words; empty otherwise.
        """


def no_progress(what: str, done: int, of: int, reason: str = "") -> None:
    """Say nothing."""


def silently() -> contextlib.AbstractContextManager[Progress]:
    """Where nothing is told: the form of a context that says nothing."""
    return contextlib.nullcontext(no_progress)
