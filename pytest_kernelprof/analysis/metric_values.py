"""The values of metrics: of the device, of the host and its memory, and what bounds a call."""

from __future__ import annotations

import functools
import itertools
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from pytest_kernelprof.analysis.round_events import allowed, allowed_spans, directions
from pytest_kernelprof.records.metrics import DIRECTIONS, METRICS, Rated
from pytest_kernelprof.records.profile import QUEUED_US, Bound, Gaps, HostShares, Metric, RoundGaps
from pytest_kernelprof.records.recording import HostTimings, Recording, Roofline, Work
from pytest_kernelprof.stats.intervals import median_interval
from pytest_kernelprof.trace.columns import KERNEL, MEMCPY, MEMSET, NO_ID, Bools, Coded, Ints
from pytest_kernelprof.trace.correlation import Reading
from pytest_kernelprof.trace.integrity import unrecorded_memsets
from pytest_kernelprof.trace.vocabulary import PAGEABLE, communicates
from pytest_kernelprof.units import format_time


def metric_of(name: str, rounds: Sequence[float], why: str = "") -> Metric:
    """The metric of that name from the value of each round.

    A count is its largest round; a time the median of its rounds, with the interval of that.
    """
    found = absent(name, why)
    if found.kind == "exact":
        values = tuple(int(value) for value in rounds)
        return replace(found, rounds=values, value=max(values, default=0))
    times = tuple(float(value) for value in rounds)
    interval = median_interval(times) or (statistics.median(times), None, None, 1)
    value, low, high, block = interval
    return replace(found, rounds=times, value=value, low=low, high=high, block=block)


def extended(metric: Metric, more: Sequence[float], less: Sequence[float] = ()) -> Metric:
    """The metric with the rounds of further sessions; one that is not available stays so.

    Args:
        less: how much of each of these rounds is allowed; empty where nothing is.
    """
    if not more or metric.value is None:
        return metric
    found = metric_of(metric.name, (*metric.rounds, *more), metric.why)
    return with_allowed(found, (*metric.allowed_rounds, *(less or [0] * len(more))))


def with_allowed(metric: Metric, less: Sequence[float]) -> Metric:
    """The metric with how much of each round lies in blocks of ``allow``."""
    return replace(metric, allowed=tuple(less)) if any(less) and metric.rounds else metric


def most_launches(metrics: Mapping[str, Metric]) -> float:
    """How many launch calls a call has, or may have where that is not available: one a kernel."""
    values = (metrics[name].value for name in ("launches", "kernels") if name in metrics)
    return next((value for value in values if value is not None), 0)


@functools.lru_cache(maxsize=256)
def absent(name: str, why: str) -> Metric:
    """A metric that is not available, with the reason. All profiles share it."""
    spec = METRICS[name]
    return Metric(name, spec.kind, spec.unit, why=why)


class DeviceTimeline(NamedTuple):
    """The activities of all rounds, round by round in order of time.

    Attributes:
        rows: as rows of the activities. number: the round of each.
        reached: when everything was done that its round began up to each, in ns.
        first: where each round begins in them; one more at the end.
        before: those that another one of the round follows. gap: how long the device is idle in
            between, in ns; 0 where the next one begins before all is done.
    """

    rows: Ints
    number: Ints
    reached: Ints
    first: Ints
    before: Ints
    gap: Ints


def timeline_of(reading: Reading) -> DeviceTimeline:
    """Put the activities of all rounds in order, once for all rounds."""
    acts, of_round = reading.trace.activities, reading.round_of_activity
    rows = (of_round != NO_ID).nonzero()[0]
    rows = rows[np.lexsort((acts.start[rows], of_round[rows]))]
    number, reached = of_round[rows], acts.end[rows]
    first = np.searchsorted(number, np.arange(reading.rounds + 1))
    for begin, end in itertools.pairwise(first.tolist()):
        np.maximum.accumulate(reached[begin:end], out=reached[begin:end])
    before = (number[1:] == number[:-1]).nonzero()[0]
    gap = np.maximum(0, acts.start[rows[before + 1]] - reached[before])
    return DeviceTimeline(rows, number, reached, first, before, gap)


def gaps_of(reading: Reading, line: DeviceTimeline) -> Gaps:
    """Class the gaps of every round: what the device waits for between two activities."""
    began, gap = line.reached[line.before], line.gap
    call = reading.call_of_activity[line.rows[line.before + 1]]
    known = call != NO_ID
    returned = np.zeros(len(call), np.int64)
    returned[known] = reading.trace.calls.end[call[known]]
    host = known & (returned > began)
    kernel = known & ~host & (gap <= QUEUED_US * 1e3)

    def totals(which: Bools) -> list[float]:
        of_round = line.number[line.before[which]]
        sums = np.bincount(of_round, gap[which], minlength=reading.rounds)
        return [int(one) / 1e3 for one in sums]

    classes = (totals(host), totals(kernel), totals(~host & ~kernel))
    return Gaps(tuple(RoundGaps(*one) for one in zip(*classes, strict=True)))


def device_metrics(
    reading: Reading, line: DeviceTimeline, waits: Sequence[Sequence[int]]
) -> dict[str, Metric]:
    """All metrics of the profiled rounds, by name. ``waits``: those of the host, in each round."""
    acts = reading.trace.activities
    kernels, copies = acts.kind == KERNEL, acts.kind == MEMCPY
    computing = kernels & ~acts.name.that(communicates)
    ran = reading.activities_of_call.any(axis=1)
    spans = _busy_and_span(reading, line)
    registers, shared = map(_numbers, (acts.registers, acts.shared_memory))
    rounds: dict[str, list[float]] = {
        "kernels": _per_round(reading, kernels),
        "launches": _per_round(reading, reading.launches & ran, of_round=reading.round_of_call),
        "memsets": _per_round(reading, acts.kind == MEMSET),
        "syncs": [len(of_round) for of_round in waits],
        "cuda_time": [ns / 1e3 for ns in _per_round(reading, computing, acts.end - acts.start)],
        **_copies(reading, copies),
        "memcpys_pageable": _per_round(reading, copies & acts.name.matching(PAGEABLE)),
        "gpu_busy": [busy / 1e3 for busy, _ in spans],
        "gpu_span": [span / 1e3 for _, span in spans],
        "gpu_idle": [(span - busy) / 1e3 for busy, span in spans],
        "registers": _most_per_round(reading, kernels, registers),
        "shared_memory": _most_per_round(reading, kernels, shared),
    }
    of_calls = allowed_spans(reading, "syncs")
    less: dict[str, list[float]] = {
        "syncs": [sum(map(bool, of_calls[list(of_round)])) for of_round in waits],
        **_copies(reading, copies & allowed(reading, "copies", np.arange(len(acts))).astype(bool)),
    }
    found = {name: metric_of(name, values) for name, values in rounds.items()}
    found |= {name: with_allowed(found[name], of) for name, of in less.items()}
    if lost := unrecorded_memsets(reading):
        why = f"not available: {lost} memset calls have no memset in the trace"
        found["memsets"] = absent("memsets", why)
    unknown = {"registers": kernels & (registers <= 0), "shared_memory": kernels & (shared < 0)}
    unknown |= _by_direction(reading, "memcpy_bytes", copies & (acts.bytes < 0))
    for way in DIRECTIONS:
        unknown[f"memcpys_{way}"] = copies & directions(acts.name).are("?")
        unknown[f"memcpy_bytes_{way}"] |= unknown[f"memcpys_{way}"]
    for name in (one for one, of in unknown.items() if any(_per_round(reading, of))):
        what = "direction" if "memcpys" in name else name.replace("_", " ")
        what += " of each copy" if "memcpy" in name else " of each kernel"
        why = f"not available: the trace does not have the {what}"
        found[name] = replace(absent(name, why), low=0.0)
    return found


def _numbers(of: Coded[int]) -> Ints:
    return np.array(of.values, np.int64)[of.codes]


def _most_per_round(reading: Reading, kernels: Bools, needs: Ints) -> list[float]:
    """Of each round, the most that one of its kernels has."""
    rows = (kernels & (reading.round_of_activity != NO_ID)).nonzero()[0]
    most = np.zeros(reading.rounds, np.int64)
    np.maximum.at(most, reading.round_of_activity[rows], needs[rows])
    return [int(one) for one in most]


def _copies(reading: Reading, copies: Bools) -> dict[str, list[float]]:
    weights = {"memcpys": None, "memcpy_bytes": reading.trace.activities.bytes}
    return {
        name: _per_round(reading, of, weight)
        for metric, weight in weights.items()
        for name, of in _by_direction(reading, metric, copies).items()
    }


def _by_direction(reading: Reading, name: str, copies: Bools) -> dict[str, Bools]:
    """These copies, by the metric of that name and by those of it with a direction."""
    ways = directions(reading.trace.activities.name)
    return {name: copies, **{f"{name}_{d}": copies & ways.are(d) for d in DIRECTIONS}}


def _per_round(
    reading: Reading, chosen: Bools, weights: Ints | None = None, of_round: Ints | None = None
) -> list[float]:
    """Of each round, how many of the chosen activities it has, or the sum of their weights.

    Args:
        of_round: the round of each, where they are no activities.
    """
    of_round = reading.round_of_activity if of_round is None else of_round
    chosen = chosen & (of_round != NO_ID)
    weights = None if weights is None else weights[chosen]
    values = np.bincount(of_round[chosen], weights, minlength=reading.rounds)
    return [int(value) for value in values]


def _busy_and_span(reading: Reading, line: DeviceTimeline) -> list[tuple[int, int]]:
    """Of each round union and extent of the intervals of its activities, in ns."""
    start = reading.trace.activities.start[line.rows]
    idle = np.bincount(line.number[line.before], line.gap, minlength=reading.rounds).tolist()
    found = []
    for number, (begin, end) in enumerate(itertools.pairwise(line.first.tolist())):
        span = int(line.reached[end - 1] - start[begin]) if end > begin else 0
        found.append((span - int(idle[number]), span))
    return found


NOT_ON_THE_CPU = "not applicable on the CPU"
_HALF_CONFIDENCE = 0.995  # two intervals at 99.5 % bound their difference at 99 %
_NOT_TIMED = (
    "not measured: it needs calls that are not profiled; use kernel_profile(fn), with rounds= or a "
    "host-time limit (one-shot profiles of a block or a whole test have none)"
)
_NOT_WATCHED = (
    "not measured: it needs calls that are not profiled; use kernel_profile(fn) with a memory "
    "limit (one-shot profiles of a block or a whole test have none)"
)


def host_metrics(
    timings: HostTimings | None, metrics: Mapping[str, Metric], why: str = ""
) -> dict[str, Metric]:
    """``dispatch_time``, ``latency``, ``launch_overhead`` and ``overhead_per_launch``.

    An attached CUPTI slows every launch, profiled or not. How much was measured when it came up,
    so each lower bound allows for it: the true value, without CUPTI, lies between the bounds.

    Args:
        metrics: those of the device; none on the CPU.
        why: why there are no timings, where it is not that none were taken.
    """
    if timings is None:
        names = ("dispatch_time", "latency", "launch_overhead", "overhead_per_launch")
        return {name: absent(name, why or _NOT_TIMED) for name in names}
    busy, launches = metrics.get("gpu_busy"), metrics.get("launches")
    tax = timings.cupti_us_per_launch * most_launches(metrics)
    latency = _allowing(metric_of("latency", timings.latency_us), tax, timings.cupti_ratio)
    dispatch = _allowing(metric_of("dispatch_time", timings.dispatch_us), tax, timings.cupti_ratio)
    overhead = _launch_overhead(timings, latency, busy, tax)
    found = (dispatch, latency, overhead, _per_launch(overhead, launches))
    return {metric.name: metric for metric in found}


def memory_metrics(recording: Recording, why: str = "", *, on_cpu: bool) -> dict[str, Metric]:
    """``peak_memory`` and ``allocations`` of unprofiled calls, or ``why`` there are none."""
    memory = recording.memory
    if memory is None:
        why = recording.memory_why or (NOT_ON_THE_CPU if on_cpu else why or _NOT_WATCHED)
        return {name: absent(name, why) for name in ("peak_memory", "allocations")}
    return {
        "peak_memory": metric_of("peak_memory", memory.peak_bytes),
        "allocations": metric_of("allocations", memory.device_allocations),
    }


_NO_WORK = "shapes were not recorded, or not all: say the work in a test, kernel_profile.work(...)"
_NO_PEAK = "the peak is not known, as shapes were not recorded: write a rate, not a share"
_SAID_AS: dict[Rated, str] = {"throughput": "flops", "bandwidth": "bytes"}


def with_said(work: Mapping[Rated, Work], said: Mapping[Rated, int]) -> dict[Rated, Work]:
    """The work of a call, by what the test says of it where it says something. Where an operator is
    not known, neither is the precision in which it computes."""
    found = dict(work)
    for name, amount in said.items():
        known = work.get(name, Work(why=_NO_PEAK))
        lost = ", ".join(known.unknown) if name == "throughput" else ""
        why = f"the peak for {lost} is not known: write TFLOP/s" if lost else known.why
        found[name] = Work(amount, peak=None if lost else known.peak, why=why)
    return found


def rate_metrics(work: Mapping[Rated, Work], busy: Metric) -> dict[str, Metric]:
    """``throughput`` and ``bandwidth``, the work over ``gpu_busy``; and the peaks of both."""
    found: dict[str, Metric] = {}
    for name in _SAID_AS:
        one, peak = work.get(name, Work(why=_NO_WORK)), f"peak_{name}"
        found[name] = _rate(name, one, busy)
        found[peak] = replace(absent(peak, one.why), value=one.peak)
    return found


def _rate(name: Rated, work: Work, busy: Metric) -> Metric:
    if busy.value is None or work.amount is None or not all(busy.rounds):
        why = work.why if work.amount is None else busy.why
        return absent(name, why or "the call does nothing on the GPU")
    metric = metric_of(name, [work.amount * 1e6 / us for us in busy.rounds])
    if not work.unknown:
        return metric
    say = f"say that of a call with kernel_profile.work({_SAID_AS[name]}=...)"
    why = f"the work of {', '.join(work.unknown)} is not known: {say}"
    low = min(metric.rounds) if metric.low is None else metric.low
    return replace(metric, value=None, low=low, high=None, why=why)


def host_shares(reading: Reading, waits: Bools) -> HostShares | None:
    """Split the host's time of all rounds; None where the rounds have no bounds or no length.

    Args:
        waits: the calls in which the host waits for the device.
    """
    layout, calls = reading.layout, reading.trace.calls
    whole = sum(one.end - one.start for one in layout.rounds) if layout.annotated else 0
    if whole <= 0:
        return None
    inside = reading.round_of_call != NO_ID
    length = calls.end - calls.start
    launched = float(length[reading.launches & ~waits & inside].sum()) / whole
    waited = float(length[waits & inside].sum()) / whole
    return HostShares(max(0.0, 1.0 - launched - waited), launched, waited)


def _allowing(metric: Metric, tax: float, ratio: float) -> Metric:
    """Lower a host time's lower bound by what CUPTI may have added."""
    if tax <= 0 or metric.low is None:
        return metric
    slower = f"the loaded profiler slows launches by {100 * (ratio - 1):.0f} %"
    why = f"{slower}, at most {tax:.1f}us of this"
    return replace(metric, low=max(0.0, metric.low - tax), why=why)


def _launch_overhead(
    timings: HostTimings, latency: Metric, busy: Metric | None, tax: float
) -> Metric:
    """The latency less the busy time and the floor; its bounds are those of all three together."""
    if busy is None or busy.value is None or latency.value is None:
        return absent("launch_overhead", NOT_ON_THE_CPU)
    floor, busy_us, low, high = statistics.median(timings.floor_us), busy.value, None, None
    of_latency = median_interval(timings.latency_us, _HALF_CONFIDENCE)
    of_busy = median_interval(busy.rounds, _HALF_CONFIDENCE)
    if of_latency and of_busy:
        low = max(0.0, of_latency.low - of_busy.high - floor - tax)
        high = max(0.0, of_latency.high - of_busy.low - floor)
    why = f"floor of an empty call {floor:.1f}us" + (f"; {latency.why}" if latency.why else "")
    return replace(
        latency,
        name="launch_overhead",
        rounds=tuple(max(0.0, one - busy_us - floor) for one in timings.latency_us),
        value=max(0.0, latency.value - busy_us - floor),
        low=low,
        high=high,
        why=why,
    )


def _per_launch(overhead: Metric, launches: Metric | None) -> Metric:
    """The same for each launch call of a call."""
    number = launches.value if launches else None
    if overhead.value is None or not number:
        unknown = launches.why if launches and number is None else ""
        why = overhead.why if overhead.value is None else unknown or "the call launches nothing"
        return absent("overhead_per_launch", why)
    return replace(
        overhead,
        name="overhead_per_launch",
        kind="shown",
        rounds=tuple(one / number for one in overhead.rounds),
        value=overhead.value / number,
        low=None if overhead.low is None else overhead.low / number,
        high=None if overhead.high is None else overhead.high / number,
    )


_OVERHEAD_ABOVE = 1.2
_GPU_BELOW = 1.1


def bound_of(
    metrics: Mapping[str, Metric],
    timings: HostTimings | None,
    roofline: Roofline | None = None,
    *,
    contended: bool = False,
) -> Bound:
    """Compare calls in a row, one synchronisation at the end, with the device's busy time.

    A call that costs more than 1.2 times what keeps the device busy leaves it idle:
    overhead-bound. Below 1.1 the device is the limit. Waits inside the call make it sync-bound,
    since then the host cannot run ahead. An attached CUPTI slows launches, so a verdict of
    overhead-bound has to hold without its share too. Where the device is the limit, ``roofline``
    says whether its memory or its arithmetic is. Where other processes worked on the GPU
    (``contended``) the two times met them differently, and nothing is said.
    """
    busy = metrics["gpu_busy"].value
    if timings is None or timings.back_to_back_us is None or not busy:
        return Bound(
            "unknown", "no unprofiled back-to-back calls to compare with the device's time"
        )
    if metrics["syncs"].value:
        return Bound("sync", f"the host waits {metrics['syncs'].value:.0f} times inside the call")
    if contended:
        return Bound("unknown", "other processes worked on the GPU while the calls were timed")
    per_call = timings.back_to_back_us
    launches = most_launches(metrics)
    without_cupti = per_call - timings.cupti_us_per_launch * launches
    words = f"back-to-back calls take {format_time(per_call)}, device busy {format_time(busy)}"
    if without_cupti / busy > _OVERHEAD_ABOVE:
        return Bound("overhead", words)
    if per_call / busy < _GPU_BELOW:
        if roofline is None:
            return Bound("gpu", words)
        return Bound(roofline.roof or "gpu", f"{words}; {roofline.reason}")
    return Bound("mixed", words)
