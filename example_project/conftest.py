"""Inputs and modules: full size on a GPU, small on a CPU, random on both."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch


@dataclass(frozen=True)
class Size:
    """Rows of the input, width of a row, hidden width, and the type of the numbers."""

    rows: int
    width: int
    hidden: int
    dtype: torch.dtype


@pytest.fixture
def size(kernelprof_device: str) -> Size:
    if kernelprof_device == "cuda":
        return Size(8192, 768, 3072, torch.bfloat16)
    return Size(32, 48, 96, torch.float32)


@pytest.fixture
def x(kernelprof_device: str, size: Size) -> torch.Tensor:
    """Random input of shape (rows, width)."""
    torch.manual_seed(0)
    return torch.randn(size.rows, size.width, device=kernelprof_device, dtype=size.dtype)
