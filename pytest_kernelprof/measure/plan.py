"""What to take of a callable, from the settings and from what its limits need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pytest_kernelprof.device.conditions import LOCK_TIMEOUT_S
from pytest_kernelprof.errors import MarkerError
from pytest_kernelprof.schema.recording import DeviceKind

EXACT_ROUNDS = 2
"""Rounds of a session whose counts alone are wanted: enough to see that they differ."""
PROVING_ROUNDS = 3
"""Replays of a CUDA graph that must have equal numbers of children. Beyond it rounds are timed."""
TIMED_ROUNDS = 12


@dataclass(frozen=True, slots=True)
class Needs:
    """What has to be taken for a set of limits, or for a report.

    Attributes:
        device_times: rounds enough for an interval of the device's times.
        host_times: unprofiled calls, timed.
        memory: unprofiled calls whose memory is watched.
    """

    device_times: bool = False
    host_times: bool = False
    memory: bool = False


EVERYTHING = Needs(device_times=True, host_times=True, memory=True)


@dataclass(frozen=True, slots=True)
class Plan:
    """How much to measure.

    Attributes:
        device: "cuda" or "cpu".
        warmup: calls before the first profiled one; more follow until the code is warm.
        rounds: profiled calls in the first session.
        host_rounds: unprofiled calls for host times; 0 measures none.
        memory: whether to watch memory in unprofiled calls.
        flush_l2: whether the L2 cache is flushed before each timed call.
        stacks: whether Python frames are recorded.
        inputs: of a block on the CPU, whether operators' inputs are recorded, which tell operators
            from ranges of their name.
        roofline: whether shapes are recorded, for the work behind each kernel, where the device is
            the limit.
        sample_on: whether rounds are added while a verdict on a time is not reached.
        lock_timeout_s: how long to wait for other processes on the same GPU that hold its lock.
        who: what that process is told of this one, a test for example.
        ignore_children: whether child processes are meant to do work that is not counted.
    """

    device: DeviceKind
    warmup: int = 1
    rounds: int = EXACT_ROUNDS
    host_rounds: int = 0
    memory: bool = False
    flush_l2: bool = True
    stacks: bool = False
    inputs: bool = True
    roofline: bool = False
    sample_on: bool = False
    lock_timeout_s: float = LOCK_TIMEOUT_S
    who: str = ""
    ignore_children: bool = False

    @property
    def timed(self) -> bool:
        """Whether any time is measured: that wants the GPU alone, and a cold L2."""
        return self.rounds > PROVING_ROUNDS or self.host_rounds > 0


WARMUP_OF_RANKS = 2
"""DistributedDataParallel rebuilds its buckets in its second step, with broadcasts of their own."""


def of_all(plans: Sequence[Plan]) -> Plan:
    """The plan that takes on each rank what any of them needs, so that all make the same calls.

    Raises:
        MarkerError: they are to be measured on different kinds of devices.
    """
    first = plans[0]
    kinds = sorted({plan.device for plan in plans})
    if len(kinds) > 1:
        raise MarkerError(
            f"some ranks measure on {kinds[0]}, others on {kinds[1]}: choose one for all, "
            "--kernelprof-device=cpu or cuda"
        )
    return replace(
        first,
        warmup=max(WARMUP_OF_RANKS if len(plans) > 1 else 1, *(plan.warmup for plan in plans)),
        rounds=max(plan.rounds for plan in plans),
        host_rounds=max(plan.host_rounds for plan in plans),
        memory=any(plan.memory for plan in plans),
        flush_l2=any(plan.flush_l2 for plan in plans),
        stacks=any(plan.stacks for plan in plans),
        roofline=any(plan.roofline for plan in plans),
        sample_on=any(plan.sample_on for plan in plans),
        lock_timeout_s=max(plan.lock_timeout_s for plan in plans),
    )


def plan_of(
    device: DeviceKind,
    needs: Needs,
    *,
    rounds: int | None = None,
    warmup: int | None = None,
    flush_l2: bool = True,
    stacks: bool = False,
    lock_timeout_s: float = LOCK_TIMEOUT_S,
    who: str = "",
    ignore_children: bool = False,
) -> Plan:
    """The plan that takes what is needed, and no more.

    Who asks for a number of rounds gets that number, decided or not, and host times with it.
    """
    timed = needs.device_times or needs.host_times
    host = needs.host_times or rounds is not None
    return Plan(
        device,
        warmup=warmup or 1,
        rounds=rounds or (TIMED_ROUNDS if timed else EXACT_ROUNDS),
        host_rounds=(rounds or TIMED_ROUNDS) if host else 0,
        memory=needs.memory,
        flush_l2=flush_l2,
        stacks=stacks,
        roofline=host,
        sample_on=timed and rounds is None,
        lock_timeout_s=lock_timeout_s,
        who=who,
        ignore_children=ignore_children,
    )
