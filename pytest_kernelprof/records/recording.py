"""What capture notes beside a trace: the names it annotates with, and ``Recording``; and of each
profile where it was taken, whether it is whole, and what the GPU was like meanwhile."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from pytest_kernelprof.records.metrics import METRICS, Rated

DeviceKind = Literal["cuda", "cpu"]


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

    kind: DeviceKind
    device: str
    capability: str = ""
    versions: dict[str, str] = {}
    power_limit_w: int | None = None

    @property
    def is_amd(self) -> bool:
        """Whether the GPU is one of AMD, whose kernels spill registers and not bytes."""
        return "hip" in self.versions or self.capability.startswith("gfx")


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
        children_checked: whether this system tells of child processes that work.
        elsewhere: what is told of child processes although the profile stands, in words.
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
    children_checked: bool = True
    elsewhere: tuple[str, ...] = ()

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
            self, kept_throttled_rounds=rounds, discarded_rounds=self.discarded_rounds - rounds
        )


class OwnNames:
    """What our own annotations in a session's trace are called.

    Attributes:
        nonce: a random word, so that no annotation of the measured code has one of these names;
            empty in traces that were recorded without.
        prefix: what all of them begin with.
        round: followed by the round's number: around one call of the wrapped function, in files of
            sessions that annotated a whole round.
        begin, end: followed by the round's number: where one call of the wrapped function begins,
            and where it has returned.
        first_sentinel, last_sentinel: the kernels before and after all rounds.
        setup: around what makes the arguments of a call: its work is not the call's.
        pause: our wait for the device before collection pauses.
        resume: where collection has gone on: what waits between a pause and this is ours or
            torch's.
        allow: followed by what ``allowances.allowed_by`` reads: around a block of ``allow``.
        line: followed by ``file:line``: a source line of the user, in attribution runs only.
    """

    def __init__(self, nonce: str = "") -> None:
        self.nonce = nonce
        self.prefix = f"kernelprof::{nonce}::" if nonce else "kernelprof::"
        self.round = self.prefix + "round#"
        self.begin, self.end = self.prefix + "begin#", self.prefix + "end#"
        self.first_sentinel = self.prefix + "sentinel#first"
        self.last_sentinel = self.prefix + "sentinel#last"
        self.setup = self.prefix + "setup"
        self.pause, self.resume = self.prefix + "pause", self.prefix + "resume"
        self.allow, self.line = self.prefix + "allow#", self.prefix + "line#"


Number = Annotated[float, msgspec.Meta(ge=-1e18, le=1e18)]
"""What a clock or memory may say. A file may be changed; sums of such numbers are still numbers."""
Count = Annotated[int, msgspec.Meta(ge=-(10**18), le=10**18)]
Times = Annotated[tuple[Number, ...], msgspec.Meta(min_length=1)]
Counts = Annotated[tuple[Count, ...], msgspec.Meta(min_length=1)]
SERIES = ("latency_us", "dispatch_us", "floor_us")
"""The fields of ``HostTimings`` with one value a round."""


class HostTimings(msgspec.Struct, frozen=True):
    """Host-side measurements of calls that were not profiled; one value a round.

    Attributes:
        latency_us: from the call until the device is done.
        dispatch_us: from the call until it returns.
        floor_us: a call that does nothing, plus the synchronisation, in the same loop.
        back_to_back_us: time per call of calls in a row with one synchronisation at the end;
            None where arguments have to be made fresh for each call.
        cupti_us_per_launch: what an attached CUPTI adds to each launch in this process.
        cupti_ratio: the same as a ratio; 1.0 where no CUPTI is attached.
    """

    latency_us: Times
    dispatch_us: Times
    floor_us: Times
    back_to_back_us: Number | None = None
    cupti_us_per_launch: Number = 0.0
    cupti_ratio: Number = 1.0

    def followed_by(self, more: HostTimings) -> HostTimings:
        """These rounds and those of ``more``, as one series."""
        both = {name: getattr(self, name) + getattr(more, name) for name in SERIES}
        return msgspec.structs.replace(self, **both)


class MemoryUse(msgspec.Struct, frozen=True):
    """Memory of warmed-up calls that were not profiled; one value a round.

    Attributes:
        peak_bytes: peak of requested bytes above the call's start.
        device_allocations: device allocations and frees of the caching allocator.
    """

    peak_bytes: Counts
    device_allocations: Counts


class Roofline(msgspec.Struct, frozen=True):
    """The verdict on a call: "compute" or "memory" (None if neither can be said), and why."""

    roof: Literal["compute", "memory"] | None
    reason: str


class Work(msgspec.Struct, frozen=True, omit_defaults=True):
    """The floating-point operations of one call, or the bytes that it reads and writes.

    Attributes:
        amount: how many; None where nobody could look.
        unknown: the first operators and kernels whose work is not known, which makes it a lower
            bound.
        peak: what the device does of it in a second, at best; None where that is not known.
        why: why there is no amount or no peak.
    """

    amount: Annotated[int, msgspec.Meta(ge=0, le=10**18)] | None = None
    unknown: tuple[str, ...] = ()
    peak: Annotated[float, msgspec.Meta(gt=0, le=1e18)] | None = None
    why: str = ""


class GraphNodes(msgspec.Struct, frozen=True, array_like=True):
    """What a CUDA graph is made of, with its child graphs.

    Attributes:
        kernels: kernel nodes; each leaves one kernel.
        copies: memcpy and memset nodes, which may run as kernels.
        conditional: whether it has nodes that may run any number of times.
    """

    kernels: int = 0
    copies: int = 0
    conditional: bool = False


class KernelSpills(msgspec.Struct, frozen=True, array_like=True):
    """What was found out about the spills of one compiled kernel.

    Attributes:
        name, registers, threads: the kernel's name, registers a thread and threads a block.
        shared_memory, spills: as of ``Kernel``.
    """

    name: str
    registers: int
    threads: int
    shared_memory: int | None
    spills: int | str


class ChildProcesses(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was seen of the children of this process while rounds ran.

    Attributes:
        checked: whether this system tells of them.
        at_work: those that may have done work of the rounds, in words.
        ended_s: how long others ran that had ended before they could be looked at.
        ignored: whether the user means them to work.
    """

    checked: bool = True
    at_work: tuple[str, ...] = ()
    ended_s: Number = 0.0
    ignored: bool = False


class Recording(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What our capture noted beside a trace. All fields of a trace from elsewhere are empty.

    Attributes:
        schema: version of this record. 0: nothing was noted.
        device_kind, device, capability, versions, power_limit_w: where it ran; see
            ``Environment``.
        nonce: of the names of our annotations; see ``OwnNames``.
        rounds: how many rounds were annotated, so that a reader can see whether one is missing.
        one_shot: a block as it stood, once: no warm-up, no second try.
        round_us: how long each round took by the clock that times calls, in microseconds.
        left_at_work: what the rounds began and left at work, in words.
        forks: how often the rounds forked this process.
        children: what was seen of its children.
        collection_stopped: the profiler ran out of buffers and stopped collecting.
        autotuned: the autotuners that benched in the block, which is no part of it.
        replays: of CUDA graphs in the rounds, in order, each with what its graph is made of, or
            None where nobody saw it captured; None where nobody looked.
        no_times: metrics that cannot be had here, each with the reason.
        retakes: sessions that were incomplete and taken again.
        settled: whether the code became warm; False leaves cold records in the profile.
        recompiles: compilations of torch.compile in the profiled calls and those after them; None
            where it could not be asked.
        refused: compilations that it refused since the first call, its limit reached.
        may_refuse: whether it ever refused one in this process, as far as is known.
        jit_compiled: specialisations of Triton's functions that were new in these calls, in words;
            None where unknown. autotunes: likewise, the runs of autotuners.
        reused: compile ids that torch.compile gave to other code while rounds ran.
        graph_breaks: of torch.compile's, in the code that the rounds ran, in words; None where
            unknown. graph_breaks_why: the reason.
        compute_operators: of a CPU session, the operators in the trace that compute.
        decomposing_operators: likewise, those of libraries that compute where nothing below them
            does. bare_operators: those that take no arguments, and have no inputs.
        idle_operators: of a CPU session, all others in the trace; None where nobody noted them.
        unseen: of a CPU session, what ran that its operators do not tell of, in words.
        host_timings, memory: of calls that were not profiled.
        memory_why: why memory could not be watched, in words.
        second_look: a second, separate measurement of the host's times.
        more_rounds: the rounds of further sessions, by metric. more_allowed: of each of them, as
            ``MetricValues.allowed`` has it.
        roofline: which roof limits the call, from a session that recorded shapes.
        work: of one call, by the metric that says it a second: "throughput" and "bandwidth".
        in_place: the tensors that the call changed, of its arguments and of what it holds.
        conditions: what the GPU was like while it was timed.
        spills: of each kernel, where a limit asked for it; None where none did.
    """

    schema: int = 0
    device_kind: DeviceKind | None = None
    device: str = ""
    capability: str = ""
    versions: dict[str, str] = {}
    power_limit_w: int | None = None
    nonce: str = ""
    rounds: int | None = None
    one_shot: bool = False
    round_us: tuple[Number, ...] = ()
    left_at_work: tuple[str, ...] = ()
    forks: int = 0
    children: ChildProcesses = ChildProcesses()
    collection_stopped: bool = False
    autotuned: tuple[str, ...] = ()
    replays: tuple[GraphNodes | None, ...] | None = None
    no_times: dict[str, str] = {}
    retakes: int = 0
    settled: bool = True
    recompiles: int | None = None
    refused: int = 0
    may_refuse: bool = False
    jit_compiled: tuple[str, ...] | None = None
    autotunes: tuple[str, ...] | None = None
    reused: int = 0
    graph_breaks: tuple[str, ...] | None = None
    graph_breaks_why: str = ""
    compute_operators: tuple[str, ...] | None = None
    decomposing_operators: tuple[str, ...] = ()
    bare_operators: tuple[str, ...] = ()
    idle_operators: tuple[str, ...] | None = None
    unseen: tuple[str, ...] = ()
    host_timings: HostTimings | None = None
    second_look: HostTimings | None = None
    memory: MemoryUse | None = None
    memory_why: str = ""
    more_rounds: dict[str, tuple[Number, ...]] = {}
    more_allowed: dict[str, tuple[Number, ...]] = {}
    roofline: Roofline | None = None
    work: dict[Rated, Work] = {}
    in_place: tuple[str, ...] = ()
    conditions: Conditions | None = None
    spills: tuple[KernelSpills, ...] | None = None

    def __post_init__(self) -> None:
        """Raises ValueError for what is noted of no metric of ours."""
        if unknown := [name for name in (*self.no_times, *self.more_rounds) if name not in METRICS]:
            raise ValueError(f"no metric is called {unknown[0][:40]!r}")


NOTHING_NOTED = Recording()
"""Of a trace from elsewhere."""
