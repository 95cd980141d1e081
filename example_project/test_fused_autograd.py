"""Gradients: against float64, only those that are needed, in six kernels, and no second ones."""

from __future__ import annotations

import pytest
import torch
from fused_mlp import backward, dispatch, ops
from fused_mlp.fallback import eager_gated, eager_plain
from fused_mlp.functional import gated_mlp, mlp
from fused_mlp.problem import ACTIVATIONS

from pytest_kernelprof import KernelProfile

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

PLAIN = ((5, 24), (40, 24), (40,), (16, 40), (16,))
GATED = ((5, 24), (40, 24), (40, 24), (16, 40))
FORMS = [
    pytest.param(mlp, eager_plain, PLAIN, id="plain"),
    pytest.param(gated_mlp, eager_gated, GATED, id="gated"),
]


def leaves(shapes, device: str, dtype: torch.dtype) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [
        (torch.randn(s, device=device) / s[-1] ** 0.5).to(dtype).requires_grad_() for s in shapes
    ]


def gradients(call, tensors: list[torch.Tensor], activation: str) -> list[torch.Tensor]:
    y = call(*tensors, activation)
    torch.manual_seed(1)
    dy = torch.randn(y.shape, device=y.device).to(y.dtype)
    needed = [t for t in tensors if t.requires_grad]
    return [y, *torch.autograd.grad(y, needed, dy)]


def error(got: torch.Tensor, exact: torch.Tensor) -> float:
    return float((got.detach().double() - exact.detach()).norm() / exact.detach().norm())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
@pytest.mark.parametrize(("fused", "eager", "shapes"), FORMS)
def test_gradients_are_those_of_float64(
    kernelprof_device: str, fused, eager, shapes, activation: str, dtype: torch.dtype
) -> None:
    """No worse than 1.25 times eager's own error. On a GPU and in the interpreter alike it is the
    Triton kernel that applies the slopes."""
    tensors = leaves(shapes, kernelprof_device, dtype)
    exact = gradients(eager, [t.detach().double().requires_grad_() for t in tensors], activation)
    plain = gradients(eager, tensors, activation)
    with dispatch.forced("fallback"):
        ours = gradients(fused, tensors, activation)
    for mine, theirs, right in zip(ours, plain, exact, strict=True):
        assert mine.shape == right.shape
        assert error(mine, right) <= 1.25 * error(theirs, right) + torch.finfo(dtype).eps


@pytest.mark.parametrize(("fused", "eager", "shapes"), FORMS)
def test_each_gradient_alone(kernelprof_device: str, fused, eager, shapes) -> None:
    for alone in range(len(shapes)):
        tensors = leaves(shapes, kernelprof_device, torch.float32)
        for number, tensor in enumerate(tensors):
            tensor.requires_grad_(number == alone)
        with dispatch.forced("fallback"):
            ours = gradients(fused, tensors, "silu")
        torch.testing.assert_close(ours, gradients(eager, tensors, "silu"), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
def test_the_slopes_are_the_derivatives(activation: str) -> None:
    """By autograd through PyTorch's own activations, in float64, over both signs and the tails."""
    from fused_mlp.fallback import ACTIVATE

    a = torch.cat([torch.linspace(-9, 9, 1001), torch.tensor([0.0])]).double().requires_grad_()
    value = ACTIVATE[activation](a)
    (slope,) = torch.autograd.grad(value.sum(), a)
    ours = backward.value_and_slope(a.detach(), activation)
    torch.testing.assert_close(ours, (value.detach(), slope), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("hidden", [1, 40, 1025])
@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
def test_the_slopes_kernel(kernelprof_device: str, activation: str, hidden: int) -> None:
    """Edges of its tiles, and each output alone the same as both together."""
    torch.manual_seed(0)
    gate, up, dh = torch.randn(3, 7, hidden, device=kernelprof_device).unbind()
    value, slope = backward.value_and_slope(gate, activation)
    d_pre, h = ops.gated_slopes(gate, up, dh, activation, True)
    torch.testing.assert_close(h, value * up, rtol=1e-5, atol=1e-6)
    expected = torch.cat([dh * up * slope, dh * value], dim=1)
    torch.testing.assert_close(d_pre, expected, rtol=1e-5, atol=1e-6)
    assert torch.equal(ops.gated_slopes(gate, up, dh, activation, False)[0], d_pre)
    assert torch.equal(ops.gated_slopes(gate, up, None, activation, True)[1], h)
    d_pre, h = ops.plain_slopes(gate, dh, activation, True)
    torch.testing.assert_close((d_pre, h), (dh * slope, value), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("fused", "eager", "shapes"), FORMS)
def test_no_rows_give_zero_gradients(kernelprof_device: str, fused, eager, shapes) -> None:
    tensors = leaves(((0, 24), *shapes[1:]), kernelprof_device, torch.float16)
    with dispatch.forced("fallback"):
        _, *ours = gradients(fused, tensors, "relu")
    assert [g.shape for g in ours] == [t.shape for t in tensors]
    assert not any(g.any() for g in ours)


def test_gradients_through_leading_dimensions_and_sums(kernelprof_device: str) -> None:
    """The gradient of ``sum`` is an expanded number, which no GEMM reads."""
    x, *weights = leaves(GATED, kernelprof_device, torch.float32)
    x = x.detach().expand(2, 5, 24).transpose(0, 1).clone().requires_grad_()
    with dispatch.forced("fallback"):
        ours = torch.autograd.grad(gated_mlp(x, *weights).sum(), (x, *weights))
    exact = torch.autograd.grad(eager_gated(x, *weights, "gelu_tanh").sum(), (x, *weights))
    torch.testing.assert_close(ours, exact, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("fused", "eager", "shapes"), FORMS)
def test_a_second_derivative_is_refused(kernelprof_device: str, fused, eager, shapes) -> None:
    x, *weights = leaves(shapes, kernelprof_device, torch.float32)
    with dispatch.forced("fallback"):
        y = fused(x, *weights)
        with pytest.raises(NotImplementedError, match="second derivatives"):
            torch.autograd.grad(y.sum(), x, create_graph=True)


def test_what_is_held_for_the_backward(kernelprof_device: str) -> None:
    """x, the pre-activations and the weights: neither h nor the activation nor the product."""
    x, *weights = leaves(GATED, kernelprof_device, torch.float16)
    held: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        held[tensor.data_ptr()] = tensor.numel()
        return tensor

    with dispatch.forced("fallback"), torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        gated_mlp(x, *weights)
    rows, width = GATED[0]
    hidden = GATED[1][0]
    assert sum(held.values()) == rows * (width + 2 * hidden) + sum(w.numel() for w in weights)


@needs_gpu
@pytest.mark.parametrize(
    ("call", "shapes", "limit"),
    [
        pytest.param(gated_mlp, ((768,), (3072, 768), (3072, 768), (768, 3072)), 6, id="gated"),
        pytest.param(mlp, ((768,), (3072, 768), (3072,), (768, 3072), (768,)), 7, id="plain"),
    ],
)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_how_many_kernels_a_backward_is(
    kernel_profile: KernelProfile, call, shapes, limit: int, dtype: torch.dtype
) -> None:
    """Guess: gated, dh, the slopes, both weights of the first layer together, the second layer's,
    and two for x: six. Plain: dh, the slopes, two weights, two biases' sums, and x: seven."""
    x, *weights = leaves(((2048, *shapes[0]), *shapes[1:]), "cuda", dtype)
    for _ in range(2):  # the first compiles
        y = call(x, *weights)
        dy = torch.ones_like(y)
        with kernel_profile.region("backward", max_kernels=limit if _ else 1000):
            y.backward(dy)
        for tensor in (x, *weights):
            tensor.grad = None


@needs_gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_gradients_at_full_size_and_bitwise_again(dtype: torch.dtype) -> None:
    tensors = leaves(((4096, 768), (3072, 768), (3072, 768), (768, 3072)), "cuda", dtype)
    exact = gradients(eager_gated, [t.detach().double().requires_grad_() for t in tensors], "silu")
    eager = gradients(eager_gated, tensors, "silu")
    first = gradients(gated_mlp, tensors, "silu")
    for mine, theirs, right in zip(first, eager, exact, strict=True):
        assert error(mine, right) <= 1.02 * error(theirs, right)
    for _ in range(10):
        assert all(map(torch.equal, gradients(gated_mlp, tensors, "silu"), first))
