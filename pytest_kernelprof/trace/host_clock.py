"""Whether the clock that times calls runs as the trace's own does.

A test may stop, turn back or speed up the clocks of Python. Ours are taken before tests run, so
this finds those that were patched earlier still, before the package was loaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_kernelprof.trace.reading import Reading

_SLOWEST = 0.8
_SLACK_US = 1.0
_FASTEST = 2.0
_MUCH_US = 1_000_000.0


def check_clock(reading: Reading) -> str:
    """Why the clock is not believed; empty where it agrees, or where rounds were not clocked.

    Each round was clocked from just before its annotation to just after. So by a true clock it is
    never shorter than the trace says. It is longer where the machine did something else in between,
    but not by a second each time, as a clock is that ticks when it is read.
    """
    clocked, layout = reading.trace.recording.round_us, reading.layout
    if not clocked or not layout.annotated or len(clocked) != len(layout.rounds):
        return ""
    traced = [(one.end - one.start) / 1e3 for one in layout.rounds]
    slow = sum(clocked) < _SLOWEST * sum(traced) - _SLACK_US * len(traced)
    fast = all(
        ours > _FASTEST * theirs + _MUCH_US for ours, theirs in zip(clocked, traced, strict=True)
    )
    if min(clocked) > 0 and not slow and not fast:
        return ""
    return (
        "could not be had: the clock of this process does not run as the profiler's does (the "
        f"profiled rounds took {sum(clocked):.1f}us by the one, {sum(traced):.1f}us by the other): "
        "something replaced Python's clocks before pytest-kernelprof was loaded"
    )
