"""Tests that stop, turn back or speed up the clocks of Python, as freezegun does too."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Run = Callable[..., pytest.RunResult]

CLOCKS = """
import itertools, time
from unittest import mock

def patched(*readings):
    names = ("perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "time", "time_ns")
    return [mock.patch(f"time.{name}", side_effect=itertools.cycle(readings)) for name in names]

def slow():
    time.sleep(0.004)

@pytest.fixture(params=["stopped", "backwards", "fast"])
def clock(request):
    readings = {"stopped": [5], "backwards": range(10**6, 0, -1), "fast": range(0, 10**15, 10**10)}
    patches = patched(*itertools.islice(readings[request.param], 1000))
    for one in patches:
        one.start()
    yield
    for one in patches:
        one.stop()
"""


def test_a_latency_is_timed_by_a_clock_of_ours(run: Run) -> None:
    result = run(
        CLOCKS
        + """
@pytest.mark.max_latency("1ms")
def test_over(kernel_profile, clock):
    kernel_profile(slow)

@pytest.mark.max_latency("10s")
def test_kept(kernel_profile, clock):
    kernel_profile(slow)

def test_compared(kernel_profile, clock):
    comparison = kernel_profile.compare(slow, three, metric="latency", rounds=8)
    assert comparison.candidate.value >= 4000
"""
    )
    result.assert_outcomes(passed=6, failed=3)
    result.stdout.fnmatch_lines(["E   max_latency: *ms > limit 1.00ms", "  *, 99 % CI *"] * 3)


def test_the_clock_of_pytest_benchmark_is_ours_too(run: Run) -> None:
    pytest.importorskip("pytest_benchmark")
    result = run(
        CLOCKS
        + """
def test_it(kernel_benchmark, benchmark, clock):
    kernel_benchmark.run(slow, setup=lambda: None, rounds=3)
    assert benchmark.stats["min"] >= 0.004
""",
        *("-p", "benchmark"),
    )
    result.assert_outcomes(passed=3)
