"""``.item()`` and ``if tensor`` on the CPU: shown as waits on a GPU, compared with a baseline."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

import pytest

from pytest_kernelprof.cli.main import main

Run = Callable[..., pytest.RunResult]

CLEAN = """
def model(x):
    y = x @ x
    return y + 1
def test_model(kernel_profile):
    kernel_profile(model, x)
"""
PLANTED = CLEAN.replace("    return", "    y[0, 0].item()\n    return")
TWO = CLEAN.replace("    return", "    y[0, 0].item()\n    if y.any(): y = y * 2\n    return")


def test_each_is_counted_and_shown_in_the_row_and_the_document(
    run: Run, pytester: pytest.Pytester
) -> None:
    result = run(TWO, "--kernelprof-report", "--kernelprof-json=run.json")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*operators  would wait*", "*4*2*test_model*"])
    document = json.loads((pytester.path / "run.json").read_text())
    (profile,) = document["tests"][0]["profiles"]
    assert profile["metrics"]["would_wait"]["value"] == 2
    assert document["metrics"]["would_wait"] == {"kind": "exact", "unit": "count"}


def test_code_that_reads_no_value_would_not_wait(run: Run, pytester: pytest.Pytester) -> None:
    result = run(CLEAN, "--kernelprof-report", "--kernelprof-json=run.json")
    result.stdout.no_fnmatch_line("*would wait*")
    document = json.loads((pytester.path / "run.json").read_text())
    assert document["tests"][0]["profiles"][0]["metrics"]["would_wait"]["value"] == 0


def test_a_failure_tells_it_and_max_syncs_stays_not_judged(run: Run) -> None:
    limits = "@pytest.mark.max_syncs(0)\n@pytest.mark.max_kernels(1)\ndef test_model"
    result = run(PLANTED.replace("def test_model", limits))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "E   max_kernels: 2 > limit 1",
            "  not judged: max_syncs: not applicable on the CPU",
            "  *; would wait on a*",
        ]
    )


def test_show_tells_it_of_a_trace(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    run(TWO, "--kernelprof-trace-dir=traces").assert_outcomes(passed=1)
    capsys.readouterr()
    assert main(["show", "traces/test_it.py-test_model-1.json.gz"]) == 0
    assert "would wait on a GPU 2 times (.item(), if tensor)" in capsys.readouterr().out


def test_a_snapshot_fails_by_it(run: Run, pytester: pytest.Pytester) -> None:
    run(CLEAN, "--kernelprof-update").assert_outcomes(passed=1)
    run(CLEAN).assert_outcomes(passed=1)
    result = run(PLANTED, "--kernelprof-markdown=report.md")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "E   snapshot: would_wait 0 -> 1",
            "  #  would wait in              line          called by",
            "  1  aten::_local_scalar_dense  test_it.py:9  aten::item",
        ]
    )
    assert "would_wait" in (pytester.path / "report.md").read_text()


def test_a_run_document_as_baseline_fails_by_it(run: Run) -> None:
    run(CLEAN, "--kernelprof-json=run.json").assert_outcomes(passed=1)
    run(CLEAN, "--kernelprof-against=run.json").assert_outcomes(passed=1)
    result = run(PLANTED, "--kernelprof-against=run.json")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E   worse than the earlier run: would_wait 0 -> 1*"])


@pytest.mark.usefixtures("quick_references")
def test_a_revision_as_baseline_fails_by_it(run: Run, pytester: pytest.Pytester) -> None:
    head = "def model(x):\n    y = x @ x\n"
    for code in ("    return y + 1\n", "    y[0, 0].item()\n    return y + 1\n"):
        pytester.makepyfile(model=head + code)
        if "item" not in code:
            for command in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-qm", "one"]):
                given = ["-c", "user.name=a", "-c", "user.email=a@example.com", *command]
                subprocess.run(["git", *given], cwd=pytester.path, check=True)
    pytester.makeini("[pytest]\npythonpath = .")
    test = "def test_model(kernel_profile):\n    kernel_profile(model, x)\n"
    result = run(
        f"from model import model\n{test}",
        *("-p", "no:benchmark", "--kernelprof-against=main", "--kernelprof-markdown=report.md"),
        "-v",
    )
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        ["1 of 1 test is worse than main*", "*would wait*test*", "*0 -> 1*test_model*"]
    )
    assert "would_wait" in (pytester.path / "report.md").read_text()
