"""Inputs and modules: full size on a GPU, small on a CPU, random on both."""

from __future__ import annotations

import os

import pytest
import torch

if not torch.cuda.is_available():  # Triton asks when it is imported: below, not before
    os.environ.setdefault("TRITON_INTERPRET", "1")

from reference_mlp import GatedMLP
from sizes import SIZES, Size


@pytest.fixture
def size(kernelprof_device: str) -> Size:
    return SIZES[kernelprof_device]


@pytest.fixture
def x(kernelprof_device: str, size: Size) -> torch.Tensor:
    """Random input of shape (rows, width)."""
    torch.manual_seed(0)
    return torch.randn(size.rows, size.width, device=kernelprof_device, dtype=size.dtype)


@pytest.fixture
def geglu(kernelprof_device: str, size: Size) -> GatedMLP:
    return GatedMLP(size.width, size.hidden).to(kernelprof_device, size.dtype)
