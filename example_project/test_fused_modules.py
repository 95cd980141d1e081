"""The modules: the reference's parameters under the reference's names, shared when asked."""

from __future__ import annotations

import pytest
import torch
from fused_mlp.modules import FusedGatedMLP, FusedMLP
from reference_mlp import MLP, GatedMLP
from sizes import Size
from torch import nn
from torch.nn.utils import prune


def close(a: torch.Tensor, b: torch.Tensor) -> None:
    tolerance = 1e-5 if a.dtype is torch.float32 else 2e-2
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def test_a_state_dict_fits_the_reference_and_back(
    kernelprof_device: str, size: Size, x: torch.Tensor
) -> None:
    pairs = (
        (MLP(size.width, size.hidden), FusedMLP(size.width, size.hidden)),
        (GatedMLP(size.width, size.hidden), FusedGatedMLP(size.width, size.hidden)),
    )
    for eager, fused in pairs:
        fused.load_state_dict(eager.state_dict())
        eager.load_state_dict(fused.state_dict())
        for module in (eager, fused):
            module.to(kernelprof_device, size.dtype)
        with torch.no_grad():
            close(fused(x), eager(x))


def test_from_linear_shares_its_parameters(
    kernelprof_device: str, size: Size, x: torch.Tensor
) -> None:
    eager = MLP(size.width, size.hidden).to(kernelprof_device, size.dtype)
    fused = FusedMLP.from_linear(eager.up, eager.down)
    assert list(map(id, fused.parameters())) == list(map(id, eager.parameters()))
    with torch.no_grad():
        eager.up.weight.mul_(2.0)
        close(fused(x), eager(x))
    fused(x).float().sum().backward()
    assert all(parameter.grad is not None for parameter in eager.parameters())


def test_from_gated_shares_its_parameters(size: Size, geglu: GatedMLP, x: torch.Tensor) -> None:
    fused = FusedGatedMLP.from_gated(geglu.gate, geglu.up, geglu.down)
    assert fused.state_dict().keys() == geglu.state_dict().keys()
    assert list(map(id, fused.parameters())) == list(map(id, geglu.parameters()))
    with torch.no_grad():
        close(fused(x), geglu(x))


def test_other_sizes_out_and_no_bias() -> None:
    module = FusedMLP(6, 10, out=3, bias=False, activation="relu", dtype=torch.float64)
    assert {n: tuple(p.shape) for n, p in module.named_parameters()} == {
        "up.weight": (10, 6),
        "down.weight": (3, 10),
    }
    assert module(torch.ones(2, 4, 6, dtype=torch.float64)).shape == (2, 4, 3)
    assert "activation='relu'" in repr(module)
    assert FusedGatedMLP(6, 10, 4)(torch.ones(6)).shape == (4,)
    assert "activation='silu'" in repr(FusedGatedMLP(6, 10, activation="silu"))


class Doubling(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(x)


def hooked(layer: nn.Linear) -> nn.Linear:
    layer.register_forward_hook(lambda module, args, y: 2 * y)
    return layer


def patched(layer: nn.Linear) -> nn.Linear:
    layer.forward = lambda x: x  # type: ignore[method-assign]
    return layer


@pytest.mark.parametrize(
    ("layers", "error", "words"),
    [
        ((nn.Linear(4, 8), nn.ReLU()), TypeError, "down: expected an nn.Linear, got ReLU"),
        ((Doubling(4, 8), nn.Linear(8, 4)), TypeError, r"up: .* own forward.*Doubling"),
        ((hooked(nn.Linear(4, 8)), nn.Linear(8, 4)), TypeError, "up: .* without forward hooks"),
        ((nn.Linear(4, 8), patched(nn.Linear(8, 4))), TypeError, "down: .* set on the layer"),
        (
            (prune.l1_unstructured(nn.Linear(4, 8), "weight", 1), nn.Linear(8, 4)),
            TypeError,
            "up: .* without forward hooks",
        ),
        ((nn.LazyLinear(8), nn.Linear(8, 4)), TypeError, "up: .* a lazy one"),
        ((nn.Linear(4, 8), nn.Linear(7, 4)), ValueError, r"down: expected in_features=8.*got 7"),
        ((nn.Linear(4, 8), nn.Linear(8, 4), "tanh"), ValueError, r"activation: expected one of"),
    ],
)
def test_layers_that_make_no_mlp(layers, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        FusedMLP.from_linear(*layers)


def test_layers_that_make_no_gated_mlp() -> None:
    def linear(width: int, out: int, bias: bool = False) -> nn.Linear:
        return nn.Linear(width, out, bias=bias)

    for layers, words in (
        ((linear(4, 8), linear(4, 8, True), linear(8, 4)), "up: expected no bias"),
        ((linear(4, 8), linear(4, 9), linear(8, 4)), "up: expected out_features=8"),
        ((linear(4, 8), linear(5, 8), linear(8, 4)), "up: expected in_features=4"),
        ((linear(4, 8), linear(4, 8), linear(9, 4)), "down: expected in_features=8"),
    ):
        with pytest.raises(ValueError, match=words):
            FusedGatedMLP.from_gated(*layers)
    with pytest.raises(ValueError, match="activation: expected one of"):
        FusedGatedMLP(4, 8, activation="swish")


def test_sizes_can_be_asked_for_without_memory() -> None:
    x = torch.empty(3, 16, device="meta")
    assert FusedMLP(16, 32).to("meta")(x).shape == (3, 16)
    assert FusedGatedMLP(16, 32, out=8).to("meta")(x).shape == (3, 8)
