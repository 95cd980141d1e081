"""Beside a process that never leaves the GPU alone: counts hold, times are told to be disturbed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("_disturbs_the_gpu", "_busy")

HEAD = """
import pytest, torch
x = torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16)
"""


@pytest.fixture
def _busy() -> Iterator[None]:
    program = [sys.executable, str(Path(__file__).with_name("busy.py"))]
    with subprocess.Popen(program, stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline()
        yield
        process.kill()


def run(pytester: pytest.Pytester, code: str) -> pytest.RunResult:
    pytester.makepyfile(test_it=HEAD + code)
    return pytester.runpytest_subprocess("-p", "no:cacheprovider")


def test_times_are_undecided_and_counts_are_not(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
@pytest.mark.max_kernels(1)
@pytest.mark.max_cuda_time("1s")
def test_it(kernel_profile):
    kernel_profile(torch.mm, x, x)
def test_compared(kernel_profile):  # it is 0.5, and 1 is what the other process explains
    compared = kernel_profile.compare(lambda t: t @ t @ t, lambda t: t @ t, x, check=None)
    compared.min_speedup(0.75)
""",
    )
    result.assert_outcomes(passed=2, warnings=2)
    result.stdout.fnmatch_lines(
        ["*max_cuda_time: *undecided, CONTENDED: other processes worked on this GPU*"]
    )


def test_a_time_that_other_work_cannot_explain_fails(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
@pytest.mark.max_cuda_time("100ns")
def test_far(kernel_profile):
    kernel_profile(torch.mm, x, x)
@pytest.mark.max_cuda_time("1s")
def test_near(kernel_profile):
    kernel_profile(torch.mm, x, x)
def test_compared(kernel_profile):
    more = lambda t: t @ t @ t @ t @ t @ t @ t
    kernel_profile.compare(more, torch.relu, x, check=None).min_speedup(2)
""",
    )
    result.assert_outcomes(passed=1, failed=2, warnings=1)
    result.stdout.fnmatch_lines(
        [
            "E   max_cuda_time: *us > limit 0.1us*",
            "*EXCEEDED THOUGH*",
            "*the fastest rounds give *",
            "*min_speedup(2): *; EXCEEDED THOUGH CONTENDED: the fastest rounds give *",
        ]
    )


def test_a_rate_that_is_reached_is_proven_and_one_far_from_it_fails(
    pytester: pytest.Pytester,
) -> None:
    result = run(
        pytester,
        """
@pytest.mark.min_throughput("1 TFLOP/s")
def test_reached(kernel_profile):
    kernel_profile(torch.mm, x, x)
@pytest.mark.min_throughput("50 PFLOP/s")
def test_far(kernel_profile):
    kernel_profile(torch.mm, x, x)
""",
    )
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        ["E   min_throughput: * < limit 50 PFLOP/s*", "*EXCEEDED*", "*the fastest rounds give *"]
    )
