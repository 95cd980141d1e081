"""Generated files: copied beside a revision's, or made there by a command."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from repositories import Repository

from pytest_kernelprof.against import folders
from pytest_kernelprof.against.generated import NotPreparedError, copy_generated, prepare


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    made = Repository(tmp_path / "root")
    made.commit({".gitignore": "_version.py\n", "src/a/__init__.py": ""})
    made.write({"src/a/_version.py": "today", "src/a/new.py": "not ignored"})
    made.write({"src/a/added.py": ""})
    made.git("add", "src/a/added.py")
    (tmp_path / "tree" / "src" / "a").mkdir(parents=True)
    return made


def test_what_git_does_not_track_and_the_tree_lacks_is_copied(repository: Repository) -> None:
    tree = repository.folder.parent / "tree"
    (tree / "src" / "a" / "new.py").write_text("the revision's")
    root = str(repository.folder)
    patterns = ("src/*/_version.py", "**/*.py", "*.so")
    copied, notes = copy_generated(patterns, root, root, str(tree))
    assert copied == ("src/a/_version.py",)
    assert notes == ("kernelprof_against_copy: *.so is no file here",)
    held = {path.name: path.read_text() for path in tree.rglob("*.py")}
    assert held == {"_version.py": "today", "new.py": "the revision's"}


def test_bytecode_of_todays_code_is_not_copied(repository: Repository) -> None:
    repository.write({"src/a/__pycache__/mlp.cpython-311.pyc": "made of today's mlp.py"})
    root, tree = str(repository.folder), str(repository.folder.parent / "tree")
    copied, notes = copy_generated(("src/**", "src/**/*.pyc"), root, root, tree)
    assert copied == ("src/a/_version.py", "src/a/new.py")
    assert notes == ("kernelprof_against_copy: src/**/*.pyc is no file here",)


def test_patterns_are_relative_to_the_root_folder_of_pytest(repository: Repository) -> None:
    tree = repository.folder.parent / "tree"
    root = repository.folder
    copied, _ = copy_generated(("*/_version.py",), str(root / "src"), str(root), str(tree))
    assert copied == ("src/a/_version.py",)


@pytest.fixture
def folder(tmp_path: Path) -> folders.Folder:
    return folders.make(str(tmp_path))


def run(command: str, folder: folders.Folder, timeout_s: float = 60) -> None:
    prepare(command, str(folder.tree), str(folder.path), os.environ, timeout_s)


def test_a_command_runs_in_the_tree(folder: folders.Folder) -> None:
    run("echo made > file && test -t 0 || true", folder)
    assert (folder.tree / "file").read_text() == "made\n"


def test_its_failure_is_told_with_its_last_lines(folder: folders.Folder) -> None:
    with pytest.raises(NotPreparedError) as told:
        run("seq 100; echo broken >&2; exit 3", folder)
    first, *lines = str(told.value).splitlines()
    assert first == "'seq 100; echo broken >&2; exit 3' ended with status 3"
    assert [line.strip() for line in lines] == [*map(str, range(92, 101)), "broken"]


def test_one_that_takes_too_long_is_ended_with_all_that_it_started(
    folder: folders.Folder,
) -> None:
    mark = folder.tree / "mark"
    with pytest.raises(NotPreparedError, match=r"took more than 0\.5 s"):
        run("(while true; do touch mark; sleep 0.01; done) & wait", folder, 0.5)
    mark.unlink(missing_ok=True)
    time.sleep(0.1)
    assert not mark.exists()
