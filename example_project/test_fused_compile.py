"""torch.compile: no graph break, no recompilation, CUDA graphs, operators that keep the rules."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from fused_mlp import dispatch, ops
from fused_mlp.modules import FusedGatedMLP, FusedMLP
from torch import nn

from pytest_kernelprof import KernelProfile

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.fixture
def model(kernelprof_device: str) -> nn.Module:
    torch.manual_seed(0)
    dtype = torch.bfloat16 if kernelprof_device == "cuda" else torch.float32
    layers = (FusedMLP(32, 64), nn.LayerNorm(32), FusedGatedMLP(32, 64, activation="silu"))
    return nn.Sequential(*layers).to(kernelprof_device, dtype)


def inputs(model: nn.Module, *leading: int) -> torch.Tensor:
    weight = model[0].up.weight
    return torch.randn(*leading, 32, device=weight.device, dtype=weight.dtype)


def close(a: torch.Tensor, b: torch.Tensor) -> None:
    tolerance = 1e-4 if a.dtype is torch.float32 else 3e-2
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("forced", [False, True], ids=["as dispatched", "by the operators"])
@pytest.mark.parametrize("training", [False, True])
def test_a_model_is_one_graph(model: nn.Module, training: bool, forced: bool) -> None:
    x = inputs(model, 2, 7)
    # What is one graph is one for any back end; without a GPU Inductor's takes seconds to compile.
    backend = "inductor" if (training and forced) or x.is_cuda else "aot_eager"
    compiled = torch.compile(model, fullgraph=True, backend=backend)
    with dispatch.forced("fallback") if forced else torch.enable_grad():
        if not training:
            with torch.no_grad():
                return close(compiled(x), model(x))
        expected = torch.autograd.grad(model(x).sum(), tuple(model.parameters()))
        ours = torch.autograd.grad(compiled(x).sum(), tuple(model.parameters()))
    for mine, theirs in zip(ours, expected, strict=True):
        close(mine, theirs)
    return None


@pytest.mark.max_recompiles(0)
def test_other_row_counts_do_not_compile_again(
    kernel_profile: KernelProfile, model: nn.Module
) -> None:
    compiled = torch.compile(model, fullgraph=True, dynamic=True)
    with torch.no_grad(), dispatch.forced("fallback"):
        compiled(inputs(model, 2, 7))
        with kernel_profile.region("other rows", max_recompiles=0):
            for rows in (3, 16, 65):
                x = inputs(model, 2, rows)
                close(compiled(x), model(x))


def arguments(device: str, gated: bool, grad: bool) -> tuple[torch.Tensor, ...]:
    shapes = ((5, 24), (40, 24), (40, 24), (16, 40)) if gated else (
        (5, 24), (40, 24), (40,), (16, 40), (16,)
    )  # fmt: skip
    return tuple(torch.randn(s, device=device).mul(0.2).requires_grad_(grad) for s in shapes)


def test_the_operators_keep_the_rules(kernelprof_device: str) -> None:
    """``opcheck``: schemas tell the truth, fakes agree with what is returned, autograd is
    registered where it must be, and AOTAutograd traces them, with symbolic shapes too."""
    device = kernelprof_device
    pre = [torch.randn(5, 40, device=device) for _ in range(3)]
    for operator, given in (
        (ops.gated, (*arguments(device, True, False), "silu")),
        (ops.plain, (*arguments(device, False, False), "relu")),
        (ops.gated_training, (*arguments(device, True, True), "gelu_tanh")),
        (ops.plain_training, (*arguments(device, False, True), "gelu_tanh")),
        (ops.gated_slopes, (*pre, "silu", True)),
        (ops.gated_slopes, (*pre[:2], None, "silu", True)),
        (ops.plain_slopes, (*pre[:2], "gelu", True)),
        (ops.plain_slopes, (*pre[:2], "relu", False)),
    ):
        with dispatch.forced("fallback"):
            torch.library.opcheck(operator, given)


@needs_gpu
@pytest.mark.parametrize("rows", [1, 16, 300])
def test_reduce_overhead_with_two_graphs(rows: int) -> None:
    """Two shapes, two graphs, replayed by turns, each with inputs of its own."""
    torch.manual_seed(0)
    module = FusedGatedMLP(768, 3072, device="cuda", dtype=torch.bfloat16)
    compiled = torch.compile(module, mode="reduce-overhead", fullgraph=True, dynamic=False)
    with torch.no_grad():
        for _ in range(8):
            for count in (rows, rows + 8):
                x = torch.randn(count, 768, device="cuda", dtype=torch.bfloat16)
                expected = module(x)
                torch.compiler.cudagraph_mark_step_begin()
                close(compiled(x), expected)


@needs_gpu
def test_reduce_overhead_trains() -> None:
    torch.manual_seed(0)
    module = FusedGatedMLP(768, 3072, device="cuda", dtype=torch.bfloat16)
    compiled = torch.compile(module, mode="reduce-overhead", fullgraph=True)
    for _ in range(5):
        x = torch.randn(4096, 768, device="cuda", dtype=torch.bfloat16)
        expected = torch.autograd.grad(module(x).square().mean(), tuple(module.parameters()))
        torch.compiler.cudagraph_mark_step_begin()
        ours = torch.autograd.grad(compiled(x).square().mean(), tuple(module.parameters()))
        for mine, theirs in zip(ours, expected, strict=True):
            close(mine, theirs)
