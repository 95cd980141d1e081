"""The cells of a row: which metrics have one, and which values are beyond what is allowed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_kernelprof.digest.records import Broken
from pytest_kernelprof.digest.words import title
from pytest_kernelprof.schema.metrics import METRICS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_kernelprof.schema.against import Compared
    from pytest_kernelprof.schema.run import Profile, Verdict

CELLS = ("kernels", "launches", "cuda_time", "latency", "launch_overhead", "syncs", "memcpys")
"""The metrics that have a cell in a table; a limit on another is told in the line of its cause."""


def value_of(profile: Profile, metric: str) -> float | None:
    """The value of a metric; None where it could not be had."""
    found = profile.metrics.get(metric)
    return None if found is None else found.value


def gpu_us(profile: Profile) -> float:
    """The GPU time of a profile, in microseconds; 0 where it has none."""
    return value_of(profile, "cuda_time") or 0.0


def broken_cells(profile: Profile, against: Compared | None = None) -> dict[str, Broken]:
    """The values that are beyond what is allowed, by metric: of several on one metric that of a
    limit, and of several limits the strictest; else what was before."""
    found: dict[str, Broken] = {}
    for one in _by_limits(profile):
        if one.metric not in found or one.allowed < found[one.metric].allowed:
            found[one.metric] = one
    for one in _by_what_was_before(profile, against):
        found.setdefault(one.metric, one)
    return found


def _by_limits(profile: Profile) -> Iterator[Broken]:
    for verdict in profile.verdicts:
        measured, allowed = verdict.measured, verdict.allowed
        if measured is None or allowed is None or not _is_of_a_metric(verdict):
            continue
        if verdict.outcome in ("over", "expected"):
            unit = METRICS[verdict.metric].unit
            yield Broken(verdict.metric, unit, measured, allowed, by=title(verdict))


def _is_of_a_metric(verdict: Verdict) -> bool:
    """Whether it is about the value of a metric; of kernels that match a pattern it is not."""
    counts_some = verdict.limit == "max_kernels" and bool(verdict.qualifier)
    return verdict.metric in METRICS and not counts_some


def _by_what_was_before(profile: Profile, against: Compared | None) -> Iterator[Broken]:
    for verdict in profile.verdicts:
        if verdict.outcome != "over":
            continue
        for count in verdict.snapshot.counts if verdict.snapshot else ():
            if count.found > count.kept:
                yield Broken(count.metric, count.unit, count.found, count.kept, by="snapshot")
        for metric in verdict.comparison.metrics if verdict.comparison else ():
            old = next((one for one in reversed(metric.olds) if one is not None), None)
            if metric.verdict == "worse" and metric.judged and old is not None:
                yield Broken(metric.name, metric.unit, metric.new, old, by="compare")
    yield from more_than_before(against) if against else ()


def more_than_before(against: Compared) -> Iterator[Broken]:
    """What there is more of than in a revision."""
    changes = {one.name: one for one in against.diff.metrics}
    for one in map(changes.get, against.worse):
        if one is not None and one.new is not None and one.old is not None:
            yield Broken(one.name, one.unit, one.new, one.old, by="against")
