"""What the device did in each round on one timeline, all streams together; and why it had nothing
to do between two activities: gaps, and their classes."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pytest_kernelprof.schema.profile import QUEUED_US
from pytest_kernelprof.schema.run import Gaps, RoundGaps
from pytest_kernelprof.trace.arrays import NO_ID

if TYPE_CHECKING:
    from pytest_kernelprof.trace.arrays import Bools, Ints
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


_SHORT_NS = int(QUEUED_US * 1e3)


def gaps_of(reading: Reading) -> Gaps:
    """Class the gaps of every round on the timeline of all its activities together."""
    trace, line = reading.trace, timeline_of(reading)
    inside = np.flatnonzero(line.number[1:] == line.number[:-1])
    after, began = line.rows[inside + 1], line.reached[inside]  # where each gap would begin
    gap = np.maximum(0, trace.activities.start[after] - began)
    call = reading.links.call_of_activity[after]
    known = call != NO_ID
    returned = np.zeros(len(after), np.int64)
    returned[known] = trace.calls.end[call[known]]
    host = known & (returned > began)
    kernel = known & ~host & (gap <= _SHORT_NS)

    def totals(which: Bools) -> list[float]:
        of_round = line.number[inside[which]]
        sums = np.bincount(of_round, gap[which], minlength=reading.rounds)
        return [int(one) / 1e3 for one in sums]

    classes = (totals(host), totals(kernel), totals(~host & ~kernel))
    return Gaps(tuple(RoundGaps(*one) for one in zip(*classes, strict=True)))
