"""The steps that a measurement is made of, as records: what the engine decides and executes."""

from __future__ import annotations

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
