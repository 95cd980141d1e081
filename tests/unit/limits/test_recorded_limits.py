"""Limits judged on profiles of a real GPU."""

from __future__ import annotations

from typing import Any

import pytest
from corpus import record

from pytest_kernelprof.limits.evaluate import evaluate
from pytest_kernelprof.limits.kinds import parse_limit


@pytest.mark.parametrize(
    ("trace", "name", "args", "kwargs", "outcome"),
    [
        ("mlp", "max_kernels", (5,), {}, "kept"),
        ("mlp", "max_kernels", (4,), {}, "over"),
        ("mlp", "max_kernels", (2,), {"match": "nvjet"}, "over"),
        ("mlp", "max_kernels", (3,), {"match": "NVJET"}, "kept"),
        ("graph", "max_launches", (1,), {}, "kept"),
        ("syncs", "max_syncs", (6,), {}, "over"),
        ("copies", "max_memcpys", (2,), {"direction": "d2h"}, "kept"),
        ("copies", "max_memcpys", (5,), {}, "over"),
        ("copies", "max_memcpy_bytes", ("20 MB",), {}, "over"),
        ("copies", "max_memcpy_bytes", ("21 MB",), {}, "kept"),
        ("mlp", "max_peak_memory", ("150 MB",), {}, "over"),
        ("mlp", "max_peak_memory", ("151 MB",), {}, "kept"),
        ("mlp", "max_recompiles", (0,), {}, "kept"),
        ("mlp", "max_cuda_time", ("1us",), {}, "over"),
        ("mlp", "max_cuda_time", ("1s",), {}, "kept"),
        ("mlp", "max_latency", ("1s",), {}, "incomplete"),
        ("mlp", "max_launch_overhead", ("1s",), {}, "incomplete"),
        ("stack", "max_allocations", (0,), {}, "incomplete"),
        ("mlp", "forbid_kernels", ("softmax",), {}, "kept"),
        ("mlp", "forbid_kernels", ("softmax", "gelu"), {}, "over"),
        ("mlp", "expect_kernels", ("mm", "gelu", "mm", "mul", "mm"), {}, "kept"),
        ("mlp", "expect_kernels", (..., "mul", ..., "mm", ...), {}, "kept"),
        ("mlp", "expect_kernels", (..., "gelu"), {}, "over"),
        ("empty", "expect_kernels", (), {}, "kept"),
    ],
)
def test_outcomes_of_recorded_work(
    trace: str, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], outcome: str
) -> None:
    (verdict,) = evaluate(record(trace), [parse_limit(name, args, kwargs)])
    assert verdict.outcome == outcome
