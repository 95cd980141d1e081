"""How a row is marked: how its limits fared, or how its test ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_kernelprof.schema.run import Outcome, TestOutcome

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
    if test.outcome in ("skipped", "rerun"):
        return test.outcome
    by_limits = {"over", "incomplete"}
    fared = profile.outcome
    if test.outcome == "passed" or fared in by_limits | {"expected"}:
        return fared
    another_says_why = any(one.outcome in by_limits for one in test.profiles)
    return fared if another_says_why else test.outcome


def severity(told: Told | None) -> int:
    """The larger, the less there is to look at."""
    return len(WORST_FIRST) if told is None else WORST_FIRST.index(told)
