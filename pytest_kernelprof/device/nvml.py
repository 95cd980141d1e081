"""What NVML says of a GPU around timed rounds: clock, throttling, and who else works on it."""

from __future__ import annotations

import contextlib
import functools
import os
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_kernelprof.device.inventory import gpu_uuid, load_torch
from pytest_kernelprof.schema.conditions import Conditions, Contender

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pytest_kernelprof.device.inventory import Device

T = TypeVar("T")

# The bits of NVML's clock event reasons that take something from the code under test: the GPU is
# too hot or its supply asks for less. The others are no throttling. Idle means that nothing ran.
# Application and display clocks, sync boost and the board's limits are how this machine is set up,
# the same in every round. The power cap is a matter of its own: any large matrix product reaches
# it on a healthy H200, so that discarding such rounds would leave heavy code without a time.
_THROTTLING = {
    0x08: "hardware slowdown",
    0x20: "thermal slowdown by the driver",
    0x40: "thermal slowdown by the hardware",
    0x80: "power brake",
}
_POWER_CAP = 0x04
# Counters of the time spent throttled, in nanoseconds: they hold what came and went between two
# looks. By number, since older nvidia-ml-py lacks the names.
_COUNTERS = {
    75: "thermal slowdown",
    269: "thermal slowdown by the driver",
    270: "thermal slowdown by the hardware",
    271: "power brake",
}
# NVML samples the use of the GPU by each process every 0.2 s on an H200, at most every second.
_SAMPLED_WITHIN_S = 1.0
_POLL_S = 0.02
# A process that sits idle on the GPU shows 0 or 1 %, a desktop a few.
_WORKS_FROM_PERCENT = 5
_FIRST_PID_NAMESPACE = "pid:[4026531836]"


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at a GPU.

    Attributes:
        sm_clock_mhz: the SM clock now. sm_clock_mhz_max: the highest that this GPU has.
        throttling: why it throttles at this moment, in words; empty where it does not.
        power_capped: whether it is at its power limit, which is no throttling.
        throttled_ns: time spent throttled since the driver was loaded, by reason.
        processes: pids of the processes that compute on it or hold memory of it, as the driver
            numbers them.
        memory_used_bytes: memory in use by all processes.
    """

    sm_clock_mhz: int
    sm_clock_mhz_max: int
    throttling: tuple[str, ...]
    power_capped: bool
    throttled_ns: dict[str, int]
    processes: frozenset[int]
    memory_used_bytes: int


@dataclass(frozen=True, slots=True)
class Unknown:
    """There is no sample; ``why`` says so in words."""

    why: str


@dataclass(frozen=True, slots=True)
class NvmlFacts:
    """What the driver's management library says.

    Attributes:
        error: why it could not be asked; empty where it could.
        driver: the driver's version.
        mig: for each GPU of the machine whether it is divided (MIG).
    """

    error: str = ""
    driver: str = ""
    mig: tuple[bool, ...] = ()


def sample(device: Device) -> Sample | Unknown:
    """Look at a GPU once; about 3 ms. Never raises for want of NVML."""
    found = _gpu(device)
    if isinstance(found, Unknown):
        return found
    try:
        return found.sample()
    except found.nvml.NVMLError as error:
        return Unknown(_refused(error))


@contextlib.contextmanager
def watch(device: Device) -> Iterator[Watch]:
    """Watch a GPU while blocks of rounds are timed on it.

    Enter and leave it outside a profiler session: where other processes are on the GPU, both may
    wait for NVML's next sample (0.2 s on an H200, at most a second), with a tiny kernel of ours.
    Alone on the GPU nothing waits. The conditions are complete after the ``with`` block.
    """
    found = _gpu(device)
    if isinstance(found, Unknown):
        yield Watch(None, Conditions(why_unknown=found.why, why_contention_unknown=found.why))
        return
    watched = Watch(found, Conditions(), functools.partial(_pulse, device))
    watched._begin()
    yield watched
    watched._end()


class Watch:
    """Gathers the conditions of blocks of rounds; made by ``watch``.

    NVML is far too slow to look at a round of 100 us, so it looks between blocks.

    Another process *contends* if its kernels ran: 5 % of the time or more in a sample that reaches
    into a block. One that is merely there (a notebook that holds memory) does not. In a container
    the driver may number processes as the host does; then this process is not to be told apart:
    one working process is taken to be this one, two are a contention.
    """

    def __init__(
        self,
        gpu: _Gpu | None,
        conditions: Conditions,
        pulse: Callable[[], None] = lambda: None,
    ) -> None:
        self._gpu = gpu
        self._conditions = conditions
        self._pulse = pulse
        self._last: Sample | None = None
        self._last_block_us = 0
        self._next_block_us = 0
        self._working: dict[int, int] = {}

    def block(self, rounds: int) -> bool:
        """Note that a block of this many rounds has ended, the device synchronised.

        Returns:
            Whether its rounds can be kept: False if the GPU throttled at any time in them.
        """
        self._conditions = replace(self._conditions, blocks=self._conditions.blocks + 1)
        self._last_block_us = self._next_block_us
        unthrottled: tuple[str, ...] = ()
        throttling = self._ask(self._look, unthrottled)
        if throttling:
            self._conditions = _with_throttled_block(self._conditions, throttling, rounds)
        self._next_block_us = _now_us()
        return not throttling

    def conditions(self) -> Conditions:
        """What was gathered; call it after the ``with`` block."""
        contenders = tuple(Contender(pid, use) for pid, use in sorted(self._working.items()))
        return replace(self._conditions, contenders=contenders)

    def _ask(self, look: Callable[[_Gpu], T], otherwise: T) -> T:
        """Let a function look at the GPU. Once NVML has refused, nothing more is asked."""
        if self._gpu is None:
            return otherwise
        try:
            return look(self._gpu)
        except self._gpu.nvml.NVMLError as error:
            why = _refused(error)
            self._gpu = None
            self._conditions = replace(
                self._conditions, why_unknown=why, why_contention_unknown=why
            )
            return otherwise

    def _begin(self) -> None:
        self._ask(self._look_first, None)
        self._next_block_us = _now_us()

    def _end(self) -> None:
        if self._conditions.blocks and not self._working:
            self._ask(self._look_last, None)

    def _look_first(self, gpu: _Gpu) -> None:
        """Where others worked until now, wait until that is in a sample of its own: they may have
        stopped, as a worker does that hands over the lock."""
        entered = _now_us()
        self._last = gpu.sample()
        if self._others_since(gpu, entered - _us(_SAMPLED_WITHIN_S)):
            self._wait_for_a_sample_after(gpu, entered)

    def _look(self, gpu: _Gpu) -> tuple[str, ...]:
        """Note clock and other work of the block that has ended; hands back why it throttled."""
        now = gpu.sample()
        throttling = _throttling_between(self._last or now, now)
        self._last = now
        self._conditions = _with_sample(self._conditions, now)
        self._note_others(gpu)
        return throttling

    def _look_last(self, gpu: _Gpu) -> None:
        """Where others are on the GPU, wait for the sample that holds the last block's end."""
        left = _now_us()
        they_are_there = self._last is not None and gpu.others_on(self._last)
        if they_are_there or self._others_since(gpu, left - _us(_SAMPLED_WITHIN_S)):
            self._wait_for_a_sample_after(gpu, left)
            self._note_others(gpu)

    def _note_others(self, gpu: _Gpu) -> None:
        for pid, use in self._others_since(gpu, self._last_block_us).items():
            self._working[pid] = max(use, self._working.get(pid, 0))

    def _others_since(self, gpu: _Gpu, since_us: int) -> Mapping[int, int]:
        use = gpu.use_since(since_us)
        if isinstance(use, Unknown):
            self._conditions = replace(self._conditions, why_contention_unknown=use.why)
            return {}
        return gpu.others_of(use)

    def _wait_for_a_sample_after(self, gpu: _Gpu, instant_us: int) -> None:
        deadline = instant_us + _us(_SAMPLED_WITHIN_S)
        while _now_us() < deadline and not gpu.use_since(instant_us):
            self._pulse()  # a process that did nothing has no sample
            time.sleep(_POLL_S)


class _Gpu:
    """One GPU as NVML has it. Every method may raise ``nvml.NVMLError``."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self.nvml = nvml
        self._handle = handle
        self._numbers_like_us = _in_first_pid_namespace()

    def sample(self) -> Sample:
        nvml, handle = self.nvml, self._handle
        reasons = self._reasons()
        return Sample(
            sm_clock_mhz=nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
            sm_clock_mhz_max=nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM),
            throttling=tuple(words for bit, words in _THROTTLING.items() if reasons & bit),
            power_capped=bool(reasons & _POWER_CAP),
            throttled_ns=self._counters(),
            processes=frozenset(
                process.pid for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle)
            ),
            memory_used_bytes=nvml.nvmlDeviceGetMemoryInfo(handle).used,
        )

    def use_since(self, since_us: int) -> Mapping[int, int] | Unknown:
        """The share of time in percent in which each process's kernels ran, in the samples taken
        since an instant; empty where no sample was, or nobody worked."""
        nvml = self.nvml
        try:
            samples = nvml.nvmlDeviceGetProcessUtilization(self._handle, since_us)
        except nvml.NVMLError_NotFound:
            return {}
        except nvml.NVMLError as error:
            return Unknown(_refused(error))
        use: dict[int, int] = {}
        for one in samples:
            if one.pid and one.timeStamp > since_us:  # unused slots are zero
                use[one.pid] = max(one.smUtil, use.get(one.pid, 0))
        self._numbers_like_us |= os.getpid() in use
        return use

    def others_of(self, use: Mapping[int, int]) -> Mapping[int, int]:
        """Of the processes in ``use``, those that worked and are certainly not this one alone."""
        working = {pid: share for pid, share in use.items() if share >= _WORKS_FROM_PERCENT}
        if self._numbers_like_us:
            return {pid: share for pid, share in working.items() if pid != os.getpid()}
        return working if len(working) > 1 else {}

    def others_on(self, seen: Sample) -> bool:
        """Whether other processes are on the GPU, working or not."""
        if self._numbers_like_us or os.getpid() in seen.processes:
            return bool(seen.processes - {os.getpid()})
        return len(seen.processes) > 1

    def _reasons(self) -> int:
        nvml = self.nvml
        try:
            return int(nvml.nvmlDeviceGetCurrentClocksEventReasons(self._handle))
        except nvml.NVMLError_FunctionNotFound:  # the name before driver 535
            return int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle))

    def _counters(self) -> dict[str, int]:
        nvml = self.nvml
        try:
            values = nvml.nvmlDeviceGetFieldValues(self._handle, list(_COUNTERS))
        except (nvml.NVMLError_NotSupported, nvml.NVMLError_FunctionNotFound):
            return {}
        return {
            _COUNTERS[value.fieldId]: int(value.value.ullVal)
            for value in values
            if value.nvmlReturn == nvml.NVML_SUCCESS
        }


def nvml_facts() -> NvmlFacts:
    """The driver's version, and which GPUs are divided; or why NVML cannot be asked."""
    nvml = _library(os.getpid())
    if isinstance(nvml, Unknown):
        return NvmlFacts(error=nvml.why)
    try:
        version = nvml.nvmlSystemGetDriverVersion()
        mig = tuple(_is_cut(nvml, handle) for handle in _handles(nvml))
    except nvml.NVMLError as error:
        return NvmlFacts(error=_refused(error))
    # Older releases of the package answer in bytes.
    return NvmlFacts(driver=version.decode() if isinstance(version, bytes) else version, mig=mig)


def gpu_uuids() -> tuple[str, ...] | Unknown:
    """The UUIDs of the GPUs that this process may use, as ``CUDA_VISIBLE_DEVICES`` takes them.

    Unknown where NVML cannot be had, and where a GPU is cut into MIG instances: which of them a
    process gets is for the user to say.
    """
    nvml = _library(os.getpid())
    if isinstance(nvml, Unknown):
        return nvml
    try:
        handles = _handles(nvml)
        if any(_is_cut(nvml, handle) for handle in handles):
            return Unknown("a GPU is in MIG mode: name its instances in CUDA_VISIBLE_DEVICES")
        return tuple(nvml.nvmlDeviceGetUUID(handle) for handle in handles)
    except nvml.NVMLError as error:
        return Unknown(_refused(error))


def _handles(nvml: Any) -> list[Any]:
    return [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]


def _is_cut(nvml: Any, handle: Any) -> bool:
    try:
        current, _ = nvml.nvmlDeviceGetMigMode(handle)
    except (nvml.NVMLError_NotSupported, nvml.NVMLError_FunctionNotFound):
        return False
    return bool(current)


def _gpu(device: Device) -> _Gpu | Unknown:
    if device.kind != "cuda":
        return Unknown("")  # of the CPU nothing is claimed
    return _gpu_of(os.getpid(), gpu_uuid(device))


@functools.cache
def _gpu_of(process: int, uuid: str) -> _Gpu | Unknown:
    nvml = _library(process)
    if isinstance(nvml, Unknown):
        return nvml
    try:
        return _Gpu(nvml, nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}"))
    except nvml.NVMLError as error:
        # torch gives a MIG instance's own UUID.
        with contextlib.suppress(nvml.NVMLError):
            nvml.nvmlDeviceGetHandleByUUID(f"MIG-{uuid}")
            return Unknown(
                "NVML could not be had: this is a MIG instance, for which it reports neither the "
                "clock nor the work of processes"
            )
        return Unknown(_refused(error))


@functools.cache
def _library(process: int) -> Any | Unknown:
    """pynvml, initialised once per process."""
    try:
        import pynvml
    except ImportError as error:
        return Unknown(f"NVML could not be had: {error}; install nvidia-ml-py")
    try:
        pynvml.nvmlInit()
    except (pynvml.NVMLError, OSError) as error:  # its library may be there and not load
        return Unknown(_refused(error))
    return pynvml


def _refused(error: Exception) -> str:
    return f"NVML could not be had: {error}"


def _throttling_between(before: Sample, after: Sample) -> tuple[str, ...]:
    """Why the GPU throttled between two looks, each reason once."""
    grown = [
        reason
        for reason, spent in after.throttled_ns.items()
        if spent > before.throttled_ns.get(reason, spent)
    ]
    return tuple(dict.fromkeys([*before.throttling, *after.throttling, *grown]))


def _with_sample(known: Conditions, seen: Sample) -> Conditions:
    clock = seen.sm_clock_mhz
    low, high = known.sm_clock_mhz_low, known.sm_clock_mhz_high
    return replace(
        known,
        power_capped_blocks=known.power_capped_blocks + seen.power_capped,
        sm_clock_mhz_low=clock if low is None else min(low, clock),
        sm_clock_mhz_high=clock if high is None else max(high, clock),
        sm_clock_mhz_max=seen.sm_clock_mhz_max,
    )


def _with_throttled_block(
    known: Conditions, throttling: tuple[str, ...], rounds: int
) -> Conditions:
    return replace(
        known,
        throttled_blocks=known.throttled_blocks + 1,
        discarded_rounds=known.discarded_rounds + rounds,
        throttle_reasons=tuple(dict.fromkeys([*known.throttle_reasons, *throttling])),
    )


def _in_first_pid_namespace() -> bool:
    """Whether this process has the number that the driver knows it by; not in most containers."""
    try:
        return os.readlink("/proc/self/ns/pid") == _FIRST_PID_NAMESPACE
    except OSError:
        return False


def _pulse(device: Device) -> None:
    """A tiny kernel, so that this process shows in NVML's next sample."""
    torch = load_torch()
    with torch.cuda.device(device.index):
        torch.cuda._sleep(1)
        torch.cuda.synchronize()


def _now_us() -> int:
    """The clock that NVML stamps its samples with, in microseconds."""
    return time.time_ns() // 1000


def _us(seconds: float) -> int:
    return int(seconds * 1e6)
