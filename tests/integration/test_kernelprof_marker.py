"""The marker kernelprof: how a test is profiled."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Run = Callable[..., pytest.RunResult]


def test_rounds_and_warmup_are_as_asked(run: Run) -> None:
    result = run(
        """
@pytest.mark.max_kernels(0)
@pytest.mark.kernelprof(rounds=4, warmup=3)
def test_it(kernel_profile):
    kernel_profile(lambda: None)
    assert kernel_profile.last.rounds == 4
"""
    )
    result.assert_outcomes(passed=1)


def test_it_wins_over_the_command_line(run: Run) -> None:
    result = run(
        """
@pytest.mark.kernelprof(rounds=3)
def test_it(kernel_profile):
    kernel_profile(three)
    assert kernel_profile.last.rounds == 3
""",
        "--kernelprof-rounds=5",
    )
    result.assert_outcomes(passed=1)


def test_an_argument_of_run_wins_over_it(run: Run) -> None:
    result = run(
        """
@pytest.mark.kernelprof(rounds=3)
def test_it(kernel_profile):
    kernel_profile.run(three, rounds=2)
    assert kernel_profile.last.rounds == 2
"""
    )
    result.assert_outcomes(passed=1)


@pytest.mark.project(
    """
pytestmark = pytest.mark.kernelprof(rounds=5, warmup=2)
def calls_of(kernel_profile):
    calls = []
    kernel_profile(lambda: calls.append(1))
    return kernel_profile.last.rounds, len(calls) - 2 * kernel_profile.last.rounds
def test_module(kernel_profile):
    assert calls_of(kernel_profile) == (5, 2)
@pytest.mark.kernelprof(rounds=3)
def test_function(kernel_profile):
    assert calls_of(kernel_profile) == (3, 2)
@pytest.mark.kernelprof(warmup=4)
class TestClass:
    def test_class(self, kernel_profile):
        assert calls_of(kernel_profile) == (5, 4)
"""
)
def test_levels_are_merged_option_by_option(result: pytest.RunResult) -> None:
    result.assert_outcomes(passed=3)


def test_device_cpu_runs_the_test_there_without_any_option(run: Run) -> None:
    result = run(
        """
@pytest.mark.kernelprof(device="cpu")
@pytest.mark.max_kernels(2)
def test_it(kernel_profile, kernelprof_device):
    assert kernelprof_device == "cpu"
    kernel_profile(three)
""",
        device=None,
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E   max_kernels: 3 > limit 2", "  at test_it.py:5", "    5 | *"])


def test_device_cuda_skips_without_a_gpu_though_the_device_could_be_chosen(
    run: Run, no_gpu: None
) -> None:
    result = run(
        """
@pytest.mark.kernelprof(device="cuda")
def test_it(kernel_profile, kernelprof_device):
    kernel_profile(three)
""",
        device=None,
    )
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED * test_it.py:*: no CUDA device: *"])


def test_stacks_give_a_one_shot_profile_its_lines(run: Run) -> None:
    result = run(
        """
@pytest.mark.kernelprof(stacks=True)
@pytest.mark.max_kernels(2)
def test_it():
    three()
"""
    )
    result.stdout.fnmatch_lines(["  1 * aten::mm *test_it.py:*"])


def test_alone_it_profiles_and_limits_nothing(run: Run) -> None:
    result = run(
        "@pytest.mark.kernelprof(rounds=3)\ndef test_it(): three()\n", "--kernelprof-report"
    )
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*kernel profiles*")
