"""What NVML says of a GPU: clock, power limit, throttling, who works on it, and the driver; and
what a saved benchmark says of all that."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from pytest_kernelprof.errors import ProfilerUnavailable
from pytest_kernelprof.gpu.inventory import Device, current_device, gpu_uuid, why_no_gpu
from pytest_kernelprof.gpu.procfs import pid_namespace

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
FIRST_PID_NAMESPACE = "pid:[4026531836]"


class Sample(NamedTuple):
    """What of a GPU changes from one block of rounds to the next.

    Attributes:
        sm_clock_mhz: the SM clock now.
        throttling: why it throttles at this moment, in words; empty where it does not.
        power_capped: whether it is at its power limit, which is no throttling.
        throttled_ns: time spent throttled since the driver was loaded, by reason.
    """

    sm_clock_mhz: int
    throttling: tuple[str, ...]
    power_capped: bool
    throttled_ns: dict[str, int]


class Use(NamedTuple):
    """The driver's sample of one process.

    Attributes:
        pid: as the driver numbers it.
        at_us: when the sample ends, in microseconds since 1970.
        percent: the share of its time in which kernels of the process ran.
    """

    pid: int
    at_us: int
    percent: int


class Unknown(NamedTuple):
    """There is no sample; ``why`` says so in words."""

    why: str


class NvmlFacts(NamedTuple):
    """What the driver's management library says.

    Attributes:
        error: why it could not be asked; empty where it could.
        driver: the driver's version.
        mig: for each GPU of the machine whether it is divided (MIG).
    """

    error: str = ""
    driver: str = ""
    mig: tuple[bool, ...] = ()


class Gpu:
    """One GPU as NVML has it, the same object as long as the process lives: what cannot change is
    asked once. Every method may raise ``nvml.NVMLError``.

    Attributes:
        numbers_like_us: whether the driver numbers processes as this one does.

    On an H200 the clocks' reasons and the clock take microseconds, the counters 1.2 ms and the use
    by processes 1.4 ms.
    """

    def __init__(self, nvml: Any, handle: Any) -> None:
        self.nvml = nvml
        self._handle = handle
        self.numbers_like_us = pid_namespace() == FIRST_PID_NAMESPACE  # not in most containers
        self._counters_there = list(_COUNTERS)

    @functools.cached_property
    def sm_clock_mhz_max(self) -> int:
        """The highest SM clock that this GPU has."""
        return int(self.nvml.nvmlDeviceGetMaxClockInfo(self._handle, self.nvml.NVML_CLOCK_SM))

    def sample(self) -> Sample:
        """One look at clock and throttling."""
        nvml, handle = self.nvml, self._handle
        reasons = self._reasons()
        return Sample(
            sm_clock_mhz=nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
            throttling=tuple(words for bit, words in _THROTTLING.items() if reasons & bit),
            power_capped=bool(reasons & _POWER_CAP),
            throttled_ns=self._counters(),
        )

    def power_limit_w(self) -> int:
        """What it may draw now, in watts: the lowest of the limits that are set on it."""
        return round(int(self.nvml.nvmlDeviceGetEnforcedPowerLimit(self._handle)) / 1000)

    def processes(self) -> frozenset[int]:
        """The pids of the processes that compute on it or hold memory of it, as the driver numbers
        them; none where it does not tell a container of them."""
        listed = self.nvml.nvmlDeviceGetComputeRunningProcesses(self._handle)
        return frozenset(process.pid for process in listed)

    def use_since(self, since_us: int) -> tuple[Use, ...] | Unknown:
        """The samples of processes that were taken since an instant, an H200's last one of each;
        empty where none was, or nobody worked."""
        nvml = self.nvml
        try:
            samples = nvml.nvmlDeviceGetProcessUtilization(self._handle, since_us)
        except nvml.NVMLError_NotFound:
            return ()
        except nvml.NVMLError as error:
            return Unknown(refused(error))
        found = [Use(one.pid, one.timeStamp, one.smUtil) for one in samples]
        used = tuple(one for one in found if one.pid and one.at_us > since_us)  # unused are zero
        self.numbers_like_us |= os.getpid() in {one.pid for one in used}
        return used

    def others_in(self, used: Iterable[Use], at_work: int = 1) -> Mapping[int, int]:
        """Of the processes in samples, those that worked and are certainly not this one alone; the
        largest share of each in percent.

        Args:
            at_work: how many may be ours, where this process cannot be told apart.
        """
        working: dict[int, int] = {}
        for one in used:
            if one.percent >= _WORKS_FROM_PERCENT:
                working[one.pid] = max(one.percent, working.get(one.pid, 0))
        if self.numbers_like_us:
            return {pid: share for pid, share in working.items() if pid != os.getpid()}
        return working if len(working) > at_work else {}

    def others_among(
        self, processes: frozenset[int], known: frozenset[int] = frozenset(), at_work: int = 1
    ) -> bool:
        """Whether other processes are on the GPU, working or not, but for those that are known.

        Args:
            at_work: as of ``others_in``.
        """
        if self.numbers_like_us or os.getpid() in processes:
            return bool(processes - known - {os.getpid()})
        return len(processes) > at_work

    def is_ours_alone(self) -> bool:
        """Whether one process is told to be on the GPU, which is this one, since it works there."""
        processes = self.processes()
        return len(processes) == 1 and not self.others_among(processes)

    def _reasons(self) -> int:
        nvml = self.nvml
        try:
            return int(nvml.nvmlDeviceGetCurrentClocksEventReasons(self._handle))
        except nvml.NVMLError_FunctionNotFound:  # the name before driver 535
            return int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle))

    def _counters(self) -> dict[str, int]:
        """Those that this GPU has, which the first answer tells."""
        nvml = self.nvml
        if not self._counters_there:
            return {}
        try:
            values = nvml.nvmlDeviceGetFieldValues(self._handle, self._counters_there)
        except (nvml.NVMLError_NotSupported, nvml.NVMLError_FunctionNotFound):
            self._counters_there = []
            return {}
        missing = {one.fieldId for one in values if one.nvmlReturn == nvml.NVML_ERROR_NOT_SUPPORTED}
        self._counters_there = [one for one in self._counters_there if one not in missing]
        known = (one for one in values if one.nvmlReturn == nvml.NVML_SUCCESS)
        return {_COUNTERS[one.fieldId]: int(one.value.ullVal) for one in known}


def nvml_facts() -> NvmlFacts:
    """The driver's version, and which GPUs are divided; or why NVML cannot be asked."""
    if isinstance(nvml := _library(os.getpid()), Unknown):
        return NvmlFacts(error=nvml.why)
    try:
        version = nvml.nvmlSystemGetDriverVersion()
        mig = tuple(_is_cut(nvml, handle) for handle in _handles(nvml))
    except nvml.NVMLError as error:
        return NvmlFacts(error=refused(error))
    # Older releases of the package answer in bytes.
    return NvmlFacts(driver=version.decode() if isinstance(version, bytes) else version, mig=mig)


def gpu_uuids() -> tuple[str, ...]:
    """The UUIDs of the GPUs that this process may use, as ``CUDA_VISIBLE_DEVICES`` takes them.

    None where NVML does not tell, and where a GPU is cut into MIG instances: which of them a
    process gets is for the user to say.
    """
    nvml = _library(os.getpid())
    if isinstance(nvml, Unknown) or any(nvml_facts().mig):
        return ()
    with contextlib.suppress(nvml.NVMLError):
        return tuple(nvml.nvmlDeviceGetUUID(handle) for handle in _handles(nvml))
    return ()


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
    return _gpu_of(os.getpid(), gpu_uuid(device.index))


def power_limit_w(device: Device) -> int | None:
    """The power limit of a GPU in watts; None where it could not be read, and of the CPU."""
    if isinstance(gpu := gpu_of(device), Unknown):
        return None
    with contextlib.suppress(gpu.nvml.NVMLError):
        return gpu.power_limit_w()
    return None


@functools.cache
def _gpu_of(process: int, uuid: str) -> Gpu | Unknown:
    if isinstance(nvml := _library(process), Unknown):
        return nvml
    try:
        return Gpu(nvml, nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}"))
    except nvml.NVMLError as error:
        # torch gives a MIG instance's own UUID.
        with contextlib.suppress(nvml.NVMLError):
            nvml.nvmlDeviceGetHandleByUUID(f"MIG-{uuid}")
            return Unknown(
                "NVML is not available: this is a MIG instance, for which it reports neither the "
                "clock nor the work of processes"
            )
        return Unknown(refused(error))


@functools.cache
def _library(process: int) -> Any | Unknown:
    """pynvml, initialised once per process."""
    try:
        import pynvml
    except ImportError as error:
        return Unknown(f"NVML is not available: {error}; install nvidia-ml-py")
    try:
        pynvml.nvmlInit()
    except (pynvml.NVMLError, OSError) as error:  # its library may be there and not load
        return Unknown(refused(error))
    return pynvml


def refused(error: Exception) -> str:
    """That NVML did not answer, in words."""
    return f"NVML is not available: {error}"


def describe_gpu() -> dict[str, str]:
    """The current GPU and its software as plain text: ``name``, ``capability``, ``driver``, and
    the versions of ``torch``, ``cuda`` and ``triton``, as far as they are there.

    Without a GPU there is ``missing`` instead of the first three, which says why. Nothing in it
    changes from run to run on an unchanged machine, so that saved runs compare equal.
    """
    try:
        reason = why_no_gpu()
        device = current_device("cpu" if reason else "cuda")
    except ProfilerUnavailable as error:  # no torch
        return {"missing": str(error)}
    # Of Python pytest-benchmark's own machine info tells.
    versions = {name: text for name, text in device.versions.items() if name != "python"}
    if reason:
        return {"missing": reason, **versions}
    found = {"name": device.name, "capability": device.capability}
    driver = nvml_facts().driver
    return {**found, **({"driver": driver} if driver else {}), **versions}
