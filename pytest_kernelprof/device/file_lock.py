"""Locks of the operating system on files that any user may take, shared or alone.

The system releases them however their process ends. ``filelock`` has none that is shared and does
that: its read-write locks are SQLite's, or notes that outlive their writer. This module needs the
standard library alone: a keeper of folders runs without site-packages.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import stat
import weakref
from typing import TYPE_CHECKING, Any

from pytest_kernelprof.system import Real

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_fcntl: Any = None
with contextlib.suppress(ImportError):  # not on Windows
    _fcntl = importlib.import_module("fcntl")

FOR_ALL_USERS = 0o666
_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_HELD_BY_OTHERS = (errno.EACCES, errno.EAGAIN)


def can_share() -> bool:
    """Whether this system has locks that several processes hold at once."""
    return _fcntl is not None


def open_file(path: Path, how: int) -> int:
    """Open a file that anyone may have put there.

    Raises:
        OSError: it cannot be opened without following a link or waiting.
    """
    handle = Real.open_handle(path, _FLAGS | how)
    if not stat.S_ISREG(Real.fstat(handle).st_mode):  # a pipe has no end, nor has a device
        Real.close(handle)
        raise OSError(f"{path} is not a file")
    return handle


def open_or_make(path: Path, how: int) -> int:
    """Open a file; if there is none, make one for all users."""
    # Not with O_CREAT at once: of another user's file in a folder for all, Linux refuses that.
    with contextlib.suppress(FileNotFoundError):
        return open_file(path, how)
    try:
        handle = Real.open_handle(path, _FLAGS | how | os.O_CREAT | os.O_EXCL, FOR_ALL_USERS)
    except FileExistsError:  # somebody was faster
        return open_file(path, how)
    Real.chmod(path, FOR_ALL_USERS)  # the mode of a new file is cut by the umask
    return handle


class FileLock:
    """A lock on one file: this process holds it alone, shares it, or holds nothing of it.

    Every method may raise ``OSError``: the file cannot be opened, or its system has no locks.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.handle = -1
        _file_locks.add(self)

    def opens(self) -> bool:
        """Open the file, if it is there; none is made."""
        try:
            self.handle = open_file(self.path, os.O_RDWR)
        except FileNotFoundError:
            return False
        return True

    def share(self) -> bool:
        """Share it, if nobody has it alone."""
        return self._attempt(_fcntl.LOCK_SH)

    def take(self) -> bool:
        """Hold it alone, if nobody else holds any of it. A failed attempt may lose what was held
        before."""
        return self._attempt(_fcntl.LOCK_EX)

    def release(self) -> None:
        """Hold nothing of it any more."""
        handle, self.handle = self.handle, -1
        if handle >= 0:
            # Closing would do, but for children that were forked beside Python and have it open.
            with contextlib.suppress(OSError):
                _fcntl.flock(handle, _fcntl.LOCK_UN)
            Real.close(handle)

    def _attempt(self, how: int) -> bool:
        if self.handle < 0:
            self.handle = open_or_make(self.path, os.O_RDWR)
        try:
            _fcntl.flock(self.handle, how | _fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _HELD_BY_OTHERS:
                return False
            self.release()
            raise
        mine = Real.fstat(self.handle)
        with contextlib.suppress(FileNotFoundError):
            there = Real.lstat(self.path)
            if (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino):
                return True
        # Folders for all are swept: whoever comes next would open another file at this path.
        self.release()
        return False


_file_locks: weakref.WeakSet[FileLock] = weakref.WeakSet()


def is_refused(path: Path, how: Callable[[FileLock], bool]) -> bool:
    """Whether somebody else holds so much of a file; False where that cannot be told."""
    look = FileLock(path)
    try:
        return look.opens() and not how(look) and look.handle >= 0
    except OSError:
        return False
    finally:
        look.release()


def held_alone(path: Path) -> bool:
    """Whether somebody else holds a file alone."""
    return is_refused(path, FileLock.share)


def _hold_nothing() -> None:
    """In a forked child: the locks belong to its parent, who may end before it does."""
    for lock in list(_file_locks):
        handle, lock.handle = lock.handle, -1
        if handle >= 0:
            with contextlib.suppress(OSError):
                Real.close(handle)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_hold_nothing)
