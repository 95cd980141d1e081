"""What keeps times of a GPU from being had: launches that block, and processes merged by MPS."""

from __future__ import annotations

import ctypes
import functools
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_kernelprof.device.inventory import Device

BLOCKING = "CUDA_LAUNCH_BLOCKING"
_LAUNCHES_BLOCK = (
    f"not available with {BLOCKING}=1: each launch waits for its kernel, which changes host "
    "times; run without it"
)
_SHARED = (
    "not available under MPS, which runs kernels of other processes beside those of this one; "
    "run without it"
)
_OF_THE_HOST = ("latency", "dispatch_time", "launch_overhead", "overhead_per_launch")
_OF_COMMUNICATION = ("comm_time", "exposed_comm_time", "comm_transfer", "comm_wait")
_OF_THE_DEVICE = ("cuda_time", *_OF_COMMUNICATION, "gpu_busy", "gpu_span", "gpu_idle")
# CUdevice_attribute of the driver's interface, since CUDA 12.4.
_MPS_ENABLED = 133


def no_times(device: Device) -> dict[str, str]:
    """The metrics that cannot be had on a GPU in this process, each with the reason."""
    if is_shared(device.index):
        return dict.fromkeys((*_OF_THE_DEVICE, *_OF_THE_HOST), _SHARED)
    return dict.fromkeys(_OF_THE_HOST, _LAUNCHES_BLOCK) if _launches_block() else {}


@functools.cache
def _launches_block() -> bool:
    """Asked when something is first measured: the driver reads it once, when it comes up."""
    return os.environ.get(BLOCKING) == "1"


@functools.cache
def is_shared(index: int) -> bool:
    """Whether contexts on a GPU are shared through MPS; False where the driver does not tell."""
    driver = _driver()
    if driver is None:
        return False
    ordinal, value = ctypes.c_int(), ctypes.c_int()
    if driver.cuDeviceGet(ctypes.byref(ordinal), index) != 0:
        return False
    answered = driver.cuDeviceGetAttribute(ctypes.byref(value), _MPS_ENABLED, ordinal) == 0
    return answered and value.value != 0


def _driver() -> Any | None:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
