"""The cells of versions that the whole suite is run with, and the table of what came of them.

    make matrix                       # all of them, one after another; then the table
    make matrix CELLS=torch-2.15      # one, or several with spaces between
    python benchmarks/matrix.py       # the table alone, of what was run so far

``noxfile.py`` runs them, each in an environment of its own that goes when it is done. A Python that
the machine lacks is skipped by name, and in CI an error. The versions are those of
``pytest_kernelprof/system.py``; but for what a cell is about, all is as in ``constraints.txt``.
Needs neither nox nor the plugin's dependencies.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import re
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from pytest_kernelprof.system import TRIED, WITHOUT  # noqa: E402

PYTHON = "3.11"
TABLE = ROOT / "benchmarks" / "results" / "cpu-matrix.txt"
RAN = ROOT / ".nox" / "ran.json"
# What goes with the torch that is asked for, and not with the pinned one.
_WITH_TORCH = ("torch", "triton", "numpy")
# pytest-benchmark before 5.3 breaks on pytest 9.2, as `kernelprof doctor` says.
_BESIDE = {"pytest-benchmark-5.2": ("pytest==9.1.*",)}
_SHOWN = ("torch", "pytest", "numpy", "pytest-benchmark", "pytest-xdist")
_PIN = re.compile(r"^([\w.-]+)==([^;\s]+)", re.MULTILINE)


@dataclass(frozen=True)
class Cell:
    """One environment.

    Attributes:
        python: its version. pins: requirements that stand in place of the pinned ones.
        without: a package that is taken out of it.
        nightly: whether torch is the newest pre-release there is.
    """

    name: str
    python: str = PYTHON
    pins: tuple[str, ...] = ()
    without: str = ""
    nightly: bool = False

    def constraints(self, pinned: str) -> str:
        """The pins of all else, from the text of ``constraints.txt``."""
        named = {re.split(r"[=<>!~]", pin)[0] for pin in self.pins}
        if "torch" in named or self.nightly:
            named.update(_WITH_TORCH)
        lines = pinned.splitlines()
        kept = [one for one in lines if not (found := _PIN.match(one)) or found[1] not in named]
        return "\n".join([*kept, *self.pins, ""])


@dataclass(frozen=True)
class Ran:
    """What came of a cell: its versions, counts of tests, when, and of which commit, with a ``+``
    where files were changed since."""

    cell: str
    versions: dict[str, str]
    passed: int
    failed: int
    skipped: int
    minutes: float
    date: str
    commit: str = ""


AS_PINNED = Cell("as-pinned")
NIGHTLY = Cell("torch-nightly", nightly=True)


def cells() -> list[Cell]:
    """All that ``make matrix`` runs; the pinned series have the first in common."""
    pins = _PIN.findall((ROOT / "constraints.txt").read_text(encoding="utf-8"))
    pinned = {**dict(reversed(pins)), "python": PYTHON}  # of two, the first is of this Python
    found = [AS_PINNED]
    for package, series in TRIED.items():
        of_it = [one for one in series if not f"{pinned[package]}.".startswith(f"{one}.")]
        found += [_of_series(package, one) for one in of_it]
    return found + [Cell(f"without-{name}", without=name) for name in WITHOUT]


def _of_series(package: str, series: str) -> Cell:
    name = f"{package}-{series}"
    if package == "python":
        return Cell(name, python=series)
    return Cell(name, pins=(f"{package}=={series}.*", *_BESIDE.get(name, ())))


def ran(cell: Cell, junit: Path, versions: dict[str, str], seconds: float, commit: str) -> Ran:
    """What came of a cell, from the report of its tests; ``commit`` is what they ran on."""
    suites = list(ElementTree.parse(junit).getroot().iter("testsuite"))

    def count(kind: str) -> int:
        return sum(int(suite.get(kind, 0)) for suite in suites)

    bad, skipped = count("failures") + count("errors"), count("skipped")
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    passed = count("tests") - bad - skipped
    minutes = round(seconds / 60, 1)
    return Ran(cell.name, versions, passed, bad, skipped, minutes, today, commit)


def commit() -> str:
    """Of the files of this repository; empty where git does not say."""
    asked = ("git", "describe", "--always", "--exclude=*", "--abbrev=7", "--dirty=+")
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        said = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True)
        return said.stdout.strip()
    return ""


def keep(one: Ran) -> None:
    """Beside those of other cells, in place of what this one gave before."""
    kept = {**{old.cell: old for old in kept_so_far()}, one.cell: one}
    RAN.parent.mkdir(exist_ok=True)
    RAN.write_text(json.dumps([asdict(each) for each in kept.values()], indent=1))


def kept_so_far() -> list[Ran]:
    """What the cells that were run have given."""
    return [Ran(**each) for each in json.loads(RAN.read_text())] if RAN.exists() else []


def table(done: list[Ran], pythons: dict[str, bool]) -> str:
    """A row a cell; one that was not run says so, and whether its Python is missing here.

    Args:
        pythons: whether this machine has each version.
    """
    found = {one.cell: one for one in done}
    rows = [("cell", "python", *_SHOWN, "passed", "failed", "skipped", "minutes", "date", "commit")]
    for cell in cells():
        if cell.name in found:
            one = found[cell.name]
            shown = [one.versions.get(name, "-") for name in ("python", *_SHOWN)]
            counts = map(str, (one.passed, one.failed, one.skipped, one.minutes))
            rows.append((cell.name, *shown, *counts, one.date, one.commit))
        else:
            why = "not run" if pythons[cell.python] else f"skipped: no Python {cell.python} here"
            rows.append((cell.name, why))
    wide = [max(len(row[at]) for row in rows if len(row) > 2) for at in range(len(rows[0]))]
    wide[0] = max(len(row[0]) for row in rows)
    lines = [
        "  ".join(text.ljust(size) for text, size in zip(row, wide, strict=False)).rstrip()
        for row in rows
    ]
    head = "The suite on the CPU by cells of versions (make matrix), all else as in constraints.txt"
    return "\n".join([head, "", lines[0], "-" * len(lines[0]), *lines[1:], ""])


def rows_of(text: str) -> list[Ran]:
    """The cells that a table has, as far as they were run."""
    lines = [re.split(r"\s{2,}", line) for line in text.splitlines() if line]
    head = next((line for line in lines if line[0] == "cell"), [])
    rows = [dict(zip(head, line, strict=False)) for line in lines]
    return [
        Ran(
            row["cell"],
            {name: row[name] for name in ("python", *_SHOWN)},
            *(int(row[name]) for name in ("passed", "failed", "skipped")),
            minutes=float(row["minutes"]),
            date=row["date"],
            commit=row.get("commit", ""),
        )
        for row in rows
        if row.get("passed", "").isdecimal()
    ]


def _runs(python: str) -> bool:
    """Whether this machine has a Python: a name alone may be a version manager's that lacks it."""
    found = shutil.which(python)
    return bool(found) and not subprocess.run([found, "-c", ""], capture_output=True).returncode


def write_table() -> str:
    """Write it where the docs find it, with what it has of cells that were not run here; hands it
    back."""
    pythons = {cell.python: _runs(f"python{cell.python}") for cell in cells()}
    before = TABLE.read_text(encoding="utf-8") if TABLE.exists() else ""
    text = table([*rows_of(before), *kept_so_far()], pythons)
    TABLE.write_text(text, encoding="utf-8")
    return text


if __name__ == "__main__":
    print(write_table())
