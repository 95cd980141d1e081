"""Work that goes on when a call has returned: what it launches is in no round, and in no count."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pytest_kernelprof.schema.recording import OwnNames
from pytest_kernelprof.trace.arrays import NO_ID
from pytest_kernelprof.trace.correlation import outermost
from pytest_kernelprof.trace.rounds import marks_of_rounds, round_of_time
from pytest_kernelprof.trace.vocabulary import MEMCPY_CALL, matches

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_kernelprof.trace.arrays import Bools, Ints
    from pytest_kernelprof.trace.reading import Reading

_MOST_NAMED = 3
_REMEDY = (
    "its work is not counted: wait for it inside the call (join the thread, take the future's "
    "result, await the task)"
)


def check_late_work(reading: Reading) -> list[str]:
    """What to say of work that started on other threads outside of the rounds, or may have.

    Between rounds the thread that measures does nothing for the call, and other threads only what
    a call has left them; a ``setup`` is the exception, and its time is annotated.
    """
    left = reading.trace.recording.left_at_work
    problems = []
    if left:
        problems.append(left_words(left))
    names = _late(reading)
    if names:
        problems.append(
            f"{len(names)} operators or launches started outside of the calls, on other threads "
            f"({_named(list(dict.fromkeys(names)))}); {_REMEDY}"
        )
    return problems


def left_words(left: Sequence[str]) -> str:
    """What to say of what a call has left at work."""
    return f"the call returned while {_named(left)} had work to do; {_REMEDY}"


def _named(names: Sequence[str]) -> str:
    return ", ".join(names[:_MOST_NAMED]) + (", ..." if len(names) > _MOST_NAMED else "")


def _late(reading: Reading) -> list[str]:
    """The operators that compute, or on a device the launches and copies, outside of the calls."""
    trace = reading.trace
    main = _thread_of_rounds(reading)
    if main == NO_ID:
        return []
    calls = trace.calls
    launched = reading.launches | matches(calls.name, MEMCPY_CALL)
    late_calls = launched & (calls.thread != main) & _outside(reading, main, calls.start)
    names: list[str] = calls.name[late_calls].tolist()
    if trace.recording.device_kind == "cpu":
        names += trace.operators.name[_late_operators(reading, main)].tolist()
    return names


def _late_operators(reading: Reading, main: int) -> Ints:
    ops, parent = reading.trace.operators, reading.links.parent
    noted = reading.trace.recording
    computing = frozenset((*(noted.compute_operators or ()), *noted.decomposing_operators))
    others = (ops.thread != main) & ~ops.annotation & ops.name.that(computing.__contains__)
    rows = np.flatnonzero(others)
    # What began inside a call belongs to it, however long it takes.
    began = ops.start[outermost(parent)[rows]]
    late: Ints = rows[_outside(reading, main, began)]
    return late


def _outside(reading: Reading, main: int, at: Ints) -> Bools:
    """Which host times lie neither in a round nor in a ``setup``."""
    found: Bools = round_of_time(reading.layout.rounds, at, late=False) == NO_ID
    ops, setup = reading.trace.operators, OwnNames(reading.trace.recording.nonce).setup
    rows = np.flatnonzero(ops.name.are(setup) & (ops.thread == main) & ops.annotation)
    if len(rows):  # in order of their starts, as all tables are
        begun = np.searchsorted(ops.start[rows], at, side="right") - 1
        lasts = np.maximum.accumulate(ops.end[rows])
        found &= (begun < 0) | (at > lasts[np.maximum(begun, 0)])
    return found


def _thread_of_rounds(reading: Reading) -> int:
    """The thread that our annotations of rounds are on; ``NO_ID`` where there are none."""
    begins = marks_of_rounds(reading.trace).begins
    return int(reading.trace.operators.thread[begins[0][1]]) if begins else NO_ID
