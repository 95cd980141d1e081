"""Where torch writes a trace: a folder of ours, held open, that no test can take away.

The profiler takes a path and reports no failure. So a place is tried before, and the end of the
file is checked after. On Linux the path goes through the open folder (``/proc/self/fd/...``): the
file lies where it was meant to, whatever becomes of the name of the temporary folder.

A process holds a lock on its folder, which the system releases however the process ends. A folder
that a killed process left is removed only if it is this user's own, an hour older than ours, and
locked by nobody, and its process is gone. Another container may share the folder and number
processes differently.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import itertools
import os
import stat
import sys
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from pytest_kernelprof.errors import IncompleteProfile
from pytest_kernelprof.gpu.file_lock import fcntl
from pytest_kernelprof.system import TEMPORARY_FOLDER, Real

_OLD_S = 3600
_FLAGS = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)


def mark_as_used(handle: int) -> None:
    """Keep others from taking an open folder for left over, as long as anybody has it open."""
    if fcntl is not None:
        with contextlib.suppress(OSError):  # a file system that has no locks
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)


def sweep(place: str, ours: str) -> None:
    """Remove the folders of killed processes; whatever hinders that is no concern of this run.

    Args:
        place: where they are. ours: the folder of this process, which was just made.
    """
    if sys.platform != "linux" or fcntl is None:
        return
    with contextlib.suppress(OSError):
        now = Real.lstat(ours).st_mtime
        for name in Real.listdir(place):
            if name.startswith(_PREFIX) and _is_gone(name[len(_PREFIX) :].partition("-")[0]):
                with contextlib.suppress(OSError):
                    _remove(os.path.join(place, name), now - _OLD_S)


def _is_gone(process: str) -> bool:
    try:
        os.kill(int(process), 0)
    except (ValueError, OverflowError, OSError) as error:
        return isinstance(error, (ProcessLookupError, OverflowError))
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
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for name in Real.listdir(f"/proc/self/fd/{handle}"):
            file = f"/proc/self/fd/{handle}/{name}"
            if stat.S_ISREG(Real.lstat(file).st_mode):
                Real.unlink(file)
        Real.rmdir(path)
    finally:
        Real.close(handle)


_PREFIX = "kernelprof-traces-"
_ENOUGH_BYTES = 64 << 20
_END = 64

_numbers = itertools.count(1)


class Folder(NamedTuple):
    """A folder of this process.

    Attributes:
        path: where it was made. maker: the process that made it.
        handle: holds it open; None where the system cannot open a folder or has no path through
            an open one.
        identity: device and inode, so that a closed handle whose number is taken is noticed.
    """

    path: str
    maker: int
    handle: int | None = None
    identity: tuple[int, int] = (0, 0)

    def file(self, name: str) -> str:
        """The path to hand out for a file in it."""
        base = self.path if self.handle is None else f"/proc/self/fd/{self.handle}"
        return f"{base}/{name}"

    def is_held(self) -> bool:
        """Whether the folder is still what paths in it lead to."""
        if self.handle is None:
            return True
        with contextlib.suppress(OSError):
            return _identity(self.handle) == self.identity
        return False

    def free_bytes(self) -> int | None:
        """What is free there; None where the system does not tell."""
        found = None if self.handle is None else Real.fstatvfs(self.handle)
        return None if found is None else int(found.f_bavail * found.f_frsize)

    def remove(self, name: str) -> None:
        """Remove a file in it, if it is there; nothing in another process."""
        if Real.getpid() == self.maker and self.is_held():
            with contextlib.suppress(OSError):
                Real.unlink(self.file(name))


@dataclass(frozen=True, eq=False)
class TraceFile:
    """A file that was written whole, which is removed when nobody holds this any more."""

    folder: Folder
    name: str

    def __post_init__(self) -> None:
        weakref.finalize(self, self.folder.remove, self.name)

    @property
    def path(self) -> str:
        """Where to read it."""
        return self.folder.file(self.name)


class Scratch:
    """The folders of a process, one a place, made when they are first asked for.

    Args:
        places: folders that ours are made in, the first with room first.
    """

    def __init__(self, places: tuple[str, ...]) -> None:
        self._places = places
        self._folders: dict[str, Folder] = {}

    def hold(self) -> None:
        """Make the first folder now, before a test can hinder it; what fails is tried again. What
        killed processes have left beside it is removed."""
        for place in self._places:
            with contextlib.suppress(OSError):
                sweep(place, self._folder(place).path)
                return

    def save(self, write: Callable[[str], object]) -> TraceFile:
        """Have a JSON file written to the path that ``write`` is given.

        Raises:
            IncompleteProfile: there is no place to write to, or it did not become whole; nothing
                is left behind.
        """
        folder = self._choose()
        name = f"kernelprof-{Real.getpid()}-{next(_numbers)}.json"
        why = ""
        try:
            write(folder.file(name))
            whole = _ends_like_json(folder.file(name))
        except Exception as error:
            whole, why = False, f"{type(error).__name__}: {error}; "
        finally:
            folder.remove(f"{name}.tmp")  # where Kineto writes first
        if whole:
            return TraceFile(folder, name)
        folder.remove(name)
        free = folder.free_bytes()
        why += "it ends too early" if free is None else f"{free} bytes are free there"
        raise IncompleteProfile(
            f"the profiler's trace could not be written completely to {folder.path} ({why}): "
            "free space there, or set TMPDIR to a folder that has some"
        )

    def let_go(self) -> None:
        """Remove the folders, as far as nothing is in them; another ``save`` makes new ones."""
        for place, folder in list(self._folders.items()):
            if folder.maker == Real.getpid():
                with contextlib.suppress(OSError):
                    Real.rmdir(folder.path)
                    del self._folders[place]
                    if folder.handle is not None and folder.is_held():
                        Real.close(folder.handle)

    def clear(self) -> None:
        """Remove the folders and what is in them."""
        for folder in self._folders.values():
            with contextlib.suppress(OSError):
                for name in Real.listdir(folder.file("")):
                    folder.remove(name)
        self.let_go()

    def _choose(self) -> Folder:
        """The first place that can be written to and has room; else that with most of it."""
        usable: list[tuple[int, Folder]] = []
        reasons = []
        for place in self._places:
            try:
                folder = self._usable(place)
            except OSError as error:
                reasons.append(f"{place}: {error.strerror or error}")
                continue
            free = folder.free_bytes()
            if free is None or free >= _ENOUGH_BYTES:
                return folder
            usable.append((free, folder))
        if not usable:
            raise IncompleteProfile(
                "no folder is writable for the profiler's trace "
                f"({'; '.join(reasons) or 'no temporary folder was writable at the start'}): set "
                "TMPDIR to a writable folder"
            )
        return max(usable, key=lambda one: one[0])[1]

    def _usable(self, place: str) -> Folder:
        """Our folder there, made anew where it is gone; it was just written to.

        Raises:
            OSError: nothing can be written there.
        """
        folder = self._folder(place)
        try:
            _try_to_write(folder)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.EBADF):
                raise
            del self._folders[place]
            folder = self._folder(place)
            _try_to_write(folder)
        return folder

    def _folder(self, place: str) -> Folder:
        folder = self._folders.get(place)
        if folder is None or not folder.is_held():
            folder = self._folders[place] = _make_folder(place)
        return folder


def _make_folder(place: str) -> Folder:
    # Windows takes a slash too, and in the trace, which holds its own path, it needs no escape.
    path = f"{place}/{_PREFIX}{Real.getpid()}-{Real.urandom(4).hex()}".replace(os.sep, "/")
    Real.mkdir(path, 0o700)
    if sys.platform != "linux":
        return Folder(path, Real.getpid())
    handle = Real.open_handle(path, _FLAGS)
    mark_as_used(handle)
    held = Folder(path, Real.getpid(), handle, _identity(handle))
    try:
        _try_to_write(held)
    except FileNotFoundError:  # no /proc here
        Real.close(handle)
        return Folder(path, Real.getpid())
    return held


def _identity(handle: int) -> tuple[int, int]:
    found = Real.fstat(handle)
    return found.st_dev, found.st_ino


def _try_to_write(folder: Folder) -> None:
    name = f"kernelprof-{Real.getpid()}-try"
    try:
        with Real.file(folder.file(name), "wb") as file:
            file.write(b"{}")
    finally:
        folder.remove(name)


def _ends_like_json(path: str) -> bool:
    with Real.file(path) as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - _END))
        return bool(file.read().rstrip().endswith(b"}"))


def _places() -> tuple[str, ...]:
    """The temporary folder first, since traces may be large; memory where that one fails."""
    found = [TEMPORARY_FOLDER, "/dev/shm" if sys.platform == "linux" else ""]
    return tuple(place for place in found if place)


SCRATCH = Scratch(_places())
"""This process's, in the places that there were when the run began."""
atexit.register(SCRATCH.clear)
