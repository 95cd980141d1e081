"""Kernels that two profiles share, and that take another time or are launched otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pytest_kernelprof.schema.diff import Pace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_kernelprof.baseline.keys import Numbered
    from pytest_kernelprof.schema.diff import PaceKind

SLOWER_BY, SLOWER_US = 0.1, 1.0
"""Of one round each: a kernel is told as slower or faster from so much on, and so many microseconds
of all its repeats together."""


def paces_of(
    old: Numbered,
    new: Numbered,
    rows: Sequence[int],
    others: Sequence[int],
    *,
    noticed: tuple[float, float] = (SLOWER_BY, SLOWER_US),
) -> tuple[Pace, ...]:
    """Kernels of both sides by key and by how they are launched: what they take in all.

    Args:
        rows, others: kernels of both sides that are the same, one beside the other.
        noticed: as of ``diff_profiles``.
    """
    if not rows:
        return ()
    at_old, at_new = np.array(rows), np.array(others)
    before, after = old.launches[at_old], new.launches[at_new]
    many = 1 + int(max(old.launches.max(), new.launches.max()))
    codes = (old.keys[at_old] * many + before) * many + after
    _, first, groups, counts = np.unique(
        codes, return_index=True, return_inverse=True, return_counts=True
    )
    facts = zip(
        *(
            column.tolist()
            for column in (
                first,
                counts,
                np.bincount(groups, old.us[at_old]),
                np.bincount(groups, new.us[at_new]),
                (before != after)[first],
            )
        ),
        strict=True,
    )
    found = []
    for one, times, earlier, later, another in facts:
        kind = _kind(earlier, later, noticed, another=another)
        if kind:
            a, b = old.kernels[rows[one]], new.kernels[others[one]]
            found.append(Pace(kind, a, b, times, earlier, later))
    return tuple(sorted(found, key=lambda pace: -abs(pace.new_us - pace.old_us)))


def _kind(
    old_us: float, new_us: float, noticed: tuple[float, float], *, another: bool
) -> PaceKind | None:
    if another:
        return "reconfigured"
    share, least_us = noticed
    if abs(new_us - old_us) < max(least_us, share * min(old_us, new_us)):
        return None
    return "slower" if new_us > old_us else "faster"
