"""What all profiles of a run come to, and how far they can be trusted: what was taken again, is
incomplete, cold, or was not judged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_kernelprof.summary.findings import value_of
from pytest_kernelprof.summary.records import Totals, Trust, Unjudged
from pytest_kernelprof.summary.words import count_words, is_judged, limits_of, place_words, title

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_kernelprof.schema.run import Profile, Test
    from pytest_kernelprof.summary.records import Row


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
        int(max(0, (delta.current or 0) - (delta.baseline or 0)))
        for profile in profiles
        for verdict in profile.verdicts
        if verdict.of_snapshot and verdict.comparison is not None
        for delta in verdict.comparison.metrics
        if delta.name == "kernels"
    )


def trust_of(profiles: Sequence[Profile]) -> Trust:
    """How many profiles there were, and how many could not be trusted, at first or at all."""
    integrities = [profile.integrity for profile in profiles]
    conditions = [profile.conditions for profile in profiles]
    on_cpu = sum(profile.environment.kind == "cpu" for profile in profiles)  # all: the verdict's
    noted = {
        "cold": sum(bool(one.cold) or not one.settled for one in integrities),
        "with unproven graph replays": sum(one.graph_replays == "unproven" for one in integrities),
        "timed while other processes worked on the GPU": sum(one.contended for one in conditions),
        "rounds discarded, since the GPU throttled": sum(
            one.discarded_rounds for one in conditions
        ),
        "of CPU operators, which are no kernels": 0 if on_cpu == len(profiles) else on_cpu,
    }
    return Trust(
        profiles=len(profiles),
        retaken=sum(one.retakes > 0 for one in integrities),
        incomplete=sum(not one.complete for one in integrities),
        noted={what: number for what, number in noted.items() if number},
    )


def integrity_line(trust: Trust) -> str:
    """``412 profiles, 3 taken again, 2 cold``; counts of zero are left out."""
    noted = {"taken again": trust.retaken, "incomplete": trust.incomplete, **trust.noted}
    told = [f"{number} {what}" for what, number in noted.items() if number]
    return ", ".join([count_words(trust.profiles, "profile"), *told])


def unjudged_limits(tests: Iterable[Test]) -> tuple[Unjudged, ...]:
    """Limits that say nothing of the device that was measured, beside others of their test that
    were judged; by the reason."""
    found: dict[str, list[tuple[str, str]]] = {}
    for test in tests:
        if test.not_judged or test.outcome == "rerun":
            continue
        for verdict in limits_of(test.profiles):
            if not is_judged(verdict):
                found.setdefault(verdict.why, []).append((test.id, title(verdict)))
    return tuple(
        Unjudged(
            limits=tuple(dict.fromkeys(limit for _, limit in several)),
            tests=tuple(dict.fromkeys(test for test, _ in several)),
            why=why,
        )
        for why, several in found.items()
    )


def places_of(profiles: Iterable[Profile]) -> tuple[str, ...]:
    """Devices with their versions, each once; those with a GPU first."""
    environments = (profile.environment for profile in profiles)
    found = {(one.kind == "cpu", place_words(one)) for one in environments if one.device}
    return tuple(words for _, words in sorted(found))
