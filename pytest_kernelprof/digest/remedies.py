"""What to do about a profile: each advice with the number that it rests on."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_kernelprof.digest.cells import gpu_us, value_of
from pytest_kernelprof.digest.words import (
    chain_words,
    count_words,
    line_words,
    lines_words,
    source_place,
)
from pytest_kernelprof.units import format_bytes, format_time

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_kernelprof.schema.diff import ProfileDiff
    from pytest_kernelprof.schema.run import Profile

_MUCH = 0.2
"""A share of a call's time below which it is not worth a word."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """An advice: what to do, and what that rests on."""

    what: str
    why: str


def remedies_of(profile: Profile, diff: ProfileDiff | None = None) -> tuple[Remedy, ...]:
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


def _about_new_kernels(profile: Profile, diff: ProfileDiff) -> Iterator[Remedy]:
    come = [
        (change.new, change.new_us, hunk.times, lines_words(change.lines))
        for hunk in diff.hunks
        for change in hunk.changes
        if change.kind == "added" and change.new is not None
    ]
    if not come or diff.new_kernels <= diff.old_kernels:
        return
    us, all_us = sum(one[1] for one in come), gpu_us(profile)
    number = sum(one[2] for one in come)
    share = f", {us / all_us:.1%} of the call's" if all_us else ""
    kernel, *_, unsure = come[0]
    place, chain = source_place(kernel.source), chain_words(kernel.operators, kernel.name)
    where = f" at {line_words(place)}{unsure}" if place else ""
    by = f", launched by {chain}{where}" if chain else where
    what = "kernel" if diff.what == "kernels" else "operator"
    yield Remedy(
        f"Look at what is new{where}.",
        f"{count_words(number, f'new {what}')} of {format_time(us)}{share}: "
        f"{kernel.short_name}{by}.",
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
