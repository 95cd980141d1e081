"""What is wrong with a row or a comparison, limit by limit, each with its numbers; which metrics
have a cell, and which values are beyond what is allowed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_kernelprof.schema.metrics import METRICS
from pytest_kernelprof.summary.records import (
    FAILED_OTHERWISE,
    SLOWER,
    Broken,
    Ending,
    Found,
    severity,
    told_of_test,
)
from pytest_kernelprof.summary.words import measured_words, pair_words, parts_of, rank_words, title

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_kernelprof.schema.run import Profile, Test, Verdict
    from pytest_kernelprof.summary.records import Row


CELLS = ("kernels", "launches", "cuda_time", "latency", "launch_overhead", "syncs", "memcpys")
"""The metrics that have a cell in a table; a limit on another is told in the line of its cause."""


def value_of(profile: Profile, metric: str) -> float | None:
    """The value of a metric; None where it could not be had."""
    found = profile.metrics.get(metric)
    return None if found is None else found.value


def gpu_us(profile: Profile) -> float:
    """The GPU time of a profile, in microseconds; 0 where it has none."""
    return value_of(profile, "cuda_time") or 0.0


def broken_cells(profile: Profile) -> dict[str, Broken]:
    """The values that are beyond what is allowed, by metric: of several on one metric that of a
    limit, and of several limits the strictest; else a baseline's."""
    found: dict[str, Broken] = {}
    for one in _by_limits(profile):
        if one.metric not in found or one.allowed < found[one.metric].allowed:
            found[one.metric] = one
    for one in by_baselines(profile):
        found.setdefault(one.metric, one)
    return found


def _by_limits(profile: Profile) -> Iterator[Broken]:
    for verdict in profile.verdicts:
        measured, allowed = verdict.measured, verdict.allowed
        if measured is None or allowed is None or not _is_of_a_metric(verdict):
            continue
        if verdict.outcome in ("failed", "expected failure"):
            unit = METRICS[verdict.metric].unit
            yield Broken(verdict.metric, unit, measured, allowed, by=title(verdict))


def _is_of_a_metric(verdict: Verdict) -> bool:
    """Whether it is about the value of a metric; of kernels that match a pattern it is not."""
    counts_some = verdict.limit == "max_kernels" and bool(verdict.qualifier)
    return verdict.metric in METRICS and not counts_some


def by_baselines(profile: Profile) -> Iterator[Broken]:
    """What there is more of than in a baseline that it is held to."""
    for verdict in profile.verdicts:
        if verdict.outcome == "failed" and verdict.comparison is not None:
            for one in verdict.comparison.worse:
                if one.current is not None and one.baseline is not None:
                    unit = one.spec.unit
                    yield Broken(one.name, unit, one.current, one.baseline, by=verdict.limit)


_WRONG = ("failed", "incomplete", "undecided")


def findings_of(row: Row) -> tuple[Found, ...]:
    """All that is wrong with a row, limits first; of one that is marked at least one."""
    found = [*_by_verdicts(row.profile.verdicts), *_by_baselines(row)]
    # A cell has the value of a limit: a baseline that is exceeded by the same metric has none.
    for one in by_baselines(row.profile) if row.failed else ():
        if not any(other.limit.startswith(f"{one.by}: ") for other in found):
            found.append(_found(one))
    if not found and row.told is not None:  # over, but of no count: of times in turn
        found = [Found(row.told, SLOWER if row.told == "failed" else "")]
    return tuple(found)


def endings_of(tests: Iterable[Test], rows: Iterable[Row]) -> tuple[Ending, ...]:
    """What no row says of tests, worst first."""
    told = {row.test for row in rows}
    found = [one for test in tests for one in _endings(test, has_rows=test.id in told)]
    return tuple(sorted(found, key=lambda one: severity(one.found.told)))


def left_out(tests: Iterable[Test], rows: Iterable[Row]) -> tuple[Test, ...]:
    """The tests without a row none of whose limits was judged."""
    told = {row.test for row in rows}
    return tuple(one for one in tests if one.id not in told and told_of_test(one) == "not judged")


def _endings(test: Test, *, has_rows: bool) -> Iterator[Ending]:
    file, name = parts_of(test.id)
    if test.outcome == "rerun":
        return
    for comparison in test.comparisons:
        for verdict in comparison.verdicts:
            for found in _by_verdicts([verdict]):
                yield Ending(test, file, name, found, comparison, verdict)
    told = told_of_test(test)
    if not has_rows and told in FAILED_OTHERWISE:
        yield Ending(test, file, name, Found(told))


def _by_verdicts(verdicts: Iterable[Verdict]) -> Iterator[Found]:
    for one in verdicts:
        if one.outcome in _WRONG and (one.of_limit or one.outcome != "failed"):
            yield Found(one.outcome, title(one), *measured_words(one), rank_words(one))


def _by_baselines(row: Row) -> Iterator[Found]:
    """A launch more for each kernel more is nothing else that is wrong."""
    verdicts = row.profile.verdicts
    baselines = {one.limit for one in verdicts if not one.of_limit}
    kernels, launches = row.broken.get("kernels"), row.broken.get("launches")
    alike = (
        kernels
        and launches
        and launches.measured - kernels.measured == (launches.allowed - kernels.allowed)
    )
    for one in row.broken.values():
        is_told = alike and one.metric == "launches"
        if one.by in baselines and not is_told:
            yield _found(one)


def _found(one: Broken) -> Found:
    values = pair_words(one.unit, one.measured, one.allowed)
    return Found("failed", f"{one.by}: {one.metric}", *values)
