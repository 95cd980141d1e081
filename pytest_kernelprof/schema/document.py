"""A run as a file: each name stands in it once, and a kernel is a short row."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, ClassVar, Literal, TypeVar

import msgspec
from msgspec.structs import replace

from pytest_kernelprof.schema.metrics import METRICS, Kind, Unit
from pytest_kernelprof.schema.run import (
    Comparison,
    Copy,
    Environment,
    Kernel,
    KernelGroup,
    Metric,
    Place,
    Profile,
    ProfileFacts,
    Run,
    Test,
    TestOutcome,
    Timeline,
    TimelineKind,
    Wait,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

T = TypeVar("T")

MOST_KERNELS = 2_000
"""Kernels of a profile that are kept one by one; the others are kept by name."""


class MetricKind(msgspec.Struct, frozen=True):
    """What a metric is.

    Attributes:
        kind: "exact" (a count), "timed" (judged with an interval) or "shown" (never a limit).
        unit: "count", "us" or "bytes".
    """

    kind: Kind
    unit: Unit


class MetricRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """The values of one metric of one profile; its name is its key.

    Attributes:
        rounds: the value of each round.
        value: the largest round of a count, the median of a time; absent if it was not measured.
        low, high: bounds of the value at 99 %; absent where there are too few rounds.
        why: why there is no value, or what its reader should know.
        block: rounds that count as one, by their median, since neighbours are alike.
    """

    rounds: tuple[float, ...] = ()
    value: float | None = None
    low: float | None = None
    high: float | None = None
    why: str = ""
    block: int = 1


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
        metrics: values by the metric's name.
        second_look: the host's times by a second, separate measurement.
        kernels: of one call in launch order; up to 2,000.
        more_kernels: the others, by name.
        variants: other sequences of kernels among the rounds, the first 2,000 of each.
        copies, waits: of one call, in order; up to 2,000 of each.
        timeline: of the round that the kernels are of; absent where none was kept.
    """

    environment: int
    metrics: dict[str, MetricRow]
    second_look: dict[str, MetricRow] = msgspec.field(default_factory=dict)
    kernels: tuple[KernelRow, ...] = ()
    more_kernels: tuple[GroupRow, ...] = ()
    variants: tuple[tuple[KernelRow, ...], ...] = ()
    copies: tuple[Copy, ...] = ()
    waits: tuple[Wait, ...] = ()
    timeline: TimelineRow | None = None


class TestRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """One test, as ``Test`` has it."""

    __test__: ClassVar[bool] = False

    id: str
    outcome: TestOutcome
    place: Place | None = None
    profiles: tuple[ProfileRow, ...] = ()
    comparisons: tuple[Comparison, ...] = ()


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """A whole run.

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
        tests: those that took something, as they ended.
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


def pack(run: Run) -> Document:
    """The file form of a run."""
    packer = _Packer()
    tests = tuple(packer.test(test) for test in run.tests)
    return Document(
        began=run.began,
        versions=run.versions,
        unfinished=run.unfinished,
        environments=tuple(packer.environments),
        metrics={
            name: MetricKind(spec.kind, spec.unit)
            for name, spec in METRICS.items()
            if name in packer.metrics
        },
        names=tuple(packer.names),
        tests=tests,
    )


def unpack(document: Document) -> Run:
    """The run of which the file tells.

    Raises:
        ValueError: it refers to a name, an environment or a metric that it does not have.
    """
    unpacker = _Unpacker(document)
    return Run(
        tests=tuple(unpacker.test(row) for row in document.tests),
        began=document.began,
        versions=document.versions,
        unfinished=document.unfinished,
    )


def bounded(profile: Profile) -> Profile:
    """The profile with at most ``MOST_KERNELS`` kernels one by one, the others by name."""
    kept, more = profile.kernels[:MOST_KERNELS], profile.kernels[MOST_KERNELS:]
    return replace(
        profile,
        kernels=kept,
        more_kernels=(*profile.more_kernels, *_groups(more)),
        variants=tuple(one[:MOST_KERNELS] for one in profile.variants),
        copies=profile.copies[:MOST_KERNELS],
        waits=profile.waits[:MOST_KERNELS],
    )


def _groups(kernels: Sequence[Kernel]) -> Iterable[KernelGroup]:
    durations: dict[str, list[float]] = defaultdict(list)
    for kernel in kernels:
        durations[kernel.name].append(kernel.duration_us)
    return (KernelGroup(name, len(all_), sum(all_)) for name, all_ in durations.items())


_FACTS = ProfileFacts.__struct_fields__
_LETTERS: dict[TimelineKind, str] = {
    "operator": "o",
    "annotation": "a",
    "call": "c",
    "kernel": "k",
    "memcpy": "m",
    "memset": "s",
}
_KINDS = {letter: kind for kind, letter in _LETTERS.items()}


class _Packer:
    """Gathers names and environments while it makes rows."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {"": 0}
        self.environments: list[Environment] = []
        self.metrics: set[str] = set()

    def test(self, test: Test) -> TestRow:
        profiles = tuple(self._profile(bounded(profile)) for profile in test.profiles)
        return TestRow(test.id, test.outcome, test.place, profiles, test.comparisons)

    def _profile(self, profile: Profile) -> ProfileRow:
        return ProfileRow(
            **{name: getattr(profile, name) for name in _FACTS},
            environment=self._environment(profile.environment),
            metrics=self._values(profile.metrics),
            second_look=self._values(profile.second_look),
            kernels=tuple(map(self._kernel, profile.kernels)),
            more_kernels=tuple(
                GroupRow(self._name(one.name), one.count, one.duration_us)
                for one in profile.more_kernels
            ),
            variants=tuple(tuple(map(self._kernel, one)) for one in profile.variants),
            copies=profile.copies,
            waits=profile.waits,
            timeline=self._timeline(profile.timeline),
        )

    def _timeline(self, timeline: Timeline | None) -> TimelineRow | None:
        if timeline is None:
            return None
        return TimelineRow(
            kind="".join(_LETTERS[kind] for kind in timeline.kind),
            name=tuple(map(self._name, timeline.name)),
            lane=tuple(map(self._name, timeline.lane)),
            start_us=timeline.start_us,
            duration_us=timeline.duration_us,
            correlation=timeline.correlation,
            left_out=timeline.left_out,
        )

    def _environment(self, environment: Environment) -> int:
        if environment not in self.environments:  # one or two: no hash, since it has a dict
            self.environments.append(environment)
        return self.environments.index(environment)

    def _values(self, metrics: dict[str, Metric]) -> dict[str, MetricRow]:
        self.metrics.update(metrics)
        return {
            name: MetricRow(one.rounds, one.value, one.low, one.high, one.why, one.block)
            for name, one in metrics.items()
        }

    def _kernel(self, kernel: Kernel) -> KernelRow:
        return KernelRow(
            self._name(kernel.name),
            kernel.duration_us,
            kernel.grid,
            kernel.block,
            kernel.registers,
            kernel.shared_memory,
            kernel.device,
            kernel.stream,
            self._name(kernel.launch),
            tuple(map(self._name, kernel.operators)),
            self._name(kernel.source),
        )

    def _name(self, name: str) -> int:
        return self.names.setdefault(name, len(self.names))


class _Unpacker:
    """Makes records of rows."""

    def __init__(self, document: Document) -> None:
        self._document = document

    def test(self, row: TestRow) -> Test:
        try:
            profiles = tuple(map(self._profile, row.profiles))
        except (LookupError, ValueError) as error:
            raise ValueError(f"test {row.id!r}: {error}") from None
        return Test(row.id, profiles, row.comparisons, row.outcome, row.place)

    def _profile(self, row: ProfileRow) -> Profile:
        return Profile(
            **{name: getattr(row, name) for name in _FACTS},
            environment=_at(self._document.environments, row.environment, "environments"),
            metrics=self._metrics(row.metrics),
            second_look=self._metrics(row.second_look),
            kernels=tuple(map(self._kernel, row.kernels)),
            more_kernels=tuple(
                KernelGroup(self._name(one.name), one.count, one.duration_us)
                for one in row.more_kernels
            ),
            variants=tuple(tuple(map(self._kernel, one)) for one in row.variants),
            copies=row.copies,
            waits=row.waits,
            timeline=self._timeline(row.timeline),
        )

    def _timeline(self, row: TimelineRow | None) -> Timeline | None:
        if row is None:
            return None
        columns = (row.kind, row.name, row.lane, row.start_us, row.duration_us, row.correlation)
        if len(set(map(len, columns))) != 1:
            raise ValueError("the columns of its timeline have different lengths")
        if not set(row.kind) <= _KINDS.keys():
            raise ValueError(f"{row.kind[:20]!r}: its timeline has events of unknown kinds")
        return Timeline(
            kind=tuple(_KINDS[letter] for letter in row.kind),
            name=tuple(map(self._name, row.name)),
            lane=tuple(map(self._name, row.lane)),
            start_us=row.start_us,
            duration_us=row.duration_us,
            correlation=row.correlation,
            left_out=row.left_out,
        )

    def _metrics(self, rows: dict[str, MetricRow]) -> dict[str, Metric]:
        known = self._document.metrics
        for name in rows:
            if name not in known:
                raise ValueError(f"the metric {name!r} is not among the file's metrics")
            spec = METRICS.get(name)
            if spec is not None and (spec.kind, spec.unit) != (known[name].kind, known[name].unit):
                raise ValueError(f"the metric {name!r} is {spec.kind}, in {spec.unit}, not as said")
        return {
            name: Metric(
                name=name,
                kind=known[name].kind,
                unit=known[name].unit,
                rounds=row.rounds,
                value=row.value,
                low=row.low,
                high=row.high,
                why=row.why,
                block=row.block,
            )
            for name, row in rows.items()
        }

    def _kernel(self, row: KernelRow) -> Kernel:
        return Kernel(
            self._name(row.name),
            row.duration_us,
            row.grid,
            row.block,
            row.registers,
            row.shared_memory,
            row.device,
            row.stream,
            self._name(row.launch),
            tuple(map(self._name, row.operators)),
            self._name(row.source),
        )

    def _name(self, at: int) -> str:
        return _at(self._document.names, at, "names")


def _at(table: Sequence[T], at: int, what: str) -> T:
    if not 0 <= at < len(table):
        raise ValueError(f"{at} is no place in the file's {what}, which has {len(table)}")
    return table[at]
