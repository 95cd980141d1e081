"""What one measurement found: ``Profile > Kernel, Metric, Verdict, Integrity, Environment``.

Also copies, waits, collectives, and one round event by event; and how limits fared.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any, Literal, get_args

import msgspec

from pytest_kernelprof.kernel_names.short_names import short_name
from pytest_kernelprof.records.comparison import IN_TURN, ProfileComparison, Source
from pytest_kernelprof.records.metrics import Kind, Unit
from pytest_kernelprof.records.recording import Conditions, Environment, Integrity

Status = Literal["failed", "incomplete", "undecided", "passed", "expected failure", "not judged"]
"""How a limit fared, or a comparison, worst first: "failed"; "incomplete", a number could not be
had; "undecided", by an interval that holds the limit; "passed"; an "expected failure"; "not
judged", since it says nothing of this device or of this baseline."""
STATUSES: tuple[Status, ...] = get_args(Status)


class Place(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of a test file. Lines count from 1."""

    file: str
    line: int


class Cause(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a limit or a comparison is not kept, in one line.

    Attributes:
        text: for example ``elementwise [copy] x2, from aten::copy_ in MmBackward0``.
        place: the line of the user's code to look at, where known.
        sign: "+" of a kernel that only the current profile has, "-" of one of the baseline.
        lines: where it is about several, all of them, as ``file:line``.
    """

    text: str
    place: Place | None = None
    sign: Literal["", "+", "-"] = ""
    lines: tuple[str, ...] = ()


class Hit(msgspec.Struct, frozen=True):
    """A kernel that a pattern of ``forbid_kernels`` is found in; ``position`` counts from 1."""

    position: int
    kernel: str
    pattern: str


class Mismatch(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where the kernels first differ from what ``expect_kernels`` says.

    Attributes:
        kernels: how many kernels there are.
        position: the first unexpected kernel, from 1; 0 where kernels are missing at the end.
        kernel, operators: that kernel's short name and chain of operators.
        wanted: the patterns that would have been right there; with position 0 those left over.
    """

    kernels: int
    position: int = 0
    kernel: str = ""
    operators: tuple[str, ...] = ()
    wanted: tuple[str, ...] = ()


PARTS = {"kernels": "kernels", "syncs": "waits", "memcpys": "copies", "memcpy": "copies"}
"""What ``allow`` takes out of counts: a field of the profile, by the first word of the metric."""

Reason = Literal["", "interval", "alike", "few", "second look", "disturbed", "beyond"]


class Verdict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How one limit fared: the facts.

    Attributes:
        limit: the limit's name, for example ``max_kernels``.
        qualifier: what tells it from others of its name, as it was written: ``match``,
            ``direction``, forbidden patterns, the asked speedup; empty without.
        outcome: one of ``STATUSES``.
        why: of "incomplete" and "not judged", the cause in words.
        reason: of "undecided": its "interval" holds the limit, neighbouring rounds are too "alike"
            or too "few" for an interval, a "second look" does not confirm it, the GPU was
            "disturbed". Of "failed": "beyond" what other work on the GPU can explain.
        metric, unit: what was judged ("times" is a ratio, "registers" are spilled ones of AMD);
            empty for limits on kernel names.
        device: "cuda" or "cpu".
        allowed: the limit in the metric's unit; None for limits on kernel names.
        share: the limit as a fraction of ``share_of``, where it was written so.
        share_of: what ``share`` is of: the value of the metric that ``SHARE_OF`` names.
        measured: the value that was judged; of limits on kernel names how many kernels there are.
            low, high: its interval at 99 %, if it has one.
        rounds: how many rounds it was judged by. block: how many count as one.
        values: the rounds of a count that differ; empty where they agree.
        second_look: what a second, separate measurement gave.
        fastest: of "beyond", the fastest round, or the ratio of the fastest two.
        note: what a reader of the value should know, in words; of a count "incomplete" where
            events were lost.
        patterns: of limits on kernel names; None stands for ``...``.
        hits, mismatch: what is wrong with the names; of limits on the worst kernel, that one.
        candidate: of a comparison, the callable that was judged.
        place: the line of the test that made the call, or the test's own.
        comparison: how the profile compares with its baseline; None of a limit that a test has.
        cause: of a limit that is "failed", which kernels, copies or waits it is about: of the whole
            profile, also where a run document keeps only some of them. None of other verdicts.
        ranks: of a call on several ranks, those on which it fared so, the one that was judged
            first; empty where there is one rank.
        allow: the files or source lines that the limit does not count.
        apart: what was not counted, in words: ``2 more allowed: logging (logger.py:12)``.
        target: what the kernels were compiled for that did not run, as "sm_90"; empty of others.
    """

    limit: str
    outcome: Status
    qualifier: str = ""
    why: str = ""
    reason: Reason = ""
    metric: str = ""
    unit: Literal["", "count", "us", "bytes", "times", "registers", "FLOP/s", "B/s"] = ""
    device: Literal["cuda", "cpu"] = "cuda"
    allowed: float | None = None
    share: float | None = None
    share_of: float = 0.0
    measured: float | None = None
    low: float | None = None
    high: float | None = None
    rounds: int = 0
    block: int = 1
    values: tuple[float, ...] = ()
    second_look: float | None = None
    fastest: float | None = None
    note: str = ""
    patterns: tuple[str | None, ...] = ()
    hits: tuple[Hit, ...] = ()
    mismatch: Mismatch | None = None
    candidate: str = ""
    place: Place | None = None
    comparison: ProfileComparison | None = None
    cause: Cause | None = None
    ranks: tuple[int, ...] = ()
    allow: tuple[str, ...] = ()
    apart: str = ""
    target: str = ""

    def leaves_out(self, one: Kernel | Copy | Wait) -> str:
        """Why a limit on a count does not count this: the block of ``allow`` that it is in, or its
        source line, which ends in one of ``allow``; else empty. Launches all count."""
        if self.metric.split("_")[0] not in PARTS:
            return ""
        line = "/" + one.source.replace("\\", "/")
        texts = (line, line.rpartition(":")[0])
        fits = any(fnmatchcase(text, f"*/{place}") for text in texts for place in self.allow)
        return one.allowed or (line.rpartition("/")[2] if fits else "")

    def counted(self, events: Iterable[Any]) -> dict[int, Any]:
        """By place, from 0, the kernels, waits or copies that the limit counts."""
        way, rows = self.qualifier, enumerate(events)
        ours = (one for one in rows if not way or getattr(one[1], "direction", way) == way)
        return {at: one for at, one in ours if not self.leaves_out(one)}

    @property
    def is_floor(self) -> bool:
        """Whether more is better."""
        return self.limit.startswith("min_")

    @property
    def of_limit(self) -> bool:
        """Whether it is of a limit that a test has, not of what the profile was before."""
        return self.comparison is None

    @property
    def is_uncompared(self) -> bool:
        """Whether there was a baseline, and the profile could not be compared with it."""
        return self.comparison is not None and self.comparison.change == "not compared"

    @property
    def of_snapshot(self) -> bool:
        """Whether it is of a kernel snapshot."""
        return self.comparison is not None and self.comparison.source == "snapshot"

    @property
    def source(self) -> Source | None:
        """The kind of its baseline; None of a limit."""
        return self.comparison.source if self.comparison is not None else None

    @property
    def in_turn(self) -> Source | None:
        """The same, if that baseline ran in turn with the run."""
        return self.source if self.source in IN_TURN else None


class Kernel(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One kernel of the device; on the CPU one operator that computes.

    Attributes:
        name: full name, demangled.
        duration_us: microseconds on the device (on the CPU: of the operator).
        grid, block: launch dimensions; zeros on the CPU, and where not known.
        registers: registers a thread; 0 where not known. shared_memory: bytes a block; None where
            the trace does not have it.
        device, stream: indices as the profiler gives them.
        launch: the host call that launched it; "unknown" where the profiler records none.
        operators: operators around the launch, from the inside out.
        source: ``file:line`` of the user's code, empty where unknown.
        allowed: of a block of ``allow``, why: ``logging (logger.py:12)``; not in run documents.
        spills: bytes that each thread spills to local memory, stores and loads together (on AMD,
            registers), or why they are not known; None unless a ``max_spills`` limit asked.
    """

    name: str
    duration_us: float
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    registers: int
    shared_memory: int | None
    device: int
    stream: int
    launch: str
    operators: tuple[str, ...]
    source: str = ""
    allowed: str = ""
    spills: int | str | None = None

    def need(self, metric: str) -> int | None:
        """What the kernel has of one of ``OF_WORST_KERNEL``; None where that is not known."""
        known, least = getattr(self, metric), int(metric == "registers")  # each kernel has some
        return known if isinstance(known, int) and known >= least else None

    @property
    def short_name(self) -> str:
        """What people call it, for example "vectorized_elementwise [gelu]"; see ``names``."""
        return short_name(self.name)


class Copy(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One memory copy.

    Attributes:
        name: for example "Memcpy DtoH (Device -> Pageable)".
        direction: "h2d", "d2h", "d2d" or "p2p"; "?" where its name does not tell.
        bytes: size; None where the trace does not have it. duration_us: microseconds on the device.
        operators, source, allowed: as for kernels.
    """

    name: str
    direction: str
    bytes: int | None
    duration_us: float
    operators: tuple[str, ...]
    source: str = ""
    allowed: str = ""


class Wait(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One wait of the host for the device: the waiting call, its operators, its source line, and
    why it is allowed if it is."""

    call: str
    operators: tuple[str, ...]
    source: str = ""
    allowed: str = ""


class KernelGroup(msgspec.Struct, frozen=True, gc=False):
    """Kernels of one name: how many, and their microseconds together."""

    name: str
    count: int
    duration_us: float


TimelineKind = Literal["operator", "annotation", "call", "kernel", "memcpy", "memset"]


class Timeline(msgspec.Struct, frozen=True, omit_defaults=True):
    """One round event by event, in columns of one length, by start.

    Attributes:
        kind: what each event is.
        name: its name. lane: where it ran: "thread 4711", "device 0 stream 7".
        start_us: microseconds since the first event. duration_us: microseconds.
        correlation: of a call and what it caused on the device the same number; 0 without one.
        left_out: how many shorter events are not in it.
    """

    kind: tuple[TimelineKind, ...] = ()
    name: tuple[str, ...] = ()
    lane: tuple[str, ...] = ()
    start_us: tuple[float, ...] = ()
    duration_us: tuple[float, ...] = ()
    correlation: tuple[int, ...] = ()
    left_out: int = 0


class OperatorNode(msgspec.Struct, frozen=True):
    """Operators of one name under the same operators, together.

    Attributes:
        name: theirs; empty of the whole round.
        calls: how many there are.
        kernels: how many kernels they launched, and those below them; on the CPU how many
            operators that compute there are among them.
        us: what these take, in microseconds.
        below: what they called, in the order of the first call.
    """

    name: str
    calls: int
    kernels: int
    us: float
    below: tuple[OperatorNode, ...] = ()


class Collective(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """One communication kernel of a rank's call: what finds its fellows on the other ranks.

    Attributes:
        kernel: its place among the kernels of the profile, from 0.
        operation: what it does, as the process group calls it ("allreduce", "send"), else as the
            kernel's name says; empty where neither does.
        group: which process group it is of; empty where the trace does not say.
        size: how many ranks it has; 0 where the trace does not say.
        ranks: those ranks; of a send or a receive the other one; empty where the trace does not
            say.
        number: its number in its group, the same on all ranks; None where the trace has none.
        bytes: the larger of what this rank gives and what it gets; None where the trace has
            neither.
        rounds_us: what it took in each round, in microseconds; where rounds differ in their
            communication, in the round that the kernels are of alone.
        transfer_us: the least that it took on any of its ranks, the median of the rounds; what it
            took longer is waiting. None where the ranks were not gathered, or do not match.
        last: the rank on which it took least: the one that came last, for which the others waited.
    """

    kernel: int
    operation: str = ""
    group: str = ""
    size: int = 0
    ranks: tuple[int, ...] = ()
    number: int | None = None
    bytes: int | None = None
    rounds_us: tuple[float, ...] = ()
    transfer_us: float | None = None
    last: int | None = None

    @property
    def us(self) -> float:
        """What it took: the median of the rounds, in microseconds."""
        return statistics.median(self.rounds_us) if self.rounds_us else 0.0

    @property
    def waited_us(self) -> float:
        """What of that was waiting for others; 0 where that is not known."""
        return 0.0 if self.transfer_us is None else max(0.0, self.us - self.transfer_us)


class MetricValues(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """The values of one metric of one profile.

    Attributes:
        rounds: the value of each round.
        value: the largest round of a count, the median of a time; None if it was not measured.
        low, high: bounds of the value at 99 %; None where there are too few rounds. Of a rate whose
            work is known in part there is ``low`` and no ``value``: it is at least that.
        why: why there is no value, or what its reader should know; empty otherwise.
        block: rounds that count as one, by their median, since neighbours are alike.
        allowed: how much of each round lies in blocks of ``allow``; empty where nothing does.
    """

    rounds: tuple[float, ...] = ()
    value: float | None = None
    low: float | None = None
    high: float | None = None
    why: str = ""
    block: int = 1
    allowed: tuple[float, ...] = ()


class Metric(MetricValues, frozen=True, gc=False, omit_defaults=True):
    """One metric of a profile, by itself.

    Attributes:
        name: as in the reference, for example ``cuda_time``.
        kind, unit: as in ``MetricSpec``.
    """

    name: str
    kind: Kind
    unit: Unit

    @property
    def allowed_rounds(self) -> tuple[float, ...]:
        """How much of each round is allowed, zeros among them."""
        return self.allowed or (0.0,) * len(self.rounds)

    @property
    def stable(self) -> bool:
        """Whether all rounds of a count agree."""
        return len(set(self.rounds)) <= 1


class Bound(msgspec.Struct, frozen=True):
    """What limits a call: "overhead", "sync", "mixed", "memory", "compute", "gpu" (one of the two
    before, or neither: not known which) or "unknown"; with the reason in words."""

    verdict: str
    reason: str


QUEUED_US = 10.0
"""What a device takes at most to begin work that is queued: 0.3 to 3 us were seen, 5 us across
streams."""


class RoundGaps(msgspec.Struct, frozen=True, gc=False):
    """The gaps of one round in microseconds; their sum is the round's ``gpu_idle``.

    Attributes:
        host_wait: the call that launched the next activity had not returned when the gap began:
            the device waited for the host.
        kernel_wait: the next activity was launched before and began within 10 us: what the device
            takes between two activities that are queued.
        other: launched before, but begun later (an event of another device, a host function), or
            of unknown launch.
    """

    host_wait: float
    kernel_wait: float
    other: float


class Gaps(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why the device was idle between the activities of each round; none, and ``why``, where that
    cannot be had. The profiler stretches gaps, since it slows the host: shown, never limited."""

    rounds: tuple[RoundGaps, ...] = ()
    why: str = ""


class HostShares(msgspec.Struct, frozen=True):
    """Where the host's time went inside the profiled rounds, as fractions that sum to 1.

    The profiler slows operators and calls by different factors: shown, never a limit.

    Attributes:
        dispatch: Python and the operators' own work, allocations included.
        launch_calls: calls that launch kernels.
        waiting: calls in which the host waits for the device.
    """

    dispatch: float
    launch_calls: float
    waiting: float


class ProfileFacts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a profile says beside its values and its kernels.

    Attributes:
        label: which of a test's profiles this is (a region's name), empty for the only one.
        rounds: how many calls were profiled in the session that the kernels are of.
        one_shot: a block as it stood, once.
        integrity: whether it is complete, and what is missing if not.
        bound, gaps, host_shares, conditions: see there.
        in_place: the tensors that the call changed, of its arguments and of what it holds.
        cupti_ratio: what an attached CUPTI costs the host's launches, as a ratio; None where no
            host times were taken.
        verdicts: how its limits fared, in their order.
        place: the line of the test that made the call.
        trace: the file of its Chrome trace, where one was written.
        kernels_kept: whether its kernels, copies and waits are in the record: of a test with very
            many only those of its newest profiles are; in a file not those of another rank that
            does the same as the first.
        rank: its process's number in ``torch.distributed``; None where it is not of several.
        collectives: the communication kernels of one call, in launch order.
        loaded: whether it was read from a trace for limits to judge, and not measured here.
        compiled: whether its kernels are those of Triton alone, compiled for the environment's
            capability and not run; ``variants`` then are configurations of an autotuner.
        ended: of such a profile, why the code ended early, in words: later kernels are not seen.
    """

    label: str = ""
    rounds: int = 0
    one_shot: bool = False
    integrity: Integrity = Integrity()
    bound: Bound = Bound("unknown", "")
    gaps: Gaps = Gaps()
    host_shares: HostShares | None = None
    conditions: Conditions = Conditions()
    in_place: tuple[str, ...] = ()
    cupti_ratio: float | None = None
    verdicts: tuple[Verdict, ...] = ()
    place: Place | None = None
    trace: str = ""
    kernels_kept: bool = True
    rank: int | None = None
    collectives: tuple[Collective, ...] = ()
    loaded: bool = False
    compiled: bool = False
    ended: str = ""


class Profile(ProfileFacts, frozen=True, kw_only=True, omit_defaults=True):
    """One measurement of a callable or a block.

    Attributes:
        environment: where it ran.
        metrics: all metrics by name.
        second_look: the host's times by a second, separate measurement; empty without one.
        kernels: of one call in launch order: of the round that had most of them.
        more_kernels: of a run document, those beyond the kernels that it has one by one.
        variants: other sequences of kernels among the rounds, by name and operators; nearly always
            there are none.
        copies, waits: of one call, in order. On the CPU there are no copies, and the waits are
            those that ``would_wait`` counts.
        timeline: of the round that the kernels are of, where somebody keeps the whole run.
        other_ranks: the same call on the other ranks, where it ran on several: complete where all
            are.
    """

    environment: Environment
    metrics: dict[str, Metric]
    second_look: dict[str, Metric] = {}
    kernels: tuple[Kernel, ...] = ()
    more_kernels: tuple[KernelGroup, ...] = ()
    variants: tuple[tuple[Kernel, ...], ...] = ()
    copies: tuple[Copy, ...] = ()
    waits: tuple[Wait, ...] = ()
    timeline: Timeline | None = None
    other_ranks: tuple[Profile, ...] = ()

    @property
    def ranks(self) -> tuple[Profile, ...]:
        """Those of all ranks, by number, this one among them; this one alone where it is the only
        one."""
        return tuple(sorted((self, *self.other_ranks), key=lambda one: one.rank or 0))

    @property
    def on_cpu(self) -> bool:
        """Whether operators of the CPU are counted, not kernels."""
        return self.environment.kind == "cpu"

    @property
    def kernel_count(self) -> int:
        """Number of kernels of one call; the largest where rounds differ; 0 also where it could not
        be had."""
        metric = self.metrics.get("kernels")
        return 0 if metric is None or metric.value is None else int(metric.value)

    @property
    def outcome(self) -> Status | None:
        """The worst outcome of its limits; None where there is none. A violated limit is certain
        even if events were lost."""
        # What could not be compared is told as such: it is no limit that was left out.
        compared = (one for one in self.verdicts if not one.is_uncompared)
        outcomes = {verdict.outcome for verdict in compared}
        if not self.integrity.complete:
            outcomes = (outcomes & {"failed", "expected failure"}) | {"incomplete"}
        return next((outcome for outcome in STATUSES if outcome in outcomes), None)
