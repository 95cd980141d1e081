"""How pytest is called for the reference."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_kernelprof.against.invocation import arguments_for, environment_for, of_the_tree
from pytest_kernelprof.against.mapping import Mapping


def test_arguments_lead_into_the_tree(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]")
    root = str(pytester.path)
    config = pytester.parseconfig(f"{root}/tests", "-k", "one", f"--confcutdir={root}")
    found = arguments_for(config, Mapping(root, "/t"))
    assert {"--rootdir=/t", "--config-file=/t/tox.ini", "/t/tests"} < set(found)
    assert ("--no-cov" in found) == config.pluginmanager.hasplugin("pytest_cov")
    assert "--confcutdir=/t" in found
    assert not any(root in argument for argument in found if "basetemp" not in argument)


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
    found = environment_for(given, Mapping(str(tmp_path), "/f/tree"), "/s", 1)
    assert found == {
        "PYTEST_XDIST_WORKER": "gw91",
        "PYTEST_ADDOPTS": "--ignore=/f/tree/old",
        "HOME": "/home/me",
        "TORCH_EXTENSIONS_DIR": os.path.join("/s", "extensions"),
        "GIT_CEILING_DIRECTORIES": "/f",
    }


def test_another_interpreter_is_the_one_of_its_environment() -> None:
    given = {"PATH": "/usr/bin", "VIRTUAL_ENV": "/mine", "PYTHONHOME": "/mine"}
    found = of_the_tree(given, Mapping("/r", "/f/tree"), "/env/bin/python")
    assert found == {"PATH": f"/env/bin{os.pathsep}/usr/bin", "GIT_CEILING_DIRECTORIES": "/f"}
