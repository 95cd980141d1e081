"""A run as a file: each name stands in it once, and a kernel is a short row."""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec

from pytest_kernelprof.schema.before import (
    EarlierComparison,
    RevisionComparison,
    SnapshotsComparison,
)
from pytest_kernelprof.schema.metrics import Kind, Unit
from pytest_kernelprof.schema.run import (
    Comparison,
    Copy,
    Environment,
    MetricValues,
    Place,
    ProfileFacts,
    TestOutcome,
    Wait,
)
from pytest_kernelprof.schema.snapshot import Taken


class MetricKind(msgspec.Struct, frozen=True):
    """What a metric is.

    Attributes:
        kind: "exact" (a count), "timed" (judged with an interval) or "shown" (never a limit).
        unit: "count", "us" or "bytes".
    """

    kind: Kind
    unit: Unit


class KernelRow(msgspec.Struct, frozen=True, array_like=True):
    """One kernel, as an array in this order.

    Attributes:
        name: full name, demangled: a place in ``names``, as all that follows and is a name.
        duration_us: microseconds on the device (on the CPU: of the operator).
        grid, block: launch dimensions; zeros on the CPU.
        registers: registers a thread. shared_memory: bytes a block.
        device, stream: indices as the profiler gives them.
        launch: the host call that launched it.
        operators: operators around the launch, from the inside out.
        source: ``file:line`` of the user's code; the empty name where unknown.
    """

    name: int
    duration_us: float
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    registers: int
    shared_memory: int
    device: int
    stream: int
    launch: int
    operators: tuple[int, ...]
    source: int


class GroupRow(msgspec.Struct, frozen=True, array_like=True):
    """Kernels of one name beyond those that are kept one by one, as an array in this order.

    Attributes:
        name: a place in ``names``. count: how many. duration_us: of all of them, in microseconds.
    """

    name: int
    count: int
    duration_us: float


class TimelineRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """One round event by event, in columns of one length, by start.

    Attributes:
        kind: what each event is, a letter each: (o)perator, (a)nnotation, (c)all, (k)ernel,
            mem(s)et, (m)emcpy.
        name: its name, a place in ``names``. lane: where it ran, a place in ``names``.
        start_us: microseconds since the first event. duration_us: microseconds.
        correlation: of a call and what it caused on the device the same number; 0 without one.
        left_out: how many shorter events are not in it, beyond 5,000.
    """

    kind: str = ""
    name: tuple[int, ...] = ()
    lane: tuple[int, ...] = ()
    start_us: tuple[float, ...] = ()
    duration_us: tuple[float, ...] = ()
    correlation: tuple[int, ...] = ()
    left_out: int = 0


class ProfileRow(ProfileFacts, frozen=True, kw_only=True, omit_defaults=True):
    """One measurement, as ``Profile`` has it but for these.

    Attributes:
        environment: where it ran: a place in ``environments``.
        metrics: values by the metric's name, of those that ``Document.metrics`` tells of.
        second_look: the host's times by a second, separate measurement.
        kernels: of one call in launch order; up to 2,000.
        more_kernels: the others, by name.
        variants: other sequences of kernels among the rounds, the first 2,000 of each.
        copies, waits: of one call, in order; up to 2,000 of each.
        timeline: of the round that the kernels are of, a place in ``timelines``; absent where none
            was kept.
        other_ranks: the same call on the other ranks, in the same form. The kernels of those that
            launch what this one launches are left out.
    """

    environment: int
    metrics: dict[str, MetricValues]
    second_look: dict[str, MetricValues] = msgspec.field(default_factory=dict)
    kernels: tuple[KernelRow, ...] = ()
    more_kernels: tuple[GroupRow, ...] = ()
    variants: tuple[tuple[KernelRow, ...], ...] = ()
    copies: tuple[Copy, ...] = ()
    waits: tuple[Wait, ...] = ()
    timeline: int | None = None
    other_ranks: tuple[ProfileRow, ...] = ()


class TestRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """One test, as ``Test`` has it."""

    __test__: ClassVar[bool] = False

    id: str
    outcome: TestOutcome
    place: Place | None = None
    profiles: tuple[ProfileRow, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    snapshot: Taken | None = None
    limits: tuple[str, ...] = ()
    why: str = ""
    not_judged: str = ""


class Outline(msgspec.Struct, frozen=True, kw_only=True):
    """A run but for its timelines, which are most of a file and which few of its readers want.

    Attributes:
        schema: the version of this form.
        format: what tells such a file from others.
        began: when, in UTC: ``2026-11-22T08:50:00Z``.
        versions: of pytest and pytest-kernelprof; those of the software measured with are in
            ``environments``.
        unfinished: why tests may be missing that were to run; empty where the run ended by itself.
        environments: where profiles ran.
        metrics: what each metric is.
        names: of kernels, operators and calls, and lines of code; ``names[0]`` is empty.
        tests: those with a limit, a snapshot or the fixture, and those that were measured.
        against, snapshots, earlier: how the run compares with what was before; null where that
            was not asked for.
    """

    schema: int = 1
    format: Literal["pytest-kernelprof run"] = "pytest-kernelprof run"
    began: str
    versions: dict[str, str]
    unfinished: tuple[str, ...] = ()
    environments: tuple[Environment, ...]
    metrics: dict[str, MetricKind]
    names: tuple[str, ...]
    tests: tuple[TestRow, ...]
    against: RevisionComparison | None = None
    snapshots: SnapshotsComparison | None = None
    earlier: EarlierComparison | None = None


class Document(Outline, frozen=True, kw_only=True):
    """A whole run.

    Attributes:
        timelines: of profiles, event by event.
    """

    timelines: tuple[TimelineRow, ...] = ()
