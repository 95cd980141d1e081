"""pytest-kernelprof: tests that know how many kernels their code launches.

The public names load on first use, so that importing the package costs little.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any


def keep_our_assertions() -> None:
    """pytest rewrites the assertions of each module of an installed plugin, and ours say enough.
    That is 6 ms a start, and 70 ms where no bytecode can be written. PYTEST_DONT_REWRITE in
    docstrings would not help: it is read when a module has been parsed."""
    for finder in sys.meta_path:
        if type(finder).__module__ == "_pytest.assertion.rewrite":
            getattr(finder, "_must_rewrite", set[str]()).discard(__name__)


keep_our_assertions()

from pytest_kernelprof import system as _system  # noqa: E402, F401 (bound before any test runs)

if TYPE_CHECKING:
    from pytest_kernelprof.allowances import allow
    from pytest_kernelprof.api import Profile, profile
    from pytest_kernelprof.errors import (
        CannotMeasureError,
        GpuBusy,
        IncompleteProfile,
        KernelprofError,
        LimitExceeded,
        MarkerError,
        ProfilerUnavailable,
        SnapshotError,
        TraceError,
        WrongResult,
    )
    from pytest_kernelprof.plugin.benchmark import KernelBenchmark
    from pytest_kernelprof.plugin.fixture import Comparison, KernelProfile, KernelprofWarning
    from pytest_kernelprof.records.profile import Kernel

    __version__: str

__all__ = [
    "CannotMeasureError",
    "Comparison",
    "GpuBusy",
    "IncompleteProfile",
    "Kernel",
    "KernelBenchmark",
    "KernelProfile",
    "KernelprofError",
    "KernelprofWarning",
    "LimitExceeded",
    "MarkerError",
    "Profile",
    "ProfilerUnavailable",
    "SnapshotError",
    "TraceError",
    "WrongResult",
    "allow",
    "profile",
]

_HOMES = {
    "Comparison": "plugin.fixture",
    "Kernel": "records.profile",
    "KernelBenchmark": "plugin.benchmark",
    "KernelProfile": "plugin.fixture",
    "KernelprofWarning": "plugin.fixture",
    "Profile": "api",
    "allow": "allowances",
    "profile": "api",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _version()
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_HOMES.get(name, 'errors')}")
    return globals().setdefault(name, getattr(module, name))  # later uses look nothing up


def _version() -> str:
    """Return the installed version; a copy that is only on the path has none."""
    from importlib import metadata

    try:
        return metadata.version("pytest-kernelprof")
    except metadata.PackageNotFoundError:
        return "0+unknown"
