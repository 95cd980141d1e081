"""The cells of versions: which there are, what they install, their table, and that CI runs them."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import pytest_kernelprof
from pytest_kernelprof.system import TRIED, WITHOUT

ROOT = Path(pytest_kernelprof.__file__).parents[1]
if not (ROOT / "benchmarks" / "matrix.py").exists():
    pytest.skip("the package does not lie in its repository", allow_module_level=True)
sys.path.insert(0, str(ROOT / "benchmarks"))
import matrix  # noqa: E402

PINNED = (ROOT / "constraints.txt").read_text(encoding="utf-8")
CELLS = {cell.name: cell for cell in matrix.cells()}
VERSIONS = {"python": "3.11.7", "torch": "2.15.0"}
RAN = matrix.Ran("torch-2.15", VERSIONS, 99, 1, 7, 4.5, "2026-11-22", "ef5351f")


def test_each_version_that_was_tried_has_a_cell() -> None:
    pins = dict(reversed(re.findall(r"^([\w-]+)==([^;\s]+)", PINNED, re.MULTILINE)))
    pins["python"] = matrix.PYTHON
    missing = [
        f"{package}-{one}"
        for package, series in TRIED.items()
        for one in series
        if f"{package}-{one}" not in CELLS and not pins[package].startswith(one)
    ]
    assert missing == []
    assert {f"without-{name}" for name in WITHOUT} < set(CELLS)
    assert len(CELLS) == len(matrix.cells())


def test_a_cell_takes_its_own_pins_and_else_what_is_pinned() -> None:
    own = CELLS["pytest-8.4"].constraints(PINNED).splitlines()
    assert [line for line in own if line.startswith("pytest==")] == ["pytest==8.4.*"]
    assert {"torch==2.13.0", "triton==3.7.1"} <= set(own)
    torch = CELLS["torch-2.9"].constraints(PINNED)
    assert "torch==2.9.*" in torch.splitlines()
    assert not re.search(r"^(triton|numpy)==", torch, re.MULTILINE), "what this torch asks for"
    assert not re.search(r"^torch==", matrix.NIGHTLY.constraints(PINNED), re.MULTILINE)
    assert CELLS["as-pinned"].constraints(PINNED).strip() == PINNED.strip()
    assert "pytest==9.1.*" in CELLS["pytest-benchmark-5.2"].constraints(PINNED).splitlines()


def test_the_table_has_a_row_for_each_cell_run_or_not() -> None:
    text = matrix.table([RAN], {cell.python: cell.python != "3.13" for cell in CELLS.values()})
    rows = {line.split()[0]: line for line in text.splitlines()[4:]}
    assert list(rows) == list(CELLS)
    assert rows["torch-2.15"].split()[1:3] == ["3.11.7", "2.15.0"]
    assert rows["torch-2.15"].split()[-6:] == [
        *("99", "1", "7", "4.5", "2026-11-22", "ef5351f"),
    ]
    assert rows["python-3.13"].endswith("skipped: no Python 3.13 here")
    assert rows["python-3.12"].endswith("not run")


def test_a_table_is_read_back_so_that_what_was_not_run_again_stays() -> None:
    all_here = dict.fromkeys((cell.python for cell in CELLS.values()), True)
    full = replace(RAN, versions={**dict.fromkeys(matrix._SHOWN, "-"), **VERSIONS})
    found = [full, replace(full, cell="pytest-8.4", commit="")]
    assert matrix.rows_of(matrix.table(found, all_here)) == [found[1], found[0]]
    assert matrix.rows_of("") == []


@pytest.mark.skipif(sys.platform == "win32", reason="a script of the shell")
def test_a_python_that_cannot_be_started_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, status in (("python3.90", 0), ("python3.91", 127)):
        (tmp_path / name).write_text(f"#!/bin/sh\nexit {status}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    names = ("python3.90", "python3.91", "python3.92")
    assert [matrix._runs(name) for name in names] == [True, False, False]


def test_the_page_names_each_cell_that_falls_short() -> None:
    text = matrix.TABLE.read_text(encoding="utf-8")
    page = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8").partition("## Versions")[2]
    whole = {one.cell for one in matrix.rows_of(text) if not one.failed}
    # One way only: each cell of a run finds the table as the cell before has left it.
    assert [name for name in CELLS if name not in whole and f"`{name}`" not in page] == []


def test_counts_come_from_the_report_of_the_tests(tmp_path: Path) -> None:
    path = tmp_path / "junit.xml"
    path.write_text(
        '<testsuites><testsuite tests="10" failures="1" errors="2" skipped="3"/></testsuites>'
    )
    found = matrix.ran(CELLS["torch-2.15"], path, {"torch": "2.15.0"}, 90, "1a2b3c4")
    assert (found.passed, found.failed, found.skipped, found.minutes) == (4, 3, 3, 1.5)
    assert found.commit == "1a2b3c4"
    assert re.fullmatch(r"([0-9a-f]{7,}\+?)?", matrix.commit())


def test_what_a_cell_gives_takes_the_place_of_what_it_gave_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matrix, "RAN", tmp_path / "nox" / "ran.json")
    assert matrix.kept_so_far() == []
    for one in (RAN, replace(RAN, cell="pytest-8.4"), replace(RAN, failed=0)):
        matrix.keep(one)
    assert matrix.kept_so_far() == [replace(RAN, failed=0), replace(RAN, cell="pytest-8.4")]


def read_workflow(name: str) -> Any:
    yaml = pytest.importorskip("ruamel.yaml")
    path = ROOT / ".github" / "workflows" / name
    if not path.exists():
        pytest.skip("a source distribution has no workflow")
    return yaml.YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def workflow() -> Any:
    return read_workflow("tests.yml")


def test_ci_runs_the_same_cells(workflow: Any) -> None:
    given = workflow["jobs"]["cell"]["strategy"]["matrix"]["include"]
    others = [cell for cell in CELLS.values() if cell != matrix.AS_PINNED]  # which `make test` is
    assert given == [{"cell": cell.name, "python": cell.python} for cell in others]
    (command,) = [step["run"] for step in workflow["jobs"]["cell"]["steps"] if "run" in step]
    assert "make matrix CELLS=" in command
    assert any(step.get("run") == "make test" for step in workflow["jobs"]["test"]["steps"])
    assert "schedule" in (workflow.get("on") or workflow[True])
    assert matrix.NIGHTLY.name in workflow["jobs"]["nightly"]["steps"][-1]["run"]


@pytest.mark.parametrize("name", ["tests.yml", "docs.yml"])
def test_a_workflow_is_as_github_says(name: str) -> None:
    workflow = read_workflow(name)
    found = find_spec("check_jsonschema")
    if found is None or found.origin is None:
        pytest.skip("needs check-jsonschema, which has the schemas")
    schemas = Path(found.origin).parent / "builtin_schemas" / "vendor"
    schema = json.loads((schemas / "github-workflows.json").read_text(encoding="utf-8"))
    jsonschema.Draft7Validator(schema).validate(workflow)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft7Validator(schema).validate({**workflow, "jobs": 5})


def test_the_page_names_the_series_that_were_tried() -> None:
    page = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8").partition("## Versions")[2]
    named = {row[0].lower(): row[1] for row in re.findall(r"^\| ([\w-]+) \| (.*) \|$", page, re.M)}
    for package, series in TRIED.items():
        told = [one.strip().split()[0] for one in named[package].split(",")]
        assert told == [*series, *(["none"] if package in WITHOUT else [])], package
