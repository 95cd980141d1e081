"""What this package stands on: the system's functions and clocks as they are when this is loaded,
before a test patches them; and the versions of other packages that it is tested with.

Tools that replace the clock or the file system (freezegun, pyfakefs) search the globals of every
module, and ``mock.patch`` replaces the names of ``os`` and ``time``. So the functions are held in a
class, and the clocks in a ``partial``, which costs no Python call. None looks others up again.
"""

from __future__ import annotations

import _thread
import builtins
import contextlib
import functools
import io
import os
import re
import select
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

now_ns = functools.partial(time.perf_counter_ns)
"""Nanoseconds on the clock that durations are measured with."""
unix_ns = functools.partial(time.time_ns)
"""Nanoseconds since 1970."""
sleep = functools.partial(time.sleep)
"""Wait for so many seconds."""


def now_s() -> float:
    """Seconds on the clock that durations are measured with."""
    return now_ns() / 1e9


def _unknown(*_: int) -> Any:
    """Stand in for a function that this system does not have."""


class Real:
    """The functions that a measurement needs while a test runs."""

    file = io.FileIO
    buffered = io.BufferedWriter
    open_handle = staticmethod(os.open)
    close = staticmethod(os.close)
    read = staticmethod(os.read)
    write = staticmethod(os.write)
    select = staticmethod(select.select)
    fstat = staticmethod(os.fstat)
    lstat = staticmethod(os.lstat)
    mkdir = staticmethod(os.mkdir)
    rmdir = staticmethod(os.rmdir)
    chmod = staticmethod(os.chmod)
    unlink = staticmethod(os.unlink)
    replace = staticmethod(os.replace)
    listdir = staticmethod(os.listdir)
    getpid = staticmethod(os.getpid)
    readlink = staticmethod(os.readlink)
    urandom = staticmethod(os.urandom)
    settrace = staticmethod(sys.settrace)
    gettrace = staticmethod(sys.gettrace)
    setprofile = staticmethod(sys.setprofile)
    getprofile = staticmethod(sys.getprofile)
    start_thread = staticmethod(_thread.start_new_thread)
    lock = staticmethod(_thread.allocate_lock)
    lock_of_thread = staticmethod(threading.RLock)
    this_thread = staticmethod(_thread.get_ident)
    threads = staticmethod(threading.enumerate)
    clock_ns = staticmethod(getattr(time, "clock_gettime_ns", _unknown))  # Windows has none
    frames_of_threads = staticmethod(sys._current_frames)
    timer = threading.Timer
    load = staticmethod(builtins.__import__)

    fstatvfs = staticmethod(getattr(os, "fstatvfs", _unknown))  # Windows has none
    waitid = staticmethod(getattr(os, "waitid", _unknown))  # nor has macOS this one
    times = staticmethod(os.times)


@contextlib.contextmanager
def imports_as_ever() -> Iterator[None]:
    """Find modules even if a test has patched ``import``: our hooks load theirs late, and run
    before the patches of a test are undone."""
    patched, builtins.__import__ = builtins.__import__, Real.load
    try:
        yield
    finally:
        builtins.__import__ = patched


def _temporary_folder() -> str:
    """Ask without ``tempfile`` remembering the answer: others still see the ``TMPDIR`` that a
    conftest sets later."""
    before = tempfile.tempdir
    try:
        return tempfile.gettempdir()
    except OSError:
        return ""
    finally:
        tempfile.tempdir = before


TEMPORARY_FOLDER = _temporary_folder()
"""The folder when this was loaded; empty if none could be written to."""

PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
"""The folder of our own code."""

TRIED: dict[str, tuple[str, ...]] = {
    "python": ("3.10", "3.11", "3.12", "3.13"),
    "pytest": ("8.4", "9.0", "9.1", "9.2"),
    "torch": ("2.9", "2.11", "2.13", "2.15"),
    "numpy": ("1.26", "2.4"),
    "pytest-benchmark": ("5.2", "5.3"),
    "pytest-xdist": ("3.8",),
}
"""Versions by package, oldest first; each is the newest of its series. ``noxfile.py`` runs the
suite with each of them, and all else as in ``constraints.txt``."""

WITHOUT = ("pytest-benchmark", "pytest-xdist")
"""Packages that the suite is also run without."""


def newer_than_tried(found: Mapping[str, str]) -> list[str]:
    """Return a line for each package that is newer than the versions that were tried.

    Args:
        found: versions by the name of the package; names that are not in ``TRIED`` and versions
            without two numbers are ignored.
    """
    return [
        f"{name} {'.'.join(map(str, series(version)))} is newer than what was tried "
        f"({TRIED[name][-1]})"
        for name, version in found.items()
        if name in TRIED and series(version) > series(TRIED[name][-1])
    ]


def series(version: str) -> tuple[int, ...]:
    """Return the first two numbers; what follows them is a repair."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    return (int(numbers[1]), int(numbers[2])) if numbers else ()
