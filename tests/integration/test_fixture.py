"""The object that a test talks to."""

from __future__ import annotations


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

def test_profiles_save_and_read_back(kernel_profile, tmp_path):
    from pytest_kernelprof import Profile
    kernel_profile(three)
    kernel_profile.last.save_trace(tmp_path / "t.json.gz")
    assert Profile.from_trace(tmp_path / "t.json.gz").kernels == kernel_profile.last.kernels
"""
    )
    result.assert_outcomes(passed=9)


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
