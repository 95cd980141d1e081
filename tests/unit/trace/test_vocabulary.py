"""Which table an event goes to, and what the names of calls and activities tell."""

from __future__ import annotations

import re

import numpy as np
import pytest

from pytest_kernelprof.trace.columns import Names
from pytest_kernelprof.trace.vocabulary import (
    ACTIVITY_KINDS,
    CAPTURE_BEGINS,
    CAPTURE_ENDS,
    CLOSING_CALL,
    COLD_CALL,
    COLD_OVERHEAD,
    COMPILATION,
    GRAPH_LAUNCH,
    LAUNCH,
    MEMCPY_CALL,
    NO_KERNEL,
    NOT_A_HOST_WAIT,
    PAGEABLE,
    POLLING,
    TO_PAGEABLE,
    WAIT_CALL,
    direction_of,
    table_of,
)


@pytest.mark.parametrize(
    ("category", "table"),
    [
        ("cpu_op", "operator"),
        ("user_annotation", "operator"),
        ("cuda_runtime", "call"),
        ("cuda_driver", "call"),
        ("xpu_runtime", "call"),
        ("mtia_runtime", "call"),
        ("Runtime", "call"),
        ("Operator", "operator"),
        ("Kernel", "activity"),
        ("Memcpy", "activity"),
        ("Memset", "activity"),
        ("mtia_ccp_events", ""),
        ("cuda_profiler_range", ""),
        ("kernel", "activity"),
        ("gpu_memcpy", "activity"),
        ("gpu_memset", "activity"),
        ("cuda_sync", "wait"),
        ("overhead", "overhead"),
        ("python_function", "frame"),
        ("gpu_user_annotation", ""),
        ("ac2g", ""),
        ("Trace", "overhead"),
        ("", ""),
    ],
)
def test_the_category_decides_on_the_table(category: str, table: str) -> None:
    assert table_of(category) == table


def test_each_kind_of_activity_has_a_code_of_its_own() -> None:
    assert sorted(ACTIVITY_KINDS.values()) == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize(
    ("pattern", "hits", "others"),
    [
        (
            LAUNCH,
            ["cudaLaunchKernel", "cuLaunchKernelEx", "urEnqueueKernelLaunch"],
            ["cudaMalloc", "cudaEventRecord", "urEnqueueEventsWait"],
        ),
        (
            NO_KERNEL,
            ["cudaLaunchHostFunc", "cuLaunchHostFunc", "urEnqueueMemFill", "cudaMemsetAsync"],
            ["cudaLaunchKernel", "cudaGraphLaunch"],
        ),
        (MEMCPY_CALL, ["cudaMemcpyAsync", "hipMemcpy"], ["cudaMemsetAsync"]),
        (GRAPH_LAUNCH, ["cudaGraphLaunch", "cuGraphLaunch"], ["cudaGraphInstantiate"]),
        (CAPTURE_BEGINS, ["cudaStreamBeginCapture"], ["cudaStreamEndCapture"]),
        (CAPTURE_ENDS, ["cudaStreamEndCapture"], ["cudaStreamIsCapturing"]),
        (POLLING, ["cudaEventQuery", "cudaStreamQuery"], ["cudaEventSynchronize"]),
        (
            WAIT_CALL,
            ["cudaStreamSynchronize", "cuCtxSynchronize", "cudaMemcpy", "hipMemcpy2D"],
            ["cudaMemcpyAsync", "hipMemcpyWithStreamAsync", "cudaMemcpyBatch", "cudaEventRecord"],
        ),
        (
            CLOSING_CALL,
            ["cudaDeviceSynchronize", "hipDeviceSynchronize"],
            ["cudaStreamSynchronize"],
        ),
        (NOT_A_HOST_WAIT, ["Stream Wait Event"], ["Stream Sync", "Context Sync", "Event Sync"]),
        (PAGEABLE, ["Memcpy HtoD (Pageable -> Device)"], ["Memcpy HtoD (Pinned -> Device)"]),
        (
            TO_PAGEABLE,
            ["Memcpy DtoH (Device -> Pageable)"],
            ["Memcpy HtoD (Pageable -> Device)", "Memcpy DtoH (Device -> Pinned)"],
        ),
        (COLD_OVERHEAD, ["Lazy Function Loading", "Module Loading"], ["Buffer Flush"]),
        (COLD_CALL, ["cuModuleLoadData", "cuLibraryLoadData", "cuLinkCreate"], ["cudaMalloc"]),
        (
            COMPILATION,
            ["compile_fx (dynamo_timed)", "Torch-Compiled Region: compile_id=0/0"],
            ["aten::compile", "epoch"],
        ),
    ],
)
def test_names_that_a_pattern_knows_and_names_that_it_does_not(
    pattern: re.Pattern[str], hits: list[str], others: list[str]
) -> None:
    assert [name for name in (*hits, *others) if pattern.search(name)] == hits


@pytest.mark.parametrize(
    ("name", "direction"),
    [
        ("Memcpy DtoH (Device -> Pageable)", "d2h"),
        ("Memcpy PtoP (Device -> Device)", "p2p"),
        ("Memcpy HtoH (Host -> Host)", "h2h"),
        ("Memcpy HtoA (Host -> Array)", "h2d"),
        ("Memcpy AtoD (Array -> Device)", "d2d"),
        ("Memcpy M2D (Memory -> Device)", "h2d"),  # XPU
        ("Memcpy D2M (Device -> Memory)", "d2h"),
        ("CopyDeviceToHost", "d2h"),  # ROCm
        ("CopyHostToDevice", "h2d"),
        ("Memcpy (Unknown)", "?"),
        ("Memcpy S2D (Shared -> Device)", "?"),
    ],
)
def test_a_direction_is_where_a_copy_comes_from_and_goes_to(name: str, direction: str) -> None:
    assert direction_of(name) == direction


def test_names_are_matched_one_by_one() -> None:
    names = Names(np.array([0, 1, 0, 2]), ("cudaMemcpy", "cudaFree", "x"))
    assert names.matching(MEMCPY_CALL).tolist() == [True, False, True, False]


def test_no_names_match_nothing() -> None:
    none = Names(np.empty(0, np.int32), ()).matching(MEMCPY_CALL)
    assert none.tolist() == []
    assert none.dtype == np.bool_
