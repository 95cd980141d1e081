"""Who caused what: activity -> call -> operator -> enclosing operators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pytest_kernelprof.trace.model import KERNEL, NO_ID
from pytest_kernelprof.trace.vocabulary import LAUNCH, NO_KERNEL, matches

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_kernelprof.trace.model import Bools, Ints, Trace


@dataclass(frozen=True, slots=True, eq=False)
class Links:
    """Indices into the tables of a trace; ``NO_ID`` where there is no partner.

    Attributes:
        parent: for each operator the operator that encloses it on its thread.
        call_of_activity: for each activity its launch call, joined by correlation id.
        operator_of_call: for each call its innermost operator, joined by External id where the
            call carries one, else by time on the same thread. The two id spaces are different
            numbers (pytorch #124388).
    """

    parent: Ints
    call_of_activity: Ints
    operator_of_call: Ints


def link(trace: Trace) -> Links:
    """Join the tables of a trace."""
    parent = _enclosing(trace)
    return Links(
        parent,
        _find(trace.calls.correlation, trace.activities.correlation),
        _operators_of_calls(trace, parent),
    )


def _find(keys: Ints, wanted: Ints) -> Ints:
    """Index of the first row of ``keys`` that equals each wanted value, else ``NO_ID``."""
    if not len(keys) or not len(wanted):
        return np.full(len(wanted), NO_ID, np.int64)
    order = np.argsort(keys, kind="stable")
    at = np.minimum(np.searchsorted(keys[order], wanted), len(keys) - 1)
    found = order[at]
    return np.where((keys[found] == wanted) & (wanted != NO_ID), found, NO_ID)


def _enclosing(trace: Trace) -> Ints:
    ops = trace.operators
    parent = np.full(len(ops), NO_ID, np.int64)
    # An operator that starts with its parent is shorter: longest first among equal starts.
    order = np.lexsort((-ops.end, ops.start, ops.thread))
    threads, ends = ops.thread[order].tolist(), ops.end[order].tolist()
    starts, parents = ops.start[order].tolist(), [NO_ID] * len(ops)
    open_spans: list[int] = []
    for i, (thread, start) in enumerate(zip(threads, starts, strict=True)):
        while open_spans and (threads[open_spans[-1]] != thread or ends[open_spans[-1]] <= start):
            open_spans.pop()
        if open_spans:
            parents[i] = open_spans[-1]
        open_spans.append(i)
    found = np.array(parents, np.int64)
    parent[order] = np.where(found >= 0, order[found], NO_ID)
    return parent


def _operators_of_calls(trace: Trace, parent: Ints) -> Ints:
    ops, calls = trace.operators, trace.calls
    found = _find(ops.external_id, calls.external_id)
    for i in np.flatnonzero(found == NO_ID):
        found[i] = innermost(trace, parent, int(calls.thread[i]), int(calls.start[i]))
    return found


def innermost(trace: Trace, parent: Ints, thread: int, at: int) -> int:
    """The innermost operator that runs on a thread at a time (ns), else ``NO_ID``."""
    ops = trace.operators
    i = int(np.searchsorted(ops.start, at, side="right")) - 1
    while i >= 0 and ops.thread[i] != thread:
        i -= 1
    while i >= 0 and ops.end[i] < at:
        i = int(parent[i])
    return i


def ancestors(links: Links, operator: int) -> Iterator[int]:
    """The operator itself, then those that enclose it, from the inside out."""
    while operator != NO_ID:
        yield operator
        operator = int(links.parent[operator])


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
