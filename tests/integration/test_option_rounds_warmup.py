"""The option --kernelprof-rounds and the ini key kernelprof_warmup."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Run = Callable[..., pytest.RunResult]


@pytest.mark.project(
    """
@pytest.mark.max_kernels(3)
def test_it(kernel_profile):
    kernel_profile(three)
    assert kernel_profile.last.rounds == 4
""",
    "--kernelprof-rounds=4",
)
def test_rounds_are_as_asked(result: pytest.RunResult) -> None:
    result.assert_outcomes(passed=1)


@pytest.mark.parametrize("warmup", [1, 3])
def test_warm_up_calls_come_before_the_profiled_ones(run: Run, warmup: int) -> None:
    result = run(
        f"""
@pytest.mark.max_kernels(3)
def test_it(kernel_profile):
    kinds = []
    def call():
        kinds.append(torch.autograd.profiler._is_profiler_enabled)
        return three()
    kernel_profile(call)
    assert kinds.index(True) == {warmup}
""",
        "-o",
        f"kernelprof_warmup={warmup}",
    )
    result.assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("limit", "rounds"),
    [("max_kernels(3)", 2), ('max_latency("1s")', 12), ("kernelprof()", 12)],
    ids=["exact", "timed", "no limit"],
)
def test_by_default_the_limits_decide_how_many_rounds_there_are(
    run: Run, limit: str, rounds: int
) -> None:
    result = run(
        f"""
@pytest.mark.{limit}
def test_it(kernel_profile):
    kernel_profile(three)
    assert kernel_profile.last.rounds == {rounds}
"""
    )
    result.assert_outcomes(passed=1)


@pytest.mark.parametrize("value", ["0", "-1", "many", "1.5", ""])
def test_what_is_no_number_of_calls_is_a_usage_error(run: Run, value: str) -> None:
    result = run("def test_it(): pass\n", f"--kernelprof-rounds={value}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        [f"ERROR: --kernelprof-rounds: got '{value}'; expected a whole number of one or more"]
    )
