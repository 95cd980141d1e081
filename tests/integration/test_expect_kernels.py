"""The marker expect_kernels."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Run = Callable[..., pytest.RunResult]


@pytest.mark.project(
    """
@pytest.mark.expect_kernels("aten::mm", "gelu", "add")
def test_kept(kernel_profile):
    kernel_profile(three)
@pytest.mark.expect_kernels("mm", "relu", "add")
def test_broken(kernel_profile):
    kernel_profile(three)
"""
)
def test_kept_it_passes_and_broken_it_fails_with_the_first_misfit(result: pytest.RunResult) -> None:
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "E   expect_kernels: kernel 2: expected 'relu', got aten::gelu",
            "  3 kernels, expected 'mm', 'relu', 'add'",
            "  at test_it.py:5",
            "    5 | return F.gelu(x @ x) + 1",
            "      |        ^^^^^^^^^^^^^",
            "  operators (> not expected):",
            "  #   *us  operator    line * called by",
            "  1 * aten::mm    test_it.py:5 * aten::matmul",
            "> 2 * aten::gelu  test_it.py:5",
            "  3 * aten::add   test_it.py:5",
        ]
    )


@pytest.mark.parametrize(
    "patterns",
    [
        "...",
        '..., "add"',
        '"mm", ...',
        '"mm", ..., "add"',
        '"mm", ..., "gelu", ..., "add", ...',
        '..., "gelu", ...',
        '"MATMUL", "^aten::gelu$", "a.d"',
    ],
)
def test_an_ellipsis_stands_for_any_run_of_kernels(run: Run, patterns: str) -> None:
    result = run(
        f"""
@pytest.mark.expect_kernels({patterns})
def test_it(kernel_profile):
    kernel_profile(three)
"""
    )
    result.assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("patterns", "misfit"),
    [
        ('"mm", "add", "gelu"', "kernel 2: expected 'add', got aten::gelu"),
        ('"mm", "gelu"', "unexpected kernel 3: aten::add*"),
        ('"mm", "gelu", "add", "mul"', "no kernel for 'mul'"),
        ('..., "softmax", ...', "no kernel for 'softmax'"),
        ('"gelu", ...', "kernel 1: expected 'gelu', got aten::mm (aten::matmul)"),
    ],
)
def test_the_order_and_the_number_count(run: Run, patterns: str, misfit: str) -> None:
    result = run(
        f"""
@pytest.mark.expect_kernels({patterns})
def test_it(kernel_profile):
    kernel_profile(three)
"""
    )
    result.assert_outcomes(failed=1)
    expected = patterns.replace('"', "'")
    result.stdout.fnmatch_lines(
        [f"E   expect_kernels: {misfit}", f"  3 kernels, expected {expected}"], consecutive=True
    )


def test_without_patterns_it_expects_no_kernels(run: Run) -> None:
    result = run(
        """
@pytest.mark.expect_kernels()
def test_kept(kernel_profile):
    kernel_profile(lambda: x.t())
@pytest.mark.expect_kernels()
def test_broken(kernel_profile):
    kernel_profile(three)
"""
    )
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        ["E   expect_kernels: unexpected kernel 1: aten::mm*", "  3 kernels, expected no kernels"],
        consecutive=True,
    )


@pytest.mark.parametrize("which", [0, 1])
def test_every_round_must_fit(run: Run, which: int) -> None:
    result = run(
        f"""
import itertools
turn = itertools.count()
@pytest.mark.expect_kernels("gelu")
def test_it(kernel_profile):
    kernel_profile(lambda: F.gelu(x) if next(turn) % 2 == {which} else F.relu(x))
"""
    )
    result.assert_outcomes(failed=1)
