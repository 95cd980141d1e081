"""A copy in Triton whose tile size is a parameter: what `false_alarms.py` makes slower."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def copy_kernel(x, y, n, BLOCK: tl.constexpr):  # noqa: N803
    """One block of a copy of ``n`` numbers."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)
