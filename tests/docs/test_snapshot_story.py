"""What the page on kernel snapshots quotes of one that no longer holds is what is printed."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
from repositories import Repository

ROOT = Path(__file__).parents[2]
TEST = """import torch
from reference_mlp import GatedMLP

def test_geglu(kernel_profile):
    mlp = GatedMLP(64, 256)
    kernel_profile(mlp, torch.ones(32, 64))
"""
PAGE = (ROOT / "docs" / "how-to" / "kernel-snapshots.md").read_text()
QUOTED = dict(re.findall(r"<!-- printed: (\w+) -->\n```\n(.*?)```", PAGE, re.DOTALL))
LOOSER = "looser: test_geglu::test_geglu: kernels 5 -> 6"
(REMEDY,) = re.findall(r"^    pytest .* --kernelprof-update .*$", PAGE, re.MULTILINE)


def told(text: str) -> list[str]:
    """Lines without their times, and without the spaces between cells, which these make more."""
    timed = (re.sub(r"^( +[+-]? *\d+) +[\d.]+ ", r"\1 us ", line) for line in text.splitlines())
    return [" ".join(re.sub(r"CPU us|GPU us", "us", line).split()) for line in timed]


def test_the_failure_and_the_change_of_the_file_are_printed_so(pytester: pytest.Pytester) -> None:
    changed = ("self.down(gate * self.up(x))", "self.down(gate * self.up(x) * 2)")
    assert changed[1] in PAGE
    assert LOOSER in PAGE
    repository, module = Repository(pytester.path), pytester.path / "reference_mlp.py"
    shutil.copy(ROOT / "example_project" / "reference_mlp.py", module)
    pytester.makeini("[pytest]\npythonpath = .")
    pytester.makepyfile(test_geglu=TEST)
    usual = ("-p", "no:cacheprovider", "--kernelprof-device=cpu")
    pytester.runpytest_inprocess(*usual, "--kernelprof-update").assert_outcomes(passed=1)
    repository.commit({})
    old = module.read_text()
    module.write_text(old.replace(*changed))
    assert module.read_text() != old
    failed = pytester.runpytest_inprocess(*usual)
    failed.assert_outcomes(failed=1)
    assert REMEDY in failed.outlines
    lines = told(str(failed.stdout))
    start = lines.index("E snapshot: operators 5 -> 6")
    expected = told(QUOTED["failure"])
    assert lines[start : start + len(expected)] == expected
    updated = pytester.runpytest_inprocess(*usual, "--kernelprof-update")
    updated.stdout.fnmatch_lines([LOOSER])
    diff = repository.git("diff", "--no-color", "--", "__kernelprof__")
    assert diff.splitlines()[5:] == QUOTED["diff"].splitlines()  # after its five lines of places
