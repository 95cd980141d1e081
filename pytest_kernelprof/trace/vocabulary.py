"""What the events of a trace are called: categories, and the names of calls and activities.

A launch is never known by its name alone: it is what shares a correlation id with a kernel. The
names serve to find the launches that have lost theirs, and what is no launch.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from pytest_kernelprof.trace.model import KERNEL, MEMCPY, MEMSET

if TYPE_CHECKING:
    from pytest_kernelprof.trace.model import Bools, Strings

ACTIVITY_KINDS = {"kernel": KERNEL, "gpu_memcpy": MEMCPY, "gpu_memset": MEMSET}

_TABLES = {
    "cpu_op": "operator",
    "user_annotation": "operator",
    **dict.fromkeys(ACTIVITY_KINDS, "activity"),
    "cuda_sync": "wait",
    "overhead": "overhead",
    "python_function": "frame",
}
ANNOTATION = "user_annotation"
FORWARD_BACKWARD = "fwdbwd"


def table_of(category: str) -> str:
    """The table that a category's events go to; empty for what is not read.

    Other back ends name their calls after themselves: xpu_runtime, mtia_runtime, ...
    """
    known = _TABLES.get(category)
    if known is None:
        known = "call" if category.endswith(("_runtime", "_driver")) else ""
    return known


# Calls of the host. A host function is enqueued but runs no kernel.
LAUNCH = re.compile(r"launch|enqueue", re.I)
NO_KERNEL = re.compile(r"host_?func|memcpy|memset|mem_?copy|mem_?fill", re.I)
MEMCPY_CALL = re.compile(r"memcpy", re.I)
GRAPH_LAUNCH = re.compile(r"graph_?launch", re.I)
CAPTURE_BEGINS = re.compile("StreamBeginCapture")
CAPTURE_ENDS = re.compile("StreamEndCapture")
POLLING = re.compile(r"query", re.I)
WAIT_CALL = re.compile(r"synchronize|^(cuda|hip)Memcpy(?!.*(Async|Batch))", re.I)
CLOSING_CALL = re.compile("DeviceSynchronize")
# A stream that waits for an event of another: the host goes on.
NOT_A_HOST_WAIT = re.compile(r"wait event", re.I)

# Copies name the kinds of memory that they go between.
PAGEABLE = re.compile("Pageable")
TO_PAGEABLE = re.compile("-> Pageable")
DIRECTION = re.compile(r"\b([HDP])to([HDP])\b")

# Signs of cold code.
COLD_OVERHEAD = re.compile(r"lazy function loading|module loading", re.I)
COLD_CALL = re.compile(r"moduleload|libraryload|linkcreate", re.I)
COMPILATION = re.compile(r"compile_id=|\(dynamo_timed\)|CachingAutotuner|compile_inner")
TIMED = re.compile(r"\(dynamo_timed\)")
_KINDS_OF_COMPILATION = (
    ("autotuning", re.compile(r"benchmark|autotun|coordinate_descent", re.I)),
    ("recording of a CUDA graph", re.compile(r"cuda_?graph", re.I)),
    ("compilation of a backward", re.compile(r"backward", re.I)),
)


def compilation_words(name: str) -> str:
    """What the compiler does in a span of that name."""
    found = (words for words, pattern in _KINDS_OF_COMPILATION if pattern.search(name))
    return next(found, "compilation")


# A compiled function asks whether what was compiled fits, and then runs it: code that torch.compile
# compiled, and in it a graph that Inductor made.
LOOKUP = "TorchDynamo Cache Lookup"
COMPILED_REGION = re.compile("^Torch-Compiled Region")
INDUCTOR_GRAPH = re.compile("^## Call CompiledFxGraph ")


def matches(names: Strings, pattern: re.Pattern[str]) -> Bools:
    """Which names a pattern is found in: searched once for each different name."""
    all_names = names.tolist()
    verdict = {name: pattern.search(name) is not None for name in set(all_names)}
    return np.fromiter(map(verdict.__getitem__, all_names), np.bool_, len(all_names))
