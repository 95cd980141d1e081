"""What a run found: ``Run > Test > Profile > Kernel, Metric, Verdict, Integrity, Environment``.

Records of facts. How they are told is made of them in ``report/``. All of them have their names
here, too, wherever they stand.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec

from pytest_kernelprof.schema.comparison import Paired
from pytest_kernelprof.schema.comparison import ProfileComparison as ProfileComparison
from pytest_kernelprof.schema.comparison import RunComparison as RunComparison
from pytest_kernelprof.schema.comparison import Source as Source
from pytest_kernelprof.schema.environment import Conditions as Conditions
from pytest_kernelprof.schema.environment import Environment as Environment
from pytest_kernelprof.schema.environment import GraphProof as GraphProof
from pytest_kernelprof.schema.environment import Integrity as Integrity
from pytest_kernelprof.schema.environment import Neighbour as Neighbour
from pytest_kernelprof.schema.environment import Origin as Origin
from pytest_kernelprof.schema.profile import Bound as Bound
from pytest_kernelprof.schema.profile import Collective as Collective
from pytest_kernelprof.schema.profile import Copy as Copy
from pytest_kernelprof.schema.profile import Gaps as Gaps
from pytest_kernelprof.schema.profile import HostShares as HostShares
from pytest_kernelprof.schema.profile import Kernel as Kernel
from pytest_kernelprof.schema.profile import KernelGroup as KernelGroup
from pytest_kernelprof.schema.profile import Metric as Metric
from pytest_kernelprof.schema.profile import MetricValues as MetricValues
from pytest_kernelprof.schema.profile import Profile as Profile
from pytest_kernelprof.schema.profile import ProfileFacts as ProfileFacts
from pytest_kernelprof.schema.profile import RoundGaps as RoundGaps
from pytest_kernelprof.schema.profile import Timeline as Timeline
from pytest_kernelprof.schema.profile import TimelineKind as TimelineKind
from pytest_kernelprof.schema.profile import Wait as Wait
from pytest_kernelprof.schema.snapshot import SnapshotReport
from pytest_kernelprof.schema.verdicts import STATUSES as STATUSES
from pytest_kernelprof.schema.verdicts import Cause as Cause
from pytest_kernelprof.schema.verdicts import Hit as Hit
from pytest_kernelprof.schema.verdicts import Mismatch as Mismatch
from pytest_kernelprof.schema.verdicts import Place as Place
from pytest_kernelprof.schema.verdicts import Reason as Reason
from pytest_kernelprof.schema.verdicts import Status as Status
from pytest_kernelprof.schema.verdicts import Verdict as Verdict


class Contestant(msgspec.Struct, frozen=True, omit_defaults=True):
    """One callable of a comparison.

    Attributes:
        kernels: kernels of one call.
        value: median of its rounds, in microseconds or bytes. low, high: its interval at 99 %.
        paired: how it compares with the reference, pair by pair; None for the reference.
        unstable: the different numbers of kernels that it launched, where they differ.
        checks: of a candidate, how its results were held against the reference's, in words.
    """

    name: str
    kernels: int
    value: float
    low: float | None = None
    high: float | None = None
    paired: Paired | None = None
    unstable: tuple[int, ...] = ()
    checks: tuple[str, ...] = ()


class Comparison(msgspec.Struct, frozen=True, omit_defaults=True):
    """Callables measured in turn in one run.

    Attributes:
        metric: "cuda_time", "latency" or "peak_memory".
        reference: the name of the callable that all others are compared with.
        contestants: all of them, the reference included, in their order.
        pairs: how many rounds there are of each.
        environment: where it was.
        conditions: those blocks of rounds on which no verdict can stand.
        verdicts: what was asserted of it.
    """

    metric: str
    reference: str
    contestants: tuple[Contestant, ...]
    pairs: int
    environment: Environment
    conditions: tuple[Conditions, ...] = ()
    verdicts: tuple[Verdict, ...] = ()


TestOutcome = Literal["failed", "error", "rerun", "not run", "skipped", "xfailed", "passed"]
"""How pytest says that a test ended. "error" also means that a number is not available, "rerun" an
attempt that a plugin repeated, "not run" a test that the run never called."""


class Test(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one test took.

    Attributes:
        id: its node id, with everything that is no text escaped.
        outcome: how it ended, whatever its limits did: a failure of its own, a skip, another
            fixture's error count as much.
        place: where it stands.
        snapshot: what it says of its snapshots, for the process that keeps them.
        limits: what it promises by markers and snapshots, by name: ``max_kernels``, ``snapshot``.
        why: the first line of what ended it, if it did not pass.
        not_judged: why none of its limits was judged; empty if they were, or if it failed.
    """

    __test__: ClassVar[bool] = False  # for pytest: no class of tests, whatever its name

    id: str
    profiles: tuple[Profile, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    outcome: TestOutcome = "passed"
    place: Place | None = None
    snapshot: SnapshotReport | None = None
    limits: tuple[str, ...] = ()
    why: str = ""
    not_judged: str = ""

    @property
    def verdicts(self) -> list[Verdict]:
        """Those of its profiles, then those of its comparisons."""
        found = [verdict for one in self.profiles for verdict in one.verdicts]
        return found + [verdict for one in self.comparisons for verdict in one.verdicts]


class Run(msgspec.Struct, frozen=True):
    """All tests of a run that carry a limit, ask for the fixture, have a snapshot or were measured.

    Attributes:
        tests: in the order in which they ended; then those that did not run.
        began: when, in UTC: ``2026-11-22T08:50:00Z``.
        versions: of pytest and pytest-kernelprof.
        unfinished: why tests may be missing that were to run; empty where the run ended by itself.
        baselines: what it was compared with.
        project: the name of the folder that the tests are of.
        commit: the full name of the commit that was checked out; empty outside of a repository.
    """

    tests: tuple[Test, ...] = ()
    began: str = ""
    versions: dict[str, str] = {}
    unfinished: tuple[str, ...] = ()
    baselines: tuple[RunComparison, ...] = ()
    project: str = ""
    commit: str = ""

    def baseline(self, source: Source) -> RunComparison | None:
        """How it compares with one kind of baseline; None where that was not asked for."""
        return next((one for one in self.baselines if one.source == source), None)
