"""The jobs of docs/ci.md: their commands as they stand, but for the device, on a clone."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import jsonschema
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
from repositories import Repository

from pytest_kernelprof.cli.main import main

RunApart = Callable[..., pytest.RunResult]

PAGE = (Path(__file__).parents[2] / "docs" / "ci.md").read_text()
STEPS = re.findall(r"^ *(?:- )?(?:run: )?(?=pytest |kernelprof |test !)(.*)$", PAGE, re.MULTILINE)
PYTEST_STEPS = [shlex.split(step)[1:] for step in STEPS if step.startswith("pytest ")]
FILES = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
ON_GITHUB = [file for file in FILES if file.startswith("on:")]
# By what each question is asked: steps that ask the same differ in where they are run.
AGAINST, SNAPSHOTS = "--kernelprof-against", "--kernelprof-require-snapshots"
TELLS = ("--kernelprof-github", "--kernelprof-markdown", "--kernelprof-json", "--junitxml")
WHERE = ("--kernelprof-device=cpu", "--kernelprof-require-gpu")


def those_with(option: str) -> list[list[str]]:
    return [step for step in PYTEST_STEPS if option in " ".join(step)]


def asked(step: list[str]) -> list[str]:
    """What a step asks, but for where it runs and how it tells."""
    return [one for one in step if not one.startswith((*TELLS, *WHERE))]


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


def test_every_file_runs_pytest_and_one_job_compares_documents() -> None:
    assert all("pytest --kernelprof" in file for file in FILES)
    assert sum("kernelprof compare" in step for step in STEPS) == 1


@pytest.mark.parametrize("file", FILES)
def test_every_file_is_as_its_system_says(file: str) -> None:
    """By the schemas that SchemaStore publishes of GitHub's workflows, and GitLab of its own."""
    name = "github-workflows" if file in ON_GITHUB else "gitlab-ci"
    found = find_spec("check_jsonschema")
    if found is None or found.origin is None:
        pytest.skip("needs check-jsonschema, which has the schemas")
    yaml = pytest.importorskip("ruamel.yaml")
    folder = Path(found.origin).parent / "builtin_schemas" / "vendor"
    schema = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    read = yaml.YAML(typ="safe", pure=True).load(file)
    jsonschema.Draft7Validator(schema).validate(read)
    with pytest.raises(jsonschema.ValidationError):  # which says no, too
        jsonschema.Draft7Validator(schema).validate({**read, "jobs": 5, "variables": 5})


def jobs_on_github() -> list[list[dict[str, str]]]:
    """The steps of each job."""
    yaml = pytest.importorskip("ruamel.yaml").YAML(typ="safe", pure=True)
    return [job["steps"] for file in ON_GITHUB for job in yaml.load(file)["jobs"].values()]


def test_every_job_chooses_its_python_before_it_installs_anything() -> None:
    for steps in jobs_on_github():
        used = [step.get("uses", step.get("run", "")).partition("@")[0] for step in steps]
        assert used[:2] == ["actions/checkout", "actions/setup-python"]
        assert used[2].startswith("pip install")


def commands_of_jobs() -> list[list[str]]:
    """What each job runs in a shell, on GitHub and on GitLab."""
    yaml = pytest.importorskip("ruamel.yaml").YAML(typ="safe", pure=True)
    (gitlab,) = (yaml.load(file) for file in FILES if file not in ON_GITHUB)
    on_gitlab = [job["script"] for job in gitlab.values() if "script" in job]
    return [[step["run"] for step in job if "run" in step] for job in jobs_on_github()] + on_gitlab


def test_a_job_for_the_cpu_takes_torch_from_pytorchs_own_index_before_anything_else() -> None:
    of_the_cpu = [job for job in commands_of_jobs() if "--kernelprof-device=cpu" in " ".join(job)]
    assert len(of_the_cpu) == 3
    for torch, package, _ in of_the_cpu:
        assert torch.startswith("pip install 'torch==")
        assert torch.endswith(" --index-url https://download.pytorch.org/whl/cpu")
        assert package == "pip install -e '.[test]'"


def test_documents_are_compared_and_kept_also_where_a_test_failed() -> None:
    after = [
        step
        for steps in jobs_on_github()
        for step in steps
        if "kernelprof compare" in step.get("run", "") or "upload" in step.get("uses", "")
    ]
    assert len(after) == 3
    assert [step.get("if") for step in after] == ["always()"] * 3


def test_every_option_is_one(pytester: pytest.Pytester) -> None:
    for step in PYTEST_STEPS:
        pytester.parseconfig(*step)


def test_a_pull_request_that_launches_more_fails(
    project: Repository, run_apart: RunApart, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, *others = those_with(AGAINST)
    base = "--kernelprof-against=$CI_MERGE_REQUEST_DIFF_BASE_SHA"
    assert [asked(one) for one in others] == [asked(first), [base], [base]]
    summary = project.folder.parent / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    project.commit({"mlp.py": GROWN})
    result = run_apart(*on_the_cpu(first), *(one for one in others[1] if one.startswith(TELLS)))
    result.stdout.fnmatch_lines(["*1 of 1 test is worse than merge-base:origin/main*"])
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    for told in (summary, project.folder / "kernels.md"):
        assert told.read_text().startswith("### ❌ kernelprof: 1 of 1 test is worse than ")
        assert "\n\n| | what is wrong | to do |\n" in told.read_text()
    assert "operators 2 -&gt; 3" in (project.folder / "junit.xml").read_text()


@pytest.mark.usefixtures("project")
def test_snapshots_are_required_once_they_are_written(run_apart: RunApart) -> None:
    step, of_two_models = those_with(SNAPSHOTS)
    assert asked(of_two_models) == asked(step)
    assert run_apart(*step, "--kernelprof-all").ret == pytest.ExitCode.TESTS_FAILED
    (update,) = re.findall(r"^pytest (.*--kernelprof-update)$", PAGE, re.MULTILINE)
    assert run_apart(*update.split()).ret == pytest.ExitCode.OK
    assert run_apart(*step).ret == pytest.ExitCode.OK


def test_a_night_is_compared_with_the_last_also_where_a_test_failed(
    project: Repository, run_apart: RunApart, capsys: pytest.CaptureFixture[str]
) -> None:
    (step,) = (step for step in those_with("--kernelprof-json=run.json") if not asked(step))
    assert run_apart(*on_the_cpu(step)).ret == pytest.ExitCode.OK
    (project.folder / "run.json").rename("last-night.json")
    project.commit({"mlp.py": GROWN, "test_broken.py": "def test_broken(): assert False"})
    assert run_apart(*on_the_cpu(step)).ret == pytest.ExitCode.TESTS_FAILED
    (compare,) = (step for step in STEPS if "kernelprof compare" in step)
    command = compare.partition("kernelprof compare ")[2].partition(" >>")[0]
    assert main(["compare", *shlex.split(command)]) == 1
    assert "earlier run: operators 2 → 3" in capsys.readouterr().out
