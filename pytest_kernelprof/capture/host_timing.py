"""Times calls on the host, without the profiler."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_kernelprof.capture.agreement import ALONE
from pytest_kernelprof.clock import now_ns
from pytest_kernelprof.device.inventory import Device, synchronize
from pytest_kernelprof.schema.recording import HostTimings

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_kernelprof.capture.agreement import Agreement

_BACK_TO_BACK_NS = 20_000_000
_BACK_TO_BACK_CALLS = 50


def time_calls(
    device: Device,
    prepare: Callable[[], Callable[[], object]],
    rounds: int,
    *,
    flush: Callable[[], None],
    fresh_arguments: bool,
    agreement: Agreement = ALONE,
) -> HostTimings:
    """Time calls on the host, the device idle and flushed before each.

    Args:
        prepare: run before each round, outside the clock; hands back the call to time.
        fresh_arguments: ``prepare`` makes new arguments for each call, so that calls in a row
            cannot be timed without timing the making.
        agreement: of the ranks that all make these calls.
    """
    latency, dispatch, floor = [], [], []
    for _ in range(rounds):
        call = prepare()
        flush()
        synchronize(device)
        agreement.begin()
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
        call = prepare()
        agreement.begin()
        back_to_back = _in_a_row(device, call, calls)
    return HostTimings(tuple(latency), tuple(dispatch), tuple(floor), back_to_back)


def _in_a_row(device: Device, call: Callable[[], object], calls: int) -> float:
    synchronize(device)
    start = now_ns()
    for _ in range(calls):
        call()
    synchronize(device)
    return (now_ns() - start) / 1e3 / calls
