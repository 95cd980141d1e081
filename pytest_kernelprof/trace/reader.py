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
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from pytest_kernelprof.errors import TraceError
from pytest_kernelprof.schema import codec
from pytest_kernelprof.schema.recording import NOTHING_NOTED, Recording
from pytest_kernelprof.system import Real
from pytest_kernelprof.trace.model import (
    NO_ID,
    Activities,
    Calls,
    Flows,
    Frames,
    Input,
    Operators,
    Spans,
    Trace,
    Waits,
)
from pytest_kernelprof.trace.quotes import escape_quotes
from pytest_kernelprof.trace.vocabulary import (
    ACTIVITY_KINDS,
    ANNOTATION,
    FORWARD_BACKWARD,
    table_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from io import FileIO

    from pytest_kernelprof.trace.model import Ints, Strings

_DECIMALS_US = re.compile(rb"(?:-?\d{1,15}\.\d{3} ?)+")


_NOT_THERE = msgspec.Raw(b"")


class _Args(msgspec.Struct, gc=False, frozen=True):
    """The arguments that we read. Absent ids are ``NO_ID``, absent figures zero."""

    external_id: int = msgspec.field(name="External id", default=NO_ID)
    correlation: int = NO_ID
    device: int = 0
    context: int = NO_ID
    stream: int = NO_ID
    bytes: int = 0
    registers: int = msgspec.field(name="registers per thread", default=0)
    shared_memory: float = msgspec.field(name="shared memory", default=0)
    grid: tuple[int, int, int] = (0, 0, 0)
    block: tuple[int, int, int] = (0, 0, 0)


class _ArgsWithInputs(_Args, gc=False, frozen=True):
    """With ``record_shapes``. Left as text: a call that is repeated has the same text."""

    dims: msgspec.Raw = msgspec.field(name="Input Dims", default=_NOT_THERE)
    strides: msgspec.Raw = msgspec.field(name="Input Strides", default=_NOT_THERE)
    dtypes: msgspec.Raw = msgspec.field(name="Input type", default=_NOT_THERE)
    values: msgspec.Raw = msgspec.field(name="Concrete Inputs", default=_NOT_THERE)


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


class _EventWithInputs(_Event, gc=False):
    args: _ArgsWithInputs = _ArgsWithInputs()


class _Document(msgspec.Struct):
    traceEvents: list[msgspec.Raw]  # noqa: N815 (the format's own name)
    deviceProperties: list[dict[str, Any]] = []  # noqa: N815
    baseTimeNanoseconds: int = 0  # noqa: N815
    record_shapes: int = 0
    kernelprof: dict[str, Any] | None = None


_document = msgspec.json.Decoder(_Document)
_events = msgspec.json.Decoder(list[_Event])
_events_with_inputs = msgspec.json.Decoder(list[_EventWithInputs])

# Events are decoded a chunk at a time: the objects of one chunk are freed before the next, so that
# memory holds the file and the columns, and the allocator stays in the processor's cache. With
# chunks eight times as large, reading takes twice as long.
_CHUNK = 2_048
_CHUNK_BYTES = 1 << 19

# How torch lays out the file, to the newline. No JSON string holds a bare newline.
_HAS_INPUTS = b'"record_shapes"'
_BEFORE_EVENTS, _AFTER_EVENTS = b'"traceEvents": [', b"\n  ],"
_END_OF_EVENT, _BEGIN_OF_EVENT = b"\n  }", b",\n  {\n"


def read_trace(path: str | os.PathLike[str]) -> Trace:
    """Read a trace file, plain or gzip.

    Raises:
        TraceError: the file is missing, empty, truncated, not JSON, not a Chrome trace, or holds
            a value that does not fit; the message names the file, the position and the reason.
    """
    source = os.fspath(path)
    with _collector_paused():
        with contextlib.suppress(msgspec.DecodeError, ArithmeticError, ValueError):
            return _read_as_laid_out_by_torch(source)
        with _opened(source) as data:
            try:
                return _read_whole(data, source)
            except TraceError:
                with contextlib.suppress(TraceError):
                    return _read_whole(escape_quotes(bytes(data)), source)
                raise


def _read_whole(data: bytes | mmap.mmap, source: str) -> Trace:
    """Read any layout of the JSON text, and say what is wrong with it if it cannot be read."""
    try:
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
            for table, events in _sort_out(_decode_chunk(raw[i : i + 1], 0, _events)).items():
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
    with _named_errors(source), Real.file(source) as file:
        if _is_gzip(file):
            data: bytes | mmap.mmap = gzip.decompress(file.read())
        elif file.read().strip():
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        else:
            data = b""
    if isinstance(data, bytes) and not data.strip():
        raise TraceError(f"{source}: the file is empty; expected a Chrome trace (JSON)")
    yield data


@contextlib.contextmanager
def _named_errors(source: str) -> Iterator[None]:
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise TraceError(f"{source}: truncated or damaged gzip file: {error}") from error
    except OSError as error:
        raise TraceError(f"{source}: cannot be read: {error.strerror or error}") from error


def _is_gzip(file: FileIO) -> bool:
    magic = file.read(2)
    file.seek(0)
    return magic == b"\x1f\x8b"


def _read_as_laid_out_by_torch(source: str) -> Trace:
    """Cut the events apart without parsing them first, and decode them in one buffer that is
    used again and again: memory never holds the file, nor takes fresh pages for each chunk.

    Each chunk must be a whole list of events in itself, so a wrong cut does not decode.

    Raises:
        msgspec.DecodeError: the layout is another, or the file is faulty.
    """
    with _named_errors(source), Real.file(source) as file:
        text = gzip.GzipFile(fileobj=file) if _is_gzip(file) else file
        stream = _EventStream(text)
        columns = _columns(stream)
    return _trace(columns, stream.document(), source)


def _decoder(with_inputs: bool) -> msgspec.json.Decoder[Any]:
    """More fields cost time with every event, so they are read only where there are any."""
    return _events_with_inputs if with_inputs else _events


class _EventStream:
    """Chunks of events, then the document that was around them.

    A chunk's raw parts lie in the buffer: they are gone with the next chunk.
    """

    def __init__(self, file: FileIO | gzip.GzipFile) -> None:
        self._file = file
        self._buffer = bytearray(_CHUNK_BYTES)
        self._filled = 1  # the first byte is kept for the bracket that opens a list
        self._around = b""
        self._decoder = _decoder(False)

    def __iter__(self) -> Iterator[list[_Event]]:
        self._fill()
        first = self._buffer.find(_BEFORE_EVENTS, 0, self._filled)
        if first < 0:
            raise msgspec.DecodeError("another layout")
        first += len(_BEFORE_EVENTS)
        head = bytes(self._buffer[1:first])
        self._decoder = _decoder(_HAS_INPUTS in head)
        self._drop(first)
        more = True
        while more:
            more = self._fill()
            cut = self._buffer.rfind(_END_OF_EVENT + _BEGIN_OF_EVENT, 0, self._filled)
            if more and cut >= 0:
                yield self._decode(cut + len(_END_OF_EVENT))
                self._drop(cut + len(_END_OF_EVENT) + 1)  # the comma as well
        last = self._buffer.rfind(_AFTER_EVENTS, 0, self._filled)
        if last < 0:
            raise msgspec.DecodeError("another layout")
        self._around = head + self._buffer[last : self._filled]
        yield self._decode(last)

    def document(self) -> _Document:
        return _document.decode(self._around)

    def _decode(self, end: int) -> list[_Event]:
        held = self._buffer[end]
        self._buffer[0], self._buffer[end] = b"[]"
        with memoryview(self._buffer) as view:
            events: list[_Event] = self._decoder.decode(view[: end + 1])
        self._buffer[end] = held
        return events

    def _drop(self, end: int) -> None:
        """Move what lies after ``end`` to the front."""
        rest = self._filled - end
        self._buffer[1 : 1 + rest] = self._buffer[end : self._filled]
        self._filled = 1 + rest

    def _fill(self) -> bool:
        """Fill the buffer, or make it larger; False at the end of the file."""
        if self._filled == len(self._buffer):
            self._buffer = self._buffer + bytearray(len(self._buffer))
        with memoryview(self._buffer) as view:
            while self._filled < len(view):
                read = self._file.readinto(view[self._filled :])
                if not read:
                    return False
                self._filled += read
        return True


def _read_as_any_json(data: bytes | mmap.mmap, source: str) -> Trace:
    document = _document.decode(data)
    raw = document.traceEvents
    starts = range(0, max(1, len(raw)), _CHUNK)  # an empty trace has empty tables
    decoder = _decoder(bool(document.record_shapes))
    columns = _columns(_decode_chunk(raw, first, decoder) for first in starts)
    # The events are views into the file's memory; it can be closed only without them.
    raw.clear()
    return _trace(columns, document, source)


@dataclass
class _AllColumns:
    """The joined tables by name, and what is shared by them."""

    tables: dict[str, dict[str, Any]]
    flows: Flows
    threads: tuple[int | str, ...]


def _columns(decoded: Iterable[list[_Event]]) -> _AllColumns:
    threads, names, inputs = _Codes(), _Interned(), _Inputs()
    chunks: dict[str, list[dict[str, Any]]] = {table: [] for table in _COLUMNS}
    flows: list[_Event] = []
    for some in decoded:
        sorted_out = _sort_out(some)
        for flow in sorted_out.pop("flow"):
            flow.ts = flow.ts.copy()  # its chunk will be gone
            flows.append(flow)
        for table, events in sorted_out.items():
            if events:
                chunks[table].append(_chunk(table, events, threads, names))
                if table == "operator":
                    inputs.add(events)
    inputs.put_into(chunks["operator"])
    tables = {table: _joined(parts) or _empty(table) for table, parts in chunks.items()}
    return _AllColumns(tables, _flows(flows, threads), threads.values())


def _trace(columns: _AllColumns, document: _Document, source: str) -> Trace:
    tables = columns.tables
    return Trace(
        source=source,
        operators=Operators(**tables["operator"]),
        calls=Calls(**tables["call"]),
        activities=Activities(**tables["activity"]),
        waits=Waits(**tables["wait"]),
        overheads=Spans(**tables["overhead"]),
        frames=Frames(**tables["frame"]),
        flows=columns.flows,
        threads=columns.threads,
        devices=tuple(document.deviceProperties),
        recording=_recording(document.kernelprof, source),
        base_ns=document.baseTimeNanoseconds,
    )


def _recording(noted: dict[str, Any] | None, source: str) -> Recording:
    """Our own notes beside the events; nothing is noted in a trace from elsewhere."""
    if noted is None:
        return NOTHING_NOTED
    try:
        return codec.from_builtins(noted, Recording)
    except ValueError as error:
        raise TraceError(
            f"{source}: the notes under 'kernelprof' are none of ours: {error}; take them out to "
            "read the events alone"
        ) from None


def _decode_chunk(
    raw: list[msgspec.Raw], first: int, decoder: msgspec.json.Decoder[Any]
) -> list[_Event]:
    text = b"[" + b",".join(raw[first : first + _CHUNK]) + b"]"
    try:
        events: list[_Event] = decoder.decode(text)
        return events
    except msgspec.ValidationError as error:
        # The position is that in the chunk; say where it lies in the file.
        where = re.sub(r"\$\[(\d+)\]", lambda m: f"$.traceEvents[{first + int(m[1])}]", str(error))
        raise msgspec.ValidationError(where) from None


def _sort_out(events: list[_Event]) -> dict[str, list[_Event]]:
    """The events of each table; what we do not read (launch arrows, metadata) is dropped."""
    tables: dict[str, list[_Event]] = {table: [] for table in (*_COLUMNS, "flow", "")}
    add = {category: tables[table_of(category)].append for category in {e.cat for e in events}}
    for event in events:
        if event.ph == "X":
            add[event.cat](event)
        elif event.cat == FORWARD_BACKWARD:
            tables["flow"].append(event)
    del tables[""]
    return tables


# What each table holds beside name, start and end.
_COLUMNS: dict[str, tuple[str, ...]] = {
    "operator": ("thread", "external_id", "annotation"),
    "call": ("thread", "external_id", "correlation"),
    "activity": (
        *("kind", "correlation", "external_id", "device", "context", "stream"),
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
            flags = [event.cat == ANNOTATION for event in events]
            columns[column] = np.array(flags, np.bool_)
        elif column == "kind":
            kinds = [ACTIVITY_KINDS[event.cat] for event in events]
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


class _Inputs:
    """The arguments of operators, chunk by chunk; each different text is decoded once."""

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, ...], tuple[Input, ...]] = {}
        self._chunks: list[Strings | None] = []

    def add(self, events: Sequence[_Event]) -> None:
        """Read a chunk of operators, while its text is there."""
        if not isinstance(events[0], _EventWithInputs):
            self._chunks.append(None)
            return
        column = np.full(len(events), None, np.object_)
        for i, event in enumerate(events):
            if isinstance(event.args, _ArgsWithInputs) and event.args.dims is not _NOT_THERE:
                column[i] = self._decoded(event.args)
        self._chunks.append(column)

    def _decoded(self, args: _ArgsWithInputs) -> tuple[Input, ...]:
        key = (bytes(args.dims), bytes(args.strides), bytes(args.dtypes), bytes(args.values))
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = _inputs(*key)
        return found

    def put_into(self, parts: list[dict[str, Any]]) -> None:
        """Add the column to the chunks of operators; not at all where no chunk has any."""
        if all(column is None for column in self._chunks):
            return
        for part, column in zip(parts, self._chunks, strict=True):
            empty = np.full(len(part["start"]), None, np.object_)
            part["inputs"] = empty if column is None else column


def _inputs(dims: bytes, strides: bytes, dtypes: bytes, values: bytes) -> tuple[Input, ...]:
    """The arguments of one operator; lists of tensors have no shape of their own."""
    shapes = msgspec.json.decode(dims, type=list[Any])
    count = len(shapes)
    columns = [
        (msgspec.json.decode(text, type=list[Any]) if text else []) + [""] * count
        for text in (strides, dtypes, values)
    ]
    return tuple(
        Input(_whole_numbers(shape), _whole_numbers(stride), str(dtype), str(value))
        for shape, stride, dtype, value in zip(shapes, *columns, strict=False)
    )


def _whole_numbers(values: Any) -> tuple[int, ...]:
    are = isinstance(values, list) and all(isinstance(value, int) for value in values)
    return tuple(values) if are else ()


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
