"""The lock of a GPU, between real processes."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import pytest

from pytest_kernelprof.errors import GpuBusy, IncompleteProfile
from pytest_kernelprof.gpu import usage_lock
from pytest_kernelprof.gpu.usage_lock import lock_by_uuid

UUID = "c9d0e785-39da-0bdc-778f-5f6a330f7f55"

HOLD = """
import sys, time
from pytest_kernelprof.gpu.usage_lock import lock_by_uuid
with lock_by_uuid(sys.argv[1], 60, sys.argv[2]):
    print("held", flush=True)
    sys.stdin.read()
"""

Holder = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary folder of this test's own, for its processes too."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(usage_lock, "TEMPORARY_FOLDER", str(tmp_path))
    usage_lock._identity(os.getpid())  # its children are told of it
    monkeypatch.setenv(usage_lock.PARTNER_OF, "")  # but these are strangers
    return tmp_path / "kernelprof-locks"


@pytest.fixture
def holder() -> Iterator[Holder]:
    """Start a process that holds the lock until its standard input ends."""
    started: list[subprocess.Popen[str]] = []

    def start(uuid: str = UUID, who: str = "test_a.py::test_x") -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD, uuid, who],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout
        assert process.stdout.readline() == "held\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def end(process: subprocess.Popen[str]) -> None:
    process.communicate()
    assert process.returncode == 0


def test_another_process_is_kept_out_and_told_who_holds_it(holder: Holder) -> None:
    process = holder()
    start = time.monotonic()
    with pytest.raises(GpuBusy) as caught, lock_by_uuid(UUID, 0.3, name="NVIDIA H200"):
        pass
    assert 0.3 <= time.monotonic() - start < 10
    assert re.fullmatch(
        rf"NVIDIA H200 \({UUID}\) was not free for timing within 0.3 s: held by pid "
        rf"{process.pid}( of user \S+)? \(test_a.py::test_x\) since \d\d:\d\d:\d\d, 0 min \d+ s "
        r"ago\. Wait for that process or end it, allow more time with -o "
        r"kernelprof_lock_timeout=SECONDS, or choose another GPU with CUDA_VISIBLE_DEVICES",
        str(caught.value),
    )


def test_being_kept_out_is_an_error_of_the_test_and_no_verdict() -> None:
    assert issubclass(GpuBusy, IncompleteProfile)


def test_a_holder_that_lets_go_frees_it(holder: Holder) -> None:
    end(holder())
    with lock_by_uuid(UUID, 0.3):
        pass


def test_a_holder_that_dies_frees_it_for_one_that_waits(holder: Holder) -> None:
    process = holder()
    waiting = subprocess.Popen(
        [sys.executable, "-c", HOLD, UUID, "next"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    process.kill()
    out, _ = waiting.communicate(timeout=60)
    assert out == "held\n"


def test_another_gpu_is_another_lock(holder: Holder) -> None:
    holder()
    with lock_by_uuid("another", 0.3):
        pass


def test_the_process_that_holds_it_may_take_it_again(folder: Path, holder: Holder) -> None:
    with lock_by_uuid(UUID, 0.3, "outer"):
        with lock_by_uuid(UUID, 0.3, "inner"):
            pass
        assert json.loads((folder / f"{UUID}.notes").read_text())["who"] == "outer"
        code = HOLD.replace("60", "0.2")
        done = subprocess.run(
            [sys.executable, "-c", code, UUID, "x"], capture_output=True, text=True, check=False
        )
        assert f"held by pid {os.getpid()}" in done.stderr
    holder()


def test_a_test_that_stops_the_clock_waits_no_longer(holder: Holder) -> None:
    holder()
    with (
        mock.patch("time.perf_counter", return_value=5.0),
        mock.patch("time.sleep"),
        pytest.raises(GpuBusy, match=r"within 0\.2 s"),
        lock_by_uuid(UUID, 0.2),
    ):
        pass


def test_only_one_process_at_a_time_is_inside(tmp_path: Path) -> None:
    code = """
import os, sys, time
from pytest_kernelprof.gpu.usage_lock import lock_by_uuid
for _ in range(10):
    with lock_by_uuid("shared", 60):
        handle = os.open(sys.argv[1], os.O_CREAT | os.O_EXCL)  # fails if another is inside
        time.sleep(0.002)
        os.close(handle)
        os.unlink(sys.argv[1])
"""
    processes = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "inside")]) for _ in range(4)
    ]
    assert [process.wait(timeout=120) for process in processes] == [0, 0, 0, 0]


def test_an_error_inside_frees_it(holder: Holder) -> None:
    with pytest.raises(KeyError, match="mine"), lock_by_uuid(UUID, 0.3):
        raise KeyError("mine")
    holder()


@pytest.mark.skipif(os.name != "posix", reason="modes are those of POSIX")
def test_folder_and_files_are_for_all_users_whatever_the_umask(folder: Path) -> None:
    before = os.umask(0o077)
    try:
        with lock_by_uuid(UUID, 0.3):
            modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o1777
    assert modes == {f"{UUID}.{name}": 0o666 for name in ("lock", "notes")}


def in_a_fork(does: Callable[[], int]) -> int:
    """The exit status of a forked child that does this; 99 if it raises. It never comes back."""
    child = os.fork()
    if child == 0:
        status = 99
        try:
            status = does()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="needs root")
def test_a_second_user_may_lock_too(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = Path(tempfile.mkdtemp(dir="/tmp"))  # pytest's own folders are for one user
    shared.chmod(0o1777)
    monkeypatch.setattr(usage_lock, "TEMPORARY_FOLDER", str(shared))
    note = shared / "kernelprof-locks" / f"{UUID}.notes"

    def lock_as(user: int) -> int:
        os.setuid(user)
        with lock_by_uuid(UUID, 0.3, f"user {user}"):
            return 0 if json.loads(note.read_text())["who"] == f"user {user}" else 1

    try:
        assert [in_a_fork(functools.partial(lock_as, u)) for u in (4001, 4002, 4001)] == [0, 0, 0]
    finally:
        shutil.rmtree(shared)


@pytest.mark.parametrize(
    "note",
    [
        "",
        "{",
        "[]",
        '{"pid": "x"}',
        '{"pid": 1, "since": 1e300, "who": "", "user": ""}',
        "\x00\xff",
    ],
)
def test_a_note_that_cannot_be_read_still_gives_a_message(
    folder: Path, holder: Holder, note: str
) -> None:
    holder()
    (folder / f"{UUID}.notes").write_text(note, encoding="latin-1")
    with pytest.raises(GpuBusy, match=r"held by an unknown process \(.*\.lock open\)"):
        lock_by_uuid(UUID, 0.1).__enter__()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
@pytest.mark.parametrize("what", ["pipe", "device", "huge", "deep", "folder", "link"])
def test_what_somebody_put_in_the_place_of_the_note_keeps_nobody_waiting(
    folder: Path, holder: Holder, tmp_path: Path, what: str
) -> None:
    note = folder / f"{UUID}.notes"
    put_in_place(note, what, tmp_path / "mine")
    holder()  # writes its note, or none
    if what in ("huge", "deep"):
        put_in_place(note, what, tmp_path / "mine")
    with pytest.raises(GpuBusy, match=r"held by an unknown process"):
        lock_by_uuid(UUID, 0.1).__enter__()
    assert not (tmp_path / "mine").exists()


def put_in_place(note: Path, what: str, elsewhere: Path) -> None:
    note.parent.mkdir(exist_ok=True)
    if what == "pipe":
        os.mkfifo(note)
    elif what == "device":
        note.symlink_to("/dev/zero")
    elif what == "huge":
        with note.open("wb") as file:
            file.truncate(1 << 40)  # takes no room
    elif what == "deep":
        note.write_text("[" * 1_000_000)
    elif what == "folder":
        note.mkdir()
    else:
        note.symlink_to(elsewhere)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_in_the_place_of_the_lock_keeps_nobody_waiting(folder: Path) -> None:
    folder.mkdir()
    os.mkfifo(folder / f"{UUID}.lock")
    with contextlib.suppress(GpuBusy), lock_by_uuid(UUID, 0.1):
        pass


def test_the_time_is_up_although_a_test_has_stopped_the_clock(
    holder: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder()
    for name in ("monotonic", "perf_counter", "time"):
        monkeypatch.setattr(time, name, lambda: 0.0)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    with pytest.raises(GpuBusy, match="not free"):
        lock_by_uuid(UUID, 0.2).__enter__()


def test_a_test_that_moves_the_temporary_folder_does_not_move_the_lock(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "elsewhere"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "elsewhere"))
    with lock_by_uuid(UUID, 0.3):
        assert (folder / f"{UUID}.lock").exists()


def test_without_a_temporary_folder_the_error_has_the_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(usage_lock, "TEMPORARY_FOLDER", "")
    with pytest.raises(GpuBusy, match=r"no temporary folder at the start.*set TMPDIR"):
        lock_by_uuid(UUID, 0.1).__enter__()


def test_a_note_cannot_smuggle_control_characters(folder: Path, holder: Holder) -> None:
    holder(who="\x1b[31mred\n")
    with pytest.raises(GpuBusy, match=re.escape("(?[31mred?)")):
        lock_by_uuid(UUID, 0.1).__enter__()


def test_a_link_in_place_of_the_folder_is_refused_with_the_remedy(folder: Path) -> None:
    (folder.parent / "elsewhere").mkdir()
    folder.symlink_to(folder.parent / "elsewhere")
    with pytest.raises(GpuBusy, match=r"cannot be created: .*not a folder.*chmod 1777 .*TMPDIR"):
        lock_by_uuid(UUID, 0.1).__enter__()


def test_a_lock_that_is_a_folder_is_an_error_with_the_remedy(folder: Path) -> None:
    (folder / f"{UUID}.lock").mkdir(parents=True)
    with pytest.raises(GpuBusy, match=r"cannot be created: .*chmod 1777 .*kernelprof-locks\)"):
        lock_by_uuid(UUID, 0.1).__enter__()


def test_a_forked_child_does_not_believe_that_it_holds_the_lock() -> None:
    def is_kept_out() -> int:
        with pytest.raises(GpuBusy, match="not free"):
            lock_by_uuid(UUID, 0.1).__enter__()
        return 0

    with lock_by_uuid(UUID, 0.3):
        assert in_a_fork(is_kept_out) == 0


def test_a_keeper_of_folders_needs_no_site_packages() -> None:
    root = Path(usage_lock.__file__).parents[2]
    module = "pytest_kernelprof.baselines.supervisor"
    code = f"import sys; sys.path.insert(0, {str(root)!r}); import {module}"
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True)
