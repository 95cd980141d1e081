"""Calls of compiled functions for which nothing that was compiled fitted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pytest_kernelprof.trace.arrays import NO_ID
from pytest_kernelprof.trace.rounds import round_of_time
from pytest_kernelprof.trace.vocabulary import COMPILED_REGION, LOOKUP, REGION_BEGINS

if TYPE_CHECKING:
    from pytest_kernelprof.trace.arrays import Bools
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
    return sum(
        _missed(reading, looks & (ops.thread == thread), thread)
        for thread in set(ops.thread[looks].tolist())
    )


def _missed(reading: Reading, looks: Bools, thread: int) -> int:
    """How many of the lookups of one thread find nothing."""
    missed, of_compiler = 0, False
    for following in reversed(_following(reading, looks, thread)):
        if following != LOOKUP:
            of_compiler = following == REGION_BEGINS
        missed += not of_compiler and COMPILED_REGION.search(following) is None
    return missed


def _following(reading: Reading, looks: Bools, thread: int) -> list[str]:
    """The names of the operators that follow these on their thread; empty where none does."""
    ops = reading.trace.operators
    mine = np.flatnonzero(ops.thread == thread)
    after = np.searchsorted(ops.start[mine], ops.end[looks], side="left")
    names: list[str] = [*map(str, ops.name[mine].tolist()), ""]
    return [names[i] for i in after.tolist()]
