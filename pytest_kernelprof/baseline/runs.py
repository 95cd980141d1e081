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
    from collections.abc import Iterable, Mapping, Sequence

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
    pairs = {key: (one, _newest(before, key)) for key, one in now.items()}
    there = {key: (one, old) for key, (one, old) in pairs.items() if old is not None}
    whole = {
        key: _compare(key[0], [run.get(key) for run in before], old, one, allowed)
        for key, (one, old) in there.items()
        if one.integrity.complete and old.integrity.complete
    }
    return RunsComparison(
        profiles=tuple(one for one in whole.values() if one.metrics or one.diff),
        compared=len(whole),
        untimed=dict(Counter(one.untimed for one in whole.values() if one.untimed)),
        gone=_only_in(before[-1], now),
        fresh=_only_in(now, before[-1]),
        incomplete=_tests(key for key in there if key not in whole),
        unfinished=tuple(why for run in (*olds, new) for why in run.unfinished),
    )


def _newest(runs: Sequence[Mapping[Key, Profile]], key: Key) -> Profile | None:
    """The profile of the last run that has it."""
    return next((run[key] for run in reversed(runs) if key in run), None)


def _only_in(run: Iterable[Key], other: Iterable[Key]) -> tuple[str, ...]:
    there = set(_tests(other))
    return tuple(test for test in _tests(run) if test not in there)


def _tests(keys: Iterable[Key]) -> tuple[str, ...]:
    """The tests of these profiles, each once."""
    return tuple(dict.fromkeys(test for test, _ in keys))


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
