"""The marker max_latency."""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatch

import pytest

Run = Callable[..., pytest.RunResult]


@pytest.mark.project(
    """
import time
@pytest.mark.max_latency("100s")
def test_kept(kernel_profile):
    kernel_profile(three)
@pytest.mark.max_latency("1ms")
def test_broken(kernel_profile):
    kernel_profile(lambda: (time.sleep(0.005), three()))
"""
)
def test_kept_it_passes_and_broken_it_fails_with_the_interval(result: pytest.RunResult) -> None:
    result.assert_outcomes(passed=1, failed=1)
    sure = "*, 99 % CI *..*us, * rounds*; a second look: *s at test_it.py:*"
    assert fnmatch(
        " ".join(str(result.stdout).split()), f"* max_latency: *s > limit 1.00ms {sure} *"
    )
    result.stdout.fnmatch_lines(
        [
            "E   max_latency: *s > limit 1.00ms",
            "  *, 99 % CI *",
            "  CPU operators counted, not GPU kernels",
            "  #   *us  operator    line * called by",
            "  1 * aten::mm    test_it.py:* aten::matmul",
        ]
    )


@pytest.mark.parametrize("form", ['"0.5us"', "us=0.5", "ms=0.0005", '"500 ns"', '"0.0000005s"'])
def test_every_form_of_a_time_means_the_same(run: Run, form: str) -> None:
    result = run(
        f"""
@pytest.mark.max_latency({form})
def test_it(kernel_profile):
    kernel_profile(three)
"""
    )
    result.stdout.fnmatch_lines(["E   max_latency: *s > limit 0.5us", "  x*, 99 % CI *"])


def test_the_time_of_setup_does_not_count(run: Run) -> None:
    result = run(
        """
import time
@pytest.mark.max_latency("45ms")
def test_it(kernel_profile):
    kernel_profile.run(three, setup=lambda: time.sleep(0.05))
"""
    )
    result.assert_outcomes(passed=1)


@pytest.mark.parametrize(
    "code",
    [
        '@pytest.mark.max_latency("1s")\ndef test_it(): three()\n',
        "def test_it(kernel_profile):\n"
        '    with kernel_profile.region("it", max_latency="1s"): three()\n',
    ],
    ids=["whole call", "region"],
)
def test_code_that_runs_once_has_no_latency_which_is_an_error(run: Run, code: str) -> None:
    result = run(code)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        ["E   max_latency: not measured: it needs calls that are not profiled; use kernel_profi*"]
    )


def test_too_few_rounds_for_an_interval_say_so(run: Run) -> None:
    result = run(
        """
@pytest.mark.kernelprof(rounds=3)
@pytest.mark.max_latency(us=0.5)
def test_it(kernel_profile):
    kernel_profile(three)
"""
    )
    result.stdout.fnmatch_lines(
        ["E   max_latency: *s > limit 0.5us", "  *, 3 rounds, too few for an interval"]
    )
