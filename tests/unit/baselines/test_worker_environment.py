"""How pytest is called for the reference, and by which Python."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from importlib import metadata
from pathlib import Path

import pytest

from pytest_kernelprof.baselines import worker
from pytest_kernelprof.baselines.import_redirect import Mapping
from pytest_kernelprof.baselines.worker import (
    Interpreter,
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


@pytest.fixture(scope="module")
def ourselves() -> object:
    """What this Python says of itself, which takes a process that loads the plugin."""
    return worker._asked(sys.executable, sys.executable)


@pytest.fixture
def asked_before(ourselves: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """This Python has said what it has."""
    asked = worker._asked

    def known(program: str, given: str) -> object:
        return ourselves if program == sys.executable else asked(program, given)

    monkeypatch.setattr(worker, "_asked", known)


def program(folder: Path, text: str) -> str:
    """A program that says this."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n/bin/cat <<'END'\n{text}\nEND\n")
    path.chmod(0o755)
    return str(path)


def about(prefix: str, problem: str = "", **found: str) -> str:
    given = {"pytest": "9.2.0", "pytest-kernelprof": OURS, **found}
    found = {name: version for name, version in given.items() if version}
    return json.dumps({"home": prefix, "path": ["/x"], "found": found, "problem": problem})


@pytest.mark.usefixtures("asked_before")
def test_that_of_another_environment_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = program(tmp_path, about("/another"))
    assert interpreter_at(python, "/").program == python
    assert interpreter_at("./python", str(tmp_path)).program == python
    monkeypatch.setenv("PATH", str(tmp_path))
    assert interpreter_at("python", "/").program == python


def test_our_own_is_no_other() -> None:
    assert interpreter_at(sys.executable, "/") == Interpreter("", ())


@pytest.mark.usefixtures("asked_before")
def test_versions_of_python_and_packages_that_differ_are_told_the_important_first(
    tmp_path: Path,
) -> None:
    versions = {"torch": "2.0.0", "aardvark": "1.0", "numpy": "0.1", "python": "3.9.1"}
    found = interpreter_at(program(tmp_path, f"a banner\n{about('/x', **versions)}"), "/")
    words = [one.words for one in found.differences]
    assert words[0] == f"python 3.9.1 -> {platform.python_version()}"
    assert words[1].startswith("torch 2.0.0 -> ")
    (of_both,) = (at for at, one in enumerate(words) if one.startswith("numpy 0.1 -> "))
    assert of_both < words.index("aardvark 1.0 -> none")
    assert not any(one.startswith("pytest-kernelprof ") for one in words)


@pytest.mark.usefixtures("asked_before")
def test_what_an_environment_prints_when_it_starts_is_no_answer(tmp_path: Path) -> None:
    for text in ("1", "[]", '{"home": 1}'):
        with pytest.raises(NotUsableError, match="does not run as a Python"):
            interpreter_at(program(tmp_path, text), "/")


@pytest.mark.usefixtures("asked_before")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        (about("/x", pytest=""), "/python has no pytest: .*/python -m pip install pytest pytest-"),
        (about("/x", **{"pytest-kernelprof": ""}), "/python has no pytest-kernelprof: "),
        (about("/x", problem="ModuleNotFoundError: No module named 'msgspec'"), "'msgspec'.; inst"),
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
    left = tmp_path / "left"  # a process that the program has started
    (tmp_path / "slow").write_text(f"#!/bin/sh\nsleep 60 &\necho $! > {left}\nwait\n")
    (tmp_path / "slow").chmod(0o755)
    monkeypatch.setattr(worker, "_PATIENCE_S", 1.0)
    with pytest.raises(NotUsableError, match="gave no answer in 1 s: give the python of an"):
        interpreter_at("./slow", str(tmp_path))
    # Who adopts it may not have waited for it yet: then it is a zombie.
    state, late = Path(f"/proc/{left.read_text().strip()}/stat"), time.monotonic() + 10
    while state.exists() and state.read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < late
        time.sleep(0.01)
