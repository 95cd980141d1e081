"""What of a test leaves its process: for the report at the end no round, and few kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from pytest_kernelprof.schema import run
from pytest_kernelprof.schema.document import grouped
from pytest_kernelprof.summary.verdicts import explained

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_KERNELS = 40
"""Kernels, copies and waits that are told one by one."""
MOST_NAMES = 32
"""Names of kernels that are told with how many there are."""
LONGEST_NAME = 2_000
_OPERATORS = 6
"""So many operators are told from either end of a chain: the innermost and whom the user called."""


def row_of(
    test: run.Test, reduced: Callable[[run.Profile], run.Profile], *, expected: bool
) -> run.Test:
    """What is told of a test.

    Args:
        reduced: what is told of a profile.
        expected: whether the test was expected to fail, and did.
    """
    profiles = map(_expected if expected else explained, test.profiles)
    return replace(test, profiles=tuple(map(reduced, profiles)))


def for_tables(profile: run.Profile, *, kernels: bool = False) -> run.Profile:
    """What the report at the end tells of a profile: where nothing is wrong with it its kernels by
    name, else some of them one by one.

    Args:
        kernels: whether some are told one by one in any case.
    """
    one_by_one = kernels or profile.outcome == "failed"
    kept = profile.kernels[:MOST_KERNELS] if one_by_one else ()
    return replace(
        profile,
        metrics={
            name: replace(metric, rounds=())
            for name, metric in profile.metrics.items()
            if metric.value is not None
        },
        second_look={},
        kernels=tuple(map(_with_less, kept)),
        more_kernels=_groups(profile, len(kept)),
        variants=(),
        copies=tuple(map(_with_less, profile.copies[:MOST_KERNELS])) if one_by_one else (),
        waits=tuple(map(_with_less, profile.waits[:MOST_KERNELS])) if one_by_one else (),
        gaps=run.Gaps(),
        timeline=None,
    )


def _groups(profile: run.Profile, kept: int) -> tuple[run.KernelGroup, ...]:
    """The other kernels by name, those that take most; the rest as one group without a name."""
    groups = sorted(
        (*grouped(profile.kernels[kept:]), *profile.more_kernels),
        key=lambda one: -one.duration_us,
    )
    told = [replace(one, name=one.name[:LONGEST_NAME]) for one in groups[:MOST_NAMES]]
    rest = groups[MOST_NAMES:]
    if rest:
        number, us = sum(one.count for one in rest), sum(one.duration_us for one in rest)
        told.append(run.KernelGroup("", number, us))
    return tuple(told)


_One = TypeVar("_One", run.Kernel, run.Copy, run.Wait)


def _with_less(one: _One) -> _One:
    """With a name and a chain of bounded length: that of a template may have 100 kB."""
    chain: tuple[str, ...] = one.operators
    if len(chain) > 2 * _OPERATORS:
        one = replace(one, operators=(*chain[:_OPERATORS], *chain[-_OPERATORS:]))
    if isinstance(one, run.Wait) or len(one.name) <= LONGEST_NAME:
        return one
    return replace(one, name=one.name[:LONGEST_NAME])


def _expected(profile: run.Profile) -> run.Profile:
    verdicts = (
        replace(one, outcome="expected failure") if one.outcome == "failed" else one
        for one in profile.verdicts
    )
    return replace(profile, verdicts=tuple(verdicts))
