"""What installing the package brings along, and what it must leave as it is."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

import pytest_kernelprof

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pytest needs it on Python 3.10

ROOT = Path(pytest_kernelprof.__file__).parents[1]

pytestmark = pytest.mark.skipif(
    not (ROOT / "pyproject.toml").exists(), reason="the package does not lie in its repository"
)


@pytest.fixture(scope="module")
def metadata() -> Any:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def needed(lines: list[str]) -> dict[str, Requirement]:
    return {one.name: one for one in map(Requirement, lines)}


def test_users_get_no_triton_and_no_other_plugin(metadata: Any) -> None:
    assert sorted(needed(metadata["project"]["dependencies"])) == [
        "filelock",
        "jinja2",
        "msgspec",
        "numpy",
        "nvidia-ml-py",
        "pytest",
        "torch",
    ]


@pytest.mark.parametrize(
    "installed",
    [
        "2.9.0a0+nv25.9",
        "2.9.0",
        "2.11.0+cu130",
        "2.12.0.dev20260301+cu130",
        "2.13.0rc2",
        "3.0.0a0+git1234567",
    ],
)
def test_a_torch_that_is_installed_is_left_alone(metadata: Any, installed: str) -> None:
    bound = needed(metadata["project"]["dependencies"])["torch"].specifier
    assert bound.contains(installed, prereleases=True)  # so pip asks of what is installed


@pytest.mark.parametrize("installed", ["2.8.0", "2.8.0+cu128", "2.8.0a0+nv25.6", "2.7.1"])
def test_a_torch_that_is_refused_at_run_time_is_refused_by_pip(
    metadata: Any, installed: str
) -> None:
    bound = needed(metadata["project"]["dependencies"])["torch"].specifier
    assert not bound.contains(installed, prereleases=True)


@pytest.mark.parametrize(("extra", "name"), [(None, "torch"), ("example", "triton")])
def test_no_pre_release_is_asked_for(metadata: Any, extra: str | None, name: str) -> None:
    project = metadata["project"]
    lines = project["optional-dependencies"][extra] if extra else project["dependencies"]
    bound = needed(lines)[name].specifier
    assert not bound.prereleases
    offered = [Version(one) for one in ("3.6.0", "3.7.0rc1", "3.8.0.dev20260301")]
    assert list(bound.filter(offered)) == offered[:1]


def test_extras_bring_what_a_part_needs_and_test_brings_them_all(metadata: Any) -> None:
    extras = metadata["project"]["optional-dependencies"]
    assert list(needed(extras["benchmark"])) == ["pytest-benchmark"]
    assert list(needed(extras["example"])) == ["triton"]
    own = needed(extras["test"])["pytest-kernelprof"]
    assert own.extras == {"benchmark", "docs", "example"}


def test_a_missing_pytest_benchmark_is_an_error_that_names_the_extra(
    metadata: Any, pytester: pytest.Pytester
) -> None:
    pytester.makepyfile("def test_it(kernel_benchmark): pass")
    ran = pytester.runpytest_inprocess("-p", "no:benchmark", "--kernelprof-device=cpu")
    ran.assert_outcomes(errors=1)
    ran.stdout.fnmatch_lines(
        ["*needs pytest-benchmark*pip install 'pytest-kernelprof?benchmark?'*"]
    )
    assert "benchmark" in metadata["project"]["optional-dependencies"]


def test_every_folder_with_code_is_a_package_that_is_found(metadata: Any) -> None:
    found = pytest.importorskip("setuptools").find_packages(
        str(ROOT), **metadata["tool"]["setuptools"]["packages"]["find"]
    )
    folders = {path.parent for path in (ROOT / "pytest_kernelprof").rglob("*.py")}
    assert sorted(found) == sorted(".".join(folder.relative_to(ROOT).parts) for folder in folders)


def test_the_mark_of_a_typed_package_goes_along(metadata: Any) -> None:
    (name,) = metadata["tool"]["setuptools"]["package-data"]["pytest_kernelprof"]
    assert (ROOT / "pytest_kernelprof" / name).is_file()
    assert name == "py.typed"


def test_what_the_page_is_made_of_goes_along(metadata: Any) -> None:
    patterns = metadata["tool"]["setuptools"]["package-data"]["pytest_kernelprof.report.html"]
    folder = ROOT / "pytest_kernelprof" / "report" / "html"
    taken = {path for pattern in patterns for path in folder.glob(pattern)}
    assert taken == {path for path in folder.iterdir() if path.suffix not in (".py", "")}


def test_an_installed_plugin_is_imported_as_it_is(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no bytecode can be written, pytest would rewrite each of our modules in each start."""
    installed = pytester.mkdir("installed") / "pytest_kernelprof-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Name: pytest-kernelprof\nVersion: 1\n")
    entry = "[pytest11]\nkernelprof = pytest_kernelprof.plugin.hooks\n"
    (installed / "entry_points.txt").write_text(entry)
    (installed / "RECORD").write_text("pytest_kernelprof/__init__.py,,\n")
    monkeypatch.syspath_prepend(installed.parent)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    pytester.makepyfile(
        """
        import sys

        def test_it():
            rewritten = [name for name, module in sys.modules.items()
                         if name.startswith("pytest_kernelprof")
                         and type(module.__loader__).__module__ == "_pytest.assertion.rewrite"]
            assert "pytest_kernelprof.plugin.hooks" in sys.modules
            assert rewritten == ["pytest_kernelprof"]  # which says so of the others
        """
    )
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)


def test_the_source_distribution_holds_what_its_tests_read() -> None:
    lines = (ROOT / "MANIFEST.in").read_text(encoding="utf-8").splitlines()
    words = {word for line in lines if not line.startswith("#") for word in line.split()[1:]}
    assert {
        "docs",
        "tests",
        "example_project",
        "benchmarks",
        "Makefile",
        "constraints.txt",
    } <= words
    missing = [word for word in words if "*" not in word and not (ROOT / word).exists()]
    assert missing == []
