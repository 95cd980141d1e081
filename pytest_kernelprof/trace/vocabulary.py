"""The names in a trace: categories, calls, activities, and the back end that they tell of.

A launch is never known by its name alone: it is what shares a correlation id with a kernel. The
names serve to find the launches that have lost theirs, and what is no launch.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Collection, Iterable

import numpy as np

from pytest_kernelprof.records.recording import Origin
from pytest_kernelprof.trace.columns import KERNEL, MEMCPY, MEMSET, Trace
from pytest_kernelprof.units import first_of

# Kineto of 2021 and 2022 (torch 1.8 to 1.12) had names of its own.
_OLD_ACTIVITY_KINDS = {"Kernel": KERNEL, "Memcpy": MEMCPY, "Memset": MEMSET}
OLD_CATEGORIES = frozenset((*_OLD_ACTIVITY_KINDS, "Operator", "Runtime"))
ACTIVITY_KINDS = {
    "kernel": KERNEL,
    "gpu_memcpy": MEMCPY,
    "gpu_memset": MEMSET,
    **_OLD_ACTIVITY_KINDS,
}

_TABLES = {
    "cpu_op": "operator",
    "Operator": "operator",
    "user_annotation": "operator",
    "Runtime": "call",
    **dict.fromkeys(ACTIVITY_KINDS, "activity"),
    "cuda_sync": "wait",
    **dict.fromkeys(("overhead", "Trace"), "overhead"),
    "python_function": "frame",
}
ANNOTATION = "user_annotation"
FLOWS = ("fwdbwd", "forward_backward")
"""Arrows from forward to backward. Those from calls to activities are not read."""

# What the calls of each back end's runtime and driver are called, and what names its records.
_CALLS_OF = re.compile(r"^(\w+?)_(?:runtime|driver)$")
_HIP_CALL = re.compile("^hip[A-Z]")
MTIA = "MTIA"


def table_of(category: str) -> str:
    """The table that a category's events go to; empty for what is not read.

    Other back ends name their calls after themselves: xpu_runtime, mtia_runtime, ...
    """
    return _TABLES.get(category) or ("call" if _CALLS_OF.match(category) else "")


def back_end_of(categories: Collection[str], calls: Iterable[str]) -> str:
    """Whose runtime recorded a trace: "CUDA", "ROCm", "XPU", "MTIA" or another's own name; empty
    where nothing of a device is recorded. ROCm has the categories of CUDA."""
    found = {_CALLS_OF.sub(r"\1", one) for one in categories if _CALLS_OF.match(one)}
    if "mtia_ccp_events" in categories:
        found.add("mtia")
    if others := sorted(found - {"cuda"}):
        return others[0].upper()
    if any(map(_HIP_CALL.match, calls)):
        return "ROCm"
    return "CUDA" if found or not ACTIVITY_KINDS.keys().isdisjoint(categories) else ""


# How PyTorch's dispatcher names operators; ranges of autograd and the profiler are named otherwise.
OPERATOR = re.compile(r"(?!profiler::)\w+::\w+(\.\w+)?")

# Calls of the host. A host function is enqueued but runs no kernel.
LAUNCH = re.compile(r"launch|enqueue_?command_?buffer", re.I)
NO_KERNEL = re.compile(r"host_?func|memcpy|memset|mem_?copy|(mem|usm)_?fill", re.I)
MEMCPY_CALL = re.compile(r"memcpy", re.I)
MEMSET_CALL = re.compile(r"memset", re.I)
GRAPH_LAUNCH = re.compile(r"graph_?launch|enqueue_?command_?buffer", re.I)
# Of one call each: nodes of a graph, copies of a batch, launches on several devices.
MANY_ACTIVITIES = re.compile(GRAPH_LAUNCH.pattern + "|batch|multi_?(kernel|device)", re.I)
CAPTURE_BEGINS = re.compile("StreamBeginCapture")
CAPTURE_ENDS = re.compile("StreamEndCapture")
POLLING = re.compile(r"query", re.I)
WAIT_CALL = re.compile(
    r"synchronize|^(cuda|hip)Memcpy(?!.*(Async|Batch))|^ur(QueueFinish|EventWait)$", re.I
)
CLOSING_CALL = re.compile("DeviceSynchronize")
# A stream that waits for an event of another: the host goes on.
NOT_A_HOST_WAIT = re.compile(r"wait event", re.I)

# Kernels that communicate. Libraries for it name all of theirs after themselves, in any version;
# PyTorch's own (symmetric memory) and vLLM's have these names.
_COMMUNICATES = re.compile(
    r"(?<![a-z])(?:nccl|rccl|oneccl|nvshmem|rocshmem)"
    r"|(?<![a-z_])(?:multimem_|one_shot_|two_shot_)(?:one_shot_)?all_(?:reduce|gather)_kernel"
    r"|(?<![a-z_])cross_device_reduce_[12]stage"
    r"|(?<![a-z_])barrier_kernel\(unsigned int ?\*\*",
    re.I,
)
_OPERATION = re.compile(
    r"nccl(?:Symk?)?(?:Dev)?Kernel_([A-Z][A-Za-z]+)|nccl([A-Z][a-z]+(?:Reduce|Gather|Scatter|Recv)?)"
)
# What gloo does on the host, as torch annotates it.
GLOO = "gloo:"


@functools.lru_cache(maxsize=4096)
def communicates(name: str) -> bool:
    """Whether a kernel of that name is there to communicate with other ranks."""
    return _COMMUNICATES.search(name) is not None


def operation_of(name: str) -> str:
    """What a communication kernel does by its name: "AllReduce"; empty where that does not say."""
    found = _OPERATION.search(name)
    operation = (found[1] or found[2]) if found else ""
    return "" if operation == "Generic" else operation


# Copies name the kinds of memory that they go between.
PAGEABLE = re.compile("Pageable")
TO_PAGEABLE = re.compile("-> Pageable")
# XPU calls memory of the host M, ROCm spells both out; arrays are on the device.
_SIDE = "([HDPAM])(?:ost|evice)?"
_DIRECTION = re.compile(rf"\b(?:Copy)?{_SIDE}(?:[tT]o|2){_SIDE}\b")
_SIDES = str.maketrans("AM", "DH")


@functools.lru_cache(maxsize=4096)
def direction_of(name: str) -> str:
    """The direction of a memcpy of that name: "h2d", "d2h", "d2d", "p2p", or "?"."""
    match = _DIRECTION.search(name)
    return f"{match[1]}2{match[2]}".translate(_SIDES).lower() if match else "?"


# The span of a whole recording.
RECORDING = re.compile("^PyTorch Profiler")

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
# compiled, which begins with bytecode of the compiler's, and in it a graph that Inductor made.
LOOKUP = "TorchDynamo Cache Lookup"
COMPILED_REGION = re.compile("^Torch-Compiled Region")
REGION_BEGINS = "Pregraph bytecode"
INDUCTOR_GRAPH = re.compile("^## Call CompiledFxGraph ")


def tally(names: Iterable[str]) -> str:
    """The first names, each with how often it is there."""
    return ", ".join(first_of([f"{name} x{n}" for name, n in Counter(names).items()], 3, "..."))


def origin_of(trace: Trace) -> Origin:
    """What to say of a trace's origin.

    Processes are those with operators or calls, devices those with activities.
    """
    ours = [table.thread for table in (trace.operators, trace.calls)]
    processes = np.unique(trace.process_of_thread[np.concatenate(ours)])
    acts = trace.activities
    devices = np.unique(acts.process * (int(acts.device.max(initial=0)) + 2) + acts.device)
    form = "in the form of 2021" if OLD_CATEGORIES.intersection(trace.categories) else ""
    return Origin(trace.back_end or "CPU", form, len(processes), len(devices))
