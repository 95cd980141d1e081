"""Rounds without the profiler: host times and memory; L2 flushes and seeds before them."""

from __future__ import annotations

import random
import sys
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

from pytest_kernelprof.distributed.agreement import ALONE, Agreement
from pytest_kernelprof.gpu.inventory import (
    Device,
    as_made,
    devices_in_use,
    load_torch,
    synchronize,
    without_modes,
)
from pytest_kernelprof.records.recording import HostTimings, MemoryUse
from pytest_kernelprof.system import now_ns


def seed_by(name: str) -> None:
    """Seed Python's, NumPy's and torch's generators, as far as they are loaded."""
    number = zlib.crc32(name.encode("utf-8", "backslashreplace"))
    random.seed(number)
    if "numpy" in sys.modules:
        import numpy

        numpy.random.seed(number)
    if "torch" in sys.modules:
        import torch

        torch.manual_seed(number)


_FLUSHED_ROW = 4096


_l2_buffers: dict[int, tuple[Any, Any]] = {}
"""By device, kept for the process: allocating them anew would disturb the user's allocator."""


def flush_l2(device: Device) -> None:
    """Read a buffer larger than the device's L2, so that a round starts with a cold cache; nothing
    on the CPU, and where the size of the L2 is unknown. The caller synchronises.

    Reads, since writing would leave the cache full of lines that the round has to write back: a
    copy of 67 MB takes 7 % longer then on an H200.
    """
    if device.kind != "cuda" or not device.l2_bytes:
        return
    torch = load_torch()
    with without_modes():
        if device.index not in _l2_buffers:
            # Rows and their maxima: a reduction along rows needs no memory beside these.
            rows = 2 * device.l2_bytes // (4 * _FLUSHED_ROW)
            buffer = torch.zeros((rows, _FLUSHED_ROW), device="cuda")
            _l2_buffers[device.index] = buffer, buffer.new_empty(rows)
        buffer, maxima = _l2_buffers[device.index]
        torch.amax(buffer, 1, out=maxima)


class RepeatedCall(NamedTuple):
    """A call, and all that a round of it needs.

    Attributes:
        prepare: run before each round, outside the clock; hands back the call, its arguments ready.
        flush_l2: whether the L2 cache is flushed before each round.
        agreement: of the ranks that all make this call.
    """

    device: Device
    prepare: Callable[[], Callable[[], object]]
    flush_l2: bool = False
    agreement: Agreement = ALONE

    def begin(self) -> None:
        """Have the cache cold and the device idle; then wait until all ranks begin."""
        if self.flush_l2:
            flush_l2(self.device)
        synchronize(self.device)
        self.agreement.begin()


_BACK_TO_BACK_NS = 20_000_000
_BACK_TO_BACK_CALLS = 50


def time_calls(repeated: RepeatedCall, rounds: int, *, fresh_arguments: bool) -> HostTimings:
    """Time calls on the host.

    Args:
        fresh_arguments: ``prepare`` makes new arguments for each call, so that calls in a row
            cannot be timed without timing the making.
    """
    device, agreement = repeated.device, repeated.agreement
    latency, dispatch, floor = [], [], []
    for _ in range(rounds):
        call = repeated.prepare()
        repeated.begin()
        start = now_ns()
        synchronize(device)
        floor.append((now_ns() - start) / 1e3)
        start = now_ns()
        result = call()
        returned = now_ns()
        synchronize(device)
        finished = now_ns()
        del result
        dispatch.append((returned - start) / 1e3)
        latency.append((finished - start) / 1e3)
    back_to_back = None
    wanted = not fresh_arguments and device.kind == "cuda" and bool(latency)
    # A rank that needs fresh arguments makes no such calls, so none may.
    expected = agreement.gather("calls in a row", min(latency) * 1e3 if wanted else 0.0)
    if all(expected):
        calls = max(2, min(_BACK_TO_BACK_CALLS, int(_BACK_TO_BACK_NS / max(*expected, 1.0))))
        call = repeated.prepare()
        agreement.begin()
        synchronize(device)
        start = now_ns()
        for _ in range(calls):
            call()
        synchronize(device)
        back_to_back = (now_ns() - start) / 1e3 / calls
    return HostTimings(tuple(latency), tuple(dispatch), tuple(floor), back_to_back)


_MAX_HISTORY = 1_000_000
NO_HISTORY = (
    "not available: the allocator keeps no history to read (another allocator than the native "
    "one, or a memory history that is already being recorded)"
)


def watch_memory(repeated: RepeatedCall, rounds: int) -> MemoryUse | None:
    """Peak requested bytes and device allocations of unprofiled, warmed-up calls.

    The peak is summed from the allocator's own event history, so that the user's peak statistics
    stay as they are. None where the allocator keeps no history (the CPU, other allocators, a
    history that the user is recording), there or on another rank.
    """
    torch, device = load_torch(), repeated.device
    if device.kind != "cuda":
        return None
    with as_made():  # also where the code has patched what the history is ended with
        is_recorded = getattr(torch._C, "_cuda_isHistoryEnabled", bool)
        is_free = torch.cuda.get_allocator_backend() == "native" and not is_recorded()
    if not all(repeated.agreement.gather("memory history", is_free)):
        return None
    too_long = False
    peaks, allocations = [], []
    for _ in range(rounds):
        call = repeated.prepare()
        synchronize(device)
        with as_made():
            before = _device_allocations(torch)
            torch.cuda.memory._record_memory_history("all", context=None, max_entries=_MAX_HISTORY)
        try:
            result = call()
            synchronize(device)
            with as_made():
                after = _device_allocations(torch)
                traces = torch.cuda.memory._snapshot()["device_traces"]
        finally:
            with as_made():
                torch.cuda.memory._record_memory_history(None)
        del result
        too_long |= any(len(trace) >= _MAX_HISTORY for trace in traces)
        peaks.append(max((_peak(trace) for trace in traces), default=0))
        allocations.append(after - before)
    return None if too_long else MemoryUse(tuple(peaks), tuple(allocations))


def _peak(events: list[dict[str, Any]]) -> int:
    """Highest running sum of requested bytes; what was there before the call counts as zero."""
    held = peak = 0
    for event in events:
        if event["action"] == "alloc":
            held += event["size"]
            peak = max(peak, held)
        elif event["action"] == "free_completed":
            held -= event["size"]
    return peak


def _device_allocations(torch: Any) -> int:
    stats = map(torch.cuda.memory_stats, devices_in_use())
    return sum(one.get("num_device_alloc", 0) + one.get("num_device_free", 0) for one in stats)
