"""What belongs together: activity -> call -> operator -> enclosing operators; round and process."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from pytest_kernelprof.errors import TraceError
from pytest_kernelprof.records.recording import OwnNames
from pytest_kernelprof.trace import vocabulary
from pytest_kernelprof.trace.columns import KERNEL, NO_ID, Spans, among
from pytest_kernelprof.units import first_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from pytest_kernelprof.trace.columns import Bools, Frames, Ints, Names, Operators, Trace


# Deeper than nearly all code; what lies deeper still is found by one sweep.
_LEVELS = 40


def enclosing(thread: Ints, start: Ints, end: Ints, is_point: Bools) -> Ints:
    """For each row the nearest before it on its thread that ends after it begins, else ``NO_ID``.

    Args:
        is_point: rows in which nothing lies, and which still lie in a span that ends as they start.
    """
    # What starts with the span that it lies in is shorter: longest first among equal starts.
    order = np.lexsort((-end, is_point, start, thread))
    points = is_point[order]
    begins = start[order] - points
    found = np.full(len(order), NO_ID, np.int64)
    found[order] = _in_order(thread[order], begins, end[order], points)
    return np.where(found == NO_ID, NO_ID, order[found])


def _in_order(thread: Ints, begins: Ints, end: Ints, points: Bools) -> Ints:
    """The same for rows in order, level by level from the outside in.

    The outermost spans of a thread are those that nothing before them outlasts. The rows up to the
    next such one either lie in a span that comes in between, or else directly in it.
    """
    spans = np.where(points, begins, np.maximum(end, begins))
    ends = np.sort(spans)
    # As ranks, so that those of a thread and of a row fit one number. A span ends after a row
    # begins where its rank is the larger one.
    last = np.where(points, 0, np.searchsorted(ends, spans) + 1)
    first = np.searchsorted(ends, begins, side="right")
    found = np.full(len(thread), NO_ID, np.int64)
    rows = np.arange(len(thread))
    block = np.cumsum(np.diff(thread, prepend=thread[:1]) != 0)
    owner = np.full(len(rows), NO_ID, np.int64)
    base = len(rows) + 2
    for _ in range(_LEVELS):
        if not len(rows):
            return found
        offset = block * base
        reached = np.maximum.accumulate(offset + last[rows])
        inside = np.zeros(len(rows), np.bool_)
        inside[1:] = reached[:-1] > (offset + first[rows])[1:]
        outer = ~inside
        found[rows[outer]] = owner[block[outer]]
        owner, block, rows = rows[outer], (np.cumsum(outer) - 1)[inside], rows[inside]
    _sweep(found, rows, block, owner, begins, spans, points)
    return found


def _sweep(
    found: Ints, rows: Ints, block: Ints, owner: Ints, begins: Ints, spans: Ints, points: Bools
) -> None:
    """Fill in the rows that are left: those of each block lie in its owner or in one another."""
    open_rows: list[int] = []
    open_ends: list[int] = []
    current = NO_ID
    columns = (rows, block, begins[rows], spans[rows], points[rows])
    for row, of, at, until, is_point in zip(*(one.tolist() for one in columns), strict=True):
        if of != current:
            open_rows, open_ends, current = [], [], of
        while open_ends and open_ends[-1] <= at:
            open_rows.pop()
            open_ends.pop()
        found[row] = open_rows[-1] if open_rows else owner[of]
        if not is_point:
            open_rows.append(row)
            open_ends.append(until)


_MICROSECOND = 1_000
# Only so many processes may own a device: those with the most calls.
_MOST_PROCESSES = 64


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
    at = (found != NO_ID).nonzero()[0]
    above = found[at]
    slack = _MICROSECOND if trace.whole_microseconds else 0
    fits = (
        (ops.thread[above] == calls.thread[at])
        & (ops.start[above] <= calls.start[at])
        & (calls.start[at] <= ops.end[above] + slack)
    )
    found[at[~fits]] = NO_ID
    return found


def _operators(trace: Trace) -> tuple[Ints, Ints]:
    """The operator that encloses each operator on its thread, and the innermost one of each
    call."""
    ops, calls, count = trace.operators, trace.calls, len(trace.operators)
    of_call = _operators_by_id(trace)
    # A thread without operators, as one that polls, has none around its calls.
    has_operators = np.zeros(len(trace.threads), np.bool_)
    has_operators[ops.thread] = True
    left = ((of_call == NO_ID) & has_operators[calls.thread]).nonzero()[0]
    # A call at the very end of an operator is still its own.
    found = _with_points(ops, calls.thread[left], calls.start[left])
    of_call[left] = found[count:]
    return found[:count], of_call


def _with_points(spans: Operators | Frames, thread: Ints, at: Ints) -> Ints:
    """What is ``enclosing`` these spans, and then points on their threads."""
    start, end = np.concatenate([spans.start, at]), np.concatenate([spans.end, at])
    is_point = np.arange(len(start)) >= len(spans)
    return enclosing(np.concatenate([spans.thread, thread]), start, end, is_point)


def ancestors(parent: Ints, operator: int) -> Iterator[int]:
    """The operator itself, then those that enclose it, from the inside out; ``parent`` as in
    ``Reading``."""
    while operator != NO_ID:
        yield operator
        operator = int(parent[operator])


def within(parent: Ints, chosen: Bools) -> Bools:
    """Which operators lie in one of the chosen, at any depth; ``parent`` as in ``Reading``."""
    inside: Bools = nearest(parent, chosen)[parent] != NO_ID
    return inside


def around(parent: Ints, chosen: Bools) -> Bools:
    """Which operators have one of the chosen in them, at any depth; ``parent`` as in
    ``Reading``."""
    found, above = np.zeros(len(parent) + 1, bool), parent[chosen]
    while len(above := np.unique(above[above != NO_ID])):
        found[above] = True
        above = parent[above]
    return found[:-1]


def nearest(parent: Ints, chosen: Bools) -> Ints:
    """For each operator itself where it is chosen, else the innermost of the chosen around it, or
    ``NO_ID``. One more at the end is that of ``NO_ID``."""
    found = np.append(np.where(chosen, np.arange(len(parent)), parent), NO_ID)
    while not np.array_equal(above := found[found], found):
        found = above
    return found


_BEGINNING, _END = -(2**62), 2**62


class Round(NamedTuple):
    """One call of the wrapped function: host times in ns.

    ``until`` is where the next of our own steps starts; what the device does between ``start``
    and ``until`` without a recorded launch call still belongs to the round.
    """

    start: int
    end: int
    until: int


class Layout(NamedTuple):
    """How a session is divided.

    Attributes:
        rounds: in time order; a trace without our annotations is one round without bounds.
        begun, ended: the numbers of the rounds in our annotations of their begins and ends. A
            round is annotated where it begins and where it ends; in earlier files around the
            whole: then one annotation is both.
        thread: which thread our annotations of rounds are on; ``NO_ID`` where there are none.
        sentinels_seen: whether the first and the last sentinel have their kernel; None where the
            session has none (CPU sessions, traces from elsewhere).
    """

    rounds: tuple[Round, ...]
    begun: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()
    thread: int = NO_ID
    sentinels_seen: tuple[bool, bool] | None = None

    @property
    def annotated(self) -> bool:
        """Whether the trace carries our annotations."""
        return bool(self.begun)

    def round_at(self, at: Ints) -> Ints:
        """The round in which each host time lies, else ``NO_ID``."""
        return self._round_until([one.end for one in self.rounds], at)

    def round_of_device(self, at: Ints) -> Ints:
        """The round to which each time of the device belongs that has no call, else ``NO_ID``."""
        return self._round_until([one.until for one in self.rounds], at)

    def _round_until(self, ends: list[int], at: Ints) -> Ints:
        starts = np.array([one.start for one in self.rounds], np.int64)
        i = np.searchsorted(starts, at, side="right") - 1
        inside = (i >= 0) & (at <= np.array(ends, np.int64)[np.maximum(i, 0)])
        return np.where(inside, i, NO_ID)


def _lay_out(trace: Trace, has_kernel: Bools) -> Layout:
    """Find our annotations in a trace. ``has_kernel``: which calls launched a kernel."""
    ops, names = trace.operators, OwnNames(trace.recording.nonce)

    def annotations(kind: str) -> list[tuple[str, int]]:
        rows = ops.annotations(kind).nonzero()[0]
        texts = ops.name[rows].tolist()
        return list(zip([text.removeprefix(kind) for text in texts], rows.tolist(), strict=True))

    whole = annotations(names.round)
    begins, ends = whole + annotations(names.begin), whole + annotations(names.end)
    ended = tuple(number for number, _ in ends)
    if not begins:
        return Layout((Round(_BEGINNING, _END, _END),), ended=ended)
    sentinels = [
        (ops.annotation & ops.name.are(name)).nonzero()[0][:1].tolist()
        for name in (names.first_sentinel, names.last_sentinel)
    ]
    steps = [int(ops.start[row]) for row in (*(row for _, row in begins), *sentinels[1])]
    end_of = dict(ends)
    rounds = tuple(
        Round(int(ops.start[row]), int(ops.end[end_of.get(number, row)]), until)
        for (number, row), until in zip(begins, [*steps[1:], _END], strict=False)
    )
    launched = trace.calls.start[has_kernel]
    first, last = (
        any(((launched >= ops.start[row]) & (launched <= ops.end[row])).any() for row in rows)
        for rows in sentinels
    )
    begun, thread = tuple(number for number, _ in begins), int(ops.thread[begins[0][1]])
    return Layout(rounds, begun, ended, thread, (first, last) if any(sentinels) else None)


@dataclass(frozen=True, eq=False)
class Reading:
    """A trace, and what belongs together in it, worked out once: as indices into its tables,
    ``NO_ID`` where there is no partner.

    Attributes:
        parent: for each operator the operator that encloses it on its thread.
        operator_of_call: for each call its innermost operator, joined by External id where that
            operator runs on the call's thread then, else by time on the thread. The two id spaces
            are different numbers (pytorch #124388).
        call_of_activity: for each activity its launch call, joined by correlation id.
        layout: where the rounds lie.
        round_of_operator, round_of_call: the round in which each lies, else ``NO_ID``.
        round_of_activity: the round that caused each activity, else ``NO_ID``.
        activities_of_call: how many kernels, copies and memsets each call has; shape (calls, 3).
        launches: which calls are kernel launches: those that share a correlation id with a kernel,
            and those named like one (host functions, memcpys and memsets apart). One graph launch
            is one.
        leaked: which activities are of work that was launched before the recording began.
    """

    trace: Trace
    parent: Ints
    operator_of_call: Ints
    call_of_activity: Ints
    layout: Layout
    round_of_operator: Ints
    round_of_call: Ints
    round_of_activity: Ints
    activities_of_call: Ints
    launches: Bools
    leaked: Bools

    @property
    def rounds(self) -> int:
        """How many rounds there are."""
        return len(self.layout.rounds)

    @functools.cached_property
    def users(self) -> Ints:
        """For each operator itself or, of an annotation of ours, the next one around it that is
        none; at the end that of ``NO_ID``."""
        ours = self.trace.operators.annotations(OwnNames(self.trace.recording.nonce).prefix)
        return nearest(self.parent, ~ours)

    @functools.cached_property
    def kernels(self) -> list[Ints]:
        """Of each round its kernels, as rows of the activities in launch order."""
        return self.activities(KERNEL)

    @functools.cached_property
    def allowed(self) -> dict[str, NDArray[np.object_]]:
        """By kind what ``allowed_spans`` has found: it is asked for every round."""
        return {}

    def activities(self, kind: int) -> list[Ints]:
        """Of each round its activities of a kind, as rows of them in launch order."""
        acts, of_round = self.trace.activities, self.round_of_activity
        rows = ((acts.kind == kind) & (of_round != NO_ID)).nonzero()[0]
        calls = self.call_of_activity[rows]
        launched = acts.start[rows]
        launched[calls != NO_ID] = self.trace.calls.start[calls[calls != NO_ID]]
        rows = rows[np.lexsort((acts.start[rows], launched, of_round[rows]))]
        return np.split(rows, np.searchsorted(of_round[rows], np.arange(1, self.rounds)))

    def has(self, kind: int) -> Bools:
        """Which calls have an activity of a kind (``KERNEL``, ``MEMCPY``, ``MEMSET``)."""
        return self.activities_of_call[:, kind] > 0


def reading_of(trace: Trace, parts: Sequence[Round] = ()) -> Reading:
    """Join the tables of a trace.

    Args:
        parts: what stands for rounds, in place of our annotations.
    """
    calls, acts = trace.calls, trace.activities
    of_calls, of_acts = trace.process_of_thread[calls.thread], processes_of_activities(trace)
    call_of_activity = _find(calls.correlation, acts.correlation, of_calls, of_acts)
    linked = call_of_activity != NO_ID
    cells = 3 * call_of_activity[linked] + acts.kind[linked]
    counts = np.bincount(cells, minlength=3 * len(calls)).reshape(-1, 3)
    has_kernel = counts[:, KERNEL] > 0
    layout = Layout(tuple(parts)) if parts else _lay_out(trace, has_kernel)
    leaked = _leaked(trace, call_of_activity, of_acts)
    round_of_call = layout.round_at(calls.start)
    return Reading(
        trace,
        *_operators(trace),
        call_of_activity,
        layout,
        layout.round_at(trace.operators.start),
        round_of_call,
        _round_of_activity(trace, call_of_activity, layout, round_of_call, leaked),
        counts,
        has_kernel
        | (calls.name.matching(vocabulary.LAUNCH) & ~calls.name.matching(vocabulary.NO_KERNEL)),
        leaked,
    )


def _round_of_activity(
    trace: Trace, call_of_activity: Ints, layout: Layout, round_of_call: Ints, leaked: Bools
) -> Ints:
    """The round that caused each activity, else ``NO_ID``.

    The host time of the launch decides, so that late kernels belong to the round that launched
    them. Kineto keeps only some driver calls: an activity without a recorded call belongs to the
    round in which it ran, provided that it started between our two synchronisations.
    """
    found = np.append(round_of_call, NO_ID)[call_of_activity]  # NO_ID points to the last
    orphans = (call_of_activity == NO_ID) & ~leaked
    found[orphans] = layout.round_of_device(trace.activities.start[orphans])
    return found


def _leaked(trace: Trace, call_of_activity: Ints, process_of_activity: Ints) -> Bools:
    """Activities of work that was launched before the recording began: ids grow, and theirs are
    smaller than every call's of the process. Times tell nothing, since nearly all such activities
    start after the first call. An absent id further on is of a call that is not recorded."""
    acts, calls = trace.activities, trace.calls
    orphan = (call_of_activity == NO_ID) & (acts.correlation != NO_ID)
    if not orphan.any() or not len(calls):
        return np.zeros(len(acts), np.bool_)
    first = np.full(len(trace.process_of_thread), _END, np.int64)
    known = calls.correlation != NO_ID
    of_calls = trace.process_of_thread[calls.thread]
    np.minimum.at(first, of_calls[known], calls.correlation[known])
    found: Bools = orphan & (acts.correlation < first[process_of_activity])
    return found


def repeated(reading: Reading) -> set[str]:
    """The names of operators that some round has more than once."""
    ops = reading.trace.operators
    rows = ((reading.round_of_operator != NO_ID) & ~ops.annotation).nonzero()[0]
    names, numbers = ops.name[rows], reading.round_of_operator[rows]
    order = np.lexsort((names.codes, numbers))
    same = (np.diff(names.codes[order]) == 0) & (np.diff(numbers[order]) == 0)
    found: Names = names[order[1:][same]]
    return found.distinct()


Table = TypeVar("Table", bound=Spans)


def of_each_process(trace: Trace) -> list[Trace]:
    """One trace for each process that the device worked for, in the order of the file; the trace
    itself where there is one at most.

    Frames and links of autograd, which are no part of kernels, stay with each.
    """
    owners = processes_of_activities(trace)
    processes = np.unique(owners)
    if len(processes) < 2:
        return [trace]
    operators = trace.process_of_thread[trace.operators.thread]
    calls = trace.process_of_thread[trace.calls.thread]
    return [
        replace(
            trace,
            operators=_rows(trace.operators, operators == one),
            calls=_rows(trace.calls, calls == one),
            activities=_rows(trace.activities, owners == one),
            waits=_rows(trace.waits, _waits_of(trace, owners == one)),
        )
        for one in processes.tolist()
    ]


def _waits_of(trace: Trace, activities: Bools) -> Bools:
    """Which waits are for the devices of these activities, or for one that has none."""
    devices, waited_for = trace.activities.process, trace.waits.process
    return among(waited_for, devices[activities]) | ~among(waited_for, devices)


def linked_waits(trace: Trace) -> tuple[Bools, Bools]:
    """Which calls have a record of the host waiting, and which such records have no call: by
    correlation id, which each process counts by itself."""
    calls, waits = trace.calls, trace.waits
    process, owners = trace.process_of_thread[calls.thread], processes_of_activities(trace)
    of_host = ~waits.name.matching(vocabulary.NOT_A_HOST_WAIT)
    waiting, called = np.zeros(len(calls), np.bool_), np.zeros(len(waits), np.bool_)
    for one in np.unique(process):
        own, for_own = process == one, _waits_of(trace, owners == one)
        waiting |= own & among(calls.correlation, waits.correlation[of_host & for_own])
        called |= for_own & among(waits.correlation, calls.correlation[own])
    return waiting & (calls.correlation != NO_ID), of_host & ~called


_STEP = re.compile(r"^ProfilerStep#(\d{1,9})$")
_PAGE = "see docs/reference.md#recorded-traces"
_MOST_LISTED = 20


def part_of(trace: Trace, process: int | None = None, step: int | None = None) -> Reading:
    """Read one process and one step of a trace: what the calls in the step launched, on any thread.

    Args:
        process: its position in the file, from 0; None where there is one.
        step: N of its range ``ProfilerStep#N``; None for the whole trace, of one step at most.

    Raises:
        TraceError: none is chosen of several, or one that is not there; the message lists them. Or
            processes cannot be told apart.
    """
    if why := _why_mixed(trace):
        alone = f"load the trace that torch.profiler wrote of each process instead ({_PAGE})"
        raise TraceError(
            f"{trace.source}: {why}, so their kernels cannot be distinguished: {alone}"
        )
    each = of_each_process(trace)
    sizes = [int((one.activities.kind == KERNEL).sum()) for one in each]
    trace = each[_chosen(trace, "process", process, range(len(each)), lambda: sizes)]
    numbers, steps = _steps_of(trace)
    if step is None and len(steps) < 2:
        return reading_of(trace)
    found = _chosen(
        trace, "step", step, numbers, lambda: map(len, reading_of(trace, steps).kernels)
    )
    return reading_of(trace, [steps[found]])


def _why_mixed(trace: Trace) -> str:
    """Why kernels may be those of another process, in a file that was put together: processes have
    one number and equal ids, or one device, where the kernels of some stand with those of others.
    A call of a runtime and that of its driver inside may have one id.
    """
    calls, acts = trace.calls, trace.activities
    of_calls, owners = trace.process_of_thread[calls.thread], processes_of_activities(trace)
    call = _find(calls.correlation, acts.correlation, of_calls, owners)
    has = np.bincount(call[call != NO_ID], minlength=len(calls))
    hosts = np.unique(trace.process_of_thread[np.append(trace.operators.thread, calls.thread)])
    if trace.overheads.name.matching(vocabulary.RECORDING).sum() > max(1, len(hosts)):
        return "it holds more recordings than processes"
    first = _find(calls.correlation, calls.correlation, of_calls, of_calls)
    again = (first != np.arange(len(calls))) & (calls.correlation != NO_ID)
    inside = (calls.thread == calls.thread[first]) & (calls.end <= calls.end[first])
    inside &= calls.name.codes != calls.name.codes[first]
    if (again & ~inside & (has[first] > 0)).any():
        return "several calls of one process have one correlation id"
    not_own = acts.correlation[(call == NO_ID) | (np.append(has, 0)[call] > 1)]
    launches = calls.name.matching(vocabulary.LAUNCH) & (has == 0) & ~again
    mixed = (launches & among(calls.correlation, not_own)).any()
    return "several processes launch on one device" if mixed else ""


def _steps_of(trace: Trace) -> tuple[list[int], list[Round]]:
    """The steps of torch.profiler's schedule in order of time, as numbers and as parts; none where
    a recording of ours has its rounds."""
    ops = trace.operators
    are_steps = ops.name.matching(_STEP) & (trace.recording.schema == 0)
    numbers = [int(name.partition("#")[2]) for name in ops.name[are_steps]]
    begins, ends = ops.start[are_steps].tolist(), ops.end[are_steps].tolist()
    return numbers, list(map(Round, begins, ends, [*begins[1:], _END]))


def _chosen(
    trace: Trace,
    what: str,
    choice: int | None,
    known: Sequence[int],
    sizes: Callable[[], Iterable[int]],
) -> int:
    """The position of what is chosen, or of the only one; ``sizes`` counts the kernels of each."""
    found = [at for at, one in enumerate(known) if one == choice and type(choice) is int]
    if choice is None and len(known) == 1:
        return 0
    if len(found) == 1:
        return found[0]
    each = zip(known, sizes() if known else (), strict=True)
    there = [f"{what} {one} with {n} kernel{'s'[: n != 1]}" for one, n in each]
    listed = ", ".join(first_of(there, _MOST_LISTED, "and {} more")) or f"no {what}"
    wrong = f"{what}={choice!r} is {'there twice' if found else 'not there'}: "
    told = f"{'' if choice is None else wrong}the trace has {listed}"
    raise TraceError(f"{trace.source}: {told}. Choose one with {what}=N ({_PAGE})")


def _rows(table: Table, rows: Bools) -> Table:
    columns = {field.name: getattr(table, field.name) for field in fields(table)}
    chosen = {name: column[rows] for name, column in columns.items() if column is not None}
    return replace(table, **chosen)


def annotated_lines(reading: Reading) -> dict[int, str]:
    """``file:line`` of each operator for which an attribution run left one.

    A backward operator takes the line of the forward operator that autograd's flow events name:
    the line of ``backward()`` would be the same for all. Any other takes the innermost line
    annotation around it.
    """
    trace, parent = reading.trace, reading.parent
    names, prefix = trace.operators.name, OwnNames(trace.recording.nonce).line
    around = nearest(parent, trace.operators.annotations(prefix))
    forward = _forward_of_backward(trace)
    origin = np.append(forward, NO_ID)[nearest(parent, forward != NO_ID)]
    line = np.where(around[origin] != NO_ID, around[origin], around)[:-1]
    rows = (line != NO_ID).nonzero()[0]
    texts = [name[len(prefix) :] for name in names[line[rows]].tolist()]
    return dict(zip(rows.tolist(), texts, strict=True))


def frame_lines(trace: Trace, operators: Iterable[int]) -> dict[int, str]:
    """``file:line`` of the innermost recorded Python frame of the user around each operator.

    The profiler names the line of the ``def``, not of the call (pytorch #167605).
    """
    ops, users = trace.operators, _rows(trace.frames, trace.frames.name.that(_is_users))
    rows = np.array(sorted(set(operators) - {NO_ID}), np.int64)
    around = _with_points(users, ops.thread[rows], ops.start[rows])[len(users) :]
    frames = zip(rows.tolist(), around.tolist(), strict=True)
    return {row: _line(users.name[frame]) for row, frame in frames if frame != NO_ID}


def _is_users(frame: str) -> bool:
    return ".py(" in frame and "site-packages" not in frame and "torch/" not in frame


def _line(frame: str) -> str:
    """Of ``file.py(12): function``."""
    file, _, rest = frame.partition("(")
    return f"{file}:{rest.partition(')')[0]}"


def _forward_of_backward(trace: Trace) -> Ints:
    """For each operator the forward one that an arrow of autograd's leads from, else ``NO_ID``."""
    ops, flows = trace.operators, trace.flows
    found = np.full(len(ops), NO_ID, np.int64)
    rows = (~ops.annotation).nonzero()[0]
    row_at = dict(zip(_places(ops.thread[rows], ops.start[rows]), rows.tolist(), strict=True))
    begins = _places(flows.forward_thread, flows.forward_at)
    ends = _places(flows.backward_thread, flows.backward_at)
    for begin, end in zip(begins, ends, strict=True):
        if begin in row_at and end in row_at:
            found[row_at[end]] = row_at[begin]
    return found


def _places(thread: Ints, at: Ints) -> Iterator[tuple[int, int]]:
    return zip(thread.tolist(), at.tolist(), strict=True)


def missed_lookups(reading: Reading) -> int:
    """How often in the rounds a compiled function found nothing that fits.

    A lookup that finds something runs it next on its thread. One that does not compiles; or, where
    the compiler has given up on the code, runs it uncompiled, and no count of the compiler moves.
    What a new region looks up before it begins (torch 2.11) is the compiler's own code.
    """
    ops = reading.trace.operators
    looks = ops.name.are(vocabulary.LOOKUP) & (reading.round_of_operator != NO_ID)
    if not looks.any():
        return 0
    threads = rows_of_threads(ops.thread)
    return sum(_missed(_following(ops, looks, rows)) for rows in threads if looks[rows].any())


def rows_of_threads(thread: Ints) -> list[Ints]:
    """The rows of each thread that some have, in their order, which is that of time."""
    by_thread = np.argsort(thread, kind="stable")
    return np.split(by_thread, np.diff(thread[by_thread]).nonzero()[0] + 1)


def compiled_regions(reading: Reading) -> frozenset[str]:
    """What the frames that torch.compile compiled, and that ran in the rounds, are called."""
    names = reading.trace.operators.name[reading.round_of_operator != NO_ID].distinct()
    return frozenset(filter(vocabulary.COMPILED_REGION.search, names))


def _missed(followed_by: Sequence[str]) -> int:
    """How many of the lookups of one thread find nothing."""
    missed, of_compiler = 0, False
    for following in reversed(followed_by):
        if following != vocabulary.LOOKUP:
            of_compiler = following == vocabulary.REGION_BEGINS
        missed += not of_compiler and vocabulary.COMPILED_REGION.search(following) is None
    return missed


def _following(ops: Operators, looks: Bools, rows: Ints) -> list[str]:
    """The names of the operators that follow the lookups of a thread, whose rows these are; empty
    where none does."""
    after = np.searchsorted(ops.start[rows], ops.end[rows[looks[rows]]], side="left")
    return [ops.name[rows[i]] if i < len(rows) else "" for i in after.tolist()]
