"""The files that a run is told as: what can be known of a path before, and what is written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytest_kernelprof.records.document import Run, Test
from pytest_kernelprof.records.profile import Place
from pytest_kernelprof.report.files import why_no_file, write_file


def test_a_path_in_a_new_folder_is_fine(tmp_path: Path) -> None:
    assert why_no_file("json", str(tmp_path / "new" / "run.json")) == ""
    assert (tmp_path / "new").is_dir()


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("folder", "it is a folder"),
        ("folder/", "it names a folder"),
        ("later/", "it names a folder"),
        ("file/run.json", "File exists"),
        ("x" * 300, "File name too long"),
        ("nul\0.json", "null"),
        ("to_nowhere", "Permission denied|No such file|Read-only|Operation not permitted"),
        ("loop", "Too many levels of symbolic links"),
    ],
)
def test_what_can_be_known_before_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, why: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path("file").touch()
    Path("to_nowhere").symlink_to("/proc/not_there/run.json")
    Path("loop").symlink_to("loop")
    assert re.search(why, why_no_file("json", path))


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    assert write_file(str(path), "json", Run()) == "tests 0, profiles 0"
    assert path.read_bytes().startswith(b"{")
    assert list(tmp_path.iterdir()) == [path]


def test_times_for_trackers_need_pytest_benchmark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_kernelprof.report.files.find_spec", lambda name: None)
    why = why_no_file("benchmark_json", str(tmp_path / "times.json"))
    assert why == "it needs pytest-benchmark: pip install 'pytest-kernelprof[benchmark]'"


@pytest.mark.parametrize("form", ["markdown", "html"])
def test_lines_lead_to_the_commit_of_a_step_of_github_actions_where_their_file_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.chdir(tmp_path)
    step = {"SERVER_URL": "https://git.test", "REPOSITORY": "team/it", "SHA": "abc"}
    for name, value in {**step, "WORKSPACE": str(tmp_path)}.items():
        monkeypatch.setenv(f"GITHUB_{name}", value)
    Path("here.py").touch()
    crashed = [
        Test(f"{name}.py::test_it", outcome="failed", place=Place(f"{name}.py", 3), why="no")
        for name in ("here", "elsewhere")
    ]
    write_file("told", form, Run(tuple(crashed)))
    told = Path("told").read_text()
    assert "https://git.test/team/it/blob/abc/here.py#L3" in told
    assert "elsewhere.py#L3" not in told
