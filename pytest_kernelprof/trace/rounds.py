"""Where the measured region lies: our rounds and sentinels, and what each round caused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pytest_kernelprof.schema.recording import OwnNames
from pytest_kernelprof.trace.arrays import KERNEL, NO_ID
from pytest_kernelprof.trace.correlation import processes_of_activities

if TYPE_CHECKING:
    from pytest_kernelprof.trace.arrays import Bools, Ints
    from pytest_kernelprof.trace.correlation import Links
    from pytest_kernelprof.trace.model import Operators, Trace
    from pytest_kernelprof.trace.names import Names

_BEGINNING, _END = -(2**62), 2**62


@dataclass(frozen=True, slots=True)
class Round:
    """One call of the wrapped function: host times in ns.

    ``until`` is where the next of our own steps starts; what the device does between ``start``
    and ``until`` without a recorded launch call still belongs to the round.
    """

    start: int
    end: int
    until: int


@dataclass(frozen=True, slots=True)
class Layout:
    """How a session is divided.

    Attributes:
        rounds: in time order; a trace without our annotations is one round without bounds.
        annotated: whether the trace carries our annotations.
        sentinels_seen: whether the first and the last sentinel have their kernel; None where the
            session has none (CPU sessions, traces from elsewhere).
    """

    rounds: tuple[Round, ...]
    annotated: bool
    sentinels_seen: tuple[bool, bool] | None


@dataclass(frozen=True, slots=True)
class Marks:
    """The rows of our annotations of rounds among the operators, by what follows their prefix.

    A round is annotated where it begins and where it ends; in earlier files around the whole: then
    one row is both.
    """

    begins: tuple[tuple[str, int], ...]
    ends: tuple[tuple[str, int], ...]


def marks_of_rounds(trace: Trace) -> Marks:
    """Find our annotations of rounds, in time order."""
    ops, names = trace.operators, OwnNames(trace.recording.nonce)
    rows, prefix = np.flatnonzero(ops.annotation), names.prefix
    own = [
        (name, row)
        for name, row in zip(ops.name[rows].tolist(), rows.tolist(), strict=True)
        if name.startswith(prefix)
    ]
    whole, begins, ends = (
        tuple((name.removeprefix(kind), row) for name, row in own if name.startswith(kind))
        for kind in (names.round, names.begin, names.end)
    )
    return Marks(whole + begins, whole + ends)


def lay_out(trace: Trace, links: Links) -> Layout:
    """Find our annotations in a trace."""
    ops, names = trace.operators, OwnNames(trace.recording.nonce)
    marks = marks_of_rounds(trace)
    if not marks.begins:
        return Layout((Round(_BEGINNING, _END, _END),), False, None)
    steps = [int(ops.start[row]) for _, row in marks.begins]
    last = _named(trace, names.last_sentinel)
    steps.append(int(ops.start[last]) if last is not None else _END)
    end_of = dict(marks.ends)
    rounds = tuple(
        Round(int(ops.start[row]), int(ops.end[end_of.get(number, row)]), until)
        for (number, row), until in zip(marks.begins, steps[1:], strict=True)
    )
    first = _named(trace, names.first_sentinel)
    if first is None and last is None:
        return Layout(rounds, True, None)
    return Layout(rounds, True, (_has_kernel(trace, links, first), _has_kernel(trace, links, last)))


def _named(trace: Trace, name: str) -> int | None:
    found = np.flatnonzero(trace.operators.name.are(name) & trace.operators.annotation)
    return int(found[0]) if len(found) else None


def _has_kernel(trace: Trace, links: Links, operator: int | None) -> bool:
    if operator is None:
        return False
    start, end = trace.operators.start[operator], trace.operators.end[operator]
    call = links.call_of_activity[trace.activities.kind == KERNEL]
    launched = trace.calls.start[call[call != NO_ID]]
    return bool(((launched >= start) & (launched <= end)).any())


def round_of_time(rounds: tuple[Round, ...], at: Ints, *, late: bool) -> Ints:
    """The round in which each host time lies, else ``NO_ID``; with ``late``, up to ``until``."""
    starts = np.array([r.start for r in rounds], np.int64)
    ends = np.array([r.until if late else r.end for r in rounds], np.int64)
    i = np.searchsorted(starts, at, side="right") - 1
    inside = (i >= 0) & (at <= ends[np.maximum(i, 0)])
    return np.where(inside, i, NO_ID)


def repeated(ops: Operators, of_round: Ints) -> set[str]:
    """The names of operators that some round has more than once."""
    rows = np.flatnonzero((of_round != NO_ID) & ~ops.annotation)
    names, numbers = ops.name[rows], of_round[rows]
    order = np.lexsort((names.codes, numbers))
    same = (np.diff(names.codes[order]) == 0) & (np.diff(numbers[order]) == 0)
    found: Names = names[order[1:][same]]
    return found.distinct()


def round_of_activity(trace: Trace, links: Links, layout: Layout) -> Ints:
    """The round that caused each activity, else ``NO_ID``.

    The host time of the launch decides, so that late kernels belong to the round that launched
    them. Kineto keeps only some driver calls: an activity without a recorded call belongs to the
    round in which it ran, provided that it started between our two synchronisations.
    """
    acts = trace.activities
    linked = links.call_of_activity != NO_ID
    by_launch = round_of_time(
        layout.rounds, trace.calls.start[links.call_of_activity[linked]], late=False
    )
    found = np.full(len(acts), NO_ID, np.int64)
    found[linked] = by_launch
    orphans = ~linked & ~leaked(trace, links)
    found[orphans] = round_of_time(layout.rounds, acts.start[orphans], late=True)
    return found


def leaked(trace: Trace, links: Links) -> Bools:
    """Activities of work that was launched before the recording began: ids grow, and theirs are
    smaller than every call's of the process. Times tell nothing, since nearly all such activities
    start after the first call. An absent id further on is of a call that is not recorded."""
    acts, calls = trace.activities, trace.calls
    orphan = (links.call_of_activity == NO_ID) & (acts.correlation != NO_ID)
    if not orphan.any() or not len(calls):
        return np.zeros(len(acts), np.bool_)
    first = np.full(len(trace.process_of_thread), _END, np.int64)
    known = calls.correlation != NO_ID
    of_calls = trace.process_of_thread[calls.thread]
    np.minimum.at(first, of_calls[known], calls.correlation[known])
    found: Bools = orphan & (acts.correlation < first[processes_of_activities(trace)])
    return found
