"""A kernel in Triton that adds one to a counter: what `soak.py` counts by."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def one_more_kernel(counter):
    """One program, one more."""
    tl.store(counter, tl.load(counter) + 1)
