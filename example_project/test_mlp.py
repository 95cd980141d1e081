"""Whole MLPs: what eager PyTorch launches, and what torch.compile makes of it."""

from __future__ import annotations

import pytest
import torch
from conftest import Size
from reference_mlp import MLP, GatedMLP


@pytest.fixture
def geglu(kernelprof_device: str, size: Size) -> GatedMLP:
    return GatedMLP(size.width, size.hidden).to(kernelprof_device, size.dtype)


@pytest.mark.max_kernels(3)
@pytest.mark.expect_kernels("aten::addmm", "aten::gelu", "aten::addmm")
def test_the_plain_mlp_is_three_kernels(
    kernel_profile, kernelprof_device: str, size: Size, x: torch.Tensor
) -> None:
    """Guess: two GEMMs with their biases inside, and the activation between them."""
    mlp = MLP(size.width, size.hidden).to(kernelprof_device, size.dtype)
    with torch.no_grad():
        kernel_profile(mlp, x)


@pytest.mark.max_kernels(5)
@pytest.mark.expect_kernels("aten::mm", "aten::gelu", "aten::mm", "aten::mul", "aten::mm")
def test_eager_geglu_is_five_kernels(kernel_profile, geglu: GatedMLP, x: torch.Tensor) -> None:
    """Guess: gate, activation, up, product, down. Three of the five are GEMMs; the other two read
    and write the whole hidden layer for a few operations an element."""
    with torch.no_grad():
        y = kernel_profile(geglu, x)
    assert y.shape == x.shape


@pytest.mark.max_kernels(5)
@pytest.mark.expect_kernels("aten::mm", "aten::silu", "aten::mm", "aten::mul", "aten::mm")
def test_eager_swiglu_is_five_kernels(
    kernel_profile, kernelprof_device: str, size: Size, x: torch.Tensor
) -> None:
    """Guess: as GeGLU, with SiLU."""
    swiglu = GatedMLP(size.width, size.hidden, "silu").to(kernelprof_device, size.dtype)
    with torch.no_grad():
        kernel_profile(swiglu, x)


@pytest.mark.max_kernels(4)
@pytest.mark.max_recompiles(0)
@pytest.mark.expect_kernels("aten::mm", "aten::mm", "fused", "aten::mm")
def test_compiled_geglu_is_four_kernels(kernel_profile, geglu: GatedMLP, x: torch.Tensor) -> None:
    """Guess: the activation and the product become one fused kernel, and the three GEMMs stay
    what they were: torch.compile fuses around them, not into them."""
    torch.compiler.reset()
    compiled = torch.compile(geglu)
    with torch.no_grad():
        y = kernel_profile(compiled, x)
        torch.testing.assert_close(y, geglu(x), rtol=2e-2, atol=2e-2)


def test_compiling_leaves_the_gemms_as_they_were(
    kernel_profile, geglu: GatedMLP, x: torch.Tensor
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
