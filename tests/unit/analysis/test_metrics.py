"""Metrics computed from device activities, calls and unprofiled timings."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import pytest
from built import call, copy, kernel, launched, operator, profile_of, round_of, span
from corpus import NAMES, recorded

from pytest_kernelprof.analysis.metrics import Metric, count, host_metrics, timed
from pytest_kernelprof.schema.recording import HostTimings

MIXED = (6, 1, 11, 4, 9, 2, 7, 0, 10, 3, 8, 5)
"""The numbers below 12 as independent rounds would have them: neighbours are not alike."""


def wait(name: str, ts: float, correlation: int) -> dict[str, Any]:
    return span("cuda_sync", name, ts, 1, 1, correlation=correlation)


def test_kernels_that_overlap_keep_the_device_busy_once(tmp_path: Path) -> None:
    profile = profile_of(
        tmp_path,
        round_of(0, 0, 500),
        call("cudaLaunchKernel", 10, 1),
        call("cudaLaunchKernel", 11, 2),
        call("cudaLaunchKernel", 12, 3),
        kernel("a", 100, 1, dur=100),
        kernel("b", 150, 2, dur=20, stream=8),
        kernel("c", 240, 3, dur=10),
    )
    assert profile.cuda_time == 130
    assert profile.gpu_busy == 110
    assert profile.gpu_span == 150
    assert profile.gpu_idle == 40


def test_copies_and_memsets_are_busy_time_but_no_cuda_time(tmp_path: Path) -> None:
    profile = profile_of(
        tmp_path,
        round_of(0, 0, 500),
        call("cudaMemcpyAsync", 10, 1),
        call("cudaMemsetAsync", 12, 2),
        copy("Memcpy DtoD (Device -> Device)", 50, 1),
        span("gpu_memset", "Memset (Device)", 60, 3, 7, correlation=2),
    )
    assert profile.cuda_time == 0
    assert profile.gpu_busy == 5
    assert (profile.kernels, profile.memsets, profile.launches) == ((), 1, 0)


@pytest.mark.parametrize(
    ("name", "direction"),
    [
        ("Memcpy HtoD (Pageable -> Device)", "h2d"),
        ("Memcpy DtoH (Device -> Pinned)", "d2h"),
        ("Memcpy DtoD (Device -> Device)", "d2d"),
        ("Memcpy PtoP (Device -> Device)", "p2p"),
    ],
)
def test_a_copy_counts_under_its_direction_alone(tmp_path: Path, name: str, direction: str) -> None:
    profile = profile_of(
        tmp_path, round_of(0, 0, 99), call("cudaMemcpyAsync", 10, 1), copy(name, 20, 1, 1024)
    )
    metrics = profile.metrics
    assert (metrics["memcpys"].value, metrics["memcpy_bytes"].value) == (1, 1024)
    directed = {d: metrics[f"memcpy_bytes_{d}"].value for d in ("h2d", "d2h", "d2d", "p2p")}
    assert directed == {**dict.fromkeys(directed, 0), direction: 1024}


def test_a_graph_launch_of_many_kernels_is_one_launch(tmp_path: Path) -> None:
    profile = profile_of(
        tmp_path, round_of(0, 0, 99), call("cudaGraphLaunch", 10, 1),
        kernel("a", 20, 1), kernel("b", 40, 1), kernel("c", 60, 1),
    )  # fmt: skip
    assert (profile.kernel_count, profile.launches) == (3, 1)


def test_a_call_of_any_name_that_has_a_kernel_is_a_launch(tmp_path: Path) -> None:
    profile = profile_of(
        tmp_path, round_of(0, 0, 99), call("cudaMemcpyAsync", 10, 1), kernel("copy_kernel", 20, 1)
    )
    assert profile.launches == 1


def test_each_explicit_synchronisation_is_a_wait(tmp_path: Path) -> None:
    profile = profile_of(
        tmp_path,
        round_of(0, 0, 99),
        call("cudaStreamSynchronize", 10, 1),
        call("cudaEventSynchronize", 20, 2),
        call("cuCtxSynchronize", 30, 3),
        call("hipDeviceSynchronize", 40, 4),
    )
    assert profile.syncs == 4


def test_the_calls_of_one_operator_are_one_wait(tmp_path: Path) -> None:
    profile = profile_of(
        tmp_path,
        round_of(0, 0, 99),
        operator("aten::nonzero", 10, 50, external_id=4),
        call("cudaStreamSynchronize", 20, 1, external_id=4),
        call("cudaStreamSynchronize", 30, 2, external_id=4),
    )
    assert profile.syncs == 1


@pytest.mark.parametrize(
    "name", ["cudaEventQuery", "cudaStreamQuery", "cudaStreamWaitEvent", "cudaEventRecord"]
)
def test_polling_and_waits_of_the_device_are_no_waits_of_the_host(
    tmp_path: Path, name: str
) -> None:
    profile = profile_of(
        tmp_path, round_of(0, 0, 99), call(name, 10, 1), wait("Stream Wait Event", 10, 1)
    )
    assert profile.syncs == 0


def test_a_blocking_copy_waits_and_an_asynchronous_one_does_not(tmp_path: Path) -> None:
    copies = [copy("Memcpy DtoH (Device -> Pinned)", 20, 1), copy("Memcpy DtoH (x)", 40, 2)]
    blocking = profile_of(
        tmp_path, round_of(0, 0, 99), call("cudaMemcpy", 10, 1),
        call("cudaMemcpyAsync", 30, 2), copies,
    )  # fmt: skip
    assert blocking.syncs == 1


def test_a_copy_to_pageable_memory_waits_without_a_synchronising_call(tmp_path: Path) -> None:
    profile = profile_of(
        tmp_path, round_of(0, 0, 99), call("cudaMemcpyAsync", 10, 1),
        copy("Memcpy DtoH (Device -> Pageable)", 20, 1),
    )  # fmt: skip
    assert profile.syncs == 1


def test_our_own_synchronisations_after_a_round_are_no_waits(tmp_path: Path) -> None:
    profile = profile_of(
        tmp_path, round_of(0, 0, 99), launched("k", 10, 1), call("cudaDeviceSynchronize", 120, 2),
        wait("Context Sync", 121, 2),
    )  # fmt: skip
    assert profile.syncs == 0


def test_a_recorded_wait_whose_call_is_unknown_counts_in_its_round(tmp_path: Path) -> None:
    profile = profile_of(
        tmp_path, round_of(0, 0, 99), launched("k", 10, 1), wait("Stream Sync", 50, 123)
    )
    assert profile.syncs == 1
    assert profile.waits[0].call == "unknown"


@pytest.mark.parametrize("name", NAMES)
def test_the_device_is_never_busier_than_its_span(name: str) -> None:
    metrics = recorded(name).metrics
    pairs = zip(metrics["gpu_busy"].rounds, metrics["gpu_span"].rounds, strict=True)
    assert all(busy <= span_us for busy, span_us in pairs)


# Kernels of two streams, and of two branches of a graph, may run at the same time.
@pytest.mark.parametrize("name", sorted(set(NAMES) - {"two_streams", "compiled_graphs"}))
def test_kernels_in_a_row_add_up_to_no_more_than_the_busy_time(name: str) -> None:
    metrics = recorded(name).metrics
    pairs = zip(metrics["cuda_time"].rounds, metrics["gpu_busy"].rounds, strict=True)
    assert all(cuda_time <= busy for cuda_time, busy in pairs)


@pytest.mark.parametrize("name", NAMES)
def test_directions_add_up_to_all_copies(name: str) -> None:
    metrics = recorded(name).metrics
    for base in ("memcpys", "memcpy_bytes"):
        parts = (metrics[f"{base}_{direction}"].value for direction in ("h2d", "d2h", "d2d", "p2p"))
        assert sum(value or 0 for value in parts) == metrics[base].value


def test_a_count_is_judged_by_its_largest_round_and_knows_that_it_is_unstable() -> None:
    metric = count("kernels", [3, 5, 4])
    assert (metric.value, metric.stable) == (5, False)


def test_a_time_is_the_median_with_its_interval() -> None:
    metric = timed("cuda_time", [float(i) for i in MIXED])
    assert (metric.value, metric.low, metric.high) == (5.5, 1.0, 10.0)


def test_a_time_of_few_rounds_has_no_interval() -> None:
    metric = timed("cuda_time", [1.0, 2.0, 3.0])
    assert (metric.value, metric.low, metric.high) == (2.0, None, None)


LATENCY = tuple(100.0 + i for i in MIXED)
BUSY = timed("gpu_busy", [20.0 + i / 10 for i in MIXED])


def host(**changed: Any) -> dict[str, Metric]:
    timings = HostTimings(
        **{
            "latency_us": LATENCY,
            "dispatch_us": tuple(50.0 + i for i in MIXED),
            "floor_us": (5.0,) * 12,
            **changed,
        }
    )
    found = host_metrics(timings, BUSY, count("launches", [4]))
    return {metric.name: metric for metric in found}


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
        assert "CUPTI resident: launches cost x1.30" in taxed[name].why


def test_launch_overhead_is_never_below_zero() -> None:
    overhead = host(latency_us=(10.0,) * 12)["launch_overhead"]
    assert (overhead.value, overhead.low, overhead.high) == (0, 0, 0)


def test_without_unprofiled_calls_host_times_are_absent_with_the_reason() -> None:
    for metric in host_metrics(None, BUSY, None):
        assert metric.value is None
        assert metric.why.startswith("not measured")


def test_on_the_cpu_there_is_latency_but_no_launch_overhead() -> None:
    timings = HostTimings(LATENCY, LATENCY, (5.0,) * 12)
    found = {metric.name: metric for metric in host_metrics(timings, None, None)}
    assert found["latency"].value == statistics.median(LATENCY)
    assert found["launch_overhead"].why == "not applicable on the CPU"
