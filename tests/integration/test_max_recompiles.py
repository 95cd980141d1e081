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
            "E   max_recompiles: 2 > limit 0",
            "  to do: find what compiles again with TORCH_LOGS=recompiles",
        ]
    )
    result.stdout.no_fnmatch_line("*compilations during*")  # which is the number above


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
    result.stdout.fnmatch_lines(
        ["E   max_recompiles: 1 > limit 0", "  in region 'cold'", "  at test_it.py:*"]
    )


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


HOSTILE = """
import itertools, threading
long = torch.ones(200)

def fresh():
    torch._dynamo.reset()
    return torch.compile(lambda x, n: x[:n] * n, dynamic=False, backend="eager")

def at_every_call():
    f, sizes = fresh(), itertools.count(2)
    return lambda: f(long, next(sizes))

def clearing():
    sizes = itertools.count(2)
    def call():
        fresh()(long, next(sizes))
        torch._dynamo.utils.counters.clear()
        torch._dynamo.reset()
    return call

def on_a_thread():
    call = at_every_call()
    def on_one():
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
    return on_one

def of_sizes(n):
    f = fresh()
    return lambda: [f(long, size) for size in range(2, 2 + n)]
"""


@pytest.mark.project(
    HOSTILE
    + """
@pytest.mark.max_recompiles(0)
@pytest.mark.parametrize("warmup", [1, 12])
def test_limit_of_the_compiler(kernel_profile, warmup):
    kernel_profile.run(at_every_call(), warmup=warmup)

@pytest.mark.max_recompiles(0)
@pytest.mark.parametrize("call", [clearing(), on_a_thread(), of_sizes(10)])
def test_ways_to_hide(kernel_profile, call):
    kernel_profile(call)

@pytest.mark.max_recompiles(0)
def test_given_up_before(kernel_profile):
    call = at_every_call()
    for _ in range(12):
        call()
    kernel_profile(call)

@pytest.mark.max_recompiles(0)
def test_given_up_in_a_block(kernel_profile):
    call = at_every_call()
    for _ in range(12):
        call()
    with kernel_profile.region():
        call()
"""
)
def test_a_compiler_that_gave_up_is_no_compiler_that_had_nothing_to_do(
    result: pytest.RunResult,
) -> None:
    result.assert_outcomes(failed=7)
    as_first = "  same as test_limit_of_the_compiler[[]1]"
    result.stdout.fnmatch_lines(
        [
            "E   max_recompiles: 2 > limit 0",
            "*torch.compile gave*",
            "E   max_recompiles: 2 > limit 0",
            f"{as_first}, at test_it.py:*",
            "E   max_recompiles: 2 > limit 0",
            "E   max_recompiles: 2 > limit 0",
            "  at test_it.py:*",
            "    * | kernel_profile(call)",
            as_first,
            "E   max_recompiles: 4 > limit 0",
            "*torch.compile gave up*",
            "E   max_recompiles: 2 > limit 0",
            "*torch.compile gave up*",
            "E   max_recompiles: 1 > limit 0",
            "*torch.compile gave up*",
        ]
    )


def test_sizes_that_are_all_compiled_in_the_warm_up_are_none(run: Run) -> None:
    result = run(
        HOSTILE
        + """
@pytest.mark.max_recompiles(0)
@pytest.mark.parametrize("sizes", [1, 4, 8])
def test_it(kernel_profile, sizes):
    kernel_profile(of_sizes(sizes))
"""
    )
    result.assert_outcomes(passed=3)
