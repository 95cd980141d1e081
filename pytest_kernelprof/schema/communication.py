"""What one rank says to the others: the communication kernels of one call."""

from __future__ import annotations

import statistics

import msgspec


class Collective(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """One communication kernel of a rank's call: what finds its fellows on the other ranks.

    Attributes:
        kernel: its place among the kernels of the profile, from 0.
        operation: what it does, as the process group calls it ("allreduce", "send"), else as the
            kernel's name says; empty where neither does.
        group: which process group it is of; empty where the trace does not say.
        size: how many ranks it has; 0 where the trace does not say.
        ranks: those ranks; of a send or a receive the other one; empty where the trace does not
            say.
        number: its number in its group, the same on all ranks; None where the trace has none.
        bytes: the larger of what this rank gives and what it gets; None where the trace has
            neither.
        rounds_us: what it took in each round, in microseconds; where rounds differ in their
            communication, in the round that the kernels are of alone.
        transfer_us: the least that it took on any of its ranks, the median of the rounds; what it
            took longer is waiting. None where the ranks were not gathered, or do not match.
        last: the rank on which it took least: the one that came last, for which the others waited.
    """

    kernel: int
    operation: str = ""
    group: str = ""
    size: int = 0
    ranks: tuple[int, ...] = ()
    number: int | None = None
    bytes: int | None = None
    rounds_us: tuple[float, ...] = ()
    transfer_us: float | None = None
    last: int | None = None

    @property
    def us(self) -> float:
        """What it took: the median of the rounds, in microseconds."""
        return statistics.median(self.rounds_us) if self.rounds_us else 0.0

    @property
    def waited_us(self) -> float:
        """What of that was waiting for others; 0 where that is not known."""
        return 0.0 if self.transfer_us is None else max(0.0, self.us - self.transfer_us)
