"""What to do, each with the number that it rests on: short kernels, limits near and loose."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_kernelprof.digest.cells import value_of
from pytest_kernelprof.digest.kernel_groups import groups_of
from pytest_kernelprof.digest.records import Near, ShortKernels, Tighten
from pytest_kernelprof.digest.words import title
from pytest_kernelprof.schema.metrics import METRICS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_kernelprof.digest.records import Row
    from pytest_kernelprof.schema.metrics import Unit
    from pytest_kernelprof.schema.run import Profile, Verdict

SHORT_US = 3.0
"""A kernel that is shorter takes less than its launch, by any measurement that we know of."""
_NEAR = 0.03
_LOOSE = 2.0


def short_kernels(rows: Sequence[Row]) -> ShortKernels | None:
    """Kernels too short for their launches, in tests that are overhead-bound by a measured
    overhead; None without."""
    found = []
    for row in rows:
        number = _short_of(row.profile)
        overhead, latency = _overhead(row.profile)
        if number and overhead and latency:
            found.append((overhead / latency, number, row, overhead, latency))
    if not found:
        return None
    _, _, worst, overhead, latency = max(found, key=lambda one: one[:2])
    tests = {row.test for _, _, row, _, _ in found}
    number = sum(number for _, number, _, _, _ in found)
    return ShortKernels(number, len(tests), SHORT_US, worst, overhead, latency)


def _short_of(profile: Profile) -> int:
    """By the mean of the kernels of one name, since that is what is known of many."""
    if profile.bound.verdict != "overhead" or profile.environment.kind != "cuda":
        return 0
    groups = groups_of(profile).values()
    return sum(number for number, us in groups if number and us / number < SHORT_US)


def _overhead(profile: Profile) -> tuple[float | None, float | None]:
    return value_of(profile, "launch_overhead"), value_of(profile, "latency")


def near_limits(rows: Sequence[Row]) -> tuple[Near, ...]:
    """Times that are kept, with less left than 3 % or than their interval is wide; nearest
    first."""
    found = [
        Near(row, verdict, left)
        for row in rows
        for verdict in row.profile.verdicts
        if (left := _left(verdict)) is not None
    ]
    return tuple(sorted(found, key=lambda one: (one.share, one.row.test)))


def _left(verdict: Verdict) -> float | None:
    """What is left of a timed limit, as a share of it; None where that is not near, or no time."""
    if verdict.outcome != "kept" or verdict.unit != "us" or not verdict.allowed:
        return None
    if verdict.measured is None:
        return None
    left = (verdict.allowed - verdict.measured) / verdict.allowed
    known = verdict.low is not None and verdict.high is not None
    wide = ((verdict.high or 0.0) - (verdict.low or 0.0)) / verdict.allowed if known else 0.0
    return left if left <= max(_NEAR, wide) else None


def loose_limits(rows: Sequence[Row]) -> tuple[Tighten, ...]:
    """Exact limits above the largest value of their test, and times above twice theirs; the
    loosest first. Of one marker on a parametrised test the largest value of all counts."""
    seen: dict[tuple[str, str, float], list[tuple[Row, Verdict]]] = {}
    for row, verdict in _kept(rows):
        assert verdict.allowed is not None  # as ``_kept`` says
        stem = f"{row.file}::{row.name.partition('[')[0]}"
        seen.setdefault((stem, title(verdict), verdict.allowed), []).append((row, verdict))
    found = [_tightened(several) for several in seen.values()]
    loose = [one for one in found if one is not None]
    return tuple(sorted(loose, key=lambda one: (one.seen / one.allowed, one.file, one.name)))


def _kept(rows: Iterable[Row]) -> Iterator[tuple[Row, Verdict]]:
    """Limits with a value that were not broken, or not yet decided."""
    for row in rows:
        for verdict in row.profile.verdicts:
            known = verdict.measured is not None and verdict.allowed
            if known and verdict.of_limit and verdict.metric in METRICS:
                yield row, verdict


def _tightened(several: Sequence[tuple[Row, Verdict]]) -> Tighten | None:
    verdicts = [verdict for _, verdict in several]
    row, first = several[0]
    if any(one.outcome != "kept" or one.share is not None for one in verdicts):
        return None
    if any(row.told != "kept" for row, _ in several):  # not what its code takes as it should be
        return None
    seen, allowed = max(one.measured or 0.0 for one in verdicts), first.allowed or 0.0
    unit: Unit = METRICS[first.metric].unit
    timed = METRICS[first.metric].kind == "timed"
    if (timed and allowed <= _LOOSE * seen) or allowed <= seen:
        return None
    return Tighten(row.file, row.name.partition("[")[0], title(first), unit, allowed, seen)
