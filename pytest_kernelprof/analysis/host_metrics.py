"""The metrics of calls that were not profiled: the host's times and memory."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pytest_kernelprof.analysis.metrics import absent, metric_of, most_launches
from pytest_kernelprof.schema.run import HostShares, Metric
from pytest_kernelprof.stats.confidence import median_interval
from pytest_kernelprof.trace.arrays import NO_ID

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_kernelprof.schema.recording import HostTimings, Recording
    from pytest_kernelprof.trace.arrays import Bools
    from pytest_kernelprof.trace.reading import Reading

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
    timings: HostTimings | None,
    busy: Metric | None,
    launches: Metric | None,
    why: str = "",
    kernels: Metric | None = None,
) -> dict[str, Metric]:
    """``dispatch_time``, ``latency``, ``launch_overhead`` and ``overhead_per_launch``.

    An attached CUPTI slows every launch, profiled or not. How much was measured when it came up,
    so each lower bound allows for it: the true value, without CUPTI, lies between the bounds.

    Args:
        busy, launches: the metrics ``gpu_busy`` and ``launches``; None on the CPU.
        why: why there are no timings, where it is not that none were taken.
        kernels: the metric ``kernels``, which bounds the launches where those could not be had.
    """
    if timings is None:
        names = ("dispatch_time", "latency", "launch_overhead", "overhead_per_launch")
        return {name: absent(name, why or _NOT_TIMED) for name in names}
    tax = timings.cupti_us_per_launch * (
        most_launches(launches, kernels or launches) if launches else 0
    )
    latency = _allowing(metric_of("latency", timings.latency_us), tax, timings.cupti_ratio)
    dispatch = _allowing(metric_of("dispatch_time", timings.dispatch_us), tax, timings.cupti_ratio)
    if busy is None or busy.value is None or latency.value is None:
        overhead = absent("launch_overhead", NOT_ON_THE_CPU)
    else:
        overhead = _launch_overhead(timings, latency, busy, tax)
    return _by_name((dispatch, latency, overhead, _per_launch(overhead, launches)))


def memory_metrics(recording: Recording, *, on_cpu: bool) -> dict[str, Metric]:
    """``peak_memory`` and ``allocations`` of unprofiled calls, or why there are none."""
    memory = recording.memory
    if memory is None:
        why = recording.memory_why or (NOT_ON_THE_CPU if on_cpu else _NOT_WATCHED)
        return _by_name(absent(name, why) for name in ("peak_memory", "allocations"))
    return _by_name(
        (
            metric_of("peak_memory", memory.peak_bytes),
            metric_of("allocations", memory.device_allocations),
        )
    )


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


def _by_name(metrics: Iterable[Metric]) -> dict[str, Metric]:
    return {metric.name: metric for metric in metrics}


def _allowing(metric: Metric, tax: float, ratio: float) -> Metric:
    """Lower a host time's lower bound by what CUPTI may have added."""
    if tax <= 0 or metric.low is None:
        return metric
    slower = f"the loaded profiler slows launches by {100 * (ratio - 1):.0f} %"
    why = f"{slower}, at most {tax:.1f}us of this"
    return replace(metric, low=max(0.0, metric.low - tax), why=why)


def _launch_overhead(timings: HostTimings, latency: Metric, busy: Metric, tax: float) -> Metric:
    floor = statistics.median(timings.floor_us)
    assert latency.value is not None
    assert busy.value is not None
    busy_us, low, high = busy.value, None, None
    of_latency = median_interval(timings.latency_us, _HALF_CONFIDENCE)
    of_busy = median_interval(busy.rounds, _HALF_CONFIDENCE)
    if of_latency and of_busy:
        low = max(0.0, of_latency.low - of_busy.high - floor - tax)
        high = max(0.0, of_latency.high - of_busy.low - floor)
    why = f"floor of an empty call {floor:.1f}us" + (f"; {latency.why}" if latency.why else "")
    return Metric(
        "launch_overhead",
        "timed",
        "us",
        rounds=tuple(max(0.0, one - busy_us - floor) for one in timings.latency_us),
        value=max(0.0, latency.value - busy_us - floor),
        low=low,
        high=high,
        why=why,
        block=latency.block,
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
