"""How one run differs from earlier ones: what got worse or better, test by test."""

from __future__ import annotations

from typing import Literal

import msgspec

from pytest_kernelprof.schema.diff import ProfileDiff
from pytest_kernelprof.schema.metrics import Kind, Unit

Change = Literal["worse", "better", "undecided"]


class MetricComparison(msgspec.Struct, frozen=True, omit_defaults=True):
    """A metric that is another than before.

    Attributes:
        name, kind, unit: as of ``Metric``.
        olds: its value in each of the earlier runs; None where it has none that compares.
        new: its value now. low, high: its interval at 99 %, where it has one.
        verdict: "worse" or "better" by more than is allowed; "undecided" where a time's median is
            beyond that and its interval, or a second look, is not; or where there is more of a
            count in a block that ran once and was cold.
        judged: whether it fails the comparison if it is worse.
    """

    name: str
    kind: Kind
    unit: Unit
    olds: tuple[float | None, ...]
    new: float
    verdict: Change
    low: float | None = None
    high: float | None = None
    judged: bool = False


class ProfileComparison(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One profile and those of its place in earlier runs, where anything of it is another.

    Attributes:
        test: its test's node id. label: which of the test's profiles it is, and on which rank, of
            those but the first.
        metrics: those that differ by more than is allowed, in the order of the table of metrics.
        diff: how its kernels differ from those of the last earlier run that has it; None where
            they are the same.
        untimed: why times were not compared; empty where they were.
        other: what of device and software is another, in words: nothing fails by it then.
        lost: metrics that are judged, that were had before and are not now.
        rank: which rank it is of; None of a call on one.
    """

    test: str
    label: str = ""
    metrics: tuple[MetricComparison, ...] = ()
    diff: ProfileDiff | None = None
    untimed: str = ""
    other: str = ""
    lost: tuple[str, ...] = ()
    rank: int | None = None

    @property
    def regressed(self) -> bool:
        """Whether it fails the comparison."""
        return any(one.verdict == "worse" and one.judged for one in self.metrics)


class RunsComparison(msgspec.Struct, frozen=True, kw_only=True):
    """A run and earlier ones.

    Attributes:
        profiles: what is another, in the order of the new run.
        compared: how many profiles both sides have.
        untimed: of how many of them times were not compared, by the reason.
        other: how many of them fail nothing, since device or software are others, by what is.
        gone: profiles that the last earlier run has and this one has not.
        fresh: those that no earlier one has.
        uncompared: profiles that both sides have, one of them incomplete, of another kind of
            device, or a block where the other is a call, so nothing was compared.
        lost: of metrics that are judged, in how many profiles they were had before and are not now.
        nowhere: the metrics that were asked for and that no profile has.
        unfinished: why tests may be missing on either side.
        schema: the version.
    """

    schema: int = 1
    profiles: tuple[ProfileComparison, ...] = ()
    compared: int = 0
    untimed: dict[str, int] = {}
    other: dict[str, int] = {}
    gone: tuple[str, ...] = ()
    fresh: tuple[str, ...] = ()
    uncompared: tuple[str, ...] = ()
    lost: dict[str, int] = {}
    nowhere: tuple[str, ...] = ()
    unfinished: tuple[str, ...] = ()

    @property
    def regressed(self) -> bool:
        """Whether any profile fails the comparison."""
        return any(one.regressed for one in self.profiles)

    @property
    def passed(self) -> bool:
        """Whether there is nothing that fails, and what was to be compared was."""
        return bool(self.compared) and not (self.regressed or self.lost or self.nowhere)
