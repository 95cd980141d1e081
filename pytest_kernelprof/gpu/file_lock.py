"""Locks of the operating system on files that any user may take, shared or alone.

The system releases them however their process ends. ``filelock`` has none that is shared and does
that: its read-write locks are SQLite's, or notes that outlive their writer. ``FileLock`` locks a
whole file; ``ByteLocks`` locks its bytes, and shows those that other processes hold. This module
needs the standard library alone: the supervisor of a run runs without site-packages.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import stat
import struct
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pytest_kernelprof.system import Real

fcntl: Any = None
with contextlib.suppress(ImportError):  # not on Windows
    fcntl = importlib.import_module("fcntl")

FOR_ALL_USERS = 0o666
_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_HELD_BY_OTHERS = (PermissionError, BlockingIOError)


def can_share() -> bool:
    """Whether this system has locks that several processes hold at once."""
    return fcntl is not None


def can_lock_bytes() -> bool:
    """Whether ``ByteLocks`` are for this system."""
    return fcntl is not None and sys.platform == "linux"


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


def _is_at(handle: int, path: Path) -> bool:
    """Whether a path leads to the open file of a handle."""
    with contextlib.suppress(OSError):
        return os.path.samestat(Real.fstat(handle), Real.lstat(path))
    return False


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
        return self._attempt(fcntl.LOCK_SH)

    def take(self) -> bool:
        """Hold it alone, if nobody else holds any of it. A failed attempt may lose what was held
        before."""
        return self._attempt(fcntl.LOCK_EX)

    def release(self) -> None:
        """Hold nothing of it any more."""
        handle, self.handle = self.handle, -1
        if handle >= 0:
            # Closing would do, but for children that were forked beside Python and have it open.
            with contextlib.suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_UN)
            Real.close(handle)

    def _attempt(self, how: int) -> bool:
        if self.handle < 0:
            self.handle = open_or_make(self.path, os.O_RDWR)
        try:
            fcntl.flock(self.handle, how | fcntl.LOCK_NB)
        except _HELD_BY_OTHERS:
            return False
        except OSError:
            self.release()
            raise
        if _is_at(self.handle, self.path):
            return True
        # Folders for all are swept: whoever comes next would open another file at this path.
        self.release()
        return False


_file_locks: weakref.WeakSet[FileLock] = weakref.WeakSet()


def _hold_nothing() -> None:
    """In a forked child: the locks belong to its parent, who may end before it does."""
    for lock in list(_file_locks):
        handle, lock.handle = lock.handle, -1
        if handle >= 0:
            with contextlib.suppress(OSError):
                Real.close(handle)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_hold_nothing)


# struct flock of Linux, where a file is larger than 32 bits tell: type, whence, start, length, pid.
_FLOCK = struct.Struct("hhqqi4x")


class ByteLocks:
    """Locks of this process on bytes of one file; the bytes need not exist.

    They belong to the process: they are free when it ends, and a forked child has none of them.
    Closing any handle of the file frees all of them, so nothing else in the process may open it.

    Every method may raise ``OSError``, as those of ``FileLock`` do.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle = -1
        self._opened: os.stat_result | None = None

    def is_open(self) -> bool:
        """Whether the file is open and still where it was."""
        return _is_at(self._handle, self.path)

    def open(self) -> None:
        """Open the file that is there now, or a new one; nothing of it is held."""
        if self._opened is not None:
            with contextlib.suppress(OSError):
                # A test may have closed the handle, and another file may have its number now.
                if os.path.samestat(Real.fstat(self._handle), self._opened):
                    Real.close(self._handle)
        self._opened = None
        self._handle = open_or_make(self.path, os.O_RDWR)
        self._opened = Real.fstat(self._handle)

    def hold(self, first: int, last: int | None = None, *, alone: bool = True) -> bool:
        """Hold bytes from the first to the last one, by default only the first, if no other
        process holds any of them, or shares them where they are to be held alone."""
        how = fcntl.LOCK_EX if alone else fcntl.LOCK_SH
        try:
            self._lock(how | fcntl.LOCK_NB, first, last)
        except _HELD_BY_OTHERS:
            return False
        return True

    def free(self, first: int, last: int | None = None) -> None:
        """Hold none of these bytes any more."""
        self._lock(fcntl.LOCK_UN, first, last)

    def held(self, first: int, last: int) -> Iterator[int]:
        """The first byte of each lock that another process holds there, in no order."""
        left = [(first, last)]
        while left:
            first, last = left.pop()
            asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, first, last - first + 1, 0)
            answer = fcntl.fcntl(self._handle, fcntl.F_GETLK, asked)
            kind, _, begin, length, _ = _FLOCK.unpack(answer)
            if kind != fcntl.F_UNLCK:
                yield max(first, begin)
                end = begin + length if length else last + 1  # 0: to the end of any file
                parts = ((first, begin - 1), (end, last))
                left += [(low, high) for low, high in parts if low <= high]

    def _lock(self, how: int, first: int, last: int | None) -> None:
        fcntl.lockf(self._handle, how, (first if last is None else last) - first + 1, first)
