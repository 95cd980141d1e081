"""The metrics of one profile, each with its kind, unit, value per round and interval."""

from __future__ import annotations

import re
import statistics
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from pytest_kernelprof.stats.confidence import median_interval
from pytest_kernelprof.trace.completeness import launch_calls, matches
from pytest_kernelprof.trace.model import KERNEL, MEMCPY, MEMSET, NO_ID
from pytest_kernelprof.trace.rounds import round_of_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_kernelprof.schema.recording import HostTimings, MemoryUse
    from pytest_kernelprof.trace.correlation import Links
    from pytest_kernelprof.trace.model import Bools, Ints, Trace
    from pytest_kernelprof.trace.rounds import Layout

Kind = Literal["exact", "timed", "shown"]
Unit = Literal["count", "us", "bytes"]

_HALF_CONFIDENCE = 0.995  # two intervals at 99.5 % bound their difference at 99 %
_POLLING = re.compile(r"query", re.I)
_WAIT_CALL = re.compile(r"synchronize|^(cuda|hip)Memcpy(?!.*(Async|Batch))", re.I)
_NOT_A_HOST_WAIT = re.compile(r"wait event", re.I)
_PAGEABLE, _TO_PAGEABLE = re.compile("Pageable"), re.compile("-> Pageable")
_DIRECTION = re.compile(r"\b([HDP])to([HDP])\b")
DIRECTIONS = ("h2d", "d2h", "d2d", "p2p")


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric of a profile.

    Attributes:
        name: as in the reference, for example ``cuda_time``.
        kind: "exact" (a count), "timed" (judged with an interval) or "shown" (never a limit).
        unit: "count", "us" or "bytes".
        rounds: the value of each round.
        value: the largest round of a count, the median of a time; None if it was not measured.
        low, high: bounds of the value at 99 %; None where there are too few rounds.
        block: rounds that count as one, by their median, since neighbours are alike.
        why: why there is no value, or what its reader should know; empty otherwise.
    """

    name: str
    kind: Kind
    unit: Unit
    rounds: tuple[float, ...] = ()
    value: float | None = None
    low: float | None = None
    high: float | None = None
    why: str = ""
    block: int = 1

    @property
    def stable(self) -> bool:
        """Whether all rounds of a count agree."""
        return len(set(self.rounds)) <= 1


def count(name: str, rounds: Sequence[int], unit: Unit = "count", why: str = "") -> Metric:
    """An exact metric, judged by its largest round."""
    values = tuple(int(value) for value in rounds)
    return Metric(name, "exact", unit, values, max(values, default=0), why=why)


def timed(name: str, rounds: Sequence[float], kind: Kind = "timed") -> Metric:
    """A time in microseconds with the interval of its median."""
    values = tuple(float(value) for value in rounds)
    interval = median_interval(values)
    if interval is None:
        return Metric(name, kind, "us", values, statistics.median(values))
    return Metric(
        name, kind, "us", values, interval.median, interval.low, interval.high, block=interval.block
    )


def extended(metric: Metric, more: Sequence[float]) -> Metric:
    """The metric with the rounds of further sessions."""
    if not more:
        return metric
    if metric.kind == "exact":
        return count(
            metric.name, [int(n) for n in (*metric.rounds, *more)], metric.unit, metric.why
        )
    return timed(metric.name, (*metric.rounds, *more), metric.kind)


def absent(name: str, kind: Kind, unit: Unit, why: str) -> Metric:
    """A metric that could not be had, with the reason."""
    return Metric(name, kind, unit, why=why)


def device_metrics(trace: Trace, links: Links, layout: Layout, ours: Ints) -> list[Metric]:
    """The metrics that follow from the device trace alone. ``ours``: round of each activity."""
    acts, rounds = trace.activities, len(layout.rounds)

    def per_round(chosen: Bools, weights: Ints | None = None) -> list[int]:
        chosen = chosen & (ours != NO_ID)
        values = np.bincount(
            ours[chosen], None if weights is None else weights[chosen], minlength=rounds
        )
        return [int(value) for value in values]

    kernels = acts.kind == KERNEL
    length = acts.end - acts.start
    metrics = [
        count("kernels", per_round(kernels)),
        count("launches", _launches(trace, links, layout)),
        count("memsets", per_round(acts.kind == MEMSET)),
        count("syncs", [len(waits) for waits in host_waits(trace, links, layout, ours)]),
        timed("cuda_time", [ns / 1e3 for ns in per_round(kernels, length)]),
    ]
    direction = directions(trace)
    for suffix, of in (("", acts.kind == MEMCPY), *((f"_{d}", direction == d) for d in DIRECTIONS)):
        metrics.append(count(f"memcpys{suffix}", per_round(of)))
        metrics.append(count(f"memcpy_bytes{suffix}", per_round(of, acts.bytes), "bytes"))
    pageable = matches(acts.name, _PAGEABLE)
    metrics.append(count("memcpys_pageable", per_round((acts.kind == MEMCPY) & pageable)))
    spans = [_busy_and_span(acts.start[ours == i], acts.end[ours == i]) for i in range(rounds)]
    metrics.append(timed("gpu_busy", [busy / 1e3 for busy, _ in spans]))
    metrics.append(timed("gpu_span", [span / 1e3 for _, span in spans], "shown"))
    metrics.append(timed("gpu_idle", [(span - busy) / 1e3 for busy, span in spans], "shown"))
    return metrics


def host_metrics(
    timings: HostTimings | None, busy: Metric | None, launches: Metric | None
) -> list[Metric]:
    """``dispatch_time``, ``latency`` and ``launch_overhead`` from unprofiled rounds.

    An attached CUPTI slows every launch, profiled or not. How much was measured when it came up,
    so each lower bound allows for it: the true value, without CUPTI, lies between the bounds.
    ``busy`` and ``launches`` are None on the CPU.
    """
    if timings is None:
        why = (
            "not measured: it needs calls that are not profiled; use kernel_profile(fn), with "
            "rounds= or a host-time limit (one-shot profiles of a block or a whole test have none)"
        )
        return [
            absent(name, "timed", "us", why)
            for name in ("dispatch_time", "latency", "launch_overhead")
        ] + [absent("overhead_per_launch", "shown", "us", why)]
    tax = timings.cupti_us_per_launch * (launches.value or 0 if launches else 0)
    latency = _allowing(timed("latency", timings.latency_us), tax, timings.cupti_ratio)
    dispatch = _allowing(timed("dispatch_time", timings.dispatch_us), tax, timings.cupti_ratio)
    if busy is None or busy.value is None or latency.value is None:
        overhead = absent("launch_overhead", "timed", "us", "not applicable on the CPU")
    else:
        overhead = _launch_overhead(timings, latency, busy, tax)
    return [dispatch, latency, overhead, _per_launch(overhead, launches)]


def _per_launch(overhead: Metric, launches: Metric | None) -> Metric:
    """The same for each launch call of a call."""
    number = launches.value if launches else None
    if overhead.value is None or not number:
        why = overhead.why if overhead.value is None else "the call launches nothing"
        return absent("overhead_per_launch", "shown", "us", why)
    return replace(
        overhead,
        name="overhead_per_launch",
        kind="shown",
        rounds=tuple(one / number for one in overhead.rounds),
        value=overhead.value / number,
        low=None if overhead.low is None else overhead.low / number,
        high=None if overhead.high is None else overhead.high / number,
    )


def _allowing(metric: Metric, tax: float, ratio: float) -> Metric:
    """Lower a host time's lower bound by what CUPTI may have added."""
    if tax <= 0 or metric.low is None:
        return metric
    why = f"CUPTI resident: launches cost x{ratio:.2f}, at most {tax:.1f}us of this"
    return replace(metric, low=max(0.0, metric.low - tax), why=why)


def _launch_overhead(timings: HostTimings, latency: Metric, busy: Metric, tax: float) -> Metric:
    floor = statistics.median(timings.floor_us)
    assert latency.value is not None
    assert busy.value is not None
    value = max(0.0, latency.value - busy.value - floor)
    of_latency = median_interval(timings.latency_us, _HALF_CONFIDENCE)
    of_busy = median_interval(busy.rounds, _HALF_CONFIDENCE)
    low = high = None
    if of_latency and of_busy:
        low = max(0.0, of_latency.low - of_busy.high - floor - tax)
        high = max(0.0, of_latency.high - of_busy.low - floor)
    rounds = tuple(max(0.0, one - busy.value - floor) for one in timings.latency_us)
    why = f"floor of an empty call {floor:.1f}us"
    return Metric(
        "launch_overhead", "timed", "us", rounds, value, low, high,
        why + (f"; {latency.why}" if latency.why else ""), latency.block,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class HostShares:
    """Where the host's time went inside the profiled rounds, as fractions that sum to 1.

    The profiler slows operators and calls by different factors: shown, never a limit.

    Attributes:
        dispatch: Python and the operators' own work, allocations included.
        launch_calls: calls that launch kernels.
        waiting: calls in which the host waits for the device.
    """

    dispatch: float
    launch_calls: float
    waiting: float


def host_shares(trace: Trace, links: Links, layout: Layout, ours: Ints) -> HostShares | None:
    """Split the host's time of all rounds; None where the rounds have no bounds or no length."""
    whole = sum(one.end - one.start for one in layout.rounds) if layout.annotated else 0
    if whole <= 0:
        return None
    calls = trace.calls
    inside = round_of_time(layout.rounds, calls.start, late=False) != NO_ID
    length = calls.end - calls.start
    waits = np.zeros(len(calls), np.bool_)
    waits[waiting_calls(trace, links, ours)] = True
    launching = launch_calls(trace, links) & ~waits
    launched = float(length[launching & inside].sum()) / whole
    waited = float(length[waits & inside].sum()) / whole
    return HostShares(max(0.0, 1.0 - launched - waited), launched, waited)


def memory_metrics(memory: MemoryUse | None, why: str) -> list[Metric]:
    """``peak_memory`` and ``allocations`` of unprofiled calls; ``why`` if there are none."""
    if memory is None:
        return [
            absent("peak_memory", "exact", "bytes", why),
            absent("allocations", "exact", "count", why),
        ]
    return [
        count("peak_memory", memory.peak_bytes, "bytes"),
        count("allocations", memory.device_allocations),
    ]


def _launches(trace: Trace, links: Links, layout: Layout) -> list[int]:
    with_activity = np.zeros(len(trace.calls), np.bool_)
    linked = links.call_of_activity[links.call_of_activity != NO_ID]
    with_activity[linked] = True
    of_round = round_of_time(layout.rounds, trace.calls.start, late=False)
    chosen = launch_calls(trace, links) & with_activity & (of_round != NO_ID)
    return [int(n) for n in np.bincount(of_round[chosen], minlength=len(layout.rounds))]


def host_waits(trace: Trace, links: Links, layout: Layout, ours: Ints) -> list[list[int]]:
    """The waits of the host for the device, a list of calls for each round.

    One wait an operator, however many calls it takes: the first stands for it. ``NO_ID`` stands
    for a wait whose call the profiler does not record.
    """
    of_round = round_of_time(layout.rounds, trace.calls.start, late=False)
    waits: list[list[int]] = [[] for _ in layout.rounds]
    seen: set[int] = set()
    closing = NO_ID if layout.annotated else _closing_call(trace)
    for call in waiting_calls(trace, links, ours):
        if call == closing:
            continue
        operator = int(links.operator_of_call[call])
        is_operator = operator != NO_ID and not trace.operators.annotation[operator]
        if of_round[call] == NO_ID or (is_operator and operator in seen):
            continue
        if is_operator:
            seen.add(operator)
        waits[of_round[call]].append(call)
    unlinked = ~np.isin(trace.waits.correlation, trace.calls.correlation) & _is_host_wait(trace)
    for at in round_of_time(layout.rounds, trace.waits.start[unlinked], late=False):
        if at != NO_ID:
            waits[at].append(NO_ID)
    return waits


def _closing_call(trace: Trace) -> int:
    """The synchronisation with which the profiler ends every recording, where it is the last call
    of the trace. In our own sessions it lies outside the rounds."""
    last = len(trace.calls) - 1
    closes = last >= 0 and "DeviceSynchronize" in trace.calls.name[last]
    return last if closes else NO_ID


def waiting_calls(trace: Trace, links: Links, ours: Ints) -> list[int]:
    """Calls in which the host waits for the device; polling is none.

    Where the profiler records synchronisations (category ``cuda_sync``) they decide, else the
    calls' names do. A copy to pageable memory returns when it is done, also without a
    synchronising call: it waits too.
    """
    calls = trace.calls
    recorded = calls.correlation[
        np.isin(calls.correlation, trace.waits.correlation[_is_host_wait(trace)])
    ]
    waits = np.isin(calls.correlation, recorded) & (calls.correlation != NO_ID)
    waits = (waits | matches(calls.name, _WAIT_CALL)) & ~matches(calls.name, _POLLING)
    to_pageable = matches(trace.activities.name, _TO_PAGEABLE)
    copies = links.call_of_activity[to_pageable & (ours != NO_ID)] if len(to_pageable) else []
    waits[[int(call) for call in copies if call != NO_ID]] = True
    return [int(i) for i in np.flatnonzero(waits)]


def _is_host_wait(trace: Trace) -> Bools:
    return np.array(
        [not _NOT_A_HOST_WAIT.search(name) for name in trace.waits.name.tolist()], np.bool_
    )


def directions(trace: Trace) -> np.ndarray[Any, np.dtype[np.object_]]:
    """Direction of each memcpy: "h2d", "d2h", "d2d", "p2p"; empty for other activities."""
    acts = trace.activities
    directions = np.full(len(acts), "", np.object_)
    for i in np.flatnonzero(acts.kind == MEMCPY):
        match = _DIRECTION.search(acts.name[i])
        directions[i] = f"{match[1]}2{match[2]}".lower() if match else "?"
    return directions


def _busy_and_span(start: Ints, end: Ints) -> tuple[int, int]:
    """Union and extent of intervals, in ns."""
    if not len(start):
        return 0, 0
    order = np.argsort(start, kind="stable")
    start, end = start[order], end[order]
    reached = np.maximum.accumulate(end)
    gap = np.maximum(0, start[1:] - reached[:-1]).sum()
    span = int(reached[-1] - start[0])
    return span - int(gap), span
