"""Timed limits: rounds are added while the interval holds the limit, then the policy decides."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Run = Callable[..., pytest.RunResult]

UNDECIDED = """
import itertools, time
calls = itertools.count()
def alternating():
    time.sleep((0.0, 0.01)[next(calls) % 2])
@pytest.mark.max_latency("5ms")
def test_it(kernel_profile):
    kernel_profile(alternating)
"""


@pytest.mark.project(UNDECIDED)
def test_an_undecided_time_is_sampled_on_to_96_rounds_and_warned_about(
    result: pytest.RunResult,
) -> None:
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(
        ["*KernelprofWarning: max_latency: *, 96 rounds*): undecided, the limit is inside the*"]
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
        result.stdout.fnmatch_lines(["E   max_latency: *96 rounds*undecided*"])


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
