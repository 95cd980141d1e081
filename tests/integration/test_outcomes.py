"""How a verdict meets the rest of pytest: xfail, skips, other failures, unittest, JUnit."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.mark.project(
    """
@pytest.mark.xfail(strict=True, raises=LimitExceeded)
@pytest.mark.max_kernels(0)
def test_expected(kernel_profile):
    kernel_profile(three)
@pytest.mark.xfail(strict=True, raises=LimitExceeded)
@pytest.mark.max_kernels(3)
def test_unexpected(kernel_profile):
    kernel_profile(three)
@pytest.mark.xfail(raises=KeyError)
@pytest.mark.max_kernels(0)
def test_other_reason(kernel_profile):
    kernel_profile(three)
"""
)
def test_a_violated_limit_is_a_failure_for_xfail_strict_and_raises(
    result: pytest.RunResult,
) -> None:
    result.assert_outcomes(xfailed=1, failed=2)


@pytest.mark.project(
    """
@pytest.mark.xfail
@pytest.mark.max_latency("1s")
def test_it():
    three()
"""
)
def test_a_number_that_could_not_be_had_is_an_error_under_xfail_too(
    result: pytest.RunResult,
) -> None:
    result.assert_outcomes(errors=1)
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*ERROR at call of test_it*", "E   max_latency*"])


WRONG_CALLS = """
pytestmark = [pytest.mark.xfail, pytest.mark.max_kernels(9)]
def test_a(kernel_profile): kernel_profile(three())
def test_b(kernel_profile): kernel_profile(lambda: (three() for _ in range(9)))
def test_c(kernel_profile): kernel_profile.run(three, setup=lambda: 3)
def test_d(kernel_profile): kernel_profile.run(torch.relu, x)
def test_e(kernel_profile):
    kernel_profile(three)
    assert kernel_profile.compare(three, three)
def test_f(kernel_profile): kernel_profile(torch.mm, x, 3)  # its own
"""


def test_what_cannot_be_measured_is_an_error_under_xfail_too(run) -> None:
    result = run(WRONG_CALLS)
    result.assert_outcomes(errors=5, xfailed=1)
    result.stdout.fnmatch_lines(["*CannotMeasureError: * a generator: its body has not run*"])


def test_a_test_that_asks_for_the_fixture_and_profiles_nothing_is_an_error(run) -> None:
    result = run("@pytest.mark.max_kernels(9)\ndef test_it(kernel_profile): pass\n")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*kernel_profile but profiled nothing*"])


def test_the_tests_own_failure_wins_over_a_limit(run) -> None:
    result = run(
        """
@pytest.mark.max_kernels(0)
def test_it(kernel_profile):
    kernel_profile(three)
    assert "mine" == "other"
@pytest.mark.max_kernels(0)
def test_whole():
    three()
    assert "mine" == "other"
"""
    )
    result.assert_outcomes(failed=2)
    result.stdout.no_fnmatch_line("*LimitExceeded*")


def test_a_skip_inside_the_test_stays_a_skip(run) -> None:
    result = run(
        """
@pytest.mark.max_kernels(0)
def test_it(kernel_profile):
    kernel_profile(three)
    pytest.skip("enough")
"""
    )
    result.assert_outcomes(skipped=1)


def test_methods_of_unittest_are_limited_too(run) -> None:
    result = run(
        """
import unittest
class TestIt(unittest.TestCase):
    @pytest.mark.max_kernels(2)
    def test_broken(self):
        three()
    @pytest.mark.max_kernels(3)
    def test_kept(self):
        three()
"""
    )
    result.assert_outcomes(passed=1, failed=1)


def test_the_kernel_table_is_in_the_junit_file(run, pytester: pytest.Pytester) -> None:
    run(
        "@pytest.mark.max_kernels(0)\ndef test_it(kernel_profile): kernel_profile(three)\n",
        "--junitxml=out.xml",
    )
    text = Path(pytester.path / "out.xml").read_text()
    assert "max_kernels: 3 &gt; limit 0" in text
    assert "aten::gelu" in text


def test_an_undecided_time_warns_and_does_not_fail(run, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(
        """
import time
waits = iter([0.0] * 2 + [0.0] * 12 + [0.0, 0.04] * 100)
@pytest.mark.max_latency("20ms")  # a short wait may take long on a busy machine
def test_it(kernel_profile):
    kernel_profile(lambda: time.sleep(next(waits)))
"""
    )
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(["*KernelprofWarning: max_latency: *undecided*"])


def test_an_exception_of_the_measured_code_is_the_tests_own_and_harms_no_other(run) -> None:
    result = run(
        """
def breaks():
    raise ValueError("mine")
def test_call(kernel_profile):
    kernel_profile(breaks)
def test_region(kernel_profile):
    with kernel_profile.region("it"):
        breaks()
@pytest.mark.max_kernels(3)
def test_whole():
    breaks()
@pytest.mark.max_kernels(3)
def test_next(kernel_profile):
    kernel_profile(three)
"""
    )
    result.assert_outcomes(passed=1, failed=3)
    result.stdout.fnmatch_lines(["E *ValueError: mine"])


def test_a_running_profiler_is_an_error_that_names_the_remedy(run) -> None:
    result = run(
        """
def test_inside(kernel_profile):
    with torch.profiler.profile():
        kernel_profile(three)
@pytest.mark.max_kernels(3)
def test_next(kernel_profile):
    kernel_profile(three)
"""
    )
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*a torch profiler is already running*--kernelprof-disable*"])


SUBTESTS = pytest.mark.skipif(
    pytest.version_tuple < (9,), reason="subtests are a part of pytest since version 9"
)


@SUBTESTS
@pytest.mark.parametrize(
    "test",
    [
        """
@pytest.mark.max_kernels(2)
def test_it(kernel_profile, subtests):
    with subtests.test("one"):
        kernel_profile(three)
""",
        """
@pytest.mark.max_kernels(2)
def test_it(subtests):
    with subtests.test("one"):
        three()
""",
        """
import unittest
class TestIt(unittest.TestCase):
    @pytest.mark.max_kernels(2)
    def test_it(self):
        with self.subTest("one"):
            three()
""",
    ],
    ids=["fixture", "whole call", "unittest"],
)
def test_subtests_do_not_make_a_limit_forgotten(run, test: str) -> None:
    result = run(test)
    assert result.ret == 1
    result.stdout.fnmatch_lines(["E   max_kernels: 3 > limit 2*"])


@SUBTESTS
def test_a_failed_subtest_is_reported_beside_the_limit(run) -> None:
    result = run(
        """
@pytest.mark.max_kernels(3)
def test_it(kernel_profile, subtests):
    with subtests.test("one"):
        raise ValueError("mine")
    kernel_profile(three)
"""
    )
    assert result.ret == 1
    result.stdout.fnmatch_lines(["E *ValueError: mine"])
    result.stdout.no_fnmatch_line("*profiled nothing*")


@pytest.mark.parametrize(
    ("body", "outcome"), [("self.fail('mine')", "failed"), ("self.skipTest('mine')", "skipped")]
)
def test_a_unittest_methods_own_outcome_wins_over_a_limit(run, body: str, outcome: str) -> None:
    result = run(
        f"""
import unittest
class TestIt(unittest.TestCase):
    @pytest.mark.max_kernels(2)
    def test_it(self):
        three()
        {body}
"""
    )
    result.assert_outcomes(**{outcome: 1})
    result.stdout.no_fnmatch_line("*limit 2*")


def test_an_incomplete_profile_of_a_unittest_method_is_an_error_under_xfail_too(run) -> None:
    result = run(
        """
import unittest
class TestIt(unittest.TestCase):
    @pytest.mark.xfail
    @pytest.mark.max_latency("1s")
    def test_it(self):
        three()
"""
    )
    result.assert_outcomes(errors=1)


def test_xfail_strict_does_not_hide_an_incomplete_profile_that_it_names(run) -> None:
    result = run(
        """
@pytest.mark.xfail(strict=True, raises=IncompleteProfile)
@pytest.mark.max_latency("1s")
def test_it():
    three()
"""
    )
    result.assert_outcomes(errors=1)


def test_a_test_that_is_not_to_run_is_not_profiled(run) -> None:
    result = run(
        """
@pytest.mark.xfail(run=False)
@pytest.mark.max_kernels(0)
def test_it():
    raise KeyError("ran")
"""
    )
    result.assert_outcomes(xfailed=1)


def test_a_violated_limit_outweighs_a_number_that_could_not_be_had(run) -> None:
    result = run(
        """
@pytest.mark.max_kernels(2)
@pytest.mark.max_latency("1s")
def test_it():
    three()
"""
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E   max_kernels: 3 > limit 2"])


def test_a_limit_is_a_failure_that_users_can_name(run) -> None:
    result = run(
        """
@pytest.mark.xfail(raises=pytest.fail.Exception, strict=True)
@pytest.mark.max_kernels(2)
def test_it():
    three()
"""
    )
    result.assert_outcomes(xfailed=1)


def test_the_failure_shows_no_line_of_the_plugin(run) -> None:
    result = run(
        """
@pytest.mark.max_kernels(2)
def test_it(kernel_profile):
    kernel_profile(three)
""",
        "--tb=long",
    )
    result.stdout.fnmatch_lines(
        ["E   max_kernels: 3 > limit 2", "  at test_it.py:5", "    5 | return F.gelu(x @ x) + 1"]
    )
    result.stdout.no_fnmatch_line("*plugin.py*")


def test_an_error_shows_no_line_of_the_plugin(run) -> None:
    result = run(
        """
@pytest.mark.max_kernels(9)
def test_it():
    with torch.profiler.profile():
        three()
"""
    )
    result.assert_outcomes(errors=1)
    result.stdout.no_fnmatch_line("*plugin.py*")
