"""A run against earlier ones: which profiles both sides have, and what became of each."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING

from pytest_kernelprof.baseline.contestants import contestants_of
from pytest_kernelprof.baseline.earlier import Key, compare_profile, has
from pytest_kernelprof.schema.runs import ProfileComparison, RunsComparison

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_kernelprof.baseline.allowance import Allowance
    from pytest_kernelprof.schema.run import Profile, Run

Profiles = dict[Key, "Profile"]


def compare_runs(olds: Sequence[Run], new: Run, allowed: Mapping[str, Allowance]) -> RunsComparison:
    """What is another in ``new``, profile by profile as ``compare_profile`` has it; so are the
    callables of comparisons.

    Args:
        olds: earlier runs, the oldest first.
        allowed: what each metric may grow by.
    """
    before, now = [_all_of(run) for run in olds], _all_of(new)
    judged = (
        (key, compare_profile(key, [run.get(key) for run in before], one, allowed))
        for key, one in now.items()
    )
    compared = {key: one for key, one in judged if isinstance(one, ProfileComparison)}
    unfinished = (why for run in (*olds, new) for why in run.unfinished)
    return _together(before, now, compared, allowed, unfinished)


def gather(old: Run, new: Run, allowed: Mapping[str, Allowance]) -> RunsComparison:
    """The same of a run whose profiles were compared with one earlier run as they were taken, and
    have that among their verdicts."""
    before, now = profiles_of(old), profiles_of(new)
    compared = {
        key: verdict.comparison
        for key, one in now.items()
        for verdict in one.verdicts
        if verdict.comparison is not None
    }
    return _together([before], now, compared, allowed, chain(old.unfinished, new.unfinished))


def profiles_of(run: Run) -> Profiles:
    """By test, label and number; of a test that ran again, those of the last time alone."""
    tests = {test.id: test for test in run.tests}
    return {key: one for test in tests.values() for key, one in _numbered(test.id, test.profiles)}


def _all_of(run: Run) -> Profiles:
    """The same, and the callables of comparisons."""
    tests = {test.id: test for test in run.tests}
    return {
        key: one
        for test in tests.values()
        for key, one in _numbered(test.id, (*test.profiles, *contestants_of(test)))
    }


def _numbered(test: str, profiles: Iterable[Profile]) -> Iterator[tuple[Key, Profile]]:
    labels: Counter[str] = Counter()
    for profile in profiles:
        yield Key(test, profile.label, labels[profile.label]), profile
        labels[profile.label] += 1


def _together(
    before: Sequence[Profiles],
    now: Profiles,
    compared: Mapping[Key, ProfileComparison],
    allowed: Mapping[str, Allowance],
    unfinished: Iterable[str],
) -> RunsComparison:
    there = [key for key in now if any(key in run for run in before)]
    ones = compared.values()
    return RunsComparison(
        profiles=tuple(one for one in ones if one.metrics or one.diff),
        compared=len(compared),
        untimed=dict(Counter(one.untimed for one in ones if one.untimed)),
        other=dict(Counter(one.other for one in ones if one.other)),
        gone=tuple(str(key) for key in before[-1] if key not in now),
        fresh=tuple(str(key) for key in now if key not in there),
        uncompared=tuple(str(key) for key in there if key not in compared),
        lost=dict(Counter(name for one in ones for name in one.lost)),
        nowhere=tuple(
            name
            for name, allowance in allowed.items()
            if allowance.asked and not any(has(now[key], name) for key in compared)
        ),
        unfinished=tuple(unfinished),
    )
