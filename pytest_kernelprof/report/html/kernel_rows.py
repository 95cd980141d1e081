"""The kernels of a profile as rows: in launch order; where they are very many, by what is alike."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_kernelprof.digest.kernel_groups import groups_of
from pytest_kernelprof.digest.words import callers_of
from pytest_kernelprof.names.short import short_name
from pytest_kernelprof.report.html.families import family_of
from pytest_kernelprof.report.html.full_names import cut

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pytest_kernelprof.report.html.full_names import FullNames
    from pytest_kernelprof.schema.run import Kernel, Profile

MOST_ROWS = 200
"""Kernels that are told one by one; of a profile that has more, those that are alike are a row."""
FEWER_ROWS = 12
"""The same of a profile of less interest."""
MOST_KINDS, FEWER_KINDS = 100, 30
"""Rows of kernels that are alike; the others are counted."""
_BAR = 56
_LONGEST = 160


@dataclass(frozen=True, slots=True)
class KernelRow:
    """One kernel, or several that are alike.

    Attributes:
        number: its place in launch order, from 1; 0 of several. count: how many there are.
        name: the short one. full: the number of the full one; 0 where that is the same.
        inner, outer: the innermost operator, and the outermost where it is another.
        line: of the user's code. size: grid and block. registers: a thread.
        us: microseconds. bar: its length in pixels. share: of the profile's GPU time.
        fresh: whether it is new since what the run is compared with.
    """

    number: int
    count: int
    name: str
    full: int
    family: str
    us: float
    bar: float
    share: float
    inner: str = ""
    outer: str = ""
    line: str = ""
    size: str = ""
    registers: int = 0
    fresh: bool = False


@dataclass(frozen=True, slots=True)
class KernelTable:
    """The table.

    Attributes:
        folded: whether kernels that are alike are a row.
        kernels, us: how many there are, and what they take. left: kinds without a row.
        lines, sizes: whether any row has some.
    """

    rows: tuple[KernelRow, ...]
    folded: bool
    kernels: int
    us: float
    left: int
    lines: bool
    sizes: bool


def table_of(
    profile: Profile,
    names: FullNames,
    fresh: Collection[int] = (),
    most: int = MOST_ROWS,
    most_kinds: int = MOST_KINDS,
) -> KernelTable:
    """The kernels of one call.

    Args:
        names: which gets the full names.
        fresh: the new ones, by their place in launch order, from 0.
        most: of more kernels than that, those that are alike are one row.
        most_kinds: so many of these rows.
    """
    groups = groups_of(profile)
    number = sum(count for count, _ in groups.values())
    us = sum(time for _, time in groups.values())
    folded = bool(profile.more_kernels) or len(profile.kernels) > most
    if folded:
        rows, left = _folded(profile, us, names, most_kinds)
    else:
        rows, left = _one_by_one(profile.kernels, us, names, fresh), 0
    lines, sizes = any(row.line for row in rows), any(row.size for row in rows)
    return KernelTable(rows, folded, number, us, left, lines, sizes)


def _one_by_one(
    kernels: Sequence[Kernel], us: float, names: FullNames, fresh: Collection[int]
) -> tuple[KernelRow, ...]:
    longest = max((kernel.duration_us for kernel in kernels), default=0.0)
    return tuple(
        _row(kernel, i, us, longest, names, i - 1 in fresh) for i, kernel in enumerate(kernels, 1)
    )


def _row(
    kernel: Kernel, number: int, us: float, longest: float, names: FullNames, fresh: bool
) -> KernelRow:
    inner, outer = inner_and_outer(kernel)
    short = kernel.short_name
    sized = any(kernel.grid) or any(kernel.block)
    return KernelRow(
        number=number,
        count=1,
        name=short,
        full=names.place_of(kernel.name) if kernel.name != short else 0,
        family=family_of(kernel.name),
        us=kernel.duration_us,
        bar=_length(kernel.duration_us, longest),
        share=kernel.duration_us / us if us else 0.0,
        inner=inner,
        outer=outer,
        line=cut(os.path.basename(kernel.source), _LONGEST),
        size=f"{_size(kernel.grid)} · {_size(kernel.block)}" if sized else "",
        registers=kernel.registers,
        fresh=fresh,
    )


def _folded(
    profile: Profile, us: float, names: FullNames, most_kinds: int
) -> tuple[tuple[KernelRow, ...], int]:
    """Kernels of one name, launched by one operator at one line, together; by their time."""
    groups: dict[tuple[str, str, str, str], tuple[int, float]] = {}
    for kernel in profile.kernels:
        key = (kernel.name, *inner_and_outer(kernel), os.path.basename(kernel.source))
        count, time = groups.get(key, (0, 0.0))
        groups[key] = count + 1, time + kernel.duration_us
    for group in profile.more_kernels:
        count, time = groups.get((group.name, "", "", ""), (0, 0.0))
        groups[group.name, "", "", ""] = count + group.count, time + group.duration_us
    most = sorted(groups.items(), key=lambda one: (-one[1][1], one[0]))
    longest = most[0][1][1] if most else 0.0
    rows = []
    for (name, inner, outer, line), (count, time) in most[:most_kinds]:
        short = short_name(name)
        rows.append(
            KernelRow(
                number=0,
                count=count,
                name=short,
                full=names.place_of(name) if name != short else 0,
                family=family_of(name),
                us=time,
                bar=_length(time, longest),
                share=time / us if us else 0.0,
                inner=inner,
                outer=outer,
                line=cut(line, _LONGEST),
            )
        )
    return tuple(rows), max(0, len(groups) - most_kinds)


def inner_and_outer(kernel: Kernel) -> tuple[str, str]:
    """The operator that launched it, and the outermost around that; empty where there is none."""
    inner, outer, *_ = (*callers_of(kernel.operators, kernel.name), "", "")
    return cut(inner, _LONGEST), cut(outer, _LONGEST)


def _length(us: float, longest: float) -> float:
    return round(max(us / longest * _BAR, 0.8), 1) if longest > 0 else 0.0


def _size(size: tuple[int, int, int]) -> str:
    return "x".join(str(one) for one in size if one != 1) or "1"
