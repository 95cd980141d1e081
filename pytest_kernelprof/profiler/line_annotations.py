"""Annotate the user's source lines while a call runs, so that a trace can name them.

``with_stack`` gives the line of the ``def``, not of the call (pytorch #167605). So a run of its
own follows the user's lines with ``sys.settrace`` and opens an annotation around each: the trace
then nests operators in lines by its own clock. Library frames are not followed; an operator that
they launch belongs to the user's line that called them.
"""

from __future__ import annotations

import contextlib
import functools
import os
import site
import sys
import sysconfig
import threading
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any

from pytest_kernelprof.gpu.inventory import bound
from pytest_kernelprof.records.recording import OwnNames
from pytest_kernelprof.system import PACKAGE, Real


def file_of(frame: FrameType) -> str:
    """The file of a frame's code."""
    return own_file(frame.f_code.co_filename, frame.f_globals)


def own_file(file: str, namespace: Mapping[str, object]) -> str:
    """The file of code, by what it says itself and by the names of its module."""
    own = namespace.get("__file__")
    if own == file or not isinstance(own, str):
        return file
    # Else the code says so on purpose, as a template's or a cell's does.
    is_rewritten = type(namespace.get("__loader__")).__module__ == "_pytest.assertion.rewrite"
    return own if is_rewritten and os.path.basename(own) == os.path.basename(file) else file


_MAX_LINES = 20_000


@contextlib.contextmanager
def annotate_lines(names: OwnNames) -> Iterator[None]:
    """Follow the lines of this thread and of threads started meanwhile, under names of the session.

    A tracer that is already set (a debugger, coverage) pauses until the end.
    """
    tracer = _LineTracer(names.line)
    before, before_threads = Real.gettrace(), threading.gettrace()
    threading.settrace(tracer.on_call)
    Real.settrace(tracer.on_call)
    try:
        yield
    finally:
        tracer.stop()  # in threads that go on, too
        if Real.gettrace() in (tracer.on_call, None):  # else the code has set one of its own
            Real.settrace(before)
        if threading.gettrace() == tracer.on_call:
            threading.settrace(before_threads)


class _LineTracer:
    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._record: Any = bound().record_function
        self._library = library_folders()
        self._budget = _MAX_LINES
        self._followed: dict[str, bool] = {}

    def stop(self) -> None:
        """Follow nothing any more."""
        self._budget = 0

    def on_call(self, frame: FrameType, event: str, _: object) -> Any:
        """The tracer of a new frame: None for library code."""
        file = frame.f_code.co_filename
        if (followed := self._followed.get(file)) is None:
            # Not made absolute, which fails where the working directory is gone.
            followed = not file.startswith(("<", PACKAGE, *self._library))
            self._followed[file] = followed
        if not followed or self._budget <= 0:
            return None
        file = file_of(frame)
        open_line: list[Any] = []

        def on_event(frame: FrameType, event: str, _: object) -> Any:
            if open_line:
                open_line.pop().__exit__(None, None, None)
            # After an exception the line goes on: a ``try`` in this frame may handle it.
            if event in ("line", "exception") and self._budget > 0:
                if event == "line":
                    self._budget -= 1
                annotation = self._record(f"{self._prefix}{file}:{frame.f_lineno}")
                annotation.__enter__()
                open_line.append(annotation)
            return on_event

        return on_event


def library_folders() -> tuple[str, ...]:
    """Where code lies that is not the user's, each with a separator at its end."""
    inductor = sys.modules.get("torch._inductor.runtime.cache_dir_utils")
    if inductor is None:
        return _installed()
    # Code that torch.compile generated is nobody's line.
    return (*_installed(), os.path.abspath(inductor.cache_dir()) + os.sep)


@functools.cache
def _installed() -> tuple[str, ...]:
    folders = {*site.getsitepackages(), site.getusersitepackages()}
    folders |= {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return tuple(os.path.abspath(folder) + os.sep for folder in folders if folder)
