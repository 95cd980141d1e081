"""The host's times, with and without an attached CUPTI, its shares of a round, and memory."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import pytest
from built import call, kernel, profile_of, round_of
from corpus import recorded
from records import MIXED

from pytest_kernelprof.analysis.metric_values import absent, host_metrics, memory_metrics, metric_of
from pytest_kernelprof.records.profile import HostShares, Metric
from pytest_kernelprof.records.recording import HostTimings, MemoryUse, Recording

LATENCY = tuple(100.0 + i for i in MIXED)
BUSY = metric_of("gpu_busy", [20.0 + i / 10 for i in MIXED])


def host(**changed: Any) -> dict[str, Metric]:
    timings = HostTimings(
        **{
            "latency_us": LATENCY,
            "dispatch_us": tuple(50.0 + i for i in MIXED),
            "floor_us": (5.0,) * 12,
            **changed,
        }
    )
    return host_metrics(timings, {"gpu_busy": BUSY, "launches": metric_of("launches", [4])})


def test_launch_overhead_is_latency_without_busy_time_and_floor() -> None:
    overhead = host()["launch_overhead"]
    assert overhead.value == pytest.approx(statistics.median(LATENCY) - 20.55 - 5)


def test_the_interval_of_launch_overhead_takes_the_worst_of_both() -> None:
    overhead = host()["launch_overhead"]
    # At 99.5 % twelve rounds are bounded by their extremes.
    assert overhead.low == pytest.approx(min(LATENCY) - max(BUSY.rounds) - 5)
    assert overhead.high == pytest.approx(max(LATENCY) - min(BUSY.rounds) - 5)


def test_what_an_attached_cupti_may_add_lowers_the_lower_bounds_alone() -> None:
    clean, taxed = host(), host(cupti_us_per_launch=2.0, cupti_ratio=1.3)
    for name in ("latency", "dispatch_time", "launch_overhead"):
        assert taxed[name].low == pytest.approx((clean[name].low or 0) - 4 * 2.0)
        assert (taxed[name].value, taxed[name].high) == (clean[name].value, clean[name].high)
        assert "the loaded profiler slows launches by 30 %" in taxed[name].why


def test_launch_overhead_is_never_below_zero() -> None:
    overhead = host(latency_us=(10.0,) * 12)["launch_overhead"]
    assert (overhead.value, overhead.low, overhead.high) == (0, 0, 0)


def test_without_unprofiled_calls_host_times_are_absent_with_the_reason() -> None:
    for metric in host_metrics(None, {"gpu_busy": BUSY}).values():
        assert metric.value is None
        assert metric.why.startswith("not measured")


def test_on_the_cpu_there_is_latency_but_no_launch_overhead() -> None:
    timings = HostTimings(LATENCY, LATENCY, (5.0,) * 12)
    found = host_metrics(timings, {})
    assert found["latency"].value == statistics.median(LATENCY)
    assert found["launch_overhead"].why == "not applicable on the CPU"


def test_the_overhead_of_a_launch_is_that_of_the_call_by_its_launches() -> None:
    whole, each = host()["launch_overhead"], host()["overhead_per_launch"]
    assert each.kind == "shown"
    assert each.value == pytest.approx((whole.value or 0) / 4)
    assert each.low == pytest.approx((whole.low or 0) / 4)
    assert each.high == pytest.approx((whole.high or 0) / 4)
    assert each.rounds == pytest.approx([one / 4 for one in whole.rounds])


def test_a_call_without_launches_has_no_overhead_of_a_launch() -> None:
    timings = HostTimings(LATENCY, LATENCY, (5.0,) * 12)
    found = host_metrics(timings, {"gpu_busy": BUSY, "launches": metric_of("launches", [0])})
    assert found["overhead_per_launch"].why == "the call launches nothing"
    assert host_metrics(timings, {})["overhead_per_launch"].why == ("not applicable on the CPU")


def test_memory_is_judged_by_its_largest_round() -> None:
    found = memory_metrics(Recording(memory=MemoryUse((7, 9, 8), (0, 2, 1))), on_cpu=False)
    assert (found["peak_memory"].value, found["allocations"].value) == (9, 2)
    assert found["peak_memory"].unit == "bytes"


@pytest.mark.parametrize(
    ("recording", "on_cpu", "why"),
    [
        (Recording(), True, "not applicable on the CPU"),
        (Recording(), False, "with a memory limit"),
        (Recording(memory_why="another allocator"), False, "another allocator"),
    ],
)
def test_without_memory_the_reason_is_told(recording: Recording, on_cpu: bool, why: str) -> None:
    for metric in memory_metrics(recording, on_cpu=on_cpu).values():
        assert metric.value is None
        assert why in metric.why


def test_the_hosts_time_is_shared_between_dispatch_launch_calls_and_waiting(
    tmp_path: Path,
) -> None:
    profile = profile_of(
        tmp_path,
        round_of(0, 0, 100),
        call("cudaLaunchKernel", 10, 1, dur=20),
        kernel("k", 40, 1),
        call("cudaStreamSynchronize", 50, 2, dur=30),
        call("cudaMalloc", 85, 3, dur=5),
        round_of(1, 200, 100),
        call("cudaDeviceSynchronize", 150, 4, dur=40),
    )
    assert profile.host_shares == HostShares(0.75, 0.1, 0.15)


def test_without_rounds_of_our_own_the_hosts_time_is_not_shared_out() -> None:
    assert recorded("memory").host_shares is None


@pytest.mark.parametrize("name", ["mlp", "decode", "syncs", "graph"])
def test_the_shares_of_a_recorded_call_sum_up_to_one(name: str) -> None:
    shares = recorded(name).host_shares
    assert shares is not None
    assert shares.dispatch + shares.launch_calls + shares.waiting == pytest.approx(1)
    assert min(shares.dispatch, shares.launch_calls) > 0
    assert (shares.waiting > 0) == (name == "syncs")


def test_where_launches_could_not_be_had_each_kernel_may_have_had_one() -> None:
    timings = HostTimings((100.0,) * 12, (50.0,) * 12, (5.0,) * 12, cupti_us_per_launch=2.0)
    launches, kernels = absent("launches", "no calls"), metric_of("kernels", [4])
    metrics = {"gpu_busy": BUSY, "launches": launches, "kernels": kernels}
    found = host_metrics(timings, metrics)
    assert found["latency"].low == 92.0
    assert (found["overhead_per_launch"].value, found["overhead_per_launch"].why) == (
        None,
        "no calls",
    )
