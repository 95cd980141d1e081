"""The projects under docs/adopting run as they stand, and fail where they should."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ADOPTING = ROOT / "docs" / "adopting"
QUOTED = re.compile(r"<!-- from: (\S+) -->\n```py\n(.*?)```", re.DOTALL)


class Project:
    """A copy of one, whose files may be changed."""

    def __init__(self, pytester: pytest.Pytester, python: str, name: str) -> None:
        self.pytester, self.python = pytester, python
        shutil.copytree(ADOPTING / name, pytester.path, dirs_exist_ok=True)

    def change(self, file: str, old: str, new: str) -> None:
        path = self.pytester.path / file
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    def run(self, *options: str) -> pytest.RunResult:
        code = f"import sys, pytest; sys.exit(pytest.main({['-p', 'no:cacheprovider', *options]}))"
        return self.pytester.run(self.python, "-c", code)


def test_of_a_kernel_library_the_interpreter_checks_results(pytester: pytest.Pytester) -> None:
    # Triton reads TRITON_INTERPRET as it is imported, so the process is a new one.
    project = Project(pytester, sys.executable, "kernel_library")
    project.change("rms_norm.py", "value * scale * w", "value * scale * (w if WIDTH == 64 else 1)")
    result = project.run()
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*1 not judged (no CUDA device)*"])


def test_a_model_that_launches_more_fails_its_mixin(pytester: pytest.Pytester, python: str) -> None:
    project = Project(pytester, python, "model_library")
    project.run().assert_outcomes(passed=3)
    project.change("models.py", "self.down(", "self.down(1.0 * ")
    result = project.run()
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        ["E   max_kernels: 6 > limit 5", "  at models.py:18", "    18 | return self.down(1.0 [*] *"]
    )


def test_a_step_of_a_worker_that_launches_more_fails(
    pytester: pytest.Pytester, python: str
) -> None:
    project = Project(pytester, python, "inference_engine")
    project.run("test_worker.py").assert_outcomes(passed=1)
    project.change("engine.py", "@ self.weight)", "@ self.weight) + 1")
    result = project.run("test_worker.py")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E   max_kernels: 3 > limit 2*", "*aten::add*"])


def test_a_fusion_that_did_not_happen_in_one_step_fails_that_step(
    pytester: pytest.Pytester, python: str
) -> None:
    project = Project(pytester, python, "inference_engine")
    project.run("test_fusions.py").assert_outcomes(passed=2)
    trace = pytester.path / "engine.pt.trace.json"
    before, _, after = trace.read_text().rpartition("act_and_mul_quant_kernel")
    trace.write_text(f"{before}act_and_mul_kernel{after}")
    result = project.run("test_fusions.py")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*test_each_step_runs_the_fused_kernels[[]4]*"])
    result.stdout.fnmatch_lines(["E   *kernel 7: expected 'act_and_mul_quant'*"])


def test_a_benchmark_suite_writes_times_for_trackers_and_keeps_its_limit(
    pytester: pytest.Pytester, python: str
) -> None:
    pytest.importorskip("pytest_benchmark")
    project = Project(pytester, python, "benchmark_suite")
    project.run("-p", "benchmark").assert_outcomes(passed=2)
    found = json.loads((pytester.path / "times.json").read_text())["benchmarks"]
    assert [one["name"] for one in found] == ["test_attention[16]", "test_attention[64]"]
    assert all(0 < one["stats"]["median"] < 1 for one in found)
    project.change("attention.py", "dim=-1) @ v", "dim=-1) @ (v * 1)")
    project.run("-p", "benchmark").assert_outcomes(failed=2)


@pytest.mark.parametrize(("file", "code"), QUOTED.findall((ADOPTING / "index.md").read_text()))
def test_the_page_shows_what_the_files_have(file: str, code: str) -> None:
    assert code in (ADOPTING / file).read_text()


def test_the_page_shows_lines_of_each_project() -> None:
    shown = {
        file.partition("/")[0] for file, _ in QUOTED.findall((ADOPTING / "index.md").read_text())
    }
    assert shown == {path.name for path in ADOPTING.iterdir() if path.is_dir()}
