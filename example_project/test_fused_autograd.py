"""Gradients: against float64, only those that are needed, in seven kernels, and no second ones."""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from fused_mlp import backward, dispatch, ops, slopes
from fused_mlp.eager import ACTIVATE, eager
from fused_mlp.functional import gated_mlp, mlp
from fused_mlp.problem import KERNEL_ACTIVATIONS
from fused_mlp.weights import Weights

from pytest_kernelprof import KernelProfile

HOPPER = torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)
needs_hopper = pytest.mark.skipif(not HOPPER, reason="needs a Hopper GPU")

SHAPES = ((5, 24), (40, 24), (40, 24), (16, 40))
FULL_SIZE = ((8192, 768), (3072, 768), (3072, 768), (768, 3072))


def leaves(shapes: Any, device: str, dtype: torch.dtype) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [
        (torch.randn(s, device=device) / s[-1] ** 0.5).to(dtype).requires_grad_() for s in shapes
    ]


def by_pytorch(x, gate, up, down, activation: str = "gelu_tanh") -> torch.Tensor:
    return eager(x, Weights(gate, up, down), activation)


def by_formulas(*arguments: Any) -> torch.Tensor:
    """The autograd function itself. With no kernel for the forward (small sizes, no Hopper) it
    keeps what GEMMs make; the slopes are Triton's on a GPU and in the interpreter alike."""
    with dispatch.forced("pytorch"):
        return backward.GatedMLP.apply(*arguments)


def by_operators(*arguments: Any) -> torch.Tensor:
    with dispatch.forced("pytorch"):
        return ops.gated_training(*arguments)[0]


EACH_WAY = pytest.mark.parametrize("ours", [by_formulas, by_operators])


def gradients(call: Any, tensors: list[torch.Tensor], activation: str) -> list[torch.Tensor]:
    y = call(*tensors, activation)
    torch.manual_seed(1)
    dy = torch.randn(y.shape, device=y.device).to(y.dtype)
    needed = [t for t in tensors if t.requires_grad]
    return [y, *torch.autograd.grad(y, needed, dy)]


def error(got: torch.Tensor, exact: torch.Tensor) -> float:
    return float((got.detach().double() - exact.detach()).norm() / exact.detach().norm())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("activation", sorted(KERNEL_ACTIVATIONS))
@EACH_WAY
def test_gradients_are_those_of_float64(
    kernelprof_device: str, ours: Any, activation: str, dtype: torch.dtype
) -> None:
    """No worse than 1.25 times eager's own error."""
    tensors = leaves(SHAPES, kernelprof_device, dtype)
    double = [t.detach().double().requires_grad_() for t in tensors]
    exact = gradients(by_pytorch, double, activation)
    theirs = gradients(by_pytorch, tensors, activation)
    found = gradients(ours, tensors, activation)
    for mine, their, right in zip(found, theirs, exact, strict=True):
        assert mine.shape == right.shape
        assert error(mine, right) <= 1.25 * error(their, right) + torch.finfo(dtype).eps


@EACH_WAY
def test_each_gradient_alone(kernelprof_device: str, ours: Any) -> None:
    for alone in range(len(SHAPES)):
        tensors = leaves(SHAPES, kernelprof_device, torch.float32)
        for number, tensor in enumerate(tensors):
            tensor.requires_grad_(number == alone)
        found, right = (gradients(call, tensors, "silu") for call in (ours, by_pytorch))
        torch.testing.assert_close(found, right, rtol=1e-3, atol=1e-4)


@EACH_WAY
def test_no_two_gradients_share_storage(kernelprof_device: str, ours: Any) -> None:
    """Views of one buffer are saved twice, freed together and sharded wrongly."""
    _, *found = gradients(ours, leaves(SHAPES, kernelprof_device, torch.float32), "silu")
    assert len({gradient.untyped_storage().data_ptr() for gradient in found}) == 4


@pytest.mark.parametrize("hidden", [1, 40, 1025])
@pytest.mark.parametrize("activation", sorted(KERNEL_ACTIVATIONS))
def test_the_slopes_kernel(kernelprof_device: str, activation: str, hidden: int) -> None:
    """Against autograd through PyTorch's own activations, over both signs, the tails and 0."""
    torch.manual_seed(0)
    gate, up, dh = torch.randn(3, 7, hidden, device=kernelprof_device).unbind()
    gate = (3 * gate).index_fill(0, torch.tensor([3], device=gate.device), 0.0)
    a = gate.double().requires_grad_()
    value = ACTIVATE[activation](a)
    (slope,) = torch.autograd.grad(value.sum(), a)
    exact = (dh * up * slope, dh * value.detach(), value.detach() * up)
    for found, right in zip(slopes.gated_slopes(gate, up, dh, activation), exact, strict=True):
        torch.testing.assert_close(found, right.float(), rtol=1e-5, atol=1e-6)


@EACH_WAY
def test_no_rows_give_zero_gradients(kernelprof_device: str, ours: Any) -> None:
    tensors = leaves(((0, 24), *SHAPES[1:]), kernelprof_device, torch.float16)
    _, *found = gradients(ours, tensors, "relu")
    assert [g.shape for g in found] == [t.shape for t in tensors]
    assert not any(g.any() for g in found)


@EACH_WAY
def test_gradients_of_sums(kernelprof_device: str, ours: Any) -> None:
    """The gradient of ``sum`` is an expanded number, which no GEMM reads."""
    tensors = leaves(SHAPES, kernelprof_device, torch.float32)
    found = torch.autograd.grad(ours(*tensors, "silu").sum(), tensors)
    exact = torch.autograd.grad(by_pytorch(*tensors, "silu").sum(), tensors)
    torch.testing.assert_close(found, exact, rtol=1e-3, atol=1e-4)


@EACH_WAY
def test_a_second_derivative_is_refused(kernelprof_device: str, ours: Any) -> None:
    x, *weights = leaves(SHAPES, kernelprof_device, torch.float32)
    with pytest.raises(NotImplementedError, match="second derivatives"):
        torch.autograd.grad(ours(x, *weights, "silu").sum(), x, create_graph=True)


@pytest.mark.filterwarnings("ignore:.* encountered in:RuntimeWarning")
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("activation", sorted(KERNEL_ACTIVATIONS))
def test_nan_and_infinity_pass_the_slopes_as_in_eager(
    kernelprof_device: str, activation: str, value: float
) -> None:
    gate, up, dh = (torch.full((1, 16), n, device=kernelprof_device) for n in (value, 2.0, 3.0))
    a, b = gate.clone().requires_grad_(), up.clone().requires_grad_()
    h = ACTIVATE[activation](a) * b
    exact = (*torch.autograd.grad(h, (a, b), dh), h.detach())
    found = slopes.gated_slopes(gate, up, dh, activation)
    for mine, right in zip(found, exact, strict=True):
        assert mine.isfinite().equal(right.isfinite())


def test_what_is_held_for_the_backward(kernelprof_device: str) -> None:
    """x, the pre-activations and the weights: neither h nor the activation nor the product."""
    x, *weights = leaves(SHAPES, kernelprof_device, torch.float16)
    held: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        held[tensor.data_ptr()] = tensor.numel()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        by_formulas(x, *weights, "silu")
    rows, width = SHAPES[0]
    hidden = SHAPES[1][0]
    assert sum(held.values()) == rows * (width + 2 * hidden) + sum(w.numel() for w in weights)


def test_where_no_kernel_trains_pytorch_does(kernelprof_device: str) -> None:
    """The plain form, among others: there autograd is PyTorch's own."""
    x, gate, _, down = leaves(SHAPES, kernelprof_device, torch.float32)
    y = mlp(x, gate, None, down, None, "silu")
    found = torch.autograd.grad(y.sum(), (x, gate, down), create_graph=True)
    exact = torch.autograd.grad(eager(x, Weights(gate, None, down), "silu").sum(), (x, gate, down))
    torch.testing.assert_close(found, exact)


@needs_hopper
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_how_many_kernels_a_step_is(kernel_profile: KernelProfile, dtype: torch.dtype) -> None:
    """Guess: one forward; backward dh, the slopes, three weights, and two for x: seven."""
    x, *weights = leaves(FULL_SIZE, "cuda", dtype)
    for again in range(2):  # the first compiles
        with kernel_profile.region("forward", max_kernels=1 if again else 1000):
            y = gated_mlp(x, *weights)
        dy = torch.ones_like(y)
        with kernel_profile.region("backward", max_kernels=7 if again else 1000):
            y.backward(dy)
        for tensor in (x, *weights):
            tensor.grad = None


@needs_hopper
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_gradients_at_full_size_and_bitwise_again(dtype: torch.dtype) -> None:
    tensors = leaves(FULL_SIZE, "cuda", dtype)
    double = [t.detach().double().requires_grad_() for t in tensors]
    exact = gradients(by_pytorch, double, "silu")
    theirs = gradients(by_pytorch, tensors, "silu")
    first = gradients(gated_mlp, tensors, "silu")
    for mine, their, right in zip(first, theirs, exact, strict=True):
        assert error(mine, right) <= 1.02 * error(their, right)
    for _ in range(10):
        assert all(map(torch.equal, gradients(gated_mlp, tensors, "silu"), first))
