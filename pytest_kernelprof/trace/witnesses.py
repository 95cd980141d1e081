"""What a trace says twice: where its two words differ, something happened to it.

A record that is lost leaves a gap, which ``completeness`` looks for. One that is written twice,
moved or joined to another's id leaves none; but other fields of the file know better, and what
stands here held in every healthy recording that was tried.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pytest_kernelprof.trace.arrays import KERNEL, NO_ID
from pytest_kernelprof.trace.members import among
from pytest_kernelprof.trace.rounds import marks_of_rounds, round_of_time
from pytest_kernelprof.trace.vocabulary import GRAPH_LAUNCH, MANY_ACTIVITIES, matches, tally

if TYPE_CHECKING:
    from pytest_kernelprof.trace.arrays import Bools, Ints
    from pytest_kernelprof.trace.model import Spans, Trace
    from pytest_kernelprof.trace.reading import Reading
    from pytest_kernelprof.trace.rounds import Layout


def check_witnesses(reading: Reading) -> list[str]:
    """What to say of records in the rounds that contradict each other."""
    return [
        *_check_repeated(reading),
        *_check_external_ids(reading),
        *_check_order_of_calls(reading),
        *_check_order_of_streams(reading),
        *_check_order_of_rounds(reading),
    ]


def check_numbering(trace: Trace, layout: Layout) -> list[str]:
    """Our rounds are numbered from 0, so that one that is missing or there twice shows."""
    marks = marks_of_rounds(trace)
    if not layout.annotated and not marks.ends:
        return []
    begun, ended = ([number for number, _ in found] for found in (marks.begins, marks.ends))
    if begun == ended == [str(i) for i in range(len(begun))]:
        return []
    return [
        f"the rounds in the trace are numbered {', '.join(begun) or 'not at all'} where they begin "
        f"and {', '.join(ended) or 'not at all'} where they end: some are lost or repeated"
    ]


def _check_repeated(reading: Reading) -> list[str]:
    trace, links = reading.trace, reading.links
    acts, calls, ops = trace.activities, trace.calls, trace.operators
    of_operator = round_of_time(reading.layout.rounds, ops.start, late=False)
    places = (acts.device, acts.context, acts.stream)
    activities = _repeated(acts, acts.correlation, *places) & (reading.round_of_activity != NO_ID)
    # Of two with one id the call tells already, unless it is a graph launch or was not recorded.
    known = links.call_of_activity
    own_call = np.append(~matches(calls.name, MANY_ACTIVITIES), False)[known]
    activities &= ~own_call
    twice = _repeated(calls, calls.correlation, calls.thread) & (calls.correlation != NO_ID)
    operators = _repeated(ops, ops.external_id, ops.thread) & (ops.external_id > 0)
    return [
        *_said(activities, acts, "kernels, copies or memsets are in the trace twice"),
        *_said(twice & (reading.round_of_call != NO_ID), calls, "calls are in the trace twice"),
        *_said(operators & (of_operator != NO_ID), ops, "operators are in the trace twice"),
    ]


def _repeated(table: Spans, *ids: Ints) -> Bools:
    """Which rows equal another one in time, name and ids."""
    found = np.zeros(len(table), np.bool_)
    near = np.zeros(len(table), np.bool_)
    near[1:] = table.start[1:] == table.start[:-1]
    near[:-1] |= near[1:]
    rows = np.flatnonzero(near)
    columns = [column[rows] for column in (*ids, table.end, table.start)]
    order = np.lexsort(columns)
    same = table.name.codes[rows[order[1:]]] == table.name.codes[rows[order[:-1]]]
    for column in columns:
        same &= column[order[1:]] == column[order[:-1]]
    found[rows[order[1:]]] = same
    return found


def _check_external_ids(reading: Reading) -> list[str]:
    """The profiler gives a call and what it launched the same operator's id; where it knows none,
    some versions write the correlation id."""
    trace, rows = reading.trace, reading.links.call_of_activity
    acts, calls = trace.activities, trace.calls
    linked = np.flatnonzero((rows != NO_ID) & (reading.round_of_activity != NO_ID))
    mine, its = acts.external_id[linked], calls.external_id[rows[linked]]
    known = (mine > 0) & (its > 0) & (its != calls.correlation[rows[linked]])
    wrong = np.zeros(len(acts), np.bool_)
    wrong[linked] = known & (mine != its) & (mine != acts.correlation[linked])
    return _said(wrong, acts, "kernels, copies or memsets name another operator than their calls")


def _check_order_of_calls(reading: Reading) -> list[str]:
    """Correlation ids are given in order of time. Held in sessions of ours only: files from
    elsewhere may have been put together from several."""
    calls = reading.trace.calls
    if not reading.layout.annotated or len(calls) < 2:
        return []
    rows = np.flatnonzero(calls.correlation != NO_ID)
    rows = rows[np.lexsort((calls.start[rows], calls.thread[rows]))]
    before, after = rows[:-1], rows[1:]
    wrong = np.zeros(len(calls), np.bool_)
    wrong[after] = (
        (calls.thread[before] == calls.thread[after])
        & (calls.start[before] < calls.start[after])
        & (calls.correlation[before] > calls.correlation[after])
    )
    return _said(wrong, calls, "calls are not in the order of their correlation ids")


def _check_order_of_streams(reading: Reading) -> list[str]:
    """A stream runs what a thread launches on it in order; the nodes of a graph apart. Held in
    sessions of ours only: elsewhere several streams may bear one number."""
    trace, links = reading.trace, reading.links
    acts, calls = trace.activities, trace.calls
    if not reading.layout.annotated or not len(calls):
        return []
    of_graph = np.append(matches(calls.name, GRAPH_LAUNCH), True)[links.call_of_activity]
    rows = np.flatnonzero(~of_graph)
    call = links.call_of_activity[rows]
    lanes = (calls.thread[call], acts.stream[rows], acts.context[rows], acts.device[rows])
    order = np.lexsort((acts.start[rows], *lanes))
    before, after = order[:-1], order[1:]
    late = (acts.start[rows[before]] < acts.start[rows[after]]) & (
        calls.start[call[before]] > calls.start[call[after]]
    )
    for lane in lanes:
        late &= lane[before] == lane[after]
    wrong = np.zeros(len(acts), np.bool_)
    wrong[rows[after]] = late
    return _said(wrong, acts, "kernels, copies or memsets ran before others launched before them")


def _check_order_of_rounds(reading: Reading) -> list[str]:
    """We wait for the device after each round, so a round's work is done when the next one's
    begins: on the device and in the context of our sentinels, which are what we wait for."""
    trace, of_round = reading.trace, reading.round_of_activity
    acts, ran_by = trace.activities, reading.links.call_of_activity
    if not reading.layout.annotated:
        return []
    sentinels = (acts.kind == KERNEL) & (of_round == NO_ID) & (ran_by != NO_ID)
    ours = (of_round != NO_ID) & (ran_by != NO_ID)
    ours &= among(acts.device, acts.device[sentinels])
    ours &= among(acts.context, acts.context[sentinels])
    rows = np.flatnonzero(ours)
    rows = rows[np.argsort(of_round[rows], kind="stable")]
    number, begins = of_round[rows], np.flatnonzero(np.diff(of_round[rows], prepend=NO_ID))
    if len(begins) < 2:
        return []
    first, last = np.minimum.reduceat(acts.start[rows], begins), acts.end[rows]
    done = np.maximum.accumulate(np.maximum.reduceat(last, begins))
    early = first[1:] < done[:-1]
    if not early.any():
        return []
    named = ", ".join(str(one) for one in number[begins[1:][early]][:3].tolist())
    return [f"work of a round runs before that of the round before it is done (round {named})"]


def _said(wrong: Bools, table: Spans, words: str) -> list[str]:
    if not wrong.any():
        return []
    return [f"{int(wrong.sum())} {words} ({tally(table.name[wrong])})"]
