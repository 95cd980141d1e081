"""What a machine said of itself: the plain facts that the doctor judges."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from pytest_kernelprof.device.nvml import NvmlFacts
from pytest_kernelprof.device.permissions import Permissions

if TYPE_CHECKING:
    from collections.abc import Mapping

_NOT_ASKED = NvmlFacts(error="not asked")
_UNKNOWN = Permissions()

CanaryState = Literal["seen", "blind", "no gpu", "crashed"]


@dataclass(frozen=True, slots=True)
class TorchFacts:
    """What torch says, asked in a process of its own.

    Attributes:
        error: why torch could not be imported or asked; the other fields are empty then.
        version, cuda, hip: versions; ``cuda`` and ``hip`` are empty for other builds.
        why_no_gpu: why torch has no usable GPU; empty where it has one.
        gpus: name and capability of each visible GPU, for example "NVIDIA H200, sm_90".
        cuda_activity: whether this build can record the device at all.
        cupti_path: the CUPTI library that torch loads; empty where none was found.
        cupti_version: what ``cuptiGetVersion`` answers; 0 where it could not be asked.
    """

    error: str = ""
    version: str = ""
    cuda: str = ""
    hip: str = ""
    why_no_gpu: str = ""
    gpus: tuple[str, ...] = ()
    cuda_activity: bool = False
    cupti_path: str = ""
    cupti_version: int = 0


@dataclass(frozen=True, slots=True)
class Canary:
    """Whether the profiler saw a kernel that was certainly launched, and if not, why."""

    state: CanaryState
    text: str = ""


@dataclass(frozen=True, slots=True)
class Machine:
    """All that the doctor looks at.

    Attributes:
        packages: versions of installed packages by name; those that are missing are left out.
        driver: version of the NVIDIA driver; empty where none is loaded.
        permissions: who may profile, and whether this process may.
        environment: the environment variables that matter to CUDA, CUPTI and Kineto.
        injected: profiling libraries that are loaded into this process.
        canary: a canary kernel under a CPU and CUDA profile, in a fresh process.
        canary_after_cpu: the same where a CPU-only profile went first; None if not tried.
        temp_folder, temp_error: where traces are written, and why they cannot be (or empty).
        temp_free_bytes: free space there; None where unknown.
    """

    torch: TorchFacts
    canary: Canary
    canary_after_cpu: Canary | None = None
    nvml: NvmlFacts = _NOT_ASKED
    packages: Mapping[str, str] = field(default_factory=dict)
    driver: str = ""
    permissions: Permissions = _UNKNOWN
    environment: Mapping[str, str] = field(default_factory=dict)
    injected: tuple[str, ...] = ()
    temp_folder: str = ""
    temp_error: str = ""
    temp_free_bytes: int | None = None
