"""Make a Chrome trace, and the notes beside it, of a described call."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from described import Beside, Call, Launched
from msgspec.structs import replace

from pytest_kernelprof.analysis.round_events import timeline_of_round
from pytest_kernelprof.analysis.session_profile import profile_of, session_facts, with_lines
from pytest_kernelprof.records.profile import Profile, Timeline
from pytest_kernelprof.records.recording import (
    Conditions,
    HostTimings,
    KernelSpills,
    MemoryUse,
    Neighbour,
    Recording,
    Work,
)
from pytest_kernelprof.trace.correlation import reading_of
from pytest_kernelprof.trace.reader import read_trace
from pytest_kernelprof.trace.trace_text import write_trace

Event = dict[str, Any]

_THREADS = 128
_PEAKS = {"throughput": 989.5e12, "bandwidth": 4800e9}
_VERSIONS = {"torch": "2.11.0+cu130", "cuda": "13.0", "triton": "3.6.0", "python": "3.13"}


@dataclass(frozen=True, eq=False)
class Recorded:
    """A call whose trace is written and read again.

    Attributes:
        profile: without source lines, as of a session. attributed: with them.
    """

    path: Path
    recording: Recording
    profile: Profile
    attributed: Profile
    timeline: Timeline


def record(call: Call, path: Path) -> Recorded:
    """Write the trace of a call to a file, and read it as the profiler's own."""
    recording = _recording(call)
    plain = path.with_suffix(".events")
    plain.write_text(json.dumps({"deviceProperties": [], "traceEvents": list(_events(call))}))
    write_trace(plain, recording, path)
    trace = read_trace(path)
    reading = reading_of(trace)
    facts = session_facts(reading)
    profile = profile_of(facts, trace.recording)
    waiting = (one for one in call.copies if "Pageable" in one.name)
    waits = (*call.waits, *waiting)
    parts: Any = {"kernels": call.kernels, "copies": call.copies, "waits": waits}
    number = itertools.count()
    operators = {what: [next(number) for _ in rows] for what, rows in facts.operators.items()}
    lines = {
        row: one.at
        for what, rows in operators.items()
        for row, one in zip(rows, parts[what], strict=True)
    }
    attributed = with_lines(profile, dataclasses.replace(facts, operators=operators), lines)
    return Recorded(path, recording, profile, attributed, timeline_of_round(reading, facts.fullest))


def _recording(call: Call) -> Recording:
    latency = call.latency_us
    dispatch, floor = tuple(0.6 * us for us in latency), (5.0,) * len(latency)
    in_a_row = 0.9 * min(latency, default=0.0)
    on_cpu = call.device == "cpu"
    spilled = {
        (one.name, one.registers, _THREADS, one.shared_memory): one.spills
        for one in call.kernels
        if one.spills is not None
    }
    busy = Conditions(blocks=2, contenders=(Neighbour(4711, 60),))
    versions = {"torch": "2.11.0+cpu", "python": "3.13"} if on_cpu else _VERSIONS
    return Recording(
        schema=1,
        device_kind="cpu" if on_cpu else "cuda",
        device="CPU (x86_64)" if on_cpu else "NVIDIA H200",
        capability="" if on_cpu else "sm_90",
        versions=versions,
        power_limit_w=None if on_cpu else 700,
        rounds=_rounds(call),
        collection_stopped=call.incomplete,
        recompiles=0,
        jit_compiled=call.jit_compiled,
        autotunes=call.autotunes,
        graph_breaks=call.graph_breaks,
        compute_operators=tuple({one.name for one in call.kernels}) if on_cpu else None,
        host_timings=HostTimings(latency, dispatch, floor, in_a_row) if latency else None,
        work={
            metric: Work(int(amount), unknown, _PEAKS[metric])  # type: ignore[misc]
            for metric, amount, unknown in call.work
        },
        memory=None if on_cpu else MemoryUse((call.peak_memory,) * 2, (0, 0)),
        spills=tuple(KernelSpills(*of, spills) for of, spills in spilled.items()) or None,
        conditions=busy if call.disturbed else Conditions(blocks=2),
    )


def _rounds(call: Call) -> int:
    return len(call.gpu_us) or 2


def _events(call: Call) -> Iterator[Event]:
    clock = _Clock()
    usual = sum(one.us for one in call.kernels) or 1.0
    if call.device != "cpu":  # so that the trace says that there is a device
        yield _span("cuda_runtime", "cudaDeviceSynchronize", clock.tick(), 1.0)
    for number in range(_rounds(call)):
        scale = call.gpu_us[number] / usual if call.gpu_us else 1.0
        yield _span("user_annotation", f"kernelprof::begin#{number}", clock.tick(), 1.0)
        for one in call.kernels:
            make = _operator if call.device == "cpu" else _launch
            yield from make(clock, one, one.us * scale)
        for wait in call.waits:
            made = _wait(clock, wait, on_device=call.device != "cpu")
            yield from _allowed(clock, wait, "syncs", made)
        for copy in call.copies:
            yield from _allowed(clock, copy, "copies", _copy(clock, copy))
        yield _span("user_annotation", f"kernelprof::end#{number}", clock.tick(2), 1.0)
        clock.host = max(clock.host, clock.device) + 20
        if call.device != "cpu":
            yield _span("cuda_runtime", "cudaDeviceSynchronize", clock.tick(), 1.0)


class _Clock:
    """Where host and device are, in microseconds, and the next number of a call."""

    def __init__(self) -> None:
        self.host = self.device = self.free = 0.0
        self.correlation = 0

    def tick(self, us: float = 1.5) -> float:
        self.host += us
        return self.host

    def leave(self) -> None:
        """End all operators that have begun."""
        self.host = max(self.host, self.free)


def _launch(clock: _Clock, one: Launched, us: float) -> Iterator[Event]:
    """Operators around a launch, and its kernel."""
    clock.correlation += 1
    yield from _around(clock, one.operators)
    launched = clock.tick()
    ids = {"External id": clock.correlation, "correlation": clock.correlation}
    yield _span("cuda_runtime", "cudaLaunchKernel", launched, 1.0, **ids)
    clock.leave()
    started = max(launched + 2.0, clock.device + 1.0)
    clock.device = started + us
    on_device = {"correlation": clock.correlation, "device": 0, "stream": 7}
    shape = {"grid": [64, 1, 1], "block": [_THREADS, 1, 1], "registers per thread": one.registers}
    shape |= {"shared memory": one.shared_memory}
    yield _span("kernel", one.name, started, us, 7, **on_device, **shape)


def _operator(clock: _Clock, one: Launched, us: float) -> Iterator[Event]:
    """An operator of the CPU that computes, inside of those that call it."""
    yield from _around(clock, one.operators, inside=us)
    yield _span("cpu_op", one.name, clock.tick(), us)
    clock.tick(us + 1.0)
    clock.leave()


def _around(clock: _Clock, operators: tuple[str, ...], inside: float = 3.0) -> Iterator[Event]:
    """Operators from the outermost on, each inside of the one before."""
    clock.free = clock.host + inside + 3.0 * len(operators) + 5.0
    for depth, name in enumerate(reversed(operators)):
        last = depth == len(operators) - 1
        ids = {"External id": clock.correlation if last else 100_000 + clock.correlation}
        begun = clock.tick(0.5)
        yield _span("cpu_op", name, begun, clock.free - depth - begun, **ids)


def _wait(clock: _Clock, wait: Beside, *, on_device: bool) -> Iterator[Event]:
    """A wait of the host; on the CPU only the operators that would wait."""
    clock.correlation += 1
    yield from _around(clock, wait.operators, inside=40.0)
    begun = clock.tick()
    ids = {"External id": clock.correlation, "correlation": clock.correlation}
    if on_device:
        yield _span("cuda_runtime", wait.name, begun, 10.0, **ids)
    clock.tick(11.0)
    clock.leave()


def _allowed(clock: _Clock, one: Beside, kind: str, made: Iterator[Event]) -> Iterator[Event]:
    """These events, in a block of ``allow`` if they are allowed."""
    begun = clock.tick(0.5 if one.allowed else 0.0)
    yield from made
    if one.allowed:
        name = f"kernelprof::allow#{kind}#{one.allowed}"
        yield _span("user_annotation", name, begun, clock.tick(0.5) - begun)


def _copy(clock: _Clock, copy: Beside) -> Iterator[Event]:
    clock.correlation += 1
    yield from _around(clock, copy.operators)
    called = clock.tick()
    ids = {"External id": clock.correlation, "correlation": clock.correlation}
    yield _span("cuda_runtime", "cudaMemcpyAsync", called, 1.0, **ids)
    clock.leave()
    started = max(called + 2.0, clock.device + 1.0)
    clock.device = started + 3.0
    on_device = {"correlation": clock.correlation, "device": 0, "stream": 7}
    on_device["bytes"] = copy.bytes
    yield _span("gpu_memcpy", copy.name, started, 3.0, 7, **on_device)


def _span(category: str, name: str, ts: float, dur: float, tid: int = 1, **args: Any) -> Event:
    event = {"ph": "X", "cat": category, "name": name, "ts": ts, "dur": dur, "tid": tid}
    return {**event, "pid": 4711, "args": args}


def as_rank(one: Profile, rank: int) -> Profile:
    """The profile of one rank."""
    return replace(one, rank=rank)
