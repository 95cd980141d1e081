"""What the kernels in Gluon share: matrices as TMA sees them, and a ring of buffers to load into.

A ring is a number of buffers in shared memory. Each has two barriers: ``full``, at which TMA counts
the bytes that have arrived, and ``empty``, at which the readers say that they are done with it.
Steps are counted from 0; step s uses buffer ``s % STAGES`` for the ``s // STAGES``-th time.
"""

from __future__ import annotations

import functools

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from .problem import sms as sms

# ruff: noqa: N803  (compile-time constants are written in capitals, as Triton's users do)

ALIGNMENT = 8
"""Numbers of 16 bits in the 16 bytes of which TMA wants every row to be a multiple."""

SHARED_MEMORY = 227 * 1024
"""Bytes that a program may have of an SM's."""


@gluon.jit
def claim(empty, full, step, BYTES: gl.constexpr, STAGES: gl.constexpr):
    """Wait until the buffer of a step has been read; announce the bytes that will arrive."""
    buffer = step % STAGES
    mbarrier.wait(empty.index(buffer), ((step // STAGES) & 1) ^ 1)
    mbarrier.expect(full.index(buffer), BYTES)
    return buffer


def descriptor(
    tensor: torch.Tensor, rows: int, columns: int, height: int, depth: int
) -> TensorDescriptor:
    """What TMA needs to know of a (rows, columns) matrix that is read in (height, depth) tiles.

    It lies at the beginning of ``tensor``, row by row. The constructor has more checks, which
    take longer than the launch; what callers have not seen to is checked here.

    Raises ValueError for a tensor that is strided or begins elsewhere than at 16 bytes.
    """
    if tensor.data_ptr() % 16 or not tensor.is_contiguous():
        raise ValueError(
            "expected contiguous tensors that begin at a multiple of 16 bytes, as TMA wants; got "
            f"strides {tensor.stride()} for {tuple(tensor.shape)}, address {tensor.data_ptr():#x}"
        )
    made = TensorDescriptor.__new__(TensorDescriptor)
    made.base = tensor
    made.shape, made.strides = [rows, columns], [columns, 1]
    made.block_shape, made.layout = [height, depth], _layout(height, depth, tensor.dtype)
    return made


@functools.cache
def _layout(height: int, depth: int, dtype: torch.dtype) -> gl.NVMMASharedLayout:
    """Tiles swizzled as ``wgmma`` reads them."""
    number = gl.bfloat16 if dtype is torch.bfloat16 else gl.float16
    return gl.NVMMASharedLayout.get_default_for([height, depth], number)
