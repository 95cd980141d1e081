"""--kernelprof-against-python on a GPU: the same code takes turns in two environments, whose Triton
kernel has another name or does more."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
from environments import Environments

pytestmark = pytest.mark.usefixtures("_minds_who_disturbs_the_gpu")

OPS = """
import triton
import triton.language as tl

@triton.jit
def {name}(x, out, loops):
    at = tl.program_id(0) * 0 + tl.arange(0, 1024)
    value = tl.load(x + at)
    for _ in range(loops):
        value = value * 1.0001 + 0.0001
    tl.store(out + at, value)

def spin(x, out):
    {name}[(264,)](x, out, {loops})
    return out
"""
TESTS = """
import fastops, torch
x, out = torch.ones(1024, device="cuda"), torch.empty(1024, device="cuda")
def test_spin(kernel_profile): kernel_profile(fastops.spin, x, out)
def test_add(kernel_profile): kernel_profile(torch.add, x, 1.0, out=out)
"""
LOOPS = 12_000
BASELINE = OPS.format(name="older_spin", loops=LOOPS)


def against(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, new: str
) -> pytest.RunResult:
    """Run the tests with this package, against an environment with the older one."""
    pytester.makefile(".ini", pytest="[pytest]")
    pytester.makepyfile(test_it=TESTS)
    made = Environments(tmp_path, monkeypatch)
    old = made.make("old", "1.0", BASELINE)
    python = made.make("new", "1.1", new)
    monkeypatch.setenv("COLUMNS", "200")
    result = pytester.run(
        *(python, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:benchmark", "-v"),
        f"--kernelprof-against-python={os.path.relpath(old, pytester.path)}",
    )
    print("\n".join(result.outlines))
    return result


def test_the_same_work_under_another_name_is_renamed_and_no_worse(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    new = OPS.format(name="spin_kernel", loops=LOOPS)
    result = against(pytester, monkeypatch, tmp_path, new)
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["*one of 2 tests is worse than *(fastops 1.0 -> 1.1)*"])
    result.stdout.fnmatch_lines(["*another variant*older_spin*"])


def test_a_slower_kernel_of_a_package_is_named_with_its_size(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    new = OPS.format(name="older_spin", loops=int(LOOPS * 1.12))
    result = against(pytester, monkeypatch, tmp_path, new)
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(["E   worse than *: GPU time +1[0-4].* %, margin 5 %*"])
    result.stdout.fnmatch_lines(["*slower: older_spin*"])
