"""The metrics that follow from a device trace alone: counts, copies, and the device's times."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from pytest_kernelprof.analysis.communication import communication_metrics, talking
from pytest_kernelprof.analysis.kernels import directions
from pytest_kernelprof.analysis.metrics import absent, metric_of
from pytest_kernelprof.schema.metrics import DIRECTIONS
from pytest_kernelprof.trace.arrays import KERNEL, MEMCPY, MEMSET, NO_ID
from pytest_kernelprof.trace.completeness import unrecorded_memsets
from pytest_kernelprof.trace.timeline import timeline_of
from pytest_kernelprof.trace.vocabulary import PAGEABLE, matches

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_kernelprof.schema.run import Metric
    from pytest_kernelprof.trace.arrays import Bools, Ints
    from pytest_kernelprof.trace.reading import Reading


def device_metrics(reading: Reading, waits: Sequence[Sequence[int]]) -> dict[str, Metric]:
    """All metrics of the profiled rounds, by name. ``waits``: those of the host, in each round."""
    acts = reading.trace.activities
    kernels, copies = acts.kind == KERNEL, acts.kind == MEMCPY
    computing = kernels & ~talking(reading)
    spans = _busy_and_span(reading)
    rounds: dict[str, list[float]] = {
        "kernels": _per_round(reading, kernels),
        "launches": _launches(reading),
        "memsets": _per_round(reading, acts.kind == MEMSET),
        "syncs": [len(of_round) for of_round in waits],
        "cuda_time": [ns / 1e3 for ns in _per_round(reading, computing, acts.end - acts.start)],
        **_copies(reading, copies),
        "memcpys_pageable": _per_round(reading, copies & matches(acts.name, PAGEABLE)),
        "gpu_busy": [busy / 1e3 for busy, _ in spans],
        "gpu_span": [span / 1e3 for _, span in spans],
        "gpu_idle": [(span - busy) / 1e3 for busy, span in spans],
    }
    found = {name: metric_of(name, values) for name, values in rounds.items()}
    found |= communication_metrics(reading)
    return found | {name: absent(name, why) for name, why in _not_known(reading).items()}


def _not_known(reading: Reading) -> dict[str, str]:
    """The counts that the trace cannot tell, each with the reason."""
    memsets = unrecorded_memsets(reading)
    if not memsets:
        return {}
    return {"memsets": f"not available: {memsets} memset calls have no memset in the trace"}


def _copies(reading: Reading, copies: Bools) -> dict[str, list[float]]:
    acts = reading.trace.activities
    size, direction = acts.bytes, directions(acts.name)
    which = {"": copies, **{f"_{d}": copies & direction.are(d) for d in DIRECTIONS}}
    counts = {f"memcpys{suffix}": _per_round(reading, of) for suffix, of in which.items()}
    sizes = {f"memcpy_bytes{suffix}": _per_round(reading, of, size) for suffix, of in which.items()}
    return counts | sizes


def _per_round(reading: Reading, chosen: Bools, weights: Ints | None = None) -> list[float]:
    """Of each round, how many of the chosen activities it has, or the sum of their weights."""
    ours = reading.round_of_activity
    chosen = chosen & (ours != NO_ID)
    values = np.bincount(
        ours[chosen], None if weights is None else weights[chosen], minlength=reading.rounds
    )
    return [int(value) for value in values]


def _launches(reading: Reading) -> list[float]:
    """Launch calls of each round that ran something."""
    ran = np.zeros(len(reading.trace.calls), np.bool_)
    linked = reading.links.call_of_activity
    ran[linked[linked != NO_ID]] = True
    chosen = reading.launches & ran & (reading.round_of_call != NO_ID)
    counts = np.bincount(reading.round_of_call[chosen], minlength=reading.rounds)
    return [int(count) for count in counts]


def _busy_and_span(reading: Reading) -> list[tuple[int, int]]:
    """Of each round union and extent of the intervals of its activities, in ns."""
    line, rounds = timeline_of(reading), reading.rounds
    start = reading.trace.activities.start[line.rows]
    inside = np.flatnonzero(line.number[1:] == line.number[:-1])
    gap = np.maximum(0, start[inside + 1] - line.reached[inside])
    idle = np.bincount(line.number[inside], gap, minlength=rounds).tolist()
    found = []
    for number, (begin, end) in enumerate(itertools.pairwise(line.first.tolist())):
        span = int(line.reached[end - 1] - start[begin]) if end > begin else 0
        found.append((span - int(idle[number]), span))
    return found
