"""Reads the Chrome trace that ``export_chrome_trace`` writes into the columns of a ``Trace``."""

from __future__ import annotations

import codecs
import contextlib
import gc
import os
import re
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from pytest_kernelprof.errors import TraceError
from pytest_kernelprof.schema import codec
from pytest_kernelprof.schema.recording import NOTHING_NOTED, Recording, believable
from pytest_kernelprof.trace.columns import Builder
from pytest_kernelprof.trace.events import Decoder, sort_out
from pytest_kernelprof.trace.layout import LaidOutByTorch, escape_quotes
from pytest_kernelprof.trace.model import Activities, Calls, Frames, Operators, Spans, Trace, Waits
from pytest_kernelprof.trace.source import MOST_BYTES, opened, whole
from pytest_kernelprof.trace.values import DoesNotFitError
from pytest_kernelprof.trace.vocabulary import back_end_of

if TYPE_CHECKING:
    import mmap
    from collections.abc import Iterator, Sequence

    from pytest_kernelprof.trace.columns import Tables
    from pytest_kernelprof.trace.events import Chunk, Event, InputsRead

# Events are decoded a chunk at a time: the objects of one chunk are freed before the next.
_CHUNK = 2_048
_MOST_TRIED_TWICE = 1 << 28
_EVENTS = re.compile(rb'"traceEvents"')


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
    path: str | os.PathLike[str],
    *,
    max_bytes: int = MOST_BYTES,
    inputs: InputsRead = "presence",
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
            return _read_as_laid_out_by_torch(source, max_bytes, inputs)
        with whole(source, max_bytes) as data:
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


def _read_as_laid_out_by_torch(source: str, most: int, inputs: InputsRead) -> Trace:
    """Raises msgspec.DecodeError: the layout is another, or the file is faulty."""
    builder = Builder()
    with opened(source, most) as text:
        chunks = LaidOutByTorch(text, inputs)
        for chunk in chunks:
            builder.add(chunk)
    tables = builder.finish()
    return _trace(tables, _document.decode(chunks.around), source)


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
    decoder, builder = Decoder(inputs if document.record_shapes else "none"), Builder()
    for first in range(0, len(raw), _CHUNK):
        chunk = _decode_chunk(raw, first, decoder)
        try:
            builder.add(chunk)
        except (ArithmeticError, ValueError) as error:
            raise _named(source, chunk.events, first, error) from None
    # The events are views into the file's memory; it can be closed only without them.
    raw.clear()
    return _trace(builder.finish(), document, source)


def _decoded_document(data: bytes | mmap.mmap) -> _Document:
    """The document without its events decoded; torch 1.8.1 wrote the list of them alone."""
    first = re.match(rb"\s*(.)", data, re.DOTALL)
    if first is not None and first[1] == b"[":
        return _Document(_list_of_events.decode(data))
    document = _document.decode(data)
    if len(_EVENTS.findall(data)) > 1:
        _refuse_second_events(data)
    return document


def _refuse_second_events(data: bytes | mmap.mmap) -> None:
    """Of a key that stands there twice one is lost; in a text or deeper down it is no key."""
    parts = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    deeper = sum(len(_EVENTS.findall(part)) for part in parts.values())
    if len(_EVENTS.findall(data)) - deeper > 1:
        raise msgspec.ValidationError("the key 'traceEvents' is there twice")


def _decode_chunk(raw: list[msgspec.Raw], first: int, decoder: Decoder) -> Chunk:
    try:
        return decoder.decode(b"[" + b",".join(raw[first : first + _CHUNK]) + b"]")
    except msgspec.ValidationError as error:
        # The position is that in the chunk; say where it lies in the file.
        where = re.sub(r"\$\[(\d+)\]", lambda m: f"$.traceEvents[{first + int(m[1])}]", str(error))
        raise msgspec.ValidationError(where) from None


def _named(source: str, events: Sequence[Event], first: int, error: Exception) -> Exception:
    """The error with the event of the chunk in which it lies."""
    for i, event in enumerate(events):
        try:
            Builder().add(sort_out([event]))
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
    piece = 1 << 20
    decoder = codecs.getincrementaldecoder("utf-8")()
    for start in range(0, len(data), piece):
        pending = len(decoder.getstate()[0])
        try:
            decoder.decode(data[start : start + piece], start + piece >= len(data))
        except UnicodeDecodeError as error:
            return start - pending + error.start
    return None


def _trace(tables: Tables, document: _Document, source: str) -> Trace:
    columns = tables.columns
    codes: dict[int | str, int] = {}
    processes = [codes.setdefault(process, len(codes)) for process, _ in tables.threads]
    calls = Calls(**columns["call"])
    return Trace(
        source=source,
        operators=Operators(**columns["operator"]),
        calls=calls,
        activities=Activities(**columns["activity"]),
        waits=Waits(**columns["wait"]),
        overheads=Spans(**columns["overhead"]),
        frames=Frames(**columns["frame"]),
        flows=tables.flows,
        threads=tuple(thread for _, thread in tables.threads),
        process_of_thread=np.array(processes, np.int64),
        devices=_devices(document),
        recording=_recording(document.kernelprof, source),
        back_end=back_end_of(tables.categories, calls.name.distinct()),
        categories=tables.categories,
        rank=_rank(document),
    )


def _rank(document: _Document) -> int | None:
    """Which one of ``torch.distributed`` it is of, as the profiler wrote it."""
    noted = document.distributedInfo
    rank = noted.get("rank") if isinstance(noted, dict) else None
    return rank if type(rank) is int and rank >= 0 else None


def _devices(document: _Document) -> tuple[dict[str, Any], ...]:
    listed = document.deviceProperties or document.computeProperties
    if not isinstance(listed, list):
        return ()
    return tuple(one for one in listed if isinstance(one, dict))


def _recording(noted: Any, source: str) -> Recording:
    """Our own notes beside the events; nothing is noted in a trace from elsewhere."""
    if noted is None:
        return NOTHING_NOTED
    try:
        return believable(codec.from_builtins(noted, Recording))
    except (ValueError, ArithmeticError, TypeError) as error:
        raise TraceError(
            f"{source}: the notes under 'kernelprof' are not from pytest-kernelprof: {error}; "
            "remove them to read only the events"
        ) from None
