"""The hooks of this plugin: a conftest.py sees each profile, and the run as it ends."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

Run = Callable[..., pytest.RunResult]

TESTS = """
@pytest.mark.max_kernels(1)
def test_broken(kernel_profile):
    kernel_profile(three)
def test_two(kernel_profile):
    kernel_profile(three)
    with kernel_profile.region("mine"):
        x + 1
def test_plain():
    three()
"""

SEES_PROFILES = """
import json
def pytest_kernelprof_profile(item, profile):
    seen = [item.name, profile.label, profile.kernel_count, profile.outcome]
    with open("seen.jsonl", "a") as file:
        file.write(json.dumps(seen) + "\\n")
"""

SEES_THE_RUN = """
import json
def pytest_kernelprof_run(config, run):
    seen = {one.id: [len(p.metrics["latency"].rounds) for p in one.profiles] for one in run.tests}
    with open("seen.json", "x") as file:
        json.dump([seen, list(run.unfinished)], file)
"""


def test_each_profile_is_seen_as_its_test_ends(
    run: Run, pytester: pytest.Pytester, workers: str
) -> None:
    pytester.makeconftest(SEES_PROFILES)
    run(TESTS, workers)
    lines = (pytester.path / "seen.jsonl").read_text().splitlines()
    assert sorted(map(json.loads, lines)) == [
        ["test_broken", "", 3, "failed"],
        ["test_two", "", 3, None],
        ["test_two", "mine", 1, None],
    ]


def test_the_run_is_seen_once_and_whole(run: Run, pytester: pytest.Pytester, workers: str) -> None:
    pytester.makeconftest(SEES_THE_RUN)
    run(TESTS, workers)
    seen, unfinished = json.loads((pytester.path / "seen.json").read_text())
    assert {name: len(profiles) for name, profiles in seen.items()} == {
        "test_it.py::test_broken": 1,
        "test_it.py::test_two": 2,
    }
    assert seen["test_it.py::test_broken"][0] >= 12  # all metrics, whatever the limit needs
    assert unfinished == []


def test_a_run_that_was_ended_is_seen_too(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makeconftest(SEES_THE_RUN)
    run(TESTS + "def test_ends(): pytest.exit('enough')\n", "-p", "no:randomly")
    _, unfinished = json.loads((pytester.path / "seen.json").read_text())
    assert unfinished == ["interrupted: enough"]


def test_a_hook_that_raises_is_an_error_of_its_test_and_no_pass(
    run: Run, pytester: pytest.Pytester
) -> None:
    pytester.makeconftest("def pytest_kernelprof_profile(item, profile): 1 / 0\n")
    result = run("def test_it(kernel_profile): kernel_profile(three)\n")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*a hook pytest_kernelprof_profile raised ZeroDivisionError: *"])


RAISES = "def pytest_kernelprof_profile(item, profile): raise ValueError('of the hook')\n"


def test_what_a_hook_raises_hides_neither_a_failure_nor_a_verdict(
    run: Run, pytester: pytest.Pytester
) -> None:
    pytester.makeconftest(RAISES)
    result = run(
        """
def test_fails_by_itself(kernel_profile):
    kernel_profile(three)
    assert 0, "mine"
@pytest.mark.max_kernels(1)
def test_over(kernel_profile):
    kernel_profile(three)
""",
        "--kernelprof-report",
    )
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines_random(
        [
            "*mine*",
            "E   max_kernels: 3 > limit 1",
            "  at test_it.py:5",
            "    5 | *",
            "a hook pytest_kernelprof_profile raised ValueError: of the hook",
            "2 profiles*",
        ]
    )


@pytest.mark.parametrize(
    "raises",
    ["pytest.skip('odd')", "pytest.xfail('odd')", "pytest.fail('odd')", "raise SystemExit(0)"],
)
def test_an_outcome_that_a_hook_raises_is_none_of_its_test(
    run: Run, pytester: pytest.Pytester, raises: str
) -> None:
    hook = f"import pytest\ndef pytest_kernelprof_profile(item, profile): {raises}\n"
    pytester.makeconftest(hook)
    result = run(
        """
def test_fails_by_itself(kernel_profile):
    kernel_profile(three)
    assert 0, "mine"
@pytest.mark.max_kernels(1)
def test_over(kernel_profile):
    kernel_profile(three)
@pytest.mark.xfail
@pytest.mark.max_kernels(3)
def test_kept(kernel_profile):
    kernel_profile(three)
"""
    )
    result.assert_outcomes(failed=2, errors=1)
    result.stdout.fnmatch_lines_random(
        [
            "*mine*",
            "E   max_kernels: 3 > limit 1",
            "  at test_it.py:5",
            "    5 | *",
            "*a hook pytest_kernelprof_profile raised *: *",
        ]
    )


def test_what_a_hook_raises_is_no_failure_that_a_test_expects(
    run: Run, pytester: pytest.Pytester
) -> None:
    pytester.makeconftest(RAISES)
    code = "@pytest.mark.xfail(strict=True)\ndef test_it(kernel_profile): kernel_profile(three)\n"
    run(code).assert_outcomes(errors=1)


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("raise ValueError('odd')", "ValueError: odd"),
        ("pytest.fail('odd')", "Failed: odd"),
        ("pytest.skip('odd')", "Skipped: odd"),
    ],
)
def test_a_reader_of_the_run_that_raises_fails_the_run_and_loses_no_document(
    run: Run, pytester: pytest.Pytester, statement: str, words: str
) -> None:
    hook = f"import pytest\ndef pytest_kernelprof_run(config, run): {statement}\n"
    pytester.makeconftest(hook)
    result = run("def test_it(): pass\n", "--kernelprof-json=run.json")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [f"kernelprof: a hook pytest_kernelprof_run raised {words}", "*1 passed*"]
    )
    assert (pytester.path / "run.json").exists()
