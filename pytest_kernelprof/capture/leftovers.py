"""Trace folders that killed processes have left, and how they are told from those in use.

A process holds a lock on its folder, which the system lets go however the process ends. Only what
is this user's own, an hour older than our own, of a process that is gone and locked by nobody is
removed: another container may share the folder, where other numbers of processes hold.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import stat
import sys
from typing import Any

from pytest_kernelprof.system import Real

_fcntl: Any = None
with contextlib.suppress(ImportError):  # not on Windows: nothing is swept there
    _fcntl = importlib.import_module("fcntl")

_OLD_S = 3600
_FLAGS = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)


def mark_as_used(handle: int) -> None:
    """Keep others from taking an open folder for left over, as long as anybody has it open."""
    if _fcntl is not None:
        with contextlib.suppress(OSError):  # a file system that has no locks
            _fcntl.flock(handle, _fcntl.LOCK_SH | _fcntl.LOCK_NB)


def sweep(place: str, prefix: str, ours: str) -> None:
    """Remove the folders of killed processes; whatever hinders that is no concern of this run.

    Args:
        place: where they are. prefix: what their names begin with, before the process's number.
        ours: the folder of this process, which was just made.
    """
    if sys.platform != "linux" or _fcntl is None:
        return
    with contextlib.suppress(OSError):
        now = Real.lstat(ours).st_mtime
        for name in Real.listdir(place):
            if name.startswith(prefix) and _is_gone(name[len(prefix) :].partition("-")[0]):
                with contextlib.suppress(OSError):
                    _remove(os.path.join(place, name), now - _OLD_S)


def _is_gone(process: str) -> bool:
    try:
        os.kill(int(process), 0)
    except (ProcessLookupError, OverflowError):
        return True
    except (ValueError, OSError):
        return False
    return False


def _remove(path: str, newest: float) -> None:
    """Remove a folder of files, if nobody holds it.

    Raises:
        OSError: somebody does, it is a link, or it cannot be removed.
    """
    handle = Real.open_handle(path, _FLAGS)
    try:
        found = Real.fstat(handle)
        if found.st_uid != os.geteuid() or found.st_mtime > newest:
            return
        _fcntl.flock(handle, _fcntl.LOCK_EX | _fcntl.LOCK_NB)
        for name in Real.listdir(f"/proc/self/fd/{handle}"):
            file = f"/proc/self/fd/{handle}/{name}"
            if stat.S_ISREG(Real.lstat(file).st_mode):
                Real.unlink(file)
        Real.rmdir(path)
    finally:
        Real.close(handle)
