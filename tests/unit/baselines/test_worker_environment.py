"""How pytest is called for the reference, and by which Python."""

from __future__ import annotations

import os
import sys
from importlib import metadata
from pathlib import Path

import pytest

from pytest_kernelprof.baselines import worker
from pytest_kernelprof.baselines.import_redirect import Mapping
from pytest_kernelprof.baselines.worker import (
    NotUsableError,
    arguments_for,
    interpreter_at,
    of_the_tree,
)


def test_arguments_lead_into_the_tree(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]")
    root = str(pytester.path)
    config = pytester.parseconfig(f"{root}/tests", "-k", "one", f"--confcutdir={root}")
    found = arguments_for(config, Mapping(root, "/t"))
    assert {"--rootdir=/t", "--config-file=/t/tox.ini", "/t/tests"} < set(found)
    assert ("--no-cov" in found) == config.pluginmanager.hasplugin("pytest_cov")
    assert "--confcutdir=/t" in found
    assert not any(root in argument for argument in found if "basetemp" not in argument)


def test_where_coverage_is_on_it_is_off_in_the_tree(pytester: pytest.Pytester) -> None:
    config = pytester.parseconfig()
    mapping = Mapping(str(pytester.path), "/t")
    assert "--no-cov" not in arguments_for(config, mapping)
    config.pluginmanager.register(object(), "_cov")
    assert "--no-cov" in arguments_for(config, mapping)


def test_variables_of_workers_and_coverage_are_not_inherited(tmp_path: Path) -> None:
    given = {
        "COVERAGE_PROCESS_START": "x",
        "COV_CORE_SOURCE": "x",
        "PYTEST_XDIST_WORKER": "gw1",
        "PYTEST_ADDOPTS": f"--ignore={tmp_path}/old",
        "HOME": "/home/me",
        # As in a hook of git commit -a: what asks git in the tree would write the user's index.
        "GIT_DIR": ".git",
        "GIT_INDEX_FILE": ".git/next-index-1.lock",
    }
    found = of_the_tree(given, Mapping(str(tmp_path), "/f/tree"))
    assert found == {
        "PYTEST_XDIST_WORKER": "gw1",
        "PYTEST_ADDOPTS": "--ignore=/f/tree/old",
        "HOME": "/home/me",
        "GIT_CEILING_DIRECTORIES": "/f",
    }


def test_another_interpreter_is_the_one_of_its_environment() -> None:
    given = {"PATH": "/usr/bin", "VIRTUAL_ENV": "/mine", "PYTHONHOME": "/mine"}
    found = of_the_tree(given, Mapping("/r", "/f/tree"), "/env/bin/python")
    assert found == {"PATH": f"/env/bin{os.pathsep}/usr/bin", "GIT_CEILING_DIRECTORIES": "/f"}


OURS = metadata.version("pytest-kernelprof")


def program(folder: Path, text: str) -> str:
    """A program that says this."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n/bin/cat <<'END'\n{text}\nEND\n")
    path.chmod(0o755)
    return str(path)


def about(prefix: str, **found: str) -> str:
    given = {"pytest": "9.2.0", "pytest-kernelprof": OURS, **found}
    told = ", ".join(f'"{name}": "{version}"' for name, version in given.items())
    return f'{{"prefix": "{prefix}", "python": "3.11.7", "found": {{{told}}}}}'


def test_that_of_another_environment_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = program(tmp_path, about("/another"))
    assert interpreter_at(python, "/") == python
    assert interpreter_at("./python", str(tmp_path)) == python
    monkeypatch.setenv("PATH", str(tmp_path))
    assert interpreter_at("python", "/") == python


def test_our_own_is_no_other() -> None:
    assert interpreter_at(sys.executable, "/") == ""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (about("/x", pytest=""), "/python has no pytest: .*/python -m pip install pytest pytest-"),
        (about("/x", **{"pytest-kernelprof": ""}), "/python has no pytest-kernelprof: "),
        (about("/x", **{"pytest-kernelprof": "0.0.1"}), f"0.0.1, and this run {OURS}; both "),
        ("Usage: cat", r"does not run as a Python \(status 0: it gave no answer\)"),
    ],
)
def test_what_cannot_be_used_is_told_in_a_line_with_the_remedy(
    tmp_path: Path, text: str, words: str
) -> None:
    with pytest.raises(NotUsableError, match=words) as told:
        interpreter_at(program(tmp_path, text), "/")
    assert "\n" not in str(told.value)


def test_what_is_no_program_or_hangs_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "text").touch()
    for given in ("./text", "./none", "./", "no-such-python-anywhere"):
        with pytest.raises(NotUsableError, match="is not a program: give the python of"):
            interpreter_at(given, str(tmp_path))
    (tmp_path / "broken").write_text("")
    (tmp_path / "broken").chmod(0o755)
    with pytest.raises(NotUsableError, match="cannot be run"):
        interpreter_at("./broken", str(tmp_path))
    (tmp_path / "slow").write_text("#!/bin/sh\nexec sleep 60\n")
    (tmp_path / "slow").chmod(0o755)
    monkeypatch.setattr(worker, "_PATIENCE_S", 0.1)
    with pytest.raises(NotUsableError, match="gave no answer in 0 s"):
        interpreter_at("./slow", str(tmp_path))
