"""Kernels that two profiles share, and that take another time or are launched otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pytest_kernelprof.schema.diff import Pace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_kernelprof.schema.diff import PaceKind
    from pytest_kernelprof.schema.run import Kernel

SLOWER_BY, SLOWER_US = 0.1, 1.0
"""Of one round each: a kernel is told as slower or faster from so much on, and so many microseconds
of all its repeats together."""


def paces_of(
    old: Sequence[Kernel],
    new: Sequence[Kernel],
    keys: Sequence[int],
    rows: Sequence[int],
    others: Sequence[int],
    *,
    noticed: tuple[float, float] = (SLOWER_BY, SLOWER_US),
) -> tuple[Pace, ...]:
    """Kernels of both sides by key and by how they are launched: what they take in all."""
    if not rows:
        return ()
    at_old, at_new = np.array(rows), np.array(others)
    launched: dict[tuple[object, ...], int] = {}
    before = np.array(_launched_as(old, launched))[at_old]
    after = np.array(_launched_as(new, launched))[at_new]
    codes = (np.array(keys)[at_old] * len(launched) + before) * len(launched) + after
    _, first, groups, counts = np.unique(
        codes, return_index=True, return_inverse=True, return_counts=True
    )
    old_us = np.bincount(groups, np.array([k.duration_us for k in old])[at_old])
    new_us = np.bincount(groups, np.array([k.duration_us for k in new])[at_new])
    another = (before != after)[first]
    facts = zip(
        *(column.tolist() for column in (first, counts, old_us, new_us, another)), strict=True
    )
    found = []
    for one, times, earlier, later, is_another in facts:
        kind = _kind(earlier, later, noticed, another=is_another)
        if kind:
            found.append(Pace(kind, old[rows[one]], new[others[one]], times, earlier, later))
    return tuple(sorted(found, key=lambda pace: -abs(pace.new_us - pace.old_us)))


def _launched_as(kernels: Sequence[Kernel], numbers: dict[tuple[object, ...], int]) -> list[int]:
    """A number for each kernel's grid, block, registers and shared memory."""
    known: dict[tuple[int, int, int, int], int] = {}
    found = []
    for kernel in kernels:
        # The tuples of equal ones are mostly one object.
        quick = (id(kernel.grid), id(kernel.block), kernel.registers, kernel.shared_memory)
        number = known.get(quick)
        if number is None:
            whole = (kernel.grid, kernel.block, kernel.registers, kernel.shared_memory)
            number = known[quick] = numbers.setdefault(whole, len(numbers))
        found.append(number)
    return found


def _kind(
    old_us: float, new_us: float, noticed: tuple[float, float], *, another: bool
) -> PaceKind | None:
    if another:
        return "reconfigured"
    share, least_us = noticed
    if abs(new_us - old_us) < max(least_us, share * min(old_us, new_us)):
        return None
    return "slower" if new_us > old_us else "faster"
