"""Whole MLPs: what eager PyTorch launches, and what torch.compile makes of it."""

from __future__ import annotations

import pytest
import torch
from reference_mlp import MLP, GatedMLP
from sizes import Size
from torch import nn

from pytest_kernelprof import KernelProfile


@pytest.mark.max_kernels(3)
@pytest.mark.expect_kernels("aten::addmm", "aten::gelu", "aten::addmm")
def test_the_plain_mlp_is_three_kernels(
    kernel_profile: KernelProfile, kernelprof_device: str, size: Size, x: torch.Tensor
) -> None:
    """Guess: two GEMMs with their biases inside, and the activation between them."""
    mlp = MLP(size.width, size.hidden).to(kernelprof_device, size.dtype)
    with torch.no_grad():
        kernel_profile(mlp, x)


@pytest.mark.max_kernels(5)
@pytest.mark.expect_kernels("aten::mm", "aten::gelu", "aten::mm", "aten::mul", "aten::mm")
def test_eager_geglu_is_five_kernels(
    kernel_profile: KernelProfile, geglu: GatedMLP, x: torch.Tensor
) -> None:
    """Guess: gate, activation, up, product, down. Three of the five are GEMMs; the other two read
    and write the whole hidden layer for a few operations an element."""
    with torch.no_grad():
        y = kernel_profile(geglu, x)
    assert y.shape == x.shape


@pytest.mark.max_kernels(5)
@pytest.mark.expect_kernels("aten::mm", "aten::silu", "aten::mm", "aten::mul", "aten::mm")
def test_eager_swiglu_is_five_kernels(
    kernel_profile: KernelProfile, kernelprof_device: str, size: Size, x: torch.Tensor
) -> None:
    """Guess: as GeGLU, with SiLU."""
    swiglu = GatedMLP(size.width, size.hidden, "silu").to(kernelprof_device, size.dtype)
    with torch.no_grad():
        kernel_profile(swiglu, x)


@pytest.mark.parametrize("depth", [2, 4])
def test_a_stack_of_geglus_is_five_kernels_each(
    kernel_profile: KernelProfile, kernelprof_device: str, size: Size, x: torch.Tensor, depth: int
) -> None:
    """Guess: five for each, nothing in between. A limit that depends on a parameter is set at run
    time, under the marker's name."""
    stack = nn.Sequential(*(GatedMLP(size.width, size.hidden) for _ in range(depth)))
    stack.to(kernelprof_device, size.dtype)
    kernel_profile.limit(max_kernels=5 * depth, max_recompiles=0)
    with torch.no_grad():
        kernel_profile(stack, x)


@pytest.mark.max_kernels(4)
@pytest.mark.max_recompiles(0)
@pytest.mark.expect_kernels("aten::mm", "aten::mm", "fused", "aten::mm")
def test_compiled_geglu_is_four_kernels(
    kernel_profile: KernelProfile, geglu: GatedMLP, x: torch.Tensor
) -> None:
    """Guess: the activation and the product become one fused kernel, and the three GEMMs stay
    what they were: torch.compile fuses around them, not into them. The fused kernel is
    ``triton_poi_fused_gelu_mul_0`` on a GPU and ``cpp_fused_gelu_mul_0`` on a CPU."""
    torch.compiler.reset()
    compiled = torch.compile(geglu)
    with torch.no_grad():
        y = kernel_profile(compiled, x)
        torch.testing.assert_close(y, geglu(x), rtol=2e-2, atol=2e-2)


def test_compiling_leaves_the_gemms_as_they_were(
    kernel_profile: KernelProfile, geglu: GatedMLP, x: torch.Tensor
) -> None:
    """Guess: the same GEMM kernels by name, before and after."""
    torch.compiler.reset()

    def gemms() -> list[str]:
        return sorted(k.name for k in kernel_profile.last.kernels if "aten::mm" in k.operators)

    with torch.no_grad():
        kernel_profile(geglu, x)
        eager = gemms()
        kernel_profile(torch.compile(geglu), x)
    assert len(eager) == 3
    assert gemms() == eager
