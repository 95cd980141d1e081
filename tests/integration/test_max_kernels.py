"""The marker max_kernels."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Run = Callable[..., pytest.RunResult]

TWO_IN_TURN = """
import itertools
turn = itertools.count()
def in_turn():
    return F.gelu(x) if next(turn) %% 2 == %d else F.relu(x)
"""


@pytest.mark.project(
    """
@pytest.mark.max_kernels(3)
def test_kept(kernel_profile):
    kernel_profile(three)
@pytest.mark.max_kernels(2)
def test_broken(kernel_profile):
    kernel_profile(three)
"""
)
def test_kept_it_passes_and_broken_it_fails_with_the_kernels(result: pytest.RunResult) -> None:
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "E   max_kernels: 3 > limit 2",
            "  at test_it.py:5",
            "    5 | return F.gelu(x @ x) + 1",
            "      | aten::mm",
            "      | aten::gelu",
            "      | aten::add",
            "  CPU operators counted, not GPU kernels",
            "  measured at test_it.py:12: kernel_profile(three)",
            "  ",
            "  to do: call fewer operators",
            "  rerun: pytest test_it.py::test_broken --kernelprof-device=cpu",
            "  if intended, allow max_kernels(3) at test_it.py:10",
            "  ",
            "  #   *us  operator    line * called by",
            "  1 * aten::mm    test_it.py:5 * aten::matmul",
            "  2 * aten::gelu  test_it.py:5",
            "  3 * aten::add   test_it.py:5",
        ],
        consecutive=True,
    )


def test_it_holds_for_each_profile_not_for_their_sum(run: Run) -> None:
    result = run(
        """
@pytest.mark.max_kernels(3)
def test_it(kernel_profile):
    kernel_profile(three)
    kernel_profile(three)
"""
    )
    result.assert_outcomes(passed=1)


def test_a_view_is_no_kernel(run: Run) -> None:
    result = run(
        """
@pytest.mark.max_kernels(0)
def test_it(kernel_profile):
    kernel_profile(lambda: x.t()[1:].view(7, 8) if x.t()[1:].is_contiguous() else x.t()[1:])
"""
    )
    result.assert_outcomes(passed=1)


def test_work_of_other_threads_counts(run: Run) -> None:
    result = run(
        """
import threading
@pytest.mark.max_kernels(2)
def test_it(kernel_profile):
    def elsewhere():
        thread = threading.Thread(target=three)
        thread.start()
        thread.join()
    kernel_profile(elsewhere)
"""
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["E   max_kernels: 3 > limit 2", "  at test_it.py:5", "    5 | return F.gelu(x @ x) + 1"],
        consecutive=True,
    )


def test_work_of_the_backward_pass_counts(run: Run) -> None:
    result = run(
        """
@pytest.mark.max_kernels(3)
def test_it(kernel_profile):
    linear, y = torch.nn.Linear(8, 8), x.clone().requires_grad_()
    def step():
        linear.zero_grad()
        y.grad = None
        F.gelu(linear(y)).sum().backward()
    kernel_profile(step)
"""
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "E   max_kernels: * > limit 3",
            "  at test_it.py:13",
            "    13 | F.gelu(linear(y)).sum().backward()",
            "*aten::gelu_backward*",
        ]
    )


def test_match_counts_only_the_kernels_that_match(run: Run) -> None:
    result = run(
        """
@pytest.mark.max_kernels(2, match="gelu|mm")
def test_kept(kernel_profile):
    kernel_profile(three)
@pytest.mark.max_kernels(1, match="gelu|mm")
def test_broken(kernel_profile):
    kernel_profile(three)
"""
    )
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "E   max_kernels(match='gelu|mm'): 2 > limit 1",
            "  at test_it.py:5",
            "    5 | return F.gelu(x @ x) + 1",
            "      | aten::mm",
            "      | aten::gelu",
            "  CPU operators counted, not GPU kernels",
        ],
        consecutive=True,
    )


def test_match_ignores_case(run: Run) -> None:
    result = run(
        """
@pytest.mark.max_kernels(0, match="GeLU")
def test_it(kernel_profile):
    kernel_profile(three)
"""
    )
    result.stdout.fnmatch_lines(
        [
            "E   max_kernels(match='GeLU'): 1 > limit 0",
            "  at test_it.py:5",
            "    5 | return F.gelu(x @ x) + 1",
            "      |        ^^^^^^^^^^^^^ aten::gelu",
        ],
        consecutive=True,
    )


def test_match_looks_at_the_operators_above_a_kernel_too(run: Run) -> None:
    result = run(
        """
@pytest.mark.max_kernels(0, match="aten::matmul")
def test_it(kernel_profile):
    kernel_profile(three)
"""
    )
    result.stdout.fnmatch_lines(
        [
            "E   max_kernels(match='aten::matmul'): 1 > limit 0",
            "  at test_it.py:5",
            "    5 | return F.gelu(x @ x) + 1",
            "      |               ^^^^^ aten::mm",
        ],
        consecutive=True,
    )


def test_counts_that_differ_between_rounds_are_unstable_and_the_largest_counts(run: Run) -> None:
    result = run(
        """
import itertools
turn = itertools.count()
@pytest.mark.max_kernels(1)
def test_it(kernel_profile):
    kernel_profile(lambda: [x + 1 for _ in range(1 + next(turn) % 2)])
"""
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["E   max_kernels: 2 > limit 1", "  UNSTABLE: ?, ? in 2 rounds, the largest counts"]
    )


@pytest.mark.parametrize("which", [0, 1])
def test_a_match_in_any_round_counts(run: Run, which: int) -> None:
    result = run(
        TWO_IN_TURN % which
        + """
@pytest.mark.max_kernels(0, match="gelu")
def test_it(kernel_profile):
    kernel_profile(in_turn)
"""
    )
    result.assert_outcomes(failed=1)


def test_kernels_that_are_alike_are_one_row_of_a_long_table(run: Run) -> None:
    result = run(
        """
@pytest.mark.max_kernels(9)
def test_it(kernel_profile):
    kernel_profile(lambda: [x + 1 if i % 2 else x * 2 for i in range(60)])
"""
    )
    result.stdout.fnmatch_lines(
        [
            "E   max_kernels: 60 > limit 9",
            "  1, ... * aten::mul x30 *",
            "  2, ... * aten::add x30 *",
        ]
    )
