"""--kernelprof-against on a GPU: both codes take rounds in turn, and more pairs are asked."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("_minds_who_disturbs_the_gpu")

CODE = """
import torch
MORE = {more}
def copy(x, out):
    rows = int(x.shape[0] * 0.85 * MORE)
    torch.add(x[:rows], 1.0, out=out[:rows])
    return out
"""
TESTS = """
import pytest, torch
from pkg import code

@pytest.fixture
def arguments():
    return [torch.ones(16384, 4096, device="cuda", dtype=torch.half) for _ in range(2)]

@pytest.mark.parametrize("n", range(3))
def test_copy(kernel_profile, arguments, n):
    kernel_profile(code.copy, *arguments)

@pytest.mark.max_cuda_time("1s")
def test_timed_itself(kernel_profile, arguments):
    kernel_profile(code.copy, *arguments)
    kernel_profile(code.copy, *arguments)
"""


@pytest.fixture
def folders(pytester: pytest.Pytester) -> tuple[Path, Path]:
    old, new = pytester.path / "old", pytester.path / "new"
    for place in (old, new):
        for name, text in {
            "pytest.ini": "[pytest]\npythonpath = .\n",
            "pkg/__init__.py": "",
            "pkg/code.py": CODE.format(more=1.0),
            "tests/test_it.py": TESTS,
        }.items():
            path = place / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return old, new


def against(pytester: pytest.Pytester, old: Path, new: Path, *options: str) -> pytest.RunResult:
    pytester.chdir()
    return pytester.run(
        *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:benchmark"),
        *("--rootdir", str(new), "-c", str(new / "pytest.ini"), str(new / "tests")),
        *(f"--kernelprof-against={old}", *options),
    )


@pytest.mark.parametrize("workers", ["-n0", "-n2"])
def test_the_same_code_is_the_same(
    pytester: pytest.Pytester, folders: tuple[Path, Path], workers: str
) -> None:
    result = against(pytester, *folders, workers, "-o", "kernelprof_spread_workers=false")
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines(["*none of 4 tests is worse than old*"])


def test_eight_per_cent_more_work_is_worse(
    pytester: pytest.Pytester, folders: tuple[Path, Path]
) -> None:
    (folders[1] / "pkg/code.py").write_text(CODE.format(more=1.08))
    result = against(pytester, *folders)
    result.assert_outcomes(failed=4)
    result.stdout.fnmatch_lines(
        [
            "E   worse than old: GPU time +[78].* %, margin 5 %*",
            "  mean of 4 interleaved pairs, all beyond the margin; medians *us -> *us",
        ]
    )
    result.stdout.fnmatch_lines(["4 of 4 tests are worse than*"])
