"""What all profiles of a run come to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_kernelprof.digest.cells import value_of
from pytest_kernelprof.digest.records import Totals

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_kernelprof.digest.records import Row
    from pytest_kernelprof.schema.run import Profile


def totals_of(rows: Sequence[Row]) -> Totals:
    """Sums over all profiles, each as one call; of those of the GPU but for ``operators``."""
    on_gpu = [row for row in rows if row.profile.environment.kind == "cuda"]
    profiles = [row.profile for row in on_gpu]
    waiting = [row for row in on_gpu if value_of(row.profile, "syncs")]
    return Totals(
        profiles=len(rows),
        kernels=sum(profile.kernel_count for profile in profiles),
        operators=sum(
            row.profile.kernel_count for row in rows if row.profile.environment.kind == "cpu"
        ),
        gpu_us=_sum(profiles, "cuda_time"),
        comm_us=_sum(profiles, "comm_time"),
        launches=_count(profiles, "launches"),
        waits=_count(profiles, "syncs"),
        waiting_tests=len({row.test for row in waiting}),
        most_waits=max(waiting, key=lambda row: value_of(row.profile, "syncs") or 0, default=None),
        copies=_count(profiles, "memcpys"),
        pageable=_count(profiles, "memcpys_pageable"),
        idle_us=_sum(profiles, "gpu_idle"),
        span_us=_sum(profiles, "gpu_span"),
        extra_kernels=_extra(profiles),
    )


def _sum(profiles: Iterable[Profile], metric: str) -> float | None:
    values = [one for one in (value_of(p, metric) for p in profiles) if one is not None]
    return sum(values) if values else None


def _count(profiles: Iterable[Profile], metric: str) -> int | None:
    found = _sum(profiles, metric)
    return None if found is None else int(found)


def _extra(profiles: Iterable[Profile]) -> int:
    """Kernels beyond those that snapshots have."""
    return sum(
        max(0, count.found - count.kept)
        for profile in profiles
        for verdict in profile.verdicts
        if verdict.snapshot is not None
        for count in verdict.snapshot.counts
        if count.metric == "kernels"
    )
