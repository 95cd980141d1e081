"""kernel_profile.compare and compare_all."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sleepers import SLEEPERS

Run = Callable[..., pytest.RunResult]


@pytest.mark.project(
    SLEEPERS
    + """
def test_it(kernel_profile, kernelprof_device):
    found = kernel_profile.compare(quick, slow, x)
    assert found.speedup > 1.5
    low, high = found.interval
    assert low <= found.speedup <= high
    assert found.min_speedup(1.5) is found
    found.not_slower(by="2%")
    assert found.pairs in (12, 24, 48, 96)
    assert found.candidate.name == "quick" and found.reference.value > 29_000
"""
)
def test_speedup_interval_and_assertions_hold(result: pytest.RunResult) -> None:
    result.assert_outcomes(passed=1)


def test_a_candidate_that_is_too_slow_fails_with_both_in_a_table(run: Run) -> None:
    result = run(
        SLEEPERS
        + """
def test_it(kernel_profile, kernelprof_device):
    kernel_profile.compare(slow, quick).min_speedup(1.5)
def test_slower(kernel_profile, kernelprof_device):
    kernel_profile.compare(slow, quick).not_slower(by="5%")
"""
    )
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(
        [
            "*min_speedup(1.5): slow over quick, latency: * (99 % CI 0.*, * pairs*",
            "*kernels*latency *speedup *99 % CI  callable",
            "*0 *ms*0.*..0.*  slow",
            "*0 *ms*reference *quick",
            '*not_slower(by="5%"): slow over quick, *',
        ]
    )


def test_there_is_an_interval_unless_fewer_than_eight_pairs_were_asked_for(run: Run) -> None:
    """Also where neighbours are alike; how many pairs that takes is a matter of unit tests."""
    result = run(
        """
import itertools, time
calls = itertools.count()
def slow_for_a_while(): time.sleep(0.004 if next(calls) // 6 % 2 else 0.001)
def even(): time.sleep(0.002)
def test_it(kernel_profile, kernelprof_device):
    found = kernel_profile.compare(slow_for_a_while, even)
    low, high = found.interval
    assert low < high
def test_few(kernel_profile, kernelprof_device):
    found = kernel_profile.compare(slow_for_a_while, even, rounds=7)
    assert (found.pairs, found.interval) == (7, None)
"""
    )
    result.assert_outcomes(passed=2)


def test_an_assertion_that_is_not_decided_takes_more_pairs(run: Run) -> None:
    result = run(
        """
import itertools, time
calls = itertools.count()
def uneven(): time.sleep(0.004 if next(calls) % 4 < 2 else 0.001)
def even(): time.sleep(0.002)
def test_it(kernel_profile, kernelprof_device):
    found = kernel_profile.compare(uneven, even)
    found.min_speedup(1.0)
    assert found.pairs == 96
"""
    )
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(["*KernelprofWarning: min_speedup(1): uneven over*undecided*"])


@pytest.mark.project(
    SLEEPERS
    + """
def test_it(kernel_profile, kernelprof_device):
    found = kernel_profile.compare_all(
        {"quick": quick, "slow": slow, "same": same}, x, reference="slow"
    )
    assert sorted(found) == ["quick", "same"]
    assert found["same"].min_speedup(1.5)
    print(found)
""",
    "--kernelprof-report",
)
def test_several_at_once_give_a_table_and_go_into_the_report(result: pytest.RunResult) -> None:
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        [
            "*= kernel profiles =*",
            "test_it.py::test_it",
            "  kernels *callable",
            "  *..*  quick",
            "  *reference *slow",
        ]
    )


def test_markers_do_not_judge_the_profiles_of_a_comparison(run: Run) -> None:
    result = run(
        """
@pytest.mark.max_kernels(3)
def test_it(kernel_profile):
    kernel_profile(three)
    kernel_profile.compare(lambda: three() + 0, three)
"""
    )
    result.assert_outcomes(passed=1)


def test_a_limit_on_a_test_that_only_compares_limits_nothing_which_is_an_error(run: Run) -> None:
    result = run(
        """
@pytest.mark.max_kernels(0)
def test_it(kernel_profile):
    kernel_profile.compare(three, three)
"""
    )
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*max_kernels was not judged: the test only compares*"])


def test_one_name_for_both_is_told_apart(run: Run) -> None:
    result = run(
        """
def test_it(kernel_profile, kernelprof_device):
    found = kernel_profile.compare(lambda: three(), lambda: three())
    assert found.candidate.name == "<lambda> (candidate)"
"""
    )
    result.assert_outcomes(passed=1)


def test_setup_makes_the_arguments_of_each_round(run: Run) -> None:
    result = run(
        """
def test_it(kernel_profile, kernelprof_device):
    made = []
    def setup():
        made.append(torch.ones(4))
        return (made[-1],)
    def takes(t):
        assert t is made[-1]
        t.add_(1)
    kernel_profile.compare(takes, lambda t: t + 1, setup=setup)
    assert len(made) > 24
"""
    )
    result.assert_outcomes(passed=1)


NONSENSE = [
    ("compare(three(), three)", "*expected a callable, got Tensor tensor(*; write compare(f,*"),
    ("compare(three, 3)", "*expected a callable, got int*"),
    ('compare(three, three, metric="cuda_time")', "*the CPU has only latency*"),
    ('compare(three, three, metric="speed")', "*metric='speed': expected one of cuda_time, *"),
    ("compare(three, three, rounds=0)", "*rounds=0: expected a whole number of one or more*"),
    (
        "compare(three, three, rounds=8).min_speedup('1.5')",
        "*min_speedup: '1.5': expected a number above*",
    ),
    (
        "compare(three, three, rounds=8).min_speedup(-1)",
        "*min_speedup: -1: expected a number above zero*",
    ),
    ("compare(three, three, rounds=8).not_slower(by=2)", '*Write not_slower(by="2%")*'),
    ('compare(three, three, rounds=8).not_slower(by="fast")', '*Write not_slower(by="2%")*'),
    ("compare(three, three, rounds=8).min_speedup(10**400)", "*expected a number above zero*"),
    (
        "compare(three, three, rounds=8).min_speedup(True)",
        "*min_speedup: True: expected a number above*",
    ),
    ('compare_all({1: three, "b": three}, reference="b")', "*1: expected a name as text*"),
    ('compare_all({"a": three, "b": three}, reference=["a"])', "*is not one of 'a', 'b'*"),
    ('compare_all({"a": three}, reference="a")', "*expected two callables or more, by name*"),
    ('compare_all({"a": three, "b": three}, reference="c")', "*'c' is not one of 'a', 'b'*"),
]


def test_nonsense_is_an_error_with_the_right_form(run: Run) -> None:
    code, lines = "", []
    for number, (call, message) in enumerate(NONSENSE):
        code += f"""
def test_{number}(kernel_profile, kernelprof_device):
    kernel_profile.{call}
"""
        lines += [f"* ERROR at * of test_{number} _*", f"*MarkerError: {message}"]
    result = run(code)
    result.assert_outcomes(errors=len(NONSENSE))
    result.stdout.fnmatch_lines(lines)


def test_any_number_will_do(run: Run) -> None:
    result = run(
        """
from fractions import Fraction
import numpy
def test_it(kernel_profile, kernelprof_device):
    found = kernel_profile.compare(three, three)
    found.min_speedup(Fraction(1, 1000)).min_speedup(numpy.float32(0.001))
"""
    )
    result.assert_outcomes(passed=1)


def test_another_number_of_kernels_now_and_then_is_told(run: Run) -> None:
    result = run(
        SLEEPERS
        + """
import itertools
calls = itertools.count()
def uneven():
    three() if next(calls) % 2 else x + 1
def test_it(kernel_profile, kernelprof_device):
    print(kernel_profile.compare(uneven, slow))
    kernel_profile.compare_all({"uneven": uneven, "slow": slow}, reference="slow")
@pytest.mark.max_latency("10s")
def test_limited(kernel_profile):
    kernel_profile(uneven)
""",
        "--kernelprof-report",
        "-rP",
    )
    result.assert_outcomes(passed=2, warnings=1)
    told = [line for line in result.outlines if "UNSTABLE: uneven launched 1 to 3 kernels" in line]
    assert len(told) == 3 + 1, "the text of one, and its and the other's table in the report"
    result.stdout.fnmatch_lines(["*KernelprofWarning: UNSTABLE: the code launches 1 to 3 kernels*"])


def test_an_exception_in_a_late_round_is_the_tests_own_and_leaves_no_profiler(run: Run) -> None:
    result = run(
        """
import itertools
calls = itertools.count()
def breaks():
    if next(calls) == 7:
        raise RuntimeError("round 7")
def test_it(kernel_profile, kernelprof_device):
    kernel_profile.compare(breaks, three)
def test_next(kernel_profile, kernelprof_device):
    kernel_profile(three)
"""
    )
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["E *RuntimeError: round 7"])


def test_disabled_judges_nothing_and_skips_where_a_number_is_wanted(
    run: Run,
) -> None:
    result = run(
        """
ran = []
def one(): ran.append(1)
def two(): ran.append(2)
def test_it(kernel_profile):
    found = kernel_profile.compare(one, two)
    assert ran == [1, 2]
    found.min_speedup(2)
    ran.clear()
    found.speedup
    assert False, "not reached"
""",
        "--kernelprof-disable",
    )
    result.assert_outcomes(skipped=1)
