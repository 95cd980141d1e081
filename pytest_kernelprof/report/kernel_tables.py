"""A profile's kernels, copies and waits as text tables."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pytest_kernelprof.names.apart import tell_apart
from pytest_kernelprof.report.tables import Column, render
from pytest_kernelprof.report.words import line_words
from pytest_kernelprof.units import format_bytes, format_time

if TYPE_CHECKING:
    from pytest_kernelprof.schema.run import Profile

WIDTH = 100

_NUMBER = Column("#", number=True)
_CALLER = Column("called by", shrinks=True)
_LINE = Column("line", shrinks=True, keeps="end")
_LAST = 5
"""So many kernels are left at the end of a table whose middle is cut out."""


def kernel_table(profile: Profile, width: int = WIDTH, *, most: int = 40) -> list[str]:
    """The lines of a profile's kernel table, the middle cut out where there are many."""
    on_cpu = profile.environment.kind == "cpu"
    names = tell_apart(kernel.name for kernel in profile.kernels)
    rows = [
        [
            str(i),
            names[kernel.name],
            _chain_words(kernel.operators[on_cpu:]),
            _line_words(profile, kernel.source),
            format_time(kernel.duration_us),
        ]
        for i, kernel in enumerate(profile.kernels, 1)
    ]
    if len(rows) > most:
        left_out = len(rows) - most
        rows[most - _LAST : -_LAST] = [["", f"... {left_out} more ...", "", "", ""]]
    columns = (
        _NUMBER,
        Column("operator" if on_cpu else "kernel", shrinks=True, keeps="brackets"),
        _CALLER if on_cpu else Column("launched by", shrinks=True),
        _LINE,
        Column("cpu time" if on_cpu else "cuda time", number=True),
    )
    return render(columns, rows, width)


def copy_table(profile: Profile, width: int = WIDTH) -> list[str]:
    """The lines of a table of a profile's memory copies."""
    rows = [
        [
            str(i),
            copy.name,
            format_bytes(copy.bytes),
            _chain_words(copy.operators),
            _line_words(profile, copy.source),
            format_time(copy.duration_us),
        ]
        for i, copy in enumerate(profile.copies, 1)
    ]
    columns = (
        _NUMBER,
        Column("copy", shrinks=True),
        Column("size", number=True),
        _CALLER,
        _LINE,
        Column("gpu time", number=True),
    )
    return render(columns, rows, width)


def wait_table(profile: Profile, width: int = WIDTH) -> list[str]:
    """The lines of a table of the host's waits for the device."""
    rows = [
        [str(i), wait.call, _chain_words(wait.operators), _line_words(profile, wait.source)]
        for i, wait in enumerate(profile.waits, 1)
    ]
    return render((_NUMBER, Column("waits in", shrinks=True), _CALLER, _LINE), rows, width)


def _chain_words(operators: tuple[str, ...]) -> str:
    """The innermost operator and the outermost, which is mostly the one that the user called."""
    called = [name for name in operators if not name.startswith("autograd::engine::")]
    return " < ".join(dict.fromkeys([called[0], called[-1]])) if called else "-"


def _line_words(profile: Profile, source: str) -> str:
    """The line that launched it; in parentheses that of the call, region or test that it was
    launched in, where more is not known (code of a library alone, one-shot profiles)."""
    if source:
        return os.path.basename(source)
    return f"({line_words(profile.place)})" if profile.place else "line unknown"
