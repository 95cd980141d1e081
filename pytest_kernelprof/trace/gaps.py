"""Why the device had nothing to do between two activities of a call: gaps, and their classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pytest_kernelprof.schema.run import Gaps, RoundGaps
from pytest_kernelprof.trace.model import NO_ID

if TYPE_CHECKING:
    from pytest_kernelprof.trace.model import Bools
    from pytest_kernelprof.trace.reading import Reading

# What the device takes to begin queued work: 0.3 to 3 us were seen, 5 us across streams.
_SHORT_NS = 10_000


def gaps_of(reading: Reading) -> Gaps:
    """Class the gaps of every round on the timeline of all its activities together."""
    ours = reading.round_of_activity
    return Gaps(tuple(_of_round(reading, ours == i) for i in range(reading.rounds)))


def _of_round(reading: Reading, chosen: Bools) -> RoundGaps:
    trace, links = reading.trace, reading.links
    acts = trace.activities
    rows = np.flatnonzero(chosen)
    rows = rows[np.argsort(acts.start[rows], kind="stable")]
    began = np.maximum.accumulate(acts.end[rows])[:-1]  # where each gap would begin
    after = rows[1:]
    gap = np.maximum(0, acts.start[after] - began)
    call = links.call_of_activity[after]
    known = call != NO_ID
    returned = np.zeros(len(after), np.int64)
    returned[known] = trace.calls.end[call[known]]
    host = known & (returned > began)
    kernel = known & ~host & (gap <= _SHORT_NS)

    def total(which: Bools) -> float:
        return int(gap[which].sum()) / 1e3

    return RoundGaps(total(host), total(kernel), total(~host & ~kernel))
