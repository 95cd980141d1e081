"""Work, rates and verdicts from a recorded trace with shapes, and from hand-made numbers."""

from __future__ import annotations

from pathlib import Path

import pytest
from built import Event, call, kernel, operator, reading_of_events, span
from corpus import reading, recorded

from pytest_kernelprof.analysis.metric_values import bound_of, metric_of
from pytest_kernelprof.analysis.roofline import (
    Amount,
    Peaks,
    Rate,
    peaks_of,
    rates,
    roofline_of,
)
from pytest_kernelprof.analysis.session_profile import session_facts
from pytest_kernelprof.records.recording import HostTimings, Roofline
from pytest_kernelprof.trace.correlation import Reading

PEAKS = Peaks(1000.0, {"16": 100.0, "tf32": 50.0, "32": 10.0})
H200 = peaks_of("NVIDIA H200")


def rates_of(session: Reading, peaks: Peaks | None = H200) -> tuple[Rate, ...]:
    facts = session_facts(session)
    operators, kernels = facts.operators["kernels"], facts.profile.kernels
    return rates(session, operators, kernels, peaks)


def tflops(rate: Rate) -> float:
    return rate.amount.flops / rate.duration_us / 1e6


def test_the_recorded_mlp_products_are_near_compute_and_pointwise_ones_near_memory() -> None:
    found = rates_of(reading("memory"))
    assert [(rate.operator, rate.roof) for rate in found] == [
        ("aten::mm", "compute"),
        ("aten::gelu", "memory"),
        ("aten::mm", "compute"),
        ("aten::mul", "memory"),
        ("aten::mm", "compute"),
    ]
    assert tflops(found[0]) == pytest.approx(2 * 8192 * 768 * 3072 / 55.872 / 1e6)
    assert found[3].amount.bytes == 3 * 8192 * 3072 * 2
    assert found[3].duration_us == pytest.approx(36.416)
    assert all(0 < (rate.of_compute or 0) < 1 for rate in found)
    assert all(0 < (rate.of_memory or 0) < 1 for rate in found)


def test_the_verdict_on_the_recorded_mlp() -> None:
    busy = recorded("memory").gpu_busy or 0
    verdict = roofline_of(rates_of(reading("memory")), busy, H200)
    assert verdict == Roofline("compute", "716 TFLOP/s, 72% of the peak, in 71% of the GPU time")


def test_a_trace_without_shapes_tells_no_work() -> None:
    assert rates_of(reading("mlp")) == ()
    assert roofline_of((), 100.0, H200).reason == "no shapes of a known operator were recorded"


def test_an_unknown_gpu_has_rates_but_no_shares_and_no_verdict() -> None:
    found = rates_of(reading("memory"), None)
    assert tflops(found[0]) > 600
    assert (found[0].of_compute, found[0].of_memory, found[0].roof) == (None, None, None)
    assert roofline_of(found, 200.0, None).roof is None


def rate_of(flops: float, moved: float, precision: str = "16", us: float = 1.0) -> Rate:
    amount = Amount(int(flops), int(moved), "c10::Half", matrix=True)
    return Rate("aten::mm", amount, precision, us, PEAKS)


@pytest.mark.parametrize(
    ("flops", "moved", "precision", "roof"),
    [
        (80e6, 100e3, "16", "compute"),
        (10e6, 800e3, "16", "memory"),
        (45e6, 500e3, "16", "memory"),
        (30e6, 300e3, "16", None),
        (40e6, 100e3, "tf32", "compute"),
        (40e6, 100e3, "", None),
        (40e6, 800e3, "", None),
        (0, 800e3, "", "memory"),
        (0, 1500e3, "32", "memory"),
    ],
)
def test_the_nearer_roof_counts_if_it_is_near(
    flops: float, moved: float, precision: str, roof: str | None
) -> None:
    assert rate_of(flops, moved, precision).roof == roof


def test_a_verdict_needs_more_than_half_of_the_time() -> None:
    compute, memory = rate_of(80e6, 1e3), rate_of(0, 800e3)
    assert roofline_of((compute, memory), 4.0, PEAKS) == Roofline(
        None, "neither roof is near in most of the GPU time (work known for 50% of it)"
    )
    assert roofline_of((compute, memory), 1.5, PEAKS).roof == "compute"
    slow = rate_of(0, 800e3, us=3.0)
    assert roofline_of((compute, slow), 4.0, PEAKS).roof is None
    assert roofline_of((memory,), 1.0, PEAKS) == Roofline(
        "memory", "800 GB/s, 80% of the memory's peak, in 100% of the GPU time"
    )


def with_inputs(event: Event, *shapes: list[int], dtype: str = "float") -> Event:
    event["args"] |= {"Input Dims": [*shapes], "Input type": [dtype] * len(shapes)}
    return event


def test_a_copy_inside_a_matmul_is_a_copy_and_the_product_keeps_its_own_operator(
    tmp_path: Path,
) -> None:
    session = reading_of_events(
        tmp_path,
        with_inputs(operator("aten::matmul", 0, 90, external_id=1), [8, 4], [4, 2]),
        with_inputs(operator("aten::copy_", 1, 20, external_id=2), [8, 4], [8, 4]),
        with_inputs(operator("aten::mm", 30, 20, external_id=3), [8, 4], [4, 2]),
        operator("aten::odd", 60, 20, external_id=4),
        *(
            event
            for i, at in ((2, 2), (3, 31), (4, 61))
            for event in (
                call("cudaLaunchKernel", at, i, external_id=i),
                kernel(f"k{i}", at + 5, i),
            )
        ),
        record_shapes=1,
    )
    assert [one.operator for one in rates_of(session)] == ["aten::copy_", "aten::mm"]


def test_kernels_of_one_operator_share_its_work(tmp_path: Path) -> None:
    session = reading_of_events(
        tmp_path,
        with_inputs(operator("aten::mm", 0, 20, external_id=1), [8, 4], [4, 2]),
        operator("aten::odd", 30, 20, external_id=2),
        *(
            event
            for i, at, by in ((1, 1, 1), (2, 3, 1), (3, 31, 2))
            for event in (
                call("cudaLaunchKernel", at, i, external_id=by),
                span("kernel", "sgemm", at + 50, i, 7, correlation=i, stream=7),
            )
        ),
        record_shapes=1,
    )
    (rate,) = rates_of(session, PEAKS)
    assert (rate.operator, rate.amount.flops) == ("aten::mm", 2 * 8 * 4 * 2)
    assert rate.duration_us == 1 + 2
    assert rate.of_compute == pytest.approx(128 / 3 / 1e6 / 10)


@pytest.mark.parametrize(
    ("kernel_name", "precision"),
    [
        ("ampere_sgemm_128x64_tn", "32"),
        ("cutlass_80_tensorop_s1688gemm_128x128_16x5_nn_align4", "tf32"),
        ("sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize64x64x64", "tf32"),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize64x64x8", "32"),
        ("nvjet_sm90_odd", ""),
    ],
)
def test_the_kernels_name_tells_what_float32_is_multiplied_in(
    tmp_path: Path, kernel_name: str, precision: str
) -> None:
    session = reading_of_events(
        tmp_path,
        with_inputs(operator("aten::mm", 0, 20, external_id=1), [8, 4], [4, 2]),
        call("cudaLaunchKernel", 1, 1, external_id=1),
        span("kernel", kernel_name, 9, 3, 7, correlation=1, stream=7),
        record_shapes=1,
    )
    (found,) = rates_of(session)
    assert found.precision == precision


@pytest.mark.parametrize(
    ("roofline", "verdict"),
    [
        (Roofline("memory", "why"), "memory"),
        (Roofline("compute", "why"), "compute"),
        (Roofline(None, "why"), "gpu"),
        (None, "gpu"),
    ],
)
def test_only_a_call_that_the_device_limits_gets_a_roof(
    roofline: Roofline | None, verdict: str
) -> None:
    metrics = {
        "gpu_busy": metric_of("gpu_busy", [100.0]),
        "syncs": metric_of("syncs", [0]),
        "kernels": metric_of("kernels", [5]),
        "launches": metric_of("launches", [5]),
    }
    bound = bound_of(metrics, HostTimings((1.0,), (1.0,), (1.0,), 105.0), roofline)
    assert bound.verdict == verdict
    assert bound.reason.endswith("why") is (roofline is not None)
    slow = bound_of(metrics, HostTimings((1.0,), (1.0,), (1.0,), 300.0), roofline)
    assert slow.verdict == "overhead"
