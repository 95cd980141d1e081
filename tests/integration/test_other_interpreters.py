"""xdist's own way to other machines, with two interpreters of this one: what their tests take comes
home."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

pytest.importorskip("xdist")

CODE = """
import os, sys, pytest, torch
@pytest.mark.max_kernels(1)
@pytest.mark.parametrize("number", range(4))
def test_it(kernel_profile, number):
    kernel_profile(torch.add, torch.ones(4), number)
@pytest.mark.max_kernels(1)
def test_over(kernel_profile):
    kernel_profile(lambda x: (x + 1) * 2, torch.ones(4))
"""


def test_reports_documents_and_snapshots_come_home(
    pytester: pytest.Pytester, python: str, tmp_path: Path
) -> None:
    other = tmp_path / "other" / "python"
    other.parent.mkdir()
    shutil.copy(python, other)
    pytester.makepyfile(test_it=CODE)
    result = pytester.runpytest_inprocess(
        *("-p", "no:cacheprovider", "--dist=load"),
        *(f"--tx=popen//python={python}", f"--tx=popen//python={other}"),
        *("--kernelprof-device=cpu", "--kernelprof-report", "--kernelprof-json=run.json"),
        "--kernelprof-update",
    )
    result.assert_outcomes(passed=4, failed=1)
    result.stdout.fnmatch_lines(["1 of 5 tests breaks a limit*", "5 profiles*"])
    tests = json.loads((pytester.path / "run.json").read_text())["tests"]
    assert len(tests) == 5
    (kept,) = pytester.path.glob("__kernelprof__/*/*.json")
    entries = json.loads(kept.read_text())["tests"]
    assert sorted(entries) == [f"test_it[{number}]" for number in range(4)]
