"""The markers that compare: min_speedup and not_slower."""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase

import pytest
from reported import errors_of
from sleepers import SLEEPERS

Run = Callable[..., pytest.RunResult]


@pytest.mark.project(
    SLEEPERS
    + """
@pytest.mark.min_speedup(1.5, over=slow)
@pytest.mark.not_slower(than=slow)
def test_kept(kernel_profile, kernelprof_device):
    kernel_profile(quick, x, scale=2)
@pytest.mark.min_speedup(1.5, over=quick)
def test_broken(kernel_profile, kernelprof_device):
    kernel_profile(slow, x)
@pytest.mark.not_slower(than=quick, by="5%")
def test_slower(kernel_profile, kernelprof_device):
    kernel_profile(slow)
"""
)
def test_kept_they_pass_and_broken_they_fail_with_both_in_a_table(result: pytest.RunResult) -> None:
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines_random(
        [
            "*min_speedup(1.5): slow over quick, latency: *x slower (99 % CI *",
            '*not_slower(by="5%"): slow over quick*',
        ]
    )


def test_they_compose_with_limits_in_one_failure(run: Run) -> None:
    result = run(
        SLEEPERS
        + """
@pytest.mark.min_speedup(1.5, over=quick)
@pytest.mark.max_latency("1ms")
def test_it(kernel_profile):
    kernel_profile(slow)
"""
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*max_latency: * > limit 1.00ms*", "*min_speedup(1.5): slow over quick*"]
    )


def test_an_inner_level_replaces_an_outer_one(run: Run) -> None:
    result = run(
        SLEEPERS
        + """
@pytest.mark.min_speedup(100, over=slow)
class TestAll:
    @pytest.mark.min_speedup(2, over=slow)
    def test_it(self, kernel_profile, kernelprof_device):
        kernel_profile(quick)
"""
    )
    result.assert_outcomes(passed=1)


FORMS = {
    "min_speedup": "min_speedup(1.5, over=eager) or *",
    "not_slower": "not_slower(than=eager) or *",
}
MALFORMED = [
    ("min_speedup(1.5)", "min_speedup: over=None is not callable"),
    ("min_speedup(over=three)", "min_speedup: expected one number above zero, got none*"),
    ("min_speedup('fast', over=three)", "min_speedup: 'fast': expected a number above zero*"),
    ("min_speedup(10**400, over=three)", "min_speedup: 1000*: expected a number above zero*"),
    ("min_speedup(True, over=three)", "min_speedup: True: expected a number above zero*"),
    ("min_speedup(2, than=three)", "min_speedup: unknown argument 'than'*"),
    ("min_speedup(2, over=three, metric='speed')", "min_speedup: metric='speed' is not one of *"),
    ("not_slower(3)", "not_slower: takes keyword arguments only*"),
    ("not_slower(than=3)", "not_slower: than=3 is not callable*"),
    ("not_slower(than=three, by=0.5)", "not_slower: by=0.5 has no unit"),
    ("not_slower(than=three, by='2')", "not_slower: by: '2' is no*"),
    ("not_slower(than=three, by='200%')", "not_slower: by: '200%' is not a percentage*"),
]


def test_a_malformed_one_is_an_error_of_its_test_with_the_right_form(run: Run) -> None:
    code = ""
    for number, (marker, _) in enumerate(MALFORMED):
        code += f"""
@pytest.mark.{marker}
def test_{number}_bad(kernel_profile, kernelprof_device):
    kernel_profile(three)
def test_{number}_other(): pass
"""
    result = run(code)
    result.assert_outcomes(errors=len(MALFORMED), passed=len(MALFORMED))
    found = errors_of(result)
    assert [*found] == [f"test_{number}_bad" for number in range(len(MALFORMED))]
    for (marker, message), (said, below) in zip(MALFORMED, found.values(), strict=True):
        form = f"write {FORMS[marker.partition('(')[0]]} (see docs/reference.md#markers)"
        assert fnmatchcase(said, f"MarkerError: {message}"), said
        assert fnmatchcase(below, f"at test_it.py:*: @pytest.mark.{marker}  to do: {form}"), below


def test_without_the_fixture_there_is_nothing_to_compare_which_is_an_error(run: Run) -> None:
    result = run(
        """
@pytest.mark.min_speedup(2, over=three)
def test_it(): three()
"""
    )
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*min_speedup compares the callable that the test gives to *"])


def test_setup_gives_both_their_arguments_in_place_of_the_given_ones(run: Run) -> None:
    result = run(
        """
def one(x, **more):
    assert x.shape == (3,) and not more
def other(x, **more):
    assert x.shape == (3,) and not more
@pytest.mark.min_speedup(0.001, over=other)
def test_it(kernel_profile, kernelprof_device):
    kernel_profile.run(one, kwargs={"x": x, "scale": 2}, setup=lambda: (torch.ones(3),))
"""
    )
    result.assert_outcomes(passed=1)


def test_arguments_may_have_the_names_of_options(run: Run) -> None:
    result = run(
        """
def one(rounds, metric): return three()
def other(rounds, metric): return three()
@pytest.mark.min_speedup(0.001, over=other)
def test_it(kernel_profile, kernelprof_device):
    kernel_profile(one, rounds="many", metric="speed")
"""
    )
    result.assert_outcomes(passed=1)


@pytest.mark.parametrize("policy", ["warn", "pass"])
def test_changed_inputs_of_a_comparison_are_named_beside_a_profile_too(
    run: Run, policy: str
) -> None:
    result = run(
        """
@pytest.mark.max_kernels(9)
def test_it(kernel_profile):
    kernel_profile.compare(lambda t: t.add_(1), lambda t: t + 1, torch.ones(4))
    kernel_profile(three)
""",
        "-o",
        f"kernelprof_undecided={policy}",
    )
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(["*the code changes argument 1 in place*"])


def test_code_that_changes_its_inputs_is_named(run: Run) -> None:
    result = run(
        """
@pytest.mark.max_latency("10s")
def test_profiled(kernel_profile):
    kernel_profile(lambda t, o: t.add_(1), torch.ones(4), o=x)
def test_compared(kernel_profile, kernelprof_device):
    kernel_profile.compare(lambda ts: ts[1].add_(1), lambda ts: ts[1] + 1, [x, torch.ones(4)])
@pytest.mark.max_latency("10s")
def test_fresh(kernel_profile):
    kernel_profile.run(lambda t: t.add_(1), setup=lambda: (torch.ones(4),))
@pytest.mark.max_latency("10s")
def test_hidden_in_a_closure(kernel_profile):
    state = torch.ones(4)
    kernel_profile(lambda: state.add_(1))
class TestHidden:
    @pytest.mark.max_latency("10s")
    def test_in_self(self, kernel_profile):
        self.cache = torch.ones(4)
        kernel_profile(self.step)
    def step(self):
        self.cache.add_(1)
@pytest.mark.max_kernels(1)
def test_no_time_is_judged(kernel_profile):
    state = torch.ones(4)
    kernel_profile(lambda: state.add_(1))
    assert kernel_profile.last.record.in_place == ("closure variable `state`",)
"""
    )
    result.assert_outcomes(passed=6, warnings=4)
    result.stdout.fnmatch_lines(
        [
            "*the code changes argument 1 in place, so each round may have different inputs: *",
            "*the code changes argument 1[[]1] in place*",
            "*the code changes closure variable `state` in place*",
            "*the code changes self.cache in place*",
        ]
    )


@pytest.mark.parametrize(
    "body",
    ["with kernel_profile.region(): three()", "kernel_profile.compare(three, three)"],
    ids=["region", "compare"],
)
def test_a_promise_about_nothing_that_was_handed_over_is_an_error(run: Run, body: str) -> None:
    result = run(
        f"""
@pytest.mark.min_speedup(100, over=three)
def test_it(kernel_profile, kernelprof_device):
    {body}
"""
    )
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*min_speedup was not judged: it compares the callable*"])


def test_disabled_it_judges_nothing_and_runs_the_code_once(run: Run) -> None:
    result = run(
        """
@pytest.mark.min_speedup(100, over=three)
def test_it(kernel_profile):
    kernel_profile(three)
""",
        "--kernelprof-disable",
    )
    result.assert_outcomes(passed=1)
