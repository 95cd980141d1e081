"""What of two profiles may be compared, and what follows: metric by metric, by how much more is
allowed. One answer for all sources."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from pytest_kernelprof.comparison.kernel_diff import diff_profiles
from pytest_kernelprof.records import comparison
from pytest_kernelprof.records.metrics import COMPARED_KINDS, METRICS, MetricSpec
from pytest_kernelprof.records.profile import Metric, Profile, Reason, Status, Verdict
from pytest_kernelprof.records.recording import Environment
from pytest_kernelprof.units import parse_bytes, parse_percent, parse_time

DISTURBED = "the GPU was disturbed while it was timed"
"""Why times do not compare where other work was on the GPU, or it throttled."""
_OF_THE_CPU = ("python", "torch", "mkldnn")
_OF_TIMES = ("power limit", "python")
"""What says nothing of which kernels run."""


class Difference(NamedTuple):
    """What of device or software is another: its name, before and now."""

    what: str
    baseline: str
    current: str

    @property
    def words(self) -> str:
        """``torch 2.10.0 -> 2.11.0``."""
        lacking = "unknown" if self.what == "power limit" else "none"
        return f"{self.what} {self.baseline or lacking} -> {self.current or lacking}"


def facts_of(environment: Environment) -> dict[str, str]:
    """What numbers depend on beside the code; on the CPU not whether this torch has CUDA as
    well."""
    versions = environment.versions
    if environment.kind == "cpu":
        versions = {k: v.partition("+")[0] for k, v in versions.items() if k in _OF_THE_CPU}
    watts = environment.power_limit_w
    power = {} if watts is None else {"power limit": f"{watts} W"}
    return {"device": environment.device, **power, **versions}


def made_with(environment: Environment) -> dict[str, str]:
    """The facts that counts depend on: those that a snapshot keeps."""
    return {k: v for k, v in facts_of(environment).items() if k not in _OF_TIMES}


def differences(
    baseline: Environment | Mapping[str, str], current: Environment
) -> tuple[Difference, ...]:
    """What is another.

    Args:
        baseline: of a snapshot the facts that it was made with.
    """
    if isinstance(baseline, Environment):
        before, now = facts_of(baseline), facts_of(current)
    else:
        before, now = dict(baseline), made_with(current)
    names = dict.fromkeys(("device", "power limit", *sorted({*before, *now})))
    sides = (Difference(name, before.get(name, ""), now.get(name, "")) for name in names)
    return tuple(one for one in sides if one.baseline != one.current)


def known(found: Iterable[Difference]) -> tuple[Difference, ...]:
    """Those of which both sides are known: a trace from elsewhere names no software."""
    return tuple(one for one in found if one.baseline and one.current)


def forbidding(found: Iterable[Difference], spec: MetricSpec) -> tuple[str, ...]:
    """The differences for which a metric says nothing of the code, in words: another device or
    library for all, another power limit for times, another Python for times and compilations."""
    allowed = set(_OF_TIMES) if spec.kind != "timed" else set()
    allowed -= {"python"} if "compiler" in spec.sources else set()
    return tuple(one.words for one in found if one.what not in allowed)


def why_uncompared(baseline: Profile, current: Profile) -> str:
    """Why not even the counts of two profiles compare; empty where they do."""
    if not current.integrity.complete:
        return "incomplete"
    if not baseline.integrity.complete:
        return "it was incomplete"
    if baseline.environment.kind != current.environment.kind:
        return f"it ran on {baseline.environment.device}, and runs on {current.environment.device}"
    if baseline.one_shot != current.one_shot:
        before, now = ("a block", "a call") if baseline.one_shot else ("a call", "a block")
        return f"it was {before} and is {now}"
    return ""


def why_untimed(baseline: Profile, current: Profile) -> str:
    """Why the times of two profiles do not compare; empty where they do."""
    if other := differences(baseline.environment, current.environment):
        return ", ".join(one.words for one in other)
    if baseline.one_shot or current.one_shot:
        return "it ran only once"
    if baseline.conditions.disturbed or current.conditions.disturbed:
        return DISTURBED
    return ""


STATUS_OF: Mapping[comparison.Change, Status] = {
    "worse": "failed",
    "undecided": "undecided",
    "not compared": "not judged",
    "better": "passed",
    "changed": "passed",
    "same": "passed",
}
"""How a verdict fares by what became of a profile; of what is worse, where that is judged."""

TIME_MARGIN = 0.10
"""By so much a median of another run may be larger: two runs of the same code differ by where
memory lies, by clocks and by the card."""

_EXAMPLES = {"us": "5%", "bytes": "1 MB", "count": "0"}


class Allowance(NamedTuple):
    """What a metric may grow by.

    Attributes:
        metric: its name.
        share: as a fraction of what it was. amount: in its unit, on top.
        judged: whether more than that fails. asked: whether somebody named it.
    """

    metric: str
    share: float = 0.0
    amount: float = 0.0
    judged: bool = True
    asked: bool = True

    def most(self, baseline: float) -> float:
        """The largest value that is allowed where it was ``baseline``."""
        return baseline * (1 + self.share) + self.amount


def parse_allowance(text: str) -> Allowance:
    """What ``METRIC:MARGIN`` says: a percentage, a count, or an amount with its unit.

    Raises:
        ValueError: it is not of that form; the message says what is.
    """
    name, colon, margin = text.partition(":")
    spec = METRICS.get(name)
    if spec is None or spec.kind not in COMPARED_KINDS:
        known = ", ".join(name for name, spec in METRICS.items() if spec.kind in COMPARED_KINDS)
        raise ValueError(f"{name!r} is not a metric that can be judged; these are: {known}")
    example = f"{name}:{_EXAMPLES[spec.unit]}"
    if not colon or not margin.strip():
        raise ValueError(f"{text!r} has no margin: write {example}")
    try:
        if margin.strip().endswith("%"):
            return Allowance(name, share=parse_percent(margin))
        return Allowance(name, amount=_amount(spec, margin))
    except ValueError as error:
        raise ValueError(f"{text!r}: {error}; write for example {example}") from None


def _amount(spec: MetricSpec, margin: str) -> float:
    if spec.unit == "us":
        return parse_time(margin)
    if spec.unit == "bytes" and not margin.strip().isdigit():
        return parse_bytes(margin)
    if not margin.strip().isascii() or not margin.strip().isdigit():
        raise ValueError(f"{margin!r} is neither a whole number of zero or more nor a percentage")
    return float(margin)


def allowances(written: tuple[Allowance, ...]) -> dict[str, Allowance]:
    """What each metric may grow by. Where nothing is written, counts and bytes may not grow, and
    times are looked at and judged by nothing; else only what is written is judged.

    Raises:
        ValueError: a metric is written twice.
    """
    if twice := [name for name, n in Counter(one.metric for one in written).items() if n > 1]:
        raise ValueError(f"{', '.join(twice)} is given twice; give it once")
    usual = {
        name: Allowance(
            name,
            share=TIME_MARGIN if spec.kind == "timed" else 0.0,
            judged=spec.judged and not written,
            asked=False,
        )
        for name, spec in METRICS.items()
        if spec.kind in COMPARED_KINDS
    }
    return {**usual, **{one.metric: one for one in written}}


def verdict_of(
    found: comparison.ProfileComparison,
    profile: Profile,
    status: Status,
    why: str = "",
    reason: Reason = "",
) -> Verdict:
    """The verdict of a profile by its baseline."""
    return Verdict(
        limit=comparison.LIMIT_OF[found.source],
        outcome=status,
        reason=reason,
        why=why,
        device=profile.environment.kind,
        place=profile.place,
        comparison=found,
        ranks=() if found.rank is None else (found.rank,),
    )


def status_of(
    found: comparison.ProfileComparison, profile: Profile, *, strict: bool = False
) -> tuple[Status, str]:
    """How the verdict of a profile fares by its baseline; why, of "incomplete" and "not judged".

    What differs by source: a snapshot says nothing of other software or of a cold block, and a
    profile that is incomplete is not compared in turn, which is no fault of the test.

    Args:
        strict: whether a snapshot that was made with other software counts all the same.
    """
    by_snapshot = found.source == "snapshot"
    software = ", ".join(found.differences) if by_snapshot and not strict else ""
    if found.fails:
        if by_snapshot and profile.one_shot and profile.integrity.cold:
            return "not judged", "more, but cold"
        return ("not judged", f"more, but {software}") if software else ("failed", "")
    if found.source not in comparison.IN_TURN and not profile.integrity.complete:
        return "incomplete", "; ".join(profile.integrity.problems)
    if found.lost:
        why = lost_words(found.lost, comparison.BASELINE_WORDS[found.source])
        return ("not judged", f"{why}, but {software}") if software else ("incomplete", why)
    if found.change == "worse":  # in what fails nothing
        return "passed", ""
    return STATUS_OF[found.change], found.reason if found.change == "not compared" else ""


def lost_words(lost: Sequence[str], baseline: str) -> str:
    """That metrics are missing which the baseline has."""
    return f"{', '.join(lost)} is missing; {baseline} has it"


def judge(
    allowance: Allowance, baselines: Sequence[Metric | None], current: Profile, *, judged: bool
) -> comparison.MetricDelta | None:
    """How a metric compares; None where it is as before, or nothing to compare it with.

    A count is judged by the last of the earlier ones. A time is worse if its interval lies above
    the largest of the earlier medians by what is allowed, and above their intervals, too; better if
    below the smallest.

    Args:
        baselines: of each earlier run, the oldest first; None where it has none that compares.
        judged: whether the comparison fails where it is worse.
    """
    there = [one for one in baselines if one is not None]
    now = current.metrics.get(allowance.metric)
    if not there or now is None or now.value is None:
        return None
    if now.kind == "timed":
        change = _change_of_time(allowance, there, current, now, now.value)
    elif now.value > allowance.most(there[-1].value or 0.0):
        # What loads or compiles when it first runs depends on what ran before.
        change = "undecided" if current.one_shot and current.integrity.cold else "worse"
    else:
        change = "better" if now.value < (there[-1].value or 0.0) else None
    if change is None:
        return None
    return comparison.MetricDelta(
        name=now.name,
        baselines=tuple(None if one is None else one.value for one in baselines),
        current=now.value,
        interval=interval_of(now),
        change=change,
        judged=judged,
    )


def _change_of_time(
    allowance: Allowance, baselines: Sequence[Metric], current: Profile, now: Metric, value: float
) -> comparison.Change | None:
    medians = [one.value or 0.0 for one in baselines]
    most = allowance.most(max(medians))
    beyond = max(most, *(one.high or 0.0 for one in baselines))
    if now.low is not None and now.low > beyond and _confirmed(current, now.name, beyond):
        return "worse"
    if value > most:
        return "undecided"
    high = value if now.high is None else now.high
    lows = [one.value or 0.0 if one.low is None else one.low for one in baselines]
    return "better" if allowance.most(high) < min(medians) and high < min(lows) else None


def _confirmed(current: Profile, name: str, beyond: float) -> bool:
    """Whether a second, separate measurement says the same, where there was one."""
    second = current.second_look.get(name)
    if second is None or second.value is None:
        return True
    return (second.value if second.low is None else second.low) > beyond


def compare_traces(baseline: Profile, current: Profile) -> comparison.ProfileComparison:
    """What is another between two traces; nothing of it is judged."""
    kernels = diff_profiles(baseline, current)
    stepped = kernels.baseline_steps or kernels.current_steps
    found = known(differences(baseline.environment, current.environment))
    problems = (*baseline.integrity.problems, *current.integrity.problems)
    return comparison.ProfileComparison(
        source="trace",
        change="changed" if kernels.added_or_removed else "same",
        kernels=kernels,
        metrics=() if stepped else tuple(deltas(baseline, current)),
        differences=tuple(one.words for one in found),
        incomplete=tuple(dict.fromkeys(problems)),
    )


def deltas(baseline: Profile, current: Profile) -> Iterator[comparison.MetricDelta]:
    """Exact metrics and times whose values differ, or that one side alone has."""
    for name, spec in METRICS.items():
        one, other = baseline.metrics.get(name), current.metrics.get(name)
        before = one.value if one is not None else None
        after = other.value if other is not None else None
        if spec.kind in COMPARED_KINDS and before != after:
            yield comparison.MetricDelta(
                name=name,
                baselines=(before,),
                current=after,
                interval=interval_of(other),
                why=next((m.why for m in (one, other) if m is not None and m.value is None), ""),
            )


def interval_of(metric: Metric | None) -> tuple[float, float] | None:
    """Its bounds at 99 %, where it has some."""
    if metric is None or metric.low is None or metric.high is None:
        return None
    return metric.low, metric.high
