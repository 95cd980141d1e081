"""Memory of calls that are not profiled: peak of requested bytes, device allocations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_kernelprof.capture.agreement import ALONE
from pytest_kernelprof.device.bindings import as_made
from pytest_kernelprof.device.inventory import Device, devices_in_use, load_torch, synchronize
from pytest_kernelprof.schema.recording import MemoryUse

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_kernelprof.capture.agreement import Agreement

_MAX_HISTORY = 1_000_000
NO_HISTORY = (
    "not available: the allocator keeps no history to read (another allocator than the native "
    "one, or a memory history that is already being recorded)"
)


def watch_memory(
    device: Device,
    prepare: Callable[[], Callable[[], object]],
    rounds: int,
    agreement: Agreement = ALONE,
) -> MemoryUse | None:
    """Peak requested bytes and device allocations of unprofiled, warmed-up calls.

    The peak is summed from the allocator's own event history, so that the user's peak statistics
    stay as they are. None where the allocator keeps no history (the CPU, other allocators, a
    history that the user is recording), there or on another rank.
    """
    torch = load_torch()
    if device.kind != "cuda":
        return None
    with as_made():  # also where the code has patched what the history is ended with
        is_free = _history_is_free(torch)
    if not all(agreement.gather("memory history", is_free)):
        return None
    too_long = False
    peaks, allocations = [], []
    for _ in range(rounds):
        call = prepare()
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


def _history_is_free(torch: Any) -> bool:
    if torch.cuda.get_allocator_backend() != "native":
        return False
    enabled = getattr(torch._C, "_cuda_isHistoryEnabled", None)
    return not (enabled is not None and enabled())


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
    total = 0
    for index in devices_in_use():
        stats = torch.cuda.memory_stats(index)
        total += stats.get("num_device_alloc", 0) + stats.get("num_device_free", 0)
    return total
