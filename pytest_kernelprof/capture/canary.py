"""Brings the profiler up once per process and proves with a canary kernel that it sees the GPU."""

from __future__ import annotations

import ctypes
import os
import statistics
from dataclasses import dataclass
from typing import Any

from pytest_kernelprof.capture import profiler
from pytest_kernelprof.clock import now_ns
from pytest_kernelprof.device.attached_tools import tools_of
from pytest_kernelprof.device.bindings import as_made, without_modes
from pytest_kernelprof.device.inventory import Device, bound, load_torch
from pytest_kernelprof.device.permissions import profiling_is_refused
from pytest_kernelprof.device.procfs import mapped_files
from pytest_kernelprof.errors import ProfilerUnavailable
from pytest_kernelprof.system import Real

_PROBE_LAUNCHES = 16
_PROBE_ROUNDS = 30
_CUPTI_MULTIPLE_SUBSCRIBERS = 39
_CUPTI_INSUFFICIENT_PRIVILEGES = 35
_CUPTI_KIND_CONCURRENT_KERNEL = 10


@dataclass(frozen=True, slots=True)
class Primed:
    """The state after priming.

    Attributes:
        cupti_us_per_launch: host time that the attached CUPTI adds to one launch, profiled or
            not, in microseconds: the cost after priming less the cost before; never negative.
        cupti_ratio: the same as a ratio, after over before.
    """

    cupti_us_per_launch: float
    cupti_ratio: float


_primed: dict[tuple[int, int], Primed] = {}


def prime(device: Device) -> Primed:
    """Bring up CUPTI with CPU and CUDA activities, before anything else profiles.

    A first profile with CPU activity only can leave the device unseen for the rest of the process
    (pytorch #186036), hence before. Once per process and device; later calls cost nothing.

    Raises:
        ProfilerUnavailable: the canary kernel was not seen; the message names the cause.
    """
    key = (Real.getpid(), device.index)
    if key not in _primed:
        before = _cost_of_a_launch()
        if not canary_seen():
            raise ProfilerUnavailable(why_blind())
        after = _cost_of_a_launch()
        _primed[key] = Primed(max(0.0, after - before), after / before)
    return _primed[key]


def canary_seen() -> bool:
    """Whether a fresh profiler session sees a kernel that is certainly launched.

    Raises:
        ProfilerUnavailable: no profiler can be started.
    """
    torch = bound()
    with as_made():
        torch.module.cuda.init()
    torch.synchronize()
    running = profiler.start("cuda")
    try:
        torch.sleep(1)
        torch.synchronize()
    finally:
        results = running.end()
    on_gpu = torch.module.autograd.DeviceType.CUDA
    return results is not None and any(
        event.device_type() == on_gpu and "spin_kernel" in event.name()
        for event in results.events()
    )


def _cost_of_a_launch() -> float:
    """Host microseconds of launching one tiny kernel; median over rounds."""
    torch = bound()
    costs = []
    with as_made(), without_modes():
        cell = torch.module.zeros(1, device="cuda")
        for _ in range(_PROBE_ROUNDS):
            torch.synchronize()
            start = now_ns()
            for _ in range(_PROBE_LAUNCHES):
                cell.add_(1)
            costs.append((now_ns() - start) / 1e3 / _PROBE_LAUNCHES)
    return statistics.median(costs)


def why_blind() -> str:
    """The cause for which the profiler sees no kernels, and its remedy."""
    torch = load_torch()
    if torch.profiler.ProfilerActivity.CUDA not in torch.profiler.supported_activities():
        return (
            f"the profiler is blind: torch {torch.__version__} is built without CUPTI (no CUDA "
            "activity in torch.profiler.supported_activities()); install a build that has it"
        )
    return f"the profiler is blind: the canary kernel ran but was not recorded. {_cupti_cause()}"


def _cupti_cause() -> str:
    cupti = _loaded_cupti()
    if cupti is None:
        return (
            "CUPTI (libcupti) is not loaded into this process: install the CUPTI package that "
            "belongs to this CUDA, or a torch wheel that brings it."
        )
    code = _try_subscribing(cupti)
    if code == _CUPTI_MULTIPLE_SUBSCRIBERS:
        tool = ", ".join(tools_of(os.environ))
        return (
            "Another CUPTI subscriber holds this process"
            + (f" ({tool})" if tool else "")
            + ": CUPTI allows one. Run without nsys, ncu, Proton, DCGM profiling or another "
            "tracing library."
        )
    if code == _CUPTI_INSUFFICIENT_PRIVILEGES or profiling_is_refused():
        return (
            "This user may not profile (NVreg_RestrictProfilingToAdminUsers=1): load the driver "
            "with NVreg_RestrictProfilingToAdminUsers=0, or give the container CAP_SYS_ADMIN."
        )
    return (
        f"CUPTI returned {code}, so the cause is elsewhere: a CPU-only profiler that ran first "
        "in this process (pytorch #186036), or a known-bad CUPTI; run with KINETO_LOG_LEVEL=0 "
        "to see Kineto's own log."
    )


def _loaded_cupti() -> Any | None:
    paths = [path for path in mapped_files() if "libcupti.so" in path]
    return ctypes.CDLL(paths[0]) if paths else None


def _try_subscribing(cupti: Any) -> int:
    """CUPTI's own answer to a subscription and to enabling kernel records, undone at once."""
    callback_type = ctypes.CFUNCTYPE(
        None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p
    )
    handle = ctypes.c_void_p()
    callback = callback_type(lambda *_: None)
    code = int(cupti.cuptiSubscribe(ctypes.byref(handle), callback, None))
    if code == 0:
        cupti.cuptiUnsubscribe(handle)
        code = int(cupti.cuptiActivityEnable(_CUPTI_KIND_CONCURRENT_KERNEL))
        cupti.cuptiActivityDisable(_CUPTI_KIND_CONCURRENT_KERNEL)
    return code
