"""Calls of compiled functions for which nothing that was compiled fitted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pytest_kernelprof.trace.arrays import NO_ID
from pytest_kernelprof.trace.rounds import round_of_time
from pytest_kernelprof.trace.vocabulary import COMPILED_REGION, LOOKUP, REGION_BEGINS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_kernelprof.trace.arrays import Bools, Ints
    from pytest_kernelprof.trace.model import Operators
    from pytest_kernelprof.trace.reading import Reading


def missed_lookups(reading: Reading) -> int:
    """How often in the rounds a compiled function found nothing that fits.

    A lookup that finds something runs it next on its thread. One that does not compiles; or, where
    the compiler has given up on the code, runs it as it stands, and no count of the compiler moves.
    What a new region looks up before it begins (torch 2.11) is the compiler's own code.
    """
    ops = reading.trace.operators
    of_round = round_of_time(reading.layout.rounds, ops.start, late=False)
    looks = ops.name.are(LOOKUP) & (of_round != NO_ID)
    if not looks.any():
        return 0
    by_thread = np.argsort(ops.thread, kind="stable")  # of each thread in order of time
    threads = np.split(by_thread, np.flatnonzero(np.diff(ops.thread[by_thread])) + 1)
    return sum(_missed(_following(ops, looks, rows)) for rows in threads if looks[rows].any())


def _missed(followed_by: Sequence[str]) -> int:
    """How many of the lookups of one thread find nothing."""
    missed, of_compiler = 0, False
    for following in reversed(followed_by):
        if following != LOOKUP:
            of_compiler = following == REGION_BEGINS
        missed += not of_compiler and COMPILED_REGION.search(following) is None
    return missed


def _following(ops: Operators, looks: Bools, rows: Ints) -> list[str]:
    """The names of the operators that follow the lookups of a thread, whose rows these are; empty
    where none does."""
    after = np.searchsorted(ops.start[rows], ops.end[rows[looks[rows]]], side="left")
    return [ops.name[rows[i]] if i < len(rows) else "" for i in after.tolist()]
