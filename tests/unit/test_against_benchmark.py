"""The benchmark of runs against a revision reads what its runs wrote, or says why they did not."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from records import run_compared

import pytest_kernelprof
from pytest_kernelprof.records import codec
from pytest_kernelprof.records.comparison import Paired, ProfileComparison
from pytest_kernelprof.records.document import pack

ROOT = Path(pytest_kernelprof.__file__).parents[1]
if not (ROOT / "benchmarks" / "against.py").exists():
    pytest.skip("the package does not lie in its repository", allow_module_level=True)
sys.path.insert(0, str(ROOT / "benchmarks"))
import against  # noqa: E402

SLOWER = ProfileComparison(
    source="revision", test="test_it.py::test_it[0]", change="worse", paired=Paired("worse")
)
Ends = Callable[..., None]


@pytest.fixture
def pytest_ends(monkeypatch: pytest.MonkeyPatch) -> Ends:
    """In place of a run of pytest: its exit status, and what it leaves as its document."""

    def ends(status: int, document: bytes | None = None) -> None:
        def run(command: list[str], *, cwd: Path, **_: Any) -> subprocess.CompletedProcess[str]:
            assert f"--kernelprof-json={against.DOCUMENT}" in command
            if document is not None:
                (cwd / against.DOCUMENT).write_bytes(document)
            return subprocess.CompletedProcess(command, status, "INTERNALERROR> no memory", "")

        monkeypatch.setattr(against.subprocess, "run", run)

    return ends


def test_it_reads_how_the_tests_compare(pytest_ends: Ends, tmp_path: Path) -> None:
    pytest_ends(1, codec.encode(pack(run_compared(SLOWER))))
    seen = against.Project(tmp_path, "cpu", 1).run()
    assert [one.test for one in seen.tests] == [SLOWER.test]
    assert (seen.results["worse"], seen.timings) == (1, [Paired("worse")])


@pytest.mark.parametrize(
    ("status", "document", "why"),
    [
        (3, None, "pytest ended with status 3\n"),
        (1, None, "pytest ended with status 1 and wrote no document: "),
        (1, b"", "pytest ended with status 1 and wrote no document: "),
        (0, codec.encode(pack(run_compared())), "run.json compares with nothing in turn\n"),
    ],
)
def test_it_says_why_a_run_has_no_document(
    pytest_ends: Ends, tmp_path: Path, status: int, document: bytes | None, why: str
) -> None:
    pytest_ends(status, document)
    with pytest.raises(SystemExit) as raised:
        against.Project(tmp_path, "cpu", 1).run()
    assert why in str(raised.value)
    assert "INTERNALERROR> no memory" in str(raised.value)
