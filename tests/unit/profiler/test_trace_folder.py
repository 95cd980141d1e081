"""Our folder for traces: what becomes of its place, and that a half-written trace is noticed."""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_kernelprof.errors import IncompleteProfile
from pytest_kernelprof.profiler import trace_folder
from pytest_kernelprof.profiler.trace_folder import Scratch
from pytest_kernelprof.system import Real

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="goes through /proc/self/fd")


def write(path: str) -> None:
    with open(path, "w") as file:
        file.write('{"traceEvents": []}\n')


@pytest.fixture
def one(tmp_path: Path) -> Path:
    (tmp_path / "one").mkdir()
    return tmp_path / "one"


@pytest.fixture
def other(tmp_path: Path) -> Path:
    (tmp_path / "other").mkdir()
    return tmp_path / "other"


def whole(folder: Path) -> list[str]:
    """Names of the files in our folders below this one."""
    return [path.name for path in folder.rglob("*") if path.is_file()]


def test_a_file_is_there_as_long_as_somebody_holds_it(one: Path) -> None:
    held = Scratch((str(one),))
    saved = held.save(write)
    assert Path(saved.path).read_text().endswith("}\n")
    assert len(whole(one)) == 1
    del saved
    assert whole(one) == []
    held.let_go()
    assert list(one.iterdir()) == []


@on_linux
def test_a_quote_or_backslash_in_the_place_is_not_in_the_path(tmp_path: Path) -> None:
    place = tmp_path / 'a "quoted" \\ folder'
    place.mkdir()
    assert Scratch((str(place),)).save(write).path.startswith("/proc/self/fd/")


@on_linux
def test_a_place_that_is_renamed_is_written_to_all_the_same(one: Path, tmp_path: Path) -> None:
    held = Scratch((str(one),))
    held.hold()
    one.rename(tmp_path / "elsewhere")
    _saved = held.save(write)
    assert len(whole(tmp_path / "elsewhere")) == 1


def test_a_place_that_vanished_is_left_for_another(one: Path, other: Path) -> None:
    held = Scratch((str(one), str(other)))
    held.hold()
    shutil.rmtree(one)
    saved = held.save(write)
    assert Path(saved.path).exists()
    assert len(whole(other)) == 1


def test_a_folder_that_was_removed_is_made_again(one: Path) -> None:
    held = Scratch((str(one),))
    held.hold()
    shutil.rmtree(next(one.iterdir()))
    _saved = held.save(write)
    assert len(whole(one)) == 1


@on_linux
def test_a_handle_that_a_test_closed_is_not_taken_for_ours(one: Path, other: Path) -> None:
    held = Scratch((str(one),))
    held.hold()
    folder = held._folders[str(one)]
    assert folder.handle is not None
    os.close(folder.handle)
    stranger = os.open(other, os.O_RDONLY)
    try:
        assert stranger == folder.handle, "the number was taken"
        saved = held.save(write)
        held.clear()
        assert whole(other) == []
        assert not Path(saved.path).exists()
        os.fstat(stranger)
    finally:
        os.close(stranger)


def test_without_any_place_the_error_says_why(tmp_path: Path) -> None:
    with pytest.raises(IncompleteProfile, match=r"no folder .*gone: No such file.*set TMPDIR"):
        Scratch((str(tmp_path / "gone"),)).save(write)
    with pytest.raises(IncompleteProfile, match=r"no temporary folder was writable.*set TMPDIR"):
        Scratch(()).save(write)


@pytest.mark.parametrize("text", ["", '{"traceEvents": [', "{} x"])
def test_what_ends_too_early_is_an_error_and_nothing_stays(one: Path, text: str) -> None:
    def half(path: str) -> None:
        Path(path).write_text(text)
        Path(f"{path}.tmp").write_text(text)

    with pytest.raises(IncompleteProfile, match=r"could not be written completely to .*free space"):
        Scratch((str(one),)).save(half)
    assert whole(one) == []


def test_what_was_not_written_or_raised_is_an_error_that_says_so(one: Path) -> None:
    def raises(_: str) -> None:
        raise RuntimeError("Trace is already saved.")

    with pytest.raises(IncompleteProfile, match="FileNotFoundError"):
        Scratch((str(one),)).save(lambda _: None)
    with pytest.raises(IncompleteProfile, match="RuntimeError: Trace is already saved"):
        Scratch((str(one),)).save(raises)
    assert whole(one) == []


def with_room(room: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Say how much is free, by what a place ends in."""

    def free(folder: trace_folder.Folder) -> int:
        return next(size for end, size in room.items() if f"/{end}/" in folder.path)

    monkeypatch.setattr(trace_folder.Folder, "free_bytes", free)


@pytest.mark.parametrize(
    ("room", "chosen"),
    [
        ({"one": 1 << 30, "other": 1 << 40}, "one"),
        ({"one": 1 << 20, "other": 1 << 30}, "other"),
        ({"one": 2 << 20, "other": 1 << 20}, "one"),
    ],
)
def test_a_full_place_is_left_for_one_with_room(
    room: dict[str, int], chosen: str, one: Path, other: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_room(room, monkeypatch)
    _saved = Scratch((str(one), str(other))).save(write)
    assert len(whole(one.parent / chosen)) == 1


def test_a_forked_child_removes_nothing_of_its_parent(one: Path) -> None:
    held = Scratch((str(one),))
    saved = held.save(write)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forks beside threads
        child = os.fork()
    if child == 0:
        saved.folder.remove(saved.name)
        held.clear()
        os._exit(0)
    os.waitpid(child, 0)
    assert Path(saved.path).exists()


def test_a_folder_with_files_is_kept_until_the_process_ends(one: Path) -> None:
    held = Scratch((str(one),))
    saved = held.save(write)
    held.let_go()
    assert Path(saved.path).exists()
    held.clear()
    assert list(one.iterdir()) == []


def test_elsewhere_than_on_linux_the_folder_has_its_plain_path(
    one: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    held = Scratch((str(one),))
    saved = held.save(write)
    assert saved.path.startswith(str(one))
    held.clear()
    assert list(one.iterdir()) == []


def test_a_linux_without_proc_has_it_too(one: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real: Callable[..., Any] = Real.file

    def without_proc(path: str, *rest: Any) -> Any:
        if path.startswith("/proc"):
            raise FileNotFoundError(path)
        return real(path, *rest)

    monkeypatch.setattr(Real, "file", staticmethod(without_proc))
    saved = Scratch((str(one),)).save(write)
    assert saved.path.startswith(str(one))


def test_the_temporary_folder_comes_first_and_memory_after_it() -> None:
    places = trace_folder._places()
    assert places[0] == trace_folder.TEMPORARY_FOLDER
    assert sys.platform != "linux" or places[1:] == ("/dev/shm",)
