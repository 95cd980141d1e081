"""What one call did on the device: kernels, copies, waits, and its round event by event."""

from __future__ import annotations

from typing import Literal

import msgspec

from pytest_kernelprof.names.short import short_name


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
