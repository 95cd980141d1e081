"""Time of communication kernels, and how much of it nothing hides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from built import call, collective, kernel, operator, reading_of_events, round_of

from pytest_kernelprof.analysis.collectives import collectives_of, communication_metrics
from pytest_kernelprof.analysis.session_profile import session_facts
from pytest_kernelprof.trace.vocabulary import communicates, operation_of

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


def only(folder: Path, *events: Any) -> Any:
    """The metrics of a round with one launch of each kernel."""
    return communication_metrics(reading_of_events(folder, *events))


def test_what_the_process_group_said_is_read(tmp_path: Path) -> None:
    said = {"In msg nelems": 100, "Out msg nelems": 800, "Process Group Ranks": "[0, 1, 2, 3]"}
    reading = reading_of_events(
        tmp_path,
        call("cudaLaunchKernel", 1, 1),
        call("cudaLaunchKernel", 2, 2),
        kernel("gemm", 5, 1),
        collective(ALL_REDUCE, 20, 2, dur=4, **said),
    )
    (found,) = collectives_of(reading, 0)
    assert (found.kernel, found.operation, found.group) == (1, "allreduce", "0")
    assert (found.ranks, found.number, found.bytes) == ((0, 1, 2, 3), 7, 1600)
    assert found.rounds_us == (4.0,)
    assert communication_metrics(reading)["comm_bytes"].value == 1600


@pytest.mark.parametrize(
    "said",
    [
        {"dtype": "QInt4"},
        {"dtype": None},
        {"In msg nelems": "many"},
        {"In msg nelems": -1},
        {"Out msg nelems": 1.5},
        {"In msg nelems": 2**70},
    ],
)
def test_bytes_that_are_not_said_are_not_to_be_had(tmp_path: Path, said: dict[str, Any]) -> None:
    events = (call("cudaLaunchKernel", 1, 1), collective(ALL_REDUCE, 5, 1, **said))
    found = only(tmp_path, *events)["comm_bytes"]
    assert (found.value, "does not say how much ncclDevKernel_AllReduce" in found.why) == (
        None,
        True,
    )


@pytest.mark.parametrize("ranks", ["[0, 1, ..., 63]", "[]", "0", 3, None, ["a"], "[99999999999]"])
def test_ranks_that_are_not_all_there_are_none(tmp_path: Path, ranks: Any) -> None:
    events = (
        call("cudaLaunchKernel", 1, 1),
        collective(ALL_REDUCE, 5, 1, **{"Process Group Ranks": ranks}),
    )
    (found,) = collectives_of(reading_of_events(tmp_path, *events), 0)
    assert (found.ranks, found.size) == ((), 2)


def test_a_kernel_of_which_nothing_is_said_has_what_its_name_says(tmp_path: Path) -> None:
    """As in a CUDA graph."""
    events = (call("cudaGraphLaunch", 1, 1), kernel(ALL_REDUCE, 5, 1), kernel("gemm", 20, 1))
    reading = reading_of_events(tmp_path, *events)
    (found,) = collectives_of(reading, 0)
    assert (found.kernel, found.operation, found.group, found.bytes) == (0, "AllReduce", "", None)


def test_other_rounds_are_there_where_they_communicate_alike(tmp_path: Path) -> None:
    rounds = [
        event
        for at in (0, 1)
        for event in (
            round_of(at, at * 100, 50),
            call("cudaLaunchKernel", at * 100 + 5, at + 1),
            collective(ALL_REDUCE, at * 100 + 10, at + 1, dur=3 + at),
        )
    ]
    reading = reading_of_events(tmp_path, *rounds)
    assert [one.rounds_us for one in collectives_of(reading, 0)] == [(3.0, 4.0)]
    other = [*rounds, call("cudaLaunchKernel", 106, 9), collective("ncclOther", 120, 9)]
    reading = reading_of_events(tmp_path, *other)
    assert [one.rounds_us for one in collectives_of(reading, 1)] == [(4.0,), (10.0,)]


def test_what_computes_on_another_device_hides_nothing(tmp_path: Path) -> None:
    elsewhere = kernel("gemm", 5, 1)
    elsewhere["args"]["device"] = 1
    events = (
        call("cudaLaunchKernel", 1, 1),
        call("cudaLaunchKernel", 2, 2),
        elsewhere,
        collective(ALL_REDUCE, 5, 2),
    )
    assert only(tmp_path, *events)["exposed_comm_time"].value == 10


def test_what_gloo_does_leaves_no_kernels_so_nothing_is_to_be_had(tmp_path: Path) -> None:
    events = (
        round_of(0, 0, 50),
        operator("gloo:all_reduce", 2, 10),
        call("cudaLaunchKernel", 20, 1),
        kernel("gemm", 25, 1),
    )
    found = only(tmp_path, *events)
    assert {one.value for one in found.values()} == {None}
    assert "gloo communicates on the host (gloo:all_reduce x1)" in found["comm_time"].why


def test_cuda_time_is_of_the_other_kernels(tmp_path: Path) -> None:
    events = (
        call("cudaLaunchKernel", 1, 1),
        call("cudaLaunchKernel", 2, 2),
        kernel("gemm", 5, 1, dur=7),
        collective(ALL_REDUCE, 5, 2, dur=30),
    )
    facts = session_facts(reading_of_events(tmp_path, *events))
    values = [
        facts.profile.metrics[name].value
        for name in ("cuda_time", "comm_time", "gpu_busy", "kernels")
    ]
    assert values == [7, 30, 30, 2]


@pytest.mark.parametrize(
    ("name", "operation"),
    [
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "AllReduce"),
        (
            "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)",
            "SendRecv",
        ),
        ("ncclAllReduceRingLLKernel_sum_f32(ncclColl)", "AllReduce"),
        ("ncclSendRecvKernel_copy_i8(ncclColl)", "SendRecv"),
        ("ncclSymkDevKernel_AllReduce_AGxLL_R_sum_f32(ncclSymkDevWorkArgs4K)", "AllReduce"),
        ("ncclSymDevKernel_AllGather_LL(ncclSymDevArgs)", "AllGather"),
        ("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL", "ReduceScatter"),
        ("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", ""),
        ("_Z42ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_tP11ncclDevCommmP8ncclWork", "SendRecv"),
        ("rccl_main_kernel", ""),
        ("void c10d::nvshmem_extension::allToAllV(void*, void*)", ""),
        ("void (anonymous namespace)::one_shot_all_reduce_kernel<float, 16, 2>(float**)", ""),
        ("void two_shot_all_reduce_kernel_inplace<c10::BFloat16, 16, 8>(c10::BFloat16**)", ""),
        ("void multimem_all_reduce_kernel<float, 16>(float*)", ""),
        ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(vllm::RankData*)", ""),
        (
            "c10d::symmetric_memory::barrier_kernel(unsigned int**, int, int, int, unsigned long)",
            "",
        ),
    ],
)
def test_kernels_of_libraries_for_communication_are_known_by_name(
    name: str, operation: str
) -> None:
    assert (communicates(name), operation_of(name)) == (True, operation)


@pytest.mark.parametrize(
    "name",
    [
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(float)",
        "my_block_all_reduce_kernel",
        "warp_barrier_kernel",
        "barrier_kernel(int*)",
        "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT",
        "Memcpy PtoP (Device -> Device)",
    ],
)
def test_what_is_called_otherwise_computes(name: str) -> None:
    assert not communicates(name)
