"""The option --kernelprof-against-python without a revision: the same code runs in another
environment, too, whose packages have other versions."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from on_workers import two_workers

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
from environments import CODE, NEW, OLD, TESTS, Environments
from repositories import Repository, everything

from pytest_kernelprof.baselines import supervisor

OTHER_TORCH = OLD + "import torch; torch.__version__ = '2.9.1'"


def entered(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, python: str
) -> Environments:
    found = Environments(tmp_path_factory.mktemp("environments"), monkeypatch, python)
    found.make("new", "1.1", NEW)
    found.enter("new")
    return found


@pytest.fixture
def usual_environments(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Environments:
    """The run is in the environment "new"."""
    return entered(tmp_path_factory, monkeypatch, sys.executable)


@pytest.fixture
def environments(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, python: str
) -> Environments:
    """The same, and all interpreters have loaded torch already, which is most of their time."""
    return entered(tmp_path_factory, monkeypatch, python)


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Repository:
    made = Repository(pytester.path)
    made.commit({"pkg/__init__.py": "", "pkg/mlp.py": CODE, "tests/test_mlp.py": TESTS})
    made.commit({"pytest.ini": "[pytest]\npythonpath = .\naddopts = -k 'not excluded'"})
    monkeypatch.setenv("COLUMNS", "160")
    return made


@pytest.fixture(autouse=True)
def place(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary folder of this test's runs, and of nobody else's."""
    folder = tmp_path_factory.mktemp("place")
    monkeypatch.setattr(supervisor, "make_folder", partial(supervisor.make_folder, str(folder)))
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


Run = Callable[..., pytest.RunResult]


@pytest.fixture
def against(pytester: pytest.Pytester) -> Run:
    def run(python: str, *options: str) -> pytest.RunResult:
        usual = ("-p", "no:cacheprovider", "-p", "no:benchmark", "--kernelprof-device=cpu")
        option = f"--kernelprof-against-python={python}"
        return pytester.runpytest_inprocess(*usual, option, *options)

    return run


def section(result: pytest.RunResult) -> list[str]:
    """The lines of the section, its heading first, without their padding."""
    lines = [" ".join(line.split()) for line in result.outlines]
    return lines[next(i for i, line in enumerate(lines) if "kernel profiles" in line) :]


def comparisons(path: Path) -> dict[str, dict[str, object]]:
    """How each test compares, by its name, of a run document."""
    tests = json.loads(path.read_text())["tests"]
    return {
        test["id"].rpartition("::")[2]: verdict["comparison"]
        for test in tests
        for profile in test["profiles"]
        for verdict in profile["verdicts"]
        if verdict.get("comparison")
    }


def test_a_test_that_is_worse_than_in_another_environment_fails(
    against: Run,
    project: Repository,
    usual_environments: Environments,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    old, before = usual_environments.make("old", "1.0", OLD), everything(project.folder / "pkg")
    result = against(old, "--kernelprof-json=run.json")
    result.assert_outcomes(failed=1, passed=3)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    # Failed on the count, with the line of the package that has changed.
    result.stdout.fnmatch_lines([f"E   worse than {old}: operators 2 -> 3*"])
    lines = section(result)
    assert lines[0].strip("= ") == f"kernel profiles against {old} (fastops 1.0 -> 1.1)"
    assert lines[1] == f"1 of 4 tests is worse than {old} (fastops 1.0 -> 1.1)."
    assert "✗ fastops.py:3: added operator: aten::mul (test_grows)" in lines
    told = " ".join(" ".join(result.outlines).split())
    assert f"--kernelprof-against-python={old}" in told  # the command to try again
    # No snapshot accepts what another environment has, so none is advised.
    assert "if intended, run with --kernelprof-warn-only (all tests only warn)" in told
    assert "--kernelprof-update" not in result.stdout.str()
    found = comparisons(project.folder / "run.json")
    assert {name: one.get("change", "same") for name, one in found.items()} == {
        "test_grows": "worse",
        "test_shrinks": "better",
        "test_stays": "same",
        "test_only_of_the_test": "same",
    }
    assert {one["source"] for one in found.values()} == {"environment"}
    # The code stays where it is, and nothing is left of the other side.
    assert everything(project.folder / "pkg") == before
    assert not [*place.glob("kernelprof-against-*")]


def test_the_same_packages_at_another_place_are_no_worse(
    run_apart: Run, project: Repository, environments: Environments, python: str
) -> None:
    """With workers of pytest-xdist, each of which has its own other side."""
    option = f"--kernelprof-against-python={environments.make('copy', '1.1', NEW)}"
    usual = ("-p", "no:benchmark", "--kernelprof-device=cpu")
    result = run_apart(*usual, option, *two_workers(python))
    result.assert_outcomes(passed=4)
    heading, sentence = section(result)[:2]
    assert "(the same versions of all packages)" in heading
    assert sentence.startswith("None of 4 tests is worse than ")


def test_with_another_torch_all_is_judged_and_with_a_revision_nothing(
    against: Run, project: Repository, environments: Environments
) -> None:
    old = environments.make("old", "1.0", OTHER_TORCH)
    result = against(old, "-k", "grows")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*worse than *: operators 2 -> 3*", "*test_grows: other software: torch 2.9.1 -> *"]
    )
    result = against(old, "-k", "grows", "--kernelprof-against=HEAD")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "*No test could be compared with HEAD (*",
            "*kernels differ, and so does the software: torch 2.9.1 -> *",
            f"*code and environment ({old}) differ: fastops 1.0 -> 1.1",
        ]
    )


def test_the_command_to_compare_again_names_the_revision_and_the_environment(
    against: Run, project: Repository, environments: Environments
) -> None:
    old = environments.make("old", "1.0", OLD)
    options = ("-k", "grows", "--kernelprof-against=HEAD")
    for more in ((), ("--tb=no",)):
        result = against(old, *options, *more)
        result.assert_outcomes(failed=1)
        told = " ".join(" ".join(result.outlines).replace("\\", "").split())
        command = f"--kernelprof-against=HEAD --kernelprof-against-python={old}"
        assert re.search(
            rf" rerun against HEAD: pytest \S*test_grows( --kernelprof-device=cpu)? {command}", told
        )


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import nothing_of_this_name", "No module named 'nothing_of_this_name'"),
        ("import os; os._exit(3)", "the reference died while it was starting"),
    ],
    ids=["lacks a package", "dies"],
)
def test_a_test_that_cannot_run_there_is_not_compared_and_no_pass(
    against: Run, project: Repository, environments: Environments, code: str, why: str
) -> None:
    result = against(environments.make("old", "1.0", code), "-k", "stays")
    result.assert_outcomes(passed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    told = " ".join(section(result))
    assert "No test could be compared with " in told
    assert "the baseline cannot run it: " in told
    assert why in told


def test_another_copy_of_the_code_in_that_environment_is_told(
    against: Run,
    project: Repository,
    environments: Environments,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The question is what the packages change, not what older code of the user's does."""
    old = environments.make("old", "1.0", OLD)
    stale = Path(old).parent / "pkg"
    stale.mkdir()
    (stale / "__init__.py").write_text("OLDER = True")
    (stale / "mlp.py").write_text(CODE.replace("x @ x", "x"))
    project.write({"pytest.ini": "[pytest]"})
    # As PYTHONPATH does, in the words of its user.
    monkeypatch.syspath_prepend(f"{project.folder}/../{project.folder.name}")
    result = against(old, "-k", "stays")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    told = " ".join(section(result))
    assert "is not your code's pkg/__init__.py: install your code in that environment" in told


def test_with_warn_only_it_warns(
    against: Run, project: Repository, environments: Environments
) -> None:
    old = environments.make("old", "1.0", OLD)
    result = against(old, "--kernelprof-warn-only", "-k", "grows")
    result.assert_outcomes(passed=1, deselected=3, warnings=result.parseoutcomes()["warnings"])
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines([f"*worse than {old}: operators 2 -> 3*"])


THIS = f'exec {sys.executable} "$@"'
NO_PLUGIN = f'exec {sys.executable} -I -S "$@"'


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (THIS, "runs these tests already, with the same packages: give the python of another *"),
        (NO_PLUGIN, "has no pytest: */python -m pip install pytest pytest-kernelprof*"),
        ("echo 1", "does not run as a Python (status 0: it gave no answer)"),
        ("echo bad >&2; exit 3", "does not run as a Python (status 3: bad)"),
    ],
    ids=["this one", "without the plugin", "no Python", "fails"],
)
def test_what_is_no_other_environment_is_a_usage_error_before_any_test(
    against: Run, project: Repository, usual_environments: Environments, script: str, words: str
) -> None:
    result = against(usual_environments.script("odd", script))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: --kernelprof-against-python: */odd/python {words}"])
    assert "collected" not in result.stdout.str()


def test_an_environment_that_cannot_load_the_plugin_is_a_usage_error(
    against: Run, project: Repository, environments: Environments
) -> None:
    old = environments.make("old", "1.0", OLD, msgspec="raise ImportError('too old')")
    result = against(old)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["ERROR: * cannot load pytest-kernelprof (ImportError: too old); install it there with *"]
    )


def test_an_environment_that_is_not_there_or_nothing_measured_is_a_usage_error(
    against: Run, project: Repository, environments: Environments
) -> None:
    result = against("nowhere/bin/python")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: *'nowhere/bin/python' is not a program: give the python*"])
    result = against(environments.make("old", "1.0", OLD), "--kernelprof-disable")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --kernelprof-against-python: *--kernelprof-disable*"])


HIDES = """
from importlib.metadata import Distribution
discover = Distribution.discover
def others(**given):
    return (one for one in discover(**given) if one.name not in ("pytest-cov", "pytest_cov"))
Distribution.discover = others
"""


def test_plugins_of_pytest_that_the_environment_lacks(
    run_apart: Run,
    project: Repository,
    environments: Environments,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Our own option for a plugin is left out; one of the user's is told."""
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:randomly")
    old = environments.make("old", "1.0", OLD, sitecustomize=HIDES)
    usual = ("-k", "stays", "--kernelprof-device=cpu", f"--kernelprof-against-python={old}")
    result = run_apart(*usual)
    result.stdout.fnmatch_lines(["plugins: *cov-*", "None of 1 test is worse than *pytest-cov*"])
    assert result.ret == pytest.ExitCode.OK
    result = run_apart(*usual, "--cov-context=test")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    told = " ".join(section(result))
    assert "(status 4; does its environment lack a plugin of pytest?)" in told
    assert "unrecognized arguments: --cov-context=test" in told
