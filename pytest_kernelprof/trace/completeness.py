"""Whether a trace holds everything: every launch has its kernel, both sentinels are there.

torch.profiler can lose device events without a word (pytorch #192021 and others). A lost kernel
would let ``max_kernels(1)`` pass on broken code, so a count is trusted only when this says so.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from pytest_kernelprof.trace.correlation import link
from pytest_kernelprof.trace.model import KERNEL, MEMCPY, NO_ID
from pytest_kernelprof.trace.rounds import (
    lay_out,
    leaked,
    round_of_activity,
    round_of_time,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_kernelprof.trace.correlation import Links
    from pytest_kernelprof.trace.model import Bools, Ints, Strings, Trace
    from pytest_kernelprof.trace.rounds import Layout

GraphProof = Literal["none", "proved", "unproven"]

# A launch is what shares a correlation id with a kernel; the name only finds launches that have
# lost theirs. A host function is enqueued but runs no kernel.
_LAUNCH = re.compile(r"launch|enqueue", re.I)
_NO_KERNEL = re.compile(r"host_?func|memcpy|memset|mem_?copy|mem_?fill", re.I)
_MEMCPY = re.compile(r"memcpy", re.I)
_GRAPH_LAUNCH = re.compile(r"graph_?launch", re.I)
_COLD_OVERHEAD = re.compile(r"lazy function loading|module loading", re.I)
_COLD_CALL = re.compile(r"moduleload|libraryload|linkcreate", re.I)
_COMPILATION = re.compile(r"compile_id=|\(dynamo_timed\)|CachingAutotuner|compile_inner")
_PROVING_REPLAYS = 3


@dataclass(frozen=True, slots=True)
class Integrity:
    """What is known about the completeness of one profile.

    Attributes:
        problems: what is missing, in words; empty means complete.
        launches: launch calls of all rounds that ought to have a kernel.
        matched: how many of them have one.
        unknown_launches: kernels of the rounds whose launch call the profiler does not record.
        leaked: activities of work launched before the recording; left out of every count.
        graph_replays: "proved" where at least three replays had equal children.
        clock_skew: a kernel starts before its launch; gap figures are then off.
        cold: signs of cold code inside the rounds (lazy loading, compilation).
    """

    problems: tuple[str, ...] = ()
    launches: int = 0
    matched: int = 0
    unknown_launches: int = 0
    leaked: int = 0
    graph_replays: GraphProof = "none"
    clock_skew: bool = False
    cold: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether every count of the profile can be trusted."""
        return not self.problems


def check_integrity(
    trace: Trace, links: Links | None = None, layout: Layout | None = None
) -> Integrity:
    """Check a device trace against the rules above."""
    links = links or link(trace)
    layout = layout or lay_out(trace, links)
    round_of_call = round_of_time(layout.rounds, trace.calls.start, late=False)
    ours = round_of_activity(trace, links, layout)
    expected = launch_calls(trace, links) & (round_of_call != NO_ID) & ~_capturing(trace)
    matched = expected & np.isin(np.arange(len(trace.calls)), links.call_of_activity)
    replays, replay_problems = _check_replays(trace, links, round_of_call)
    kernels = (trace.activities.kind == KERNEL) & (ours != NO_ID)
    problems = [
        *check_rounds(trace, layout),
        *_check_sentinels(layout),
        *_check_launches(trace, expected & ~matched),
        *_check_memcpys(trace, links, round_of_call),
        *replay_problems,
        *_check_durations(trace, ours),
        *_check_recording(trace),
    ]
    return Integrity(
        tuple(problems),
        int(expected.sum()),
        int(matched.sum()),
        int((kernels & (links.call_of_activity == NO_ID)).sum()),
        int(leaked(trace, links).sum()),
        replays,
        has_clock_skew(trace, links),
        cold_signs(trace, layout),
    )


def launch_calls(trace: Trace, links: Links) -> Bools:
    """Which calls are kernel launches: those that share a correlation id with a kernel, and those
    named like one (host functions, memcpys and memsets apart). One graph launch is one."""
    calls = trace.calls
    launches = matches(calls.name, _LAUNCH) & ~matches(calls.name, _NO_KERNEL)
    with_kernel = links.call_of_activity[trace.activities.kind == KERNEL]
    launches[with_kernel[with_kernel != NO_ID]] = True
    return launches


def cold_signs(trace: Trace, layout: Layout) -> tuple[str, ...]:
    """Names of the records of lazy loading, compilation or autotuning inside the rounds."""
    ops = trace.operators
    compiling = matches(ops.name, _COMPILATION) & ops.annotation
    loading = matches(trace.overheads.name, _COLD_OVERHEAD)
    calling = matches(trace.calls.name, _COLD_CALL)
    signs: dict[str, None] = {}
    for table, chosen in ((trace.overheads, loading), (trace.calls, calling), (ops, compiling)):
        inside = round_of_time(layout.rounds, table.start[chosen], late=False) != NO_ID
        for name in table.name[chosen][inside]:
            signs["compilation" if table is ops else str(name)] = None
    return tuple(signs)


def matches(names: Strings, pattern: re.Pattern[str]) -> Bools:
    """Which names a pattern is found in: searched once for each different name."""
    all_names = names.tolist()
    verdict = {name: pattern.search(name) is not None for name in set(all_names)}
    return np.fromiter(map(verdict.__getitem__, all_names), np.bool_, len(all_names))


def _capturing(trace: Trace) -> Bools:
    """Calls between the begin and the end of a graph capture on their thread: they record nodes
    and execute nothing."""
    calls = trace.calls
    inside = np.zeros(len(calls), np.bool_)
    begins = np.flatnonzero(matches(calls.name, re.compile("StreamBeginCapture")))
    ends = np.flatnonzero(matches(calls.name, re.compile("StreamEndCapture")))
    for begin in begins:
        thread = calls.thread[begin]
        closing = [i for i in ends if i > begin and calls.thread[i] == thread]
        if closing:
            inside[begin : closing[0]] |= calls.thread[begin : closing[0]] == thread
    return inside


def check_rounds(trace: Trace, layout: Layout) -> list[str]:
    """What to say where rounds are missing: our own sessions note how many they annotated."""
    taken, seen = trace.recording.get("rounds"), len(layout.rounds) if layout.annotated else 0
    if taken is None or seen == taken:
        return []
    return [
        f"{seen} of {taken} rounds are in the trace: another profiler was started in the measured "
        "code, which empties ours; take it out"
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
    return [f"{len(names)} launch calls have no kernel in the trace ({_tally(names)})"]


def _check_memcpys(trace: Trace, links: Links, round_of_call: Ints) -> list[str]:
    calls = trace.calls
    copies = matches(calls.name, _MEMCPY) & (round_of_call != NO_ID) & ~_capturing(trace)
    with_activity = links.call_of_activity[trace.activities.kind == MEMCPY]
    copies[with_activity[with_activity != NO_ID]] = False
    # A copy may also be carried out by a kernel (peer access, small strided copies).
    with_kernel = links.call_of_activity[trace.activities.kind == KERNEL]
    copies[with_kernel[with_kernel != NO_ID]] = False
    if not copies.any():
        return []
    names = calls.name[copies]
    return [f"{len(names)} memcpy calls have no copy in the trace ({_tally(names)})"]


def _check_replays(trace: Trace, links: Links, round_of_call: Ints) -> tuple[GraphProof, list[str]]:
    """Graph replays are proved by equal children: the k-th replay of every round, over at least
    three rounds, or all replays of a single round when there are three."""
    replays = np.flatnonzero(matches(trace.calls.name, _GRAPH_LAUNCH) & (round_of_call != NO_ID))
    if not len(replays):
        return "none", []
    children = np.bincount(
        links.call_of_activity[links.call_of_activity != NO_ID], minlength=len(trace.calls)
    )
    by_round: dict[int, list[int]] = {}
    for call in replays:
        by_round.setdefault(int(round_of_call[call]), []).append(int(children[call]))
    rows = list(by_round.values())
    if len(rows) >= _PROVING_REPLAYS:
        if all(row == rows[0] for row in rows):
            return "proved", []
        return "unproven", [
            "graph replays have different numbers of activities from round to round "
            f"({', '.join(str(sum(row)) for row in rows)})"
        ]
    if len(rows[0]) >= _PROVING_REPLAYS and len({n for row in rows for n in row}) == 1:
        return "proved", []
    return "unproven", []


def _check_durations(trace: Trace, ours: Ints) -> list[str]:
    acts = trace.activities
    wrong = (ours != NO_ID) & (acts.kind == KERNEL) & (acts.end <= acts.start)
    return (
        [f"{int(wrong.sum())} kernels have no positive duration ({_tally(acts.name[wrong])})"]
        if wrong.any()
        else []
    )


def _check_recording(trace: Trace) -> list[str]:
    if trace.recording.get("collection_stopped"):
        return ["the profiler stopped collecting: its buffers were full; profile less work at once"]
    return []


def has_clock_skew(trace: Trace, links: Links) -> bool:
    """Whether an activity starts before its own launch: the clocks of host and device disagree."""
    linked = links.call_of_activity != NO_ID
    launched = trace.calls.start[links.call_of_activity[linked]]
    return bool((trace.activities.start[linked] < launched).any())


def _tally(names: Sequence[str] | Strings) -> str:
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    shown = [f"{name} x{n}" for name, n in list(counts.items())[:3]]
    return ", ".join(shown) + (", ..." if len(counts) > 3 else "")
