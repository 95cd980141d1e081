"""pytest-kernelprof: tests that know how many kernels their code launches.

The public names load on first use, so that importing the package costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_kernelprof.comparison import Comparison, Comparisons
    from pytest_kernelprof.errors import (
        GpuBusy,
        IncompleteProfile,
        KernelprofError,
        LimitExceeded,
        MarkerError,
        ProfilerUnavailable,
        TraceError,
    )
    from pytest_kernelprof.fixture import KernelProfile, KernelprofWarning
    from pytest_kernelprof.measure import profile
    from pytest_kernelprof.profiles import Kernel, Profile

__all__ = [
    "Comparison",
    "Comparisons",
    "GpuBusy",
    "IncompleteProfile",
    "Kernel",
    "KernelProfile",
    "KernelprofError",
    "KernelprofWarning",
    "LimitExceeded",
    "MarkerError",
    "Profile",
    "ProfilerUnavailable",
    "TraceError",
    "profile",
]

_HOMES = {
    "Comparison": "comparison",
    "Comparisons": "comparison",
    "KernelProfile": "fixture",
    "KernelprofWarning": "fixture",
    "profile": "measure",
    "Kernel": "profiles",
    "Profile": "profiles",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_HOMES.get(name, 'errors')}")
    return getattr(module, name)
