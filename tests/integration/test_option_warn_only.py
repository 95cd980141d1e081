"""The option --kernelprof-warn-only: what is broken is told and fails nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

WARN = "--kernelprof-warn-only"


TESTS = """
@pytest.mark.max_kernels(1)
def test_broken(kernel_profile): kernel_profile(three)
@pytest.mark.max_kernels(1)
def test_whole_call(): three()
@pytest.mark.min_speedup(1e9, over=lambda: None, metric="latency")
def test_compared(kernel_profile): kernel_profile(three)
@pytest.mark.max_kernels(3)
def test_kept(kernel_profile): kernel_profile(three)
@pytest.mark.max_kernels(1)
def test_fails_by_itself(kernel_profile):
    kernel_profile(three)
    assert False
@pytest.mark.max_kernels(1)
def test_not_measured(kernel_profile):
    with pytest.raises(ZeroDivisionError):
        kernel_profile(lambda: 1 / 0)
@pytest.mark.max_kernels(1)
def test_in_part(kernel_profile):
    kernel_profile(three)
    with pytest.raises(ZeroDivisionError):
        kernel_profile(lambda: 1 / 0)
@pytest.mark.max_kernels("one")
def test_malformed(): three()
"""


def test_broken_limits_are_warnings_and_the_rest_stays(
    run: Callable[..., pytest.RunResult],
) -> None:
    result = run(TESTS, WARN)
    result.assert_outcomes(passed=4, failed=1, errors=3, warnings=4)
    text = result.stdout.str()
    assert text.count("KernelprofWarning: max_kernels: 3 > limit 1") == 3
    assert text.count("KernelprofWarning: min_speedup") == 1
    assert "max_kernels was not judged" in text
    run(TESTS).assert_outcomes(passed=1, failed=5, errors=2)


def test_a_broken_snapshot_is_told_at_the_end_too(run: Callable[..., pytest.RunResult]) -> None:
    code = "def test_it(kernel_profile): kernel_profile(three)\n"
    run(code, "--kernelprof-update")
    result = run(code.replace("three", "lambda: three() * 2"), WARN)
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(
        [
            "*KernelprofWarning: snapshot: operators 3 -> 4",
            "*  at test_it.py:6",
            "*    6 | def test_it(kernel_profile): kernel_profile(lambda: three() * 2)",
            "*       | *^^^^^^^^^^^",
            "*       | *added operator: aten::mul",
            "*+ *aten::mul*test_it.py:6*",
            "snapshots: 1 exceeded; to update:",
            "  pytest test_it.py::test_it --kernelprof-update*",
        ]
    )


def test_no_snapshot_is_made_of_a_test_over_its_limit(
    run: Callable[..., pytest.RunResult], pytester: pytest.Pytester
) -> None:
    code = "@pytest.mark.max_kernels(1)\ndef test_it(): three()\n"
    result = run(code, WARN, "--kernelprof-update")
    result.stdout.fnmatch_lines(["not kept: test_it.py::test_it: over a limit"])
    assert not (pytester.path / "__kernelprof__").exists()
