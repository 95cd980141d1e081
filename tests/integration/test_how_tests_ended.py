"""Rows and words where a test ends otherwise than by its limits, or where not all were judged."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from reported import counts_of

Run = Callable[..., pytest.RunResult]

ENDS = """
import unittest
@pytest.fixture
def broken_at_the_end():
    yield
    raise KeyError("mine")
@pytest.mark.max_kernels(3)
class TestEnds:
    def test_passes(self, kernel_profile): kernel_profile(three)
    def test_fails(self, kernel_profile): kernel_profile(three); assert not "mine"
    def test_skips(self, kernel_profile): kernel_profile(three); pytest.skip("mine")
    @pytest.mark.xfail
    def test_xfails(self, kernel_profile): kernel_profile(three); assert not "mine"
    @pytest.mark.xfail(strict=True)
    def test_xpasses(self, kernel_profile): kernel_profile(three)
    def test_ends_broken(self, kernel_profile, broken_at_the_end): kernel_profile(three)
    @pytest.mark.min_speedup(1000, over=three)
    def test_promise(self, kernel_profile): kernel_profile(three)
    def test_compares(self, kernel_profile):
        kernel_profile(three)
        kernel_profile.compare(three, three).min_speedup(1000)
    def test_catches(self, kernel_profile):
        kernel_profile(three)
        with pytest.raises(TypeError): kernel_profile(3)
    def test_other_row(self, kernel_profile):
        kernel_profile(three)
        with kernel_profile.region("r", max_kernels=2): three()
@pytest.mark.max_kernels(3)
class TestUnit(unittest.TestCase):
    def test_fails(self): three(); self.fail("mine")
    def test_skips(self): three(); self.skipTest("mine")
"""
# Where a comparison broke its promise, the row of a profile that kept its own limits says so; the
# comparison is told by itself.
ROWS = {
    "TestEnds::test_other_row [r]": "✗",
    "TestEnds::test_fails": "✗",
    "TestEnds::test_xpasses": "✗",
    "TestUnit::test_fails": "✗",
    "TestEnds::test_ends_broken": "!",
    "TestEnds::test_catches": "!",
    "TestEnds::test_compares": "✓",
    "TestEnds::test_other_row": "✓",
    "TestEnds::test_passes": "✓",
    "TestEnds::test_promise": "✓",
    "TestEnds::test_xfails": "x",
    "TestEnds::test_skips": "–",
    "TestUnit::test_skips": "–",
}


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "140")


def ends_of(result: pytest.RunResult) -> list[tuple[str, str]]:
    """Of each row of the report the profile and the sign, in their order."""
    found = [re.fullmatch(r"(\S) (?:\d+(?: > \d+)? )*(.*)", row) for row in counts_of(result)]
    return [(one[2], one[1]) for one in found if one]


@pytest.mark.project(ENDS, "--kernelprof-report", "-v")
def test_a_row_says_how_its_test_ended_where_limits_did_not_end_it(
    result: pytest.RunResult,
) -> None:
    assert ends_of(result) == list(ROWS.items())


@pytest.mark.project(ENDS, "--kernelprof-report", "-v")
def test_a_comparison_says_what_was_asserted_of_it(result: pytest.RunResult) -> None:
    result.stdout.fnmatch_lines(
        [
            "E   min_speedup(1000): three (candidate) over three (reference), latency: *",
            "*= kernel profiles =*",
            "✗ test_it.py:*: min_speedup(1000): * times < limit 1000.000 times (TestEnds::test_*)",
            "test_it.py::TestEnds::test_compares (failed)",
            "test_it.py::TestEnds::test_promise (failed)",
        ]
    )


# Limits that say nothing of the CPU, beside others.

MIXED = """
@pytest.mark.max_kernels(3)
@pytest.mark.max_syncs(0)
@pytest.mark.max_memcpys(0, direction="d2h")
@pytest.mark.max_cuda_time("1us")
def test_kept(kernel_profile):
    kernel_profile(three)
    kernel_profile(three)
"""
BROKEN = """
@pytest.mark.max_kernels(2)
@pytest.mark.max_syncs(0)
def test_broken():
    three()
"""
WORDS = "max_syncs, max_memcpys(d2h), max_cuda_time not judged in"


@pytest.mark.project(MIXED)
def test_limits_that_need_a_gpu_are_told_in_the_summary(result: pytest.RunResult) -> None:
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines([f"kernelprof: *; {WORDS} 1 test (not applicable on the CPU)*"])
    result.stdout.no_fnmatch_line("*kernel profiles*")


@pytest.mark.project(MIXED, "--kernelprof-report")
def test_they_are_told_in_the_report(result: pytest.RunResult) -> None:
    result.stdout.fnmatch_lines([f"1 of 1 test is within its limits; {WORDS} 1 test (not *"])
    result.stdout.no_fnmatch_line("kernelprof: *")


def test_they_are_told_in_the_reason_of_a_failure_and_once_for_all_tests(run: Run) -> None:
    result = run(MIXED + BROKEN + "def test_other(): pass\n")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        [
            "E   max_kernels: 3 > limit 2",
            "  not judged: max_syncs: not applicable on the CPU",
            f"kernelprof: *; {WORDS} 2 tests (not applicable on the CPU)*",
        ]
    )


def test_a_test_of_which_no_limit_was_judged_is_told_as_a_test(run: Run) -> None:
    result = run(
        """
@pytest.mark.max_kernels(3)
def test_all(kernel_profile): kernel_profile(three)
def test_none(kernel_profile, kernelprof_device):
    kernel_profile.limit(max_syncs=0)
    kernel_profile(three)
"""
    )
    result.assert_outcomes(passed=1, skipped=1)
    words = "kernelprof: *; 1 not judged (not applicable on the CPU)*"
    result.stdout.fnmatch_lines([words])


# Tests that a plugin tries again.

FLAKY = """
tries = []
@pytest.mark.max_kernels(3)
def test_error(kernel_profile):
    tries.append("error")
    kernel_profile(three)
    if len(tries) == 1:
        with pytest.raises(ZeroDivisionError): kernel_profile(lambda: 1 / 0)
@pytest.mark.max_kernels(3)
def test_failure(kernel_profile):
    tries.append("failure")
    kernel_profile(three if tries.count("failure") > 1 else lambda: three() + 1)
@pytest.mark.max_kernels(2)
def test_broken(kernel_profile):
    kernel_profile(three)
@pytest.mark.max_latency("1s")
def test_no_number():
    three()
"""


def test_an_error_of_a_try_that_is_repeated_is_a_rerun(run: Run) -> None:
    pytest.importorskip("pytest_rerunfailures")
    result = run(FLAKY, "-p", "rerunfailures", "--reruns=1", "--kernelprof-report", "-v", "-rR")
    assert result.parseoutcomes() == {"passed": 2, "failed": 1, "errors": 1, "rerun": 4}
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert ends_of(result) == [
        ("test_broken", "✗"),
        ("test_no_number", "!"),
        ("test_error", "✓"),
        ("test_failure", "✓"),
        *[(f"test_{name}", "–") for name in ("failure", "broken", "error", "no_number")],
    ]


def test_where_all_pass_at_last_the_run_has_no_error(run: Run) -> None:
    pytest.importorskip("pytest_rerunfailures")
    result = run(FLAKY, "-p", "rerunfailures", "--reruns=1", "-k", "test_error or test_fai")
    assert result.parseoutcomes() == {"passed": 2, "deselected": 2, "rerun": 2}
    assert result.ret == pytest.ExitCode.OK
