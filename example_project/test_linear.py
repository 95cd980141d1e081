"""One linear layer: the smallest guess that can be wrong."""

from __future__ import annotations

import pytest
import torch
from sizes import Size
from torch import nn

from pytest_kernelprof import KernelProfile


@pytest.mark.max_kernels(1)
@pytest.mark.expect_kernels("aten::addmm")
@pytest.mark.forbid_kernels("elementwise")
def test_a_linear_layer_with_bias_is_one_kernel(
    kernel_profile: KernelProfile, kernelprof_device: str, size: Size, x: torch.Tensor
) -> None:
    """Guess: one. The bias is added in the GEMM's epilogue, and ``aten::t`` only turns strides
    around: a view launches nothing. A bias added by itself would be an elementwise kernel."""
    linear = nn.Linear(size.width, size.hidden, device=kernelprof_device, dtype=size.dtype)
    with torch.no_grad():
        y = kernel_profile(linear, x)
    assert y.shape == (size.rows, size.hidden)


@pytest.mark.max_kernels(0)
def test_a_view_is_no_kernel(kernel_profile: KernelProfile, x: torch.Tensor) -> None:
    """Guess: none. Transposing, slicing and reshaping change metadata."""
    kernel_profile(lambda: x.t()[1:].t().unsqueeze(0))


@pytest.mark.parametrize(
    "layers",
    [
        pytest.param(1, marks=pytest.mark.max_kernels(1)),
        pytest.param(3, marks=pytest.mark.max_kernels(3)),
    ],
)
def test_a_stack_of_layers_is_one_kernel_each(
    kernel_profile: KernelProfile, kernelprof_device: str, size: Size, x: torch.Tensor, layers: int
) -> None:
    """Guess: as many kernels as layers; a limit can stand on each parameter."""
    stack = nn.Sequential(*(nn.Linear(size.width, size.width) for _ in range(layers)))
    stack.to(kernelprof_device, size.dtype)
    with torch.no_grad():
        kernel_profile(stack, x)
