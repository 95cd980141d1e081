"""The marker max_graph_breaks."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Run = Callable[..., pytest.RunResult]

BROKEN = """
@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()

def compiled(f):
    return torch.compile(f, backend="eager")

def whole(x):
    return x * 2 + 1

def broken(x):
    x = x * 2
    torch._dynamo.graph_break()  # here
    return x + 1

def in_a_loop(x):
    for _ in range(2):
        x = x * 2
        torch._dynamo.graph_break()  # there
    return x
"""


@pytest.mark.project(
    BROKEN
    + """
@pytest.mark.max_graph_breaks(0)
def test_of_a_call(kernel_profile):
    kernel_profile(compiled(broken), x)

@pytest.mark.max_graph_breaks(0)
def test_of_a_warm_call(kernel_profile):
    f = compiled(broken)
    f(x)
    kernel_profile(f, x)

@pytest.mark.max_graph_breaks(0)
def test_of_a_block(kernel_profile):
    f = compiled(broken)
    with kernel_profile.region():
        f(x)

@pytest.mark.max_graph_breaks(0)
def test_of_a_frame_left_uncompiled(kernel_profile):
    kernel_profile(compiled(in_a_loop), x)
"""
)
def test_a_break_fails_with_its_reason_and_line(result: pytest.RunResult) -> None:
    result.assert_outcomes(failed=4)
    result.stdout.fnmatch_lines(
        [
            "E   max_graph_breaks: 1 > limit 0",
            "  at test_it.py:*",
            "    * | torch._dynamo.graph_break()  # here",
            "*find what breaks the graph with TORCH_LOGS=graph_breaks",
            "E   max_graph_breaks: 1 > limit 0*",
            "E   max_graph_breaks: 1 > limit 0*",
            "E   max_graph_breaks: 1 > limit 0*",
            "  at test_it.py:*",
            "    * | torch._dynamo.graph_break()  # there",
            "*in_a_loop runs uncompiled, *",
        ]
    )


def test_code_without_one_passes_whatever_other_frames_break(run: Run) -> None:
    result = run(
        BROKEN
        + """
@pytest.mark.max_graph_breaks(0)
def test_whole(kernel_profile):
    compiled(broken)(x)
    kernel_profile(compiled(whole), x)

@pytest.mark.max_graph_breaks(0)
def test_uncompiled(kernel_profile):
    kernel_profile(broken, x)

@pytest.mark.max_graph_breaks(1)
def test_allowed(kernel_profile):
    kernel_profile(compiled(broken), x)

@pytest.mark.max_graph_breaks(0)
def test_that_refuses_breaks(kernel_profile):
    with pytest.raises(torch._dynamo.exc.Unsupported):
        torch.compile(broken, backend="eager", fullgraph=True)(x)
    kernel_profile(compiled(whole), x)
"""
    )
    result.assert_outcomes(passed=4)


UNKNOWN = (
    """
import pytest, torch
x = torch.ones(8, 8)
"""
    + BROKEN.replace("(autouse=True)", "")
    + """
early = compiled(broken)
early(x)

@pytest.mark.max_graph_breaks(0)
def test_compiled_before_tests(kernel_profile):
    kernel_profile(early, x)

@pytest.mark.max_graph_breaks(0)
def test_left_before_the_call(kernel_profile, fresh):
    f = compiled(in_a_loop)
    f(x)
    kernel_profile(f, x)

@pytest.mark.max_graph_breaks(0)
def test_reset_in_the_call(kernel_profile, fresh):
    def resets():
        torch._dynamo.reset()
        compiled(broken)(x)
        torch._dynamo.reset()
        compiled(whole)(x)
    kernel_profile(resets)

@pytest.mark.max_graph_breaks(0)
def test_given_up(kernel_profile, fresh):
    long, f = torch.ones(64), torch.compile(lambda x, n: x[:n] * n, dynamic=False, backend="eager")
    for n in range(2, 14):
        f(long, n)
    kernel_profile(f, long, 40)
"""
)


def test_what_is_unknown_is_no_pass_and_says_why(
    pytester: pytest.Pytester, compile_apart: Run
) -> None:
    pytester.makepyfile(test_it=UNKNOWN)
    # In a process of its own, where torch.compile is not watched yet.
    result = compile_apart("--kernelprof-device=cpu")
    result.assert_outcomes(errors=4)
    result.stdout.fnmatch_lines(
        [
            "E   max_graph_breaks: *broken was tried before *watched*reset() before*",
            "E   max_graph_breaks: *in_a_loop runs uncompiled*at *test_it.py:*reset() before*",
            "E   max_graph_breaks: *the measured code calls torch._dynamo.reset()*",
            "E   max_graph_breaks: not available: torch.compile gave up on this code*",
        ]
    )


@pytest.mark.project(
    BROKEN
    + """
def skipping(why):
    def backend(graph, inputs):
        raise torch._dynamo.exc.SkipFrame(why)
    return torch.compile(whole, backend=backend)

@pytest.mark.max_graph_breaks(0)
def test_for_a_break(kernel_profile):
    kernel_profile(skipping("Skipping frame because there is a graph break in a loop"), x)

@pytest.mark.max_graph_breaks(0)
def test_for_another_reason(kernel_profile):
    kernel_profile(skipping("no operators"), x)
"""
)
def test_a_frame_that_is_skipped_for_a_break_is_one(result: pytest.RunResult) -> None:
    """So do versions of torch that have no error for it."""
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(["E   max_graph_breaks: 1 > limit 0*", "*whole runs uncompiled*"])


def test_what_is_compiled_while_another_frame_is_traced_has_its_own_breaks(run: Run) -> None:
    result = run(
        BROKEN
        + """
@torch._dynamo.assume_constant_result
def factor():
    compiled(lambda n: n)(3)  # has no graph
    return 2

@pytest.mark.max_graph_breaks(0)
def test_whole(kernel_profile):
    kernel_profile(compiled(lambda x: x * factor()), x)

def test_of_no_limit():
    compiled(lambda x: x * factor())(x)
"""
    )
    result.assert_outcomes(passed=2)


def test_a_line_that_breaks_several_frames_is_one_break(run: Run) -> None:
    result = run(
        BROKEN
        + """
@pytest.mark.max_graph_breaks(1)
def test_it(kernel_profile):
    kernel_profile(compiled(lambda x: broken(x) + broken(x)), x)
    assert kernel_profile.last.metrics["graph_breaks"].value == 1
"""
    )
    result.assert_outcomes(passed=1)


def test_counters_that_are_cleared_hide_nothing(run: Run) -> None:
    result = run(
        BROKEN
        + """
@pytest.mark.max_graph_breaks(0)
def test_it(kernel_profile):
    f = compiled(broken)
    f(x)
    torch._dynamo.utils.counters.clear()
    torch._dynamo.utils.graph_break_reasons.clear()
    kernel_profile(f, x)
"""
    )
    result.assert_outcomes(failed=1)


def test_an_inner_marker_replaces_an_outer_one_and_nothing_is_measured_if_disabled(
    run: Run,
) -> None:
    source = (
        BROKEN
        + """
pytestmark = pytest.mark.max_graph_breaks(0)

@pytest.mark.max_graph_breaks(1)
def test_it(kernel_profile):
    kernel_profile(compiled(broken), x)

def test_outer(kernel_profile):
    kernel_profile(compiled(broken), x)
"""
    )
    run(source).assert_outcomes(passed=1, failed=1)
    run(source, "--kernelprof-disable").assert_outcomes(passed=2)
