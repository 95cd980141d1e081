"""What the measured code may do: raise, profile, start another profiler."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Run = Callable[..., pytest.RunResult]


NEXT = """
@pytest.mark.max_kernels(3)
def test_next(kernel_profile):
    assert not torch.autograd.profiler._is_profiler_enabled
    kernel_profile(three)
"""
WAYS = pytest.mark.parametrize(
    "test",
    [
        "def test_it(kernel_profile):\n    kernel_profile(code)\n",
        "def test_it(kernel_profile):\n    with kernel_profile.region('it'): code()\n",
        "@pytest.mark.max_kernels(3)\ndef test_it():\n    code()\n",
    ],
    ids=["call", "region", "whole call"],
)


@WAYS
def test_its_exception_is_the_tests_own_and_the_next_test_is_unharmed(run: Run, test: str) -> None:
    result = run("def code():\n    raise ValueError('mine')\n" + test + NEXT)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["E *ValueError: mine"])


LAZY = {
    "generator": "def code(*args):\n    yield three()\n",
    "coroutine": "async def code(*args):\n    return three()\n",
    "async generator": "async def code(*args):\n    yield three()\n",
    "map": "def code(*args):\n    return map(torch.neg, [x])\n",
}


@pytest.mark.parametrize("what", LAZY)
@pytest.mark.parametrize(
    "test",
    [
        "@pytest.mark.max_kernels(0)\ndef test_it(kernel_profile):\n    kernel_profile(code)\n",
        "def test_it(kernel_profile, kernelprof_device):\n"
        "    kernel_profile.compare(three, code).not_slower()\n",
        "def test_it(kernel_profile, kernelprof_device):\n"
        "    pytest_kernelprof.profile(code, device='cpu')\n",
    ],
    ids=["call", "compare", "without pytest"],
)
def test_a_body_that_does_not_run_is_not_measured(run: Run, test: str, what: str) -> None:
    """Calling it only makes an object: no kernel would be counted, and any limit kept."""
    result = run("import pytest_kernelprof\n" + LAZY[what] + test)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        [f"E *CannotMeasureError: code returned *{what}: its body has not run*"]
    )
    result.stdout.no_fnmatch_line("*never awaited*")


def test_an_exception_of_a_profiled_round_is_the_tests_own_too(run: Run) -> None:
    result = run(
        """
import itertools
calls = itertools.count(1)
def code():
    if next(calls) == 3:
        raise ValueError("mine")
def test_it(kernel_profile):
    kernel_profile(code)
"""
        + NEXT
    )
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["E *ValueError: mine"])


def test_an_exception_of_setup_is_the_tests_own(run: Run) -> None:
    result = run(
        """
def broken():
    raise ValueError("mine")
def test_it(kernel_profile):
    kernel_profile.run(three, setup=broken)
"""
        + NEXT
    )
    result.assert_outcomes(passed=1, failed=1)


@WAYS
def test_a_running_profiler_is_an_error_that_names_the_remedy(run: Run, test: str) -> None:
    result = run(
        """
code = three
@pytest.fixture(autouse=True)
def others(request):
    if request.node.name != "test_it":
        yield
        return
    with torch.profiler.profile():
        yield
"""
        + test
        + NEXT
    )
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(
        [
            "*a torch profiler is already running, started in this thread by other code than "
            "pytest-kernelprof, and torch.profiler cannot nest: stop it before the measured "
            "code, or run with --kernelprof-disable to profile by hand"
        ]
    )


@WAYS
def test_a_profiler_inside_it_is_an_error_that_names_the_remedy(run: Run, test: str) -> None:
    result = run(
        """
def code():
    with torch.profiler.profile():
        three()
"""
        + test
        + NEXT
    )
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(
        [
            "*another profiler was started inside the measured code, which ended "
            "ours: take torch.profiler (or a tool that uses it) out of the measured code"
        ]
    )


def test_profiling_inside_profiled_code_is_an_error(run: Run) -> None:
    result = run(
        """
def test_it(kernel_profile):
    kernel_profile(lambda: kernel_profile(three))
"""
        + NEXT
    )
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*IncompleteProfile: *torch.profiler cannot nest*"])


@pytest.mark.project(
    """
def code():
    with torch.profiler.profile():
        three()
def test_it(kernel_profile):
    kernel_profile(code)
"""
    + NEXT
)
def test_with_workers_the_next_test_is_unharmed_too(result_of_workers: pytest.RunResult) -> None:
    result_of_workers.assert_outcomes(passed=1, errors=1)


def test_annotations_of_its_own_are_no_kernels(run: Run) -> None:
    result = run(
        """
@pytest.mark.max_kernels(3)
def test_it(kernel_profile):
    def code():
        with torch.profiler.record_function("mine"):
            three()
    kernel_profile(code)
"""
    )
    result.assert_outcomes(passed=1)
