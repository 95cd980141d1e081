"""Where the traces of ``--kernelprof-trace-dir`` lie, and how they get there whole."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_LONGEST = 150


def trace_path(folder: str, test: str, index: int, label: str = "") -> str:
    """The file of one of a test's profiles, whose ``index`` counts from 1: a gzip Chrome trace."""
    name = f"{test}-{index}-{label}" if label else f"{test}-{index}"
    return os.path.join(folder, f"{_file_name(name)}.json.gz")


def save_trace(path: str, write: Callable[[str], object]) -> None:
    """Have a trace written beside its place and move it there: no reader ever sees half a file.

    Args:
        write: writes the trace to the path that it is given, which ends in ``.gz``.

    Raises:
        OSError: it cannot be written; nothing is left behind.
    """
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    beside = f"{path}.{os.getpid()}.gz"
    try:
        write(beside)
        os.replace(beside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise


def _file_name(name: str) -> str:
    """The name in plain characters; where that loses any, a digest keeps names apart."""
    usual = name.replace("::", "-").replace("/", "-")
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", usual).strip("-")[-_LONGEST:]
    if plain == usual:
        return plain
    return f"{plain}-{hashlib.sha1(name.encode('utf-8', 'backslashreplace')).hexdigest()[:8]}"
