"""A run against earlier ones: which profile has more of what, and whether that is allowed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pytest_kernelprof.baseline.diff import diff_profiles
from pytest_kernelprof.schema.metrics import METRICS
from pytest_kernelprof.schema.runs import (
    Change,
    MetricComparison,
    ProfileComparison,
    RunsComparison,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_kernelprof.baseline.allowance import Allowance
    from pytest_kernelprof.schema.run import Environment, Metric, Profile, Run


class Key(NamedTuple):
    """A test, and which of its profiles: the n-th of that label."""

    test: str
    label: str
    number: int

    def __str__(self) -> str:
        return f"{self.test} ({self.label})" if self.label else self.test


@dataclass(frozen=True, slots=True)
class _Earlier:
    """A profile of the same place in an earlier run, and why its times do not compare."""

    profile: Profile
    untimed: str


def compare_runs(olds: Sequence[Run], new: Run, allowed: Mapping[str, Allowance]) -> RunsComparison:
    """What is another in ``new``.

    Counts and bytes are compared with the last of the earlier runs that has the profile complete.
    A time is worse if its interval lies above the largest of their medians by what is allowed,
    better if below the smallest; only runs on the same device with the same software are asked.

    Args:
        olds: earlier runs, the oldest first.
        allowed: what each metric may grow by.
    """
    before, now = [_profiles(run) for run in olds], _profiles(new)
    earlier = {key: _earlier(before, key, one) for key, one in now.items()}
    there = [key for key in now if any(key in run for run in before)]
    compared = {
        key: _compare(key, earlier[key], now[key], allowed)
        for key in there
        if now[key].integrity.complete and any(earlier[key])
    }
    return RunsComparison(
        profiles=tuple(one for one in compared.values() if one.metrics or one.diff),
        compared=len(compared),
        untimed=dict(Counter(one.untimed for one in compared.values() if one.untimed)),
        gone=tuple(str(key) for key in before[-1] if key not in now),
        fresh=tuple(str(key) for key in now if key not in there),
        uncompared=tuple(str(key) for key in there if key not in compared),
        lost=_lost(compared, earlier, now, allowed),
        nowhere=tuple(
            name
            for name, allowance in allowed.items()
            if allowance.asked and not any(_has(now[key], name) for key in compared)
        ),
        unfinished=tuple(why for run in (*olds, new) for why in run.unfinished),
    )


def _profiles(run: Run) -> dict[Key, Profile]:
    """By test, label and number; of a test that ran again, those of the last time alone."""
    found: dict[Key, Profile] = {}
    for test in {test.id: test for test in run.tests}.values():
        labels: Counter[str] = Counter()
        for profile in test.profiles:
            found[Key(test.id, profile.label, labels[profile.label])] = profile
            labels[profile.label] += 1
    return found


def _earlier(
    runs: Sequence[Mapping[Key, Profile]], key: Key, new: Profile
) -> tuple[_Earlier | None, ...]:
    """The profile in each earlier run, where it has one that is complete and of such a device."""
    found = (run.get(key) for run in runs)
    return tuple(
        _Earlier(old, _why_untimed(old, new))
        if old and old.integrity.complete and old.environment.kind == new.environment.kind
        else None
        for old in found
    )


def _compare(
    key: Key,
    earlier: Sequence[_Earlier | None],
    new: Profile,
    allowed: Mapping[str, Allowance],
) -> ProfileComparison:
    there = [one for one in earlier if one is not None]
    untimed = "" if any(not one.untimed for one in there) else there[-1].untimed
    found = (_judge(allowance, _olds(earlier, name), new) for name, allowance in allowed.items())
    metrics = tuple(one for one in found if one is not None)
    last = there[-1].profile
    diff = diff_profiles(last, new) if last.kernels_kept and new.kernels_kept else None
    told = diff is not None and (diff.hunks or any(one.verdict == "worse" for one in metrics))
    return ProfileComparison(
        test=key.test,
        label=key.label,
        metrics=metrics,
        diff=diff if told else None,
        untimed=untimed,
    )


def _why_untimed(old: Profile, new: Profile) -> str:
    """Why the times of two profiles do not compare; empty where they do."""
    other = _other_environment(old.environment, new.environment)
    if other:
        return other
    if old.one_shot or new.one_shot:
        return "a block that ran once has no rounds"
    if old.conditions.disturbed or new.conditions.disturbed:
        return "the GPU was disturbed while it was timed"
    return ""


def _other_environment(old: Environment, new: Environment) -> str:
    before, after = _facts(old), _facts(new)
    return ", ".join(
        f"{name} {before.get(name) or 'none'} -> {after.get(name) or 'none'}"
        for name in dict.fromkeys((*before, *after))
        if before.get(name, "") != after.get(name, "")
    )


def _facts(environment: Environment) -> dict[str, str]:
    """What a time depends on beside the code."""
    watts = environment.power_limit_w
    return {
        "device": environment.device,
        "capability": environment.capability,
        "power limit": "unknown" if watts is None else f"{watts} W",
        **environment.versions,
    }


def _olds(earlier: Sequence[_Earlier | None], name: str) -> tuple[float | None, ...]:
    """The value of each earlier run, where that compares."""
    return tuple(
        one.profile.metrics[name].value
        if one and _has(one.profile, name) and not (METRICS[name].kind == "timed" and one.untimed)
        else None
        for one in earlier
    )


def _has(profile: Profile, name: str) -> bool:
    return name in profile.metrics and profile.metrics[name].value is not None


def _lost(
    compared: Iterable[Key],
    earlier: Mapping[Key, Sequence[_Earlier | None]],
    now: Mapping[Key, Profile],
    allowed: Mapping[str, Allowance],
) -> dict[str, int]:
    """The judged metrics that were had before and are not now, and in how many profiles."""
    lost = (
        name
        for key in compared
        for name, allowance in allowed.items()
        if allowance.judged
        and any(one is not None and _has(one.profile, name) for one in earlier[key])
        and not _has(now[key], name)
    )
    return dict(Counter(lost))


def _judge(
    allowance: Allowance, olds: tuple[float | None, ...], new: Profile
) -> MetricComparison | None:
    """What became of a metric; None where it is as before, or nothing to compare it with."""
    there = [one for one in olds if one is not None]
    now = new.metrics.get(allowance.metric)
    if not there or now is None or now.value is None:
        return None
    of_kind = _verdict_of_count if now.kind == "exact" else _verdict_of_time
    verdict = of_kind(allowance, there, now, now.value)
    if verdict is None:
        return None
    return MetricComparison(
        name=now.name,
        kind=now.kind,
        unit=now.unit,
        olds=olds,
        new=now.value,
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
