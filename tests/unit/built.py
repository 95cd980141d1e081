"""Traces made by hand, event by event, for what no recorded trace holds. Times in microseconds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pytest_kernelprof.api import Profile
from pytest_kernelprof.trace.correlation import Reading, reading_of
from pytest_kernelprof.trace.reader import read_trace

Event = dict[str, Any]


def span(category: str, name: str, ts: float, dur: float, tid: int = 1, **args: Any) -> Event:
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "ts": ts,
        "dur": dur,
        "tid": tid,
        "args": args,
    }


def operator(name: str, ts: float, dur: float, tid: int = 1, external_id: int = -1) -> Event:
    return span("cpu_op", name, ts, dur, tid, **{"External id": external_id})


def annotation(name: str, ts: float, dur: float, tid: int = 1) -> Event:
    return span("user_annotation", name, ts, dur, tid)


def marks_of(number: int, ts: float, dur: float) -> list[Event]:
    """A round as a session annotates it: where it begins and where it ends."""
    return [
        annotation(f"kernelprof::begin#{number}", ts, 1),
        annotation(f"kernelprof::end#{number}", ts + dur - 1, 1),
    ]


def round_of(number: int, ts: float, dur: float) -> Event:
    """A round in one annotation, as earlier files have it."""
    return annotation(f"kernelprof::round#{number}", ts, dur)


def call(
    name: str, ts: float, correlation: int, *, dur: float = 1, tid: int = 1, external_id: int = -1
) -> Event:
    ids = {"External id": external_id, "correlation": correlation}
    return span("cuda_runtime", name, ts, dur, tid, **ids)


def kernel(name: str, ts: float, correlation: int, *, dur: float = 10, stream: int = 7) -> Event:
    return span("kernel", name, ts, dur, stream, correlation=correlation, stream=stream)


def collective(name: str, ts: float, correlation: int, *, dur: float = 10, **said: Any) -> Event:
    """A communication kernel, with what the process group said of it."""
    usual = {
        "Collective name": "allreduce",
        "In msg nelems": 1024,
        "Out msg nelems": 1024,
        "Group size": 2,
        "dtype": "BFloat16",
        "Process Group Name": "0",
        "Process Group Ranks": "[0, 1]",
        "Seq": 7,
    }
    args = {"correlation": correlation, "stream": 20, "device": 0, **usual, **said}
    return span("kernel", name, ts, dur, 20, **args)


def copy(name: str, ts: float, correlation: int, size: int = 4) -> Event:
    return span("gpu_memcpy", name, ts, 2, 7, correlation=correlation, bytes=size)


def launched(name: str, ts: float, correlation: int, **where: Any) -> list[Event]:
    """A launch call and its kernel, which starts 5 us later."""
    return [
        call("cudaLaunchKernel", ts, correlation, **where),
        kernel(name, ts + 5, correlation),
    ]


def reading_of_events(folder: Path, *events: Event | list[Event], **beside: Any) -> Reading:
    return reading_of(read_trace(written(folder, *events, **beside), inputs="all"))


def profile_of(folder: Path, *events: Event | list[Event], **beside: Any) -> Profile:
    return Profile.from_trace(written(folder, *events, **beside))


def written(folder: Path, *events: Event | list[Event], **beside: Any) -> Path:
    """A trace file of these events."""
    flat = [one for each in events for one in (each if isinstance(each, list) else [each])]
    path = folder / "built.json"
    path.write_text(json.dumps({"traceEvents": flat, **beside}))
    return path
