"""Gradients: against float64, only those that are needed, in six kernels, and no second ones."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.autograd import forward_ad

pytest.importorskip("triton")

import triton
import triton.language as tl
from fused_mlp import backward, dispatch, ops
from fused_mlp.activations import value_and_slope
from fused_mlp.eager import ACTIVATE, SlopeOperands, eager
from fused_mlp.eager import slopes as eager_slopes
from fused_mlp.functional import gated_mlp, mlp
from fused_mlp.problem import KERNEL_ACTIVATIONS
from fused_mlp.weights import Weights

from pytest_kernelprof import KernelProfile

HOPPER = torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)
if HOPPER:
    from fused_mlp import slopes
needs_hopper = pytest.mark.skipif(not HOPPER, reason="needs a Hopper GPU")

SHAPES = ((5, 24), (40, 24), (40, 24), (16, 40))
RAGGED = ((1, 72, 264), (127, 8, 520), (1000, 776, 1032), (4100, 256, 1024))
"""Rows, out and hidden of the backward's kernel."""
FULL_SIZE = ((8192, 768), (3072, 768), (3072, 768), (768, 3072))


def leaves(shapes: Any, device: str, dtype: torch.dtype) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [
        (torch.randn(s, device=device) / s[-1] ** 0.5).to(dtype).requires_grad_() for s in shapes
    ]


def by_pytorch(x, gate, up, down, activation: str = "gelu_tanh") -> torch.Tensor:
    return eager(x, Weights(gate, up, down), activation)


def by_formulas(*arguments: Any) -> torch.Tensor:
    """The autograd function itself. PyTorch does the forward (small sizes, no Hopper), and the
    backward where its kernel cannot run."""
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


@triton.jit
def value_and_slope_kernel(
    gate,
    value,
    slope,
    ACTIVATION: tl.constexpr,  # noqa: N803
    INTERPRET: tl.constexpr,  # noqa: N803
):
    at = tl.arange(0, 256)
    found, its_slope = value_and_slope(tl.load(gate + at), ACTIVATION, INTERPRET, True)
    tl.store(value + at, found)
    tl.store(slope + at, its_slope)


@pytest.mark.filterwarnings("ignore:.* encountered in:RuntimeWarning")
@pytest.mark.parametrize("activation", sorted(KERNEL_ACTIVATIONS))
def test_values_and_slopes(kernelprof_device: str, activation: str) -> None:
    """Against autograd through PyTorch's own activations, over both signs, the tails, 0 and NaN."""
    gate = torch.linspace(-9.0, 9.0, 256, device=kernelprof_device)
    gate[:4] = torch.tensor([0.0, float("nan"), float("inf"), float("-inf")])
    value, slope = torch.empty_like(gate), torch.empty_like(gate)
    interpret = kernelprof_device == "cpu"
    value_and_slope_kernel[(1,)](gate, value, slope, activation, interpret)
    a = gate.clone().requires_grad_()
    right = ACTIVATE[activation](a)
    (right_slope,) = torch.autograd.grad(right.sum(), a)
    assert slope[1:4].isfinite().equal(right_slope[1:4].isfinite())
    gate_is_finite = gate.isfinite()
    for found, exact in ((value, right.detach()), (slope, right_slope)):
        found, exact = found[gate_is_finite], exact[gate_is_finite]
        torch.testing.assert_close(found, exact, rtol=1e-5, atol=2e-6)


@needs_hopper
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("activation", sorted(KERNEL_ACTIVATIONS))
@pytest.mark.parametrize("sizes", RAGGED)
def test_the_slopes_kernel(activation: str, dtype: torch.dtype, sizes: tuple[int, ...]) -> None:
    """Edges of tiles in each direction; no worse than the GEMM and the operators of PyTorch, or
    than one rounding where those are better by chance."""
    operands = operands_for_slopes(sizes, dtype)
    exact = eager_slopes(SlopeOperands(*(t.double() for t in operands)), activation)
    theirs = eager_slopes(operands, activation)
    found = slopes.slopes(operands, activation)
    for mine, their, right in zip(found, theirs, exact, strict=True):
        assert error(mine, right) <= max(1.02 * error(their, right), torch.finfo(dtype).eps / 2)


@needs_hopper
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("where", range(4))
def test_nan_and_infinity_pass_the_slopes_kernel_as_in_eager(where: int, value: float) -> None:
    operands = operands_for_slopes((300, 72, 520), torch.bfloat16)
    operands[where][3, 5] = value
    found = slopes.slopes(operands, "gelu_tanh")
    for mine, right in zip(found, eager_slopes(operands, "gelu_tanh"), strict=True):
        assert mine.isfinite().equal(right.isfinite())


@needs_hopper
def test_the_slopes_kernel_gives_the_same_bits_beside_a_busy_stream() -> None:
    operands = operands_for_slopes((8192, 768, 3072), torch.bfloat16)
    first = slopes.slopes(operands, "gelu_tanh")
    other, a = torch.cuda.Stream(), torch.randn(2048, 2048, device="cuda")
    for _ in range(1000):
        with torch.cuda.stream(other):
            a @ a
        assert all(map(torch.equal, slopes.slopes(operands, "gelu_tanh"), first))


def operands_for_slopes(sizes: tuple[int, ...], dtype: torch.dtype) -> SlopeOperands:
    """Random ones for (rows, out, hidden)."""
    rows, out, hidden = sizes
    torch.manual_seed(0)
    shapes = (rows, out), (out, hidden), (rows, hidden), (rows, hidden)
    return SlopeOperands(*(torch.randn(shape, device="cuda").to(dtype) for shape in shapes))


def test_an_mlp_whose_down_alone_is_trained_needs_no_slopes(
    kernelprof_device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensors = leaves(SHAPES, kernelprof_device, torch.float32)
    for frozen in tensors[:3]:
        frozen.requires_grad_(False)
    monkeypatch.setattr(dispatch, "run_slopes", None)
    found = gradients(by_formulas, tensors, "silu")
    torch.testing.assert_close(found, gradients(by_pytorch, tensors, "silu"))


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


def test_what_is_held_for_the_backward(kernelprof_device: str) -> None:
    """x, the weights, the pre-activations and h: no activation and no result."""
    x, *weights = leaves(SHAPES, kernelprof_device, torch.float16)
    held: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        held[tensor.data_ptr()] = tensor.numel()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        by_formulas(x, *weights, "silu")
    rows, width = SHAPES[0]
    hidden = SHAPES[1][0]
    assert sum(held.values()) == rows * (width + 3 * hidden) + sum(w.numel() for w in weights)


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
    """Guess: one forward; backward dh with the slopes, three weights, and two for x: six."""
    x, *weights = leaves(FULL_SIZE, "cuda", dtype)
    for again in range(2):  # the first compiles
        with kernel_profile.region("forward", max_kernels=1 if again else 1000):
            y = gated_mlp(x, *weights)
        dy = torch.ones_like(y)
        with kernel_profile.region("backward", max_kernels=6 if again else 1000):
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


def test_a_backward_under_forward_mode_differentiation_is_pytorchs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The kernel would drop the tangent of dy without a word."""
    launched: list[str] = []

    def kernel(operands: SlopeOperands, activation: str) -> Any:
        launched.append(activation)
        return eager_slopes(operands, activation)

    fake = SimpleNamespace(supports=lambda *sizes: True, slopes=kernel)
    monkeypatch.setattr(dispatch, "GLUON", True)
    monkeypatch.setattr(dispatch, "slopes", fake, raising=False)
    monkeypatch.setattr(dispatch, "capability_of", lambda device: (9, 0))
    dy, down, *pre = (torch.randn(s) for s in ((4, 16), (16, 8), (4, 8), (4, 8)))
    dispatch.run_slopes(SlopeOperands(dy, down, *pre), "relu")
    assert launched == ["relu"]
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(dy, dy)
        found, _ = dispatch.run_slopes(SlopeOperands(dual, down, *pre), "relu")
        assert forward_ad.unpack_dual(found).tangent is not None
    assert launched == ["relu"]
