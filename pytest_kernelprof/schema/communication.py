"""What one rank says to the others: the communication kernels of one call."""

from __future__ import annotations

import msgspec


class Collective(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """One communication kernel of a rank's call: what finds its fellows on the other ranks.

    Attributes:
        kernel: its place among the kernels of the profile, from 0.
        operation: what it does, as the process group calls it ("allreduce", "send"), else as the
            kernel's name says; empty where neither does.
        group: which process group it is of; empty where the trace does not say.
        ranks: those that take part; empty where the trace does not say.
        number: its number in its group, the same on all ranks; None where the trace has none.
        bytes: the larger of what this rank gives and what it gets; None where the trace has
            neither.
        rounds_us: what it took in each round, in microseconds; where rounds differ in their
            communication, in the round that the kernels are of alone.
    """

    kernel: int
    operation: str = ""
    group: str = ""
    ranks: tuple[int, ...] = ()
    number: int | None = None
    bytes: int | None = None
    rounds_us: tuple[float, ...] = ()
