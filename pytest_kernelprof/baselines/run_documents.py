"""Run documents: read from files, compared profile by profile, and several as one."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from msgspec import DecodeError
from msgspec.structs import replace

from pytest_kernelprof.comparison import judge
from pytest_kernelprof.comparison.kernel_diff import SLOWER_BY, SLOWER_US, diff_profiles
from pytest_kernelprof.errors import RunFileError, TraceError
from pytest_kernelprof.records.codec import decode
from pytest_kernelprof.records.comparison import (
    Change,
    KernelDiff,
    MetricDelta,
    ProfileComparison,
    RunComparison,
)
from pytest_kernelprof.records.document import Document, Outline, Run, Test, bounded, unpack
from pytest_kernelprof.records.metrics import METRICS
from pytest_kernelprof.records.profile import Metric, Profile
from pytest_kernelprof.records.recording import Conditions
from pytest_kernelprof.trace.trace_text import whole

Baselines = Sequence[Profile | None]
Allowed = Mapping[str, judge.Allowance]

_NOWHERE = "in no earlier run"


class Key(NamedTuple):
    """A test, and which of its profiles: the n-th of that label."""

    test: str
    label: str
    number: int

    def __str__(self) -> str:
        return f"{self.test} ({self.label})" if self.label else self.test

    def of_rank(self, profile: Profile) -> Key:
        """The same profile on another rank, which its label names."""
        return self._replace(label=f"{self.label} rank {profile.rank}".lstrip())


def compare_runs(
    baselines: Sequence[Run], current: Run, allowed: Allowed, *, name: str = ""
) -> RunComparison:
    """A run and earlier ones, profile by profile, and the callables of comparisons.

    Args:
        baselines: earlier runs, the oldest first.
        allowed: what each metric may grow by.
        name: how the baseline is told.
    """
    before, now = [_all_of(run) for run in baselines], _all_of(current)
    there = [key for key in now if any(key in run for run in before)]
    profiles = tuple(
        compare_profile(key, [run.get(key) for run in before], now[key], allowed) for key in there
    )
    unfinished = (why for run in (*baselines, current) for why in run.unfinished)
    pairs = zip(there, profiles, strict=True)
    compared = (now[key] for key, one in pairs if one.change != "not compared")
    found = comparison_of(before[-1], now, compared, allowed, unfinished)
    fresh = tuple(str(key) for key in now if key not in there)
    return replace(found, name=name, fresh=fresh, profiles=profiles)


def compared_run(current: Run, found: RunComparison) -> Run:
    """The profiles that were compared, each with its verdict, as a run that says so.

    Args:
        found: of ``compare_runs``.
    """
    left = deque(found.profiles)  # in the order of the profiles; some of these are in no other run
    tests: dict[str, list[Profile]] = {}
    failed = set()
    for key, profile in _all_of(current).items():
        told = {(one.test, one.label) for one in (key, *map(key.of_rank, profile.other_ranks))}
        if left and (left[0].test, left[0].label) in told:
            one = left.popleft()
            verdict = judge.verdict_of(one, profile, *judge.status_of(one, profile))
            tests.setdefault(key.test, []).append(replace(profile, verdicts=(verdict,)))
            if verdict.outcome == "failed":
                failed.add(key.test)
    return replace(
        current,
        tests=tuple(
            Test(test, tuple(several), outcome="failed" if test in failed else "passed")
            for test, several in tests.items()
        ),
        baselines=(replace(found, profiles=()),),
    )


def comparison_of(
    before: Collection[Key],
    now: Collection[Key],
    compared: Iterable[Profile],
    allowed: Allowed,
    unfinished: Iterable[str],
) -> RunComparison:
    """What no profile of a run says of it and an earlier one.

    Args:
        before, now: which profiles both have. compared: those of now that could be compared.
        unfinished: why some may be missing.
    """
    both = list(compared)
    return RunComparison(
        source="run",
        gone=tuple(str(key) for key in before if key not in now),
        fresh=tuple(str(key) for key in now if key not in before),
        nowhere=tuple(
            name
            for name, allowance in allowed.items()
            if allowance.asked and not any(_metric(one, name) for one in both)
        ),
        unfinished=tuple(unfinished),
    )


def profiles_of(tests: Iterable[Test]) -> dict[Key, Profile]:
    """By test, label and number; of a test that ran again, those of the last time alone."""
    found = {}
    for test in {test.id: test for test in tests}.values():
        labels: Counter[str] = Counter()
        for profile in test.profiles:
            found[Key(test.id, profile.label, labels[profile.label])] = profile
            labels[profile.label] += 1
    return found


def _all_of(run: Run) -> dict[Key, Profile]:
    """The same, and the callables of comparisons."""
    return profiles_of(
        replace(test, profiles=(*test.profiles, *_callables_of(test))) for test in run.tests
    )


def _callables_of(test: Test) -> Iterator[Profile]:
    """The callables of a test's comparisons as profiles of the label ``compare NAME``."""
    for comparison in test.comparisons:
        spec = METRICS[comparison.metric]
        for one in comparison.callables:
            counts = one.unstable or (one.kernels,)
            compared = Metric(
                *(spec.name, spec.kind, spec.unit), value=one.value, low=one.low, high=one.high
            )
            kernels = Metric("kernels", "exact", "count", rounds=counts, value=float(max(counts)))
            yield Profile(
                label=f"compare {one.name}",
                environment=comparison.environment,
                conditions=next(iter(comparison.conditions), Conditions()),
                metrics={"kernels": kernels, spec.name: compared},
                kernels_kept=False,
            )


def compare_profile(
    key: Key, baselines: Baselines, current: Profile, allowed: Allowed
) -> ProfileComparison:
    """What is another in ``current``.

    Counts and bytes are compared with the last of the earlier profiles that is complete. They fail
    nothing where that ran on another device or with other software, as kernels are others there.
    Of times only profiles of the same device with the same power limit and software are asked.

    Args:
        baselines: the oldest first; None of a run without it.
        allowed: what each metric may grow by.

    Of a call on several ranks each is compared with the same one before; what is told is the first
    that is worse, with its number in the label, else the first of all.
    """
    same = [_same_rank(one, current) or one for one in baselines]
    found = _compare_rank(key, same, current, allowed)
    others = [
        _compare_rank(
            key.of_rank(one), [_same_rank(earlier, one) for earlier in baselines], one, allowed
        )
        for one in current.other_ranks
    ]
    of_all = [found, *(one for one in others if one.reason != _NOWHERE)]
    worse = (one for one in of_all if one.worse)
    lost = (one for one in of_all if one.change == "not compared" or one.lost)
    return next(worse, next(lost, found))


def _same_rank(baseline: Profile | None, current: Profile) -> Profile | None:
    ranks = baseline.ranks if baseline is not None else ()
    return next((one for one in ranks if one.rank == current.rank), None)


def _compare_rank(
    key: Key, baselines: Baselines, current: Profile, allowed: Allowed
) -> ProfileComparison:
    whys = [judge.why_uncompared(baseline, current) if baseline else "" for baseline in baselines]
    earlier = [None if why else baseline for baseline, why in zip(baselines, whys, strict=True)]
    there = [one for one in earlier if one is not None]
    found = ProfileComparison(source="run", test=key.test, label=key.label, rank=current.rank)
    if not there:
        why = next(filter(None, reversed(whys)), _NOWHERE)
        return replace(found, change="not compared", reason=why)
    last = there[-1]
    timed = [one if one and not judge.why_untimed(one, current) else None for one in earlier]
    of_last = judge.why_untimed(last, current)
    untimed = "" if any(timed) else of_last
    other = judge.differences(last.environment, current.environment)
    # Kernels are others there, so nothing fails by any metric.
    unjudged = ", ".join(judge.forbidding(other, METRICS["kernels"]))
    metrics: list[MetricDelta] = []
    lost: list[str] = []
    for name, allowance in allowed.items():
        spec = METRICS[name]
        judged = allowance.judged and not judge.forbidding(other, spec)
        before = [_metric(one, name) for one in (timed if spec.kind == "timed" else earlier)]
        if delta := judge.judge(allowance, before, current, judged=judged):
            metrics.append(delta)
        if judged and any(_metric(one, name) for one in there) and not _metric(current, name):
            lost.append(name)
    kernels = _diff(last, current, timed=not of_last)
    if kernels and not (kernels.added_or_removed or any(one.change == "worse" for one in metrics)):
        kernels = replace(kernels, changes=())
    change = _change(metrics, kernels)
    if lost and change != "worse":
        change, unjudged = "not compared", judge.lost_words(lost, "the earlier run")
    return replace(
        found,
        change=change,
        reason=unjudged,
        kernels=kernels,
        metrics=tuple(metrics),
        differences=tuple(one.words for one in other),
        untimed=untimed,
        lost=tuple(lost),
    )


def _change(metrics: Sequence[MetricDelta], kernels: KernelDiff | None) -> Change:
    """How a profile compares; what is judged comes first."""
    every = {one.change for one in metrics}
    order: tuple[tuple[Change, bool], ...] = (
        ("worse", "worse" in every),
        ("undecided", any(one.judged and one.change == "undecided" for one in metrics)),
        ("better", "better" in every),
        ("undecided", "undecided" in every),
        ("changed", kernels is not None and bool(kernels.added_or_removed)),
    )
    return next((change for change, holds in order if holds), "same")


def _diff(last: Profile, current: Profile, *, timed: bool) -> KernelDiff | None:
    if not (last.kernels_kept and current.kernels_kept):
        return None
    current = bounded(current) if last.more_kernels else current  # as a document has it
    return diff_profiles(last, current, noticed=(SLOWER_BY, SLOWER_US) if timed else None)


def _metric(profile: Profile | None, name: str) -> Metric | None:
    """A metric of a profile; None where it has no value of it."""
    found = profile.metrics.get(name) if profile else None
    return None if found is None or found.value is None else found


def merge_runs(runs: Mapping[str, Run]) -> tuple[Run, tuple[str, ...]]:
    """All tests of all runs, and the ids of those that several have, which are the last one's.

    Args:
        runs: by a name that says which of them was not finished.
    """
    tests: dict[str, Test] = {}
    twice: dict[str, None] = {}
    versions: dict[str, dict[str, None]] = {}
    for run in runs.values():
        own = {one.id: one for one in run.tests}
        twice.update(dict.fromkeys(id for id in own if id in tests))
        tests.update(own)
        for name, version in run.versions.items():
            versions.setdefault(name, {})[version] = None
    merged = Run(
        tuple(tests.values()),
        began=min(run.began for run in runs.values()),
        versions={name: ", ".join(several) for name, several in versions.items()},
        unfinished=tuple(f"{name}: {why}" for name, run in runs.items() for why in run.unfinished),
        baselines=tuple(_baselines(one for run in runs.values() for one in _kept(run, tests))),
        project=_if_one(run.project for run in runs.values()),
        commit=_if_one(run.commit for run in runs.values()),
    )
    return merged, tuple(twice)


def _if_one(names: Iterable[str]) -> str:
    """The name that all parts have; empty where they differ."""
    found = set(names)
    return found.pop() if len(found) == 1 else ""


def _kept(run: Run, tests: Mapping[str, Test]) -> Iterator[RunComparison]:
    """What a part says of its baselines, but for tests that a later part has, too."""
    own = {test.id: test for test in run.tests}
    for one in run.baselines:
        kept = (two for two in one.profiles if own.get(two.test) is tests.get(two.test))
        yield replace(one, profiles=tuple(kept))


def _baselines(parts: Iterable[RunComparison]) -> Iterator[RunComparison]:
    """One of each kind. Parts that were compared with different runs are no one comparison."""
    of_kind: dict[str, list[RunComparison]] = {}
    for one in parts:
        of_kind.setdefault(one.source, []).append(one)
    for source, several in of_kind.items():
        if source == "run" and len({one.began for one in several}) != 1:
            continue
        yield replace(
            several[0],
            name=", ".join(dict.fromkeys(one.name for one in several)),
            notes=_in_any([one.notes for one in several]),
            profiles=tuple(chain.from_iterable(one.profiles for one in several)),
            gone=(_in_any if source == "snapshot" else _in_all)([one.gone for one in several]),
            fresh=_in_any([one.fresh for one in several]),
            nowhere=_in_all([one.nowhere for one in several]),
            unfinished=_in_any([one.unfinished for one in several]),
        )


def _in_all(lists: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(one for one in lists[0] if all(one in other for other in lists))


def _in_any(lists: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(one for several in lists for one in several))


# Files.

_EXPECTED = "a run document, as pytest --kernelprof-json=PATH writes it"
_MOST_BYTES = 2 * 10**9


def read_run(path: str, *, timelines: bool = False) -> Run:
    """Read a run document, plain or gzip.

    Args:
        timelines: whether it is read with these, which take several times the memory of all else.

    Raises:
        RunFileError: it cannot be read, or is no run document.
    """
    try:
        data = whole(path, _MOST_BYTES, _EXPECTED)
        if b'"traceEvents"' in data[:10_000] or b'"schemaVersion"' in data[:200]:
            raise ValueError("it looks like a Chrome trace, which kernelprof diff compares")
        return unpack(decode(data, Document if timelines else Outline))
    except TraceError as error:
        raise RunFileError(str(error)) from None
    except (ValueError, RecursionError, DecodeError) as error:
        raise RunFileError(f"{path}: {error}; expected {_EXPECTED}") from None
