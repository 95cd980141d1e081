"""What a call is limited by, and when that cannot be said."""

from __future__ import annotations

import pytest

from pytest_kernelprof.analysis.metric_values import bound_of, metric_of
from pytest_kernelprof.records.profile import Bound
from pytest_kernelprof.records.recording import HostTimings


def bound(
    in_a_row: float | None,
    busy: float = 100.0,
    *,
    syncs: int = 0,
    cupti: float = 0.0,
    contended: bool = False,
) -> Bound:
    metrics = {
        "gpu_busy": metric_of("gpu_busy", [busy]),
        "syncs": metric_of("syncs", [syncs]),
        "kernels": metric_of("kernels", [5]),
        "launches": metric_of("launches", [5]),
    }
    timings = HostTimings((1.0,), (1.0,), (1.0,), in_a_row, cupti)
    return bound_of(metrics, timings, contended=contended)


@pytest.mark.parametrize(
    ("in_a_row", "verdict"),
    [
        (300, "overhead"),
        (121, "overhead"),
        (119, "mixed"),
        (111, "mixed"),
        (109, "gpu"),
        (90, "gpu"),
    ],
)
def test_the_time_of_a_call_in_a_row_is_compared_with_the_devices(
    in_a_row: float, verdict: str
) -> None:
    assert bound(in_a_row).verdict == verdict


def test_waits_inside_make_it_sync_bound() -> None:
    assert bound(300, syncs=2) == Bound("sync", "the host waits 2 times inside the call")


def test_overhead_that_cupti_alone_explains_is_no_verdict() -> None:
    assert bound(130, cupti=5.0).verdict == "mixed"


def test_beside_other_work_on_the_gpu_the_times_say_nothing() -> None:
    assert bound(300, contended=True).verdict == "unknown"
    assert "other processes" in bound(90, contended=True).reason
    assert bound(300, syncs=2, contended=True).verdict == "sync"


def test_the_reason_names_both_times() -> None:
    assert bound(300).reason == "back-to-back calls take 300.0us, device busy 100.0us"


@pytest.mark.parametrize(("in_a_row", "busy"), [(None, 100.0), (300.0, 0.0)])
def test_without_calls_in_a_row_or_device_work_nothing_is_claimed(
    in_a_row: float | None, busy: float
) -> None:
    assert bound(in_a_row, busy).verdict == "unknown"
