"""How a run compares with what was before: with a revision, with kernel snapshots, with an earlier
run."""

from __future__ import annotations

import msgspec

from pytest_kernelprof.schema.against import AgainstTest, Result
from pytest_kernelprof.schema.runs import RunsComparison
from pytest_kernelprof.schema.snapshot import TestState


class RevisionComparison(msgspec.Struct, frozen=True, omit_defaults=True):
    """A run and a revision's code (``--kernelprof-against``).

    Attributes:
        name: how the revision is told, for example ``main (abc1234)``.
        notes: what of its files is not as in the user's folder, in words.
        counts: how many tests there are of each result.
        tests: what came of each, in the order in which they ended.
    """

    name: str
    notes: tuple[str, ...] = ()
    counts: dict[Result, int] = {}
    tests: tuple[AgainstTest, ...] = ()


class SnapshotsComparison(msgspec.Struct, frozen=True, omit_defaults=True):
    """A run and the kernel snapshots of its tests; how each fared stands with the test.

    Attributes:
        counts: how many tests there are of each state.
        unused: entries that no test has, as ``DEVICE: FILE::KEY``.
    """

    counts: dict[TestState, int] = {}
    unused: tuple[str, ...] = ()


class EarlierComparison(msgspec.Struct, frozen=True):
    """A run and an earlier one (``--kernelprof-compare``).

    Attributes:
        path: its document, as it was given. began: when it was, in UTC.
        comparison: what came of all. Its ``profiles`` are empty: each stands with its profile, in
            the verdict ``compare``.
    """

    path: str
    began: str
    comparison: RunsComparison
