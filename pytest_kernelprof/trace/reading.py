"""A trace with its joins: links, rounds and launches, worked out once for all who ask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_kernelprof.trace.correlation import Links, launch_calls, link
from pytest_kernelprof.trace.rounds import Layout, lay_out, round_of_activity, round_of_time

if TYPE_CHECKING:
    from pytest_kernelprof.trace.arrays import Bools, Ints
    from pytest_kernelprof.trace.model import Trace


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """A trace, and what belongs together in it.

    Attributes:
        links: which activity, call and operator belong together.
        layout: where the rounds lie.
        round_of_activity: the round that caused each activity, else ``NO_ID``.
        round_of_call: the round in which each call lies, else ``NO_ID``.
        launches: which calls are kernel launches.
    """

    trace: Trace
    links: Links
    layout: Layout
    round_of_activity: Ints
    round_of_call: Ints
    launches: Bools

    @property
    def rounds(self) -> int:
        """How many rounds there are."""
        return len(self.layout.rounds)


def reading_of(trace: Trace) -> Reading:
    """Join the tables of a trace."""
    links = link(trace)
    layout = lay_out(trace, links)
    return Reading(
        trace,
        links,
        layout,
        round_of_activity(trace, links, layout),
        round_of_time(layout.rounds, trace.calls.start, late=False),
        launch_calls(trace, links),
    )
