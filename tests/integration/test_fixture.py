"""The object that a test talks to."""

from __future__ import annotations

import pytest


def test_the_fixture_in_all_its_forms(run) -> None:
    result = run(
        """
def test_call_returns_the_first_result(kernel_profile):
    numbers = iter(range(100))
    assert kernel_profile(lambda: next(numbers)) == 0

def test_call_hands_arguments_on(kernel_profile):
    assert kernel_profile(lambda a, *, b: (a, b), 1, b=2) == (1, 2)

def test_run_makes_fresh_arguments(kernel_profile):
    made = []
    def fresh():
        made.append(1)
        return (torch.ones(3),)
    y = kernel_profile.run(lambda t: t.add_(1), setup=fresh, rounds=2, warmup=1)
    assert y.tolist() == [2, 2, 2]
    assert len(made) >= 3
    assert kernel_profile.last.kernel_count == 1

def test_profiles_are_kept_in_order(kernel_profile):
    with pytest.raises(RuntimeError, match="nothing has been profiled yet"):
        kernel_profile.last
    kernel_profile(three)
    with kernel_profile.region("one") as region:
        with pytest.raises(RuntimeError, match="after the with block"):
            region.profile
        x + 1
    assert [p.kernel_count for p in kernel_profile.profiles] == [3, 1]
    assert kernel_profile.last is region.profile
    assert kernel_profile.last.label == "one"

def test_everything_is_measured_where_no_limit_says_less(kernel_profile):
    kernel_profile(three)
    assert kernel_profile.last.latency > 0
    assert kernel_profile.last.rounds == 12

@pytest.mark.max_kernels(3)
def test_exact_limits_take_two_rounds(kernel_profile):
    kernel_profile(three)
    assert kernel_profile.last.rounds == 2

def test_a_value_that_is_no_callable_is_refused(kernel_profile):
    with pytest.raises(TypeError, match=r"kernel_profile\\(fn, \\*args\\)"):
        kernel_profile(three())
    kernel_profile(three)

def test_wrong_options_are_refused(kernel_profile):
    with pytest.raises(MarkerError, match="rounds=0"):
        kernel_profile.run(three, rounds=0)
    kernel_profile(three)

def test_where_values_are_shown_it_has_its_name(kernel_profile):
    kernel_profile(three)
    assert repr(kernel_profile) == "<kernel_profile>"

def test_profiles_save_and_read_back(kernel_profile, tmp_path):
    from pytest_kernelprof import Profile
    kernel_profile(three)
    kernel_profile.last.save_trace(tmp_path / "t.json.gz")
    assert Profile.from_trace(tmp_path / "t.json.gz").kernels == kernel_profile.last.kernels
"""
    )
    result.assert_outcomes(passed=10)


def test_options_of_the_marker_count(run) -> None:
    result = run(
        """
@pytest.mark.kernelprof(rounds=5, warmup=2)
class TestIt:
    def test_class(self, kernel_profile):
        calls = []
        kernel_profile(lambda: calls.append(1))
        assert kernel_profile.last.rounds == 5
    @pytest.mark.kernelprof(rounds=3)
    def test_inner_wins_for_each_option(self, kernel_profile):
        kernel_profile(three)
        assert kernel_profile.last.rounds == 3
"""
    )
    result.assert_outcomes(passed=2)


def test_a_test_marked_for_the_cpu_runs_there_on_any_machine(run) -> None:
    result = run(
        """
@pytest.mark.kernelprof(device="cpu")
@pytest.mark.max_kernels(3)
def test_it(kernel_profile, kernelprof_device):
    assert kernelprof_device == "cpu"
    kernel_profile(three)
""",
        device=None,
    )
    result.assert_outcomes(passed=1)


def test_a_failure_names_the_call_or_region_that_it_is_about(run) -> None:
    result = run(
        """
def test_it(kernel_profile):
    kernel_profile.limit(max_kernels=0)
    kernel_profile(lambda: None)
    kernel_profile(lambda: x + 1)
    with kernel_profile.region("backward"):
        three()
"""
    )
    result.stdout.fnmatch_lines(
        [
            "E   max_kernels: 1 > limit 0",
            "  in profile 2",
            "  at test_it.py:10",
            "    10 | *",
            "E   max_kernels: 3 > limit 0",
            "  in region 'backward'",
            "  at test_it.py:11",
            "    11 | *",
        ]
    )


def test_a_limit_holds_for_profiles_taken_before_it_was_set(run) -> None:
    result = run(
        """
def test_it(kernel_profile):
    kernel_profile(three)
    kernel_profile.limit(max_kernels=2)
"""
    )
    result.assert_outcomes(failed=1)


def test_a_limit_of_a_region_does_not_hold_for_other_profiles(run) -> None:
    result = run(
        """
def test_it(kernel_profile):
    with kernel_profile.region("one", max_kernels=1):
        x + 1
    kernel_profile(three)
"""
    )
    result.assert_outcomes(passed=1)


def test_limits_at_run_time_take_all_arguments_of_a_marker(run) -> None:
    result = run(
        """
def test_it(kernel_profile):
    kernel_profile.limit(
        max_kernels={"n": 0, "match": "gelu"}, expect_kernels=("mm", ...), forbid_kernels="add"
    )
    kernel_profile(three)
"""
    )
    result.stdout.fnmatch_lines_random(
        [
            "E   max_kernels(match='gelu'): 1 > limit 0",
            "E   forbid_kernels: 1 forbidden kernel ran: #3 aten::add ('add')",
            "  at test_it.py:5",
            "    5 | *",
        ]
    )


def test_what_a_fixture_profiles_while_setting_up_is_limited(run) -> None:
    result = run(
        """
@pytest.fixture
def profiled(kernel_profile):
    return kernel_profile(three)
@pytest.mark.max_kernels(2)
def test_it(profiled):
    pass
"""
    )
    result.assert_outcomes(failed=1)


def test_what_a_fixture_profiles_while_tearing_down_does_not_pass_unseen(run) -> None:
    result = run(
        """
@pytest.fixture
def profiled(kernel_profile):
    yield
    kernel_profile(three)
@pytest.mark.max_kernels(2)
def test_it(profiled, kernel_profile):
    kernel_profile(lambda: None)
"""
    )
    assert result.ret == 1


def test_a_skip_in_the_measured_code_skips_the_test(run) -> None:
    result = run(
        """
def test_it(kernel_profile):
    kernel_profile(lambda: pytest.skip("enough"))
"""
    )
    result.assert_outcomes(skipped=1)


@pytest.mark.project(
    """
def test_it(kernel_profile):
    assert kernel_profile(lambda a, *, b: (a, b), 1, b=2) == (1, 2)
    with kernel_profile.region("one") as region:
        three()
    assert region.profile.kernel_count == 3
"""
)
def test_with_workers_the_fixture_is_the_same(result_of_workers: pytest.RunResult) -> None:
    result_of_workers.assert_outcomes(passed=1)


def test_arguments_that_are_not_wrapped_are_refused(run) -> None:
    """A tensor would be taken apart into its rows, and another shape measured."""
    result = run(
        """
def test_args(kernel_profile):
    with pytest.raises(TypeError, match="args: expected the arguments as a tuple, got Tensor"):
        kernel_profile.run(torch.neg, x)
    kernel_profile.run(torch.neg, [x])
def test_text(kernel_profile):
    with pytest.raises(TypeError, match="args: expected the arguments as a tuple, got str"):
        kernel_profile.run(print, "ab")
    kernel_profile(three)
def test_kwargs(kernel_profile):
    with pytest.raises(TypeError, match="kwargs: expected keyword arguments as a dict, got list"):
        kernel_profile.run(three, (), [1])
    kernel_profile(three)
@pytest.mark.parametrize("setup", [3, 0, "", True])
def test_setup(kernel_profile, kernelprof_device, setup):
    with pytest.raises(TypeError, match="setup=.*: expected a callable that returns"):
        kernel_profile.run(three, setup=setup)
    kernel_profile(three)
@pytest.mark.parametrize("setup", [3, 0, "", True])
def test_setup_of_a_comparison(kernel_profile, kernelprof_device, setup):
    kernel_profile.compare(three, three, setup=setup)
"""
    )
    result.assert_outcomes(passed=7, errors=4)
    result.stdout.fnmatch_lines(["*CannotMeasureError: setup=3: expected a callable that returns*"])
