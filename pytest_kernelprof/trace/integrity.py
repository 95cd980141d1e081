"""Whether a trace holds everything: every launch has its kernel, both sentinels are there.

torch.profiler can lose device events without a word (pytorch #192021 and others). A lost kernel
would let ``max_kernels(1)`` pass on broken code, so a count is trusted only when this says so.
A lost record leaves a gap. One that is written twice, moved or joined to the id of another leaves
none, but other fields of the file contradict it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from pytest_kernelprof.records.recording import GraphProof, Integrity, OwnNames
from pytest_kernelprof.trace import vocabulary
from pytest_kernelprof.trace.columns import KERNEL, MEMCPY, MEMSET, NO_ID, among
from pytest_kernelprof.trace.correlation import nearest, rows_of_threads
from pytest_kernelprof.units import first_of

if TYPE_CHECKING:
    import re
    from collections.abc import Sequence

    from pytest_kernelprof.trace.columns import Bools, Ints, Spans, Trace
    from pytest_kernelprof.trace.correlation import Layout, Reading


_MOST_NAMED = 3
_REMEDY = (
    "its work is not counted: wait for it inside the call (join the thread, take the future's "
    "result, await the task)"
)


def _check_late_work(reading: Reading) -> list[str]:
    """What to say of work that started on other threads outside of the rounds, or may have.

    Between rounds the thread that measures does nothing for the call, and other threads only what
    a call has left them; a ``setup`` is the exception, and its time is annotated.
    """
    left, names = reading.trace.recording.left_at_work, _late(reading)
    problems = [left_words(left)] if left else []
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
    return ", ".join(first_of(names, _MOST_NAMED, "..."))


def _late(reading: Reading) -> list[str]:
    """The operators that compute, or on a device the launches and copies, outside of the calls."""
    trace, main = reading.trace, reading.layout.thread
    if main == NO_ID:
        return []
    calls = trace.calls
    launched = reading.launches | calls.name.matching(vocabulary.MEMCPY_CALL)
    late_calls = launched & (calls.thread != main) & _outside(reading, calls.start)
    names: list[str] = calls.name[late_calls].tolist()
    if trace.recording.device_kind == "cpu":
        names += trace.operators.name[_late_operators(reading)].tolist()
    return names


def _late_operators(reading: Reading) -> Ints:
    ops, parent = reading.trace.operators, reading.parent
    noted = reading.trace.recording
    computing = frozenset((*(noted.compute_operators or ()), *noted.decomposing_operators))
    computes = ops.name.that(computing.__contains__) & ~ops.annotation
    rows: Ints = (computes & (ops.thread != reading.layout.thread)).nonzero()[0]
    # What began inside a call belongs to it, however long it takes.
    began = ops.start[nearest(parent, parent == NO_ID)[rows]]
    return rows[_outside(reading, began)]


def _outside(reading: Reading, at: Ints) -> Bools:
    """Which host times lie neither in a round nor in a ``setup``."""
    found: Bools = reading.layout.round_at(at) == NO_ID
    ops, setup = reading.trace.operators, OwnNames(reading.trace.recording.nonce).setup
    setups = ops.name.are(setup) & ops.annotation
    rows = (setups & (ops.thread == reading.layout.thread)).nonzero()[0]
    if len(rows):  # in order of their starts, as all tables are
        begun = np.searchsorted(ops.start[rows], at, side="right") - 1
        lasts = np.maximum.accumulate(ops.end[rows])
        found &= (begun < 0) | (at > lasts[np.maximum(begun, 0)])
    return found


def _check_repeated(reading: Reading) -> list[str]:
    trace, known = reading.trace, reading.call_of_activity
    acts, calls, ops = trace.activities, trace.calls, trace.operators
    places = (acts.device, acts.context, acts.stream)
    activities = _repeated(acts, acts.correlation, *places) & (reading.round_of_activity != NO_ID)
    # Of two with one id the call tells already, unless it is a graph launch or was not recorded.
    own_call = np.append(~calls.name.matching(vocabulary.MANY_ACTIVITIES), False)[known]
    activities &= ~own_call
    twice = _repeated(calls, calls.correlation, calls.thread) & (calls.correlation != NO_ID)
    twice &= reading.round_of_call != NO_ID
    operators = _repeated(ops, ops.external_id, ops.thread) & (ops.external_id > 0)
    operators &= reading.round_of_operator != NO_ID
    return [
        *_said(activities, acts, "kernels, copies or memsets are in the trace twice"),
        *_said(twice, calls, "calls are in the trace twice"),
        *_said(operators, ops, "operators are in the trace twice"),
    ]


def _repeated(table: Spans, *ids: Ints) -> Bools:
    """Which rows equal another one in time, name and ids."""
    found = np.zeros(len(table), np.bool_)
    near = np.zeros(len(table), np.bool_)
    near[1:] = table.start[1:] == table.start[:-1]
    near[:-1] |= near[1:]
    rows = near.nonzero()[0]
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
    trace, rows = reading.trace, reading.call_of_activity
    acts, calls = trace.activities, trace.calls
    linked = ((rows != NO_ID) & (reading.round_of_activity != NO_ID)).nonzero()[0]
    mine, its = acts.external_id[linked], calls.external_id[rows[linked]]
    known = (mine > 0) & (its > 0) & (its != calls.correlation[rows[linked]])
    wrong = np.zeros(len(acts), np.bool_)
    wrong[linked] = known & (mine != its) & (mine != acts.correlation[linked])
    return _said(wrong, acts, "kernels, copies or memsets name another operator than their calls")


def _check_order_of_calls(reading: Reading) -> list[str]:
    """Correlation ids are given in order of time. Held in sessions of ours only: files from
    elsewhere may have been put together from several."""
    calls = reading.trace.calls
    known = calls.correlation != NO_ID
    wrong = np.zeros(len(calls), np.bool_)
    wrong[known] = _overtaken(calls.start[known], calls.correlation[known], calls.thread[known])
    return _said(wrong, calls, "calls are not in the order of their correlation ids")


def _check_order_of_streams(reading: Reading) -> list[str]:
    """A stream runs what a thread launches on it in order; the nodes of a graph apart. Held in
    sessions of ours only: elsewhere several streams may bear one number."""
    acts, calls = reading.trace.activities, reading.trace.calls
    of_graph = np.append(calls.name.matching(vocabulary.GRAPH_LAUNCH), True)
    rows = (~of_graph[reading.call_of_activity]).nonzero()[0]
    call = reading.call_of_activity[rows]
    lanes = (calls.thread[call], acts.stream[rows], acts.context[rows], acts.device[rows])
    wrong = np.zeros(len(acts), np.bool_)
    wrong[rows] = _overtaken(acts.start[rows], calls.start[call], *lanes)
    return _said(wrong, acts, "kernels, copies or memsets ran before others launched before them")


def _overtaken(at: Ints, rank: Ints, *lanes: Ints) -> Bools:
    """Which rows come right after one of a higher rank in their lane: the same in all of these."""
    order = np.lexsort((at, *lanes))
    before, after = order[:-1], order[1:]
    wrong = np.zeros(len(at), np.bool_)
    wrong[after] = (at[before] < at[after]) & (rank[before] > rank[after])
    for lane in lanes:
        wrong[after] &= lane[before] == lane[after]
    return wrong


def _check_order_of_rounds(reading: Reading) -> list[str]:
    """We wait for the device after each round, so a round's work is done when the next one's
    begins: on the device and in the context of our sentinels, which are what we wait for."""
    trace, of_round = reading.trace, reading.round_of_activity
    acts, ran_by = trace.activities, reading.call_of_activity
    sentinels = (acts.kind == KERNEL) & (of_round == NO_ID) & (ran_by != NO_ID)
    ours = (of_round != NO_ID) & (ran_by != NO_ID)
    ours &= among(acts.device, acts.device[sentinels])
    ours &= among(acts.context, acts.context[sentinels])
    rows = ours.nonzero()[0]
    rows = rows[np.argsort(of_round[rows], kind="stable")]
    number, begins = of_round[rows], np.diff(of_round[rows], prepend=NO_ID).nonzero()[0]
    first, last = np.minimum.reduceat(acts.start[rows], begins), acts.end[rows]
    done = np.maximum.accumulate(np.maximum.reduceat(last, begins))
    early = number[begins[1:][first[1:] < done[:-1]]]
    named = ", ".join(map(str, early[:3].tolist()))
    words = f"work of a round runs before that of the round before it is done (round {named})"
    return [words] * bool(named)


def _said(wrong: Bools, table: Spans, words: str, more: str = "") -> list[str]:
    """One problem: how many rows are wrong, and which names they have; none where no row is."""
    if not wrong.any():
        return []
    return [f"{int(wrong.sum())} {words} ({vocabulary.tally(table.name[wrong])}){more}"]


_BUFFERS_FULL = "the profiler stopped collecting: its buffers were full; profile less work"
_PROVING_REPLAYS = 3

_SLOWEST = 0.8
_SLACK_US = 1.0
_FASTEST = 2.0
_MUCH_US = 1_000_000.0


def check_integrity(reading: Reading) -> Integrity:
    """Check a trace against the rules above; one of the CPU as far as they are about the host."""
    if reading.trace.device_kind == "cuda":
        found = _check_device(reading)
    else:
        found = Integrity((*_check_rounds(reading), *_check_late_work(reading)))
    forks = reading.trace.recording.forks
    return replace(found, cold=cold_signs(reading), clock=_check_clock(reading), forks=forks)


def _check_device(reading: Reading) -> Integrity:
    trace, ours = reading.trace, reading.round_of_activity
    expected = reading.launches & (reading.round_of_call != NO_ID) & ~_capturing(trace)
    matched = expected & reading.activities_of_call.any(axis=1)
    uncopied = _without_activity(reading, vocabulary.MEMCPY_CALL, MEMCPY)
    replays, replay_problems = _check_replays(reading)
    kernels = (trace.activities.kind == KERNEL) & (ours != NO_ID)
    problems = [
        *_check_rounds(reading),
        *_check_sentinels(reading.layout),
        *_said(expected & ~matched, trace.calls, "launch calls have no kernel in the trace"),
        *_said(uncopied, trace.calls, "memcpy calls have no copy in the trace"),
        *replay_problems,
        *_check_recorded(trace),
        *_check_steps(reading),
        *_check_duplicates(reading),
        *_check_durations(reading),
        *[_BUFFERS_FULL] * trace.recording.collection_stopped,
        *_check_late_work(reading),
        *_check_contexts(reading),
        *_check_repeated(reading),
        *_check_external_ids(reading),
    ]
    if reading.layout.annotated:
        problems += _check_order_of_calls(reading) + _check_order_of_streams(reading)
        problems += _check_order_of_rounds(reading)
    return Integrity(
        problems=tuple(problems),
        launches=int(expected.sum()),
        matched=int(matched.sum()),
        unknown_launches=int((kernels & (reading.call_of_activity == NO_ID)).sum()),
        leaked=int(reading.leaked.sum()),
        graph_replays=replays,
        clock_skew=_has_clock_skew(reading),
    )


def cold_signs(reading: Reading) -> tuple[str, ...]:
    """Names of the records of lazy loading, compilation or autotuning inside the rounds."""
    trace, ops = reading.trace, reading.trace.operators
    # What the compiler times by itself is no annotation, and no operator either.
    compiling = ops.annotation | ops.name.matching(vocabulary.TIMED)
    compiling &= ops.name.matching(vocabulary.COMPILATION)
    loading = trace.overheads.name.matching(vocabulary.COLD_OVERHEAD)
    calling = trace.calls.name.matching(vocabulary.COLD_CALL)
    signs: dict[str, None] = {}
    for table, chosen in ((trace.overheads, loading), (trace.calls, calling), (ops, compiling)):
        inside = reading.layout.round_at(table.start[chosen]) != NO_ID
        for name in table.name[chosen][inside]:
            signs[vocabulary.compilation_words(str(name)) if table is ops else str(name)] = None
    return (*signs, *(f"{who} benched" for who in trace.recording.autotuned))


def _capturing(trace: Trace) -> Bools:
    """Calls between the begin and the end of a graph capture on their thread: they record nodes
    and execute nothing."""
    calls = trace.calls
    begins = calls.name.matching(vocabulary.CAPTURE_BEGINS)
    ends = calls.name.matching(vocabulary.CAPTURE_ENDS)
    inside = np.zeros(len(calls), np.bool_)
    for rows in rows_of_threads(calls.thread) if begins.any() else ():
        last_begin = np.maximum.accumulate(np.where(begins[rows], rows, -1))
        last_end = np.maximum.accumulate(np.where(ends[rows], rows, -1))
        inside[rows] = (last_begin > last_end) & (rows < last_end[-1])
    return inside


def _check_rounds(reading: Reading) -> list[str]:
    """What to say where rounds are missing: our own sessions note how many they annotated, and
    number them from 0, so that one that is missing or repeated shows."""
    layout, taken = reading.layout, reading.trace.recording.rounds
    seen = len(layout.rounds) if layout.annotated else 0
    if taken is not None and seen != taken:
        return [
            f"{seen} of {taken} rounds are in the trace: the measured code started another "
            "profiler, which empties ours, or switched recording off "
            "(torch.autograd._enable_record_function); remove it"
        ]
    begun, ended = layout.begun, layout.ended
    if begun == ended == tuple(map(str, range(len(begun)))):
        return []
    return [
        f"the rounds in the trace are numbered {', '.join(begun) or 'not at all'} where they begin "
        f"and {', '.join(ended) or 'not at all'} where they end: some are lost or repeated"
    ]


def _check_sentinels(layout: Layout) -> list[str]:
    return [
        f"the {which} sentinel kernel of the session was not recorded"
        for which, seen in zip(("first", "last"), layout.sentinels_seen or (), strict=False)
        if not seen
    ]


def _without_activity(reading: Reading, named: re.Pattern[str], kind: int) -> Bools:
    """Which calls of the rounds have no activity of a kind, of those of a name that ought to. A
    kernel may stand in for it (peer access, small strided copies)."""
    found: Bools = reading.trace.calls.name.matching(named) & (reading.round_of_call != NO_ID)
    found &= ~reading.has(kind) & ~reading.has(KERNEL)
    if found.any():
        found &= ~_capturing(reading.trace)
    return found


def unrecorded_memsets(reading: Reading) -> int:
    """How many memset calls of the rounds have no memset in the trace. Healthy traces have such
    calls, too, so that is no loss, but then nobody can say how many memsets there were."""
    return int(_without_activity(reading, vocabulary.MEMSET_CALL, MEMSET).sum())


def _check_recorded(trace: Trace) -> list[str]:
    """A kernel that was lost is known by its call: without calls none can be missed."""
    if trace.back_end == vocabulary.MTIA:
        return [names_no_kernels(trace)]
    if len(trace.calls):
        return []
    if len(trace.activities):
        return ["the trace has no runtime calls, so a missing kernel would not be noticed"]
    return [
        "the trace lists a device but has no records of it, neither kernels nor runtime calls; "
        "record it with ProfilerActivity.CUDA, where the profiler may see the device"
    ]


def names_no_kernels(trace: Trace) -> str:
    """Why kernels cannot be counted where the device's records are no kernels; empty where they
    are."""
    words = "not available: the records of an MTIA device do not name its kernels"
    return words if trace.back_end == vocabulary.MTIA else ""


def _check_steps(reading: Reading) -> list[str]:
    """The device runs behind the host. So of a step that was chosen may be all that runs after its
    begin without a recorded call, until its stream comes to what was launched after the step."""
    acts, call = reading.trace.activities, reading.call_of_activity
    unknown = (call == NO_ID) & ~reading.leaked
    outside = np.append(reading.round_of_call == NO_ID, False)[call]
    if reading.layout.annotated or not (unknown.any() and outside.any()):
        return []
    (step,) = reading.layout.rounds
    later = outside & (reading.trace.calls.start[call] > step.end)
    places = np.stack((acts.device, acts.context, acts.stream))
    stream = np.unique(places, axis=1, return_inverse=True)[1].ravel()
    until = np.full(len(acts), np.iinfo(np.int64).max)
    np.minimum.at(until, stream[later], acts.start[later])
    possible = (acts.start >= step.start) & (acts.start < until[stream])
    unknown &= possible | (reading.round_of_activity != NO_ID)
    words = "kernels, copies or memsets have no recorded call, so their step is not known"
    return _said(unknown, acts, words)


def _check_duplicates(reading: Reading) -> list[str]:
    """Each call has one activity, but for those of graphs and batches."""
    calls = reading.trace.calls
    twice = (reading.activities_of_call.sum(axis=1) > 1) & (reading.round_of_call != NO_ID)
    twice &= ~calls.name.matching(vocabulary.MANY_ACTIVITIES)
    words = "calls have more than one activity"
    return _said(twice, calls, words, ": one is written twice, or calls share an id")


def _check_replays(reading: Reading) -> tuple[GraphProof, list[str]]:
    """Replays are proved where their graphs were seen captured, by a kernel for each kernel node.

    Others can only be compared from round to round: no trace shows what all replays lack, such
    as the later iterations of a WHILE node.
    """
    trace, round_of_call = reading.trace, reading.round_of_call
    are_graphs = trace.calls.name.matching(vocabulary.GRAPH_LAUNCH)
    replays = (are_graphs & (round_of_call != NO_ID)).nonzero()[0]
    if not len(replays):
        return "none", []
    children, seen = reading.activities_of_call[replays], trace.recording.replays or ()
    if conditional := sum(nodes is not None and nodes.conditional for nodes in seen):
        return "unproven", [
            f"{conditional} replays are of CUDA graphs with conditional nodes, and the profiler "
            "records only the first iteration of their loops"
        ]
    known = [nodes for nodes in seen if nodes is not None]
    problems = _check_rounds_of_replays(round_of_call[replays], children)
    if len(known) != len(seen) or len(known) != len(replays):
        return "unproven", problems
    kernels = children[:, KERNEL].tolist()
    if len(set(trace.calls.thread[replays].tolist())) > 1:  # their order is unknown
        known, kernels = sorted(known, key=lambda one: one.kernels), sorted(kernels)
    pairs = list(zip(known, kernels, strict=True))
    if short := [f"{n} of {one.kernels}" for one, n in pairs if n < one.kernels]:
        problems.append(
            f"{len(short)} replays of CUDA graphs have fewer kernels than kernel nodes ({short[0]})"
        )
    fit = all(n <= one.kernels + one.copies for one, n in pairs)
    return ("proved" if fit and not problems else "unproven"), problems


def _check_rounds_of_replays(rounds: Ints, children: Ints) -> list[str]:
    """What to say of replays whose children differ from round to round."""
    of_rounds = np.split(children, np.diff(rounds).nonzero()[0] + 1)  # in order of time
    are_alike = all(np.array_equal(one, of_rounds[0]) for one in of_rounds)
    if are_alike or len(of_rounds) < _PROVING_REPLAYS:
        return []
    return [
        "graph replays have different numbers of activities from round to round "
        f"({', '.join(str(one.sum()) for one in of_rounds)})"
    ]


def _check_durations(reading: Reading) -> list[str]:
    acts, ours = reading.trace.activities, reading.round_of_activity
    least = acts.start if reading.trace.whole_microseconds else acts.start + 1
    wrong = (ours != NO_ID) & (acts.kind == KERNEL) & (acts.end < least)
    return _said(wrong, acts, "kernels have no positive duration")


def _check_contexts(reading: Reading) -> list[str]:
    """We wait for torch's context alone: of another one (PyCUDA's own, for example) a kernel that
    still runs is missing. Its launch call tells, where the profiler records that."""
    acts, ours = reading.trace.activities, reading.round_of_activity
    orphan = reading.call_of_activity == NO_ID
    kernels = acts.kind == KERNEL
    sentinels = kernels & (ours == NO_ID) & ~orphan
    foreign = kernels & (ours != NO_ID) & orphan & among(acts.device, acts.device[sentinels])
    foreign &= ~among(acts.context, acts.context[sentinels])
    return _said(
        foreign,
        acts,
        "kernels ran in another CUDA context than torch's, by calls that the profiler does not "
        "record",
        "; more may have run on, unseen: wait for that context at the end of the measured code, "
        "and launch by cuLaunchKernel",
    )


def _has_clock_skew(reading: Reading) -> bool:
    """Whether an activity starts before its own launch: the clocks of host and device disagree."""
    trace, linked = reading.trace, reading.call_of_activity != NO_ID
    launched = trace.calls.start[reading.call_of_activity[linked]]
    return bool((trace.activities.start[linked] < launched).any())


def _check_clock(reading: Reading) -> str:
    """Why the clock that times calls is not believed; empty where it runs as the trace's own does,
    or where rounds were not clocked.

    A test may stop, turn back or speed up the clocks of Python. Ours are taken before tests run, so
    this finds those that were patched earlier still, before the package was loaded.

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
        "not available: the clock of this process does not run as the profiler's does (the "
        f"profiled rounds took {sum(clocked):.1f}us by the one, {sum(traced):.1f}us by the "
        "other): something replaced Python's clocks before pytest-kernelprof was loaded"
    )
