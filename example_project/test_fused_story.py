"""The story in numbers: five kernels, four, four again, two, and one, for the same gated MLP.

Limits say "at most"; here each number is also asserted as it is, so that the story stays true. What
the kernels take is measured by ``benchmarks/fused_mlp.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType, SimpleNamespace

import pytest
import torch
from fused_mlp.dispatch import ARCHITECTURES
from fused_mlp.modules import FusedGatedMLP
from reference_mlp import GatedMLP
from sizes import Size
from torch import nn

from pytest_kernelprof import KernelProfile

Layer = Callable[[torch.Tensor], torch.Tensor]


@pytest.fixture
def hopper() -> None:
    if torch.cuda.get_device_capability() not in ARCHITECTURES:
        pytest.skip("on a GPU that the kernels do not know, PyTorch runs")


@pytest.fixture
def swiglu(kernelprof_device: str, size: Size) -> GatedMLP:
    return GatedMLP(size.width, size.hidden, "silu").to(kernelprof_device, size.dtype)


def check(
    kernel_profile: KernelProfile, layer: Layer, mlp: GatedMLP, x: torch.Tensor, kernels: int
) -> None:
    """Profile ``layer``; it has exactly so many kernels and computes what ``mlp`` computes."""
    with torch.no_grad():
        y = kernel_profile(layer, x)
        torch.testing.assert_close(y, mlp(x), rtol=2e-2, atol=2e-2)
    names = [kernel.short_name for kernel in kernel_profile.last.kernels]
    assert len(names) == kernels, names


def with_weights_of(mlp: GatedMLP, layer: type[nn.Module], activation: str) -> nn.Module:
    """A layer of Liger's, which takes a model's configuration, sharing the weights of ``mlp``."""
    hidden, width = mlp.gate.weight.shape
    config = SimpleNamespace(hidden_size=width, intermediate_size=hidden, hidden_act=activation)
    with torch.device("meta"):
        made = layer(config)
    made.gate_proj, made.up_proj, made.down_proj = mlp.gate, mlp.up, mlp.down
    return made


def liger(module: str) -> ModuleType:
    return pytest.importorskip(
        f"liger_kernel.transformers.{module}", reason=f"no Liger, or one without its {module}.py"
    )


@pytest.mark.max_kernels(5)
def test_eager_is_five(kernel_profile: KernelProfile, geglu: GatedMLP, x: torch.Tensor) -> None:
    """Guess: gate, activation, up, product, down."""
    check(kernel_profile, geglu, geglu, x, 5)


@pytest.mark.max_kernels(4)
def test_compiled_is_four(kernel_profile: KernelProfile, geglu: GatedMLP, x: torch.Tensor) -> None:
    """Guess: activation and product become one kernel; the GEMMs stay three."""
    torch.compiler.reset()
    check(kernel_profile, torch.compile(geglu), geglu, x, 4)


@pytest.mark.kernelprof(device="cuda")
@pytest.mark.max_kernels(4)
def test_ligers_layer_is_four(
    kernel_profile: KernelProfile, geglu: GatedMLP, x: torch.Tensor
) -> None:
    """Guess: the same four, the one between the GEMMs written by hand."""
    layer = with_weights_of(geglu, liger("geglu").LigerGEGLUMLP, "gelu_pytorch_tanh")
    check(kernel_profile, layer, geglu, x, 4)


@pytest.mark.kernelprof(device="cuda")
@pytest.mark.max_kernels(2)
def test_ligers_fused_layer_is_two(
    kernel_profile: KernelProfile, swiglu: GatedMLP, x: torch.Tensor
) -> None:
    """Guess: gate, up, SiLU and product in one kernel, and the GEMM of down. The layer wants x as
    (batch, rows, width)."""
    layer = with_weights_of(swiglu, liger("mlp").LigerMLP, "silu")
    check(kernel_profile, lambda x: layer(x.unsqueeze(0)).squeeze(0), swiglu, x, 2)


@pytest.mark.kernelprof(device="cuda")
@pytest.mark.usefixtures("hopper")
@pytest.mark.max_kernels(1)
def test_ours_is_one(kernel_profile: KernelProfile, geglu: GatedMLP, x: torch.Tensor) -> None:
    """Guess: one, and no memset before it: the workspace is left zeroed by the call before."""
    fused = FusedGatedMLP.from_gated(geglu.gate, geglu.up, geglu.down, "gelu_tanh")
    check(kernel_profile, fused, geglu, x, 1)
    assert kernel_profile.last.memsets == 0


@pytest.mark.kernelprof(device="cuda")
@pytest.mark.usefixtures("hopper")
@pytest.mark.max_kernels(1)
def test_ours_is_one_for_swiglu_and_a_single_row(
    kernel_profile: KernelProfile, swiglu: GatedMLP, x: torch.Tensor
) -> None:
    """Guess: one again, by another kernel, for other reasons: a row alone is bound by the weights'
    way from memory."""
    fused = FusedGatedMLP.from_gated(swiglu.gate, swiglu.up, swiglu.down, "silu")
    check(kernel_profile, fused, swiglu, x[:1], 1)
