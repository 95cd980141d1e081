"""Which of several markers counts: the innermost of each key."""

from __future__ import annotations

from collections.abc import Callable, Collection

import pytest

from pytest_kernelprof.limits import marks as limits

Run = Callable[..., pytest.RunResult]


def test_an_inner_level_replaces_the_same_limit_of_an_outer_one(run: Run) -> None:
    result = run(
        """
pytestmark = pytest.mark.max_kernels(0)
def test_module(kernel_profile):
    kernel_profile(three)
@pytest.mark.max_kernels(3)
def test_function(kernel_profile):
    kernel_profile(three)
@pytest.mark.max_kernels(0)
@pytest.mark.parametrize("n", [1, pytest.param(2, marks=pytest.mark.max_kernels(3))])
def test_parameter(kernel_profile, n):
    kernel_profile(three)
@pytest.mark.max_kernels(0)
class TestBase:
    def test_class(self, kernel_profile):
        kernel_profile(three)
@pytest.mark.max_kernels(3)
class TestDerived(TestBase):
    pass
""",
        "-v",
    )
    result.assert_outcomes(passed=3, failed=3)
    result.stdout.fnmatch_lines_random(
        [
            "*::test_module FAILED*",
            "*::test_function PASSED*",
            "*::test_parameter[[]1] FAILED*",
            "*::test_parameter[[]2] PASSED*",
            "*TestBase::test_class FAILED*",
            "*TestDerived::test_class PASSED*",
        ]
    )


GELU_RAN = [
    "E   max_kernels(match='gelu'): 1 > limit 0",
    "  at test_it.py:5",
    "    5 | return F.gelu(x @ x) + 1",
    "      |        ^^^^^^^^^^^^^ aten::gelu",
]


def test_limits_with_another_match_compose(run: Run) -> None:
    result = run(
        """
@pytest.mark.max_kernels(3)
@pytest.mark.max_kernels(0, match="softmax")
@pytest.mark.max_kernels(0, match="gelu")
def test_it(kernel_profile):
    kernel_profile(three)
"""
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(GELU_RAN, consecutive=True)


def test_the_same_limit_twice_on_one_function_is_an_error_of_that_test(run: Run) -> None:
    result = run(
        """
@pytest.mark.max_kernels(1)
@pytest.mark.max_kernels(2)
def test_twice(kernel_profile):
    kernel_profile(three)
def test_other():
    pass
"""
    )
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*MarkerError: max_kernels is set twice on test_twice; keep one*"])


def test_a_limit_given_at_run_time_or_to_a_region_replaces_a_markers(run: Run) -> None:
    result = run(
        """
@pytest.mark.max_kernels(0)
def test_limit(kernel_profile):
    kernel_profile.limit(max_kernels=3)
    kernel_profile(three)
@pytest.mark.max_kernels(0)
def test_region(kernel_profile):
    with kernel_profile.region("it", max_kernels=3):
        three()
"""
    )
    result.assert_outcomes(passed=2)


@pytest.mark.project(
    """
pytestmark = pytest.mark.max_kernels(0)
@pytest.mark.max_kernels(1)
class TestIt:
    @pytest.mark.max_kernels(2)
    @pytest.mark.parametrize("n", [pytest.param(1, marks=pytest.mark.max_kernels(3))])
    def test_it(self, kernel_profile, n):
        kernel_profile(three)
"""
)
def test_a_parameter_wins_over_function_class_and_module_at_once(result: pytest.RunResult) -> None:
    result.assert_outcomes(passed=1)


def test_limits_of_different_names_compose_across_levels(run: Run) -> None:
    result = run(
        """
pytestmark = pytest.mark.forbid_kernels("gelu")
@pytest.mark.max_kernels(2)
def test_it(kernel_profile):
    kernel_profile(three)
"""
    )
    result.stdout.fnmatch_lines_random(
        [
            "E   max_kernels: 3 > limit 2",
            "E   forbid_kernels: 1 forbidden kernel ran: *",
            "  at test_it.py:5",
            "    5 | return F.gelu(x @ x) + 1",
        ]
    )


def test_another_match_at_an_outer_level_stays(run: Run) -> None:
    result = run(
        """
pytestmark = pytest.mark.max_kernels(0, match="gelu")
@pytest.mark.max_kernels(9)
@pytest.mark.max_kernels(9, match="add")
def test_it(kernel_profile):
    kernel_profile(three)
"""
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(GELU_RAN, consecutive=True)


@pytest.mark.parametrize(
    ("upper", "lower"),
    [
        ("min_speedup(0.001, over=three)", "min_speedup(1000, over=three)"),
        ("not_slower(than=three)", 'not_slower(than=three, by="5%")'),
    ],
    ids=["min_speedup", "not_slower"],
)
def test_the_same_promise_twice_on_one_function_is_an_error(
    run: Run, upper: str, lower: str
) -> None:
    result = run(
        f"""
@pytest.mark.{upper}
@pytest.mark.{lower}
def test_twice(kernel_profile, kernelprof_device):
    kernel_profile(three)
def test_on_two_levels(kernel_profile, kernelprof_device):
    kernel_profile(three)
"""
    )
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines([f"*{upper.partition('(')[0]} is set twice on test_twice; *"])


def test_the_same_match_twice_on_one_function_is_an_error(run: Run) -> None:
    result = run(
        """
@pytest.mark.max_kernels(1, match="gelu")
@pytest.mark.max_kernels(2, match="gelu")
def test_twice(kernel_profile):
    kernel_profile(three)
"""
    )
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*max_kernels(gelu) is set twice on test_twice; keep one*"])


def test_a_marker_that_the_test_adds_to_itself_counts(run: Run) -> None:
    result = run(
        """
def test_broken(request, kernel_profile, kernelprof_device):
    kernel_profile(three)
    request.node.add_marker(pytest.mark.max_kernels(1))
@pytest.mark.max_kernels(3)
def test_kept(request, kernel_profile, kernelprof_device):
    kernel_profile(three)
    request.node.add_marker(pytest.mark.forbid_kernels("no such"))
@pytest.mark.max_kernels(9)
class TestIt:
    def test_replaced(self, request, kernel_profile):
        kernel_profile(three)
        request.node.add_marker(pytest.mark.max_kernels(1))
"""
    )
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(["*max_kernels: 3 > limit 1*"])


@pytest.mark.parametrize(
    ("adds", "times"), [("pass", 1), ("request.node.add_marker(pytest.mark.max_launches(9))", 2)]
)
def test_markers_are_evaluated_once_and_again_only_if_there_are_others(
    run: Run, monkeypatch: pytest.MonkeyPatch, adds: str, times: int
) -> None:
    evaluated, marks_of = [], limits.marks_of

    def counted(item: pytest.Item, early: Collection[int]) -> limits.Marks:
        evaluated.append(item.name)
        return marks_of(item, early)

    monkeypatch.setattr(limits, "marks_of", counted)
    result = run(
        f"""
@pytest.mark.max_kernels(3)
@pytest.mark.kernelprof(warmup=2)
def test_it(kernel_profile, kernelprof_device, request):
    kernel_profile(three)
    {adds}
"""
    )
    result.assert_outcomes(passed=1)
    assert evaluated == ["test_it"] * times
