"""A run is green only if each test was judged: crashes, skips and tests that never ran count."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_kernelprof.baselines.run_documents import read_run
from pytest_kernelprof.summary.run import summary_of

Run = Callable[..., pytest.RunResult]

FIVE = """
@pytest.mark.max_kernels(3)
def test_passes(kernel_profile): kernel_profile(three)
@pytest.mark.max_kernels(3)
def test_crashes(kernel_profile): raise RuntimeError("no such file")
@pytest.mark.max_kernels(3)
def test_crashes_later(kernel_profile): raise KeyError("mine")
@pytest.mark.max_kernels("three")
def test_bad_marker(kernel_profile): kernel_profile(three)
@pytest.mark.max_kernels(3)
def test_measures_nothing(kernel_profile): pass
"""
REPORTS = (
    *("--kernelprof-report", "--kernelprof-json=run.json", "--kernelprof-html=run.html"),
    *("--kernelprof-markdown=run.md", "--junitxml=junit.xml"),
)


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")


def headline(result: pytest.RunResult) -> str:
    """The first line of the terminal's report."""
    lines = result.outlines
    begin = next(at for at, line in enumerate(lines) if " kernel profiles " in line)
    return lines[begin + 1]


def test_tests_without_a_profile_are_counted_in_each_format(run: Run, workers: str) -> None:
    result = run(FIVE, workers, *REPORTS)
    result.assert_outcomes(passed=1, failed=2, errors=2)
    sentence = "2 of 5 tests failed, 2 errors"
    assert headline(result).startswith(sentence)
    assert Path("run.md").read_text().startswith(f"### ❌ kernelprof: {sentence}")
    html = Path("run.html").read_text()
    assert "<h1>2 of 5 tests failed, 2 errors" in html
    assert "RuntimeError: no such file" in html
    found = read_run("run.json")
    assert sorted((one.id.partition("::")[2], one.outcome) for one in found.tests) == [
        ("test_bad_marker", "error"),
        ("test_crashes", "failed"),
        ("test_crashes_later", "failed"),
        ("test_measures_nothing", "error"),
        ("test_passes", "passed"),
    ]
    assert summary_of(found).overall == "failed"


def test_tests_without_a_profile_say_what_ended_them(run: Run) -> None:
    result = run(FIVE, *REPORTS)
    result.stdout.fnmatch_lines(
        [
            "✗ test_it.py:*: RuntimeError: no such file (test_crashes)",
            "✗ test_it.py:*: KeyError: 'mine' (test_crashes_later)",
            "! test_it.py:*: MarkerError: *",
            "! test_it.py:*: the test asks for kernel_profile but *",
        ]
    )
    rows = [line for line in Path("run.md").read_text().splitlines() if line[:5] == "| ❌ |"]
    assert len(rows) == 4
    assert rows[0] == (
        "| ❌ | **RuntimeError: no such file** in `test_crashes`<br>`test_it.py:10` |  |"
    )


def test_junit_says_how_tests_without_a_profile_fared(run: Run, workers: str) -> None:
    run(FIVE, workers, *REPORTS)
    assert properties("junit.xml") == {
        "test_passes": "passed",
        "test_crashes": "failed otherwise",
        "test_crashes_later": "failed otherwise",
        "test_bad_marker": "error",
        "test_measures_nothing": "incomplete",
    }


def test_junit_says_over_of_a_test_that_exceeds_a_limit_and_fails_by_itself(run: Run) -> None:
    run(
        """
@pytest.mark.max_kernels(2)
def test_both(kernel_profile):
    kernel_profile(three)
    raise KeyError("mine")
""",
        *REPORTS,
    )
    assert properties("junit.xml") == {"test_both": "failed"}
    assert Path("run.md").read_text().startswith("### ❌ kernelprof: 1 of 1 test breaks a limit")


def properties(path: str) -> dict[str, str]:
    """The verdict of each test in a JUnit file."""
    return {
        case.attrib["name"]: one.attrib["value"]
        for case in ElementTree.parse(path).iter("testcase")
        for one in case.iter("property")
        if one.attrib["name"] == "kernelprof.verdict"
    }


MOSTLY_SKIPPED = """
@pytest.mark.max_kernels(3)
@pytest.mark.kernelprof(device="cpu")
def test_judged(kernel_profile): kernel_profile(three)
@pytest.mark.max_kernels(1)
@pytest.mark.kernelprof(device="cuda")
@pytest.mark.parametrize("n", range(4))
def test_needs_a_gpu(kernel_profile, n): kernel_profile(three)
"""


def test_tests_that_no_gpu_judged_are_in_the_first_line_of_each_format(
    run: Run, no_gpu: None
) -> None:
    result = run(MOSTLY_SKIPPED, *REPORTS, "--kernelprof-github", device=None)
    result.assert_outcomes(passed=1, skipped=4)
    assert result.ret == 0
    sentence = "1 of 5 tests is within its limits; 4 not judged (no CUDA device)"
    assert headline(result).startswith(sentence)
    assert Path("run.md").read_text().startswith(f"### kernelprof: {sentence}")
    assert f"<h1>{sentence}" in Path("run.html").read_text()
    result.stdout.fnmatch_lines(["::notice title=*%3A not judged::4 not judged (no CUDA device)"])
    suite = ElementTree.parse("junit.xml").find(".//testsuite/properties/property")
    assert suite is not None
    assert suite.attrib["name"] == "kernelprof.not_judged"
    assert suite.attrib["value"] == "4 not judged (no CUDA device)"
    assert summary_of(read_run("run.json")).overall == "not judged"


@pytest.mark.parametrize(
    ("options", "told"), [((), True), (("-q",), True), (("-qq",), False)], ids=["", "-q", "-qq"]
)
def test_each_run_says_how_many_tests_were_not_judged(
    run: Run, no_gpu: None, options: tuple[str, ...], told: bool
) -> None:
    result = run(MOSTLY_SKIPPED, *options, device=None)
    lines = [line for line in result.outlines if line.startswith("kernelprof: ")]
    assert any("4 not judged (no CUDA device)" in line for line in lines) is told


def test_tests_that_a_run_never_reached_are_not_judged(run: Run) -> None:
    result = run(FIVE, "-x", "--kernelprof-report")
    assert headline(result).startswith("1 of 5 tests failed; 3 not judged (did not run)")


def test_a_test_that_kills_its_worker_is_counted(
    pytester: pytest.Pytester, python: str, run_apart: Run
) -> None:
    pytest.importorskip("xdist")
    pytester.makepyfile(
        test_it="""
import os, pytest
from torch import ones
def three(): return ones(2) + ones(2)
@pytest.mark.max_kernels(3)
def test_passes(kernel_profile): kernel_profile(three)
@pytest.mark.max_kernels(3)
def test_dies(kernel_profile): os._exit(3)
"""
    )
    worker = (f"--tx=1*popen//python={python}", "--dist=load", "--max-worker-restart=1")
    result = run_apart(*worker, "--kernelprof-device=cpu", "--kernelprof-report")
    assert headline(result).startswith("1 error")
    result.stdout.fnmatch_lines(["! *: worker 'gw*' crashed while running*"])


def test_the_users_own_skips_and_expected_failures_leave_a_run_green(run: Run) -> None:
    run(
        """
@pytest.mark.max_kernels(3)
def test_passes(kernel_profile): kernel_profile(three)
@pytest.mark.max_kernels(3)
@pytest.mark.skip
def test_skips(kernel_profile): kernel_profile(three)
@pytest.mark.max_kernels(2)
@pytest.mark.xfail
def test_expected(kernel_profile): kernel_profile(three)
""",
        "--kernelprof-markdown=run.md",
    )
    told = "1 of 1 test is within its limits; 1 expected failure, 1 skipped"
    assert Path("run.md").read_text().startswith(f"### ✅ kernelprof: {told}")


def test_the_last_attempt_of_a_test_counts(run: Run) -> None:
    pytest.importorskip("pytest_rerunfailures")
    run(
        """
tries = []
@pytest.mark.max_kernels(3)
def test_flaky(kernel_profile):
    tries.append(1)
    assert len(tries) > 1
    kernel_profile(three)
""",
        *("-p", "rerunfailures", "--reruns=1", "--kernelprof-markdown=run.md"),
    )
    assert (
        Path("run.md").read_text().startswith("### ✅ kernelprof: 1 of 1 test is within its limits")
    )


@pytest.mark.parametrize("option", ["--kernelprof-disable", "--setup-only"])
def test_a_run_that_measures_nothing_is_never_green(run: Run, option: str) -> None:
    run(MOSTLY_SKIPPED, option, "--kernelprof-markdown=run.md")
    heading = Path("run.md").read_text().splitlines()[0]
    assert "✅" not in heading
    assert "5 not judged" in heading


COMPARES = """
def test_compares(kernel_profile):
    kernel_profile.compare(three, three).min_speedup(1000)
"""


def test_a_failed_comparison_is_told_in_each_format(run: Run) -> None:
    result = run(COMPARES, *REPORTS)
    result.assert_outcomes(failed=1)
    assert properties("junit.xml") == {"test_compares": "failed"}
    html = Path("run.html").read_text()
    looks = html[html.index("What needs a look") : html.index("callables measured in turn")]
    assert "test_compares" in looks
    assert "min_speedup(1000)" in looks
    assert Path("run.md").read_text().startswith("### ❌ kernelprof: 1 of 1 test breaks a limit")
