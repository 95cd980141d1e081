"""The option --kernelprof-only: the tests that use the plugin, and no others."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Run = Callable[..., pytest.RunResult]


TESTS = """
def test_fixture(kernel_profile):
    kernel_profile(three)
@pytest.mark.max_kernels(3)
def test_marker():
    three()
@pytest.mark.max_kernels(3)
class TestClass:
    def test_method(self):
        three()
@pytest.fixture
def profiled(kernel_profile):
    return kernel_profile(three)
def test_fixture_of_a_fixture(profiled):
    pass
def test_plain():
    pass
"""


@pytest.mark.project(TESTS, "--kernelprof-only")
def test_other_tests_are_deselected(result: pytest.RunResult, workers: str) -> None:
    outcomes = result.parseoutcomes()
    assert outcomes["passed"] == 4
    assert workers == "-n2" or outcomes["deselected"] == 1


def test_where_no_test_uses_the_plugin_none_runs(run: Run) -> None:
    result = run("def test_plain(): pass\n", "--kernelprof-only")
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED


def test_without_it_all_run(run: Run) -> None:
    run(TESTS).assert_outcomes(passed=5)
