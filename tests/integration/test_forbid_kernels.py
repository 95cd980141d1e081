"""The marker forbid_kernels."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Run = Callable[..., pytest.RunResult]


@pytest.mark.project(
    """
@pytest.mark.forbid_kernels("softmax")
def test_kept(kernel_profile):
    kernel_profile(three)
@pytest.mark.forbid_kernels("GELU")
def test_broken(kernel_profile):
    kernel_profile(three)
"""
)
def test_kept_it_passes_and_broken_it_fails_with_what_is_forbidden(
    result: pytest.RunResult,
) -> None:
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "forbid_kernels: 1 forbidden: #2 aten::gelu ('GELU')",
            "  #  CPU us  operator    line * called by",
            "  1 * aten::mm    test_it.py:5 * aten::matmul",
        ]
    )


def test_several_patterns_each_forbid(run: Run) -> None:
    result = run(
        """
@pytest.mark.forbid_kernels("softmax", "add", "gelu")
def test_it(kernel_profile):
    kernel_profile(three)
"""
    )
    result.stdout.fnmatch_lines(
        ["forbid_kernels: 2 forbidden: #2 aten::gelu ('gelu'), #3 aten::add ('add')"]
    )


def test_it_looks_at_the_operators_above_a_kernel_too(run: Run) -> None:
    result = run(
        """
@pytest.mark.forbid_kernels("aten::matmul")
def test_it(kernel_profile):
    kernel_profile(three)
"""
    )
    result.stdout.fnmatch_lines(["forbid_kernels: 1 forbidden: #1 aten::mm ('aten::matmul')"])


def test_two_markers_compose(run: Run) -> None:
    result = run(
        """
@pytest.mark.forbid_kernels("gelu")
@pytest.mark.forbid_kernels("aten::add")
def test_it(kernel_profile):
    kernel_profile(three)
"""
    )
    result.stdout.fnmatch_lines_random(
        [
            "forbid_kernels: 1 forbidden: #2 aten::gelu ('gelu')*",
            "forbid_kernels: 1 forbidden: #3 aten::add ('aten::add')*",
        ]
    )


def test_many_are_cut_short(run: Run) -> None:
    result = run(
        """
@pytest.mark.forbid_kernels("add")
def test_it(kernel_profile):
    kernel_profile(lambda: [x + 1 for _ in range(9)])
"""
    )
    result.stdout.fnmatch_lines(["forbid_kernels: 9 forbidden: #1 *, #2 *, #3 *, #4 * and 5 more"])


@pytest.mark.parametrize("which", [0, 1])
def test_a_kernel_of_any_round_is_forbidden(run: Run, which: int) -> None:
    result = run(
        f"""
import itertools
turn = itertools.count()
@pytest.mark.forbid_kernels("gelu")
def test_it(kernel_profile):
    kernel_profile(lambda: F.gelu(x) if next(turn) % 2 == {which} else F.relu(x))
"""
    )
    result.assert_outcomes(failed=1)
