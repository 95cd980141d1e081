"""Tensor maps: what TMA must know of a matrix, encoded once and kept.

A kernel that reads by TMA is handed a map of 128 bytes for each matrix, which the driver encodes.
Triton has all of them encoded anew for each launch, and that takes the host as long as the launch
itself. A map is a value, not a handle: it knows of no tensor, allocator or stream. So one that is
kept under all that went into it, and the device, cannot be out of date: whatever lies at that
address now and is read in that way has that very map. A launch copies it, a captured one into its
graph, so it may be forgotten at any time.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import torch


class Tiles(NamedTuple):
    """A (rows, columns) matrix of 16-bit floats that TMA reads in (height, depth) tiles.

    It lies at the beginning of ``tensor``, row by row.
    """

    tensor: torch.Tensor
    rows: int
    columns: int
    height: int
    depth: int

    def descriptor(self) -> Any:
        """The same as Gluon's own record, for its compiler and for the encoder.

        Raises ValueError for a tensor that is strided or begins elsewhere than at 16 bytes.
        """
        from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

        tensor, rows, columns, height, depth = self
        if tensor.data_ptr() % 16 or not tensor.is_contiguous():
            raise ValueError(
                "expected contiguous tensors that begin at a multiple of 16 bytes, as TMA wants; "
                f"got strides {tensor.stride()} for {tuple(tensor.shape)}, address "
                f"{tensor.data_ptr():#x}"
            )
        layout = _layout(height, depth, tensor.dtype)
        return TensorDescriptor(tensor, [rows, columns], [columns, 1], [height, depth], layout)


class Encoding(NamedTuple):
    """How a compiled kernel reads a matrix, in CUDA's numbers, as Triton's metadata has it."""

    swizzle: int
    elem_size: int
    elem_type: int
    block_size: tuple[int, ...]
    fp4_padded: bool


MOST = 4096
"""A megabyte or so. A model has a few maps for each layer's weights, and a few for activations."""

Pieces = list[Any]
"""What stands for a matrix among a launch's arguments: its map, both sizes, both strides."""

_known: dict[tuple[int, int, int, int, Encoding], Pieces] = {}


def pieces(device: int, tiles: Tiles, encoding: Encoding) -> Pieces:
    """Those of a matrix on CUDA device number ``device``.

    Raises as `Tiles.descriptor` does where there is no such map yet.
    """
    tensor, rows, columns, _, _ = tiles
    key = (device, tensor.data_ptr(), rows, columns, encoding)
    found = _known.get(key)
    if found is None:
        from triton.backends.nvidia.driver import make_tensordesc_arg

        found = make_tensordesc_arg(tiles.descriptor(), encoding._asdict())
        if len(_known) >= MOST:
            _known.clear()
        _known[key] = found
    return found


@functools.cache
def _layout(height: int, depth: int, dtype: torch.dtype) -> Any:
    """Tiles swizzled as ``wgmma`` reads them."""
    from triton.experimental.gluon import language as gl

    number = gl.bfloat16 if dtype is torch.bfloat16 else gl.float16
    return gl.NVMMASharedLayout.get_default_for([height, depth], number)
