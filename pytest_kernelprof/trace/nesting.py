"""Which span lies in which: of each row the innermost span around it on its thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pytest_kernelprof.trace.arrays import NO_ID

if TYPE_CHECKING:
    from pytest_kernelprof.trace.arrays import Bools, Ints

# Deeper than nearly all code; what lies deeper still is found by one sweep.
_LEVELS = 40


def enclosing(thread: Ints, start: Ints, end: Ints, is_point: Bools) -> Ints:
    """For each row the nearest before it on its thread that ends after it begins, else ``NO_ID``.

    Args:
        is_point: rows in which nothing lies, and which still lie in a span that ends as they start.
    """
    # What starts with the span that it lies in is shorter: longest first among equal starts.
    order = np.lexsort((-end, is_point, start, thread))
    points = is_point[order]
    begins = start[order] - points
    found = np.full(len(order), NO_ID, np.int64)
    found[order] = _in_order(thread[order], begins, end[order], points)
    return np.where(found == NO_ID, NO_ID, order[found])


def _in_order(thread: Ints, begins: Ints, end: Ints, points: Bools) -> Ints:
    """The same of rows in order, level by level from the outside in.

    The outermost spans of a thread are those that nothing before them outlasts. The rows up to the
    next such one either lie in a span that comes in between, or else directly in it.
    """
    spans = np.where(points, begins, np.maximum(end, begins))
    ends = np.sort(spans)
    # As ranks, of which a thread's and the row's fit one number. A span ends after a row begins
    # where its rank is the larger one.
    last = np.where(points, 0, np.searchsorted(ends, spans) + 1)
    first = np.searchsorted(ends, begins, side="right")
    found = np.full(len(thread), NO_ID, np.int64)
    rows = np.arange(len(thread))
    block = np.cumsum(np.diff(thread, prepend=thread[:1]) != 0)
    owner = np.full(len(rows), NO_ID, np.int64)
    base = len(rows) + 2
    for _ in range(_LEVELS):
        if not len(rows):
            return found
        offset = block * base
        reached = np.maximum.accumulate(offset + last[rows])
        inside = np.zeros(len(rows), np.bool_)
        inside[1:] = reached[:-1] > (offset + first[rows])[1:]
        outer = ~inside
        found[rows[outer]] = owner[block[outer]]
        owner, block, rows = rows[outer], (np.cumsum(outer) - 1)[inside], rows[inside]
    _sweep(found, rows, block, owner, begins, spans, points)
    return found


def _sweep(
    found: Ints, rows: Ints, block: Ints, owner: Ints, begins: Ints, spans: Ints, points: Bools
) -> None:
    """Fill in the rows that are left: those of each block lie in its owner or in one another."""
    open_rows: list[int] = []
    open_ends: list[int] = []
    current = NO_ID
    columns = (rows, block, begins[rows], spans[rows], points[rows])
    for row, of, at, until, is_point in zip(*(one.tolist() for one in columns), strict=True):
        if of != current:
            open_rows, open_ends, current = [], [], of
        while open_ends and open_ends[-1] <= at:
            open_rows.pop()
            open_ends.pop()
        found[row] = open_rows[-1] if open_rows else owner[of]
        if not is_point:
            open_rows.append(row)
            open_ends.append(until)
