"""Other profiling tools in this process: CUPTI serves one tool a process, and they may be it."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

# What other profiling tools put into the environment of the processes that they watch.
_VARIABLES = {
    "NSYS_": "Nsight Systems",
    "NV_NSIGHT_": "Nsight Compute",
    "NV_COMPUTE_PROFILER": "Nsight Compute",
    "CUDA_INJECTION64_PATH": "a library from CUDA_INJECTION64_PATH",
}
_LIBRARIES = re.compile(
    r"libToolsInjection|libcuda-injection|libnsys|libInterceptorInjection|nsight-(systems|compute)"
    r"|libaccinj|libproton"
)


def tools_of(environment: Iterable[str]) -> list[str]:
    """The profiling tools that variables of these names tell of, each once."""
    return sorted(
        {
            tool
            for name in environment
            for start, tool in _VARIABLES.items()
            if name.startswith(start)
        }
    )


def injected_libraries(paths: Iterable[str]) -> tuple[str, ...]:
    """File names of profiling tools' libraries among the files of a process, each once."""
    return tuple(sorted({os.path.basename(path) for path in paths if _LIBRARIES.search(path)}))
