"""One lock per GPU, across processes and users of a machine: what is timed has the GPU alone."""

from __future__ import annotations

import contextlib
import functools
import getpass
import json
import os
import stat
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_kernelprof.clock import now_s, sleep, unix_ns
from pytest_kernelprof.device.inventory import gpu_uuid
from pytest_kernelprof.errors import GpuBusy
from pytest_kernelprof.system import TEMPORARY_FOLDER, Real

if TYPE_CHECKING:
    from collections.abc import Iterator

    from filelock import BaseFileLock

    from pytest_kernelprof.device.inventory import Device

_FOLDER = "kernelprof-locks"
_FOR_ALL_USERS = 0o666
_LONGEST_NAME = 200
_LONGEST_NOTE = 4096
_POLL_S = 0.05
_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


@contextlib.contextmanager
def gpu_lock(device: Device, timeout_s: float, who: str = "") -> Iterator[None]:
    """Hold the GPU's lock; nothing on the CPU.

    Only timed rounds need it, counts do not. It is the operating system's lock on a file, so a
    holder that dies frees it, and a process that holds it may take it again.

    Args:
        timeout_s: seconds to wait for another process that holds it.
        who: what others read of this holder when their time is up: the test's node id.

    Raises:
        GpuBusy: the time is up, with who holds the lock; or it cannot be made, with the remedy.
    """
    if device.kind != "cuda":
        yield
        return
    with lock_by_uuid(gpu_uuid(device), timeout_s, who, device.name):
        yield


@contextlib.contextmanager
def lock_by_uuid(uuid: str, timeout_s: float, who: str = "", name: str = "GPU") -> Iterator[None]:
    """Hold the lock of the GPU with this UUID; ``name`` is what messages call it.

    Raises:
        GpuBusy: as ``gpu_lock`` does.
    """
    folder = _folder()
    note = folder / f"{uuid}.holder"
    lock = _lock(Real.getpid(), folder / f"{uuid}.lock")
    again = lock.is_locked
    try:
        had = _acquire(lock, timeout_s)
    except (OSError, NotImplementedError) as error:
        raise GpuBusy(_cannot_be_made(folder / f"{uuid}.lock", error)) from error
    if not had:
        raise GpuBusy(
            f"{name} ({uuid}) was not free to be timed on within {timeout_s:g} s: held by "
            f"{_holder(note)}. Wait for that process or end it, allow more time with "
            "--kernelprof-lock-timeout=SECONDS, or choose another GPU with CUDA_VISIBLE_DEVICES"
        )
    try:
        if not again:
            _write(note, json.dumps(_myself(who)))
        yield
    finally:
        if not again:
            _write(note, "")
        lock.release()


def _acquire(lock: BaseFileLock, timeout_s: float) -> bool:
    """Wait for a lock, and say whether it was had in time: by our own clock, since the one that
    filelock waits by may be stopped by a test."""
    deadline = now_s() + timeout_s
    while not _try(lock):
        if now_s() >= deadline:
            return False
        sleep(_POLL_S)
    return True


def _try(lock: BaseFileLock) -> bool:
    from filelock import Timeout

    try:
        lock.acquire(timeout=0)
    except Timeout:
        return False
    return True


@functools.cache
def _lock(process: int, path: Path) -> BaseFileLock:
    """One object per process and file, since it counts how often it is held. A forked child makes
    its own: it holds nothing."""
    from filelock import FileLock

    return FileLock(path, mode=_FOR_ALL_USERS, thread_local=False)


def _folder() -> Path:
    """The folder of the locks, made for all users: each may lock, none may remove another's."""
    folder = Path(TEMPORARY_FOLDER) / _FOLDER
    try:
        if not TEMPORARY_FOLDER:
            raise FileNotFoundError("there was no temporary folder at the start")
        with contextlib.suppress(FileExistsError):
            Real.mkdir(folder)
            Real.chmod(folder, 0o777 | stat.S_ISVTX)  # mkdir's own mode is cut by the umask
        mode = Real.lstat(folder).st_mode
    except OSError as error:
        raise GpuBusy(_cannot_be_made(folder, error)) from error
    if not stat.S_ISDIR(mode):  # also a link, which somebody may have put there to mislead
        raise GpuBusy(_cannot_be_made(folder, NotADirectoryError("it is not a folder")))
    return folder


def _cannot_be_made(path: Path, error: Exception) -> str:
    reason = getattr(error, "strerror", None) or error
    return (
        f"the lock of the GPU cannot be made: {path}: {reason}. Make its folder writable for all "
        f"(chmod 1777 {path.parent if path.suffix else path}), or set TMPDIR to a folder that is, "
        "the same for all who time on this machine"
    )


def _myself(who: str) -> dict[str, str | int | float]:
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a user id without a name, as in containers
        user = ""
    command = Path(sys.argv[0]).name if sys.argv else ""
    return {"pid": Real.getpid(), "who": who or command, "user": user, "since": unix_ns() / 1e9}


def _write(note: Path, text: str) -> None:
    """Say who holds the lock. In place: another user's file in this folder cannot be replaced.

    What cannot be written is left out: the lock holds all the same.
    """
    with contextlib.suppress(OSError):
        try:
            handle = _open_file(note, os.O_WRONLY)
        except FileNotFoundError:
            flags = _FLAGS | os.O_WRONLY | os.O_CREAT | os.O_EXCL
            handle = Real.open_handle(note, flags, _FOR_ALL_USERS)
            Real.chmod(note, _FOR_ALL_USERS)
        with Real.file(handle, "w") as file:
            file.truncate(0)
            file.write(text.encode("ascii"))


def _holder(note: Path) -> str:
    """Who holds the lock, in words. Anyone may have written the note: it is taken as text only."""
    try:
        with Real.file(_open_file(note, os.O_RDONLY)) as file:
            said = json.loads(file.read(_LONGEST_NOTE))
        pid, since = int(said["pid"]), float(said["since"])
        who, user = _printable(str(said["who"])), _printable(str(said["user"]))
        minutes, seconds = divmod(int(unix_ns() / 1e9 - since), 60)
        clock = time.strftime("%H:%M:%S", time.localtime(since))
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return f"a process that left no name (whoever has {note.with_suffix('.lock')} open)"
    of = f" of user {user}" if user else ""
    return f"pid {pid}{of} ({who or 'unnamed'}) since {clock}, {minutes} min {seconds} s ago"


def _open_file(path: Path, how: int) -> int:
    """Open a file that anyone may have put there.

    Raises:
        OSError: it is none that could be opened without following or waiting for anything.
    """
    handle = Real.open_handle(path, _FLAGS | how)
    if not stat.S_ISREG(Real.fstat(handle).st_mode):  # a pipe has no end, nor has a device
        Real.close(handle)
        raise OSError(f"{path} is no file")
    return handle


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text[:_LONGEST_NAME])
