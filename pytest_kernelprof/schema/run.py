"""What a run found: ``Run > Test > Profile > Kernel, Metric, Verdict, Integrity, Environment``.

Records of facts. How they are told is made of them in ``report/``. All of them have their names
here, too, wherever they stand.
"""

from __future__ import annotations

import msgspec

from pytest_kernelprof.schema.before import EarlierComparison as EarlierComparison
from pytest_kernelprof.schema.before import RevisionComparison as RevisionComparison
from pytest_kernelprof.schema.before import SnapshotsComparison as SnapshotsComparison
from pytest_kernelprof.schema.communication import Collective as Collective
from pytest_kernelprof.schema.environment import Conditions as Conditions
from pytest_kernelprof.schema.environment import Environment as Environment
from pytest_kernelprof.schema.environment import GraphProof as GraphProof
from pytest_kernelprof.schema.environment import Integrity as Integrity
from pytest_kernelprof.schema.environment import Neighbour as Neighbour
from pytest_kernelprof.schema.environment import Origin as Origin
from pytest_kernelprof.schema.kernels import Copy as Copy
from pytest_kernelprof.schema.kernels import Kernel as Kernel
from pytest_kernelprof.schema.kernels import KernelGroup as KernelGroup
from pytest_kernelprof.schema.kernels import Timeline as Timeline
from pytest_kernelprof.schema.kernels import TimelineKind as TimelineKind
from pytest_kernelprof.schema.kernels import Wait as Wait
from pytest_kernelprof.schema.profile import Bound as Bound
from pytest_kernelprof.schema.profile import Gaps as Gaps
from pytest_kernelprof.schema.profile import HostShares as HostShares
from pytest_kernelprof.schema.profile import Metric as Metric
from pytest_kernelprof.schema.profile import MetricValues as MetricValues
from pytest_kernelprof.schema.profile import Profile as Profile
from pytest_kernelprof.schema.profile import ProfileFacts as ProfileFacts
from pytest_kernelprof.schema.profile import RoundGaps as RoundGaps
from pytest_kernelprof.schema.tests import Comparison as Comparison
from pytest_kernelprof.schema.tests import Contestant as Contestant
from pytest_kernelprof.schema.tests import Test as Test
from pytest_kernelprof.schema.tests import TestOutcome as TestOutcome
from pytest_kernelprof.schema.verdicts import OUTCOMES as OUTCOMES
from pytest_kernelprof.schema.verdicts import Cause as Cause
from pytest_kernelprof.schema.verdicts import Hit as Hit
from pytest_kernelprof.schema.verdicts import Mismatch as Mismatch
from pytest_kernelprof.schema.verdicts import Outcome as Outcome
from pytest_kernelprof.schema.verdicts import Place as Place
from pytest_kernelprof.schema.verdicts import Reason as Reason
from pytest_kernelprof.schema.verdicts import Verdict as Verdict


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
