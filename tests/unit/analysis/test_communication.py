"""Time of communication kernels, and how much of it nothing hides."""

from __future__ import annotations

from pathlib import Path

import pytest
from built import call, kernel, reading_of_events

from pytest_kernelprof.analysis.communication import communication_metrics

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


@pytest.mark.parametrize(
    ("computing", "exposed"),
    [
        ([], 20),
        ([(100, 20)], 0),
        ([(90, 15)], 15),  # 105 to 120
        ([(105, 5), (112, 3)], 12),
        ([(10, 5), (300, 5)], 20),
        ([(95, 30), (96, 2)], 0),
    ],
)
def test_what_no_other_kernel_hides_is_exposed(
    tmp_path: Path, computing: list[tuple[float, float]], exposed: float
) -> None:
    kernels = [(ALL_REDUCE, 100.0, 20.0), *(("gemm", ts, dur) for ts, dur in computing)]
    events = [
        event
        for number, (name, ts, dur) in enumerate(kernels, 1)
        for event in (
            call("cudaLaunchKernel", number, number, dur=0.5),
            kernel(name, ts, number, dur=dur, stream=7 + number),
        )
    ]
    found = communication_metrics(reading_of_events(tmp_path, *events))
    assert (found["comm_time"].value, found["exposed_comm_time"].value) == (20, exposed)


def test_a_trace_without_communication_spends_nothing_on_it(tmp_path: Path) -> None:
    events = (call("cudaLaunchKernel", 1, 1), kernel("gemm", 5, 1))
    found = communication_metrics(reading_of_events(tmp_path, *events))
    assert (found["comm_time"].value, found["exposed_comm_time"].value) == (0, 0)
    assert found["comm_bytes"].value == 0
    assert found["comm_wait"].why == "no kernel of it communicates"
