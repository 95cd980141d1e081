"""Why the device had nothing to do between two activities of a call: gaps, and their classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pytest_kernelprof.schema.profile import QUEUED_US
from pytest_kernelprof.schema.run import Gaps, RoundGaps
from pytest_kernelprof.trace.arrays import NO_ID
from pytest_kernelprof.trace.timeline import timeline_of

if TYPE_CHECKING:
    from pytest_kernelprof.trace.arrays import Bools
    from pytest_kernelprof.trace.reading import Reading

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
