"""The files of kept traces: their names, and that they are whole or not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_kernelprof.report.traces import save_trace, trace_path


@pytest.mark.parametrize(
    ("test", "label", "name"),
    [
        ("test_it.py::test_call", "", "test_it.py-test_call-1.json.gz"),
        ("a/test_it.py::test_it", "mine", "a-test_it.py-test_it-1-mine.json.gz"),
    ],
)
def test_a_file_is_named_after_its_test_and_profile(test: str, label: str, name: str) -> None:
    assert Path(trace_path("traces", test, 1, label)) == Path("traces") / name


def test_names_that_lose_characters_are_kept_apart() -> None:
    tests = [f"test_it.py::test_it[{size}]" for size in ("8/8", "8-8", "8 8")]
    assert len({trace_path("traces", test, 1) for test in tests}) == 3


def test_a_long_name_is_cut() -> None:
    assert len(Path(trace_path("traces", "test_" + "x" * 500, 1)).name) < 200


def test_a_trace_is_there_whole_in_a_folder_that_is_made(tmp_path: Path) -> None:
    path = tmp_path / "not" / "yet" / "one.json.gz"
    save_trace(str(path), lambda beside: Path(beside).write_bytes(b"whole"))
    assert path.read_bytes() == b"whole"
    assert list(path.parent.iterdir()) == [path]


def test_a_trace_is_written_to_a_name_that_asks_for_gzip(tmp_path: Path) -> None:
    names: list[str] = []

    def write(beside: str) -> None:
        names.append(beside)
        Path(beside).touch()

    save_trace(str(tmp_path / "one.json.gz"), write)
    assert names[0].endswith(".gz")


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    def write(beside: str) -> None:
        Path(beside).write_bytes(b"half")
        raise OSError("full")

    with pytest.raises(OSError, match="full"):
        save_trace(str(tmp_path / "one.json.gz"), write)
    assert list(tmp_path.iterdir()) == []
