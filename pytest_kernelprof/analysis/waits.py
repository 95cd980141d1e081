"""The waits of the host for the device: which calls wait, one wait an operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pytest_kernelprof.schema.recording import OwnNames
from pytest_kernelprof.trace.arrays import NO_ID
from pytest_kernelprof.trace.members import among
from pytest_kernelprof.trace.rounds import round_of_time
from pytest_kernelprof.trace.vocabulary import (
    CLOSING_CALL,
    NOT_A_HOST_WAIT,
    POLLING,
    TO_PAGEABLE,
    WAIT_CALL,
    matches,
)

if TYPE_CHECKING:
    from pytest_kernelprof.trace.arrays import Bools
    from pytest_kernelprof.trace.model import Trace
    from pytest_kernelprof.trace.reading import Reading


def host_waits(reading: Reading, waiting: Bools) -> list[list[int]]:
    """The waits of the host for the device, a list of calls for each round. ``waiting``: see
    ``waiting_calls``.

    One wait an operator, however many calls it takes: the first stands for it. ``NO_ID`` stands
    for a wait whose call the profiler does not record.
    """
    trace, links, of_round = reading.trace, reading.links, reading.round_of_call
    waits: list[list[int]] = [[] for _ in range(reading.rounds)]
    seen: set[int] = set()
    paused = _paused_calls(trace)
    closing = NO_ID if reading.layout.annotated else _closing_call(trace)
    for call in np.flatnonzero(waiting).tolist():
        if call == closing or paused[call]:
            continue
        operator = int(links.operator_of_call[call])
        is_operator = operator != NO_ID and not trace.operators.annotation[operator]
        if of_round[call] == NO_ID or (is_operator and operator in seen):
            continue
        if is_operator:
            seen.add(operator)
        waits[of_round[call]].append(call)
    unlinked = ~among(trace.waits.correlation, trace.calls.correlation) & _is_host_wait(trace)
    for at in round_of_time(reading.layout.rounds, trace.waits.start[unlinked], late=False):
        if at != NO_ID:
            waits[at].append(NO_ID)
    return waits


def waiting_calls(reading: Reading) -> Bools:
    """Calls in which the host waits for the device; polling is none.

    Where the profiler records synchronisations (category ``cuda_sync``) they decide, else the
    calls' names do. A copy to pageable memory returns when it is done, also without a
    synchronising call: it waits too.
    """
    trace = reading.trace
    calls = trace.calls
    recorded = calls.correlation[
        among(calls.correlation, trace.waits.correlation[_is_host_wait(trace)])
    ]
    waits: Bools = among(calls.correlation, recorded) & (calls.correlation != NO_ID)
    waits = (waits | matches(calls.name, WAIT_CALL)) & ~matches(calls.name, POLLING)
    to_pageable = matches(trace.activities.name, TO_PAGEABLE)
    copies = reading.links.call_of_activity[to_pageable & (reading.round_of_activity != NO_ID)]
    waits[copies[copies != NO_ID]] = True
    return waits


def _paused_calls(trace: Trace) -> Bools:
    """Calls of a thread from where our session begins to pause until it has gone on.

    Our own wait is among them, and one of torch's, as it switches collection off (2.11).
    """
    names, operators, calls = OwnNames(trace.recording.nonce), trace.operators, trace.calls
    pause, resume = names.pause, names.resume
    paused = np.zeros(len(calls), np.bool_)
    begun: dict[int, int] = {}
    for at in np.flatnonzero(operators.annotation).tolist():
        name, thread = operators.name[at], int(operators.thread[at])
        if name == pause:
            begun[thread], until = int(operators.start[at]), int(operators.end[at])
        elif name == resume and thread in begun:
            until = int(operators.start[at])
        else:
            continue
        first, last = np.searchsorted(calls.start, (begun[thread], until))
        paused[first:last] |= calls.thread[first:last] == thread
    return paused


def _closing_call(trace: Trace) -> int:
    """The synchronisation with which the profiler ends every recording, where it is the last call
    of the trace. In our own sessions it lies outside the rounds."""
    last = len(trace.calls) - 1
    closes = last >= 0 and CLOSING_CALL.search(trace.calls.name[last]) is not None
    return last if closes else NO_ID


def _is_host_wait(trace: Trace) -> Bools:
    return np.logical_not(matches(trace.waits.name, NOT_A_HOST_WAIT))
