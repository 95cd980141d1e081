"""Whether a test is worse than on a revision or in another environment: pure, from its profiles
on both sides."""

from __future__ import annotations

from collections import Counter
from types import MappingProxyType
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pytest_kernelprof.baselines.protocol import NO_SUCH_TEST
from pytest_kernelprof.baselines.revision import named
from pytest_kernelprof.comparison.judge import deltas, differences, forbidding, lost_words
from pytest_kernelprof.comparison.kernel_diff import diff_profiles
from pytest_kernelprof.records.comparison import BASELINE_WORDS, KEPT_COUNTS, ProfileComparison
from pytest_kernelprof.records.metrics import DIRECTIONS
from pytest_kernelprof.stats.intervals import unless_reconfigured

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_kernelprof.baselines.protocol import Done
    from pytest_kernelprof.baselines.timing import Timed
    from pytest_kernelprof.comparison.judge import Difference
    from pytest_kernelprof.records.comparison import Change, KernelDiff, MetricDelta, Paired, Source
    from pytest_kernelprof.records.profile import Profile

    Profiles = Sequence[Profile]

_NOTICED_US = 0.1
"""By at least so much a kernel is reported as slower, after many rounds in turn."""
# A snapshot keeps these metrics by direction.
_SUMS = {total: [f"{total}_{one}" for one in DIRECTIONS] for total in ("memcpys", "memcpy_bytes")}


def judge(
    current: Profiles,
    answer: Done | str,
    timed: Mapping[str, Timed] = MappingProxyType({}),
    source: Source = "revision",
) -> tuple[ProfileComparison, ...]:
    """How each profile of a test compares.

    More of an exact metric is worse, whatever else differs, also in a run without times.

    Args:
        current: the test's profiles. answer: the worker's, or why there is none.
        timed: the calls that were timed in turn, by the labels of their profiles.
        source: "environment" where other software alone is the question, which then forbids
            nothing.
    """
    if isinstance(answer, str):
        why = answer if answer == NO_SUCH_TEST else f"the baseline cannot run it: {answer}"
        return not_compared(current, why, source)
    baseline = answer.test.profiles if answer.test else ()
    why = _why_not_compared(current, baseline, answer, source)
    found = not_compared(current, why, source) if why else None
    found = found or _judged(current, baseline, timed, source)
    return (replace(found[0], notes=_notes(current, baseline, answer)), *found[1:])


def why_judged(
    baseline: Profile | None, current: Profile, *, is_reviewed: bool, source: Source = "revision"
) -> str:
    """Why the times of a call change nothing: its counts are worse already, or times are not
    compared; empty if times count.

    Args:
        baseline, current: the call on both sides; their kernels are not compared.
        is_reviewed: whether the snapshot in the working tree differs from the revision's.
        source: as of ``judge``.
    """
    if baseline is None:
        return ""
    if source == "revision" and _forbids_times(_other_software(baseline, current)):
        return "the baseline has other software"
    verdicts = current.verdicts if is_reviewed else ()
    found = _compare(baseline, replace(current, kernels=(), verdicts=verdicts), None, "", source)
    if found.worse:
        return f"more {', '.join(one.name for one in found.worse)} already fail the test"
    return ""


def not_compared(
    current: Profiles, why: str, source: Source = "revision"
) -> tuple[ProfileComparison, ...]:
    """The profiles of a test that cannot be compared, for a reason in words."""
    return tuple(
        ProfileComparison(source=source, label=one.label, change="not compared", reason=why)
        for one in current
    )


def _why_not_compared(current: Profiles, baseline: Profiles, answer: Done, source: Source) -> str:
    """Why no profile of a test can be compared; empty if they can."""
    if cannot := answer.failure or (answer.skipped and f"skipped: {answer.skipped}"):
        return f"the baseline cannot run it: {cannot}"
    if not answer.reached and source == "revision":
        return "the test uses no file of the revision, only tests"
    words = "nothing is measured", "the baseline measures nothing"
    for side, nothing in zip((current, baseline), words, strict=True):
        for one in side:
            if not one.environment.device:
                return f"{nothing}: {'; '.join(one.integrity.problems)}"
    other = _another_work(current, baseline)
    return f"different work: {other}" if other else ""


def _judged(
    current: Profiles, baseline: Profiles, timed: Mapping[str, Timed], source: Source
) -> tuple[ProfileComparison, ...]:
    calls = [
        (old, new, None if new.one_shot else timed.get(new.label))
        for old, new in _pairs(current, baseline)
    ]
    other = next((call.another_work for _, _, call in calls if call and call.another_work), "")
    return tuple(_compare(old, new, call, other, source) for old, new, call in calls)


def _notes(current: Profiles, baseline: Profiles, answer: Done) -> tuple[str, ...]:
    """What else a reader needs to know."""
    notes = []
    for old, new in zip(baseline[:1], current[:1], strict=False):
        other = _other_software(old, new)
        if other and old.environment.device and new.environment.device:
            notes.append(f"other software: {'; '.join(one.words for one in other)}")
    if answer.opened:
        notes.append(f"the baseline opened files of your folder: {named(answer.opened)}")
    if answer.lines:
        notes.append(
            "all lines that launch kernels are in your tests, which replace those of the "
            f"revision: {named(answer.lines)}"
        )
    if answer.shared:
        notes.append(f"the revision's code imports {named(answer.shared)}; both sides ran yours")
    return tuple(notes)


def _other_software(baseline: Profile, current: Profile) -> tuple[Difference, ...]:
    """What differs but for the power limit: both sides use one GPU at the same time."""
    found = differences(baseline.environment, current.environment)
    return tuple(one for one in found if one.what != "power limit")


def _forbids_times(other: Sequence[Difference]) -> bool:
    """Whether the software may cause a difference of times."""
    return any(one.what != "python" for one in other)


def _another_work(current: Profiles, baseline: Profiles) -> str:
    """How the work of two sides differs; empty if it does not."""
    labels, known = (Counter(one.label for one in side) for side in (current, baseline))
    if len(current) != len(baseline):
        return f"{len(current)} profiles, {len(baseline)} in the baseline"
    if missing := list(labels - known):
        return f"{missing[0]!r} is not profiled in the baseline"
    for old, new in _pairs(current, baseline):
        here, there = new.environment, old.environment
        if (here.kind, here.device) != (there.kind, there.device):
            return f"it ran on {here.device}, in the baseline on {there.device}"
        if old.one_shot != new.one_shot:
            words = ("a call", "a block")
            return f"{words[new.one_shot]}, in the baseline {words[old.one_shot]}"
    return ""


def _pairs(current: Profiles, baseline: Profiles) -> list[tuple[Profile, Profile]]:
    """Baseline and current profiles by label; those of one label in their order."""
    waiting: dict[str, list[Profile]] = {}
    for profile in baseline:
        waiting.setdefault(profile.label, []).append(profile)
    return [(waiting[profile.label].pop(0), profile) for profile in current]


def _compare(
    baseline: Profile, current: Profile, timed: Timed | None, another_work: str, source: Source
) -> ProfileComparison:
    """Compare one profile. ``another_work``: how the work of a call of the test differs."""
    other = _other_software(baseline, current)
    forbids, one_code = (other, False) if source == "revision" else ((), True)
    if _forbids_times(forbids):
        timed = None
    exact = [one for one in deltas(baseline, current) if one.spec.kind == "exact"]
    doubts = [*_doubts(baseline, "of the baseline"), *_doubts(current, "of your code")]
    metrics = exact if doubts else [_judged_delta(one, baseline, current, forbids) for one in exact]
    gone = [one for one in exact if one.spec.judged and one.current is None]
    unknown = [*doubts, *(one.why for one in metrics if one.change == "not compared")]
    paired = timed.paired if timed is not None else None
    if timed is not None and timed.paired.pairs:
        kernels, paired = _timed_diff(baseline, current, timed, one_code=one_code)
    else:  # measured one after the other, by processes that differ
        kernels = diff_profiles(baseline, current, noticed=None, one_code=one_code)
    found = ProfileComparison(
        source=source,
        label=current.label,
        kernels=kernels,
        metrics=tuple(metrics),
        paired=paired,
        differences=tuple(one.words for one in other),
        lost=() if doubts else tuple(one.name for one in gone if not forbidding(forbids, one.spec)),
        accepted=tuple(one.name for one in metrics if one.change == "changed"),
        incomplete=(*baseline.integrity.problems, *current.integrity.problems),
    )
    reason = f"different work: {another_work}" if another_work else next(iter(unknown), "")
    change, why = _follows(found, reason)
    return replace(found, change=change, reason=why)


def _follows(found: ProfileComparison, uncompared: str) -> tuple[Change, str]:
    """How a profile compares, and why it is "not compared" or "undecided".

    Args:
        uncompared: why not everything could be compared.
    """
    timed = found.paired.change if found.paired is not None else "not compared"
    changes = {one.change for one in found.metrics}
    if found.worse or timed == "worse":
        return "worse", ""
    if uncompared or found.lost:
        return "not compared", uncompared or lost_words(found.lost, BASELINE_WORDS[found.source])
    if found.paired is not None and timed == "undecided":
        return "undecided", found.paired.why
    if "better" in changes or timed == "better":
        return ("changed" if found.accepted else "better"), ""
    return ("changed" if found.accepted or found.changes else "same"), ""


def _judged_delta(
    delta: MetricDelta, baseline: Profile, current: Profile, other: Sequence[Difference]
) -> MetricDelta:
    """The delta of a count, judged."""
    before, now = delta.baseline, delta.current
    if not delta.spec.judged or before is None or now is None:
        return delta
    less, more = sorted((before, now))
    larger = current if now == more else baseline
    if min(larger.metrics[delta.name].rounds, default=more) <= less:
        why = f"{delta.name} differ from round to round"
        return replace(delta, change="not compared", why=why)
    if words := forbidding(other, delta.spec):
        why = f"{delta.name} differ, and so does the software: {'; '.join(words)}"
        return replace(delta, change="not compared", why=why)
    if now < before:
        return replace(delta, change="better", judged=True)
    accepted = delta.name in _allowed(current)
    return replace(delta, change="changed" if accepted else "worse", judged=True)


def _timed_diff(
    baseline: Profile, current: Profile, timed: Timed, *, one_code: bool
) -> tuple[KernelDiff, Paired]:
    """The diff with the times of the kernels, and the times judged by how the kernels were
    launched."""
    paired = timed.paired
    baseline = _taking(baseline, timed.kernels_us.get("baseline", ()))
    current = _taking(current, timed.kernels_us.get("current", ()))
    noticed = (paired.margin, _NOTICED_US)
    diff = diff_profiles(baseline, current, noticed=noticed, one_code=one_code)
    if diff.of("reconfigured"):
        paired = unless_reconfigured(paired)
    metrics = (one.metrics.get("latency") for one in (baseline, current))
    before, now = (one.value if one is not None else None for one in metrics)
    if before and now:
        paired = replace(paired, baseline_latency_us=before, current_latency_us=now)
    return replace(diff, baseline_us=paired.baseline_us, current_us=paired.current_us), paired


def _taking(profile: Profile, us: Sequence[float]) -> Profile:
    """A profile whose kernels have these times, if there are as many."""
    if len(us) != len(profile.kernels):
        return profile
    pairs = zip(profile.kernels, us, strict=True)
    return replace(profile, kernels=tuple(replace(one, duration_us=t) for one, t in pairs))


def _allowed(profile: Profile) -> frozenset[str]:
    """The metrics that the snapshot of a profile in the working tree allows: who reviews the change
    of that file accepts these counts."""
    kept = [one.comparison for one in profile.verdicts if one.outcome == "passed"]
    for found in kept:
        if found is not None and found.source == "snapshot":
            sums = {name for name, parts in _SUMS.items() if not set(parts) & set(found.lost)}
            return frozenset({"kernels", *KEPT_COUNTS} | sums) - set(found.lost)
    return frozenset()


def _doubts(profile: Profile, where: str) -> list[str]:
    """Why its counts allow no verdict."""
    if not profile.integrity.complete:
        return [f"the profile {where} is incomplete: {profile.integrity.problems[0]}"]
    if profile.integrity.cold or not profile.integrity.settled:
        return [f"the profile {where} is cold"]
    return []
