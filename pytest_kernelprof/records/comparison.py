"""How a profile compares with its baseline, whatever that is: deltas alone, never the profiles.

*Current* is what was just measured; *baseline* is what it is compared with: a kernel snapshot, a
git revision, another environment, an earlier run, another trace.

Kernel snapshots as a file keeps them are here, too: their counts are compared as any other.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple, get_args

import msgspec

from pytest_kernelprof.kernel_names.short_names import short_name
from pytest_kernelprof.records.metrics import METRICS, MetricSpec
from pytest_kernelprof.records.recording import Conditions

Source = Literal["snapshot", "revision", "environment", "run", "trace"]
"""What a baseline is."""
IN_TURN: tuple[Source, ...] = ("revision", "environment")
"""Baselines that run each test in turn with the run; a run has at most one of them."""
LIMIT_OF: dict[Source, str] = {
    "snapshot": "snapshot",
    **dict.fromkeys(IN_TURN, "against"),
    "run": "earlier run",
}
"""The name that verdicts by a baseline have."""
BASELINE_WORDS: dict[Source, str] = {
    "snapshot": "the snapshot",
    "revision": "the revision",
    "environment": "the other environment",
    "run": "the earlier run",
}
"""What a baseline is called in a sentence."""

Change = Literal["worse", "undecided", "not compared", "better", "changed", "same"]
"""How something compares. "worse": more of an exact metric than is allowed, or slower; perhaps so
("undecided"); it could not be compared; "better": less, or faster; other kernels at equal counts
("changed"), or counts that a snapshot accepts; the "same"."""

_AddedOrRemoved = Literal["added", "removed", "renamed", "replaced"]
_Retimed = Literal["slower", "faster", "reconfigured"]
KernelChangeKind = Literal[_AddedOrRemoved, _Retimed, "moved", "operator"]
"""What became of kernels. "renamed": another variant of its family runs in its place (a matrix
product with another tile), or another toolchain names it otherwise; "replaced": something else
does; "reconfigured": grid, block, registers, shared memory or spills are others, whatever the time;
"moved": it stands at another place; "operator": another operator launches it."""

ADDED_OR_REMOVED: tuple[KernelChangeKind, ...] = get_args(_AddedOrRemoved)
RETIMED: tuple[KernelChangeKind, ...] = get_args(_Retimed)

# What is taken in turn: how many times as much the current takes as the baseline, and how sure.

Side = Literal["current", "baseline"]
"""Of a pair of processes: today's code as it runs here, and what is compared with."""
SIDES: tuple[Side, ...] = get_args(Side)
PairedChange = Literal["worse", "better", "same", "undecided", "not compared"]


class Sampled(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """From who holds: what the rounds of a session took.

    Attributes:
        us: the kernels of each round, together, in microseconds.
        kernels_us: of each kernel in launch order the median over the rounds.
        problem: why these are no ground for a verdict, in words; empty where they are.
    """

    us: tuple[float, ...] = ()
    kernels_us: tuple[float, ...] = ()
    problem: str = ""


class TimedPair(msgspec.Struct, frozen=True):
    """What one pair of processes says.

    Attributes:
        first: whose CUDA context was made first; None where both came up at once.
        ratio: how many times as long the current code takes.
        turns: how many turns each took.
        baseline_us, current_us: the medians of both.
    """

    first: Side | None
    ratio: float
    turns: int
    baseline_us: float
    current_us: float


class Paired(msgspec.Struct, frozen=True, omit_defaults=True):
    """How the values of two sides compare that were taken in turn.

    Attributes:
        change: what follows; None where that is for assertions to say, or for more pairs.
        why: of "undecided" and "not compared" the reason, in words.
        ratio: how many times as much the current takes as the baseline, by all pairs.
        low, high: its interval at 99 %, of rounds in one process; None where there is none.
        block: how many pairs of rounds count as one, neighbours being alike.
        pairs: what each pair of processes says.
        agreeing: how many of them are beyond the margin on the side of the change.
        margin: the fraction that it was judged by.
        baseline_us, current_us: the medians over all pairs of processes.
        baseline_latency_us, current_latency_us: shown where both were measured, never judged.
        disturbed: what the GPU was like, where no verdict can stand on that.
        took_s: how long that took, in seconds.
    """

    change: PairedChange | None = None
    why: str = ""
    ratio: float = 1.0
    low: float | None = None
    high: float | None = None
    block: int = 1
    pairs: tuple[TimedPair, ...] = ()
    agreeing: int = 0
    margin: float = 0.0
    baseline_us: float = 0.0
    current_us: float = 0.0
    baseline_latency_us: float = 0.0
    current_latency_us: float = 0.0
    disturbed: Conditions | None = None
    took_s: float = 0.0

    @property
    def speedup(self) -> float:
        """How many times as fast the current is: 2.0 takes half."""
        return 1 / self.ratio

    @property
    def speedup_interval(self) -> tuple[float, float] | None:
        """The interval of the speedup; None where there is none."""
        return None if self.low is None or self.high is None else (1 / self.high, 1 / self.low)


class KernelSide(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A kernel as one side of a diff has it.

    Attributes:
        name: full name, demangled; of a snapshot the short one that it keeps.
        operators: operators around the launch, from the inside out.
        source: ``file:line`` of the user's code, empty where unknown.
        duration_us: microseconds on the device, over all repeats; None where not known.
        grid, block, registers, shared_memory, spills: as of ``Kernel``; None where not known.
    """

    name: str
    operators: tuple[str, ...] = ()
    source: str = ""
    duration_us: float | None = None
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    registers: int | None = None
    shared_memory: int | None = None
    spills: int | str | None = None

    @property
    def short_name(self) -> str:
        """What people call it; see ``names``."""
        return short_name(self.name)

    @property
    def line(self) -> str:
        """As a snapshot has it: ``name | operator``."""
        return " | ".join((self.name, *self.operators[:1]))


class KernelChange(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Kernels of one kind that differ in one way.

    Attributes:
        kind: one of ``KernelChangeKind``.
        baseline, current: the first of them on each side; None on a side that has none.
        times: how many there are.
        hunk: changes of one number stand together.
        at: where in the current profile the first hunk of this number begins, from 1; 0 where
            nothing of it is there, and without an order.
        positions: where each of the current kernels stands, from 1; empty where they are very many.
        before: where each of the kernels that moved stood in the baseline, from 1.
        lines: where equal kernels stand next to each other and any of them may be the one that was
            added or removed, the lines of all of them, in the file of the kernel; else empty.
    """

    kind: KernelChangeKind
    baseline: KernelSide | None = None
    current: KernelSide | None = None
    times: int = 1
    hunk: int = 0
    at: int = 0
    positions: tuple[int, ...] = ()
    before: tuple[int, ...] = ()
    lines: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.times < 1 or (self.baseline or self.current) is None:
            raise ValueError("a change needs a kernel on one side, once at least")

    @property
    def side(self) -> KernelSide:
        """The current kernel; of one that is gone that of the baseline."""
        found = self.current or self.baseline
        assert found is not None  # as made
        return found

    def us(self, side: KernelSide | None) -> float:
        """What one of them takes on a side, in microseconds; 0 where that is not known."""
        known = side.duration_us if side is not None else None
        return (known or 0.0) / self.times


class KernelDiff(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the kernels of two profiles differ.

    Attributes:
        baseline_kernels, current_kernels: how many there are.
        baseline_us, current_us: what they take in all; None where times are no comparison.
        changes: kernels that came or went in launch order, then those that take another time, the
            largest difference first, then those that moved or have another operator.
        left_out: how many more changes there are.
        ordered: whether both sides have one order of kernels; else they were compared as sets that
            count.
        what: what was compared: operators where both ran on the CPU.
        baseline_steps, current_steps: of traces with the profiler's own steps, how many there are;
            the kernels are those of one of them, the most frequent one.
    """

    baseline_kernels: int
    current_kernels: int
    baseline_us: float | None = None
    current_us: float | None = None
    changes: tuple[KernelChange, ...] = ()
    left_out: int = 0
    ordered: bool = True
    what: Literal["kernels", "operators"] = "kernels"
    baseline_steps: int = 0
    current_steps: int = 0

    def of(self, *kinds: KernelChangeKind) -> tuple[KernelChange, ...]:
        """The changes of some kinds."""
        return tuple(one for one in self.changes if one.kind in kinds)

    @property
    def added_or_removed(self) -> tuple[KernelChange, ...]:
        """Kernels that one side has and the other has not, in launch order."""
        return self.of(*ADDED_OR_REMOVED)

    @property
    def new_positions(self) -> frozenset[int] | None:
        """The kernels that the current side alone has, by their positions from 0, of equal ones
        that stand next to each other any of them; None where not all are known."""
        come = [one for one in self.added_or_removed if one.current is not None]
        if self.left_out or any(len(one.positions) != one.times for one in come):
            return None
        return frozenset(at - 1 for one in come for at in one.positions)

    @property
    def retimed(self) -> tuple[KernelChange, ...]:
        """Kernels that both sides have, and that take another time or are launched otherwise."""
        return self.of(*RETIMED)


_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_MOST_KERNELS = 200


class Fusion(NamedTuple):
    """One kernel that does the work of several of the baseline, or the other way round.

    Attributes:
        gone, come: the changes, one of the sides with a single one.
    """

    gone: tuple[KernelChange, ...]
    come: tuple[KernelChange, ...]

    @property
    def words(self) -> str:
        """For example ``triton_poi_fused [gelu, mul] is now gelu + mul``: several kernels with one
        operator each are named by the operators."""
        return " is now ".join(
            one[0].side.short_name
            if len(one) == 1
            else " + ".join(", ".join(sorted(_operators(part).elements())) for part in one)
            for one in (self.gone, self.come)
        )

    @property
    def us(self) -> tuple[float, float]:
        """The times of both sides in microseconds, without repeats."""
        gone = sum(one.us(one.baseline) for one in self.gone)
        return gone, sum(one.us(one.current) for one in self.come)


def fusions_of(diff: KernelDiff) -> tuple[Fusion, ...]:
    """Find fusions by the operators in the names of kernels, wherever they are launched."""
    gone, come = diff.of("removed"), diff.of("added")
    if len(gone) + len(come) > _MOST_KERNELS:
        return ()
    taken: set[int] = set()  # changes by identity: kernels that are alike may be one object
    found = [Fusion((one,), parts) for one in gone if (parts := _parts(one, come, taken))]
    found += [Fusion(parts, (one,)) for one in come if (parts := _parts(one, gone, taken))]
    return tuple(found)


def _parts(
    whole: KernelChange, others: Sequence[KernelChange], taken: set[int]
) -> tuple[KernelChange, ...]:
    """Find the others that together do what one does, each as often; none if there are none.

    Args:
        taken: those that are parts already; these are added.
    """
    left, parts = _operators(whole), []
    for change in others if left.total() > 1 and id(whole) not in taken else ():
        does = _operators(change)
        if change.times == whole.times and id(change) not in taken and does and does <= left:
            parts.append(change)
            left -= does
    if left or len(parts) < 2:
        return ()
    taken.update(map(id, (whole, *parts)))
    return tuple(parts)


def _operators(change: KernelChange) -> Counter[str]:
    """The operators in a kernel's short name: of ``triton_poi_fused [gelu, mul]`` two."""
    brackets = _BRACKETS.search(change.side.short_name)
    return Counter(re.split(r"\s*,\s*", brackets[1])) if brackets else Counter()


class MetricDelta(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A metric whose value is another.

    Attributes:
        name: as in the table of metrics, which has its unit and kind.
        baselines: its value in each baseline, the newest last; None where one has none that
            compares.
        current: its value now; None where it could not be had.
        interval: bounds at 99 % of the current value.
        change: what follows; None where nothing was judged, as between two traces.
        judged: whether it fails something if it is worse.
        why: why there is no value, or why nothing follows, in words.
    """

    name: str
    baselines: tuple[float | None, ...]
    current: float | None = None
    interval: tuple[float, float] | None = None
    change: Change | None = None
    judged: bool = False
    why: str = ""

    def __post_init__(self) -> None:
        if self.name not in METRICS:
            raise ValueError(f"{self.name!r} is not a metric")

    @property
    def spec(self) -> MetricSpec:
        """What the metric is."""
        return METRICS[self.name]

    @property
    def baseline(self) -> float | None:
        """The newest value that there is."""
        return next((one for one in reversed(self.baselines) if one is not None), None)

    @property
    def share(self) -> float | None:
        """By which fraction it is more; None where one side has none, or the baseline is 0."""
        before, now = self.baseline, self.current
        return now / before - 1 if before and now is not None else None


class ProfileComparison(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a profile compares with its baseline.

    Attributes:
        source: what the baseline is. test: the node id of the profile's test. label: which of the
            test's profiles it is. rank: which rank it is of; None of a call on one.
        change: how it compares. reason: of "undecided" and "not compared" why, in words.
        kernels: how the kernels differ; None where they were not compared.
        metrics: those that differ, in the order of the table of metrics.
        paired: how the times compare that two processes took in turn.
        differences: what of device and software is another, in words.
        untimed: why times were not compared; empty where they were.
        lost: metrics that are judged, that the baseline has and the current profile has not.
        accepted: metrics of which there are more, and which the test's snapshot allows.
        incomplete: what either profile lacks, in words.
        notes: what else there is to know, in words.
    """

    source: Source
    test: str = ""
    label: str = ""
    rank: int | None = None
    change: Change = "same"
    reason: str = ""
    kernels: KernelDiff | None = None
    metrics: tuple[MetricDelta, ...] = ()
    paired: Paired | None = None
    differences: tuple[str, ...] = ()
    untimed: str = ""
    lost: tuple[str, ...] = ()
    accepted: tuple[str, ...] = ()
    incomplete: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def worse(self) -> tuple[MetricDelta, ...]:
        """The metrics that are judged, and worse."""
        return tuple(one for one in self.metrics if one.judged and one.change == "worse")

    @property
    def fails(self) -> bool:
        """Whether it is worse in something that is judged."""
        slower = self.paired is not None and self.paired.change == "worse"
        return self.change == "worse" and (slower or bool(self.worse))

    @property
    def counted(self) -> str:
        """What is counted: kernels, or operators of the CPU."""
        return self.kernels.what if self.kernels is not None else "kernels"

    @property
    def changes(self) -> tuple[KernelChange, ...]:
        """The kernels that came or went."""
        return self.kernels.added_or_removed if self.kernels is not None else ()


class RunComparison(msgspec.Struct, frozen=True, kw_only=True):
    """A run and one of its baselines; how each profile compares stands with the profile, in a
    verdict.

    Attributes:
        source: what the baseline is. name: how it is told, for example ``main (abc1234)``,
            ``old/bin/python (triton 3.4.0 -> 3.6.0)``, or the path of an earlier run.
        python: of the environment in which a revision ran, as it was given; empty for this one.
        began: when that was, in UTC; empty of others.
        notes: what of a revision's files is not as in the user's folder, in words.
        gone: what the baseline alone has: profiles of an earlier run, entries of snapshots (as
            ``DEVICE: FILE::KEY``). fresh: profiles that no earlier run has.
        nowhere: metrics that were asked for and that no profile has.
        unfinished: why tests may be missing on either side.
        profiles: those that no verdict has: tests without a profile that were to be compared; of
            ``kernelprof compare`` all.
        schema: the version.
    """

    source: Source
    name: str = ""
    python: str = ""
    began: str = ""
    notes: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    fresh: tuple[str, ...] = ()
    nowhere: tuple[str, ...] = ()
    unfinished: tuple[str, ...] = ()
    profiles: tuple[ProfileComparison, ...] = ()
    schema: int = 1


class TracesComparison(msgspec.Struct, frozen=True):
    """Two recordings process by process, in the order of their files.

    Attributes:
        processes: those that both sides have.
        baseline_processes, current_processes: how many each has.
        schema: the version.
    """

    processes: tuple[ProfileComparison, ...]
    baseline_processes: int
    current_processes: int
    schema: int = 1


# Kernel snapshots: what a test launches, as a file keeps it, and how a profile differs.

SNAPSHOT_FORMAT: Literal["pytest-kernelprof snapshot"] = "pytest-kernelprof snapshot"

KEPT_COUNTS = (
    *("launches", "syncs", "memcpys_h2d", "memcpys_d2h", "memcpys_d2d", "memcpys_p2p"),
    *("memcpys_pageable", "memcpy_bytes_h2d", "memcpy_bytes_d2h", "memcpy_bytes_d2d"),
    *("memcpy_bytes_p2p", "would_wait"),
)
"""The exact metrics that are kept beside the kernels. Not memsets, of which healthy traces miss
some; not memory, which depends on what ran before; not compilations, which are cold code."""


_Need = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]


class Resources(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a kernel needs, as of ``Kernel``; None where not known. It is no limit: another value is
    "reconfigured"."""

    registers: _Need
    shared_memory: _Need | None = 0
    spills: _Need | None = None


class KeptProfile(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What one profile of a test launches. A misspelt field would allow nothing: it is refused.

    Attributes:
        label: which of the test's profiles it is; of several with one label, the order tells.
        kernels: in launch order, each with its innermost operator (``name | operator``), and
            ``x12`` for a run of one.
        ordered: whether the order says anything; else it is that of the alphabet.
        counts: exact metrics by name, those of ``KEPT_COUNTS`` that are not zero; None where it
            is not available.
        resources: what kernels need, by their line without its number; of several alike the most.
            Only where that is known of all of them, so never on the CPU.
        rank: whose it is, where a rank launches something else than the first one; those that
            launch the same have none.
    """

    kernels: tuple[str, ...]
    label: str = ""
    ordered: bool = True
    counts: dict[str, int | None] = {}
    resources: dict[str, Resources] = {}
    rank: int | None = None


class KeptTest(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a test launches.

    Attributes:
        profiles: in the order in which they were taken.
        made_with: the device and the versions of what it ran on; in a file, none where that is
            what most tests of the file were made with.
    """

    profiles: tuple[KeptProfile, ...]
    made_with: dict[str, str] = {}


TestState = Literal["worse", "not compared", "missing", "changed", "same"]
"""How a test compares with its snapshots; "not compared" where there is more, and a failure would
not be sure."""
TEST_STATES: dict[TestState, str] = {
    "worse": "exceeded",
    "not compared": "not judged",
    "missing": "missing",
    "changed": "outdated",
    "same": "unchanged",
}
"""The words for each, worst first."""


class SnapshotReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a test has to say of its snapshots, for the process that writes and tells.

    Attributes:
        file: the test's, as seen from the root folder where it is below it.
        device: the folder of the snapshots' device. key: of the entry.
        state: how it fared; None where there was nothing to compare. why: of "not compared".
        entry: what would be kept of it, where that is asked for.
        refused: why nothing is to be kept of it.
        accepts: whether the test failed by its snapshot alone, or by having none, and an update
            accepts what it launched.
        elsewhere: the devices, by their folders, that have snapshots of this file where this
            device has none.
        changes: kernels that differ in a test that its snapshot does not fail, the first ten.
    """

    file: str
    device: str
    key: str
    state: TestState | None = None
    why: str = ""
    entry: KeptTest | None = None
    refused: str = ""
    accepts: bool = False
    elsewhere: tuple[str, ...] = ()
    changes: tuple[KernelChange, ...] = ()


class Edited(msgspec.Struct, frozen=True):
    """What an update has made of a file.

    Attributes:
        written: entries that are new or others. same: those that were so before. removed: those
            that are gone.
        looser: of which key and label an entry allows more than before.
    """

    written: int
    same: int
    removed: int
    looser: tuple[tuple[str, str, tuple[MetricDelta, ...]], ...]
