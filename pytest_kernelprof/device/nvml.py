"""What NVML says of a GPU: clock, throttling, who works on it, and the driver's version."""

from __future__ import annotations

import contextlib
import functools
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_kernelprof.device.inventory import gpu_uuid

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_kernelprof.device.inventory import Device

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
    found = gpu_of(device)
    if isinstance(found, Unknown):
        return found
    try:
        return found.sample()
    except found.nvml.NVMLError as error:
        return Unknown(refused(error))


class Gpu:
    """One GPU as NVML has it. Every method may raise ``nvml.NVMLError``.

    Attributes:
        numbers_like_us: whether the driver numbers processes as this one does.
    """

    def __init__(self, nvml: Any, handle: Any) -> None:
        self.nvml = nvml
        self._handle = handle
        self.numbers_like_us = _in_first_pid_namespace()

    def sample(self) -> Sample:
        """One look at clock, throttling, processes and memory."""
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
            return Unknown(refused(error))
        use: dict[int, int] = {}
        for one in samples:
            if one.pid and one.timeStamp > since_us:  # unused slots are zero
                use[one.pid] = max(one.smUtil, use.get(one.pid, 0))
        self.numbers_like_us |= os.getpid() in use
        return use

    def others_of(self, use: Mapping[int, int]) -> Mapping[int, int]:
        """Of the processes in ``use``, those that worked and are certainly not this one alone."""
        working = {pid: share for pid, share in use.items() if share >= _WORKS_FROM_PERCENT}
        if self.numbers_like_us:
            return {pid: share for pid, share in working.items() if pid != os.getpid()}
        return working if len(working) > 1 else {}

    def others_on(self, seen: Sample, known: frozenset[int] = frozenset()) -> bool:
        """Whether other processes are on the GPU, working or not, but for those that are known."""
        if self.numbers_like_us or os.getpid() in seen.processes:
            return bool(seen.processes - known - {os.getpid()})
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
        return NvmlFacts(error=refused(error))
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
        return Unknown(refused(error))


def _handles(nvml: Any) -> list[Any]:
    return [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]


def _is_cut(nvml: Any, handle: Any) -> bool:
    try:
        current, _ = nvml.nvmlDeviceGetMigMode(handle)
    except (nvml.NVMLError_NotSupported, nvml.NVMLError_FunctionNotFound):
        return False
    return bool(current)


def gpu_of(device: Device) -> Gpu | Unknown:
    """The GPU as NVML has it, or why it cannot be asked; no words for the CPU."""
    if device.kind != "cuda":
        return Unknown("")  # of the CPU nothing is claimed
    return _gpu_of(os.getpid(), gpu_uuid(device))


@functools.cache
def _gpu_of(process: int, uuid: str) -> Gpu | Unknown:
    nvml = _library(process)
    if isinstance(nvml, Unknown):
        return nvml
    try:
        return Gpu(nvml, nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}"))
    except nvml.NVMLError as error:
        # torch gives a MIG instance's own UUID.
        with contextlib.suppress(nvml.NVMLError):
            nvml.nvmlDeviceGetHandleByUUID(f"MIG-{uuid}")
            return Unknown(
                "NVML could not be had: this is a MIG instance, for which it reports neither the "
                "clock nor the work of processes"
            )
        return Unknown(refused(error))


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
        return Unknown(refused(error))
    return pynvml


def refused(error: Exception) -> str:
    """That NVML did not answer, in words."""
    return f"NVML could not be had: {error}"


def _in_first_pid_namespace() -> bool:
    """Whether this process has the number that the driver knows it by; not in most containers."""
    try:
        return os.readlink("/proc/self/ns/pid") == _FIRST_PID_NAMESPACE
    except OSError:
        return False
