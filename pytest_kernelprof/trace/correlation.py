"""Who caused what: activity -> call -> operator -> enclosing operators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pytest_kernelprof.trace.arrays import KERNEL, NO_ID
from pytest_kernelprof.trace.members import among
from pytest_kernelprof.trace.nesting import enclosing
from pytest_kernelprof.trace.vocabulary import LAUNCH, NO_KERNEL, matches

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_kernelprof.trace.arrays import Bools, Ints
    from pytest_kernelprof.trace.model import Trace


_MICROSECOND = 1_000
# Of so many processes it is asked whose a device is, those with the most calls first.
_MOST_PROCESSES = 64


@dataclass(frozen=True, slots=True, eq=False)
class Links:
    """Indices into the tables of a trace; ``NO_ID`` where there is no partner.

    Attributes:
        parent: for each operator the operator that encloses it on its thread.
        call_of_activity: for each activity its launch call, joined by correlation id.
        operator_of_call: for each call its innermost operator, joined by External id where that
            operator runs on the call's thread then, else by time on the thread. The two id spaces
            are different numbers (pytorch #124388).
    """

    parent: Ints
    call_of_activity: Ints
    operator_of_call: Ints


def link(trace: Trace) -> Links:
    """Join the tables of a trace."""
    calls, acts = trace.calls, trace.activities
    of_calls = trace.process_of_thread[calls.thread]
    call_of_activity = _find(
        calls.correlation, acts.correlation, of_calls, processes_of_activities(trace)
    )
    operator_of_call = _operators_by_id(trace)
    # A thread without operators, as one that polls, has none around its calls.
    has_operators = np.zeros(len(trace.threads), np.bool_)
    has_operators[trace.operators.thread] = True
    left = np.flatnonzero((operator_of_call == NO_ID) & has_operators[calls.thread])
    parent, operator_of_call[left] = _by_time(trace, left)
    return Links(parent, call_of_activity, operator_of_call)


def processes_of_activities(trace: Trace) -> Ints:
    """The process that each activity belongs to.

    The file names the device in its place. With several ranks in a file, a device belongs to the
    process whose calls explain most of its work; ids alone are no proof, since each has its own.
    """
    calls, acts = trace.calls, trace.activities
    of_calls = trace.process_of_thread[calls.thread]
    processes, sizes = np.unique(of_calls, return_counts=True)
    if len(processes) < 2 or not len(acts):
        only = int(processes[0]) if len(processes) else NO_ID
        return np.full(len(acts), only, np.int64)
    processes = processes[np.argsort(-sizes, kind="stable")][:_MOST_PROCESSES]
    device = acts.process.astype(np.int64) * (int(acts.device.max()) + 2) + acts.device
    devices, of_device = np.unique(device, return_inverse=True)
    explained = []
    for one in processes:
        ids = calls.correlation[of_calls == one]
        count = np.bincount(of_device, among(acts.correlation, ids), len(devices))
        # Where two explain as much, it is the one that has less without it.
        explained.append(count + 0.5 * count / len(ids))
    owners: Ints = processes[np.argmax(explained, axis=0)][of_device]
    return owners


def _find(keys: Ints, wanted: Ints, of_keys: Ints, of_wanted: Ints) -> Ints:
    """Index of the first row of ``keys`` of the same process that equals each wanted value, else
    ``NO_ID``."""
    if not len(keys) or not len(wanted):
        return np.full(len(wanted), NO_ID, np.int64)
    if of_keys.any() or of_wanted.any():
        codes = np.unique(np.concatenate([keys, wanted]), return_inverse=True)[1]
        base = int(codes.max()) + 1
        known = wanted != NO_ID
        keys = codes[: len(keys)] + of_keys * base
        wanted = np.where(known, codes[len(keys) :] + of_wanted * base, NO_ID)
    order = np.argsort(keys, kind="stable")
    at = np.minimum(np.searchsorted(keys[order], wanted), len(keys) - 1)
    found = order[at]
    return np.where((keys[found] == wanted) & (wanted != NO_ID), found, NO_ID)


def _operators_by_id(trace: Trace) -> Ints:
    """The operator of each call's External id, where that operator runs on the call's thread at
    the time: files of 2022 and 2023 repeat the correlation id there, which is another number."""
    ops, calls = trace.operators, trace.calls
    process = trace.process_of_thread
    found = _find(ops.external_id, calls.external_id, process[ops.thread], process[calls.thread])
    at = np.flatnonzero(found != NO_ID)
    above = found[at]
    slack = _MICROSECOND if trace.whole_microseconds else 0
    fits = (
        (ops.thread[above] == calls.thread[at])
        & (ops.start[above] <= calls.start[at])
        & (calls.start[at] <= ops.end[above] + slack)
    )
    found[at[~fits]] = NO_ID
    return found


def _by_time(trace: Trace, calls: Ints) -> tuple[Ints, Ints]:
    """The operator that encloses each operator on its thread, and the innermost one around each of
    these calls."""
    ops, count = trace.operators, len(trace.operators)
    at = trace.calls.start[calls]
    start = np.concatenate([ops.start, at])
    end = np.concatenate([ops.end, at])
    thread = np.concatenate([ops.thread, trace.calls.thread[calls]])
    # A call at the very end of an operator is still its own.
    found = enclosing(thread, start, end, np.arange(len(start)) >= count)
    return found[:count], found[count:]


def ancestors(links: Links, operator: int) -> Iterator[int]:
    """The operator itself, then those that enclose it, from the inside out."""
    while operator != NO_ID:
        yield operator
        operator = int(links.parent[operator])


def within(parent: Ints, chosen: Bools) -> Bools:
    """Which operators lie in one of the chosen, at any depth; ``parent`` as in ``Links``."""
    above = np.append(parent, NO_ID)  # NO_ID points to the last, which has none above it
    found = np.append(chosen, False)[above]
    while (above != NO_ID).any():  # twice as far up each time
        found |= found[above]
        above = above[above]
    inside: Bools = found[:-1]
    return inside


def around(parent: Ints, chosen: Bools) -> Bools:
    """Which operators have one of the chosen in them, at any depth; ``parent`` as in ``Links``."""
    found, above = np.zeros(len(parent) + 1, bool), parent[chosen]
    while len(above := np.unique(above[above != NO_ID])):
        found[above] = True
        above = parent[above]
    return found[:-1]


def nearest(parent: Ints, chosen: Bools) -> Ints:
    """For each operator itself where it is chosen, else the innermost of the chosen around it, or
    ``NO_ID``. One more at the end is that of ``NO_ID``."""
    found = np.append(np.where(chosen, np.arange(len(parent)), parent), NO_ID)
    while not np.array_equal(further := found[found], found):
        found = further
    return found


def outermost(parent: Ints) -> Ints:
    """For each operator the outermost one around it, or itself."""
    rows = np.arange(len(parent))
    found = np.where(parent == NO_ID, rows, parent)
    while not np.array_equal(further := found[found], found):
        found = further
    return found


def launch_calls(trace: Trace, links: Links) -> Bools:
    """Which calls are kernel launches: those that share a correlation id with a kernel, and those
    named like one (host functions, memcpys and memsets apart). One graph launch is one."""
    calls = trace.calls
    launches = matches(calls.name, LAUNCH) & ~matches(calls.name, NO_KERNEL)
    with_kernel = links.call_of_activity[trace.activities.kind == KERNEL]
    launches[with_kernel[with_kernel != NO_ID]] = True
    return launches


def calls_with(trace: Trace, links: Links, kind: int) -> Bools:
    """Which calls have an activity of a kind (``KERNEL``, ``MEMCPY``, ``MEMSET``)."""
    found = np.zeros(len(trace.calls), np.bool_)
    calls = links.call_of_activity[trace.activities.kind == kind]
    found[calls[calls != NO_ID]] = True
    return found
