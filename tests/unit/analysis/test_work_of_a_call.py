"""The work of a call: what shapes tell of it, what stays unknown, and the peak for its mix."""

from __future__ import annotations

from pathlib import Path

import pytest
from built import Event, call, copy, kernel, operator, reading_of_events, span
from corpus import reading, recorded
from msgspec.structs import replace

from pytest_kernelprof.analysis.metric_values import metric_of, rate_metrics
from pytest_kernelprof.analysis.roofline import work_of
from pytest_kernelprof.api import Profile
from pytest_kernelprof.records.recording import Work
from pytest_kernelprof.trace.correlation import Reading
from pytest_kernelprof.trace.reader import read_trace
from pytest_kernelprof.trace.trace_text import write_trace

H200 = "NVIDIA H200"
"""989.5 TFLOP/s of float16, 494.5 of tf32, 67 of float32; 4800 GB/s."""
PRODUCT = 2 * 8 * 4 * 2


def shaped(name: str, at: int, number: int, dtype: str, *shapes: list[int]) -> Event:
    event = operator(name, at, 20, external_id=number)
    event["args"] |= {"Input Dims": [*shapes], "Input type": [dtype] * len(shapes)}
    return event


def launched(name: str, at: int, number: int) -> list[Event]:
    launch = call("cudaLaunchKernel", at + 1, number, external_id=number)
    return [launch, kernel(name, at + 5, number)]


def product(number: int, dtype: str, kernel_name: str = "gemm") -> list[Event]:
    at = 40 * number
    mm = shaped("aten::mm", at, number, dtype, [8, 4], [4, 2])
    return [mm, *launched(kernel_name, at, number)]


def unknown(number: int) -> list[Event]:
    at = 40 * number
    return [operator("my::gemm", at, 20, external_id=number), *launched("mine", at, number)]


def session(folder: Path, *events: list[Event]) -> Reading:
    return reading_of_events(folder, *events, record_shapes=1)


def test_the_recorded_mlp_is_known_whole() -> None:
    found = work_of(reading("memory"), 0, H200)
    products = 3 * 2 * 8192 * 768 * 3072
    assert found["throughput"].unknown == found["bandwidth"].unknown == ()
    flops = found["throughput"].amount
    assert flops is not None
    assert products < flops < 1.01 * products
    # Nearly all are products in 16 bit, some elements are computed outside of tensor cores.
    assert 900e12 < (found["throughput"].peak or 0) < 989.5e12
    assert found["bandwidth"].peak == 4800e9


def test_rates_are_the_work_over_the_busy_time_of_each_round() -> None:
    busy = recorded("memory").metrics["gpu_busy"]
    work = work_of(reading("memory"), 0, H200)["throughput"]
    metrics = rate_metrics({"throughput": work}, busy)
    assert work.amount is not None
    expected = [work.amount / us * 1e6 for us in busy.rounds]
    assert metrics["throughput"].rounds == pytest.approx(expected)
    assert metrics["peak_throughput"].value == work.peak
    assert metrics["bandwidth"].value is None


@pytest.mark.parametrize(
    ("dtype", "kernel_name", "peak"),
    [
        ("c10::BFloat16", "nvjet", 989.5e12),
        ("float", "sm80_s1688gemm_tf32", 494.5e12),
        ("float", "sgemm", 67e12),
        ("c10::Float8_e4m3fn", "nvjet", 1979e12),
    ],
)
def test_the_peak_is_that_of_the_operators_type(
    tmp_path: Path, dtype: str, kernel_name: str, peak: float
) -> None:
    found = work_of(session(tmp_path, product(1, dtype, kernel_name)), 0, H200)["throughput"]
    assert found == Work(PRODUCT, peak=pytest.approx(peak))


def test_the_peak_of_a_mix_is_its_work_over_the_least_time(tmp_path: Path) -> None:
    mixed = session(tmp_path, product(1, "c10::Half"), product(2, "float", "sgemm"))
    found = work_of(mixed, 0, H200)["throughput"]
    assert found.peak == pytest.approx(2 / (1 / 989.5e12 + 1 / 67e12))


def test_an_unknown_part_leaves_a_lower_bound_over_the_peak_of_what_is_known(
    tmp_path: Path,
) -> None:
    found = work_of(session(tmp_path, product(1, "c10::Half"), unknown(2)), 0, H200)
    assert found["throughput"] == Work(PRODUCT, ("my::gemm",), pytest.approx(989.5e12))
    assert found["bandwidth"].unknown == ("my::gemm",)


def test_what_is_launched_by_no_operator_is_named_by_its_kernel(tmp_path: Path) -> None:
    launch = call("cuLaunchKernelEx", 10, 1)
    found = work_of(session(tmp_path, [launch, kernel("my_triton_gemm", 20, 1)]), 0, H200)
    assert found["throughput"].amount == 0
    assert found["throughput"].unknown == ("my_triton_gemm",)
    assert found["throughput"].peak is None


def test_of_many_unknown_operators_the_first_are_named(tmp_path: Path) -> None:
    each = [
        [operator(f"my::op{n}", 40 * n, 20, external_id=n), *launched("k", 40 * n, n)]
        for n in range(1, 6)
    ]
    found = work_of(session(tmp_path, *each), 0, H200)["throughput"]
    assert found.unknown == ("my::op1", "my::op2", "my::op3", "2 more")


def test_a_product_without_a_known_peak_says_which(tmp_path: Path) -> None:
    found = work_of(session(tmp_path, product(1, "double")), 0, H200)["throughput"]
    assert found.peak is None
    assert found.why == "the peaks of NVIDIA H200 are not known for aten::mm"


def test_a_gpu_that_is_not_in_the_table_has_no_peaks(tmp_path: Path) -> None:
    found = work_of(session(tmp_path, product(1, "c10::Half")), 0, "NVIDIA H200 MIG 1g.18gb")
    for one in found.values():
        assert one.amount
        assert (one.peak, one.why) == (None, "the peaks of NVIDIA H200 MIG 1g.18gb are not known")


def test_a_copy_computes_nothing_and_one_from_the_host_is_no_work_of_this_memory(
    tmp_path: Path,
) -> None:
    def copied(number: int, direction: str) -> list[Event]:
        at = 40 * number
        to = shaped("aten::copy_", at, number, "float", [8, 4], [8, 4])
        launch = call("cudaMemcpyAsync", at + 1, number, external_id=number)
        return [to, launch, copy(f"Memcpy {direction}", at + 5, number)]

    inside, outside = "DtoD (Device -> Device)", "HtoD (Pinned -> Device)"
    found = work_of(session(tmp_path, product(1, "c10::Half"), copied(2, inside)), 0, H200)
    assert found["bandwidth"].unknown == ()
    assert found["bandwidth"].amount == (8 * 4 + 4 * 2 + 8 * 2) * 2 + 2 * 8 * 4 * 4
    found = work_of(session(tmp_path, product(1, "c10::Half"), copied(2, outside)), 0, H200)
    assert found["bandwidth"].unknown == ("aten::copy_",)
    assert found["bandwidth"].amount == (8 * 4 + 4 * 2 + 8 * 2) * 2
    assert found["throughput"].unknown == ()


@pytest.mark.parametrize(("operator_id", "left"), [(1, ()), (2, ("my::gemm",))])
def test_a_memset_is_part_of_its_operator(
    tmp_path: Path, operator_id: int, left: tuple[str, ...]
) -> None:
    at = 40 * operator_id + 3
    cleared = [
        operator("my::gemm", 80, 20, external_id=2),
        call("cudaMemsetAsync", at, 9, external_id=operator_id),
        span("gpu_memset", "Memset (Device)", at + 9, 1, 7, correlation=9, stream=7),
    ]
    found = work_of(session(tmp_path, product(1, "c10::Half"), cleared), 0, H200)
    assert found["bandwidth"].unknown == left
    assert found["throughput"].unknown == ()


def test_without_shapes_nothing_is_known() -> None:
    found = work_of(reading("mlp"), 0, H200)["throughput"]
    assert found.amount == 0
    assert "aten::mm" in found.unknown


def test_a_call_that_launches_nothing_has_no_work() -> None:
    found = work_of(reading("empty"), 0, H200)
    assert found["bandwidth"] == Work(0, peak=4800e9)
    assert (found["throughput"].amount, found["throughput"].peak) == (0, None)


def test_a_saved_trace_keeps_the_work(tmp_path: Path) -> None:
    source = reading("memory").trace
    noted = replace(source.recording, schema=1, work={"throughput": Work(10**12, peak=989.5e12)})
    write_trace(source.source, noted, tmp_path / "case.json.gz")
    assert read_trace(tmp_path / "case.json.gz").recording.work == noted.work
    profile = Profile.from_trace(tmp_path / "case.json.gz")
    assert profile.throughput == pytest.approx(10**18 / (profile.gpu_busy or 0), rel=0.01)
    assert profile.peak_throughput == 989.5e12


def test_one_round_has_a_rate_and_no_interval() -> None:
    metric = rate_metrics({"bandwidth": Work(10**9)}, metric_of("gpu_busy", [500.0]))["bandwidth"]
    assert (metric.value, metric.low, metric.high) == (2e12, None, None)
