"""What of a test leaves its process: no kernel one by one, no round."""

from __future__ import annotations

from msgspec.structs import replace

from pytest_kernelprof.schema import run


def row_of(test: run.Test, *, expected: bool) -> run.Test:
    """What reports tell of a test.

    Args:
        expected: whether it was expected to fail, and did.
    """
    profiles = tuple(_row(profile, expected=expected) for profile in test.profiles)
    return run.Test(test.id, profiles, test.comparisons)


def _row(profile: run.Profile, *, expected: bool) -> run.Profile:
    """What reports tell of a profile: no kernel one by one, and no round."""
    verdicts = profile.verdicts
    if expected:  # to fail, and it did
        verdicts = tuple(
            replace(one, outcome="expected") if one.outcome == "over" else one for one in verdicts
        )
    return replace(
        profile,
        metrics={
            name: replace(metric, rounds=())
            for name, metric in profile.metrics.items()
            if metric.value is not None
        },
        verdicts=verdicts,
        second_look={},
        kernels=(),
        variants=(),
        copies=(),
        waits=(),
        gaps=run.Gaps(),
    )
