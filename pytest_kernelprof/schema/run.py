"""What a run found: ``Run > Test > Profile > Kernel, Metric, Verdict, Integrity, Environment``.

Records of facts. How they are told is made of them in ``report/``.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec

from pytest_kernelprof.schema.kernels import (
    Copy,
    Kernel,
    KernelGroup,
    Timeline,
    TimelineKind,
    Wait,
)
from pytest_kernelprof.schema.metrics import Kind, Unit
from pytest_kernelprof.schema.runs import ProfileComparison
from pytest_kernelprof.schema.snapshot import Finding, Taken

__all__ = ["Copy", "Kernel", "KernelGroup", "Timeline", "TimelineKind", "Wait"]

Outcome = Literal["over", "incomplete", "undecided", "kept", "expected", "not judged"]
"""How a limit fared, worst first: "over" it; "incomplete", the number could not be had; a time
"undecided", its interval holds the limit; "kept"; "expected" to be over it, and is; "not judged",
since it says nothing of this device."""
OUTCOMES: tuple[Outcome, ...] = (
    *("over", "incomplete", "undecided", "kept", "expected", "not judged"),
)


class Environment(msgspec.Struct, frozen=True, omit_defaults=True):
    """The device and the software around it.

    Attributes:
        kind: "cuda" (ROCm builds of torch say "cuda" too) or "cpu".
        device: for example "NVIDIA H200". capability: for example "sm_90".
        versions: torch, cuda, triton, python; only those that there are. Of the CPU also whether
            mkldnn is "on" or "off", by which some operators are others.
        power_limit_w: what the GPU may draw, in watts, which its clocks under load follow; None
            where it could not be read, and of the CPU.
    """

    kind: Literal["cuda", "cpu"]
    device: str
    capability: str = ""
    versions: dict[str, str] = {}
    power_limit_w: int | None = None


class Origin(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a trace file is one of.

    Attributes:
        dialect: whose runtime recorded it: "CUDA", "ROCm", "XPU", "MTIA" or another's name; "CPU"
            where it records no device.
        form: how old its form is, in words; empty for today's.
        processes: how many processes it has operators or calls of.
        devices: how many devices it has activities of.
    """

    dialect: str
    form: str = ""
    processes: int = 1
    devices: int = 0


class Place(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of a test file. Lines count from 1."""

    file: str
    line: int


class Metric(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One metric of a profile.

    Attributes:
        name: as in the reference, for example ``cuda_time``.
        kind: "exact" (a count), "timed" (judged with an interval) or "shown" (never a limit).
        unit: "count", "us" or "bytes".
        rounds: the value of each round.
        value: the largest round of a count, the median of a time; None if it was not measured.
        low, high: bounds of the value at 99 %; None where there are too few rounds.
        why: why there is no value, or what its reader should know; empty otherwise.
        block: rounds that count as one, by their median, since neighbours are alike.
    """

    name: str
    kind: Kind
    unit: Unit
    rounds: tuple[float, ...] = ()
    value: float | None = None
    low: float | None = None
    high: float | None = None
    why: str = ""
    block: int = 1

    @property
    def stable(self) -> bool:
        """Whether all rounds of a count agree."""
        return len(set(self.rounds)) <= 1


GraphProof = Literal["none", "proved", "unproven"]


class Integrity(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known about the completeness of one profile.

    Attributes:
        problems: what is missing, in words; empty means complete.
        launches: launch calls of all rounds that ought to have a kernel.
        matched: how many of them have one.
        unknown_launches: kernels of the rounds whose launch call the profiler does not record.
        leaked: activities of work launched before the recording; left out of every count.
        graph_replays: "proved" where each replay has a kernel for each kernel node of its graph.
        clock_skew: a kernel starts before its launch; gap figures are then off.
        cold: signs of cold code inside the rounds (lazy loading, compilation).
        settled: whether the code became warm before the profile was taken.
        retakes: sessions that were incomplete and taken again.
        clock: why the clock that times calls is not believed; empty where it agrees with the
            trace's.
        forks: children that the rounds forked, whose work is theirs and in no count.
    """

    problems: tuple[str, ...] = ()
    launches: int = 0
    matched: int = 0
    unknown_launches: int = 0
    leaked: int = 0
    graph_replays: GraphProof = "none"
    clock_skew: bool = False
    cold: tuple[str, ...] = ()
    settled: bool = True
    retakes: int = 0
    clock: str = ""
    forks: int = 0

    @property
    def complete(self) -> bool:
        """Whether every count of the profile can be trusted."""
        return not self.problems


class Neighbour(msgspec.Struct, frozen=True):
    """Another process that worked on the GPU while it was timed.

    Attributes:
        pid: the process, as the driver numbers it: in a container possibly the host's number.
        utilisation: the largest share of time in which its kernels ran, in percent.
    """

    pid: int
    utilisation: int


class Conditions(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the GPU was like during timed rounds, gathered around blocks of them.

    Attributes:
        blocks: blocks of rounds that were looked at.
        throttled_blocks: those during which the GPU throttled.
        discarded_rounds: the rounds of the throttled blocks, but for those that were kept.
        throttle_reasons: why it throttled, in words, each once.
        kept_throttled_rounds: rounds that were kept although it throttled, since it did so again
            and again.
        power_capped_blocks: blocks at the power limit. That is how heavy work runs on this GPU:
            told, not discarded.
        contenders: other processes that worked on the GPU during the blocks.
        not_alone: why the GPU's lock was not had, and who held it; empty where it was.
        sm_clock_mhz_low: lowest SM clock seen, in MHz; None where it could not be read.
        sm_clock_mhz_high: highest SM clock seen, in MHz.
        sm_clock_mhz_max: the highest SM clock that this GPU has, in MHz.
        why_unknown: why clock and throttling could not be read; empty where they were.
        why_contention_unknown: why the work of other processes could not be seen; empty where
            it was looked for.
    """

    blocks: int = 0
    throttled_blocks: int = 0
    discarded_rounds: int = 0
    throttle_reasons: tuple[str, ...] = ()
    power_capped_blocks: int = 0
    kept_throttled_rounds: int = 0
    contenders: tuple[Neighbour, ...] = ()
    not_alone: str = ""
    sm_clock_mhz_low: int | None = None
    sm_clock_mhz_high: int | None = None
    sm_clock_mhz_max: int | None = None
    why_unknown: str = ""
    why_contention_unknown: str = ""

    @property
    def contended(self) -> bool:
        """Whether other work was seen on the GPU, or could not be kept away from it."""
        return bool(self.contenders or self.not_alone)

    @property
    def disturbed(self) -> bool:
        """Whether no timed verdict can stand on these rounds."""
        return self.contended or self.kept_throttled_rounds > 0

    def keeping_throttled(self, rounds: int) -> Conditions:
        """The same, where so many rounds were kept, not discarded, although the GPU throttled."""
        return msgspec.structs.replace(
            self,
            kept_throttled_rounds=rounds,
            discarded_rounds=self.discarded_rounds - rounds,
        )


class Bound(msgspec.Struct, frozen=True):
    """What limits a call: "overhead", "sync", "mixed", "memory", "compute", "gpu" (one of the two
    before, or neither: not known which) or "unknown"; with the reason in words."""

    verdict: str
    reason: str


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


Reason = Literal["", "interval", "alike", "few", "second look", "disturbed", "beyond"]


class Verdict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How one limit fared: the facts.

    Attributes:
        limit: the limit's name, for example ``max_kernels``.
        qualifier: what tells it from others of its name, as it was written: ``match``,
            ``direction``, forbidden patterns, the asked speedup; empty without.
        outcome: one of ``OUTCOMES``.
        why: of "incomplete" and "not judged", the cause in words.
        reason: of "undecided": its "interval" holds the limit, neighbouring rounds are too "alike"
            or too "few" for an interval, a "second look" does not confirm it, the GPU was
            "disturbed". Of "over": "beyond" what other work on the GPU can explain.
        metric, unit: what was judged ("times" is a ratio); empty for limits on kernel names.
        device: "cuda" or "cpu".
        allowed: the limit in the metric's unit; None for limits on kernel names.
        share: the limit as a fraction of ``share_of``, where it was written so.
        share_of: what ``share`` is of (the latency in microseconds).
        measured: the value that was judged; of limits on kernel names how many kernels there are.
            low, high: its interval at 99 %, if it has one.
        rounds: how many rounds it was judged by. block: how many count as one.
        values: the rounds of a count that differ; empty where they agree.
        second_look: what a second, separate measurement gave.
        fastest: of "beyond", the fastest round, or the ratio of the fastest two.
        note: what a reader of the value should know, in words; of a count "incomplete" where
            events were lost.
        patterns: of limits on kernel names; None stands for ``...``.
        hits, mismatch: what is wrong with the names.
        candidate: of a comparison, the callable that was judged.
        place: the line of the test that made the call, or the test's own.
        snapshot: of "snapshot", how the profile compares with what is kept.
        comparison: of "compare", how it compares with that of an earlier run.
    """

    limit: str
    outcome: Outcome
    qualifier: str = ""
    why: str = ""
    reason: Reason = ""
    metric: str = ""
    unit: Literal["", "count", "us", "bytes", "times"] = ""
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
    snapshot: Finding | None = None
    comparison: ProfileComparison | None = None

    @property
    def of_limit(self) -> bool:
        """Whether it is of a limit that a test has, not of what the profile was before."""
        return self.snapshot is None and self.limit != "compare"


class ProfileFacts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a profile says beside its values and its kernels.

    Attributes:
        label: which of a test's profiles this is (a region's name), empty for the only one.
        rounds: how many calls were profiled in the session that the kernels are of.
        one_shot: a block as it stood, once.
        integrity: whether it is complete, and what is missing if not.
        bound, gaps, host_shares, conditions: see there.
        in_place: the arguments that the call changed.
        cupti_ratio: what an attached CUPTI costs the host's launches, as a ratio; None where no
            host times were taken.
        verdicts: how its limits fared, in their order.
        place: the line of the test that made the call.
        trace: the file of its Chrome trace, where one was written.
        kernels_kept: whether its kernels, copies and waits are in the record: of a test with very
            many only those of its newest profiles are.
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
        copies, waits: of one call, in order; none on the CPU.
        timeline: of the round that the kernels are of, where somebody keeps the whole run.
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

    @property
    def kernel_count(self) -> int:
        """Number of kernels of one call; the largest where rounds differ."""
        value = self.metrics["kernels"].value
        return 0 if value is None else int(value)

    @property
    def outcome(self) -> Outcome | None:
        """The worst outcome of its limits; None where there is none. A violated limit is certain
        even if events were lost."""
        outcomes = {verdict.outcome for verdict in self.verdicts}
        if not self.integrity.complete:
            outcomes = (outcomes & {"over", "expected"}) | {"incomplete"}
        return next((outcome for outcome in OUTCOMES if outcome in outcomes), None)


class Contestant(msgspec.Struct, frozen=True, omit_defaults=True):
    """One callable of a comparison.

    Attributes:
        kernels: kernels of one call.
        value: median of its rounds, in microseconds or bytes. low, high: its interval at 99 %.
        speedup: the reference's value over its own; None for the reference and without a ratio.
        speedup_low, speedup_high: its interval at 99 %. speedup_block: pairs that count as one.
        unstable: the different numbers of kernels that it launched, where they differ.
    """

    name: str
    kernels: int
    value: float
    low: float | None = None
    high: float | None = None
    speedup: float | None = None
    speedup_low: float | None = None
    speedup_high: float | None = None
    speedup_block: int = 1
    unstable: tuple[int, ...] = ()


class Comparison(msgspec.Struct, frozen=True, omit_defaults=True):
    """Callables measured in turn in one run.

    Attributes:
        metric: "cuda_time", "latency" or "peak_memory".
        reference: the name of the callable that all others are compared with.
        contestants: all of them, the reference included, in their order.
        pairs: how many rounds there are of each.
        conditions: those blocks of rounds on which no verdict can stand.
        verdicts: what was asserted of it.
    """

    metric: str
    reference: str
    contestants: tuple[Contestant, ...]
    pairs: int
    conditions: tuple[Conditions, ...] = ()
    verdicts: tuple[Verdict, ...] = ()


TestOutcome = Literal["failed", "error", "rerun", "skipped", "xfailed", "passed"]
"""How pytest says that a test ended; "error" also where a number could not be had, "rerun" of a try
that a plugin has repeated."""


class Test(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one test took.

    Attributes:
        id: its node id, with everything that is no text escaped.
        outcome: how it ended, whatever its limits did: a failure of its own, a skip, another
            fixture's error count as much.
        place: where it stands.
        snapshot: what it says of its snapshots, for the process that keeps them.
    """

    __test__: ClassVar[bool] = False  # for pytest: no class of tests, whatever its name

    id: str
    profiles: tuple[Profile, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    outcome: TestOutcome = "passed"
    place: Place | None = None
    snapshot: Taken | None = None


class Run(msgspec.Struct, frozen=True):
    """All tests of a run that took something, as they ended.

    Attributes:
        tests: in the order in which they ended.
        began: when, in UTC: ``2026-11-22T08:50:00Z``.
        versions: of pytest and pytest-kernelprof.
        unfinished: why tests may be missing that were to run; empty where the run ended by itself.
    """

    tests: tuple[Test, ...] = ()
    began: str = ""
    versions: dict[str, str] = {}
    unfinished: tuple[str, ...] = ()
