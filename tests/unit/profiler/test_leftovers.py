"""Which trace folders of other processes are removed, and which never."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pytest_kernelprof.profiler import trace_folder
from pytest_kernelprof.profiler.trace_folder import Scratch, mark_as_used

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="goes through /proc/self/fd")
Make = Callable[..., Path]


@pytest.fixture(scope="module")
def gone() -> int:
    """The number of a process that has ended."""
    ended = subprocess.Popen(["true"])
    ended.wait()
    return ended.pid


@pytest.fixture
def make(tmp_path: Path, gone: int) -> Make:
    """Make a folder with a trace in it, as a killed run leaves it."""

    def make(process: object = gone, hours: float = 2) -> Path:
        folder = tmp_path / f"kernelprof-traces-{process}-00aa"
        folder.mkdir()
        (folder / "kernelprof-1-1.json").write_text("{}")
        at = os.stat(folder).st_mtime - hours * 3600
        os.utime(folder, (at, at))
        return folder

    return make


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Callable[[], None]]:
    """Hold our own folder there, which sweeps."""
    ours = Scratch((str(tmp_path),))
    yield ours.hold
    ours.clear()


def test_what_a_killed_process_left_is_removed(make: Make, held: Callable[[], None]) -> None:
    left = make()
    held()
    assert not left.exists()


def test_our_own_is_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_folder, "_OLD_S", -1)
    monkeypatch.setattr(trace_folder, "_is_gone", lambda process: True)
    held = Scratch((str(tmp_path),))
    held.hold()
    (ours,) = tmp_path.iterdir()
    trace_folder.sweep(str(tmp_path), str(ours))
    assert ours.exists()
    held.clear()
    assert not ours.exists()


@pytest.mark.parametrize(
    "other",
    [{"process": os.getpid()}, {"process": 1}, {"hours": 0.5}, {"process": "mine"}],
    ids=["runs", "of root", "young", "not ours"],
)
def test_what_may_be_in_use_stays(
    make: Make, held: Callable[[], None], other: dict[str, object]
) -> None:
    stays = make(**other)
    held()
    assert list(stays.iterdir())


def test_what_anybody_has_locked_stays(make: Make, held: Callable[[], None]) -> None:
    stays = make()
    with ExitStack() as opened:
        handle = os.open(stays, os.O_RDONLY)
        opened.callback(os.close, handle)
        mark_as_used(handle)
        held()
        assert list(stays.iterdir())


def test_links_and_what_they_lead_to_stay(
    make: Make, held: Callable[[], None], tmp_path: Path, gone: int
) -> None:
    kept = tmp_path / "kept"
    make().rename(kept)
    (tmp_path / f"kernelprof-traces-{gone}-00bb").symlink_to(kept)
    holds_one = make()
    (holds_one / "link").symlink_to(kept / "kernelprof-1-1.json")
    held()
    assert list(kept.iterdir())
    assert (holds_one / "link").exists()


def test_another_users_stays(
    make: Make, held: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    stays = make()
    monkeypatch.setattr(os, "geteuid", lambda: os.stat(stays).st_uid + 1)
    held()
    assert list(stays.iterdir())
