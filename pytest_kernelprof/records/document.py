"""What a run found, ``Run > Test > Profile``, and the same as a file.

In the file each name stands once, and a kernel is a short row. ``pack`` makes that form of a run,
``unpack`` a run of that form.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Literal, TypeVar

import msgspec
from msgspec.structs import astuple, replace

from pytest_kernelprof import units
from pytest_kernelprof.records import profile as records
from pytest_kernelprof.records.comparison import Paired, RunComparison, SnapshotReport, Source
from pytest_kernelprof.records.metrics import METRICS, Kind, Unit
from pytest_kernelprof.records.recording import Conditions, Environment


class ComparedCallable(msgspec.Struct, frozen=True, omit_defaults=True):
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
        callables: all of them, the reference included, in their order.
        pairs: how many rounds there are of each.
        environment: where it was.
        conditions: those blocks of rounds on which no verdict can stand.
        verdicts: what was asserted of it.
    """

    metric: str
    reference: str
    callables: tuple[ComparedCallable, ...]
    pairs: int
    environment: Environment
    conditions: tuple[Conditions, ...] = ()
    verdicts: tuple[records.Verdict, ...] = ()


TestOutcome = Literal["failed", "error", "rerun", "not run", "skipped", "xfailed", "passed"]
"""How pytest says that a test ended. "error" also means that a number is not available, "rerun" an
attempt that a plugin repeated, "not run" a test that the run never called."""


class TestFacts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What stands of a test in a run document as here.

    Attributes:
        comparisons: of callables, which it made.
        place: where it stands.
        snapshot: what it says of its snapshots, for the process that keeps them.
        limits: what it promises by markers and snapshots, by name: ``max_kernels``, ``snapshot``.
        why: the first line of what ended it, if it did not pass.
        not_judged: why none of its limits was judged; empty if they were, or if it failed.
    """

    __test__: ClassVar[bool] = False  # for pytest: no class of tests, whatever its name

    comparisons: tuple[Comparison, ...] = ()
    place: records.Place | None = None
    snapshot: SnapshotReport | None = None
    limits: tuple[str, ...] = ()
    why: str = ""
    not_judged: str = ""


class Test(TestFacts, frozen=True, omit_defaults=True):
    """What one test took.

    Attributes:
        id: its node id, with everything that is no text escaped.
        outcome: how it ended, whatever its limits did: a failure of its own, a skip, another
            fixture's error count as much.
    """

    id: str
    profiles: tuple[records.Profile, ...] = ()
    outcome: TestOutcome = "passed"

    @property
    def verdicts(self) -> list[records.Verdict]:
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
        grid, block, registers, shared_memory: as of ``Kernel``.
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
    shared_memory: int | None
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


class ProfileRow(records.ProfileFacts, frozen=True, kw_only=True, omit_defaults=True):
    """One measurement, as ``Profile`` has it but for these.

    Attributes:
        environment: where it ran: a place in ``environments``.
        metrics: values by the metric's name, of those that ``Document.metrics`` tells of.
        second_look: the host's times by a second, separate measurement.
        kernels: of one call in launch order; up to 2,000. spills: where a ``max_spills``
            limit asked, positions from 0 and what each thread spills, of those that are known.
        more_kernels: the others, by name.
        variants: other sequences of kernels among the rounds, the first 2,000 of each.
        copies, waits: of one call, in order; up to 2,000 of each.
        timeline: of the round that the kernels are of, a place in ``timelines``; absent where none
            was kept.
        other_ranks: the same call on the other ranks, in the same form. The kernels of those that
            launch what this one launches are left out.
    """

    environment: int
    metrics: dict[str, records.MetricValues]
    second_look: dict[str, records.MetricValues] = msgspec.field(default_factory=dict)
    kernels: tuple[KernelRow, ...] = ()
    spills: tuple[tuple[int, int], ...] = ()
    more_kernels: tuple[GroupRow, ...] = ()
    variants: tuple[tuple[KernelRow, ...], ...] = ()
    copies: tuple[records.Copy, ...] = ()
    waits: tuple[records.Wait, ...] = ()
    timeline: int | None = None
    other_ranks: tuple[ProfileRow, ...] = ()


class TestRow(TestFacts, frozen=True, omit_defaults=True):
    """One test, as ``Test`` has it."""

    id: str
    outcome: TestOutcome
    profiles: tuple[ProfileRow, ...] = ()


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
        baselines: what the run was compared with.
        project: the name of the folder that the tests are of.
        commit: the full name of the commit that was checked out; empty outside of a repository.
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
    baselines: tuple[RunComparison, ...] = ()
    project: str = ""
    commit: str = ""


class Document(Outline, frozen=True, kw_only=True):
    """A whole run.

    Attributes:
        timelines: of profiles, event by event.
    """

    timelines: tuple[TimelineRow, ...] = ()


T = TypeVar("T")

MOST_KERNELS = 2_000
"""Kernels of a profile that are kept one by one; the others are kept by name."""


def pack(run: Run) -> Document:
    """The file form of a run."""
    packer = _Packer()
    tests = tuple(packer.test(test) for test in run.tests)
    return Document(
        environments=tuple(packer.environments),
        metrics={
            name: MetricKind(spec.kind, spec.unit)
            for name, spec in METRICS.items()
            if name in packer.metrics
        },
        names=tuple(packer.names),
        tests=tests,
        timelines=tuple(packer.timelines),
        **_same(run, _RUN),
    )


def unpack(document: Outline) -> Run:
    """The run of which the file tells; of an outline without timelines.

    Raises:
        ValueError: it refers to a name, an environment or a metric that it does not have.
    """
    unpacker = _Unpacker(document)
    return Run(tests=tuple(map(unpacker.test, document.tests)), **_same(document, _RUN))


def bounded(profile: records.Profile) -> records.Profile:
    """The profile with at most ``MOST_KERNELS`` kernels one by one, the others by name."""
    kept, more = profile.kernels[:MOST_KERNELS], profile.kernels[MOST_KERNELS:]
    return replace(
        profile,
        kernels=kept,
        more_kernels=(*profile.more_kernels, *grouped(more)),
        variants=tuple(one[:MOST_KERNELS] for one in profile.variants),
        copies=profile.copies[:MOST_KERNELS],
        waits=profile.waits[:MOST_KERNELS],
        collectives=profile.collectives[:MOST_KERNELS],
        other_ranks=tuple(_bounded_rank(one, profile) for one in profile.other_ranks),
    )


def _bounded_rank(profile: records.Profile, first: records.Profile) -> records.Profile:
    """The profile of another rank: without its kernels where its work is that of the first, unless
    reports show its timeline: it breaks a limit."""
    is_shown = profile.timeline is not None
    if not profile.kernels or profile.variants or is_shown or _work(profile) != _work(first):
        return bounded(profile)
    return bounded(replace(profile, kernels=(), copies=(), waits=(), kernels_kept=False))


def _work(profile: records.Profile) -> tuple[object, ...]:
    """What it launches, copies and waits for, times apart."""
    return (
        tuple((one.name, one.operators) for one in profile.kernels),
        tuple((one.name, one.bytes, one.operators) for one in profile.copies),
        tuple((one.call, one.operators) for one in profile.waits),
    )


def grouped(kernels: Sequence[records.Kernel]) -> Iterable[records.KernelGroup]:
    """Kernels by name, in the order of the first of each."""
    return (
        records.KernelGroup(name, len(alike), sum(one.duration_us for one in alike))
        for name, alike in units.grouped(kernels, lambda kernel: kernel.name).items()
    )


# The fields that records and their rows have alike.
_RUN = tuple(name for name in Run.__struct_fields__ if name != "tests")
_PROFILE = (*records.ProfileFacts.__struct_fields__, "copies", "waits")
_TIMELINE = ("start_us", "duration_us", "correlation", "left_out")
_TEST = tuple(name for name in Test.__struct_fields__ if name != "profiles")
_VALUES = records.MetricValues.__struct_fields__
LETTERS: dict[records.TimelineKind, str] = {
    "operator": "o",
    "annotation": "a",
    "call": "c",
    "kernel": "k",
    "memcpy": "m",
    "memset": "s",
}
"""What each kind of event is in a column of letters."""
_KINDS = {letter: kind for kind, letter in LETTERS.items()}


class _Packer:
    """Gathers names and environments while it makes rows."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {"": 0}
        self.environments: list[Environment] = []
        self.timelines: list[TimelineRow] = []
        self.metrics: set[str] = set()

    def test(self, test: Test) -> TestRow:
        profiles = tuple(self._profile(bounded(profile)) for profile in test.profiles)
        return TestRow(profiles=profiles, **_same(test, _TEST))

    def _profile(self, profile: records.Profile) -> ProfileRow:
        kernels = profile.kernels
        return ProfileRow(
            **_same(profile, _PROFILE),
            environment=self._environment(profile.environment),
            metrics=self._values(profile.metrics),
            second_look=self._values(profile.second_look),
            kernels=tuple(map(self._kernel, kernels)),
            spills=tuple((i, k.spills) for i, k in enumerate(kernels) if type(k.spills) is int),
            more_kernels=tuple(
                GroupRow(self._name(one.name), one.count, one.duration_us)
                for one in profile.more_kernels
            ),
            variants=tuple(tuple(map(self._kernel, one)) for one in profile.variants),
            timeline=self._timeline(profile.timeline),
            other_ranks=tuple(map(self._profile, profile.other_ranks)),
        )

    def _timeline(self, timeline: records.Timeline | None) -> int | None:
        if timeline is None:
            return None
        row = TimelineRow(
            kind="".join(LETTERS[kind] for kind in timeline.kind),
            name=tuple(map(self._name, timeline.name)),
            lane=tuple(map(self._name, timeline.lane)),
            **_same(timeline, _TIMELINE),
        )
        self.timelines.append(row)
        return len(self.timelines) - 1

    def _environment(self, environment: Environment) -> int:
        if environment not in self.environments:  # one or two: no hash, since it has a dict
            self.environments.append(environment)
        return self.environments.index(environment)

    def _values(self, metrics: dict[str, records.Metric]) -> dict[str, records.MetricValues]:
        self.metrics.update(metrics)
        return {name: records.MetricValues(**_same(one, _VALUES)) for name, one in metrics.items()}

    def _kernel(self, kernel: records.Kernel) -> KernelRow:
        name, *same, launch, operators, source, _, _ = astuple(kernel)
        name, launch = self._name(name), self._name(launch)
        row = (name, *same, launch, tuple(map(self._name, operators)), self._name(source))
        return KernelRow(*row)

    def _name(self, name: str) -> int:
        return self.names.setdefault(name, len(self.names))


class _Unpacker:
    """Makes records of rows."""

    def __init__(self, document: Outline) -> None:
        self._document = document
        self._chains: dict[tuple[int, ...], tuple[str, ...]] = {}
        self._timelines = document.timelines if isinstance(document, Document) else None

    def test(self, row: TestRow) -> Test:
        try:
            profiles = tuple(map(self._profile, row.profiles))
        except (LookupError, ValueError) as error:
            raise ValueError(f"test {row.id!r}: {error}") from None
        return Test(profiles=profiles, **_same(row, _TEST))

    def _profile(self, row: ProfileRow) -> records.Profile:
        spills = dict(row.spills)
        return records.Profile(
            **_same(row, _PROFILE),
            environment=_at(self._document.environments, row.environment, "environments"),
            metrics=self._metrics(row.metrics),
            second_look=self._metrics(row.second_look),
            kernels=tuple(self._kernel(one, spills.get(i)) for i, one in enumerate(row.kernels)),
            more_kernels=tuple(
                records.KernelGroup(self._name(one.name), one.count, one.duration_us)
                for one in row.more_kernels
            ),
            variants=tuple(tuple(map(self._kernel, one)) for one in row.variants),
            timeline=self._timeline(row.timeline),
            other_ranks=tuple(map(self._other_rank, row.other_ranks)),
        )

    def _other_rank(self, row: ProfileRow) -> records.Profile:
        if row.other_ranks:
            raise ValueError("a profile of another rank has other ranks of its own")
        return self._profile(row)

    def _timeline(self, at: int | None) -> records.Timeline | None:
        if at is None or self._timelines is None:
            return None
        row = _at(self._timelines, at, "timelines")
        columns = (row.kind, row.name, row.lane, row.start_us, row.duration_us, row.correlation)
        if len(set(map(len, columns))) != 1:
            raise ValueError("the columns of its timeline have different lengths")
        if not set(row.kind) <= _KINDS.keys():
            raise ValueError(f"{row.kind[:20]!r}: its timeline has events of unknown kinds")
        return records.Timeline(
            kind=tuple(_KINDS[letter] for letter in row.kind),
            name=tuple(map(self._name, row.name)),
            lane=tuple(map(self._name, row.lane)),
            **_same(row, _TIMELINE),
        )

    def _metrics(self, rows: dict[str, records.MetricValues]) -> dict[str, records.Metric]:
        known = self._document.metrics
        for name in rows:
            if name not in known:
                raise ValueError(f"the metric {name!r} is not among the file's metrics")
            spec = METRICS.get(name)
            if spec is not None and (spec.kind, spec.unit) != (known[name].kind, known[name].unit):
                raise ValueError(f"the metric {name!r} is {spec.kind}, in {spec.unit}, not as said")
        return {
            name: records.Metric(name, known[name].kind, known[name].unit, **_same(row, _VALUES))
            for name, row in rows.items()
        }

    def _kernel(self, row: KernelRow, spills: int | None = None) -> records.Kernel:
        name, *same, launch, operators, source = astuple(row)
        chain = self._chain(operators)
        kernel = (self._name(name), *same, self._name(launch), chain, self._name(source))
        return records.Kernel(*kernel, spills=spills)  # type: ignore[misc]

    def _chain(self, row: tuple[int, ...]) -> tuple[str, ...]:
        """The operators of a kernel, which it shares with others."""
        if row not in self._chains:
            self._chains[row] = tuple(map(self._name, row))
        return self._chains[row]

    def _name(self, at: int) -> str:
        return _at(self._document.names, at, "names")


def _same(record: object, names: Sequence[str]) -> dict[str, Any]:
    return {name: getattr(record, name) for name in names}


def _at(table: Sequence[T], at: int, what: str) -> T:
    if not 0 <= at < len(table):
        raise ValueError(f"{at} is not a place in the file's {what}, which has {len(table)}")
    return table[at]
