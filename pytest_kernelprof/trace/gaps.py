"""Why the device had nothing to do between two activities of a call: gaps, and their classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pytest_kernelprof.trace.completeness import has_clock_skew
from pytest_kernelprof.trace.model import NO_ID

if TYPE_CHECKING:
    from pytest_kernelprof.trace.correlation import Links
    from pytest_kernelprof.trace.model import Bools, Ints, Trace
    from pytest_kernelprof.trace.rounds import Layout

# What the device takes to begin queued work: 0.3 to 3 us were seen, 5 us across streams.
_SHORT_NS = 10_000


@dataclass(frozen=True, slots=True)
class RoundGaps:
    """The gaps of one round in microseconds; their sum is the round's ``gpu_idle``.

    Attributes:
        host_wait: the call that launched the next activity had not returned when the gap began:
            the device waited for the host.
        kernel_wait: the next activity was launched before and began within 10 us: what the device
            takes between two activities that are queued.
        other: launched before, but begun later (an event of another device, a host function), or
            of unknown launch.
    """

    host_wait: float
    kernel_wait: float
    other: float


@dataclass(frozen=True, slots=True)
class Gaps:
    """The gaps of each round; none, and ``why``, where they cannot be had.

    The profiler stretches gaps, since it slows the host: shown, never limited.
    """

    rounds: tuple[RoundGaps, ...]
    why: str = ""


def gaps_of(trace: Trace, links: Links, layout: Layout, ours: Ints) -> Gaps:
    """Class the gaps of every round on the timeline of all its activities together.

    Args:
        ours: the round of each activity, or ``NO_ID`` (``rounds.round_of_activity``).
    """
    if has_clock_skew(trace, links):
        return Gaps((), "not to be had: the clocks of host and device disagree in this trace")
    return Gaps(tuple(_of_round(trace, links, ours == i) for i in range(len(layout.rounds))))


def _of_round(trace: Trace, links: Links, chosen: Bools) -> RoundGaps:
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
