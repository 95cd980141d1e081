"""Which line of the user's made a call, and which a test begins at."""

from __future__ import annotations

import inspect
import os
import sys
from typing import TYPE_CHECKING

from _pytest.pathlib import bestrelpath

from pytest_kernelprof.capture.line_annotations import file_of, library_folders, own_file
from pytest_kernelprof.schema.run import Place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    import pytest

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def place_of_test(item: pytest.Item) -> Place:
    """Where the test function begins, decorators included."""
    path, line = str(item.reportinfo()[0]), item.reportinfo()[1] or 0
    if path != str(item.path):  # a class's that it inherits, or of bytecode that was copied
        function = inspect.unwrap(getattr(item, "obj", None))  # type: ignore[arg-type]
        path = own_file(path, getattr(function, "__globals__", {}))
    return Place(path, line + 1)


def named_here(item: pytest.Item) -> str:
    """Name a test as pytest takes it in the folder that it was started in."""
    file = bestrelpath(item.config.invocation_params.dir, item.path)
    return f"{file}::{item.nodeid.partition('::')[2]}"


def place_of_call(test: Place) -> Place:
    """The line that the running call came from, as the test's reader looks for it: the test
    function's own, else the nearest of its file, else the nearest that is no library's (a helper's,
    a fixture's); the test's first where there is none, as in a thread of a library.

    Args:
        test: where the test function begins, decorators included.
    """
    frames = list(_frames_outside())
    wanted: tuple[Callable[[FrameType], bool], ...] = (
        lambda frame: _begins(frame) == test,
        lambda frame: file_of(frame) == test.file,
        lambda frame: not os.path.abspath(file_of(frame)).startswith(library_folders()),
    )
    for is_it in wanted:
        for frame in frames:
            if is_it(frame):
                return Place(file_of(frame), frame.f_lineno)
    return test


def _frames_outside() -> Iterator[FrameType]:
    """The frames of files outside of this package, the innermost first."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith((_PACKAGE, "<")):
            yield frame
        frame = frame.f_back


def _begins(frame: FrameType) -> Place:
    return Place(file_of(frame), frame.f_code.co_firstlineno)
