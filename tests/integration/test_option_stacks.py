"""The option --kernelprof-stacks: one-shot profiles name source lines."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Run = Callable[..., pytest.RunResult]


WHOLE_CALL = "@pytest.mark.max_kernels(2)\ndef test_it():\n    three()\n"
REGION = (
    "@pytest.mark.max_kernels(2)\ndef test_it(kernel_profile):\n"
    "    with kernel_profile.region('it'): three()\n"
)
BLOCKS = pytest.mark.parametrize("code", [WHOLE_CALL, REGION], ids=["whole call", "region"])


@BLOCKS
def test_with_it_each_kernel_has_its_line(run: Run, code: str) -> None:
    result = run(code, "--kernelprof-stacks")
    result.stdout.fnmatch_lines(
        [
            "  1 * aten::mm * test_it.py:*",
            "  2 * aten::gelu * test_it.py:*",
            "  3 * aten::add * test_it.py:*",
        ]
    )


@BLOCKS
def test_without_it_each_has_that_of_the_block(run: Run, code: str) -> None:
    run(code).stdout.fnmatch_lines(["  1 * aten::mm *in test_it.py:* *"])


@pytest.mark.project(WHOLE_CALL, "--kernelprof-stacks")
def test_with_workers_it_is_the_same(result_of_workers: pytest.RunResult) -> None:
    result_of_workers.stdout.fnmatch_lines(["  1 * aten::mm * test_it.py:*"])


@pytest.mark.parametrize("test", ["kernel_profile(three)", "with kernel_profile.region(): three()"])
def test_who_profiles_python_does_so_as_before(run: Run, test: str) -> None:
    result = run(
        f"""
import cProfile, sys

def follow(frame, event, argument):
    pass

@pytest.fixture
def before():
    yield
    sys.setprofile(None)

def test_function(kernel_profile, before):
    sys.setprofile(follow)
    {test}
    assert sys.getprofile() is follow

def test_cprofile(kernel_profile, before):
    with cProfile.Profile() as profile:
        {test}
        any([])
    assert "built-in method builtins.any" in str([one.code for one in profile.getstats()])

def test_none(kernel_profile):
    {test}
    assert sys.getprofile() is None
""",
        "--kernelprof-stacks",
    )
    result.assert_outcomes(passed=3)
