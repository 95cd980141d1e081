"""Modules that come from elsewhere although the tree has them."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from pytest_kernelprof.against.copies import Copies


def module(name: str, file: Path | str) -> tuple[str, ModuleType]:
    made = ModuleType(name)
    made.__file__ = str(file)
    return name, made


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in (
        "src/pkg/__init__.py",
        "src/pkg/mlp.py",
        "src/ns/part.py",
        "packages/one/pyproject.toml",
        "packages/one/src/one/__init__.py",
        "third_party/numpy/pyproject.toml",
        "third_party/numpy/numpy/__init__.py",
        "src/pkg/_vendor/packaging/__init__.py",
        "json/__init__.py",
    ):
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# {name}")
    return tmp_path / "tree"


@pytest.mark.parametrize("name", ["pkg", "pkg.mlp", "ns.part", "one"])
def test_a_copy_is_refused_wherever_the_tree_has_the_package(tree: Path, name: str) -> None:
    told = Copies(str(tree)).of_today([module(name, "/site/it.py")])
    assert told.startswith(f"{name} is an installed copy (/site/it.py), so both sides would run")


@pytest.mark.parametrize("name", ["numpy", "packaging", "json", "pkg.other", "ns", "pytest"])
def test_what_others_wrote_and_what_the_tree_lacks_is_none(tree: Path, name: str) -> None:
    assert Copies(str(tree)).of_today([module(name, "/site/it.py")]) == ""


def test_what_comes_from_the_tree_is_none(tree: Path) -> None:
    assert Copies(str(tree)).of_today([module("pkg", tree / "src/pkg/__init__.py")]) == ""
    assert Copies(str(tree)).of_today([("pkg", None)]) == ""


def test_in_another_environment_it_has_to_be_the_revisions(tree: Path, tmp_path: Path) -> None:
    file = tmp_path / "mlp.py"
    file.write_text("# src/pkg/mlp.py")
    copies, found = Copies(str(tree)), module("pkg.mlp", file)
    compiled = module("pkg._core", tmp_path / "_core.so")
    assert copies.of_another_revision([found, compiled]) == ""
    assert copies.stand_in(found[1]) == str(tree / "src/pkg/mlp.py")
    assert copies.stand_in(compiled[1]) == ""
    file.write_text("another")
    told = copies.of_another_revision([found])
    assert told.endswith("is not the revision's src/pkg/mlp.py: install the revision there")


def test_the_packages_of_a_tree(tree: Path) -> None:
    assert sorted(Copies(str(tree)).packages()) == ["json", "one", "pkg"]
