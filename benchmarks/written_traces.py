"""Traces of any size, written in Kineto's layout as recordings from an H200 are: of four kinds.

plain: an operator, a launch call and a kernel each. watchdog: beside them a thread that polls, as
that of NCCL does, in no operator. captures: CUDA graphs captured and replayed, one after the other.
large args: operators with the shapes and values of their inputs, each different.

Events are what carries a time (``"ph": "X"``); arrows come on top, two for each kernel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable

EVENTS_A_KERNEL = 3
POINTWISE = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctorOnSelf_add<float>, "
    "std::array<char*, 2ul> >(int, at::native::CUDAFunctorOnSelf_add<float>, "
    "std::array<char*, 2ul>)"
)
GEMM = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT"
# One gated MLP: operator, launch call, kernel, grid, block, registers, shared memory, microseconds.
SHAPES: tuple[tuple[str, str, str, str, str, int, int, float], ...] = (
    ("aten::mm", "cuLaunchKernelEx", GEMM, "2, 66, 1", "384, 1, 1", 168, 213188, 56.896),
    ("aten::gelu", "cudaLaunchKernel", POINTWISE, "24576, 1, 1", "128, 1, 1", 32, 0, 33.6),
    ("aten::mm", "cuLaunchKernelEx", GEMM, "2, 66, 1", "384, 1, 1", 168, 213188, 57.12),
    ("aten::mul", "cudaLaunchKernel", POINTWISE, "24576, 1, 1", "128, 1, 1", 28, 0, 41.983),
    ("aten::mm", "cuLaunchKernelEx", GEMM, "6, 64, 1", "384, 1, 1", 168, 221420, 51.68),
)
HEAD = """
  {
    "schemaVersion": 1,
    "deviceProperties": [
    {
      "id": 0, "name": "NVIDIA H200 (written, not recorded)", "totalGlobalMem": 150109880320,
      "computeMajor": 9, "computeMinor": 0, "warpSize": 32, "numSms": 132
    }
    ],
  "displayTimeUnit": "ms",
  "baseTimeNanoseconds": 1790857026000000000,
  "traceEvents": ["""
HEAD_WITH_SHAPES = HEAD.replace('"schemaVersion"', '"record_shapes": 1,\n    "schemaVersion"')
TAIL = """
  {
    "name": "process_name", "ph": "M", "ts": 4356140510954.590, "pid": 398, "tid": 0,
    "args": {
      "name": "python3"
    }
  },
  {
    "name": "Record Window End", "ph": "i", "s": "g",
    "pid": "", "tid": "", "ts": %s
  }
  ],
  "traceName": "written.json"
}
"""


def us(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03d}"


def write_trace(file: TextIO, events: int, kind: str = "plain") -> int:
    """Write a trace of that many events in Kineto's own order and layout: the operators first, then
    each kernel, its arrow, its launch call and that one's arrow. Hands back the number of kernels.

    Args:
        kind: one of ``KINDS``.
    """
    size, operator, device = KINDS[kind]
    units = events // size
    file.write(HEAD_WITH_SHAPES if kind == "large args" else HEAD)
    for i in range(units):
        file.write(operator(i))
    clock = Clock()
    kernels = sum(device(file, i, clock) for i in range(units))
    file.write(TAIL % us(clock.device_free + 1_000_000))
    return kernels


class Clock:
    """When the device is free again, in ns."""

    device_free = 0

    def run(self, called: int, lasts: int) -> int:
        """When a kernel begins that was launched at a time and takes so long."""
        begins = max(self.device_free, called + 4_000)
        self.device_free = begins + lasts + 900
        return begins


def _operator(i: int, inputs: str = "") -> str:
    return f"""
  {{
    "ph": "X", "cat": "cpu_op", "name": "{SHAPES[i % len(SHAPES)][0]}", "pid": 398, "tid": 398,
    "ts": {us(FIRST + i * STEP)}, "dur": {us(19_380 + i % 977)},
    "args": {{
      "External id": {1537 + i},"Record function id": 0, {inputs}"Ev Idx": {i}
    }}
  }},"""


def _operator_with_inputs(i: int) -> str:
    rows, more = 1 + i % 8_191, 1 + i // 8_191
    strides = f"[[{768 * more}, 1], [768, 1], [{3072 * more}, 1], [], [], [1]]"
    values = ", ".join(f'"{i}.{j}"' for j in range(12))
    return _operator(
        i,
        f""""Concrete Inputs": ["", "", "", {values}], "Input type": ["c10::BFloat16",
        "c10::BFloat16", "c10::BFloat16", "Scalar", "ScalarList", "float"],
      "Input Strides": {strides}, "Input Dims": [[{rows}, {768 * more}], [768, 3072],
        [{rows}, {3072 * more}], [], [], [{more}]], """,
    )


def _kernel(begins: int, lasts: int, correlation: int, external_id: int, shape: int) -> str:
    _, _, name, grid, block, registers, shared, _ = SHAPES[shape % len(SHAPES)]
    return f"""
  {{
    "ph": "X", "cat": "kernel", "name": "{name}", "pid": 0, "tid": 7,
    "ts": {us(begins)}, "dur": {us(lasts)},
    "args": {{
      "External id": {external_id},
      "queued": 0, "device": 0, "context": 1,
      "stream": 7, "correlation": {correlation},
      "registers per thread": {registers},
      "shared memory": {shared},
      "blocks per SM": 1.0,
      "warps per SM": 12.0,
      "grid": [{grid}],
      "block": [{block}],
      "est. achieved occupancy %": 0
    }}
  }},
  {{
    "ph": "f", "id": {correlation}, "pid": 0, "tid": 7, "ts": {us(begins)},
    "cat": "ac2g", "name": "ac2g", "bp": "e"
  }},"""


def _call(
    name: str, at: int, lasts: int, correlation: int, external_id: int = 0, tid: int = 398
) -> str:
    driver = name.startswith("cuLaunch")
    category, cbid = ("cuda_driver", 652) if driver else ("cuda_runtime", 211)
    known = f'"External id": {external_id}, ' if external_id else ""
    return f"""
  {{
    "ph": "X", "cat": "{category}", "name": "{name}", "pid": 398, "tid": {tid},
    "ts": {us(at)}, "dur": {us(lasts)},
    "args": {{
      {known}"cbid": {cbid}, "correlation": {correlation}
    }}
  }},
  {{
    "ph": "s", "id": {correlation}, "pid": 398, "tid": {tid}, "ts": {us(at)},
    "cat": "ac2g", "name": "ac2g"
  }},"""


def _launch(file: TextIO, i: int, clock: Clock) -> int:
    """An operator's launch call and its kernel."""
    _, launch, *_, length = SHAPES[i % len(SHAPES)]
    correlation, called = 2_000_000 + IDS * i, FIRST + i * STEP + 6_000
    lasts = int(length * 1000) + i % 541
    begins = clock.run(called, lasts)
    file.write(_kernel(begins, lasts, correlation, 1537 + i, i))
    file.write(_call(launch, called, 9_000 + i % 733, correlation, 1537 + i))
    return 1


def _launch_and_poll(file: TextIO, i: int, clock: Clock) -> int:
    """The same, while a thread without operators polls."""
    launched = _launch(file, i, clock)
    for j in range(POLLS):
        at = FIRST + i * STEP + 1_000 + j * 2_000
        file.write(_call("cudaEventQuery", at, 700, 2_000_001 + IDS * i + j, tid=911))
    return launched


def _capture_and_replay(file: TextIO, i: int, clock: Clock) -> int:
    """A graph of three kernels: captured, which runs nothing, and launched."""
    at, correlation = FIRST + i * STEP + 1_000, 2_000_000 + IDS * i
    names = (
        "cudaStreamBeginCapture_v10000",
        *("cudaLaunchKernel",) * NODES,
        *("cudaStreamEndCapture", "cudaGraphInstantiate", "cudaGraphLaunch"),
    )
    for j, name in enumerate(names):
        file.write(_call(name, at + j * 1_500, 1_000, correlation + j, 1537 + i))
    launched = at + (len(names) - 1) * 1_500
    for j in range(NODES):
        begins = clock.run(launched, 2_000)
        file.write(_kernel(begins, 2_000, correlation + len(names) - 1, 1537 + i, j))
    return NODES


FIRST, STEP = 4356140511029_447, 23_417
POLLS, NODES, IDS = 9, 3, 16
# Events of one unit, its operator, and what writes the rest of it.
KINDS: dict[str, tuple[int, Callable[[int], str], Callable[[TextIO, int, Clock], int]]] = {
    "plain": (EVENTS_A_KERNEL, _operator, _launch),
    "watchdog": (EVENTS_A_KERNEL + POLLS, _operator, _launch_and_poll),
    "captures": (5 + 2 * NODES, _operator, _capture_and_replay),
    "large args": (EVENTS_A_KERNEL, _operator_with_inputs, _launch),
}
