"""Kernels that Triton tunes when they are first called; loaded where Triton is."""

import triton
import triton.language as tl

CONFIGURATIONS = [triton.Config({"BLOCK": block}) for block in (64, 128, 256)]


@triton.autotune(configs=CONFIGURATIONS, key=["n"])
@triton.jit
def doubled(to, of, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(to + at, tl.load(of + at, mask=at < n) * 2, mask=at < n)


@triton.autotune(configs=CONFIGURATIONS, key=["n"])
@triton.jit
def tripled(to, of, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(to + at, tl.load(of + at, mask=at < n) * 3, mask=at < n)


def launch(kernel, to, of):
    n = of.numel()
    kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](to, of, n)
