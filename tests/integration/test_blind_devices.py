"""A device that cannot be profiled: the test runs to its end, and is an error then, or by the ini
key ``kernelprof_blind`` not judged. Here another profiler runs, which is so on the CPU too."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_kernelprof.baselines.run_documents import read_run

Run = Callable[..., pytest.RunResult]

BLIND = """
ran = []
def once(n=1):
    ran.append(1)
    return n + 1
@pytest.fixture(autouse=True)
def profiler():
    ran.clear()
    with torch.profiler.profile(): yield
@pytest.mark.max_kernels(0)
def test_call(kernel_profile):
    assert kernel_profile(once, 6) == 7 and ran == [1]
@pytest.mark.max_kernels(0)
def test_whole_call():
    once()
    print("ran to its end")
def test_region(kernel_profile):
    with kernel_profile.region("it", max_kernels=0): once()
    assert ran == [1]
def test_comparison(kernel_profile):
    assert kernel_profile.compare(once, lambda n: once(n), 1).min_speedup(100)
    assert ran == [1, 1]
@pytest.mark.xfail
@pytest.mark.max_kernels(0)
def test_expected_to_fail(kernel_profile):
    kernel_profile(once)
"""
LOOKS = """
@pytest.mark.max_kernels(0)
def test_looks(kernel_profile):
    with torch.profiler.profile():
        kernel_profile(three)
        kernel_profile.last
"""
WHY = "a torch profiler is already running, started in this thread by other code than pytest-*"
NOT_JUDGED = "[pytest]\nkernelprof_blind = not-judged\n"


def test_the_test_runs_and_is_an_error_with_the_reason(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    result = run(BLIND, "-rEP", "-s")
    result.assert_outcomes(errors=5)
    result.stdout.fnmatch_lines(["*ran to its end*", *[f"ERROR *::test_* - {WHY}"] * 5])


def test_a_test_that_looks_at_the_profile_is_an_error_at_that_line(run: Run) -> None:
    result = run(LOOKS)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        [">           kernel_profile.last", f"E *ProfilerUnavailable: {WHY}"]
    )


def test_by_the_ini_key_the_test_passes_and_says_that_it_was_not_judged(
    run: Run, pytester: pytest.Pytester
) -> None:
    pytester.makeini(NOT_JUDGED)
    result = run(BLIND + LOOKS, "--kernelprof-json=run.json")
    result.assert_outcomes(passed=4, skipped=2)
    result.stdout.fnmatch_lines(
        [
            f"*KernelprofWarning: not judged (kernelprof_blind = not-judged): {WHY}",
            "kernelprof: *; 6 not judged (the device cannot be profiled)*",
            "SKIPPED * not judged: the device cannot be profiled; the test is marked xfail*",
        ]
    )
    tests = read_run("run.json").tests
    assert {one.not_judged for one in tests} == {"the device cannot be profiled"}
    assert {one.limits for one in tests} == {("max_kernels",), ("min_speedup",)}


def test_a_limit_that_was_broken_before_fails_all_the_same(
    run: Run, pytester: pytest.Pytester
) -> None:
    pytester.makeini(NOT_JUDGED)
    code = """
@pytest.mark.max_kernels(2)
def test_it(kernel_profile):
    kernel_profile(three)
    with torch.profiler.profile(): kernel_profile(three)
"""
    result = run(code)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E   max_kernels: 3 > limit 2", "  at test_it.py:5", "    5 | *"])


def test_a_test_that_nobody_set_a_limit_on_passes_with_the_reason_in_its_row(run: Run) -> None:
    code = BLIND.partition("@pytest.mark.max_kernels")[0] + "def test_it(): once()\n"
    result = run(code, "--kernelprof-all", "--kernelprof-report")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*no number: a torch profiler is already running*"])


def test_profiling_inside_of_what_is_profiled_is_an_error_in_any_case(
    run: Run, pytester: pytest.Pytester
) -> None:
    pytester.makeini(NOT_JUDGED)
    code = "def test_it(kernel_profile):\n    kernel_profile(lambda: kernel_profile(three))\n"
    run(code).assert_outcomes(errors=1)


def test_another_value_of_the_key_is_a_usage_error(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nkernelprof_blind = pass\n")
    result = run("def test_it(): pass\n")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["*ini key kernelprof_blind: got 'pass'; expected one of error, not-judged"]
    )


def test_that_it_was_not_judged_is_said_once_a_test(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makeini(NOT_JUDGED)
    code = """
@pytest.mark.max_kernels(0)
def test_it(kernel_profile):
    with torch.profiler.profile():
        kernel_profile(three)
        kernel_profile(three)
"""
    out = str(run(code).stdout)
    assert out.count("KernelprofWarning: not judged (kernelprof_blind = not-judged)") == 1
