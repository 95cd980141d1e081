"""Reads the Chrome trace that ``export_chrome_trace`` writes into the columns of a ``Trace``."""

from __future__ import annotations

import gzip
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
    from collections.abc import Callable, Iterable, Sequence

    from pytest_kernelprof.trace.model import Ints, Strings

_ACTIVITY_KINDS = {"kernel": KERNEL, "gpu_memcpy": MEMCPY, "gpu_memset": MEMSET}
_DECIMAL_US = re.compile(rb"-?\d+\.\d{3}")


class _Args(msgspec.Struct, gc=False):
    """The arguments that we read. Absent ids are ``NO_ID``, absent figures zero."""

    external_id: int = msgspec.field(name="External id", default=NO_ID)
    correlation: int = NO_ID
    device: int = 0
    stream: int = NO_ID
    bytes: int = 0
    registers: int = msgspec.field(name="registers per thread", default=0)
    shared_memory: float = msgspec.field(name="shared memory", default=0)
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None


class _Event(msgspec.Struct, gc=False):
    # ``ts`` stays text: 4.3e12 us with three decimals does not fit a float to the nanosecond.
    ph: str = ""
    cat: str = ""
    name: str = ""
    tid: int | str = 0
    ts: msgspec.Raw = msgspec.Raw(b"0")
    dur: float = 0.0
    id: int | str | None = None
    args: _Args | None = None


class _Document(msgspec.Struct):
    traceEvents: list[_Event]  # noqa: N815 (the format's own name)
    deviceProperties: list[dict[str, Any]] = []  # noqa: N815
    baseTimeNanoseconds: int = 0  # noqa: N815
    kernelprof: dict[str, Any] = {}


_NO_ARGS = _Args()
_decoder = msgspec.json.Decoder(_Document)


def read_trace(path: str | os.PathLike[str]) -> Trace:
    """Read a trace file, plain or gzip.

    Raises:
        TraceError: the file is missing, empty, truncated, not JSON, not a Chrome trace, or holds
            a value that does not fit; the message names the file, the position and the reason.
    """
    source = os.fspath(path)
    document = _decode(_load(source), source)
    try:
        return _columns(document, source)
    except (OverflowError, ValueError) as error:
        raise TraceError(
            f"{source}: a number in traceEvents does not fit 64 bits ({error})"
        ) from error


def _load(source: str) -> bytes:
    try:
        with open(source, "rb") as file:
            data = file.read()
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
    except OSError as error:
        raise TraceError(f"{source}: cannot be read: {error.strerror or error}") from error
    except (EOFError, zlib.error) as error:
        raise TraceError(f"{source}: truncated or damaged gzip file: {error}") from error
    if not data.strip():
        raise TraceError(f"{source}: the file is empty; expected a Chrome trace (JSON)")
    return data


def _decode(data: bytes, source: str) -> _Document:
    try:
        return _decoder.decode(data)
    except msgspec.ValidationError as error:
        raise TraceError(
            f"{source}: not a Chrome trace of torch.profiler: {error}; expected a JSON object "
            "whose 'traceEvents' is a list of events"
        ) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise TraceError(f"{source}: not JSON, or cut off: {error}") from error


def _columns(document: _Document, source: str) -> Trace:
    sorted_out = _sort_out(document.traceEvents)
    threads = _Codes()
    names = _Interned()

    def spans(events: list[_Event]) -> tuple[list[_Event], Strings, Ints, Ints]:
        start = _nanoseconds([event.ts for event in events])
        length = np.rint(np.array([event.dur for event in events], np.float64) * 1e3)
        order = np.argsort(start, kind="stable")
        events = [events[i] for i in order]
        start = start[order]
        end = start + _as_int(length[order])
        return events, names.column(event.name for event in events), start, end

    ops, op_name, op_start, op_end = spans(sorted_out["operator"])
    calls, call_name, call_start, call_end = spans(sorted_out["call"])
    acts, act_name, act_start, act_end = spans(sorted_out["activity"])
    waits, wait_name, wait_start, wait_end = spans(sorted_out["wait"])
    _, over_name, over_start, over_end = spans(sorted_out["overhead"])
    frames, frame_name, frame_start, frame_end = spans(sorted_out["frame"])
    return Trace(
        source=source,
        operators=Operators(
            op_name,
            op_start,
            op_end,
            threads.column(ops),
            _ints(ops, lambda args: args.external_id),
            np.array([event.cat == "user_annotation" for event in ops], np.bool_),
        ),
        calls=Calls(
            call_name,
            call_start,
            call_end,
            threads.column(calls),
            _ints(calls, lambda args: args.external_id),
            _ints(calls, lambda args: args.correlation),
        ),
        activities=Activities(
            act_name,
            act_start,
            act_end,
            np.array([_ACTIVITY_KINDS[event.cat] for event in acts], np.int64),
            _ints(acts, lambda args: args.correlation),
            _ints(acts, lambda args: args.external_id),
            _ints(acts, lambda args: args.device),
            _ints(acts, lambda args: args.stream),
            _ints(acts, lambda args: args.bytes),
            _ints(acts, lambda args: args.registers),
            _ints(acts, lambda args: int(args.shared_memory)),
            _triples(acts, lambda args: args.grid),
            _triples(acts, lambda args: args.block),
        ),
        waits=Waits(wait_name, wait_start, wait_end, _ints(waits, lambda args: args.correlation)),
        overheads=Spans(over_name, over_start, over_end),
        frames=Frames(frame_name, frame_start, frame_end, threads.column(frames)),
        flows=_flows(sorted_out["flow"], threads),
        threads=threads.values(),
        devices=tuple(document.deviceProperties),
        recording=document.kernelprof,
        base_ns=document.baseTimeNanoseconds,
    )


def _sort_out(events: list[_Event]) -> dict[str, list[_Event]]:
    """The events of each table; what we do not read (launch arrows, metadata) is dropped."""
    tables: dict[str, list[_Event]] = {
        table: [] for table in ("operator", "call", "activity", "wait", "overhead", "frame", "flow")
    }
    for event in events:
        if event.ph == "X":
            table = _table_of(event.cat)
            if table:
                tables[table].append(event)
        elif event.cat == "fwdbwd":
            tables["flow"].append(event)
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


def _nanoseconds(texts: Sequence[msgspec.Raw]) -> Ints:
    """Exact int64 nanoseconds from decimal microseconds."""
    if not texts:
        return np.empty(0, np.int64)
    raw = [bytes(text) for text in texts]
    if all(map(_DECIMAL_US.fullmatch, raw)):  # what Kineto writes: three decimals, always
        return np.array(b" ".join(raw).replace(b".", b"").split(), np.int64)
    from decimal import Decimal, InvalidOperation

    try:
        values = [Decimal(text.decode()) for text in raw]
    except InvalidOperation as error:
        raise ValueError("a 'ts' is not a number of microseconds") from error
    return np.array([int((value * 1000).to_integral_value()) for value in values], np.int64)


def _as_int(values: np.ndarray[Any, np.dtype[np.float64]]) -> Ints:
    if len(values) and (not np.isfinite(values).all() or np.abs(values).max() >= 2.0**62):
        raise ValueError("a 'dur' is not a number of microseconds")
    return values.astype(np.int64)


def _ints(events: Iterable[_Event], get: Callable[[_Args], int]) -> Ints:
    return np.array([get(event.args or _NO_ARGS) for event in events], np.int64)


def _triples(events: Sequence[_Event], get: Callable[[_Args], tuple[int, int, int] | None]) -> Ints:
    rows = [get(event.args or _NO_ARGS) or (0, 0, 0) for event in events]
    return np.array(rows, np.int64).reshape(len(rows), 3)


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
        return np.array([codes.setdefault(event.tid, len(codes)) for event in events], np.int64)

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
