"""One measurement inside of another is refused, and who holds the profiler is named."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Run = Callable[..., pytest.RunResult]

NESTED = """
import pytest_kernelprof
def test_regions(kernel_profile, kernelprof_device):
    with kernel_profile.region("outer"):
        with kernel_profile.region("inner"): three()
def test_call_in_region(kernel_profile, kernelprof_device):
    with kernel_profile.region("outer"):
        kernel_profile(three)
def test_call_in_call(kernel_profile, kernelprof_device):
    kernel_profile(lambda: kernel_profile(three))
def test_region_in_comparison(kernel_profile, kernelprof_device):
    def region():
        with kernel_profile.region("inner"): three()
    kernel_profile.compare(region, three)
@pytest.mark.max_kernels(3)
def test_plain_function():
    pytest_kernelprof.profile(three)
def test_profiler_of_other_code(kernel_profile, kernelprof_device):
    with torch.profiler.profile(): kernel_profile(three)
@pytest.mark.max_kernels(3)
def test_next(kernel_profile):
    kernel_profile(three)
"""
HELD = """
ERROR *test_regions - region 'outer' at test_it.py:9 is being profiled, and torch.profiler cannot nest: profile one after the other, or only one of them
ERROR *test_call_in_region - region 'outer' at test_it.py:12 is being profiled, *
ERROR *test_call_in_call - kernel_profile at test_it.py:15 is being profiled, *
ERROR *test_region_in_comparison - the comparison at test_it.py:19 is being profiled, *
ERROR *test_plain_function - the whole call of test_it.py::test_plain_function is being *
ERROR *test_profiler_of_other_code - a torch profiler is already running, started in this thread by other code than *--kernelprof-disable*
""".strip().splitlines()  # noqa: E501


def test_who_holds_the_profiler_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    result = run(NESTED, "-rE")
    result.assert_outcomes(passed=1, errors=len(HELD))
    result.stdout.fnmatch_lines_random(HELD)
