"""Where a profile was taken, whether it is whole, and what the GPU was like meanwhile."""

from __future__ import annotations

from typing import Literal

import msgspec


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
