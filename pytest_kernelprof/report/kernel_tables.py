"""A profile's kernels, copies and waits as text tables."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_kernelprof.names.apart import tell_apart
from pytest_kernelprof.report.tables import Column, render, time_unit
from pytest_kernelprof.summary.kernel_groups import times_words
from pytest_kernelprof.summary.words import callers_of, chain_words, line_words
from pytest_kernelprof.units import format_bytes, format_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_kernelprof.report.tables import Unit
    from pytest_kernelprof.schema.comparison import KernelChange
    from pytest_kernelprof.schema.run import Profile
    from pytest_kernelprof.summary.new_kernels import NewKernels

WIDTH = 100

_NUMBER = Column("#", number=True)
_CALLER = Column("called by", shrinks=True)
_LINE = Column("line", shrinks=True, keeps="end")
_LAST = 5
"""So many rows are left at the end of a table whose middle is cut out."""


def kernel_table(
    profile: Profile, width: int = WIDTH, *, most: int = 40, new: NewKernels | None = None
) -> list[str]:
    """The lines of a profile's kernels in launch order, equal neighbours as one; of very many what
    came, what takes most and both ends.

    Args:
        most: so many lines are told, and how many are left out between.
        new: what is another since what was before: ``+`` and ``-`` stand at their lines then.
    """
    rows = _rows(profile, new)
    unit = time_unit([row.us for row in rows if row.us is not None])
    cells = _told(rows, most, unit, short=False)
    columns = _columns(profile, unit, signed=any(row.sign for row in rows))
    if sum(max(map(len, column)) + 2 for column in zip(*cells, strict=True)) > width + 2:
        cells = _told(rows, most, unit, short=True)
    signed = len(columns) == len(cells[0]) if cells else False
    return render(columns, cells if signed else [row[1:] for row in cells], width)


@dataclass(frozen=True, slots=True)
class _Row:
    """Kernels that are alike, next to each other; or one that is gone, without a number."""

    sign: str
    first: int
    number: int
    name: str
    line: str
    chain: tuple[str, ...]
    us: float | None

    @property
    def at(self) -> str:
        """``12``, or ``12..13``."""
        last = self.first + self.number - 1
        return f"{self.first}..{last}" if self.number > 1 else str(self.first)


def _rows(profile: Profile, new: NewKernels | None) -> list[_Row]:
    names = tell_apart(kernel.name for kernel in profile.kernels)
    positions, gone = (new.positions, new.gone) if new else (frozenset[int](), ())
    rows: list[_Row] = []
    for at, kernel in enumerate(profile.kernels):
        rows += [_gone(one) for one in gone if one.at == at + 1]
        chain = callers_of(kernel.operators, kernel.name)
        line = _line_words(profile, kernel.source)
        sign = "+" if at in positions else ""
        row = _Row(sign, at + 1, 1, names[kernel.name], line, chain, kernel.duration_us)
        before = rows[-1] if rows else None
        if before is not None and before.first and _is_alike(before, row):
            us = (before.us or 0.0) + kernel.duration_us
            rows[-1] = replace(before, number=before.number + 1, us=us)
        else:
            rows.append(row)
    return [*rows, *(_gone(one) for one in gone if not one.at)]


def _is_alike(before: _Row, row: _Row) -> bool:
    return (before.sign, before.name, before.line, before.chain) == (
        *(row.sign, row.name, row.line, row.chain),
    )


def _gone(one: KernelChange) -> _Row:
    kernel = one.baseline
    assert kernel is not None  # it is gone
    us = None if kernel.duration_us is None else one.us(kernel)
    chain = callers_of(kernel.operators, kernel.name)
    return _Row("-", 0, 1, times_words(kernel.short_name, one.times), "", chain, us)


def _told(rows: Sequence[_Row], most: int, unit: Unit, *, short: bool) -> list[list[str]]:
    """The cells, with a line for what is left out; ``short``: of chains the innermost alone."""
    told: list[list[str]] = []
    kept, left = _kept(rows, most), 0
    for at, row in enumerate(rows):
        if at not in kept:
            left += row.number
            continue
        if left:
            told.append(["", "", "", f"... {left} more ...", "", ""])
            left = 0
        told.append(
            [
                row.sign,
                row.at if row.first else "",
                "" if row.us is None else unit.words(row.us),
                times_words(row.name, row.number),
                row.line,
                " < ".join(row.chain[:1] if short else row.chain) or "-",
            ]
        )
    return told


def _kept(rows: Sequence[_Row], most: int) -> set[int]:
    """Of very many rows those that came or went with a neighbour, the costliest, and both ends."""
    everything = range(len(rows))
    if len(rows) <= most:
        return set(everything)
    signed = [at for at in everything if rows[at].sign][: most // 2]
    kept = {near for at in signed for near in (at - 1, at, at + 1)} & set(everything)
    kept |= set(sorted(everything, key=lambda at: -(rows[at].us or 0.0))[: most // 4])
    kept |= set(everything[-_LAST:])
    for at in everything:
        if len(kept) >= most:
            break
        kept.add(at)
    return kept


def _columns(profile: Profile, unit: Unit, *, signed: bool) -> list[Column]:
    on_cpu = profile.environment.kind == "cpu"
    columns = [
        Column("#", number=True),
        Column(f"{'CPU' if on_cpu else 'GPU'} {unit.name}", number=True),
        Column("operator" if on_cpu else "kernel", shrinks=True, keeps="brackets"),
        _LINE,
        _CALLER if on_cpu else Column("launched by", shrinks=True),
    ]
    return [Column(""), *columns] if signed else columns


def copy_table(profile: Profile, width: int = WIDTH) -> list[str]:
    """The lines of a table of a profile's memory copies."""
    rows = [
        [
            str(i),
            copy.name,
            format_bytes(copy.bytes),
            chain_words(copy.operators) or "-",
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
    """The lines of a table of the host's waits for the device; on the CPU of those on a GPU."""
    rows = [
        [str(i), w.call, chain_words(w.operators, w.call) or "-", _line_words(profile, w.source)]
        for i, w in enumerate(profile.waits, 1)
    ]
    title = "would wait in" if profile.environment.kind == "cpu" else "waits in"
    return render((_NUMBER, Column(title, shrinks=True), _CALLER, _LINE), rows, width)


def _line_words(profile: Profile, source: str) -> str:
    """The line that launched it; in parentheses that of the call, region or test that it was
    launched in, where more is not known (code of a library alone, one-shot profiles)."""
    if source:
        return os.path.basename(source)
    return f"({line_words(profile.place)})" if profile.place else "line unknown"
