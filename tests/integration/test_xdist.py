"""With pytest-xdist everything comes out as without it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from reported import LAST_LINE, without_times

Run = Callable[..., pytest.RunResult]


TESTS = """
import itertools, unittest
@pytest.mark.max_kernels(3)
def test_kept(kernel_profile):
    kernel_profile(three)
@pytest.mark.max_kernels(2)
def test_broken(kernel_profile):
    kernel_profile(three)
@pytest.mark.xfail(strict=True, raises=LimitExceeded)
@pytest.mark.max_kernels(2)
def test_expected(kernel_profile):
    kernel_profile(three)
@pytest.mark.xfail
@pytest.mark.max_latency("1s")
def test_incomplete():
    three()
@pytest.mark.max_kernels("many")
def test_malformed():
    pass
@pytest.mark.max_syncs(0)
def test_not_applicable(kernel_profile):
    kernel_profile(three)
@pytest.mark.parametrize("n", ["a", "ä", "\\ud800"])
def test_parameters(kernel_profile, n):
    kernel_profile(three)
def test_two(kernel_profile):
    kernel_profile(three)
    with kernel_profile.region("second"):
        x + 1
class TestCase(unittest.TestCase):
    @pytest.mark.max_kernels(2)
    def test_method(self):
        three()
def test_plain():
    pass
"""


def summary(result: pytest.RunResult) -> tuple[int, dict[str, int], list[str]]:
    """Exit code, outcomes, and the report from its heading to the integrity line."""
    lines = [without_times(" ".join(line.split())) for line in result.outlines]
    start = next(i for i, line in enumerate(lines) if " with a limit " in line or " break" in line)
    end = next(i for i, line in enumerate(lines) if LAST_LINE.match(line))
    return int(result.ret), result.parseoutcomes(), lines[start : end + 1]


def test_verdicts_table_and_exit_code_are_the_same(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    with_workers = summary(run(TESTS, "--kernelprof-report", "-v", "-n2"))
    assert with_workers == summary(run(TESTS, "--kernelprof-report", "-v", "-n0"))
    ret, outcomes, report = with_workers
    assert ret == 1
    assert {name: outcomes[name] for name in ("passed", "failed", "errors")} == {
        "passed": 6,
        "failed": 2,
        "errors": 2,
    }
    names = (
        "test_kept",
        "test_broken",
        "test_expected",
        "test_parameters",
        "TestCase::test_method",
    )
    assert all(any(name in line for line in report) for name in names)


# With this option it shares a run with tests that all pass, so that the run's own exit code is it.
@pytest.mark.project(
    "@pytest.mark.max_kernels(3)\ndef test_it(kernel_profile): kernel_profile(three)\n",
    "--kernelprof-only",
)
def test_where_every_limit_is_kept_the_exit_code_is_zero(
    result_of_workers: pytest.RunResult,
) -> None:
    result_of_workers.assert_outcomes(passed=1)
    assert result_of_workers.ret == pytest.ExitCode.OK


def test_what_a_worker_could_not_send_is_noticed_without_workers_too(
    run: Run, pytester: pytest.Pytester
) -> None:
    """For nearly all runs of these tests are without: their reports go the same way."""
    pytester.makeconftest(
        """
import pytest
@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    report = yield
    report.kernelprof = [object()]
    return report
"""
    )
    assert run("def test_it(): pass\n").ret == pytest.ExitCode.INTERNAL_ERROR


EACH = """
import os
@pytest.mark.max_kernels(3)
def test_it(kernel_profile):
    again = os.environ["PYTEST_XDIST_WORKER"] == "gw0"
    kernel_profile(lambda: three() * 2 if again else three())
"""


def test_where_each_worker_runs_all_tests_each_has_a_row(run: Run) -> None:
    result = run(EACH, "-n2", "--dist=each", "--kernelprof-report", "-v")
    result.assert_outcomes(passed=1, failed=1)
    rows = [without_times(" ".join(line.split())) for line in result.outlines]
    assert "1 of 2 tests breaks a limit." in rows
    assert "✗ 4 > 3 test_it@gw0" in rows
    assert "✓ 3 test_it@gw1" in rows
