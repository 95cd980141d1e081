"""What the kernels in Gluon share: a ring of buffers to load into.

A ring is a number of buffers in shared memory. Each has two barriers: ``full``, at which TMA counts
the bytes that have arrived, and ``empty``, at which the readers say that they are done with it.
Steps are counted from 0; step s uses buffer ``s % STAGES`` for the ``s // STAGES``-th time.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

# ruff: noqa: N803  (compile-time constants are written in capitals, as Triton's users do)

ALIGNMENT = 8
"""Numbers of 16 bits in the 16 bytes of which TMA wants every row to be a multiple."""


@gluon.jit
def claim(empty, full, step, BYTES: gl.constexpr, STAGES: gl.constexpr):
    """Wait until the buffer of a step has been read; announce the bytes that will arrive."""
    buffer = step % STAGES
    mbarrier.wait(empty.index(buffer), ((step // STAGES) & 1) ^ 1)
    mbarrier.expect(full.index(buffer), BYTES)
    return buffer
