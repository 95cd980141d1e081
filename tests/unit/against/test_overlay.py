"""Today's tests lie over the revision's code."""

from __future__ import annotations

from pathlib import Path

import pytest
from repositories import Repository

from pytest_kernelprof.against.overlay import Tests, lay_over

TESTS = Tests(("test_*.py", "*_test.py"), ini="pyproject.toml")


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
    assert TESTS.has(path) == is_test


def test_patterns_with_folders_are_those_of_paths() -> None:
    assert Tests(("checks/*.py",)).has("checks/mlp.py")
    assert not Tests(("checks/*.py",)).has("mlp.py")


def test_an_environment_that_git_does_not_ignore_is_left_out(tmp_path: Path) -> None:
    made = Repository(tmp_path / "root")
    made.write({".venv/pyvenv.cfg": "", ".venv/lib/x/tests/test_x.py": "", "tests/test_a.py": ""})
    (tmp_path / "tree").mkdir()
    laid = lay_over(TESTS, str(made.folder), str(tmp_path / "tree"))
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
    lay_over(TESTS, str(root), str(tree))
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
    laid = lay_over(TESTS, str(root), str(tree))
    expected = {"pkg/mlp.py": "old", "tests/test_new.py": "today", "tests/util.py": "today"}
    if not with_git:
        expected["tests/ignored.py"] = ""
    found = {str(p.relative_to(tree)): p.read_text() for p in tree.rglob("*") if p.is_file()}
    assert found == expected
    assert set(laid) == set(expected) - {"pkg/mlp.py"}
