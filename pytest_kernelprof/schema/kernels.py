"""What one call did on the device: kernels, copies, waits, what a rank said to the others, its
operators, and its round event by event."""

from __future__ import annotations

import statistics
from typing import Literal

import msgspec

from pytest_kernelprof.names.short_names import short_name


class Kernel(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One kernel of the device; on the CPU one operator that computes.

    Attributes:
        name: full name, demangled.
        duration_us: microseconds on the device (on the CPU: of the operator).
        grid, block: launch dimensions; zeros on the CPU.
        registers: registers a thread. shared_memory: bytes a block.
        device, stream: indices as the profiler gives them.
        launch: the host call that launched it; "unknown" where the profiler records none.
        operators: operators around the launch, from the inside out.
        source: ``file:line`` of the user's code, empty where unknown.
    """

    name: str
    duration_us: float
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    registers: int
    shared_memory: int
    device: int
    stream: int
    launch: str
    operators: tuple[str, ...]
    source: str = ""

    @property
    def short_name(self) -> str:
        """What people call it, for example "vectorized_elementwise [gelu]"; see ``names``."""
        return short_name(self.name)


class Copy(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One memory copy.

    Attributes:
        name: for example "Memcpy DtoH (Device -> Pageable)".
        direction: "h2d", "d2h", "d2d" or "p2p".
        bytes: size. duration_us: microseconds on the device.
        operators, source: as for kernels.
    """

    name: str
    direction: str
    bytes: int
    duration_us: float
    operators: tuple[str, ...]
    source: str = ""


class Wait(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One wait of the host for the device: the waiting call, its operators, its source line."""

    call: str
    operators: tuple[str, ...]
    source: str = ""


class KernelGroup(msgspec.Struct, frozen=True, gc=False):
    """Kernels of one name: how many, and their microseconds together."""

    name: str
    count: int
    duration_us: float


TimelineKind = Literal["operator", "annotation", "call", "kernel", "memcpy", "memset"]


class Timeline(msgspec.Struct, frozen=True, omit_defaults=True):
    """One round event by event, in columns of one length, by start.

    Attributes:
        kind: what each event is.
        name: its name. lane: where it ran: "thread 4711", "device 0 stream 7".
        start_us: microseconds since the first event. duration_us: microseconds.
        correlation: of a call and what it caused on the device the same number; 0 without one.
        left_out: how many shorter events are not in it.
    """

    kind: tuple[TimelineKind, ...] = ()
    name: tuple[str, ...] = ()
    lane: tuple[str, ...] = ()
    start_us: tuple[float, ...] = ()
    duration_us: tuple[float, ...] = ()
    correlation: tuple[int, ...] = ()
    left_out: int = 0


class OperatorNode(msgspec.Struct, frozen=True):
    """Operators of one name under the same operators, together.

    Attributes:
        name: theirs; empty of the whole round.
        calls: how many there are.
        kernels: how many kernels they launched, and those below them; on the CPU how many
            operators that compute there are among them.
        us: what these take, in microseconds.
        below: what they called, in the order of the first call.
    """

    name: str
    calls: int
    kernels: int
    us: float
    below: tuple[OperatorNode, ...] = ()


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
