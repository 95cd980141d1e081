"""What a run found: ``Run > Test > Profile > Kernel, Metric, Verdict, Integrity, Environment``.

Records of facts. How they are told is made of them in ``report/``. All of them have their names
here, too, wherever they stand.
"""

from __future__ import annotations

import msgspec

from pytest_kernelprof.schema.before import (
    EarlierComparison,
    RevisionComparison,
    SnapshotsComparison,
)
from pytest_kernelprof.schema.communication import Collective
from pytest_kernelprof.schema.environment import (
    Conditions,
    Environment,
    GraphProof,
    Integrity,
    Neighbour,
    Origin,
)
from pytest_kernelprof.schema.kernels import (
    Copy,
    Kernel,
    KernelGroup,
    Timeline,
    TimelineKind,
    Wait,
)
from pytest_kernelprof.schema.profile import (
    Bound,
    Gaps,
    HostShares,
    Metric,
    MetricValues,
    Profile,
    ProfileFacts,
    RoundGaps,
)
from pytest_kernelprof.schema.tests import Comparison, Contestant, Test, TestOutcome
from pytest_kernelprof.schema.verdicts import (
    OUTCOMES,
    Cause,
    Hit,
    Mismatch,
    Outcome,
    Place,
    Reason,
    Verdict,
)

__all__ = [
    "OUTCOMES",
    "Bound",
    "Cause",
    "Collective",
    "Comparison",
    "Conditions",
    "Contestant",
    "Copy",
    "Environment",
    "Gaps",
    "GraphProof",
    "Hit",
    "HostShares",
    "Integrity",
    "Kernel",
    "KernelGroup",
    "Metric",
    "MetricValues",
    "Mismatch",
    "Neighbour",
    "Origin",
    "Outcome",
    "Place",
    "Profile",
    "ProfileFacts",
    "Reason",
    "RoundGaps",
    "Run",
    "Test",
    "TestOutcome",
    "Timeline",
    "TimelineKind",
    "Verdict",
    "Wait",
]


class Run(msgspec.Struct, frozen=True):
    """All tests of a run that carry a limit, ask for the fixture, have a snapshot or were measured.

    Attributes:
        tests: in the order in which they ended; then those that did not run.
        began: when, in UTC: ``2026-11-22T08:50:00Z``.
        versions: of pytest and pytest-kernelprof.
        unfinished: why tests may be missing that were to run; empty where the run ended by itself.
        against: how it compares with a revision's code. snapshots: with the kernel snapshots of
            its tests. earlier: with an earlier run. None where that was not asked for.
    """

    tests: tuple[Test, ...] = ()
    began: str = ""
    versions: dict[str, str] = {}
    unfinished: tuple[str, ...] = ()
    against: RevisionComparison | None = None
    snapshots: SnapshotsComparison | None = None
    earlier: EarlierComparison | None = None
