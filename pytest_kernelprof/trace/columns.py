"""The columns of a trace: one small record of NumPy arrays for each class of event.

All times are int64 nanoseconds on the trace's own clock; every table is sorted by start time.
Names and other values that repeat are stored once: each row holds the number of its value.
"""

from __future__ import annotations

import functools
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from pytest_kernelprof.records.recording import NOTHING_NOTED, DeviceKind, Recording

if TYPE_CHECKING:
    from typing_extensions import Self

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

KERNEL, MEMCPY, MEMSET = 0, 1, 2
"""Codes of ``Activities.kind``."""

NO_ID = -1
"""Stands for an absent correlation id, External id, call or operator."""


_MANY = 10_000


def among(values: Ints, wanted: Ints) -> Bools:
    """Which values are among the wanted ones.

    ``np.isin`` takes 15 us to begin: four times as long as a small trace needs.
    """
    if not len(values) or not len(wanted):
        return np.zeros(len(values), np.bool_)
    if len(values) + len(wanted) > _MANY:
        return np.isin(values, wanted)
    known = np.sort(wanted)
    at = np.searchsorted(known, values)
    at[at == len(known)] = 0
    found: Bools = known[at] == values
    return found


Value = TypeVar("Value")

# To test a name takes as long as to look through so many rows for it.
_ROWS_OF_A_QUESTION = 100


class Coded(Generic[Value]):
    """The values of a table's rows; indexed as an array is.

    Attributes:
        codes: of each row the index of its value.
        values: the different ones; parts of a table share them, so some may have no row.
    """

    __slots__ = ("codes", "values")

    def __init__(self, codes: Ints, values: Sequence[Value]) -> None:
        self.codes = codes
        self.values = values

    def __len__(self) -> int:
        return len(self.codes)

    def __iter__(self) -> Iterator[Value]:
        return iter(self.tolist())

    @overload
    def __getitem__(self, rows: int | np.integer) -> Value: ...

    @overload
    def __getitem__(self, rows: Ints | Bools | slice | list[int]) -> Self: ...

    def __getitem__(self, rows: Any) -> Value | Self:
        if isinstance(rows, int | np.integer):
            value: Value = self.values[self.codes[rows]]
            return value
        return type(self)(self.codes[rows], self.values)

    def tolist(self) -> list[Value]:
        """The value of each row; rows that are equal have the same object."""
        if len(self.values) > len(self):  # as of a part of a table
            return list(map(self.values.__getitem__, self.codes.tolist()))
        found: list[Value] = np.fromiter(self.values, object, len(self.values))[self.codes].tolist()
        return found


class Names(Coded[str]):
    """The names of a table's rows."""

    def distinct(self) -> set[str]:
        """The different names of these rows."""
        return {self.values[code] for code in self._present}

    def that(self, holds: Callable[[str], object]) -> Bools:
        """Which rows have a name that passes a test; each different name is tested once."""
        verdict = np.zeros(len(self.values), np.bool_)
        few = len(self.values) * _ROWS_OF_A_QUESTION < len(self)
        for code in range(len(self.values)) if few else self._present:
            if holds(self.values[code]):
                verdict[code] = True
        return verdict[self.codes]

    def matching(self, pattern: re.Pattern[str]) -> Bools:
        """Which rows have a name that a pattern is found in."""
        return self.that(pattern.search)

    def are(self, name: str) -> Bools:
        """Which rows have that name."""
        return self.that(name.__eq__)

    @functools.cached_property
    def _present(self) -> list[int]:
        used = np.zeros(len(self.values), np.bool_)
        used[self.codes] = True
        present: list[int] = used.nonzero()[0].tolist()
        return present


def array(values: Sequence[Any], kind: type[np.generic]) -> NDArray[Any]:
    """Scalars of Python as an array, in a third of the time of ``np.fromiter``."""
    try:
        packed = struct.pack(f"{len(values)}{np.dtype(kind).char}", *values)
    except struct.error:  # texts of numbers among them
        return np.fromiter(values, kind, len(values))
    return np.frombuffer(packed, kind)


def numbered(numbers: dict[Any, int], values: Sequence[Any]) -> Ints:
    """The number of each value; the dictionary numbers the new ones."""
    return array(list(map(numbers.__getitem__, values)), np.int32)


class Different(dict[Value, int]):
    """Gives each new value the next number."""

    def __missing__(self, value: Value) -> int:
        number = self[value] = len(self)
        return number


class Announced(NamedTuple):
    """What a process group announces of one kernel; absent or senseless fields are empty or None.

    Attributes:
        operation: as the process group calls it: "allreduce", "_allgather_base", "send".
        group: the process group's name. size: how many ranks it has; 0 where unknown.
        ranks: its ranks; of a send or a receive the other one.
        number: how many the group has had before; the same on all of its ranks.
        bytes: the larger of what this rank gives and what it gets.
    """

    operation: str = ""
    group: str = ""
    size: int = 0
    ranks: tuple[int, ...] = ()
    number: int | None = None
    bytes: int | None = None


class Input(NamedTuple):
    """One argument of an operator.

    Attributes:
        shape, strides: of a tensor, in elements; empty for what is no tensor, and for scalars.
        dtype: as the profiler writes it ("float", "c10::BFloat16", "Scalar"); empty for None.
        value: of what is no tensor, as text: "1.0", "True", "[1, 1]".
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    value: str = ""


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
    inputs: Coded[tuple[Input, ...] | None] | None = None

    def annotations(self, prefix: str) -> Bools:
        """Which are annotations whose names begin with this."""
        return self.annotation & self.name.that(lambda name: name.startswith(prefix))


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
    what a process group announces of its kernels (None of others); it is None where none does.
    """

    kind: Ints
    process: Ints
    correlation: Ints
    external_id: Ints
    device: Ints
    context: Ints
    stream: Ints
    bytes: Ints
    registers: Coded[int]
    shared_memory: Coded[int]
    grid: Coded[tuple[int, int, int]]
    block: Coded[tuple[int, int, int]]
    announced: Coded[Announced | None] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Waits(Spans):
    """Synchronisation records of the device (category ``cuda_sync``); ``process`` as above."""

    process: Ints
    correlation: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Frames(Spans):
    """Python frames (``with_stack``); ``thread`` indexes ``Trace.threads``."""

    thread: Ints


class Flows(NamedTuple):
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
    def device_kind(self) -> DeviceKind:
        """What it was recorded on: as noted, else "cuda" where it records a device at all."""
        return self.recording.device_kind or ("cuda" if self.on_device else "cpu")

    @property
    def whole_microseconds(self) -> bool:
        """Whether times are whole microseconds, as Kineto wrote them before 2024: then a kernel of
        less than one takes none."""
        tables = (self.operators, self.calls, self.activities)
        return all(not (one.start % 1000).any() and not (one.end % 1000).any() for one in tables)
