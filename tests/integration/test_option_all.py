"""The option --kernelprof-all: every call phase is profiled, no code changed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Run = Callable[..., pytest.RunResult]


@pytest.mark.project("def test_it():\n    three()\n", "--kernelprof-all", "--kernelprof-report")
def test_a_plain_test_is_profiled_but_not_limited(result: pytest.RunResult) -> None:
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["test_it.py::test_it * 3 *", "1 profile, *"])


def test_fixtures_are_not_part_of_the_call_phase(run: Run) -> None:
    result = run(
        """
@pytest.fixture
def y():
    return three()
def test_it(y):
    y + 1
""",
        "--kernelprof-all",
        "--kernelprof-report",
    )
    result.stdout.fnmatch_lines(["test_it.py::test_it * 1 *"])


def test_a_marked_test_keeps_its_limit(run: Run) -> None:
    result = run("@pytest.mark.max_kernels(2)\ndef test_it():\n    three()\n", "--kernelprof-all")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["max_kernels: 3 > 2"])


def test_a_test_that_uses_the_fixture_is_not_profiled_twice(run: Run) -> None:
    result = run(
        "def test_it(kernel_profile):\n    kernel_profile(three)\n",
        "--kernelprof-all",
        "--kernelprof-report",
    )
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["1 profile, *"])


def test_a_plain_test_that_fails_fails_as_ever(run: Run) -> None:
    result = run("def test_it():\n    assert three() is None, 'mine'\n", "--kernelprof-all")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E *mine*"])


def test_without_a_gpu_a_plain_test_is_profiled_on_the_cpu(run: Run, no_gpu: None) -> None:
    result = run(
        "def test_it():\n    three()\n", "--kernelprof-all", "--kernelprof-report", device=None
    )
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["test_it.py::test_it * 3 *"])
