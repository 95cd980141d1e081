"""``kernelprof update``: snapshots of a run that was another machine's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from records import H200, MLP, counted, kernel, mlp, profile

from pytest_kernelprof.baselines.snapshots import path_of, read
from pytest_kernelprof.cli.main import main
from pytest_kernelprof.records import codec
from pytest_kernelprof.records.comparison import KEPT_COUNTS
from pytest_kernelprof.records.document import Run, Test, pack
from pytest_kernelprof.records.recording import Integrity

COUNTED = [counted(name, 0, 0) for name in KEPT_COUNTS if name != "launches"]
FIVE = mlp(*COUNTED)
ID = "tests/test_it.py::TestX::test_a[1::2]"


@pytest.fixture
def update(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Write a document of these tests and run the command on it, in a project with one file."""
    (tmp_path / "project" / "tests").mkdir(parents=True)
    (tmp_path / "project" / "tests" / "test_it.py").touch()
    monkeypatch.chdir(tmp_path / "project")

    def run(*tests: Test, options: tuple[str, ...] = (), unfinished: tuple[str, ...] = ()) -> int:
        document = pack(Run(tests, unfinished=unfinished))
        Path("run.json").write_bytes(codec.encode(document))
        return main(["update", "run.json", *options])

    return run


def kept(device: str = "NVIDIA-H200") -> dict[str, int]:
    found = read(path_of("tests/test_it.py", device))
    return {key: len(test.profiles[0].kernels) for key, test in found.items()}


def test_it_writes_what_passed(
    update: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    lost = replace(FIVE, integrity=Integrity(problems=("lost",)))
    tests = (
        Test(ID, (FIVE, replace(FIVE, label="profile 2"))),
        Test("tests/test_it.py::test_fails", (FIVE,), outcome="failed"),
        Test("tests/test_it.py::test_lost", (lost,)),
        Test("tests/test_it.py::test_skips", (FIVE,), outcome="skipped"),
        Test("tests/test_it.py::test_again", (FIVE,), outcome="rerun"),
        Test("tests/test_it.py::test_none"),
    )
    assert update(*tests, unfinished=("interrupted",)) == 1
    assert capsys.readouterr().out.splitlines() == [
        "snapshots: 1 written, 2 not kept",
        "not kept: tests/test_it.py::test_fails: the test failed for another reason",
        "not kept: tests/test_it.py::test_lost: incomplete",
        "the run is not complete: interrupted",
    ]
    assert kept() == {"TestX::test_a[1::2]": 5}


def test_it_says_what_it_loosens_and_removes_nothing(
    update: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    six = profile((*MLP, kernel("mine")), COUNTED)
    update(Test(ID, (FIVE,)), Test("tests/test_it.py::test_b", (FIVE,)))
    capsys.readouterr()
    assert update(Test(ID, (six,)), options=("--new",)) == 0
    assert kept() == {"TestX::test_a[1::2]": 5, "test_b": 5}
    assert update(Test(ID, (six,))) == 0
    assert kept() == {"TestX::test_a[1::2]": 6, "test_b": 5}
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "snapshots: 1 written",
        f"looser: {ID}: kernels 5 -> 6, launches 5 -> 6",
    ]


@pytest.mark.parametrize("file", ["gone.py", "../test_it.py", "/etc/passwd", "tests", "a\0b", ""])
def test_a_test_that_is_not_there_writes_nothing(
    update: Callable[..., int], tmp_path: Path, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "test_it.py").touch()
    assert update(Test(f"{file}::test_a", (FIVE,))) == 1
    (told,) = capsys.readouterr().out.splitlines()
    assert told.startswith("no such test file below ")
    assert not list(tmp_path.rglob("__kernelprof__"))


def test_profiles_of_two_devices_are_no_entry(
    update: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    other = replace(FIVE, environment=replace(H200, device="NVIDIA A100"))
    update(Test(ID, (FIVE, other)))
    told = f"not kept: {ID}: it ran on NVIDIA-A100 and NVIDIA-H200"
    assert told in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"schema": 2}', b"\xff", b"[" * 5_000])
def test_what_is_no_run_document_is_refused(
    tmp_path: Path, data: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run.json").write_bytes(data)
    assert main(["update", str(tmp_path / "run.json")]) == 2
    assert "expected a run document" in capsys.readouterr().err


def test_a_file_of_snapshots_that_cannot_be_read_stays(
    update: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    update(Test(ID, (FIVE,)))
    path = Path(path_of("tests/test_it.py", "NVIDIA-H200"))
    path.write_text("{")
    assert update(Test(ID, (FIVE,))) == 2
    assert "test_it.json:1: not JSON" in capsys.readouterr().err
    assert path.read_text() == "{"


def test_a_rank_that_launches_something_else_is_kept_beside_the_first(
    update: Callable[..., int],
) -> None:
    more = replace(profile((*MLP, kernel("mine")), COUNTED), rank=1)
    update(Test(ID, (replace(FIVE, rank=0, other_ranks=(more,)),)))
    (test,) = read(path_of("tests/test_it.py", "NVIDIA-H200")).values()
    assert [(one.rank, len(one.kernels)) for one in test.profiles] == [(None, 5), (1, 6)]
