"""Kernels of Triton, one of which needs more registers than it gets; loaded where Triton is."""

import triton
import triton.language as tl


@triton.jit
def spilling(x, y, N: tl.constexpr):
    at = tl.arange(0, N)
    a, b, c = tl.load(x + at), tl.load(x + at * 3), tl.load(x + at * 5)
    total = tl.sum(a) + tl.sum(b) + tl.sum(c)
    tl.store(y + at, a * total + b / total + c)


@triton.jit
def adding(x, y, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(y + at, tl.load(x + at) + 1)


@triton.jit
def summing(x, y, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(y + at, tl.load(x + at) - tl.sum(tl.load(x + at)))


@triton.jit(noinline=True)
def twice(value):
    return value * 2


@triton.jit
def calling(x, y, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(y + at, tl.load(x + at) * twice(tl.load(x)))


FEW_REGISTERS = {"num_warps": 1, "maxnreg": 32}
"""What makes the first kernel spill at N=2048."""
