"""The file that code stands in, also where its bytecode was copied along with its folder.

Python corrects the path in bytecode that was moved or copied, and pytest does so since 9.2: before,
code of test files and conftests has the path of the folder that its bytecode was made in.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import FrameType

_REWRITES = "_pytest.assertion.rewrite"


def file_of(frame: FrameType) -> str:
    """The file of a frame's code."""
    return own_file(frame.f_code.co_filename, frame.f_globals)


def own_file(file: str, namespace: Mapping[str, object]) -> str:
    """The file of code, by what it says itself and by the names of its module."""
    own = namespace.get("__file__")
    if own == file or not isinstance(own, str):
        return file
    # Else the code says so on purpose, as a template's or a cell's does.
    is_rewritten = type(namespace.get("__loader__")).__module__ == _REWRITES
    return own if is_rewritten and os.path.basename(own) == os.path.basename(file) else file
