"""Folders of our own, for a revision's tree: kept by a lock, and swept where a killed run left one.

The lock is the system's, which lets it go however a process ends. A folder is removed by whoever
has its lock alone: the run at its end, what watches over its processes, or the next run.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from pathlib import Path

from pytest_kernelprof.device.filelocks import FileLock
from pytest_kernelprof.system import TEMPORARY_FOLDER

_PREFIX = "kernelprof-against-"
_LOCK = "lock"
_TRIES = 10


class Folder:
    """A folder that this process keeps, as others may beside it.

    Attributes:
        path: where it is. tree: where a revision's files go. scratch: for what its run writes.
    """

    def __init__(self, path: Path, lock: FileLock) -> None:
        self.path = path
        self.tree = path / "tree"
        self.scratch = path / "scratch"
        self._lock = lock

    def let_go(self) -> None:
        """Keep it no longer; nothing of it is left unless somebody else keeps it."""
        self._lock.release()
        remove_unless_kept(self.path)


def make(place: str = TEMPORARY_FOLDER) -> Folder:
    """A new folder, and keep it.

    Raises:
        OSError: none can be made there, or its file system has no locks.
    """
    for _ in range(_TRIES):
        path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place or None))
        lock = FileLock(path / _LOCK)
        if lock.share():  # else somebody sweeps it just now
            folder = Folder(path, lock)
            folder.tree.mkdir()
            folder.scratch.mkdir()
            return folder
    raise OSError(f"{place}: each new folder is removed at once")


def join(path: Path) -> Folder:
    """Keep a folder that another process made.

    Raises:
        OSError: it is gone.
    """
    lock = FileLock(path / _LOCK)
    if not lock.opens() or not lock.share():
        lock.release()
        raise OSError(f"{path} is gone")
    return Folder(path, lock)


def sweep(place: str = TEMPORARY_FOLDER) -> None:
    """Remove this user's folders that nobody keeps."""
    with contextlib.suppress(OSError):
        for name in os.listdir(place):
            if name.startswith(_PREFIX):
                remove_unless_kept(Path(place, name))


def remove_unless_kept(path: Path) -> None:
    """Remove a folder, unless a process keeps it or it is none of ours; failing to is no error."""
    with contextlib.suppress(OSError):
        found = os.lstat(path)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            return
        lock = FileLock(path / _LOCK)
        if lock.opens() and lock.take():
            shutil.rmtree(path, ignore_errors=True)
        lock.release()
