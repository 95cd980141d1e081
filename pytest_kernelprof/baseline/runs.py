"""A run against earlier ones: which profile has more of what, and whether that is allowed."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pytest_kernelprof.baseline.diff import diff_profiles
from pytest_kernelprof.schema.runs import (
    Change,
    MetricComparison,
    ProfileComparison,
    RunsComparison,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_kernelprof.baseline.allowance import Allowance
    from pytest_kernelprof.schema.run import Metric, Profile, Run

Key = tuple[str, int]
"""A test, and the number of its profile."""


def compare_runs(olds: Sequence[Run], new: Run, allowed: Mapping[str, Allowance]) -> RunsComparison:
    """What is another in ``new``.

    Counts and bytes are compared with the last of the earlier runs that has the profile. A time is
    worse if its interval lies above the largest of their medians by what is allowed, better if
    below the smallest; only runs on the same device with the same software are asked.

    Args:
        olds: earlier runs, the oldest first.
        allowed: what each metric may grow by.
    """
    before = [_profiles(run) for run in olds]
    now = _profiles(new)
    found: list[ProfileComparison] = []
    untimed: Counter[str] = Counter()
    incomplete: list[str] = []
    compared = 0
    for key, profile in now.items():
        earlier = [one.get(key) for one in before]
        there = [one for one in earlier if one is not None]
        if not there:
            continue
        if not (profile.integrity.complete and there[-1].integrity.complete):
            incomplete.append(key[0])
            continue
        compared += 1
        one = _compare(key[0], earlier, there[-1], profile, allowed)
        if one.untimed:
            untimed[one.untimed] += 1
        if one.metrics or one.diff:
            found.append(one)
    last = {key[0] for key in before[-1]}
    tests = {key[0] for key in now}
    return RunsComparison(
        profiles=tuple(found),
        compared=compared,
        untimed=dict(untimed),
        gone=tuple(dict.fromkeys(key[0] for key in before[-1] if key[0] not in tests)),
        fresh=tuple(dict.fromkeys(key[0] for key in now if key[0] not in last)),
        incomplete=tuple(dict.fromkeys(incomplete)),
        unfinished=tuple(why for run in (*olds, new) for why in run.unfinished),
    )


def _profiles(run: Run) -> dict[Key, Profile]:
    """By test and number; of a test that ran again, the last time counts."""
    return {(test.id, i): one for test in run.tests for i, one in enumerate(test.profiles)}


def _compare(
    test: str,
    earlier: Sequence[Profile | None],
    last: Profile,
    new: Profile,
    allowed: Mapping[str, Allowance],
) -> ProfileComparison:
    diff = diff_profiles(last, new)
    untimed = ", ".join(diff.other) or _why_untimed(last) or _why_untimed(new)
    metrics = []
    for name, allowance in allowed.items():
        now = new.metrics.get(name)
        if now is None or now.value is None or (now.kind == "timed" and untimed):
            continue
        olds = tuple(_comparable(one, new, name) for one in earlier)
        one = _judge(allowance, olds, now, now.value)
        if one is not None:
            metrics.append(one)
    return ProfileComparison(
        test=test,
        label=new.label,
        metrics=tuple(metrics),
        diff=diff if diff.hunks or any(one.verdict == "worse" for one in metrics) else None,
        untimed=untimed,
    )


def _why_untimed(profile: Profile) -> str:
    if profile.one_shot:
        return "a block that ran once has no rounds"
    if profile.conditions.disturbed:
        return "the GPU was disturbed while it was timed"
    return ""


def _comparable(old: Profile | None, new: Profile, name: str) -> float | None:
    """The old value, where the two compare."""
    metric = old.metrics.get(name) if old is not None else None
    if old is None or metric is None:
        return None
    if metric.kind == "timed" and (old.environment != new.environment or _why_untimed(old)):
        return None
    return metric.value


def _judge(
    allowance: Allowance, olds: tuple[float | None, ...], now: Metric, value: float
) -> MetricComparison | None:
    """What became of a metric; None where it is as before, or nothing to compare it with."""
    there = [one for one in olds if one is not None]
    if not there:
        return None
    of_kind = _verdict_of_count if now.kind == "exact" else _verdict_of_time
    verdict = of_kind(allowance, there, now, value)
    if verdict is None:
        return None
    return MetricComparison(
        name=now.name,
        kind=now.kind,
        unit=now.unit,
        olds=olds,
        new=value,
        verdict=verdict,
        low=now.low,
        high=now.high,
        judged=allowance.judged,
    )


def _verdict_of_count(
    allowance: Allowance, olds: Sequence[float], _: Metric, value: float
) -> Change | None:
    if value > allowance.most(olds[-1]):
        return "worse"
    return "better" if value < olds[-1] else None


def _verdict_of_time(
    allowance: Allowance, olds: Sequence[float], now: Metric, value: float
) -> Change | None:
    most = allowance.most(max(olds))
    if now.low is not None and now.low > most:
        return "worse"
    if value > most:
        return "undecided"
    high = value if now.high is None else now.high
    return "better" if allowance.most(high) < min(olds) else None
