"""What happened in each round: kernels, copies, waits, CPU operators; as a tree, as a timeline."""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pytest_kernelprof.allowances import allowed_by
from pytest_kernelprof.records import profile
from pytest_kernelprof.records.recording import OwnNames
from pytest_kernelprof.trace import vocabulary
from pytest_kernelprof.trace.columns import KERNEL, MEMCPY, MEMSET, NO_ID, Coded, Names
from pytest_kernelprof.trace.correlation import around, linked_waits, within

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from pytest_kernelprof.trace.columns import Bools, Calls, Ints, Operators, Spans, Trace
    from pytest_kernelprof.trace.correlation import Reading


def counted_rows(reading: Reading) -> list[Ints]:
    """Of each round what counts as its kernels: on the CPU its compute operators, as rows of the
    operators in order; all of its outermost operators where the trace does not say which of them
    compute."""
    if reading.trace.device_kind != "cpu":
        return reading.kernels
    computes, covered = _computing(reading)
    return _of_rounds(reading, computes & ~covered)


def operators_of_kernels(reading: Reading, rows: Ints) -> list[int]:
    """The innermost operator of each of the ``counted_rows``, or ``NO_ID``."""
    if reading.trace.device_kind == "cpu":
        found: list[int] = rows.tolist()
        return found
    return operators_of_activities(reading, rows)


def operators_of_activities(reading: Reading, rows: Ints) -> list[int]:
    """The innermost operator around the launch of each activity, or ``NO_ID``."""
    return operators_of_calls(reading, reading.call_of_activity[rows])


def operators_of_calls(reading: Reading, calls: Ints) -> list[int]:
    """The innermost operator around each call, or ``NO_ID``."""
    operators = np.append(reading.operator_of_call, NO_ID)  # NO_ID points to the last
    found: list[int] = operators[calls].tolist()
    return found


def kernels_of(reading: Reading, rows: Ints) -> tuple[profile.Kernel, ...]:
    """The kernels of some of the ``counted_rows``."""
    if reading.trace.device_kind == "cpu":
        return _operators_as_kernels(reading, rows)
    acts: Any = reading.trace.activities
    launch, shared = (acts.grid, acts.block, acts.registers), acts.shared_memory[rows].tolist()
    return tuple(
        map(
            profile.Kernel,
            acts.name[rows].tolist(),
            ((acts.end[rows] - acts.start[rows]) / 1e3).tolist(),
            *(column[rows].tolist() for column in launch),
            _known(shared),
            *(column[rows].tolist() for column in (acts.device, acts.stream)),
            _names_of_calls(reading, reading.call_of_activity[rows]),
            chains(reading, operators_of_activities(reading, rows)),
            repeat(""),
            allowed(reading, "kernels", rows),
        )
    )


def _known(sizes: Iterable[int]) -> list[int | None]:
    return [None if size < 0 else size for size in sizes]


def allowed(reading: Reading, kind: str, rows: Ints) -> NDArray[np.object_]:
    """For each of these activities why it is allowed, else empty; on the CPU for each of these
    operators. The launch decides."""
    launched = rows if reading.trace.device_kind == "cpu" else reading.call_of_activity[rows]
    return allowed_spans(reading, kind)[launched]


def allowed_spans(reading: Reading, kind: str) -> NDArray[np.object_]:
    """For each call, on the CPU each operator, why it is allowed: the reason of the innermost block
    of ``allow`` for that kind in which it starts on its thread. One more at the end is that of
    ``NO_ID``."""
    if kind in reading.allowed:
        return reading.allowed[kind]
    ops, prefix = reading.trace.operators, OwnNames(reading.trace.recording.nonce).allow
    spans = ops if reading.trace.device_kind == "cpu" else reading.trace.calls
    rows = ops.annotations(prefix).nonzero()[0]  # the outer ones first
    found = np.broadcast_to(np.array("", np.object_), len(spans) + 1)
    found = reading.allowed[kind] = found.copy() if len(rows) else found
    # A block that is left open, as one of a generator, proves nothing.
    is_closed = reading.layout.round_at(ops.end[rows]) == reading.round_of_operator[rows]
    for row in rows[is_closed].tolist():
        kinds, reason = allowed_by(ops.name[row].removeprefix(prefix))
        first, last = np.searchsorted(spans.start, (ops.start[row], ops.end[row]))
        inside = (spans.thread[first:last] == ops.thread[row]) & (kind in kinds)
        found[first:last][inside] = reason
    return found


def copies_of(reading: Reading, rows: Ints) -> tuple[profile.Copy, ...]:
    """The memory copies of these rows of the activities."""
    if not len(rows):
        return ()
    acts = reading.trace.activities
    return tuple(
        map(
            profile.Copy,
            acts.name[rows].tolist(),
            directions(acts.name[rows]).tolist(),
            _known(acts.bytes[rows].tolist()),
            ((acts.end[rows] - acts.start[rows]) / 1e3).tolist(),
            chains(reading, operators_of_activities(reading, rows)),
            repeat(""),
            allowed(reading, "copies", rows),
        )
    )


def directions(copies: Names) -> Names:
    """The direction of each memcpy: "h2d", "d2h", "d2d", "p2p", or "?"."""
    return Names(copies.codes, list(map(vocabulary.direction_of, copies.values)))


def waits_of(reading: Reading, rows: Ints) -> tuple[profile.Wait, ...]:
    """The waits of these rows of the calls; ``NO_ID`` where the call is not recorded."""
    chained = chains(reading, operators_of_calls(reading, rows))
    whys = allowed_spans(reading, "syncs")[rows]
    return tuple(map(profile.Wait, _names_of_calls(reading, rows), chained, repeat(""), whys))


def _names_of_calls(reading: Reading, rows: Ints) -> list[str]:
    names = reading.trace.calls.name
    codes = np.append(names.codes, len(names.values))  # NO_ID points to the last
    return Names(codes[rows], (*names.values, "unknown")).tolist()


def chains(reading: Reading, operators: Sequence[int]) -> list[tuple[str, ...]]:
    """For each operator its name and those around it; our own annotations are left out."""
    names, users = reading.trace.operators.name, reading.users
    above = users[np.append(reading.parent, NO_ID)]
    at = users[np.array(operators, np.int64)]
    # The chains so far as a tree: of each its last name, and which one it goes on from.
    node, last, before = np.zeros(len(at), np.int64), [0], [0]
    rows = (at != NO_ID).nonzero()[0]
    while len(rows):
        keys = node[rows] * len(names.values) + names.codes[at[rows]]
        distinct, numbers = np.unique(keys, return_inverse=True)
        node[rows] = numbers + len(last)
        last += (distinct % len(names.values)).tolist()
        before += (distinct // len(names.values)).tolist()
        at[rows] = above[at[rows]]
        rows = rows[at[rows] != NO_ID]
    used = np.zeros(len(last), np.bool_)
    used[node] = True
    known = [
        _chain(one, last, before, names.values) if is_used else ()
        for one, is_used in enumerate(used.tolist())
    ]
    return Coded(node, known).tolist()


def _chain(
    node: int, last: Sequence[int], before: Sequence[int], texts: Sequence[str]
) -> tuple[str, ...]:
    """The names from the root of the tree to a node of it."""
    found = []
    while node:
        found.append(texts[last[node]])
        node = before[node]
    return tuple(reversed(found))


def different_rounds(
    reading: Reading, first: int, names: Sequence[Ints], operators: Sequence[Sequence[int]]
) -> list[int]:
    """The rounds whose kernels differ from those of ``first``, by name or by ``chains``; of each
    different sequence the first round.

    Args:
        names: the codes of the names of each round's kernels, and of whether they are allowed.
        operators: the innermost operators of each round's kernels.
    """
    if len(names) < 2:
        return []
    users = reading.users
    above = users[np.append(reading.parent, NO_ID)]  # NO_ID points to the last
    code = np.append(reading.trace.operators.name.codes, NO_ID).astype(np.int32)
    at = users[np.concatenate([np.array(one, np.int64) for one in operators])]
    levels = [np.concatenate(names).astype(np.int32)]
    while (at != NO_ID).any():
        levels.append(code[at])
        at = above[at]
    kernels = np.stack(levels, axis=1)
    ends = np.cumsum([len(of_round) for of_round in names])
    sequences = [of_round.tobytes() for of_round in np.split(kernels, ends[:-1])]
    found = {sequences[first]: first}
    for number, sequence in enumerate(sequences):
        found.setdefault(sequence, number)
    return list(found.values())[1:]


# Below these an operator hands its work on to ``__torch_dispatch__`` of a mode or a subclass, whose
# operators count in its place (torch 2.10 and later).
_TO_PYTHON = frozenset(["PythonDispatchMode", "PythonSubclass"])
_READ = "aten::_local_scalar_dense"
_NO_DIMENSIONS = (0, 0, 0)


def read_rows(reading: Reading) -> list[Ints]:
    """Find in each round the reads of a tensor's value into Python: ``.item()``, ``if tensor``.

    A read by an operator that computes is part of its implementation, and not among them.

    Returns:
        For each round the rows of the operators that read.
    """
    ops = reading.trace.operators
    _, covered = _computing(reading)
    return _of_rounds(reading, ops.name.are(_READ) & ~_ranges(ops, ()) & ~covered)


def _computing(reading: Reading) -> tuple[Bools, Bools]:
    """Tell which operators compute, and which lie below one that does or in a compilation. All
    compute where that is not noted."""
    ops, parent = reading.trace.operators, reading.parent
    recording = reading.trace.recording
    noted = recording.compute_operators
    counts = vocabulary.OPERATOR.fullmatch if noted is None else frozenset(noted).__contains__
    ranges = _ranges(ops, recording.bare_operators)
    computes = ops.name.that(counts) & ~ranges
    # A library's operator for all devices: by others that count, or by code of its own.
    delegates = parent[ops.name.that(_TO_PYTHON.__contains__)]
    computes[delegates[delegates != NO_ID]] = False
    if recording.decomposing_operators:
        alone = ops.name.that(frozenset(recording.decomposing_operators).__contains__) & ~ranges
        alone &= ~around(parent, computes)
        computes |= alone & ~around(parent, alone)
    # What torch.compile runs while it traces is no work of the call. Without a compilation it is
    # somebody else's range.
    compiling = ops.name.are("dynamo") & ~ops.annotation & (recording.recompiles != 0)
    return computes, compiling | within(parent, computes | compiling)


def _of_rounds(reading: Reading, chosen: Bools) -> list[Ints]:
    """Split the rows of the chosen operators by round."""
    found = chosen.nonzero()[0]
    return [found[reading.round_of_operator[found] == number] for number in range(reading.rounds)]


def _ranges(ops: Operators, bare: Iterable[str]) -> Bools:
    """Which rows are no operators, whatever their names: annotations, and ranges without inputs.

    ``torch._C._profiler._RecordFunctionFast("aten::mm")`` leaves an event of an operator's
    category, but without the inputs that an operator has where they are recorded. The kernels of
    compiled code, known by that code, have none either, nor have operators that take none.
    """
    if ops.has_inputs is None:
        return ops.annotation
    kept = frozenset(bare)
    named = ops.name.that(lambda name: "::" in name and name not in kept)
    return ops.annotation | (~ops.has_inputs & named)


def silent_regions(reading: Reading) -> int:
    """How many calls of compiled code in the rounds left no operator that computes, nor a graph
    that Inductor made: their back end computes elsewhere."""
    ops, parent = reading.trace.operators, reading.parent
    inside = ~ops.annotation & (reading.round_of_operator != NO_ID)
    called = ops.name.matching(vocabulary.COMPILED_REGION) & inside
    if not called.any():
        return 0
    computes, _ = _computing(reading)
    telling = computes | ops.name.matching(vocabulary.INDUCTOR_GRAPH)
    silent = called & ~within(parent, called) & ~telling & ~around(parent, telling)
    return int(silent.sum())


def _operators_as_kernels(reading: Reading, rows: Ints) -> tuple[profile.Kernel, ...]:
    """The compute operators of these rows, in the form of kernels."""
    ops = reading.trace.operators
    names, us = ops.name[rows].tolist(), ((ops.end[rows] - ops.start[rows]) / 1e3).tolist()
    launch = (_NO_DIMENSIONS, _NO_DIMENSIONS, 0, 0, 0, 0, "operator")
    columns = (names, us, chains(reading, rows.tolist()), allowed(reading, "kernels", rows))
    return tuple(
        profile.Kernel(name, duration, *launch, chain, allowed=why)
        for name, duration, chain, why in zip(*columns, strict=True)
    )


def host_waits(reading: Reading, waiting: Bools) -> list[list[int]]:
    """The waits of the host for the device, a list of calls for each round. ``waiting``: see
    ``waiting_calls``.

    One wait an operator, however many calls it takes: the first stands for it, of those that are
    not allowed if there are any. ``NO_ID`` stands for a wait whose call the profiler does not
    record.
    """
    trace, of_round = reading.trace, reading.round_of_call
    waits: list[list[int]] = [[] for _ in range(reading.rounds)]
    chosen = waiting & (of_round != NO_ID) & ~_paused_calls(trace)
    if not reading.layout.annotated:
        # The profiler ends every recording with a wait: in our own sessions outside of the rounds.
        chosen[-1:] &= ~trace.calls.name[-1:].matching(vocabulary.CLOSING_CALL)
    seen: set[int] = set()
    is_allowed = allowed_spans(reading, "syncs").astype(bool)
    for call in sorted(chosen.nonzero()[0].tolist(), key=is_allowed.__getitem__):
        operator = int(reading.users[reading.operator_of_call[call]])
        if operator != NO_ID and not trace.operators.annotation[operator]:
            if operator in seen:
                continue
            seen.add(operator)
        insort(waits[of_round[call]], call)
    _, unlinked = linked_waits(trace)
    for at in reading.layout.round_at(trace.waits.start[unlinked]):
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
    waits, _ = linked_waits(trace)
    waits |= calls.name.matching(vocabulary.WAIT_CALL)
    waits &= ~calls.name.matching(vocabulary.POLLING)
    to_pageable = trace.activities.name.matching(vocabulary.TO_PAGEABLE)
    copies = reading.call_of_activity[to_pageable & (reading.round_of_activity != NO_ID)]
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
    for at in operators.annotation.nonzero()[0].tolist():
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


_DEEPEST = 200
"""Operators that are nested deeper count with the one at this depth."""


def operator_tree(reading: Reading, number: int) -> profile.OperatorNode:
    """The operators of a round under those that called them, by name; annotations of ours are
    none. What was launched outside of any operator is the root's own.

    Args:
        number: which round.
    """
    ops, users = reading.trace.operators, reading.users
    inside = reading.round_of_operator == number
    rows = (inside & (users[:-1] == np.arange(len(ops)))).nonzero()[0]
    called: dict[int, list[int]] = {row: [] for row in (NO_ID, *rows.tolist())}
    parents = users[reading.parent[rows]]  # NO_ID points to the last
    for row, parent in zip(rows.tolist(), parents.tolist(), strict=True):
        called[parent if parent in called else NO_ID].append(row)
    costs: dict[int, list[float]] = {row: [] for row in called}
    for operator, us in _costs(reading, number):
        costs[operator if operator in costs else NO_ID].append(us)

    def node(name: str, rows: list[int], depth: int) -> profile.OperatorNode:
        """The rows of a name, and what they called."""
        below: defaultdict[str, list[int]] = defaultdict(list)
        for row in rows:  # these are more at the deepest level, which has all that is below
            for one in called[row]:
                (rows if depth == _DEEPEST else below[ops.name[one]]).append(one)
        nodes = [node(*one, depth + 1) for one in below.items()]
        own = [one for row in rows for one in costs[row]]
        kernels = len(own) + sum(one.kernels for one in nodes)
        us = sum(own) + sum(one.us for one in nodes)
        return profile.OperatorNode(name, len(rows), kernels, us, tuple(nodes))

    return node("", [NO_ID], 0)


def _costs(reading: Reading, number: int) -> list[tuple[int, float]]:
    """Of each kernel of the round the row of its innermost operator, and what it takes."""
    rows = counted_rows(reading)[number]
    operators = reading.users[np.array(operators_of_kernels(reading, rows), np.int64)]
    spans: Spans = reading.trace.activities
    if reading.trace.device_kind == "cpu":
        spans = reading.trace.operators
    us = (spans.end[rows] - spans.start[rows]) / 1e3
    return list(zip(operators.tolist(), us.tolist(), strict=True))


MOST_EVENTS = 5_000
"""Events of the host in a timeline, and of the device; of more the shortest are left out."""

_OF_DEVICE: dict[int, profile.TimelineKind] = {KERNEL: "kernel", MEMCPY: "memcpy", MEMSET: "memset"}


class _Part(NamedTuple):
    """Events of one kind: rows of a table, the lane of each, and its correlation id."""

    kind: profile.TimelineKind
    spans: Spans
    rows: Ints
    lanes: list[str]
    correlation: Ints


def timeline_of_round(reading: Reading, number: int) -> profile.Timeline:
    """Operators, annotations, calls and activities of a round, by their start.

    Args:
        number: the round, from 0. What it caused on the device belongs to it, whenever it ran.
    """
    parts = list(_parts(reading, number))
    counts = [len(part.rows) for part in parts]
    if not sum(counts):
        return profile.Timeline()
    start = np.concatenate([part.spans.start[part.rows] for part in parts])
    end = np.concatenate([part.spans.end[part.rows] for part in parts])
    kinds = np.repeat(np.arange(len(parts)), counts)
    on_device = np.repeat([part.kind in _OF_DEVICE.values() for part in parts], counts)
    longest = np.argsort(start - end, kind="stable")
    sides = (longest[on_device[longest] == side][:MOST_EVENTS] for side in (False, True))
    kept = np.sort(np.concatenate(list(sides)))
    kept = kept[np.argsort(start[kept], kind="stable")]
    lanes = [lane for part in parts for lane in part.lanes]
    names = [name for part in parts for name in part.spans.name[part.rows].tolist()]
    correlation = np.concatenate([part.correlation for part in parts])
    began = start[kept[0]]
    return profile.Timeline(
        kind=tuple(parts[i].kind for i in kinds[kept].tolist()),
        name=tuple(names[i] for i in kept.tolist()),
        start_us=tuple(((start[kept] - began) / 1e3).tolist()),
        duration_us=tuple(((end - start)[kept] / 1e3).tolist()),
        lane=tuple(lanes[i] for i in kept.tolist()),
        correlation=tuple(np.maximum(correlation[kept], 0).tolist()),
        left_out=len(start) - len(kept),
    )


def _parts(reading: Reading, number: int) -> Iterable[_Part]:
    ops, calls, acts = reading.trace.operators, reading.trace.calls, reading.trace.activities
    ours = ops.annotations(OwnNames(reading.trace.recording.nonce).prefix)
    inside = reading.round_of_operator == number
    of_host: tuple[tuple[profile.TimelineKind, Operators | Calls, Bools], ...] = (
        ("operator", ops, inside & ~ops.annotation),
        ("annotation", ops, inside & ops.annotation & ~ours),
        ("call", calls, reading.round_of_call == number),
    )
    for kind, spans, chosen in of_host:
        rows = chosen.nonzero()[0]
        lanes = [f"thread {reading.trace.threads[i]}" for i in spans.thread[rows].tolist()]
        ids = calls.correlation[rows] if spans is calls else np.zeros_like(rows)
        yield _Part(kind, spans, rows, lanes, ids)
    for code, kind_of_device in _OF_DEVICE.items():
        rows = ((reading.round_of_activity == number) & (acts.kind == code)).nonzero()[0]
        where = zip(acts.device[rows].tolist(), acts.stream[rows].tolist(), strict=True)
        lanes = [f"device {device} stream {stream}" for device, stream in where]
        yield _Part(kind_of_device, acts, rows, lanes, acts.correlation[rows])
