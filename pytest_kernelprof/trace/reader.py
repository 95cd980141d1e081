"""Reads a Chrome trace file into the columns of a ``Trace``.

A file as torch lays it out is cut into chunks of events without parsing it first. Memory then
never holds the file, nor takes fresh pages for each chunk: all are decoded in one buffer.

The profiler writes some names without escaping the quotes in them, which makes its file no JSON.
Kineto replaces newlines and backslashes in a name, quotes not: in an annotation ``say "hi"``, a
folder, file or class of that name. The name ends its line, or (torch 2.11) the numbers of the
process and the thread do. torch 2.15 replaces them in names, but not in the file that a recorded
frame was called from, which numbers follow.
"""

from __future__ import annotations

import contextlib
import gc
import mmap
import os
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import fields
from typing import Any

import msgspec
import numpy as np

from pytest_kernelprof.errors import TraceError
from pytest_kernelprof.records import codec
from pytest_kernelprof.records.recording import NOTHING_NOTED, Recording
from pytest_kernelprof.trace import columns, events
from pytest_kernelprof.trace.columns import Announced, Flows, Ints, Trace, array
from pytest_kernelprof.trace.events import Args, Arrow, Chunk, Decoder, Event, InputsRead, Span
from pytest_kernelprof.trace.trace_text import MOST_BYTES, Text, opened, whole
from pytest_kernelprof.trace.vocabulary import back_end_of

_NAME = re.compile(
    rb'^([^"\n]*(?:"ph": "X", "cat": "[^"\n]*", )?"(?:name|traceName|CallFrom)": ")(.*)$',
    re.MULTILINE,
)
_END = re.compile(rb'"(?:, "pid": [^"]*, "tid": [^"]*,|(?:, "[^"]*": -?\d+)+|,| *})?$')
_BARE_QUOTE = re.compile(rb'(?<!\\)"')


def escape_quotes(text: bytes) -> bytes:
    """The text of a trace, with the bare quotes in its names escaped: in time that grows with its
    length alone, whatever it holds."""
    return _NAME.sub(_escaped, text)


def _escaped(line: re.Match[bytes]) -> bytes:
    end = _END.search(line[2])
    if end is None:
        return line[0]
    name = line[2][: end.start()]
    return line[1] + _BARE_QUOTE.sub(rb'\\"', name) + end[0]


# The objects of a chunk twice as large leave the processor's cache.
_CHUNK_BYTES = 1 << 18
_LONGEST_EVENT = 1 << 26

# With each event on lines of its own, as torch and others lay out the file, or all on one line. The
# groups are what separates two events: after the comma, or before the braces where that is a line.
HAS_INPUTS, _INPUTS = b'"record_shapes"', b'"Input Dims"'
_EVENTS_KEY = re.compile(rb'"traceEvents"')
_BEFORE_EVENTS = re.compile(_EVENTS_KEY.pattern + rb":( ?)\[(?=(?:\s*(\n +))?\{)")
_AFTER_EVENTS = rb"(?=\s*\]\s*[,}])"
_AS_TORCH = b"\n  "  # which says in front whether there are inputs, and indents all else by more


class Chunks:
    """Chunks of events, then the text that was around them.

    A chunk's raw parts lie in the buffer: they are gone with the next chunk. Each has to be a whole
    list of events in itself, so a wrong cut does not decode.
    """

    def __init__(self, text: Text, inputs: InputsRead) -> None:
        """``inputs``: what is read of them, where the file has any."""
        self._text = text
        self._inputs = inputs
        self._buffer = bytearray(_CHUNK_BYTES)
        self._filled = 1  # the first byte is kept for the bracket that opens a list
        self.decoder = events.Decoder("none")
        self.around = b""
        """What is around the events, once they have been read: a document without any."""

    def __iter__(self) -> Iterator[Chunk]:
        """Raises msgspec.DecodeError: the layout is another, or the file is faulty."""
        self._fill()
        before = _BEFORE_EVENTS.search(self._buffer, 0, self._filled)
        if before is None:
            raise msgspec.DecodeError("another layout")
        (space, line), head = before.groups(b""), bytes(self._buffer[1 : before.end()])
        has_inputs = HAS_INPUTS in head or (line != _AS_TORCH and _INPUTS in self._buffer)
        self.decoder = events.Decoder(self._inputs if has_inputs else "none")
        self._drop(before.end())
        more, end, begin = True, line + b"}", b"," + (line + b"{" if line else space + b'{"')
        while more:
            more = self._fill()
            cut = self._buffer.rfind(end + begin, 0, self._filled)
            if more and cut >= 0:
                yield self._decode(cut + len(end))
                self._drop(cut + len(end) + 1)  # the comma as well
        first = max(0, cut) if line == _AS_TORCH else 0
        after = re.compile(re.escape(end) + _AFTER_EVENTS).search(self._buffer, first, self._filled)
        around = head + self._buffer[after.end() : self._filled] if after else b""
        once = len(_EVENTS_KEY.findall(around)) == 1
        if after is None or not once or has_inputs != (HAS_INPUTS in around):
            raise msgspec.DecodeError("another layout")
        self.around = escape_quotes(around) if line else around  # it knows a name by its line
        yield self._decode(after.end())

    def _decode(self, end: int) -> Chunk:
        held = self._buffer[end]
        self._buffer[0], self._buffer[end] = b"[]"
        try:
            with memoryview(self._buffer) as view:
                return self.decoder.decode(view[: end + 1])
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            return self.decoder.decode(escape_quotes(bytes(self._buffer[: end + 1])))
        finally:
            self._buffer[end] = held

    def _drop(self, end: int) -> None:
        """Move what lies after ``end`` to the front."""
        rest = self._filled - end
        self._buffer[1 : 1 + rest] = self._buffer[end : self._filled]
        self._filled = 1 + rest

    def _fill(self) -> bool:
        """Fill the buffer, or make it larger; False at the end of the file."""
        if self._filled == len(self._buffer):
            if self._filled >= _LONGEST_EVENT:
                raise msgspec.DecodeError("another layout")
            self._buffer = self._buffer + bytearray(len(self._buffer))
        with memoryview(self._buffer) as view:
            while self._filled < len(view):
                read = self._text.readinto(view[self._filled :])
                if not read:
                    return False
                self._filled += read
        return True


SIZES = ("grid", "block")
_IDS = ("external_id", "correlation")
_NARROW = (*SIZES, "device", "registers")
# Kineto writes 0 where it knows no id.
_NO_IDS_BELOW = 1


class DoesNotFitError(ValueError):
    """A value that is read is none of its kind; the message ends with the field."""


def column_of(name: str, values: Sequence[Any]) -> Any:
    """Whole numbers, or texts of them, of a field.

    Raises:
        DoesNotFitError: one is none, or does not fit.
    """
    try:
        found = array(values, np.int64)
    except (ValueError, TypeError, OverflowError):
        found = array([number_of(name, value) for value in values], np.int64)
    return np.where(found < _NO_IDS_BELOW, columns.NO_ID, found) if name in _IDS else found


def number_of(name: str, value: Any) -> int:
    """A number, or the text of one: ROCm writes "2560" and "0x0".

    Raises:
        DoesNotFitError: it is none, or does not fit the bits that the field has.
    """
    try:
        found = int(value, 0) if isinstance(value, str) else int(value)
    except (ValueError, TypeError, OverflowError):
        raise DoesNotFitError(f"Expected a number, got {value!r:.60} - at args.{name}") from None
    if found.bit_length() >= (bits := 32 if name in _NARROW else 64):
        raise DoesNotFitError(f"Expected a number of {bits} bits - at args.{name}")
    return found


def size_of(name: str, size: Any) -> tuple[int, int, int]:
    """A grid or a block.

    Raises:
        DoesNotFitError: it is not three numbers of 32 bits.
    """
    if not (isinstance(size, tuple) and len(size) == 3 and all(map(_is_number, size))):
        raise DoesNotFitError(f"Expected three numbers, got {size!r:.60} - at args.{name}")
    x, y, z = (number_of(name, one) for one in size)
    return x, y, z


def _is_number(value: Any) -> bool:
    """Whether it is a number of JSON."""
    return isinstance(value, (int, float))


# How an activity is launched: where, which columns compare, and with what, which is only shown.
_SHOWN = ("registers", "shared_memory", *SIZES)
_WAY = ("device", "context", "stream", *_SHOWN)


_Thread = tuple[int | str, int | str]


class Threads(dict[_Thread, int]):
    """Gives each pair of process and thread a small number, in order of appearance."""

    def __init__(self) -> None:
        self.known = columns.Different[_Thread]()

    def __missing__(self, pair: _Thread) -> int:
        process, thread = pair
        number = self[pair] = self.known[_plain_number(process), _plain_number(thread)]
        return number

    def of(self, there: Sequence[Span | Arrow]) -> Ints:
        """The number of each event's thread."""
        return columns.numbered(self, [(event.pid, event.tid) for event in there])


def _plain_number(value: int | str) -> int | str:
    """Old files write numbers as text in some places: "24572" is 24572."""
    return int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 20 else value


class Ways(columns.Different[Any]):
    """Numbers the different ways in which activities are launched, as ``_WAY`` lists them.

    Most kernels are launched again and again; so they cost one look-up and not one a field.
    """

    def __init__(self) -> None:
        self._known: list[tuple[Any, ...]] = []

    def __missing__(self, way: tuple[Any, ...]) -> int:
        fields = [
            size_of(name, value) if name in SIZES else number_of(name, value)
            for name, value in zip(_WAY, way, strict=True)
        ]
        self._known.append(tuple(fields))
        return super().__missing__(way)

    def codes(self, args: Sequence[Args]) -> Ints:
        """The number of each activity's way."""
        ways = [
            (a.device, a.context, a.stream, a.registers, a.shared_memory, a.grid, a.block)
            for a in args
        ]
        try:
            return columns.numbered(self, ways)
        except TypeError:  # chunks that are decoded leniently have lists
            return columns.numbered(self, [tuple(map(_as_key, way)) for way in ways])

    def columns(self, codes: Ints) -> dict[str, Any]:
        """The columns of ``_WAY`` for the activities of these numbers."""
        values = {name: [way[i] for way in self._known] for i, name in enumerate(_WAY)}
        return {
            name: columns.Coded(codes, of_ways)
            if name in _SHOWN
            else array(of_ways, np.int32 if name in _NARROW else np.int64)[codes]
            for name, of_ways in values.items()
        }


def _as_key(value: Any) -> Any:
    if isinstance(value, list) and all(map(_is_number, value)):
        return tuple(value)
    return str(value) if isinstance(value, list | dict) else value


_DECIMALS_US = re.compile(rb"-?\d{1,15}\.\d{3}(?: -?\d{1,15}\.\d{3})*")
_WHOLE_US = re.compile(rb"-?\d{1,15}(?: -?\d{1,15})*")
_NO_TIME = "a 'ts' is not a number of microseconds that fits 64 bits - at ts"
_NUMBER = re.compile(rb"-?\d{1,40}(?:\.\d{0,40})?(?:[eE][+-]?\d{1,3})?")


# What a trace calls its tables, in the order of ``events.TABLES``.
_TABLES = {
    "operators": columns.Operators,
    "calls": columns.Calls,
    "activities": columns.Activities,
    "waits": columns.Waits,
    "overheads": columns.Spans,
    "frames": columns.Frames,
}


class Builder:
    """Takes events and turns them into columns."""

    def __init__(self) -> None:
        self._threads = Threads()
        self._names = columns.Different[str]()
        self._inputs = events.Inputs()
        self._ways = Ways()
        self._announced: columns.Different[Announced | None] = columns.Different()
        self._announced[None]  # 0 is an activity without an announcement
        self._spans: list[dict[str, Any]] = []
        self._activities: list[dict[str, Any]] = []
        self._arrows: list[tuple[bool, Any, int, int]] = []

    def add(self, chunk: Chunk) -> None:
        """Read a chunk; its events are needed no more afterwards.

        Raises:
            ValueError, ArithmeticError: a value does not fit; ``DoesNotFitError`` names it.
        """
        spans = chunk.spans
        start = nanoseconds([one.ts for one in spans])
        of_spans = {
            "category": chunk.categories,
            "name": columns.numbered(self._names, [one.name for one in spans]),
            "start": start,
            "end": _ends(start, [one.dur for one in spans]),
            "thread": self._threads.of(spans),
            "external_id": column_of("external_id", [one.args.external_id for one in spans]),
            "correlation": column_of("correlation", [one.args.correlation for one in spans]),
        }
        self._spans.append(of_spans | self._inputs.columns(spans))
        args, announced = [one.args for one in chunk.activities], chunk.announced
        of_activities = {
            "bytes": column_of("bytes", [one.bytes for one in args]),
            "way": self._ways.codes(args),
            "announced": columns.numbered(self._announced, announced)
            if announced
            else np.zeros(len(args), np.int32),
        }
        self._activities.append(of_activities)
        self._arrows += zip(
            [not isinstance(one, events.ArrowEnd) for one in chunk.arrows],
            [one.id for one in chunk.arrows],
            self._threads.of(chunk.arrows).tolist(),
            nanoseconds([one.ts for one in chunk.arrows]).tolist(),
            strict=True,
        )

    def trace(self, document: _Document, source: str, categories: Collection[str]) -> Trace:
        """The trace of all chunks, each table sorted by start.

        Args:
            document: what is around them. categories: all that they have.
        """
        processes = [process for process, _ in self._threads.known]
        process_of_thread = columns.numbered(columns.Different(), processes).astype(np.int64)
        tables = self._tables(process_of_thread)
        return columns.Trace(
            source=source,
            **tables,
            flows=_flows(self._arrows),
            threads=tuple(thread for _, thread in self._threads.known),
            process_of_thread=process_of_thread,
            devices=_devices(document),
            recording=_recording(document.kernelprof, source),
            back_end=back_end_of(categories, tables["calls"].name.distinct()),
            categories=frozenset(categories),
            rank=_rank(document),
        )

    def _tables(self, process_of_thread: Ints) -> dict[str, Any]:
        """Each table, sorted by start."""
        spans, activities = _joined(self._spans), _joined(self._activities)
        table_of_span, spans["kind"] = np.divmod(spans.pop("category"), events.KINDS)
        spans["annotation"] = spans["kind"].astype(np.bool_)
        spans["name"] = columns.Names(spans["name"], tuple(self._names))
        if "inputs" in spans:
            spans["inputs"] = columns.Coded(spans["inputs"], self._inputs.known)
        activities |= self._ways.columns(activities.pop("way"))
        announced = activities.pop("announced")
        if len(self._announced) > 1:
            activities["announced"] = columns.Coded(announced, tuple(self._announced))
        tables = {}
        for number, (name, table) in enumerate(_TABLES.items()):
            rows = (table_of_span == number).nonzero()[0]
            order = np.argsort(spans["start"][rows], kind="stable")
            rows = rows[order]
            found = {one.name: spans[one.name][rows] for one in fields(table) if one.name in spans}
            if table is columns.Activities:
                found |= {one: column[order] for one, column in activities.items()}
            if table in (columns.Activities, columns.Waits):
                found["process"] = process_of_thread[spans["thread"][rows]]
            tables[name] = table(**found)
        return tables


def _ends(start: Ints, durations: Sequence[float]) -> Ints:
    length = np.rint(array(durations, np.float64) * 1e3)
    if not np.abs(length).max(initial=0.0) < 2.0**62:  # nor is what is no number
        raise DoesNotFitError("a 'dur' is not a number of microseconds that fits 64 bits - at dur")
    end: Ints = start + length.astype(np.int64)
    if (end < start).any() and (length >= 0).all():
        raise ValueError("the end of an event lies beyond them")
    return end


def nanoseconds(times: Sequence[msgspec.Raw | float]) -> Ints:
    """Exact int64 nanoseconds from decimal microseconds: text, or floats that lie close enough."""
    if all(isinstance(one, float) for one in times[:1]):
        us = array(times, np.float64)
        if np.isnan(us).any():
            raise DoesNotFitError(_NO_TIME)
        whole = np.floor(us)
        found: Ints = whole.astype(np.int64) * 1000
        found += np.rint((us - whole) * 1e3).astype(np.int64)
        return found
    return _nanoseconds_of_texts(times)  # type: ignore[arg-type]


def _nanoseconds_of_texts(texts: Sequence[msgspec.Raw]) -> Ints:
    joined = b" ".join(texts)
    if _DECIMALS_US.fullmatch(joined):  # what Kineto writes: three decimals, always
        return np.fromstring(joined.replace(b".", b""), np.int64, sep=" ")
    if _WHOLE_US.fullmatch(joined):  # what it wrote before 2024
        return np.fromstring(joined, np.int64, sep=" ") * 1000
    from decimal import Decimal

    for text in texts:  # of 1e900000 the digits alone would take a minute
        if not _NUMBER.fullmatch(text):
            raise DoesNotFitError(_NO_TIME)
    values = [Decimal(bytes(text).decode()) for text in texts]
    return np.array([int((value * 1000).to_integral_value()) for value in values], np.int64)


def _joined(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """The chunks as one, column by column, so that memory holds one of them twice and not all.

    A chunk without rows may have fewer columns.
    """
    names = {name for part in parts for name in part}
    return {
        name: np.concatenate([part.pop(name) for part in parts if name in part]) for name in names
    }


def _flows(arrows: Sequence[tuple[bool, Any, int, int]]) -> Flows:
    """Each arrow's end with the beginning of the same id."""
    begins = {one: (thread, at) for forward, one, thread, at in arrows if forward}
    pairs = [
        (*begins[one], thread, at)
        for forward, one, thread, at in arrows
        if not forward and one in begins
    ]
    return columns.Flows(*np.array(pairs, np.int64).reshape(-1, 4).T)


# Events are decoded a chunk at a time: the objects of one chunk are freed before the next.
_CHUNK = 2_048
_MOST_TRIED_TWICE = 1 << 28


class _Document(msgspec.Struct):
    traceEvents: list[msgspec.Raw]  # noqa: N815 (the format's own name)
    deviceProperties: Any = None  # noqa: N815
    computeProperties: Any = None  # noqa: N815 (what Kineto wrote in 2021)
    distributedInfo: Any = None  # noqa: N815
    record_shapes: Any = 0
    kernelprof: dict[str, Any] | None = None


_document = msgspec.json.Decoder(_Document)
_list_of_events = msgspec.json.Decoder(list[msgspec.Raw])
_NOT_ITS_FORM = (msgspec.DecodeError, ArithmeticError, ValueError, RecursionError)


def read_trace(
    path: str | os.PathLike[str], *, max_bytes: int = MOST_BYTES, inputs: InputsRead = "presence"
) -> Trace:
    """Read a trace file, plain or gzip.

    Args:
        max_bytes: more than that is not unpacked.
        inputs: whether operators' inputs are read, or only which operators have some.

    Raises:
        TraceError: the file is missing, empty, truncated, not regular, larger than ``max_bytes``,
            not JSON, not a Chrome trace, or holds a value that does not fit; the message names the
            file, the position and the reason.
    """
    source = os.fspath(path)
    with _collector_paused():
        with contextlib.suppress(*_NOT_ITS_FORM):
            return _read_in_chunks(source, max_bytes, inputs)
        data = whole(source, max_bytes)
        try:
            return _read_whole(data, source, inputs)
        except TraceError:
            if len(data) <= _MOST_TRIED_TWICE:
                with contextlib.suppress(TraceError):
                    return _read_whole(escape_quotes(bytes(data)), source, inputs)
            raise


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


def _read_in_chunks(source: str, most: int, inputs: InputsRead) -> Trace:
    """Raises msgspec.DecodeError: the layout is another, or the file is faulty."""
    builder = Builder()
    with opened(source, most) as text:
        chunks = Chunks(text, inputs)
        for chunk in chunks:
            builder.add(chunk)
    return builder.trace(_document.decode(chunks.around), source, chunks.decoder.categories)


def _read_whole(data: bytes | mmap.mmap, source: str, inputs: InputsRead) -> Trace:
    """Read any layout of the JSON text, and say what is wrong with it if it cannot be read."""
    try:
        return _read_as_any_json(data, source, inputs)
    except msgspec.ValidationError as error:
        raise TraceError(
            f"{source}: not a Chrome trace of torch.profiler: {error}; expected a JSON object "
            "whose 'traceEvents' is a list of events, or that list"
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise TraceError(f"{source}: not JSON, or cut off: {_where(error, data)}") from None
    except RecursionError:
        raise TraceError(
            f"{source}: not a Chrome trace of torch.profiler: its values are nested too deeply"
        ) from None


def _read_as_any_json(data: bytes | mmap.mmap, source: str, inputs: InputsRead) -> Trace:
    document = _decoded_document(data)
    raw = document.traceEvents
    if not raw:
        raise msgspec.ValidationError("`$.traceEvents` is empty")
    decoder, builder = events.Decoder(inputs if document.record_shapes else "none"), Builder()
    for first in range(0, len(raw), _CHUNK):
        chunk = _decode_chunk(raw, first, decoder)
        try:
            builder.add(chunk)
        except (ArithmeticError, ValueError) as error:
            raise _named(source, chunk.events, first, error) from None
    # The events are views into the file's memory; it can be closed only without them.
    raw.clear()
    return builder.trace(document, source, decoder.categories)


def _decoded_document(data: bytes | mmap.mmap) -> _Document:
    """The document without its events decoded; torch 1.8.1 wrote the list of them alone."""
    first = re.match(rb"\s*(.)", data, re.DOTALL)
    if first is not None and first[1] == b"[":
        return _Document(_list_of_events.decode(data))
    document = _document.decode(data)
    if (keys := len(_EVENTS_KEY.findall(data))) > 1:
        # Of a key that stands there twice one is lost; in a text or deeper down it is no key.
        parts = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        if keys - sum(len(_EVENTS_KEY.findall(part)) for part in parts.values()) > 1:
            raise msgspec.ValidationError("the key 'traceEvents' is there twice")
    return document


def _decode_chunk(raw: list[msgspec.Raw], first: int, decoder: Decoder) -> Chunk:
    try:
        return decoder.decode(b"[" + b",".join(raw[first : first + _CHUNK]) + b"]")
    except msgspec.ValidationError as error:
        # The position is that in the chunk; say where it lies in the file.
        where = re.sub(r"\$\[(\d+)\]", lambda m: f"$.traceEvents[{first + int(m[1])}]", str(error))
        raise msgspec.ValidationError(where) from None


def _named(source: str, chunk: Sequence[Event], first: int, error: Exception) -> Exception:
    """The error with the event of the chunk in which it lies."""
    for i, event in enumerate(chunk):
        try:
            Builder().add(events.sort_out([event], events.Categories()))
        except msgspec.ValidationError as wrong:  # noqa: PERF203 (only once there is an error)
            return msgspec.ValidationError(f"{wrong} - at `$.traceEvents[{first + i}].args`")
        except DoesNotFitError as wrong:
            words, _, field = str(wrong).partition(" - at ")
            return msgspec.ValidationError(f"{words} - at `$.traceEvents[{first + i}].{field}`")
        except (ArithmeticError, ValueError) as wrong:
            where = f"a number in traceEvents[{first + i}]"
            return TraceError(f"{source}: {where} does not fit 64 bits ({wrong})")
    return TraceError(f"{source}: a number in traceEvents does not fit 64 bits ({error})")


def _where(error: Exception, data: bytes | mmap.mmap) -> str:
    """The error with the byte at which it lies, also where its own words do not say."""
    if "truncated" in str(error):
        return f"{error} at byte {len(data)}"
    found = _byte_that_is_no_text(data) if isinstance(error, UnicodeDecodeError) else None
    return str(error) if found is None else f"not UTF-8 at byte {found}"


def _byte_that_is_no_text(data: bytes | mmap.mmap) -> int | None:
    for line in re.finditer(rb"[^\n]+", data):  # no other character has that byte in it
        try:
            line[0].decode()
        except UnicodeDecodeError as error:  # noqa: PERF203 (only once there is an error)
            return line.start() + error.start
    return None


def _rank(document: _Document) -> int | None:
    """Which one of ``torch.distributed`` it is of, as the profiler wrote it."""
    noted = document.distributedInfo
    rank = noted.get("rank") if isinstance(noted, dict) else None
    return rank if type(rank) is int and rank >= 0 else None


def _devices(document: _Document) -> tuple[dict[str, Any], ...]:
    listed = document.deviceProperties or document.computeProperties
    listed = listed if isinstance(listed, list) else []
    return tuple(one for one in listed if isinstance(one, dict))


def _recording(noted: Any, source: str) -> Recording:
    """Our own notes beside the events; nothing is noted in a trace from elsewhere."""
    if noted is None:
        return NOTHING_NOTED
    try:
        return codec.from_builtins(noted, Recording)
    except (ValueError, ArithmeticError, TypeError) as error:
        raise TraceError(
            f"{source}: the notes under 'kernelprof' are not from pytest-kernelprof: {error}; "
            "remove them to read only the events"
        ) from None
