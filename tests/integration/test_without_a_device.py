"""On a machine without a CUDA device a marker takes nothing away: tests run, limits wait."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from pytest_kernelprof.baselines.run_documents import read_run

Run = Callable[..., pytest.RunResult]

pytestmark = pytest.mark.usefixtures("no_gpu")

RUN = """
ran = []
def once(n=1):
    ran.append(1)
    return n + 1
@pytest.fixture(autouse=True)
def forget(): ran.clear()
@pytest.mark.max_kernels(0)
def test_fixture(kernel_profile):
    assert kernel_profile(once, 6) == 7 and ran == [1]
@pytest.mark.max_kernels(0)
def test_whole_call(): once()
class TestCase(__import__("unittest").TestCase):
    @pytest.mark.max_kernels(0)
    def test_it(self): self.assertEqual(once(), 2)
def test_limit_at_run_time(kernel_profile):
    kernel_profile.limit(max_kernels=0)
    kernel_profile(once)
    assert ran == [1]
def test_region(kernel_profile):
    with kernel_profile.region("it", max_syncs=0): once()
    assert ran == [1]
def test_comparison(kernel_profile):
    assert kernel_profile.compare(once, lambda n: once(n), 1).min_speedup(100).not_slower()
    assert ran == [1, 1]
@pytest.mark.min_speedup(100, over=once)
def test_promise(kernel_profile):
    assert kernel_profile(once) == 2 and ran == [1]
@pytest.mark.max_kernels(0)
def test_that_never_calls(kernel_profile): pass
@pytest.mark.max_kernels(0)
def test_late(request): request.getfixturevalue("kernel_profile")(once)
def test_late_marker(request):
    request.node.add_marker(pytest.mark.max_kernels(0))
"""


def test_marked_tests_run_and_their_limits_are_not_judged(run: Run, workers: str) -> None:
    files = ("--kernelprof-json=run.json", "--kernelprof-report", "--junitxml=junit.xml")
    result = run(RUN, workers, *files, device=None)
    result.assert_outcomes(passed=10)
    result.stdout.fnmatch_lines(["0 of 10 tests are within their limits; 10 not judged (no CUDA*"])
    tests = {one.id.partition("::")[2]: one for one in read_run("run.json").tests}
    assert {one.not_judged for one in tests.values()} == {"no CUDA device"}
    assert tests["test_region"].limits == ("max_syncs",)
    assert tests["test_limit_at_run_time"].limits == ("max_kernels",)
    assert tests["test_comparison"].limits == ("min_speedup", "not_slower")
    cases = ElementTree.parse("junit.xml").iter("testcase")
    told = [
        one.attrib["value"]
        for case in cases
        for one in case.iter("property")
        if one.attrib["name"] == "kernelprof.verdict"
    ]
    assert told == ["not judged"] * 10


def test_a_run_without_a_report_says_so_in_one_line(run: Run) -> None:
    result = run(RUN, device=None)
    result.stdout.fnmatch_lines(["kernelprof: *; 10 not judged (no CUDA device)*"])


def test_the_report_of_all_rows_names_each_test_and_the_reason(run: Run) -> None:
    result = run(RUN, "--kernelprof-report", "-v", device=None)
    told = ("not judged: no CUDA device", "test_it.py", "– test_fixture", "– test_whole_call")
    result.stdout.fnmatch_lines(told, consecutive=True)


LOOKS = """
def test_it(kernel_profile):
    kernel_profile(three)
    {look}
    raise KeyError("the line of the skip was passed")
"""


@pytest.mark.parametrize(
    "look",
    [
        "kernel_profile.last",
        "kernel_profile.profiles",
        "kernel_profile.compare(three, three).speedup",
        "kernel_profile.compare_all({'a': three, 'b': three}, reference='a')['b'].pairs",
        "with kernel_profile.region('it') as region: pass\n    region.profile",
    ],
)
def test_a_test_is_skipped_at_the_line_that_looks_at_a_number(run: Run, look: str) -> None:
    result = run(LOOKS.format(look=look), device=None)
    result.assert_outcomes(skipped=1)
    line = 9 + look.count("\n")
    result.stdout.fnmatch_lines(
        [f"SKIPPED * test_it.py:{line}: no CUDA device: *; there is no * to look at"]
    )


def test_what_failed_before_stands(run: Run) -> None:
    code = "def test_it(kernel_profile):\n    assert kernel_profile(three) is None\n"
    result = run(code + "    kernel_profile.last\n", device=None)
    result.assert_outcomes(failed=1)


NEEDS_CUDA = """
@pytest.mark.max_kernels(1)
def test_it():
    raise RuntimeError({words!r})
@pytest.fixture
def weights(): raise RuntimeError({words!r})
@pytest.mark.max_kernels(1)
def test_fixture(weights): pass
"""
HINT = '*mark it @pytest.mark.kernelprof(device="cuda"), or set the ini key kernelprof_device = *'


@pytest.mark.parametrize(
    "words",
    [
        "Torch not compiled with CUDA enabled",
        "Found no NVIDIA driver on your system.",
        "No CUDA GPUs are available",
        "0 active drivers ([]). There should only be one.",
    ],
)
def test_a_failure_for_want_of_cuda_stays_one_and_says_how_to_skip(run: Run, words: str) -> None:
    result = run(NEEDS_CUDA.format(words=words), device=None)
    result.assert_outcomes(failed=1, errors=1)
    result.stdout.fnmatch_lines([HINT, HINT])


def test_another_failure_has_no_such_hint(run: Run) -> None:
    result = run(NEEDS_CUDA.format(words="the shapes differ"), device=None)
    result.assert_outcomes(failed=1, errors=1)
    result.stdout.no_fnmatch_line(HINT)


EXPECTED = """
@pytest.mark.xfail(strict={strict})
@pytest.mark.max_kernels(0)
def test_whole_call(): three()
@pytest.mark.xfail(strict={strict})
@pytest.mark.max_kernels(0)
def test_fixture(kernel_profile): kernel_profile(three)
@pytest.mark.xfail(strict={strict})
def test_region(kernel_profile):
    with kernel_profile.region("it", max_kernels=0): three()
@pytest.mark.xfail(strict={strict})
@pytest.mark.max_kernels(0)
def test_that_fails(): raise KeyError("as expected")
@pytest.mark.xfail(False, reason="elsewhere", strict={strict})
@pytest.mark.max_kernels(0)
def test_not_expected_to_fail_here(): three()
@pytest.mark.xfail(strict={strict})
def test_without_a_limit(kernel_profile): kernel_profile(three); raise KeyError("as expected")
"""


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(
    ("option", "why"),
    [((), "no CUDA device"), (("--kernelprof-disable",), "--kernelprof-disable")],
    ids=["no device", "disabled"],
)
def test_a_test_that_is_expected_to_fail_and_passes_is_skipped(
    run: Run, strict: bool, option: tuple[str, ...], why: str
) -> None:
    result = run(EXPECTED.format(strict=strict), *option, device=None)
    result.assert_outcomes(skipped=3, xfailed=2, passed=1)
    words = f"not judged: {why}; the test is marked xfail, and its body passed"
    result.stdout.fnmatch_lines([f"SKIPPED * test_it.py:*: {words}"] * 3)


def test_a_required_gpu_is_an_error_of_the_set_up_which_xfail_does_not_swallow(run: Run) -> None:
    result = run(EXPECTED.format(strict=True), "--kernelprof-require-gpu", device=None)
    result.assert_outcomes(errors=6)


def test_snapshots_are_not_judged_and_none_is_made(run: Run) -> None:
    code = "def test_it(kernel_profile): kernel_profile(three)\n"
    run(code, "--kernelprof-update", device=None).assert_outcomes(passed=1)
    assert [one.name for one in Path().iterdir() if one.suffix != ".py"] == []
