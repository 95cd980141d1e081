"""The metrics that there are: one table, which analysis fills and limits and reports refer to."""

from __future__ import annotations

from typing import Literal, NamedTuple

Kind = Literal["exact", "timed", "rate", "shown"]
Unit = Literal["count", "us", "bytes", "FLOP/s", "B/s"]
Rated = Literal["throughput", "bandwidth"]
"""The metrics that say the work of a call a second."""
Source = Literal["profiled", "unprofiled", "memory", "compiler", "binaries", "work"]

COMPARED_KINDS: tuple[Kind, ...] = ("exact", "timed")
"""What baselines are compared by. A rate says no more there than ``gpu_busy``."""

DIRECTIONS = ("h2d", "d2h", "d2d", "p2p")


class MetricSpec(NamedTuple):
    """One metric: what it is, and what has to be taken to have it.

    Attributes:
        name: as in ``Profile.metrics``.
        kind: "exact" (a count), "timed" (judged with an interval), "rate" (likewise, but more is
            better: limits are floors) or "shown" (never a limit).
        unit: "count", "us", "bytes", "FLOP/s" (floating-point operations a second) or "B/s".
        sources: "profiled" rounds, "unprofiled" calls, calls whose "memory" is watched, what a
            "compiler" did, the kernels' "binaries", or the "work" that the operators' shapes or the
            test tell.
        devices: "cuda" and "cpu", those on which it can be had.
        judged: whether a baseline is exceeded by more of it. Of memsets healthy traces miss some;
            times are judged by margins that are asked for. What Triton compiles or tunes depends
            on what ran before.
    """

    name: str
    kind: Kind
    unit: Unit
    sources: tuple[Source, ...]
    devices: tuple[str, ...] = ("cuda",)
    judged: bool = False


_BOTH = ("cuda", "cpu")


def _counts(*names: str, unit: Unit = "count") -> list[MetricSpec]:
    return [MetricSpec(name, "exact", unit, ("profiled",), judged=True) for name in names]


def _profiled(kind: Kind, *names: str) -> list[MetricSpec]:
    return [MetricSpec(name, kind, "us", ("profiled",)) for name in names]


def _directed(name: str, unit: Unit = "count") -> list[MetricSpec]:
    return _counts(name, *(f"{name}_{direction}" for direction in DIRECTIONS), unit=unit)


_TABLE = (
    MetricSpec("kernels", "exact", "count", ("profiled",), _BOTH, judged=True),
    *_counts("launches"),
    MetricSpec("memsets", "exact", "count", ("profiled",)),
    *_counts("syncs"),
    MetricSpec("would_wait", "exact", "count", ("profiled",), ("cpu",), judged=True),
    *_profiled("timed", "cuda_time"),
    *_directed("memcpys"),
    *_directed("memcpy_bytes", "bytes"),
    *_counts("memcpys_pageable"),
    *_profiled("timed", "gpu_busy", "comm_time", "exposed_comm_time"),
    *_profiled("shown", "comm_transfer", "comm_wait"),
    *_counts("comm_bytes", unit="bytes"),
    *_profiled("shown", "gpu_span", "gpu_idle"),
    MetricSpec("dispatch_time", "timed", "us", ("unprofiled",), devices=_BOTH),
    MetricSpec("latency", "timed", "us", ("unprofiled",), devices=_BOTH),
    MetricSpec("launch_overhead", "timed", "us", ("profiled", "unprofiled")),
    MetricSpec("overhead_per_launch", "shown", "us", ("profiled", "unprofiled")),
    MetricSpec("throughput", "rate", "FLOP/s", ("profiled", "work")),
    MetricSpec("bandwidth", "rate", "B/s", ("profiled", "work")),
    MetricSpec("peak_throughput", "shown", "FLOP/s", ("work",)),
    MetricSpec("peak_bandwidth", "shown", "B/s", ("work",)),
    MetricSpec("peak_memory", "exact", "bytes", ("memory",), judged=True),
    MetricSpec("allocations", "exact", "count", ("memory",), judged=True),
    MetricSpec("recompiles", "exact", "count", ("compiler",), _BOTH, judged=True),
    MetricSpec("registers", "exact", "count", ("profiled",)),
    MetricSpec("shared_memory", "exact", "bytes", ("profiled",)),
    MetricSpec("spills", "exact", "bytes", ("binaries",)),
    MetricSpec("jit_compiles", "exact", "count", ("compiler",)),
    MetricSpec("autotunes", "exact", "count", ("compiler",), _BOTH),
    MetricSpec("graph_breaks", "exact", "count", ("compiler",), _BOTH),
)

METRICS: dict[str, MetricSpec] = {spec.name: spec for spec in _TABLE}

OF_WORST_KERNEL = ("registers", "shared_memory", "spills")
"""What single kernels need: of a call, the most that any of its kernels does."""
WITH_INTERVAL: tuple[str, ...] = ("us", "FLOP/s", "B/s")
"""The units of what is judged with an interval."""

SHARE_OF = {"launch_overhead": "latency", "exposed_comm_time": "gpu_busy"}
SHARE_OF |= {"throughput": "peak_throughput", "bandwidth": "peak_bandwidth"}
"""What a limit of so many percent is of, by what it limits."""
