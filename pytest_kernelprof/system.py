"""The system's functions as they are when this is loaded, before a test patches those of ``os``.

Held in a class, and none that looks others up in ``os`` again: tools that replace the clock or the
file system (freezegun, pyfakefs) search the globals of every module.
"""

from __future__ import annotations

import _thread
import builtins
import contextlib
import io
import os
import select
import sys
import tempfile
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


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
