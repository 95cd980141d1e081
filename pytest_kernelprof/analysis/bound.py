"""What a call is limited by: the host that launches, the device that computes, or waiting."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_kernelprof.analysis.metrics import most_launches
from pytest_kernelprof.schema.run import Bound
from pytest_kernelprof.units import format_time

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_kernelprof.schema.recording import HostTimings, Roofline
    from pytest_kernelprof.schema.run import Metric

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
            "unknown",
            "no unprofiled back-to-back calls to compare with the device's time",
        )
    if metrics["syncs"].value:
        return Bound("sync", f"the host waits {metrics['syncs'].value:.0f} times inside the call")
    if contended:
        return Bound("unknown", "other processes worked on the GPU while the calls were timed")
    per_call = timings.back_to_back_us
    launches = most_launches(metrics["launches"], metrics["kernels"])
    without_cupti = per_call - timings.cupti_us_per_launch * launches
    words = f"back-to-back calls take {format_time(per_call)}, device busy {format_time(busy)}"
    if without_cupti / busy > _OVERHEAD_ABOVE:
        return Bound("overhead", words)
    if per_call / busy < _GPU_BELOW:
        if roofline is None:
            return Bound("gpu", words)
        return Bound(roofline.roof or "gpu", f"{words}; {roofline.reason}")
    return Bound("mixed", words)
