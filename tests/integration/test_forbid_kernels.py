"""The marker forbid_kernels."""

from __future__ import annotations

import re
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
            "E   forbid_kernels: 1 forbidden kernel ran: #2 aten::gelu ('GELU')",
            "  at test_it.py:5",
            "    5 | return F.gelu(x @ x) + 1",
            "      |        ^^^^^^^^^^^^^",
            "  operators (> forbidden):",
            "  #   *us  operator    line * called by",
            "  1 * aten::mm    test_it.py:5 * aten::matmul",
            "> 2 * aten::gelu  test_it.py:5",
            "  3 * aten::add   test_it.py:5",
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
        ["E   forbid_kernels: 2 forbidden kernels ran: #2 aten::gelu ('gelu'), #3 aten::add ('a*"]
    )


def test_it_looks_at_the_operators_above_a_kernel_too(run: Run) -> None:
    result = run(
        """
@pytest.mark.forbid_kernels("aten::matmul")
def test_it(kernel_profile):
    kernel_profile(three)
"""
    )
    result.stdout.fnmatch_lines(
        [
            "E   forbid_kernels: 1 forbidden kernel ran: #1 aten::mm ('aten::matmul')",
            "  at test_it.py:5",
            "    5 | return F.gelu(x @ x) + 1",
            "      |               ^^^^^",
        ],
        consecutive=True,
    )


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
            "E   forbid_kernels: 1 forbidden kernel ran: #2 aten::gelu ('gelu')*",
            "E   forbid_kernels: 1 forbidden kernel ran: #3 aten::add ('aten::add')*",
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
    result.stdout.fnmatch_lines(
        ["E   forbid_kernels: 9 forbidden kernels ran: #1 *, #2 *, #3 *, #4 * and 5 more"]
    )


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


OPERATORS = "name operators, for example 'aten::mul'"
NO_OPERATOR = "no operator of torch * matches"


@pytest.mark.project(
    """
@pytest.mark.forbid_kernels("elementwise", "nvjet")
def test_alone(kernel_profile):
    kernel_profile(three)
@pytest.mark.forbid_kernels("softmax", "nvjet")
def test_beside_a_pattern_that_can_match(kernel_profile):
    kernel_profile(three)
@pytest.mark.max_kernels(0, match="elementwise")
def test_of_max_kernels(kernel_profile):
    kernel_profile(three)
"""
)
def test_a_pattern_that_no_operator_has_is_not_judged_on_the_cpu(result: pytest.RunResult) -> None:
    result.assert_outcomes(skipped=3)
    words = "SKIPPED * not applicable on the CPU:"
    result.stdout.fnmatch_lines_random(
        [
            f"{words} forbid_kernels ({NO_OPERATOR} 'elementwise', 'nvjet'; {OPERATORS}) (see *",
            f"{words} forbid_kernels ({NO_OPERATOR} 'nvjet'; {OPERATORS}) (see *",
            f"{words} max_kernels ({NO_OPERATOR} 'elementwise'; {OPERATORS}) (see *",
        ]
    )


GPU_NAMES_BESIDE_A_LIMIT = """
@pytest.mark.forbid_kernels("elementwise", "nvjet")
@pytest.mark.max_kernels(3)
@pytest.mark.max_syncs(0)
def test_it(kernel_profile):
    kernel_profile(three)
"""


def test_beside_a_limit_that_is_judged_the_run_says_why(run: Run) -> None:
    result = run(GPU_NAMES_BESIDE_A_LIMIT)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        [
            "kernelprof: 1 of 1 test is within its limits; forbid_kernels not judged in 1 test "
            f"({NO_OPERATOR} 'elementwise', 'nvjet'; {OPERATORS}), max_syncs not judged in 1 test *"
        ]
    )


def test_beside_a_limit_that_is_judged_the_report_says_why(run: Run) -> None:
    result = run(GPU_NAMES_BESIDE_A_LIMIT, "--kernelprof-report", "--color=no")
    told = " ".join(" ".join(result.outlines).split())
    assert re.search(r"not judged: forbid_kernels: no operator of torch \S+ matches", told)
    assert "not judged: max_syncs: not applicable on the CPU" in told
    assert "forbid_kernels not judged in 1 test (no operator of torch" in told


def test_a_pattern_that_matches_fails_whatever_the_others_are(run: Run) -> None:
    result = run(
        """
@pytest.mark.forbid_kernels("elementwise", "gelu")
def test_forbidden(kernel_profile):
    kernel_profile(three)
"""
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "E   forbid_kernels: 1 forbidden kernel ran: #2 aten::gelu ('gelu')",
            "  at test_it.py:5",
            "    5 | return F.gelu(x @ x) + 1",
            "      |        ^^^^^^^^^^^^^",
        ],
        consecutive=True,
    )


def test_operators_of_the_users_own_compiled_kernels_and_autograd_are_judged(run: Run) -> None:
    result = run(
        """
@torch.library.custom_op("mine::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2
@pytest.mark.parametrize("pattern", [
    "mine::twice", "cpp_fused", "graph_.*_cpp_fused_gelu", "AddmmBackward0", "aten::softmax",
])
def test_kept(kernel_profile, pattern):
    kernel_profile.limit(forbid_kernels=pattern)
    kernel_profile(three)
def test_broken(kernel_profile):
    kernel_profile.limit(forbid_kernels="mine::twice")
    kernel_profile(twice, x)
"""
    )
    result.assert_outcomes(passed=5, failed=1)
