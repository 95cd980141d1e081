"""The marker max_recompiles."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Run = Callable[..., pytest.RunResult]

AT_EVERY_CALL = """
import itertools
sizes = itertools.count(2)
long = torch.ones(2000)
f = torch.compile(lambda x, n: x[:n] * n, dynamic=False, backend="eager")
def compiles():
    with torch._dynamo.config.patch(recompile_limit=1000, accumulated_recompile_limit=1000):
        return f(long, next(sizes))
"""


def test_code_that_compiles_once_settles_in_the_warm_up(run: Run) -> None:
    result = run(
        """
@pytest.mark.max_recompiles(0)
def test_it(kernel_profile):
    kernel_profile(torch.compile(lambda x: x * 2, backend="eager"), x)
"""
    )
    result.assert_outcomes(passed=1)


@pytest.mark.project(
    AT_EVERY_CALL
    + """
@pytest.mark.max_recompiles(0)
def test_it(kernel_profile):
    kernel_profile(compiles)
"""
)
def test_a_compilation_at_every_call_fails(result: pytest.RunResult) -> None:
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "max_recompiles: 2 > 0",
            "  CPU (*), torch *; complete: *, compilations during the profiled calls: 2",
        ]
    )


def test_a_block_has_no_warm_up_so_its_first_compilation_counts(run: Run) -> None:
    result = run(
        AT_EVERY_CALL
        + """
@pytest.mark.max_recompiles(0)
def test_it(kernel_profile):
    with kernel_profile.region("cold"):
        compiles()
"""
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["max_recompiles: 1 > 0", "  in region 'cold', at test_it.py:*"])


def test_code_that_never_becomes_warm_is_told_where_no_limit_forbids_it(run: Run) -> None:
    result = run(
        AT_EVERY_CALL
        + """
@pytest.mark.max_kernels(9)
def test_it(kernel_profile):
    kernel_profile(compiles)
"""
    )
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(["*KernelprofWarning: the code never became warm: *compilations*"])
