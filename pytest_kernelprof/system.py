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
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

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
    """For what this system does not tell."""


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
    clock = staticmethod(getattr(time, "clock_gettime", _unknown))
    times = staticmethod(os.times)


@contextlib.contextmanager
def imports_as_ever() -> Iterator[None]:
    """Within this, modules are found whatever a test has made of ``import``: our hooks load theirs
    late, and run before the test's patches are undone."""
    patched, builtins.__import__ = builtins.__import__, Real.load
    try:
        yield
    finally:
        builtins.__import__ = patched


def _temporary_folder() -> str:
    """Without having ``tempfile`` remember it: what a conftest says of ``TMPDIR`` later still holds
    for others."""
    before = tempfile.tempdir
    try:
        return tempfile.gettempdir()
    except OSError:
        return ""
    finally:
        tempfile.tempdir = before


TEMPORARY_FOLDER = _temporary_folder()
"""As it was when this was loaded; empty where there was none that could be written to."""

TRIED: dict[str, tuple[str, ...]] = {
    "python": ("3.10", "3.11", "3.12", "3.13"),
    "pytest": ("8.4", "9.0", "9.1", "9.2"),
    "torch": ("2.9", "2.11", "2.13", "2.15"),
    "numpy": ("1.26", "2.4"),
    "pytest-benchmark": ("5.2", "5.3"),
    "pytest-xdist": ("3.8",),
}
"""By package, oldest first; each is the newest of its series. Every one has a cell of its own in
``noxfile.py``, beside which all else is as in ``constraints.txt``."""

WITHOUT = ("pytest-benchmark", "pytest-xdist")
"""Packages that there is a cell without."""


def newer_than_tried(found: Mapping[str, str]) -> list[str]:
    """For each package that is newer than what was tried, a line that says so.

    Args:
        found: versions by the name of the package; names that are not in ``TRIED`` and versions
            without two numbers are passed over.
    """
    lines = []
    for name, version in found.items():
        if name in TRIED:
            newest = TRIED[name][-1]
            if _series(version) > _series(newest):
                shown = ".".join(map(str, _series(version)))
                lines.append(f"{name} {shown} is newer than what was tried ({newest})")
    return lines


def _series(version: str) -> tuple[int, ...]:
    """What comes after the second number is a repair, and tells nothing of this."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    return (int(numbers[1]), int(numbers[2])) if numbers else ()
