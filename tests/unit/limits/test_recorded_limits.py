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
        ("mlp", "max_kernels", (5,), {}, "passed"),
        ("mlp", "max_kernels", (4,), {}, "failed"),
        ("mlp", "max_kernels", (2,), {"match": "nvjet"}, "failed"),
        ("mlp", "max_kernels", (3,), {"match": "NVJET"}, "passed"),
        ("graph", "max_launches", (1,), {}, "passed"),
        ("syncs", "max_syncs", (6,), {}, "failed"),
        ("copies", "max_memcpys", (2,), {"direction": "d2h"}, "passed"),
        ("copies", "max_memcpys", (5,), {}, "failed"),
        ("copies", "max_memcpy_bytes", ("20 MB",), {}, "failed"),
        ("copies", "max_memcpy_bytes", ("21 MB",), {}, "passed"),
        ("mlp", "max_peak_memory", ("150 MB",), {}, "failed"),
        ("mlp", "max_peak_memory", ("151 MB",), {}, "passed"),
        ("mlp", "max_recompiles", (0,), {}, "passed"),
        ("mlp", "max_cuda_time", ("1us",), {}, "failed"),
        ("mlp", "max_cuda_time", ("1s",), {}, "passed"),
        ("mlp", "max_latency", ("1s",), {}, "incomplete"),
        ("mlp", "max_launch_overhead", ("1s",), {}, "incomplete"),
        ("stack", "max_allocations", (0,), {}, "incomplete"),
        ("mlp", "forbid_kernels", ("softmax",), {}, "passed"),
        ("mlp", "forbid_kernels", ("softmax", "gelu"), {}, "failed"),
        ("mlp", "expect_kernels", ("mm", "gelu", "mm", "mul", "mm"), {}, "passed"),
        ("mlp", "expect_kernels", (..., "mul", ..., "mm", ...), {}, "passed"),
        ("mlp", "expect_kernels", (..., "gelu"), {}, "failed"),
        ("empty", "expect_kernels", (), {}, "passed"),
    ],
)
def test_outcomes_of_recorded_work(
    trace: str, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], outcome: str
) -> None:
    (verdict,) = evaluate(record(trace), [parse_limit(name, args, kwargs)])
    assert verdict.outcome == outcome
