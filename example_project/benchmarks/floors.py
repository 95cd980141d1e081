"""What no version can beat: the matrix rate and the copy bandwidth of this very device, now."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from .inputs import dtype_on
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
    itemsize: int
    event_us: float = 0.0

    def bound(self, shape: Shape) -> str:
        """What holds a shape back: "FLOP/s" or "B/s"."""
        moving = shape.bytes(self.itemsize) / self.bandwidth
        return "B/s" if moving > shape.flops / self.flops else "FLOP/s"

    def least_us(self, shape: Shape) -> float:
        """The shortest time by that bound."""
        return 1e6 * max(shape.flops / self.flops, shape.bytes(self.itemsize) / self.bandwidth)


def measure_floors(kind: str) -> Floors:
    """A GEMM of 8192 x 8192 x 8192 and a copy of 4.3 GB, on random data; medians."""
    edge, size = _EDGE[kind], _COPIED[kind]
    a, b = (torch.randn(edge, edge, device=kind, dtype=dtype_on(kind)) for _ in range(2))
    product = torch.empty_like(a)
    flops = 2 * edge**3 / _median_seconds(kind, lambda: torch.mm(a, b, out=product))
    source = torch.randint(0, 127, (size,), device=kind, dtype=torch.int8)
    target = torch.empty_like(source)
    bandwidth = 2 * size / _median_seconds(kind, lambda: target.copy_(source))
    event_us = _median_seconds(kind, lambda: None) * 1e6
    return Floors(flops, bandwidth, a.element_size(), event_us)


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
