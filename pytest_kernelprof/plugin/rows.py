"""What of a test leaves its process: for the tables no kernel one by one and no round."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from pytest_kernelprof.schema import run

if TYPE_CHECKING:
    from collections.abc import Callable


def row_of(
    test: run.Test, reduced: Callable[[run.Profile], run.Profile], *, expected: bool
) -> run.Test:
    """What is told of a test.

    Args:
        reduced: what is told of a profile.
        expected: whether the test was expected to fail, and did.
    """
    profiles = map(_expected, test.profiles) if expected else test.profiles
    return replace(test, profiles=tuple(map(reduced, profiles)))


def for_tables(profile: run.Profile) -> run.Profile:
    """What the tables at the end tell of a profile."""
    return replace(
        profile,
        metrics={
            name: replace(metric, rounds=())
            for name, metric in profile.metrics.items()
            if metric.value is not None
        },
        second_look={},
        kernels=(),
        variants=(),
        copies=(),
        waits=(),
        gaps=run.Gaps(),
        timeline=None,
    )


def _expected(profile: run.Profile) -> run.Profile:
    verdicts = (
        replace(one, outcome="expected") if one.outcome == "over" else one
        for one in profile.verdicts
    )
    return replace(profile, verdicts=tuple(verdicts))
