"""The versions that were tried, and what is said of those that were not."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

import pytest_kernelprof
from pytest_kernelprof.gpu import inventory
from pytest_kernelprof.system import TRIED, WITHOUT, newer_than_tried

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pytest needs it on Python 3.10

AS_KEPT = dict(TRIED)
ROOT = Path(pytest_kernelprof.__file__).parents[1]


@pytest.fixture(autouse=True)
def tried(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, series in {"torch": ("2.9", "2.15"), "pytest": ("8.4", "9.2")}.items():
        monkeypatch.setitem(TRIED, name, series)


@pytest.mark.parametrize(
    ("version", "shown"),
    [
        ("2.16", "2.16"),
        ("2.16.0+cu132", "2.16"),
        ("2.16.0.dev20261101+cpu", "2.16"),
        ("2.16.0a0+nv26.12", "2.16"),
        ("3.0.1", "3.0"),
        ("2.100.0", "2.100"),
    ],
)
def test_a_newer_one_is_told_in_a_line(version: str, shown: str) -> None:
    (line,) = newer_than_tried({"torch": version})
    assert line == f"torch {shown} is newer than what was tried (2.15)"


@pytest.mark.parametrize(
    "found",
    [
        {},
        {"torch": "2.15.0"},
        {"torch": "2.15.9+cu132"},  # a repair of what was tried
        {"torch": "2.14.1"},  # between two that were
        {"torch": "2.9.0a0+nv25.9"},
        {"torch": "git1234567"},
        {"torch": ""},
        {"cuda": "99.0", "mkldnn": "on"},
    ],
)
def test_of_all_others_nothing_is_said(found: dict[str, str]) -> None:
    assert newer_than_tried(found) == []


def test_each_package_has_its_line() -> None:
    lines = newer_than_tried({"torch": "2.16.0", "cuda": "13.2", "pytest": "9.3.0"})
    assert [line.split()[0] for line in lines] == ["torch", "pytest"]


def test_series_stand_oldest_first() -> None:
    for series in AS_KEPT.values():
        assert sorted(series, key=Version) == list(series)
    assert set(WITHOUT) < set(AS_KEPT)


@pytest.mark.skipif(not (ROOT / "pyproject.toml").exists(), reason="not in its repository")
def test_what_the_project_says_of_itself_is_what_was_tried() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    kinds = [
        re.match(r"Programming Language :: Python :: (3\.\d+)", k) for k in project["classifiers"]
    ]
    assert [kind[1] for kind in kinds if kind] == list(AS_KEPT["python"])
    extras = project["optional-dependencies"]
    needed = [Requirement(line) for line in (*project["dependencies"], *extras["benchmark"])]
    for one in needed:
        for series in AS_KEPT.get(one.name, ()):
            assert one.specifier.contains(f"{series}.9"), f"{one} keeps {series} out"
    oldest = ".".join(map(str, inventory._OLDEST_TORCH))
    assert oldest == AS_KEPT["torch"][0]


@pytest.mark.skipif(not (ROOT / "constraints.txt").exists(), reason="not in its repository")
def test_what_is_pinned_is_no_newer_than_what_was_tried() -> None:
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    found = dict(re.findall(r"^([\w-]+)==([^;\s]+)", pins, re.MULTILINE))
    for name in ("pytest", "torch", "numpy", "pytest-benchmark", "pytest-xdist"):
        assert Version(found[name]) < Version(f"{AS_KEPT[name][-1]}.999")
