"""The jobs of docs/ci.md: their commands as they stand, but for the device, on a clone."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
from repositories import Repository

from pytest_kernelprof.cli.main import main

RunApart = Callable[..., pytest.RunResult]

PAGE = (Path(__file__).parents[2] / "docs" / "ci.md").read_text()
STEPS = re.findall(r"^ *- run: (.*)$", PAGE, re.MULTILINE)
PYTEST_STEPS = [shlex.split(step)[1:] for step in STEPS if step.startswith("pytest ")]

INI = "[pytest]\npythonpath = .\n"
CODE = "import torch\ndef f(x): return torch.relu(x @ x)\n"
GROWN = "import torch\ndef f(x): return torch.relu(x @ x) * 2\n"
TESTS = """
import torch, mlp
def test_f(kernel_profile, kernelprof_device):
    kernel_profile(mlp.f, torch.ones(8, 8, device=kernelprof_device))
"""


def on_the_cpu(step: list[str]) -> list[str]:
    """A step's arguments, where there is no GPU that could be required."""
    given = [one for one in step if one != "--kernelprof-require-gpu"]
    return given if "--kernelprof-device=cpu" in given else [*given, "--kernelprof-device=cpu"]


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """A clone with origin/main, on a branch of its own, as a pull request's job has it."""
    origin = Repository(pytester.path / "origin")
    origin.commit({"pytest.ini": INI, "mlp.py": CODE, "test_it.py": TESTS})
    origin.git("clone", "--quiet", ".", str(pytester.path / "clone"))
    clone = Repository(pytester.path / "clone")
    clone.git("switch", "--quiet", "--create=branch")
    clone.commit({"notes.md": "what is new"})
    monkeypatch.chdir(clone.folder)
    return clone


def test_every_job_runs_pytest_and_one_compares_documents() -> None:
    assert len(PYTEST_STEPS) == PAGE.count("```yaml")
    assert sum("kernelprof compare" in step for step in STEPS) == 1


def test_a_pull_request_that_launches_more_fails(project: Repository, run_apart: RunApart) -> None:
    steps = [step for step in PYTEST_STEPS if "--kernelprof-against" in " ".join(step)]
    with_gpu, without = (sorted(on_the_cpu(step)) for step in steps)
    assert with_gpu == without  # but for the device, so that one run shows both
    project.commit({"mlp.py": GROWN})
    result = run_apart(*without)
    result.stdout.fnmatch_lines(["against merge-base:origin/main (*): 1 compared, 1 worse"])
    assert result.ret == pytest.ExitCode.TESTS_FAILED


@pytest.mark.usefixtures("project")
def test_snapshots_are_required_once_they_are_written(run_apart: RunApart) -> None:
    (step,) = (step for step in PYTEST_STEPS if "--kernelprof-require-snapshots" in step)
    assert run_apart(*step, "--kernelprof-all").ret == pytest.ExitCode.TESTS_FAILED
    (update,) = re.findall(r"^pytest (.*--kernelprof-update)$", PAGE, re.MULTILINE)
    assert run_apart(*update.split()).ret == pytest.ExitCode.OK
    assert run_apart(*step).ret == pytest.ExitCode.OK


def test_a_night_is_compared_with_the_last(
    project: Repository, run_apart: RunApart, capsys: pytest.CaptureFixture[str]
) -> None:
    (step,) = (step for step in PYTEST_STEPS if "--kernelprof-json=run.json" in step)
    assert run_apart(*on_the_cpu(step)).ret == pytest.ExitCode.OK
    (project.folder / "run.json").rename("last-night.json")
    project.commit({"mlp.py": GROWN})
    assert run_apart(*on_the_cpu(step)).ret == pytest.ExitCode.OK
    (compare,) = (step for step in STEPS if "kernelprof compare" in step)
    command = compare.partition("kernelprof compare ")[2].partition(" >>")[0]
    assert main(["compare", *shlex.split(command)]) == 1
    assert "| kernels" in capsys.readouterr().out
