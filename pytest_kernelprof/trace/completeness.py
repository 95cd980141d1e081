"""Whether a trace holds everything: every launch has its kernel, both sentinels are there.

torch.profiler can lose device events without a word (pytorch #192021 and others). A lost kernel
would let ``max_kernels(1)`` pass on broken code, so a count is trusted only when this says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pytest_kernelprof.schema.run import GraphProof, Integrity
from pytest_kernelprof.trace.arrays import KERNEL, MEMCPY, MEMSET, NO_ID
from pytest_kernelprof.trace.correlation import calls_with
from pytest_kernelprof.trace.late_work import check_late_work
from pytest_kernelprof.trace.members import among
from pytest_kernelprof.trace.rounds import leaked, round_of_time
from pytest_kernelprof.trace.vocabulary import (
    CAPTURE_BEGINS,
    CAPTURE_ENDS,
    COLD_CALL,
    COLD_OVERHEAD,
    COMPILATION,
    GRAPH_LAUNCH,
    MANY_ACTIVITIES,
    MEMCPY_CALL,
    MEMSET_CALL,
    MTIA,
    TIMED,
    compilation_words,
    matches,
    tally,
)
from pytest_kernelprof.trace.witnesses import check_numbering, check_witnesses

if TYPE_CHECKING:
    from pytest_kernelprof.trace.arrays import Bools, Ints
    from pytest_kernelprof.trace.correlation import Links
    from pytest_kernelprof.trace.model import Trace
    from pytest_kernelprof.trace.reading import Reading
    from pytest_kernelprof.trace.rounds import Layout

_PROVING_REPLAYS = 3

_SLOWEST = 0.8
_SLACK_US = 1.0
_FASTEST = 2.0
_MUCH_US = 1_000_000.0


def check_integrity(reading: Reading) -> Integrity:
    """Check a device trace against the rules above."""
    trace, links, ours = reading.trace, reading.links, reading.round_of_activity
    capturing = _capturing(trace)
    expected = reading.launches & (reading.round_of_call != NO_ID) & ~capturing
    ran = np.zeros(len(trace.calls), np.bool_)
    ran[links.call_of_activity[links.call_of_activity != NO_ID]] = True
    matched = expected & ran
    replays, replay_problems = _check_replays(reading)
    kernels = (trace.activities.kind == KERNEL) & (ours != NO_ID)
    problems = [
        *check_rounds(trace, reading.layout),
        *_check_sentinels(reading.layout),
        *_check_launches(trace, expected & ~matched),
        *_check_memcpys(reading, capturing),
        *replay_problems,
        *_check_recorded(trace),
        *_check_duplicates(reading),
        *_check_durations(reading),
        *_check_recording(trace),
        *check_late_work(reading),
        *_check_contexts(reading),
        *check_witnesses(reading),
    ]
    return Integrity(
        problems=tuple(problems),
        launches=int(expected.sum()),
        matched=int(matched.sum()),
        unknown_launches=int((kernels & (links.call_of_activity == NO_ID)).sum()),
        leaked=int(leaked(trace, links).sum()),
        graph_replays=replays,
        clock_skew=has_clock_skew(trace, links),
        cold=cold_signs(trace, reading.layout),
        settled=trace.recording.settled,
        retakes=trace.recording.retakes,
        clock=check_clock(reading),
        forks=trace.recording.forks,
    )


def cold_signs(trace: Trace, layout: Layout) -> tuple[str, ...]:
    """Names of the records of lazy loading, compilation or autotuning inside the rounds."""
    ops = trace.operators
    # What the compiler times by itself is no annotation, and no operator either.
    compiling = matches(ops.name, COMPILATION) & (ops.annotation | matches(ops.name, TIMED))
    loading = matches(trace.overheads.name, COLD_OVERHEAD)
    calling = matches(trace.calls.name, COLD_CALL)
    signs: dict[str, None] = {}
    for table, chosen in ((trace.overheads, loading), (trace.calls, calling), (ops, compiling)):
        inside = round_of_time(layout.rounds, table.start[chosen], late=False) != NO_ID
        for name in table.name[chosen][inside]:
            signs[compilation_words(str(name)) if table is ops else str(name)] = None
    return (*signs, *(f"{who} benched" for who in trace.recording.autotuned))


def _capturing(trace: Trace) -> Bools:
    """Calls between the begin and the end of a graph capture on their thread: they record nodes
    and execute nothing."""
    calls = trace.calls
    begins, ends = matches(calls.name, CAPTURE_BEGINS), matches(calls.name, CAPTURE_ENDS)
    inside = np.zeros(len(calls), np.bool_)
    if not begins.any():
        return inside
    order = np.argsort(calls.thread, kind="stable")  # of each thread in order of time
    rows = np.arange(len(calls))
    thread, begun, ended = calls.thread[order], begins[order], ends[order]
    first = np.maximum.accumulate(np.where(np.diff(thread, prepend=-1) != 0, rows, 0))
    last_begin = np.maximum.accumulate(np.where(begun, rows, -1))
    last_end = np.maximum.accumulate(np.where(ended, rows, -1))
    next_end = np.minimum.accumulate(np.where(ended, rows, len(rows))[::-1])[::-1]
    closed = np.append(thread, -1)[next_end] == thread
    capturing = (last_begin >= first) & (last_begin > last_end) & closed
    inside[order] = capturing
    return inside


def check_rounds(trace: Trace, layout: Layout) -> list[str]:
    """What to say where rounds are missing: our own sessions note how many they annotated."""
    taken, seen = trace.recording.rounds, len(layout.rounds) if layout.annotated else 0
    if taken is None or seen == taken:
        return check_numbering(trace, layout)
    return [
        f"{seen} of {taken} rounds are in the trace: the measured code started another profiler, "
        "which empties ours, or switched recording off "
        "(torch.autograd._enable_record_function); remove it"
    ]


def _check_sentinels(layout: Layout) -> list[str]:
    if layout.sentinels_seen is None:
        return []
    return [
        f"the {which} sentinel kernel of the session was not recorded"
        for which, seen in zip(("first", "last"), layout.sentinels_seen, strict=True)
        if not seen
    ]


def _check_launches(trace: Trace, missing: Bools) -> list[str]:
    names = trace.calls.name[missing]
    if not len(names):
        return []
    return [f"{len(names)} launch calls have no kernel in the trace ({tally(names)})"]


def _check_memcpys(reading: Reading, capturing: Bools) -> list[str]:
    trace, links = reading.trace, reading.links
    copies = matches(trace.calls.name, MEMCPY_CALL) & (reading.round_of_call != NO_ID) & ~capturing
    # A copy may also be carried out by a kernel (peer access, small strided copies).
    copies &= ~calls_with(trace, links, MEMCPY) & ~calls_with(trace, links, KERNEL)
    if not copies.any():
        return []
    names = trace.calls.name[copies]
    return [f"{len(names)} memcpy calls have no copy in the trace ({tally(names)})"]


def unrecorded_memsets(reading: Reading) -> int:
    """How many memset calls of the rounds have no memset in the trace. Healthy traces have such
    calls, too, so that is no loss, but then nobody can say how many memsets there were."""
    trace, links = reading.trace, reading.links
    found = matches(trace.calls.name, MEMSET_CALL) & (reading.round_of_call != NO_ID)
    found &= ~calls_with(trace, links, MEMSET) & ~calls_with(trace, links, KERNEL)
    return int((found & ~_capturing(trace)).sum()) if found.any() else 0


def _check_recorded(trace: Trace) -> list[str]:
    """A kernel that was lost is known by its call: without calls none can be missed."""
    if trace.back_end == MTIA:
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
    if trace.back_end != MTIA:
        return ""
    return "not available: the records of an MTIA device do not name its kernels"


def _check_duplicates(reading: Reading) -> list[str]:
    """Each call has one activity, but for those of graphs and batches."""
    trace, calls = reading.trace, reading.links.call_of_activity
    children = np.bincount(calls[calls != NO_ID], minlength=len(trace.calls))
    twice = (children > 1) & (reading.round_of_call != NO_ID)
    twice &= ~matches(trace.calls.name, MANY_ACTIVITIES)
    if not twice.any():
        return []
    names = tally(trace.calls.name[twice])
    return [
        f"{int(twice.sum())} calls have more than one activity ({names}): "
        "one is written twice, or calls share an id"
    ]


def _check_replays(reading: Reading) -> tuple[GraphProof, list[str]]:
    """Replays are proved where their graphs were seen captured, by a kernel for each kernel node.

    Of others only that they differ from round to round can be told: what each replay lacks alike,
    as the later iterations of a WHILE node, no trace shows.
    """
    trace, links, round_of_call = reading.trace, reading.links, reading.round_of_call
    replays = np.flatnonzero(matches(trace.calls.name, GRAPH_LAUNCH) & (round_of_call != NO_ID))
    if not len(replays):
        return "none", []
    children, seen = _children(trace, links)[replays], trace.recording.replays or ()
    conditional = sum(nodes is not None and nodes.conditional for nodes in seen)
    if conditional:
        return "unproven", [
            f"{conditional} replays are of CUDA graphs with conditional nodes, and the profiler "
            "records only the first iteration of their loops"
        ]
    known = [nodes for nodes in seen if nodes is not None]
    problems = _check_rounds_of_replays(round_of_call[replays], children)
    if len(known) != len(seen) or len(known) != len(replays):
        return "unproven", problems
    kernels = children[:, KERNEL].tolist()
    if len(set(trace.calls.thread[replays].tolist())) > 1:  # which is which, nobody knows
        known, kernels = sorted(known, key=lambda one: one.kernels), sorted(kernels)
    pairs = list(zip(known, kernels, strict=True))
    short = [f"{n} of {one.kernels}" for one, n in pairs if n < one.kernels]
    if short:
        problems.append(
            f"{len(short)} replays of CUDA graphs have fewer kernels than kernel nodes ({short[0]})"
        )
    fit = all(n <= one.kernels + one.copies for one, n in pairs)
    return ("proved" if fit and not problems else "unproven"), problems


def _check_rounds_of_replays(rounds: Ints, children: Ints) -> list[str]:
    """What to say of replays whose children differ from round to round."""
    of_rounds = np.split(children, np.flatnonzero(np.diff(rounds)) + 1)  # in order of time
    if len(of_rounds) < _PROVING_REPLAYS:
        return []
    if all(np.array_equal(one, of_rounds[0]) for one in of_rounds):
        return []
    return [
        "graph replays have different numbers of activities from round to round "
        f"({', '.join(str(one.sum()) for one in of_rounds)})"
    ]


def _children(trace: Trace, links: Links) -> Ints:
    """How many kernels, copies and memsets each call has; shape (calls, 3)."""
    linked = links.call_of_activity != NO_ID
    cells = 3 * links.call_of_activity[linked] + trace.activities.kind[linked]
    return np.bincount(cells, minlength=3 * len(trace.calls)).reshape(-1, 3)


def _check_durations(reading: Reading) -> list[str]:
    acts, ours = reading.trace.activities, reading.round_of_activity
    least = acts.start if reading.trace.whole_microseconds else acts.start + 1
    wrong = (ours != NO_ID) & (acts.kind == KERNEL) & (acts.end < least)
    return (
        [f"{int(wrong.sum())} kernels have no positive duration ({tally(acts.name[wrong])})"]
        if wrong.any()
        else []
    )


def _check_recording(trace: Trace) -> list[str]:
    if trace.recording.collection_stopped:
        return ["the profiler stopped collecting: its buffers were full; profile less work"]
    return []


def _check_contexts(reading: Reading) -> list[str]:
    """We wait for torch's context alone: of another one (PyCUDA's own, for example) a kernel that
    still runs is missing. Its launch call tells, where the profiler records that."""
    acts, ours = reading.trace.activities, reading.round_of_activity
    orphan = reading.links.call_of_activity == NO_ID
    kernels = acts.kind == KERNEL
    sentinels = kernels & (ours == NO_ID) & ~orphan
    foreign = kernels & (ours != NO_ID) & orphan & among(acts.device, acts.device[sentinels])
    foreign &= ~among(acts.context, acts.context[sentinels])
    if not foreign.any():
        return []
    return [
        f"{int(foreign.sum())} kernels ran in another CUDA context than torch's, by calls that the "
        f"profiler does not record ({tally(acts.name[foreign])}); more may have run on, unseen: "
        "wait for that context at the end of the measured code, and launch by cuLaunchKernel"
    ]


def has_clock_skew(trace: Trace, links: Links) -> bool:
    """Whether an activity starts before its own launch: the clocks of host and device disagree."""
    linked = links.call_of_activity != NO_ID
    launched = trace.calls.start[links.call_of_activity[linked]]
    return bool((trace.activities.start[linked] < launched).any())


def check_clock(reading: Reading) -> str:
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
