"""What to do about a profile and about a run, each with the number that it rests on."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_kernelprof.schema.metrics import METRICS
from pytest_kernelprof.summary.findings import gpu_us, value_of
from pytest_kernelprof.summary.kernel_groups import groups_of
from pytest_kernelprof.summary.records import Near, ShortKernels, Tighten
from pytest_kernelprof.summary.words import (
    chain_words,
    count_words,
    line_words,
    lines_words,
    source_place,
    title,
)
from pytest_kernelprof.units import format_bytes, format_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_kernelprof.schema.comparison import KernelDiff
    from pytest_kernelprof.schema.metrics import Unit
    from pytest_kernelprof.schema.run import Profile, Verdict
    from pytest_kernelprof.summary.records import Row


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
    if verdict.outcome != "passed" or verdict.unit != "us" or not verdict.allowed:
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
    if any(one.outcome != "passed" or one.share is not None for one in verdicts):
        return None
    if any(row.told != "passed" for row, _ in several):  # not what its code takes as it should be
        return None
    seen, allowed = max(one.measured or 0.0 for one in verdicts), first.allowed or 0.0
    unit: Unit = METRICS[first.metric].unit
    timed = METRICS[first.metric].kind == "timed"
    if (timed and allowed <= _LOOSE * seen) or allowed <= seen:
        return None
    return Tighten(row.file, row.name.partition("[")[0], title(first), unit, allowed, seen)


_MUCH = 0.2
"""A share of a call's time below which it is not worth a word."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """An advice: what to do, and what that rests on."""

    what: str
    why: str


def remedies_of(profile: Profile, diff: KernelDiff | None = None) -> tuple[Remedy, ...]:
    """What there is to do, the most telling first; none where nothing stands out.

    Args:
        diff: how its kernels differ from what they were before, where that is known.
    """
    if not profile.integrity.complete:
        return tuple(_about_incomplete(profile))
    found = [
        *(_about_new_kernels(profile, diff) if diff is not None else ()),
        *_about_compilations(profile),
        *_about_waits(profile),
        *_about_pageable(profile),
        *_about_overhead(profile),
        *_about_host_waits(profile),
        *_about_cold(profile),
        *_about_undecided(profile),
    ]
    return tuple(found)


def _about_incomplete(profile: Profile) -> Iterator[Remedy]:
    tries = profile.integrity.retakes + 1
    yield Remedy(
        "Run the test alone.",
        f"{'; '.join(profile.integrity.problems)}, by {count_words(tries, 'try', 'tries')}. "
        "kernelprof doctor says whether counts can be had on this machine.",
    )


def _about_new_kernels(profile: Profile, diff: KernelDiff) -> Iterator[Remedy]:
    come = diff.of("added")
    if not come or diff.current_kernels <= diff.baseline_kernels:
        return
    us, all_us = sum(one.us(one.current) * one.times for one in come), gpu_us(profile)
    number = sum(one.times for one in come)
    share = f", {us / all_us:.1%} of the call's" if all_us else ""
    takes = f" of {format_time(us)}{share}" if us else ""
    kernel, unsure = come[0].side, lines_words(come[0].lines)
    place, chain = source_place(kernel.source), chain_words(kernel.operators, kernel.name)
    where = f" at {line_words(place)}{unsure}" if place else ""
    by = f", launched by {chain}{where}" if chain else where
    what = "kernel" if diff.what == "kernels" else "operator"
    yield Remedy(
        f"Look at what is new{where}.",
        f"{count_words(number, f'new {what}')}{takes}: {kernel.short_name}{by}.",
    )


def _about_compilations(profile: Profile) -> Iterator[Remedy]:
    number = value_of(profile, "recompiles")
    if number:
        metric = profile.metrics["recompiles"]
        why = f": {metric.why}" if metric.why else ""
        yield Remedy(
            "Find out why it compiles again.",
            f"{count_words(int(number), 'compilation')} in calls that were warm{why}. "
            "TORCH_LOGS=recompiles names the guard that failed.",
        )


def _about_waits(profile: Profile) -> Iterator[Remedy]:
    if not profile.waits or profile.bound.verdict not in ("sync", "overhead", "mixed"):
        return
    places = _places([one.source for one in profile.waits])
    calls = sorted({one.operators[0] if one.operators else one.call for one in profile.waits})
    yield Remedy(
        "Keep values on the GPU.",
        f"The host waits {count_words(len(profile.waits), 'time')} for the device in one call, in "
        f"{', '.join(calls[:3])}{places}.",
    )


def _about_pageable(profile: Profile) -> Iterator[Remedy]:
    number = value_of(profile, "memcpys_pageable")
    if not number:
        return
    pageable = [one for one in profile.copies if "ageable" in one.name]
    size = format_bytes(sum(one.bytes for one in pageable))
    yield Remedy(
        "Pin the host's memory.",
        f"{count_words(int(number), 'copy', 'copies')} of {size} from or to pageable memory"
        f"{_places([one.source for one in pageable])}: each makes the host wait.",
    )


def _places(sources: Sequence[str]) -> str:
    found = [line_words(one) for one in map(source_place, dict.fromkeys(sources)) if one]
    return f" at {', '.join(found[:3])}" if found else ""


def _about_overhead(profile: Profile) -> Iterator[Remedy]:
    launches, each = value_of(profile, "launches"), value_of(profile, "overhead_per_launch")
    if profile.bound.verdict != "overhead" or not launches or each is None:
        return
    kernels = max(1, profile.kernel_count)
    words = (
        f"{count_words(int(launches), 'launch', 'launches')} with {format_time(each)} of overhead "
        f"each, for kernels of {format_time(gpu_us(profile) / kernels)}."
    )
    if launches > 1:
        yield Remedy(
            "Launch less often.",
            f"{words} A CUDA graph makes them one launch, torch.compile fewer kernels.",
        )
    else:
        yield Remedy("Give a call more to do.", f"{words} Larger batches share the launch.")


def _about_host_waits(profile: Profile) -> Iterator[Remedy]:
    span, rounds = value_of(profile, "gpu_span"), profile.gaps.rounds
    if not span or not rounds:
        return
    late = statistics.median(one.host_wait for one in rounds)
    if late / span > _MUCH:
        yield Remedy(
            "Let the host run ahead.",
            f"In profiled rounds the GPU waited {format_time(late)} of {format_time(span)} for the "
            "next launch; the profiler slows the host, so without it that is less.",
        )


def _about_cold(profile: Profile) -> Iterator[Remedy]:
    if profile.integrity.cold:
        yield Remedy(
            "Profile a call that is warm.",
            f"{', '.join(profile.integrity.cold)} in the round; kernel_profile(fn) warms up, a "
            "region does not.",
        )


def _about_undecided(profile: Profile) -> Iterator[Remedy]:
    for verdict in profile.verdicts:
        if verdict.outcome == "undecided" and verdict.reason in ("interval", "few"):
            rounds = max(verdict.rounds, 1)
            yield Remedy(
                "Take more rounds, or move the limit.",
                f"{count_words(rounds, 'round')} do not tell {verdict.limit} from its limit; "
                f"--kernelprof-rounds={rounds * 2} takes twice as many.",
            )
