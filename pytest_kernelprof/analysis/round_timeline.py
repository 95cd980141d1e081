"""One round event by event, for pictures: what host threads and streams did, and when."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pytest_kernelprof.schema.recording import OwnNames
from pytest_kernelprof.schema.run import Timeline, TimelineKind
from pytest_kernelprof.trace.arrays import KERNEL, MEMCPY, MEMSET
from pytest_kernelprof.trace.rounds import round_of_time

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_kernelprof.trace.arrays import Bools, Ints
    from pytest_kernelprof.trace.model import Spans
    from pytest_kernelprof.trace.names import Names
    from pytest_kernelprof.trace.reading import Reading

MOST_EVENTS = 5_000
"""Events of the host in a timeline, and of the device; of more the shortest are left out."""

_OF_DEVICE: dict[int, TimelineKind] = {KERNEL: "kernel", MEMCPY: "memcpy", MEMSET: "memset"}


class _Part(NamedTuple):
    """Events of one kind: rows of a table, the lane of each, and its correlation id."""

    kind: TimelineKind
    spans: Spans
    rows: Ints
    lanes: list[str]
    correlation: Ints


def timeline_of_round(reading: Reading, number: int) -> Timeline:
    """Operators, annotations, calls and activities of a round, by their start.

    Args:
        number: the round, from 0. What it caused on the device belongs to it, whenever it ran.
    """
    parts = list(_parts(reading, number))
    counts = [len(part.rows) for part in parts]
    if not sum(counts):
        return Timeline()
    start = np.concatenate([part.spans.start[part.rows] for part in parts])
    end = np.concatenate([part.spans.end[part.rows] for part in parts])
    kinds = np.repeat(np.arange(len(parts)), counts)
    on_device = np.repeat([part.kind in _OF_DEVICE.values() for part in parts], counts)
    longest = np.argsort(start - end, kind="stable")
    sides = (longest[on_device[longest] == side][:MOST_EVENTS] for side in (False, True))
    kept = np.sort(np.concatenate(list(sides)))
    kept = kept[np.argsort(start[kept], kind="stable")]
    lanes = [lane for part in parts for lane in part.lanes]
    names = [name for part in parts for name in _names(part.spans.name, part.rows)]
    correlation = np.concatenate([part.correlation for part in parts])
    began = start[kept[0]]
    return Timeline(
        kind=tuple(parts[i].kind for i in kinds[kept].tolist()),
        name=tuple(names[i] for i in kept.tolist()),
        start_us=_microseconds(start[kept] - began),
        duration_us=_microseconds((end - start)[kept]),
        lane=tuple(lanes[i] for i in kept.tolist()),
        correlation=tuple(np.maximum(correlation[kept], 0).tolist()),
        left_out=len(start) - len(kept),
    )


def _parts(reading: Reading, number: int) -> Iterable[_Part]:
    ops, calls, acts = (
        reading.trace.operators,
        reading.trace.calls,
        reading.trace.activities,
    )
    prefix = OwnNames(reading.trace.recording.nonce).prefix
    ours = ops.name.that(lambda name: name.startswith(prefix))
    inside = round_of_time(reading.layout.rounds, ops.start, late=False) == number
    of_host: tuple[tuple[TimelineKind, Bools], ...] = (
        ("operator", ~ops.annotation),
        ("annotation", ops.annotation & ~ours),
    )
    for kind, rows in of_host:
        found = np.flatnonzero(inside & rows)
        yield _of_host(reading, kind, ops, found, ops.thread[found], np.zeros_like(found))
    found = np.flatnonzero(reading.round_of_call == number)
    yield _of_host(reading, "call", calls, found, calls.thread[found], calls.correlation[found])
    for code, kind_of_device in _OF_DEVICE.items():
        found = np.flatnonzero((reading.round_of_activity == number) & (acts.kind == code))
        where = zip(acts.device[found].tolist(), acts.stream[found].tolist(), strict=True)
        lanes = [f"device {device} stream {stream}" for device, stream in where]
        yield _Part(kind_of_device, acts, found, lanes, acts.correlation[found])


def _of_host(
    reading: Reading,
    kind: TimelineKind,
    spans: Spans,
    rows: Ints,
    threads: Ints,
    correlation: Ints,
) -> _Part:
    names = reading.trace.threads
    return _Part(kind, spans, rows, [f"thread {names[i]}" for i in threads.tolist()], correlation)


def _names(names: Names, rows: Ints) -> list[str]:
    return [names.texts[code] for code in names.codes[rows].tolist()]


def _microseconds(ns: Ints) -> tuple[float, ...]:
    return tuple((ns / 1e3).tolist())
