"""The conditions of timed rounds: the GPU locked and watched, and what forbids timing.

Watched are clock, throttling, and other processes that work on the GPU.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import replace

from pytest_kernelprof.gpu.inventory import Device, bound, cuda_driver
from pytest_kernelprof.gpu.nvml import Gpu, Sample, Unknown, Use, gpu_of, refused
from pytest_kernelprof.gpu.usage_lock import GpuLock, NotFree, OtherProcesses, finish_work, gpu_lock
from pytest_kernelprof.records.metrics import METRICS
from pytest_kernelprof.records.recording import Conditions, Neighbour
from pytest_kernelprof.system import sleep, unix_ns

Locking = Callable[[Device, float, str], contextlib.AbstractContextManager[GpuLock | None]]


BLOCKING = "CUDA_LAUNCH_BLOCKING"
_LAUNCHES_BLOCK = (
    f"not available with {BLOCKING}=1: each launch waits for its kernel, which changes host "
    "times; run without it"
)
_SHARED = (
    "not available under MPS, which runs kernels of other processes beside those of this one; "
    "run without it"
)
_TIMES = {name: spec for name, spec in METRICS.items() if spec.unit == "us"}
_OF_THE_HOST = tuple(name for name, spec in _TIMES.items() if "unprofiled" in spec.sources)
# CUdevice_attribute of the driver's interface, since CUDA 12.4.
_MPS_ENABLED = 133


def no_times(device: Device) -> dict[str, str]:
    """The metrics that cannot be had on a GPU in this process, each with the reason."""
    if is_shared(device.index):
        return dict.fromkeys(_TIMES, _SHARED)
    return dict.fromkeys(_OF_THE_HOST, _LAUNCHES_BLOCK) if _launches_block() else {}


@functools.cache
def _launches_block() -> bool:
    """Asked when something is first measured: the driver reads it once, when it comes up."""
    return os.environ.get(BLOCKING) == "1"


@functools.cache
def is_shared(index: int) -> bool:
    """Whether contexts on a GPU are shared through MPS; False where the driver does not tell."""
    driver = cuda_driver()
    if driver is None:
        return False
    ordinal, value = ctypes.c_int(), ctypes.c_int()
    if driver.cuDeviceGet(ctypes.byref(ordinal), index) != 0:
        return False
    answered = driver.cuDeviceGetAttribute(ctypes.byref(value), _MPS_ENABLED, ordinal) == 0
    return answered and value.value != 0


T = TypeVar("T")

# NVML samples the use of the GPU by each process every 0.2 s on an H200, at most every second.
_SAMPLED_WITHIN_US = 1_000_000
_POLL_S = 0.02
_STILL_KNOWN_US = 1_000_000
"""How long what one watch saw last is good for the next to begin with."""


class LastWatch(NamedTuple):
    """A GPU as the last watch of this process left it.

    Attributes:
        at_us: when it was looked at. sample: what was seen.
        quiet: whether nobody else was on it then that the lock does not keep at rest, nor had
            worked on it in the second before.
    """

    at_us: int
    sample: Sample
    quiet: bool


_last_watches: weakref.WeakKeyDictionary[Gpu, LastWatch] = weakref.WeakKeyDictionary()


@contextlib.contextmanager
def watch(
    device: Device, company: OtherProcesses | None = None, *, at_work: int = 1
) -> Iterator[Watch]:
    """Watch a GPU while blocks of rounds are timed on it, of so many processes.

    Enter and leave it outside a profiler session: where other processes are on the GPU, both may
    wait for NVML's next sample (0.2 s on an H200, at most a second), with a tiny kernel of ours.
    Alone on the GPU nothing waits. The conditions are complete after the ``with`` block.
    """
    if isinstance(found := gpu_of(device), Unknown):
        yield Watch(None, Conditions(why_unknown=found.why, why_contention_unknown=found.why))
        return
    pulse = functools.partial(_pulse, device)
    watched = Watch(found, Conditions(), pulse, company or OtherProcesses(), at_work)
    watched._ask(watched._look_first)
    watched._next_block_us = _now_us()
    yield watched
    if watched._conditions.blocks:
        watched._ask(watched._look_last)


@dataclass(eq=False)
class Watch:
    """Gathers the conditions of blocks of rounds; made by ``watch``.

    NVML is far too slow to look at a round of 100 us, so it looks between blocks. Where the last
    watch has just ended, what it saw is what this one begins with: if the GPU throttled, or a
    process came and went, between the two, that is taken to be of the first block.

    Another process *contends* if its kernels ran: 5 % of the time or more in a sample that reaches
    into a block. One that is merely there (a notebook that holds memory) does not. In a container
    the driver may number processes as the host does; then this process is not to be told apart:
    one working process is taken to be this one, two are a contention. Where several processes are
    timed in turn, as many are taken to be those.

    Processes that the GPU's lock keeps at rest do not contend by what a sample shows of them that
    began before they came to rest; what they do nevertheless later does.
    """

    _gpu: Gpu | None
    _conditions: Conditions
    _pulse: Callable[[], None] = lambda: None
    _company: OtherProcesses = field(default_factory=OtherProcesses)
    _at_work: int = 1
    _begun_us: int = 0
    _last: Sample | None = None
    _last_block_us: int = 0
    _next_block_us: int = 0
    _worked_lately: frozenset[int] = frozenset()
    _working: dict[int, int] = field(default_factory=dict)

    def block(self, rounds: int) -> bool:
        """Note that a block of this many rounds has ended, the device synchronised.

        Returns:
            Whether its rounds can be kept: False if the GPU throttled at any time in them.
        """
        if self._gpu is None and not self._conditions.why_unknown:
            return True  # there is no GPU to look at: nothing is claimed
        known = self._conditions
        self._note(blocks=known.blocks + 1)
        self._last_block_us = self._next_block_us
        if throttling := self._ask(self._look):
            self._note(
                throttled_blocks=known.throttled_blocks + 1,
                discarded_rounds=known.discarded_rounds + rounds,
                throttle_reasons=tuple(dict.fromkeys([*known.throttle_reasons, *throttling])),
            )
        self._next_block_us = _now_us()
        return not throttling

    def conditions(self) -> Conditions:
        """What was gathered; call it after the ``with`` block."""
        contenders = tuple(Neighbour(pid, use) for pid, use in sorted(self._working.items()))
        return replace(self._conditions, contenders=contenders)

    def _note(self, **what: Any) -> None:
        self._conditions = replace(self._conditions, **what)

    def _ask(self, look: Callable[[Gpu], T]) -> T | None:
        """Let a function look at the GPU. Once NVML has refused, nothing more is asked."""
        if self._gpu is None:
            return None
        try:
            return look(self._gpu)
        except self._gpu.nvml.NVMLError as error:
            self._gpu, why = None, refused(error)
            self._note(why_unknown=why, why_contention_unknown=why)
            return None

    def _look_first(self, gpu: Gpu) -> None:
        """Where others worked until now, wait until that is in a sample of its own: they may have
        stopped, as a worker does that hands over the lock."""
        entered = self._begun_us = _now_us()
        left = _last_watch_of(gpu, entered)
        self._last = gpu.sample() if left is None else left.sample
        if left is not None and left.quiet and gpu.is_ours_alone():
            return
        since = entered - _SAMPLED_WITHIN_US
        if self._others_in(gpu, self._use_since(gpu, since), since):
            self._sampled_after(gpu, entered)

    def _look(self, gpu: Gpu) -> tuple[str, ...]:
        """Note clock and other work of the block that has ended; hands back why it throttled."""
        now = gpu.sample()
        throttling = _throttling_between(self._last or now, now)
        self._last = now
        known, clock = self._conditions, now.sm_clock_mhz
        self._note(
            power_capped_blocks=known.power_capped_blocks + now.power_capped,
            sm_clock_mhz_low=min(known.sm_clock_mhz_low or clock, clock),
            sm_clock_mhz_high=max(known.sm_clock_mhz_high or clock, clock),
            sm_clock_mhz_max=gpu.sm_clock_mhz_max,
        )
        self._note_others(gpu)
        return throttling

    def _look_last(self, gpu: Gpu) -> None:
        """Where others are on the GPU, wait for the sample that holds the last block's end: of
        each that worked lately, since an H200 samples one process before another."""
        left = _now_us()
        company = self._company.kept_at_rest() | self._company.partners()
        processes = gpu.processes()
        there = gpu.others_among(processes, company, self._at_work)
        quiet = not (self._working or self._worked_lately or there)
        if not quiet and not self._working:
            named = self._worked_lately & processes if gpu.numbers_like_us else frozenset()
            self._note_working(gpu, self._sampled_after(gpu, left, named))
        if self._last is not None:
            known = quiet and not self._conditions.why_contention_unknown
            _last_watches[gpu] = LastWatch(self._next_block_us, self._last, known)

    def _note_others(self, gpu: Gpu) -> None:
        """Note who else worked in samples that reach into the last block, and who did in the second
        before."""
        since = min(self._last_block_us, _now_us() - _SAMPLED_WITHIN_US)
        used = self._use_since(gpu, since)
        self._worked_lately = frozenset(self._others_in(gpu, used, since))
        self._note_working(gpu, used)

    def _note_working(self, gpu: Gpu, used: Sequence[Use]) -> None:
        for pid, share in self._others_in(gpu, used, self._last_block_us).items():
            self._working[pid] = max(share, self._working.get(pid, 0))

    def _others_in(self, gpu: Gpu, used: Sequence[Use], since_us: int) -> Mapping[int, int]:
        """Who else worked in those of the samples that were taken since an instant. Without our
        own: partners, and who rests, by all that is seen of it since it does."""
        others = gpu.others_in(_after(since_us, used), self._at_work)
        if not others or not gpu.numbers_like_us:
            return others
        rested_us = max(since_us, self._begun_us + _SAMPLED_WITHIN_US)
        resting = self._company.kept_at_rest() - gpu.others_in(_after(rested_us, used)).keys()
        known = resting | self._company.partners()
        return {pid: share for pid, share in others.items() if pid not in known}

    def _use_since(self, gpu: Gpu, since_us: int) -> Sequence[Use]:
        if isinstance(used := gpu.use_since(since_us), Unknown):
            self._note(why_contention_unknown=used.why)
            return ()
        return used

    def _sampled_after(
        self, gpu: Gpu, instant_us: int, named: frozenset[int] = frozenset()
    ) -> Sequence[Use]:
        """Wait for a sample after an instant: of any process, or of each that is named.

        Returns:
            What was sampled since the last block began: what others do while this waits for those
            that are named is none of it.
        """
        found: list[Use] = []
        sampled: set[int] = set()
        while _now_us() < instant_us + _SAMPLED_WITHIN_US:
            used = self._use_since(gpu, self._last_block_us or instant_us)
            found += [one for one in used if not sampled or one.pid in named - sampled]
            sampled |= {one.pid for one in _after(instant_us, used)}
            if self._conditions.why_contention_unknown or (sampled and named <= sampled):
                break
            self._pulse()  # a process that did nothing has no sample
            sleep(_POLL_S)
        return found


def _after(instant_us: int, used: Sequence[Use]) -> list[Use]:
    return [one for one in used if one.at_us > instant_us]


def _last_watch_of(gpu: Gpu, now_us: int) -> LastWatch | None:
    """The GPU as it was left a moment ago, if it was and did not throttle then."""
    left = _last_watches.get(gpu)
    if left is None or left.sample.throttling:
        return None
    return left if 0 <= now_us - left.at_us <= _STILL_KNOWN_US else None


def _throttling_between(before: Sample, after: Sample) -> tuple[str, ...]:
    """Why the GPU throttled between two looks, each reason once."""
    had = before.throttled_ns
    grown = (one for one, spent in after.throttled_ns.items() if spent > had.get(one, spent))
    return tuple(dict.fromkeys([*before.throttling, *after.throttling, *grown]))


def _pulse(device: Device) -> None:
    """A tiny kernel, so that this process shows in NVML's next sample."""
    torch = bound()
    current = torch.exchange_device(device.index)
    try:
        torch.sleep(1)
        torch.synchronize()
    finally:
        torch.put_back_device(current)


def _now_us() -> int:
    """The clock that NVML stamps its samples with, in microseconds."""
    return unix_ns() // 1000


@contextlib.contextmanager
def alone(
    device: Device,
    lock_timeout_s: float,
    who: str,
    *,
    at_work: int = 1,
    locking: Locking | None = None,
) -> Iterator[Watch]:
    """Have the GPU alone, as far as others ask for it too, and watch what it is like.

    Where others hold it for longer than the time-out, the rounds are taken beside them, and the
    conditions say so. On the CPU nothing is locked or watched. ``who`` is what others are told who
    wait; ``locking`` is how the lock is taken, by default for this process alone.

    Raises:
        GpuBusy: there can be no lock.
    """
    if device.kind != "cuda":
        yield unwatched()
        return
    finish_work()
    with contextlib.ExitStack() as held:
        lock, why = None, ""
        try:
            lock = held.enter_context((locking or gpu_lock)(device, lock_timeout_s, who))
        except NotFree as busy:
            why = str(busy)
        watched = held.enter_context(watch(device, lock, at_work=at_work))
        yield watched
        watched._note(not_alone=why or (lock.lost if lock else ""))


def unwatched() -> Watch:
    """For counts, which need neither: it finds nothing."""
    return Watch(None, Conditions())
