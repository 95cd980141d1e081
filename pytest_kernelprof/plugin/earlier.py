"""An earlier run, test by test: each new profile is judged by the one of its place there."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pytest_kernelprof.baseline.earlier import DISTURBED, Key, compare_profile
from pytest_kernelprof.baseline.runs import profiles_of
from pytest_kernelprof.measure.plan import TIMED_ROUNDS
from pytest_kernelprof.report.earlier import comparison_words
from pytest_kernelprof.schema.metrics import METRICS
from pytest_kernelprof.schema.run import Run, Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_kernelprof.baseline.allowance import Allowance
    from pytest_kernelprof.schema.run import Outcome, Place, Profile, Reason
    from pytest_kernelprof.schema.runs import MetricComparison, ProfileComparison

LIMIT = "compare"
"""The name that verdicts by an earlier run have."""

Judgement = tuple["Outcome", "Reason", str]
"""Outcome, the reason of "undecided", and why of "incomplete" and "not judged"."""


class Earlier:
    """The earlier run, by test."""

    def __init__(self, run: Run, allowed: Mapping[str, Allowance]) -> None:
        self._tests = {test.id: test for test in run.tests}
        self._allowed = allowed

    def of(self, test: str) -> EarlierTest | None:
        """What it has of a test; None where it has nothing."""
        if test not in self._tests:
            return None
        return EarlierTest(test, profiles_of(Run((self._tests[test],))), self._allowed)


class EarlierTest:
    """What a test took in an earlier run.

    Args:
        test: its node id. profiles: those of the earlier run, by key.
        allowed: what each metric may grow by.
    """

    def __init__(
        self, test: str, profiles: Mapping[Key, Profile], allowed: Mapping[str, Allowance]
    ) -> None:
        self._test = test
        self._profiles = profiles
        self._allowed = allowed
        self._seen: Counter[str] = Counter()

    def verdicts(self, profile: Profile, place: Place | None) -> tuple[Verdict, ...]:
        """How the test's next profile compares; none where the earlier run has none of its
        place."""
        key = self._key(profile)
        old = self._profiles.get(key)
        if old is None:
            return ()
        found = compare_profile(key, [old], profile, self._allowed)
        outcome, reason, why = self._judgement(found, profile)
        return (
            Verdict(
                limit=LIMIT,
                outcome=outcome,
                reason=reason,
                why=why,
                device=profile.environment.kind,
                place=place,
                comparison=None if isinstance(found, str) else found,
                ranks=_ranks_of(found),
            ),
        )

    def note(self, profile: Profile) -> None:
        """The next profile is the one after this."""
        self._seen[profile.label] += 1

    def times_so_far(self, profile: Profile) -> tuple[Verdict, ...]:
        """How the times that are judged fare while rounds are still taken: what the engine decides
        by on a second look and on more rounds."""
        key = self._key(profile)
        found = compare_profile(key, [self._profiles.get(key)], profile, self._allowed)
        if isinstance(found, str):
            return ()
        return tuple(
            Verdict(limit=LIMIT, metric=one.name, outcome=_outcome_so_far(one, profile))
            for one in found.metrics
            if one.kind == "timed" and one.judged and one.verdict != "better"
        )

    def _judgement(self, found: ProfileComparison | str, profile: Profile) -> Judgement:
        if not profile.integrity.complete:
            return "incomplete", "", "; ".join(profile.integrity.problems)
        if isinstance(found, str):
            return "not judged", "", found
        if found.regressed:
            return "over", "", ""
        if found.lost:
            return "incomplete", "", f"{', '.join(found.lost)} is missing; the earlier run has it"
        undecided = [one for one in found.metrics if one.judged and one.verdict == "undecided"]
        if any(one.kind == "exact" for one in undecided):
            return "not judged", "", f"{comparison_words(found)}, but cold"
        if undecided:
            return "undecided", _why_undecided(undecided[0], profile), ""
        if found.untimed == DISTURBED and profile.conditions.disturbed and self._judges_times:
            return "undecided", "disturbed", ""
        return "kept", "", ""

    @property
    def _judges_times(self) -> bool:
        return any(METRICS[name].kind == "timed" and a.judged for name, a in self._allowed.items())

    def _key(self, profile: Profile) -> Key:
        return Key(self._test, profile.label, self._seen[profile.label])


def _ranks_of(found: ProfileComparison | str) -> tuple[int, ...]:
    """The rank that a comparison is of; empty where there is one."""
    return () if isinstance(found, str) or found.rank is None else (found.rank,)


def _outcome_so_far(one: MetricComparison, profile: Profile) -> Outcome:
    """Of a time of the device the second look is another session; all rounds are judged then."""
    looked_once = len(profile.metrics[one.name].rounds) < 2 * TIMED_ROUNDS
    if one.verdict == "undecided" or (METRICS[one.name].sources == ("profiled",) and looked_once):
        return "undecided"
    return "over"


def _why_undecided(one: MetricComparison, profile: Profile) -> Reason:
    if one.low is None:
        return "few" if len(profile.metrics[one.name].rounds) < TIMED_ROUNDS else "alike"
    return "second look" if one.name in profile.second_look else "interval"
