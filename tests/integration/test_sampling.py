"""Timed limits: rounds are added while the interval holds the limit, then the policy decides."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

Run = Callable[..., pytest.RunResult]

UNDECIDED = """
import itertools, time
calls = itertools.count()
def alternating():
    time.sleep((0.0, 0.005)[next(calls) % 2])
@pytest.mark.max_latency("3ms")
def test_it(kernel_profile):
    kernel_profile(alternating)
"""


@pytest.mark.project(UNDECIDED)
def test_an_undecided_time_is_sampled_on_to_96_rounds_and_warned_about(
    result: pytest.RunResult,
) -> None:
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(
        ["*KernelprofWarning: max_latency: *, 96 rounds*): undecided, too close to*"]
    )


@pytest.mark.parametrize(
    ("policy", "outcomes"),
    [
        ("warn", {"passed": 1, "warnings": 1}),
        ("fail", {"failed": 1}),
        ("pass", {"passed": 1}),
    ],
)
def test_the_policy_says_what_becomes_of_it(
    run: Run, policy: str, outcomes: dict[str, int]
) -> None:
    result = run(UNDECIDED, "-o", f"kernelprof_undecided={policy}")
    result.assert_outcomes(**outcomes)
    if policy == "fail":
        lines = ["E   max_latency undecided: *, limit *", "  *: *, 96 rounds"]
        result.stdout.fnmatch_lines(lines)


def test_an_undecided_time_is_told_at_the_end_also_without_warnings(run: Run) -> None:
    result = run(UNDECIDED, "--disable-warnings")
    result.stdout.fnmatch_lines(["kernelprof: 1 of 1 test is undecided."])


def test_who_asks_for_rounds_gets_that_many(run: Run) -> None:
    result = run(UNDECIDED, "--kernelprof-rounds=10")
    result.stdout.fnmatch_lines(["*KernelprofWarning: max_latency: *, 10 rounds*undecided*"])


def test_a_decided_time_is_sampled_no_further(run: Run) -> None:
    """Twelve rounds, or, where neighbours came out alike, so many that there is an interval."""
    result = run(
        """
@pytest.mark.max_latency("10s")
def test_it(kernel_profile):
    kernel_profile(three)
    assert len(kernel_profile.last.metrics["latency"].rounds) in (12, 24, 48)
"""
    )
    result.assert_outcomes(passed=1)


def test_an_exception_while_sampling_on_is_the_tests_own(run: Run) -> None:
    result = run(
        """
import itertools, time
calls = itertools.count()
def breaks():
    n = next(calls)
    if n == 40:
        raise RuntimeError("round too many")
    time.sleep((0.0, 0.01)[n % 2])
@pytest.mark.max_latency("5ms")
def test_it(kernel_profile):
    kernel_profile(breaks)
def test_next(kernel_profile, kernelprof_device):
    kernel_profile(three)
"""
    )
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["E *RuntimeError: round too many"])


LARGE = """
import itertools, time
import torch
calls = itertools.count()
def large():
    if next(calls) == 0:
        time.sleep(0.06)
    y = torch.ones(2)
    for _ in range({0}):
        y = y + 1
def test_large(kernel_profile, kernelprof_device):
    kernel_profile(large)
    kernels = kernel_profile.last.metrics["kernels"]
    assert kernels.value == {0} + 1
    assert len(kernels.rounds) == {1}
"""


@pytest.mark.parametrize(("operators", "rounds"), [(10_500, 2), (100, 12)])
def test_a_call_with_very_many_kernels_is_counted_in_two_rounds_where_no_time_is_limited(
    run: Run, operators: int, rounds: int
) -> None:
    began = time.monotonic()
    result = run(LARGE.format(operators, rounds), "--kernelprof-report")
    assert time.monotonic() - began < 60
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines([f"*{operators + 1} *test_large"])


def test_an_undecided_time_that_fails_its_test_is_not_said_to_fail_nothing(run: Run) -> None:
    kept = "@pytest.mark.max_kernels(9)\ndef test_kept(kernel_profile): kernel_profile(three)\n"
    options = ("-o", "kernelprof_undecided=fail", "--kernelprof-report")
    result = run(UNDECIDED + kept, *options)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["1 of 2 tests failed."])
