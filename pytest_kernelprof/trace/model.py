"""The columns of a trace: one small record of NumPy arrays for each class of event.

All times are int64 nanoseconds on the trace's own clock; every table is sorted by start time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_kernelprof.schema.recording import NOTHING_NOTED, Recording

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_kernelprof.trace.announced import Announced
    from pytest_kernelprof.trace.arrays import Bools, Ints
    from pytest_kernelprof.trace.inputs import InputColumn
    from pytest_kernelprof.trace.names import Coded, Names

    Sizes = Coded[tuple[int, int, int]]


@dataclass(frozen=True, slots=True, eq=False)
class Spans:
    """Named intervals of host threads or of the device. Base of the tables below."""

    name: Names
    start: Ints
    end: Ints

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True, slots=True, eq=False)
class Operators(Spans):
    """Operators and user annotations of the host; ``thread`` indexes ``Trace.threads``.

    ``has_inputs`` says which operators have inputs, and ``inputs`` holds a tuple of ``Input`` for
    each operator (None where it has none). The first is None for a trace that was recorded without
    ``record_shapes``, the second where inputs were not read either.
    """

    thread: Ints
    external_id: Ints
    annotation: Bools
    has_inputs: Bools | None = None
    inputs: InputColumn | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Calls(Spans):
    """Runtime and driver calls of the host."""

    thread: Ints
    external_id: Ints
    correlation: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Activities(Spans):
    """Kernels, memcpys and memsets of the device.

    ``process`` tells apart what the file writes as their process: the device, with files of several
    ranks one of a rank. ``stream`` is the queue where a back end has queues. ``announced`` holds
    what a process group says of its kernels (None of others); it is None where none says anything.
    """

    kind: Ints
    process: Ints
    correlation: Ints
    external_id: Ints
    device: Ints
    context: Ints
    stream: Ints
    bytes: Ints
    registers: Ints
    shared_memory: Ints
    grid: Sizes
    block: Sizes
    announced: Coded[Announced | None] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Waits(Spans):
    """Synchronisation records of the device (category ``cuda_sync``)."""

    correlation: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Frames(Spans):
    """Python frames (``with_stack``); ``thread`` indexes ``Trace.threads``."""

    thread: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Flows:
    """Forward-to-backward links of autograd: where each end lies, by thread and time."""

    forward_thread: Ints
    forward_at: Ints
    backward_thread: Ints
    backward_at: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """One recorded trace.

    Attributes:
        threads: thread ids as they stand in the file; ``thread`` columns index this tuple.
        process_of_thread: a small number for the process of each thread.
        devices: the ``deviceProperties`` of the file.
        recording: what our own capture wrote beside the events (device, versions, operator
            classes, ...); empty for a trace from elsewhere.
        back_end: whose runtime was recorded: "CUDA", "ROCm", "XPU", "MTIA", ...; empty for none.
        categories: all that the file has, those that are not read included.
        rank: its process's number in ``torch.distributed``; None where the file has none.
    """

    source: str
    operators: Operators
    calls: Calls
    activities: Activities
    waits: Waits
    overheads: Spans
    frames: Frames
    flows: Flows
    threads: tuple[int | str, ...]
    process_of_thread: Ints
    devices: tuple[Mapping[str, Any], ...] = ()
    recording: Recording = NOTHING_NOTED
    back_end: str = ""
    categories: frozenset[str] = frozenset()
    rank: int | None = None

    @property
    def on_device(self) -> bool:
        """Whether the file records a device at all (its properties, activities or calls)."""
        return bool(self.devices) or len(self.activities) > 0 or len(self.calls) > 0

    @property
    def whole_microseconds(self) -> bool:
        """Whether times are whole microseconds, as Kineto wrote them before 2024: then a kernel of
        less than one takes none."""
        tables = (self.operators, self.calls, self.activities)
        return all(not (one.start % 1000).any() and not (one.end % 1000).any() for one in tables)
