"""Limits that only a GPU has: on the CPU a test with nothing else skips."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Run = Callable[..., pytest.RunResult]

MARKERS = [
    "max_launches(1)",
    'max_cuda_time("1us")',
    'max_launch_overhead("30%")',
    'max_exposed_comm("10%")',
    'min_throughput("600 TFLOP/s")',
    'min_bandwidth("80%")',
    "max_memcpys(0)",
    'max_memcpy_bytes("1 MB", direction="h2d")',
    "max_syncs(0)",
    'max_peak_memory("64 MB")',
    "max_allocations(0)",
    "max_registers(128)",
    'max_shared_memory("100 KB")',
    'max_spills(0, match="gemm")',
    "max_jit_compiles(0)",
]
TEST = """
@pytest.mark.{marker}
def test_it(kernel_profile):
    kernel_profile(three)
"""


@pytest.mark.parametrize("marker", MARKERS)
def test_on_the_cpu_it_skips_and_names_the_limit(run: Run, marker: str) -> None:
    result = run(TEST.format(marker=marker))
    result.assert_outcomes(skipped=1)
    name = marker.partition("(")[0]
    result.stdout.fnmatch_lines(
        [f"SKIPPED * test_it.py:*: not applicable on the CPU: {name} (see docs/trust.md#*)"]
    )


@pytest.mark.project(TEST.format(marker="max_syncs(0)"))
def test_with_workers_it_skips_too(result_of_workers: pytest.RunResult) -> None:
    result_of_workers.assert_outcomes(skipped=1)
    result_of_workers.stdout.fnmatch_lines(
        ["SKIPPED * test_it.py:*: not applicable on the CPU: max_syncs (see *)"]
    )


def test_several_are_all_named(run: Run) -> None:
    result = run(TEST.format(marker="max_syncs(0)\n@pytest.mark.max_launches(1)"))
    result.stdout.fnmatch_lines(
        ["SKIPPED *: not applicable on the CPU: max_syncs, max_launches (see *)"]
    )


def test_beside_a_limit_that_the_cpu_has_the_test_runs(run: Run) -> None:
    result = run(TEST.format(marker="max_syncs(0)\n@pytest.mark.max_kernels(2)"))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E   max_kernels: 3 > limit 2", "  at test_it.py:5", "    5 | *"])


@pytest.mark.parametrize("marker", MARKERS)
def test_without_a_device_the_test_runs_and_the_limit_is_not_judged(
    run: Run, no_gpu: None, marker: str
) -> None:
    result = run(TEST.format(marker=marker), device=None)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["kernelprof: *; 1 not judged (no CUDA device)*"])


def test_a_marked_test_without_the_fixture_skips_before_it_runs(run: Run) -> None:
    result = run("@pytest.mark.max_syncs(0)\ndef test_it(): raise KeyError('ran')\n")
    result.assert_outcomes(skipped=1)
