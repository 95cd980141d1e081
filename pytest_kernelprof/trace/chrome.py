"""Reads the Chrome trace that ``export_chrome_trace`` writes into the columns of a ``Trace``."""

from __future__ import annotations

import contextlib
import functools
import gc
import gzip
import itertools
import mmap
import os
import re
import zlib
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from pytest_kernelprof.errors import TraceError
from pytest_kernelprof.trace.model import (
    KERNEL,
    MEMCPY,
    MEMSET,
    NO_ID,
    Activities,
    Calls,
    Flows,
    Frames,
    Operators,
    Spans,
    Trace,
    Waits,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_kernelprof.trace.model import Ints, Strings

_ACTIVITY_KINDS = {"kernel": KERNEL, "gpu_memcpy": MEMCPY, "gpu_memset": MEMSET}
_SNIFFED = 4096
_DECIMALS_US = re.compile(rb"(?:-?\d{1,15}\.\d{3} ?)+")


class _Args(msgspec.Struct, gc=False, frozen=True):
    """The arguments that we read. Absent ids are ``NO_ID``, absent figures zero."""

    external_id: int = msgspec.field(name="External id", default=NO_ID)
    correlation: int = NO_ID
    device: int = 0
    stream: int = NO_ID
    bytes: int = 0
    registers: int = msgspec.field(name="registers per thread", default=0)
    shared_memory: float = msgspec.field(name="shared memory", default=0)
    grid: tuple[int, int, int] = (0, 0, 0)
    block: tuple[int, int, int] = (0, 0, 0)


class _Event(msgspec.Struct, gc=False):
    # ``ts`` stays text: 4.3e12 us with three decimals does not fit a float to the nanosecond.
    ph: str = ""
    cat: str = ""
    name: str = ""
    tid: int | str = 0
    ts: msgspec.Raw = msgspec.Raw(b"0")
    dur: float = 0.0
    id: int | str | None = None
    args: _Args = _Args()


class _Document(msgspec.Struct):
    traceEvents: list[msgspec.Raw]  # noqa: N815 (the format's own name)
    deviceProperties: list[dict[str, Any]] = []  # noqa: N815
    baseTimeNanoseconds: int = 0  # noqa: N815
    kernelprof: dict[str, Any] = {}


_document = msgspec.json.Decoder(_Document)
_events = msgspec.json.Decoder(list[_Event])

# Events are decoded a chunk at a time: the objects of one chunk are freed before the next, so that
# memory holds the file and the columns, and the allocator stays in the processor's cache. With
# chunks eight times as large, reading takes twice as long.
_CHUNK = 2_048
_CHUNK_BYTES = 1 << 19

# How torch lays out the file, to the newline. No JSON string holds a bare newline.
_BEFORE_EVENTS, _AFTER_EVENTS = b'"traceEvents": [', b"\n  ],"
_END_OF_EVENT, _BEGIN_OF_EVENT = b"\n  }", b",\n  {\n"


def read_trace(path: str | os.PathLike[str]) -> Trace:
    """Read a trace file, plain or gzip.

    Raises:
        TraceError: the file is missing, empty, truncated, not JSON, not a Chrome trace, or holds
            a value that does not fit; the message names the file, the position and the reason.
    """
    source = os.fspath(path)
    with _opened(source) as data, _collector_paused():
        try:
            with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
                return _read_as_laid_out_by_torch(data, source)
            return _read_as_any_json(data, source)
        except msgspec.ValidationError as error:
            raise TraceError(
                f"{source}: not a Chrome trace of torch.profiler: {error}; expected a JSON object "
                "whose 'traceEvents' is a list of events"
            ) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise TraceError(f"{source}: not JSON, or cut off: {_where(error, data)}") from None
        except (ArithmeticError, ValueError) as error:
            raise TraceError(
                f"{source}: a number in {_place_of_bad_number(data)} does not fit 64 bits ({error})"
            ) from None


def _where(error: Exception, data: bytes | mmap.mmap) -> str:
    """The error with the byte at which it lies, also where its own words do not say."""
    if "truncated" in str(error):
        return f"{error} at byte {len(data)}"
    try:
        bytes(data).decode()
    except UnicodeDecodeError as text_error:
        return f"no UTF-8 at byte {text_error.start}"
    return str(error) or type(error).__name__


def _place_of_bad_number(data: bytes | mmap.mmap) -> str:
    raw = _document.decode(data).traceEvents
    for i in range(len(raw)):
        try:
            for table, events in _sort_out(_decode_chunk(raw[i : i + 1], 0)).items():
                if table in _COLUMNS and events:
                    _chunk(table, events, _Codes(), _Interned())
        except (ArithmeticError, ValueError):  # noqa: PERF203 (only once there is an error)
            return f"traceEvents[{i}]"
    return "traceEvents"


@contextlib.contextmanager
def _collector_paused() -> Iterator[None]:
    """Hundreds of thousands of new objects, none of them garbage, would start it many times."""
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()


@contextlib.contextmanager
def _opened(source: str) -> Iterator[bytes | mmap.mmap]:
    """The JSON text: the mapped file, or what a gzip file holds."""
    try:
        with open(source, "rb") as file:
            if not file.read(_SNIFFED).strip() and not file.read().strip():
                raise TraceError(f"{source}: the file is empty; expected a Chrome trace (JSON)")
            file.seek(0)
            if file.read(2) == b"\x1f\x8b":
                file.seek(0)
                data: bytes | mmap.mmap = gzip.decompress(file.read())
            else:
                data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise TraceError(f"{source}: truncated or damaged gzip file: {error}") from error
    except OSError as error:
        raise TraceError(f"{source}: cannot be read: {error.strerror or error}") from error
    if isinstance(data, bytes) and not data.strip():
        raise TraceError(f"{source}: the file is empty; expected a Chrome trace (JSON)")
    yield data


def _read_as_laid_out_by_torch(data: bytes | mmap.mmap, source: str) -> Trace:
    """Cut the events apart without parsing them first: a fifth faster, and less memory.

    Each chunk must be a whole list of events in itself, so a wrong cut does not decode.

    Raises:
        msgspec.DecodeError: the layout is another, or the file is faulty.
    """
    first, last = data.find(_BEFORE_EVENTS), data.rfind(_AFTER_EVENTS)
    if not 0 <= first < last:
        raise msgspec.DecodeError("another layout")
    first += len(_BEFORE_EVENTS)
    document = _document.decode(data[:first] + data[last:])
    return _columns(document, _cut_apart(data, first, last), source)


def _cut_apart(data: bytes | mmap.mmap, first: int, last: int) -> Iterator[list[_Event]]:
    while True:
        cut = data.find(_END_OF_EVENT + _BEGIN_OF_EVENT, first + _CHUNK_BYTES, last)
        end = last if cut < 0 else cut + len(_END_OF_EVENT)
        yield _events.decode(b"[" + data[first:end] + b"]")
        if cut < 0:
            return
        first = end + 1  # after the comma


def _read_as_any_json(data: bytes | mmap.mmap, source: str) -> Trace:
    document = _document.decode(data)
    raw = document.traceEvents
    starts = range(0, max(1, len(raw)), _CHUNK)  # an empty trace has empty tables
    trace = _columns(document, (_decode_chunk(raw, first) for first in starts), source)
    # The events are views into the file's memory; it can be closed only without them.
    raw.clear()
    return trace


def _columns(document: _Document, decoded: Iterable[list[_Event]], source: str) -> Trace:
    threads, names = _Codes(), _Interned()
    chunks: dict[str, list[dict[str, Any]]] = {table: [] for table in _COLUMNS}
    flows: list[_Event] = []
    for some in decoded:
        sorted_out = _sort_out(some)
        flows += sorted_out.pop("flow")
        for table, events in sorted_out.items():
            if events:
                chunks[table].append(_chunk(table, events, threads, names))
    tables = {table: _joined(parts) or _empty(table) for table, parts in chunks.items()}
    return Trace(
        source=source,
        operators=Operators(**tables["operator"]),
        calls=Calls(**tables["call"]),
        activities=Activities(**tables["activity"]),
        waits=Waits(**tables["wait"]),
        overheads=Spans(**tables["overhead"]),
        frames=Frames(**tables["frame"]),
        flows=_flows(flows, threads),
        threads=threads.values(),
        devices=tuple(document.deviceProperties),
        recording=document.kernelprof,
        base_ns=document.baseTimeNanoseconds,
    )


def _decode_chunk(raw: list[msgspec.Raw], first: int) -> list[_Event]:
    text = b"[" + b",".join(raw[first : first + _CHUNK]) + b"]"
    try:
        return _events.decode(text)
    except msgspec.ValidationError as error:
        # The position is that in the chunk; say where it lies in the file.
        where = re.sub(r"\$\[(\d+)\]", lambda m: f"$.traceEvents[{first + int(m[1])}]", str(error))
        raise msgspec.ValidationError(where) from None


def _sort_out(events: list[_Event]) -> dict[str, list[_Event]]:
    """The events of each table; what we do not read (launch arrows, metadata) is dropped."""
    tables: dict[str, list[_Event]] = {table: [] for table in (*_COLUMNS, "flow", "")}
    add = {category: tables[_table_of(category)].append for category in {e.cat for e in events}}
    for event in events:
        if event.ph == "X":
            add[event.cat](event)
        elif event.cat == "fwdbwd":
            tables["flow"].append(event)
    del tables[""]
    return tables


def _table_of(category: str) -> str:
    known = _TABLES.get(category)
    if known is None:
        # Other back ends name their calls after themselves: xpu_runtime, mtia_runtime, ...
        known = "call" if category.endswith(("_runtime", "_driver")) else ""
        _TABLES[category] = known
    return known


_TABLES = {
    "cpu_op": "operator",
    "user_annotation": "operator",
    "kernel": "activity",
    "gpu_memcpy": "activity",
    "gpu_memset": "activity",
    "cuda_sync": "wait",
    "overhead": "overhead",
    "python_function": "frame",
}


# What each table holds beside name, start and end.
_COLUMNS: dict[str, tuple[str, ...]] = {
    "operator": ("thread", "external_id", "annotation"),
    "call": ("thread", "external_id", "correlation"),
    "activity": (
        *("kind", "correlation", "external_id", "device", "stream"),
        *("bytes", "registers", "shared_memory", "grid", "block"),
    ),
    "wait": ("correlation",),
    "overhead": (),
    "frame": ("thread",),
}


def _chunk(table: str, events: list[_Event], threads: _Codes, names: _Interned) -> dict[str, Any]:
    start = _nanoseconds([event.ts for event in events])
    length = np.rint(np.array([event.dur for event in events], np.float64) * 1e3)
    end = start + _as_int(length)
    if (end < start).any() and (length >= 0).all():
        raise ValueError("the end of an event lies beyond them")
    columns: dict[str, Any] = {
        "name": names.column(event.name for event in events),
        "start": start,
        "end": end,
    }
    arguments = _arguments(events)
    for column in _COLUMNS[table]:
        if column == "thread":
            columns[column] = threads.column(events)
        elif column == "annotation":
            flags = [event.cat == "user_annotation" for event in events]
            columns[column] = np.array(flags, np.bool_)
        elif column == "kind":
            kinds = [_ACTIVITY_KINDS[event.cat] for event in events]
            columns[column] = np.array(kinds, np.int64)
        elif column in ("grid", "block"):
            flat = itertools.chain.from_iterable(arguments[column])
            columns[column] = np.fromiter(flat, np.int64, 3 * len(events)).reshape(len(events), 3)
        else:
            columns[column] = np.array(arguments[column], np.int64)
    return columns


@functools.cache
def _empty(table: str) -> dict[str, Any]:
    """The columns of a table without rows, shared by all traces that have none."""
    return _chunk(table, [], _Codes(), _Interned())


def _arguments(events: Sequence[_Event]) -> dict[str, tuple[Any, ...]]:
    """The values of each argument: one pass over all is half the work of one pass for each."""
    rows = map(msgspec.structs.astuple, [event.args for event in events])
    values = zip(*rows, strict=True) if events else itertools.repeat(())
    return dict(zip(_Args.__struct_fields__, values, strict=False))


def _joined(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """The chunks of a table as one, sorted by start; nothing where there are none."""
    if not parts:
        return {}
    columns = parts[0]
    if len(parts) > 1:
        columns = {column: np.concatenate([part[column] for part in parts]) for column in columns}
    order = np.argsort(columns["start"], kind="stable")
    return {column: values[order] for column, values in columns.items()}


def _nanoseconds(texts: Sequence[msgspec.Raw]) -> Ints:
    """Exact int64 nanoseconds from decimal microseconds."""
    if not texts:
        return np.empty(0, np.int64)
    joined = b" ".join(texts)
    if _DECIMALS_US.fullmatch(joined):  # what Kineto writes: three decimals, always
        return np.fromstring(joined.replace(b".", b""), np.int64, sep=" ")
    from decimal import Decimal, InvalidOperation

    try:
        values = [Decimal(text) for text in joined.decode().split(" ")]
    except InvalidOperation as error:
        raise ValueError("a 'ts' is not a number of microseconds") from error
    return np.array([int((value * 1000).to_integral_value()) for value in values], np.int64)


def _as_int(values: np.ndarray[Any, np.dtype[np.float64]]) -> Ints:
    if len(values) and (not np.isfinite(values).all() or np.abs(values).max() >= 2.0**62):
        raise ValueError("a 'dur' is not a number of microseconds")
    return values.astype(np.int64)


def _flows(events: Sequence[_Event], threads: _Codes) -> Flows:
    starts = {event.id: event for event in events if event.ph == "s"}
    pairs = [
        (starts[event.id], event) for event in events if event.ph == "f" and event.id in starts
    ]
    return Flows(
        threads.column([forward for forward, _ in pairs]),
        _nanoseconds([forward.ts for forward, _ in pairs]),
        threads.column([backward for _, backward in pairs]),
        _nanoseconds([backward.ts for _, backward in pairs]),
    )


class _Codes:
    """Gives each thread id a small number, in order of appearance."""

    def __init__(self) -> None:
        self._codes: dict[int | str, int] = {}

    def column(self, events: Sequence[_Event]) -> Ints:
        codes = self._codes
        tids = [event.tid for event in events]
        for tid in set(tids):
            codes.setdefault(tid, len(codes))
        return np.fromiter(map(codes.__getitem__, tids), np.int64, len(tids))

    def values(self) -> tuple[int | str, ...]:
        return tuple(self._codes)


class _Interned:
    """Keeps one copy of each name: traces repeat a few long ones very often."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def column(self, names: Iterable[str]) -> Strings:
        known = self._names
        kept = [known.setdefault(name, name) for name in names]
        column = np.empty(len(kept), np.object_)
        column[:] = kept
        return column
