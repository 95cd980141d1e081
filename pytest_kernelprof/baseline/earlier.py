"""A profile against those of its place in earlier runs: what is more, and whether it may be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pytest_kernelprof.baseline.diff import diff_profiles, without_times
from pytest_kernelprof.schema.metrics import METRICS
from pytest_kernelprof.schema.runs import Change, MetricComparison, ProfileComparison

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_kernelprof.baseline.allowance import Allowance
    from pytest_kernelprof.schema.diff import ProfileDiff
    from pytest_kernelprof.schema.run import Environment, Metric, Profile

DISTURBED = "the GPU was disturbed while it was timed"
"""Why times do not compare where other work was on the GPU, or it throttled."""

_NOWHERE = "in no earlier run"
# What says nothing of which kernels run, as times do not compare by them.
_OF_TIMES_ALONE = ("power limit", "python")


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


def compare_profile(
    key: Key, olds: Sequence[Profile | None], new: Profile, allowed: Mapping[str, Allowance]
) -> ProfileComparison | str:
    """What is another in ``new``; or why it cannot be compared, in words.

    Counts and bytes are compared with the last of the earlier profiles that is complete. They fail
    nothing where that ran on another device or with other software, as kernels are others there.
    A time is worse if its interval lies above the largest of the earlier medians by what is
    allowed, and above their intervals, too; better if below the smallest; only profiles of the
    same device with the same power limit and software are asked.

    Args:
        olds: the oldest first; None of a run without it.
        allowed: what each metric may grow by.

    Of a call on several ranks each is compared with the same one before; what is told is the first
    that is worse, with its number in the label, else the first of all.
    """
    found = _compare_rank(key, [_same_rank(old, new) or old for old in olds], new, allowed)
    others = [
        _compare_rank(_of_rank(key, one), [_same_rank(old, one) for old in olds], one, allowed)
        for one in new.other_ranks
    ]
    of_all = [found, *(one for one in others if one != _NOWHERE)]
    return next((one for one in of_all if _is_worse(one)), next(filter(_is_lost, of_all), found))


def _same_rank(old: Profile | None, new: Profile) -> Profile | None:
    ranks = old.ranks if old is not None else ()
    return next((one for one in ranks if one.rank == new.rank), None)


def _of_rank(key: Key, profile: Profile) -> Key:
    return key._replace(label=f"{key.label} rank {profile.rank}".lstrip())


def _is_worse(found: ProfileComparison | str) -> bool:
    return not isinstance(found, str) and found.regressed


def _is_lost(found: ProfileComparison | str) -> bool:
    """Whether something of it could not be compared."""
    return isinstance(found, str) or bool(found.lost)


def _compare_rank(
    key: Key, olds: Sequence[Profile | None], new: Profile, allowed: Mapping[str, Allowance]
) -> ProfileComparison | str:
    if not new.integrity.complete:
        return "incomplete"
    whys = [_why_uncompared(old, new) if old else "" for old in olds]
    earlier = [
        _Earlier(old, _why_untimed(old, new)) if old and not why else None
        for old, why in zip(olds, whys, strict=True)
    ]
    there = [one for one in earlier if one is not None]
    if not there:
        return next(filter(None, reversed(whys)), _NOWHERE)
    return _compare(key, earlier, there[-1].profile, new, allowed)


def _why_uncompared(old: Profile, new: Profile) -> str:
    """Why the counts of two profiles do not compare; empty where they do."""
    if not old.integrity.complete:
        return "it was incomplete"
    if old.environment.kind != new.environment.kind:
        return f"it ran on {old.environment.device}, and runs on {new.environment.device}"
    if old.one_shot != new.one_shot:
        before, now = ("a block", "a call") if old.one_shot else ("a call", "a block")
        return f"it was {before} and is {now}"
    return ""


def _compare(
    key: Key,
    earlier: Sequence[_Earlier | None],
    last: Profile,
    new: Profile,
    allowed: Mapping[str, Allowance],
) -> ProfileComparison:
    there = [one for one in earlier if one is not None]
    untimed = "" if any(not one.untimed for one in there) else there[-1].untimed
    other = _differences(last.environment, new.environment, but=_OF_TIMES_ALONE)
    found = (
        _judge(allowance, _olds(earlier, name), new, judged=allowance.judged and not other)
        for name, allowance in allowed.items()
    )
    metrics = tuple(one for one in found if one is not None)
    diff = _diff(last, new, untimed=untimed)
    told = diff is not None and (diff.hunks or any(one.verdict == "worse" for one in metrics))
    return ProfileComparison(
        test=key.test,
        label=key.label,
        rank=new.rank,
        metrics=metrics,
        diff=diff if told else None,
        untimed=untimed,
        other=other,
        lost=tuple(
            name
            for name, allowance in allowed.items()
            if allowance.judged
            and any(has(one.profile, name) for one in there)
            and not has(new, name)
        ),
    )


def _diff(last: Profile, new: Profile, untimed: str) -> ProfileDiff | None:
    if not (last.kernels_kept and new.kernels_kept):
        return None
    found = diff_profiles(last, new)
    return without_times(found) if untimed else found


def _why_untimed(old: Profile, new: Profile) -> str:
    """Why the times of two profiles do not compare; empty where they do."""
    other = _differences(old.environment, new.environment)
    if other:
        return other
    if old.one_shot or new.one_shot:
        return "it ran only once"
    if old.conditions.disturbed or new.conditions.disturbed:
        return DISTURBED
    return ""


def _differences(old: Environment, new: Environment, but: Sequence[str] = ()) -> str:
    before, after = _facts(old), _facts(new)
    return ", ".join(
        f"{name} {before.get(name) or 'none'} -> {after.get(name) or 'none'}"
        for name in dict.fromkeys((*before, *after))
        if before.get(name, "") != after.get(name, "") and name not in but
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


def _olds(earlier: Sequence[_Earlier | None], name: str) -> tuple[Metric | None, ...]:
    """The metric of each earlier run, where that compares."""
    return tuple(
        one.profile.metrics[name]
        if one and has(one.profile, name) and not (METRICS[name].kind == "timed" and one.untimed)
        else None
        for one in earlier
    )


def has(profile: Profile, name: str) -> bool:
    """Whether it has a value of a metric."""
    return name in profile.metrics and profile.metrics[name].value is not None


def _judge(
    allowance: Allowance, olds: tuple[Metric | None, ...], new: Profile, *, judged: bool
) -> MetricComparison | None:
    """What became of a metric; None where it is as before, or nothing to compare it with."""
    there = [one for one in olds if one is not None]
    now = new.metrics.get(allowance.metric)
    if not there or now is None or now.value is None:
        return None
    of_kind = _verdict_of_count if now.kind == "exact" else _verdict_of_time
    verdict = of_kind(allowance, there, new, now)
    if verdict is None:
        return None
    return MetricComparison(
        name=now.name,
        kind=now.kind,
        unit=now.unit,
        olds=tuple(None if one is None else one.value for one in olds),
        new=now.value,
        verdict=verdict,
        low=now.low,
        high=now.high,
        judged=judged,
    )


def _verdict_of_count(
    allowance: Allowance, olds: Sequence[Metric], new: Profile, now: Metric
) -> Change | None:
    before, value = olds[-1].value or 0.0, now.value or 0.0
    if value > allowance.most(before):
        # What loads or compiles when it first runs depends on what ran before.
        return "undecided" if new.one_shot and new.integrity.cold else "worse"
    return "better" if value < before else None


def _verdict_of_time(
    allowance: Allowance, olds: Sequence[Metric], new: Profile, now: Metric
) -> Change | None:
    medians, value = [one.value or 0.0 for one in olds], now.value or 0.0
    most = allowance.most(max(medians))
    beyond = max(most, *(one.high or 0.0 for one in olds))
    if now.low is not None and now.low > beyond and _confirmed(new, now.name, beyond):
        return "worse"
    if value > most:
        return "undecided"
    high = value if now.high is None else now.high
    lows = [one.value or 0.0 if one.low is None else one.low for one in olds]
    return "better" if allowance.most(high) < min(medians) and high < min(lows) else None


def _confirmed(new: Profile, name: str, beyond: float) -> bool:
    """Whether a second, separate measurement says the same, where there was one."""
    second = new.second_look.get(name)
    if second is None or second.value is None:
        return True
    return (second.value if second.low is None else second.low) > beyond
