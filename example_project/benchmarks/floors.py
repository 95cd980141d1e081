"""What bounds a shape on this very device: a matrix rate and a bandwidth, measured now.

A floor is no law of nature. It assumes that

- GEMMs run no faster than cuBLAS runs one of 8192 x 8192 x 8192 in bf16, at the clock that the GPU
  holds while it does so;
- every byte of x, the weights and y comes from memory and goes there once, at the rate of a copy,
  half of it reads. A kernel that only reads may be a few per cent quicker, and one whose weights
  or x lie in L2 already far quicker: the benchmark sees to it that they do not;
- the hidden layer costs nothing, and neither does starting a kernel.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from .shapes import Shape

HEAD_START = 200_000
"""Cycles, 0.1 ms: the GPU spins while the host hands over what is timed, so that an event pair
measures the device and not the launching."""

_CALLS = 15
_EDGE = {"cuda": 8192, "cpu": 512}
_COPIED = {"cuda": 2**32, "cpu": 2**24}


@dataclass(frozen=True)
class Floors:
    """Floating-point operations and bytes (read plus written) a second.

    ``event_us`` is what a pair of events around nothing reads: it is part of every graph time.
    """

    flops: float
    bandwidth: float
    event_us: float

    def least_us(self, shape: Shape) -> float:
        """The time by whichever holds the shape back."""
        return 1e6 * max(shape.flops / self.flops, shape.bytes / self.bandwidth)


def measure_floors(kind: str) -> Floors:
    """A GEMM and a copy of 4.3 GB, on random data; medians."""
    edge, size = _EDGE[kind], _COPIED[kind]
    dtype = torch.bfloat16 if kind == "cuda" else torch.float32
    a, b = (torch.randn(edge, edge, device=kind, dtype=dtype) for _ in range(2))
    product = torch.empty_like(a)
    flops = 2 * edge**3 / _median_seconds(kind, lambda: torch.mm(a, b, out=product))
    source = torch.randint(0, 127, (size,), device=kind, dtype=torch.int8)
    target = torch.empty_like(source)
    bandwidth = 2 * size / _median_seconds(kind, lambda: target.copy_(source))
    return Floors(flops, bandwidth, _median_seconds(kind, lambda: None) * 1e6)


def _median_seconds(kind: str, call: Callable[[], object]) -> float:
    for _ in range(3):
        call()
    return statistics.median(_seconds(kind, call) for _ in range(_CALLS))


def _seconds(kind: str, call: Callable[[], object]) -> float:
    if kind == "cpu":
        start = time.perf_counter()
        call()
        return time.perf_counter() - start
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(HEAD_START)
    begin.record()
    call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1e3
