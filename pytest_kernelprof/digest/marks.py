"""How a row is marked: how its limits fared, or how its test ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_kernelprof.schema.run import OUTCOMES, Outcome, TestOutcome

if TYPE_CHECKING:
    from pytest_kernelprof.schema.run import Profile, Test

Told = Outcome | TestOutcome

WORST_FIRST: tuple[Told, ...] = (
    *("over", "incomplete", "failed", "error", "undecided", "kept"),
    *("expected", "xfailed", "rerun", "skipped", "not judged"),
)

NEEDS_A_LOOK: tuple[Told, ...] = ("over", "incomplete", "failed", "error", "undecided")
"""The marks that ask for a look: reports list their rows first."""


def told_of(test: Test, profile: Profile) -> Told | None:
    """What a row says: how its limits fared, unless its test ended otherwise than by them, since a
    limit that was kept is no pass there; None where there is nothing to say."""
    return _told(test, profile.outcome)


def told_of_comparisons(test: Test) -> Told | None:
    """The same of a test's comparisons of callables, by what it asserted of them."""
    return _told(test, _compared(test))


def _told(test: Test, fared: Outcome | None) -> Told | None:
    if test.outcome in ("skipped", "rerun"):
        return test.outcome
    by_limits = {"over", "incomplete"}
    if test.outcome == "passed" or fared in by_limits | {"expected"}:
        return fared
    every = (_compared(test), *(one.outcome for one in test.profiles))
    another_says_why = any(one in by_limits for one in every)
    return fared if another_says_why else test.outcome


def _compared(test: Test) -> Outcome | None:
    fared = {verdict.outcome for one in test.comparisons for verdict in one.verdicts}
    return next((outcome for outcome in OUTCOMES if outcome in fared), None)


def severity(told: Told | None) -> int:
    """The larger, the less there is to look at."""
    return len(WORST_FIRST) if told is None else WORST_FIRST.index(told)
