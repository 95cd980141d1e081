"""How a row is marked: how its limits fared, or how its test ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_kernelprof.schema.run import OUTCOMES, Outcome, TestOutcome

if TYPE_CHECKING:
    from pytest_kernelprof.schema.run import Profile, Test

Told = Outcome | TestOutcome

WORST_FIRST: tuple[Told, ...] = (
    *("over", "incomplete", "failed", "error", "undecided", "kept"),
    *("expected", "xfailed", "rerun", "skipped", "not judged", "not run"),
)

FAILED: tuple[Told, ...] = ("failed", "error")
"""How a test ended that failed, whatever its limits did."""

NEEDS_A_LOOK: tuple[Told, ...] = ("over", "incomplete", "failed", "error", "undecided")
"""The marks that ask for a look: reports list their rows first."""


def told_of(test: Test, profile: Profile) -> Told | None:
    """What a row says: how its limits fared, unless its test ended otherwise than by them, since a
    limit that was kept is no pass there; None where there is nothing to say."""
    return _told(test, profile.outcome)


def told_of_test(test: Test) -> Told | None:
    """The mark of a test by what no profile says: its comparisons of callables, and how it
    ended. A test that passed with limits, none of them left out, has kept them."""
    fared = _compared(test)
    if fared is None and test.limits and test.outcome == "passed":
        fared = "kept"
    return _told(test, fared)


def _told(test: Test, fared: Outcome | None) -> Told | None:
    if test.outcome == "not run" or (test.not_judged and test.outcome in ("passed", "skipped")):
        return "not judged"
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
