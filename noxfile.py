"""The suite in each cell of versions: ``make matrix``; see ``benchmarks/matrix.py``."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import nox

ROOT = Path(__file__).parent
sys.path.insert(0, str(ROOT / "benchmarks"))

import matrix  # noqa: E402

nox.options.sessions = [cell.name for cell in matrix.cells()] + ["table"]

_VERSIONS = """
import json, platform
from importlib.metadata import distributions
found = {one.name.lower(): one.version for one in distributions()}
print(json.dumps({**found, "python": platform.python_version()}))
"""


def run_cell(session: nox.Session, cell: matrix.Cell) -> None:
    """Install what the cell is of, run all tests in it, keep what came of it; then make room."""
    place = Path(session.create_tmp())
    constraints = place / "constraints.txt"
    pinned = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    constraints.write_text(cell.constraints(pinned), encoding="utf-8")
    if cell.nightly:
        # A repository's variable names the source of nightly builds.
        source = os.environ.get("NIGHTLY_INDEX_URL")
        session.install("--pre", "torch", *(["--index-url", source] if source else []))
    session.install("-e", ".[test]", "-c", str(constraints))
    if cell.without:
        session.run("python", "-m", "pip", "uninstall", "--yes", cell.without)
    versions = json.loads(session.run("python", "-c", _VERSIONS, silent=True) or "{}")
    junit = matrix.RAN.parent / f"{cell.name}.xml"  # stays, to see which tests ran
    junit.unlink(missing_ok=True)
    workers = [] if cell.without == "pytest-xdist" else ["-n", os.environ.get("WORKERS", "2")]
    began, commit = time.monotonic(), matrix.commit()
    try:
        session.run(
            *("python", "-m", "pytest", "tests", "-q", f"--junit-xml={junit}"),
            *workers,
            *session.posargs,
            env={
                "OMP_NUM_THREADS": "1",
                "TORCHINDUCTOR_VEC_ISA_OK": "0",
                # nox has one below this folder, where projects of tests would find our settings.
                "TMPDIR": tempfile.gettempdir(),
            },
        )
    finally:
        if junit.exists() and not session.posargs:  # some of the tests are no cell
            matrix.keep(matrix.ran(cell, junit, versions, time.monotonic() - began, commit))
        shutil.rmtree(session.virtualenv.location, ignore_errors=True)


def add_session(cell: matrix.Cell) -> None:
    """What nox knows by the cell's name."""

    @nox.session(name=cell.name, python=cell.python, venv_backend="venv")
    def _(session: nox.Session) -> None:
        run_cell(session, cell)


for each in (*matrix.cells(), matrix.NIGHTLY):
    add_session(each)


@nox.session(python=False)
def table(session: nox.Session) -> None:
    """Print what came of all cells, and write it to benchmarks/results."""
    session.log("\n%s", matrix.write_table())
