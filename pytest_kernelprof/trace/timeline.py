"""What the device did in each round on one timeline, all streams together."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pytest_kernelprof.trace.arrays import NO_ID

if TYPE_CHECKING:
    from pytest_kernelprof.trace.arrays import Ints
    from pytest_kernelprof.trace.reading import Reading


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """The activities of all rounds, round by round in order of time.

    Attributes:
        rows: as rows of the activities. number: the round of each.
        reached: when everything was done that its round began up to each, in ns.
        first: where each round begins in them; one more at the end.
    """

    rows: Ints
    number: Ints
    reached: Ints
    first: Ints


def timeline_of(reading: Reading) -> Timeline:
    """Put the activities of all rounds in order, once for all rounds."""
    acts, of_round = reading.trace.activities, reading.round_of_activity
    rows = np.flatnonzero(of_round != NO_ID)
    rows = rows[np.lexsort((acts.start[rows], of_round[rows]))]
    number, reached = of_round[rows], acts.end[rows]
    first = np.searchsorted(number, np.arange(reading.rounds + 1))
    bounds = first.tolist()
    for begin, end in itertools.pairwise(bounds):
        np.maximum.accumulate(reached[begin:end], out=reached[begin:end])
    return Timeline(rows, number, reached, first)
