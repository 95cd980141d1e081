"""The file that code stands in, where its bytecode says another one."""

from __future__ import annotations

import sys
from importlib.machinery import SourceFileLoader
from types import FrameType

import pytest

from pytest_kernelprof.profiler.line_annotations import file_of

REWRITES = sys.modules[__name__].__dict__["__loader__"]  # pytest's, as of each test file
OTHER = SourceFileLoader("test_it", "/today/test_it.py")


def frame_of(file: str, **names: object) -> FrameType:
    """Of code that says that it stands in a file."""
    space: dict[str, object] = {"sys": sys, **names}
    exec(compile("found = sys._getframe()", file, "exec"), space)
    found = space["found"]
    assert isinstance(found, FrameType)
    return found


@pytest.mark.parametrize(
    ("says", "names", "file"),
    [
        ("/old/test_it.py", {"__loader__": REWRITES}, "/today/test_it.py"),
        ("/today/test_it.py", {"__loader__": REWRITES}, "/today/test_it.py"),
        ("/old/test_it.py", {"__loader__": OTHER}, "/old/test_it.py"),
        ("/old/made.py", {"__loader__": REWRITES}, "/old/made.py"),
        ("<string>", {"__loader__": REWRITES}, "<string>"),
        ("/old/test_it.py", {"__loader__": REWRITES, "__file__": None}, "/old/test_it.py"),
        ("/old/test_it.py", {}, "/old/test_it.py"),
    ],
)
def test_pytests_own_bytecode_is_corrected_and_other_code_is_believed(
    says: str, names: dict[str, object], file: str
) -> None:
    assert file_of(frame_of(says, **{"__file__": "/today/test_it.py", **names})) == file
