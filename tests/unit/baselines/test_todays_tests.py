"""What lies over the revision's code: today's tests, and generated files, copied or made."""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path

import pytest
from repositories import Repository

from pytest_kernelprof.baselines import supervisor
from pytest_kernelprof.baselines.revision import (
    NotPreparedError,
    changed,
    copy_generated,
    is_test,
    lay_over,
    prepare,
)

IS_TEST = partial(is_test, patterns=("test_*.py", "*_test.py"), ini="pyproject.toml")


@pytest.mark.parametrize(
    ("path", "is_test"),
    [
        ("test_mlp.py", True),
        ("pkg/mlp_test.py", True),
        ("pkg/conftest.py", True),
        ("tests/helpers.py", True),
        ("pkg/tests/data/x.json", True),
        ("tests/__kernelprof__/cpu/test_mlp.json", False),
        ("gpu_tests/util.py", True),
        ("pyproject.toml", True),
        ("pkg/mlp.py", False),
        ("pkg/testing/compare.py", False),
        ("pytest_thing/hooks.py", False),
        ("latest/mlp.py", False),
        ("sub/pyproject.toml", False),
        ("test_notes.md", False),
    ],
)
def test_what_is_a_test_is_told_by_its_name(path: str, is_test: bool) -> None:
    assert IS_TEST(path) == is_test


def test_patterns_with_folders_are_those_of_paths() -> None:
    assert is_test("checks/mlp.py", ["checks/*.py"])
    assert not is_test("mlp.py", ["checks/*.py"])


def test_an_environment_that_git_does_not_ignore_is_left_out(tmp_path: Path) -> None:
    made = Repository(tmp_path / "root")
    made.write({".venv/pyvenv.cfg": "", ".venv/lib/x/tests/test_x.py": "", "tests/test_a.py": ""})
    (tmp_path / "tree").mkdir()
    laid = lay_over(IS_TEST, str(made.folder), str(tmp_path / "tree"))
    assert laid == ("tests/test_a.py",)


@pytest.mark.parametrize("with_git", [True, False])
def test_bytecode_is_not_laid_over(tmp_path: Path, with_git: bool) -> None:
    root, tree = tmp_path / "root", tmp_path / "tree"
    files = {"tests/test_a.py": "", "tests/__pycache__/test_a.cpython-311.pyc": ""}
    Repository(root).write(files) if with_git else write(root, files)
    write(root / "tests" / "submodule", {"a.py": "", "__pycache__/a.cpython-311.pyc": ""})
    if with_git:
        Repository(root / "tests" / "submodule").commit({"b.py": ""})
    tree.mkdir()
    lay_over(IS_TEST, str(root), str(tree))
    assert {path.name for path in tree.rglob("*.py")} >= {"test_a.py", "a.py"}
    assert not list(tree.rglob("*.pyc"))


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.mark.parametrize("with_git", [True, False])
def test_todays_tests_replace_the_revisions(tmp_path: Path, with_git: bool) -> None:
    root, tree = tmp_path / "root", tmp_path / "tree"
    root.mkdir()
    if with_git:
        Repository(root)
        (root / ".gitignore").write_text("ignored.py\n")
    for folder, files in (
        (root, {"tests/test_new.py": "today", "tests/util.py": "today", "pkg/mlp.py": "today"}),
        (tree, {"tests/test_old.py": "old", "tests/util.py": "old", "pkg/mlp.py": "old"}),
    ):
        write(folder, files)
    (root / "tests" / "ignored.py").touch()
    laid = lay_over(IS_TEST, str(root), str(tree))
    expected = {"pkg/mlp.py": "old", "tests/test_new.py": "today", "tests/util.py": "today"}
    if not with_git:
        expected["tests/ignored.py"] = ""
    found = {str(p.relative_to(tree)): p.read_text() for p in tree.rglob("*") if p.is_file()}
    assert found == expected
    assert set(laid) == set(expected) - {"pkg/mlp.py"}


def test_only_tests_that_differ_are_told_as_changed(tmp_path: Path) -> None:
    root, tree = tmp_path / "root", tmp_path / "tree"
    write(root, {"test_new.py": "today", "test_same.py": "same", "test_other.py": "today"})
    write(tree, {"test_gone.py": "old", "test_same.py": "same", "test_other.py": "older"})
    laid = lay_over(IS_TEST, str(root), str(tree))
    assert changed(laid, str(tree)) == ("test_other.py",)


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
    assert notes == ("kernelprof_against_copy: *.so matches no file",)
    held = {path.name: path.read_text() for path in tree.rglob("*.py")}
    assert held == {"_version.py": "today", "new.py": "the revision's"}


def test_bytecode_of_todays_code_is_not_copied(repository: Repository) -> None:
    repository.write({"src/a/__pycache__/mlp.cpython-311.pyc": "made of today's mlp.py"})
    root, tree = str(repository.folder), str(repository.folder.parent / "tree")
    copied, notes = copy_generated(("src/**", "src/**/*.pyc"), root, root, tree)
    assert copied == ("src/a/_version.py", "src/a/new.py")
    assert notes == ("kernelprof_against_copy: src/**/*.pyc matches no file",)


def test_patterns_are_relative_to_the_root_folder_of_pytest(repository: Repository) -> None:
    tree = repository.folder.parent / "tree"
    root = repository.folder
    copied, _ = copy_generated(("*/_version.py",), str(root / "src"), str(root), str(tree))
    assert copied == ("src/a/_version.py",)


@pytest.fixture
def folder(tmp_path: Path) -> supervisor.Folder:
    return supervisor.make_folder(str(tmp_path))


def run(command: str, folder: supervisor.Folder, timeout_s: float = 60) -> None:
    prepare(command, str(folder.tree), str(folder.path), os.environ, timeout_s)


def test_a_command_runs_in_the_tree(folder: supervisor.Folder) -> None:
    run("echo made > file && test -t 0 || true", folder)
    assert (folder.tree / "file").read_text() == "made\n"


def test_its_failure_is_told_with_its_last_lines(folder: supervisor.Folder) -> None:
    with pytest.raises(NotPreparedError) as told:
        run("seq 100; echo broken >&2; exit 3", folder)
    first, *lines = str(told.value).splitlines()
    assert first == "'seq 100; echo broken >&2; exit 3' ended with status 3"
    assert [line.strip() for line in lines] == [*map(str, range(92, 101)), "broken"]


def test_one_that_takes_too_long_is_ended_with_all_that_it_started(
    folder: supervisor.Folder,
) -> None:
    mark = folder.tree / "mark"
    with pytest.raises(NotPreparedError, match=r"took more than 0\.5 s"):
        run("(while true; do touch mark; sleep 0.01; done) & wait", folder, 0.5)
    mark.unlink(missing_ok=True)
    time.sleep(0.1)
    assert not mark.exists()
