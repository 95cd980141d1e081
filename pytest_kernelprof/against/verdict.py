"""Whether a test is worse than a revision: pure, from what it took on both sides."""

from __future__ import annotations

from collections import Counter
from types import MappingProxyType
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pytest_kernelprof.against.timing import unless_reconfigured
from pytest_kernelprof.baseline.diff import diff_profiles, without_times
from pytest_kernelprof.schema.against import RESULTS, AgainstTest, Compared, Done
from pytest_kernelprof.schema.metrics import METRICS
from pytest_kernelprof.schema.snapshot import COUNTS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_kernelprof.against.timing import Timed
    from pytest_kernelprof.schema.against import Result
    from pytest_kernelprof.schema.diff import ProfileDiff
    from pytest_kernelprof.schema.run import Environment, Profile
    from pytest_kernelprof.schema.turns import Timing

# Healthy traces miss some memsets; directions are parts of a count that is judged whole.
_NOT_JUDGED = ("memsets",)
_NOTICED_US = 0.1
"""A kernel of many rounds in turn is told as slower from so much on."""
_OF_PYTHON = ("recompiles",)
"""What depends on the version of Python: torch.compile reads its bytecode."""
_MOST_NAMED = 3
_DIRECTIONS = ("_h2d", "_d2h", "_d2d", "_p2p")
JUDGED = tuple(
    name for name, spec in METRICS.items() if spec.kind == "exact" and name not in _NOT_JUDGED
)
# Of these a snapshot keeps the directions.
_SUMS = {
    total: [name for name in COUNTS if name.startswith(f"{total}_") and name.endswith(_DIRECTIONS)]
    for total in ("memcpys", "memcpy_bytes")
}


def judge(
    test: str,
    candidate: Sequence[Profile],
    answer: Done | str,
    timed: Mapping[str, Timed] = MappingProxyType({}),
) -> AgainstTest:
    """What came of a test.

    More of what is exact is worse, whatever else is another: a run without times says so, too.

    Args:
        candidate: its profiles. answer: the reference's, or why there is none.
        timed: what came of the calls that took turns, by the labels of their profiles.
    """
    if isinstance(answer, str):
        return AgainstTest(test, "cannot run", answer)
    return replace(_judged(test, candidate, answer, timed), notes=_notes(candidate, answer))


def _judged(
    test: str, candidate: Sequence[Profile], answer: Done, timed: Mapping[str, Timed]
) -> AgainstTest:
    if answer.failure:
        return AgainstTest(test, "cannot run", answer.failure)
    if answer.skipped:
        return AgainstTest(test, "cannot run", f"skipped there: {answer.skipped}")
    if not answer.reached:
        return AgainstTest(
            test, "not compared", "no file of the revision is reached by the test: only tests are"
        )
    reference = answer.test.profiles if answer.test else ()
    why = _unmeasured(candidate, "here") or _unmeasured(reference, "there")
    if why:
        return AgainstTest(test, "not compared", why)
    why = _another_work(candidate, reference)
    if why:
        return AgainstTest(test, "different work", why)
    calls = [
        (old, new, None if new.one_shot else timed.get(new.label))
        for old, new in _pairs(candidate, reference)
    ]
    other = next((call.another_work for _, _, call in calls if call and call.another_work), "")
    return _result(test, tuple(_compare(old, new, call) for old, new, call in calls), other)


def _unmeasured(profiles: Sequence[Profile], where: str) -> str:
    """Why a side has no numbers at all; empty where it has."""
    for profile in profiles:
        if not profile.environment.device:
            return f"nothing is measured {where}: {'; '.join(profile.integrity.problems)}"
    return ""


def _notes(candidate: Sequence[Profile], answer: Done) -> tuple[str, ...]:
    """What else a reader has to know."""
    notes = []
    reference = answer.test.profiles if answer.test else ()
    for old, new in zip(reference[:1], candidate[:1], strict=False):
        other = _other(old.environment, new.environment)
        if other and old.environment.device and new.environment.device:
            notes.append(f"other software: {'; '.join(other)}")
    if answer.opened:
        notes.append(f"files of your folder were opened there: {_named(answer.opened)}")
    if answer.lines:
        notes.append(
            "all lines that launch anything are of today's tests, which lie over the revision: "
            f"{_named(answer.lines)}"
        )
    if answer.shared:
        notes.append(f"the revision's code imports {_named(answer.shared)}; today's ran on both")
    return tuple(notes)


def _named(files: Sequence[str]) -> str:
    more = len(files) - _MOST_NAMED
    shown = ", ".join(files[:_MOST_NAMED])
    return f"{shown} and {more} more" if more > 0 else shown


def _result(test: str, compared: tuple[Compared, ...], other: str) -> AgainstTest:
    worst: Result = min((one.result for one in compared), key=RESULTS.index, default="same")
    unknown = [words for one in compared for words in one.unknown]
    if other and worst != "worse":
        return AgainstTest(test, "different work", other, compared)
    if unknown and worst != "worse":
        return AgainstTest(test, "not compared", unknown[0], compared)
    return AgainstTest(test, worst, profiles=compared)


def _another_work(candidate: Sequence[Profile], reference: Sequence[Profile]) -> str:
    """Why two sides' profiles are not of the same work; empty where they are."""
    here = Counter(profile.label for profile in candidate)
    there = Counter(profile.label for profile in reference)
    if here - there or there - here:
        if len(candidate) != len(reference):
            return f"{len(candidate)} profiles here, {len(reference)} there"
        (label,) = list(here - there)[:1]
        return f"{label!r} is profiled here, and not there"
    for old, new in _pairs(candidate, reference):
        if (old.environment.kind, old.environment.device) != (
            new.environment.kind,
            new.environment.device,
        ):
            return f"it ran on {new.environment.device} here, on {old.environment.device} there"
        if old.one_shot != new.one_shot:
            return "a block here, a call there" if new.one_shot else "a call here, a block there"
    return ""


def _pairs(
    candidate: Sequence[Profile], reference: Sequence[Profile]
) -> list[tuple[Profile, Profile]]:
    """Reference and candidate, by label and, of one label, in their order."""
    waiting: dict[str, list[Profile]] = {}
    for profile in reference:
        waiting.setdefault(profile.label, []).append(profile)
    return [(waiting[profile.label].pop(0), profile) for profile in candidate]


def _compare(old: Profile, new: Profile, timed: Timed | None) -> Compared:
    worse: list[str] = []
    better: list[str] = []
    accepted: list[str] = []
    unknown = [*_doubts(old, "there"), *_doubts(new, "here")]
    other = _other(old.environment, new.environment)
    python = [words for words in other if words.startswith("python ")]
    if other != python:
        timed = None  # what differs may be the software's
    allowed = _allowed(new)
    for name in JUDGED if not unknown else ():
        before, after = old.metrics.get(name), new.metrics.get(name)
        if before is None or after is None or before.value is None or after.value is None:
            continue
        if before.value == after.value:
            continue
        less, more = sorted((before.value, after.value))
        if min((after if after.value == more else before).rounds, default=more) <= less:
            unknown.append(f"{name} differ from round to round")
        elif other != python or (python and name in _OF_PYTHON):
            unknown.append(f"{name} differ, and so does the software: {'; '.join(other)}")
        elif after.value > before.value:
            (accepted if name in allowed else worse).append(name)
        else:
            better.append(name)
    timing = timed.timing if timed is not None else None
    if timed is None or timing is None or not timing.pairs:
        # Measured one after the other, by processes that differ.
        diff = without_times(diff_profiles(old, new))
    else:
        diff, timing = _timed_diff(old, new, timed)
    return Compared(
        new.label,
        diff,
        tuple(worse),
        tuple(better),
        tuple(unknown),
        tuple(accepted),
        new.place,
        timing,
    )


def _timed_diff(old: Profile, new: Profile, timed: Timed) -> tuple[ProfileDiff, Timing]:
    """The diff with what kernels took in turn, and what follows of times once it is known how the
    kernels were launched."""
    old, new = _taking(old, timed.old_kernels_us), _taking(new, timed.new_kernels_us)
    diff, timing = diff_profiles(old, new, noticed=(timed.timing.margin, _NOTICED_US)), timed.timing
    if any(pace.kind == "reconfigured" for pace in diff.paces):
        timing = unless_reconfigured(timing)
    latencies = [_value(profile, "latency") for profile in (old, new)]
    if all(latencies):
        timing = replace(timing, old_latency_us=latencies[0], new_latency_us=latencies[1])
    exact = tuple(change for change in diff.metrics if change.kind == "exact")
    return replace(diff, old_us=timing.old_us, new_us=timing.new_us, metrics=exact), timing


def _taking(profile: Profile, us: Sequence[float]) -> Profile:
    """A profile whose kernels take so long, where these are as many."""
    if len(us) != len(profile.kernels):
        return profile
    pairs = zip(profile.kernels, us, strict=True)
    return replace(profile, kernels=tuple(replace(one, duration_us=t) for one, t in pairs))


def _value(profile: Profile, name: str) -> float:
    metric = profile.metrics.get(name)
    return (metric.value or 0.0) if metric is not None else 0.0


def _other(old: Environment, new: Environment) -> list[str]:
    """What of the software is another."""
    names = sorted({*old.versions, *new.versions})
    sides = ((n, old.versions.get(n, "none"), new.versions.get(n, "none")) for n in names)
    return [f"{n} {there} there, {here} here" for n, there, here in sides if there != here]


def _allowed(profile: Profile) -> frozenset[str]:
    """The metrics that the snapshot of a profile in the working tree holds, where it holds: who
    reviews the change of that file has accepted these counts."""
    kept = [verdict.snapshot for verdict in profile.verdicts if verdict.outcome == "kept"]
    for finding in filter(None, kept):
        names = {"kernels", *COUNTS}
        sums = {name for name, parts in _SUMS.items() if not set(parts) & set(finding.unknown)}
        return frozenset(names | sums) - set(finding.unknown)
    return frozenset()


def _doubts(profile: Profile, where: str) -> list[str]:
    """Why its counts are no ground for a verdict."""
    if not profile.integrity.complete:
        return [f"the profile {where} is incomplete: {profile.integrity.problems[0]}"]
    if profile.integrity.cold or not profile.integrity.settled:
        return [f"the code was cold {where}"]
    return []
