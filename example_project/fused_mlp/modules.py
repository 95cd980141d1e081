"""Drop-in modules: `FusedMLP` and `FusedGatedMLP`, with the eager ones' parameters and names."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from .checks import check_activation
from .functional import gated_mlp, mlp


class FusedMLP(nn.Module):
    """``y = act(x W1^T + b1) W2^T + b2`` over the last dimension of x.

    Shapes: x (..., width), y (..., out), ``out`` being the width unless given. Parameters:
    ``up.weight`` (hidden, width), ``up.bias``, ``down.weight`` (out, hidden), ``down.bias``.
    """

    def __init__(
        self,
        width: int,
        hidden: int,
        out: int | None = None,
        bias: bool = True,
        activation: str = "gelu_tanh",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_activation(activation)
        places: dict[str, Any] = {"device": device, "dtype": dtype}
        self.up = nn.Linear(width, hidden, bias=bias, **places)
        self.down = nn.Linear(hidden, width if out is None else out, bias=bias, **places)
        self.activation = activation

    @classmethod
    def from_linear(cls, up: nn.Linear, down: nn.Linear, activation: str = "gelu_tanh") -> FusedMLP:
        """The MLP ``down(act(up(x)))`` with the very layers given: one set of parameters for both.

        Raises TypeError for what is no `nn.Linear` or computes otherwise, ValueError for layers
        that do not fit together and for unknown activations.
        """
        _check_linear("up", up)
        _check_linear("down", down)
        check_activation(activation)
        _check_sizes("down", down, "in_features", up.out_features, "up has out_features")
        module = cls.__new__(cls)
        nn.Module.__init__(module)
        module.up, module.down, module.activation = up, down, activation
        module.training = up.training
        return module

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Shapes: x (..., width), the result (..., out)."""
        up, down = self.up, self.down
        return mlp(x, up.weight, up.bias, down.weight, down.bias, self.activation)

    def extra_repr(self) -> str:
        return f"activation={self.activation!r}"


class FusedGatedMLP(nn.Module):
    """``y = (act(x Wg^T) * (x Wu^T)) Wd^T`` over the last dimension of x; no biases.

    Shapes: x (..., width), y (..., out), ``out`` being the width unless given. Parameters:
    ``gate.weight`` and ``up.weight`` (hidden, width), ``down.weight`` (out, hidden).
    """

    def __init__(
        self,
        width: int,
        hidden: int,
        out: int | None = None,
        activation: str = "gelu_tanh",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_activation(activation)
        places: dict[str, Any] = {"bias": False, "device": device, "dtype": dtype}
        self.gate = nn.Linear(width, hidden, **places)
        self.up = nn.Linear(width, hidden, **places)
        self.down = nn.Linear(hidden, width if out is None else out, **places)
        self.activation = activation

    @classmethod
    def from_gated(
        cls, gate: nn.Linear, up: nn.Linear, down: nn.Linear, activation: str = "gelu_tanh"
    ) -> FusedGatedMLP:
        """The MLP ``down(act(gate(x)) * up(x))`` with the very layers given: shared parameters.

        Raises TypeError for what is no `nn.Linear` or computes otherwise, ValueError for layers
        with a bias or that do not fit together, and for unknown activations.
        """
        for name, layer in (("gate", gate), ("up", up), ("down", down)):
            _check_linear(name, layer)
            if layer.bias is not None:
                raise ValueError(f"{name}: expected no bias in a gated MLP, got one")
        check_activation(activation)
        _check_sizes("up", up, "in_features", gate.in_features, "gate has in_features")
        _check_sizes("up", up, "out_features", gate.out_features, "gate has out_features")
        _check_sizes("down", down, "in_features", gate.out_features, "gate has out_features")
        module = cls.__new__(cls)
        nn.Module.__init__(module)
        module.gate, module.up, module.down, module.activation = gate, up, down, activation
        module.training = up.training
        return module

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Shapes: x (..., width), the result (..., out)."""
        return gated_mlp(x, self.gate.weight, self.up.weight, self.down.weight, self.activation)

    def extra_repr(self) -> str:
        return f"activation={self.activation!r}"


def _check_linear(name: str, layer: object) -> None:
    """A layer may quantise, mask or recompute what it multiplies: its weight alone, read as it is
    now, would be wrong."""
    if not isinstance(layer, nn.Linear):
        raise TypeError(f"{name}: expected an nn.Linear, got {type(layer).__name__}")
    if type(layer).forward is not nn.Linear.forward:
        raise TypeError(
            f"{name}: expected nn.Linear's own forward, got the one of {type(layer).__name__}"
        )
    if isinstance(layer.weight, nn.UninitializedParameter):
        raise TypeError(f"{name}: expected a layer that knows its sizes, got a lazy one")
    if "forward" in vars(layer):
        raise TypeError(f"{name}: expected nn.Linear's own forward, got one set on the layer")
    if layer._forward_hooks or layer._forward_pre_hooks:  # weight_norm and prune are such hooks
        raise TypeError(f"{name}: expected a layer without forward hooks, which would not run")


def _check_sizes(name: str, layer: nn.Linear, size: str, expected: int, because: str) -> None:
    got = getattr(layer, size)
    if got != expected:
        raise ValueError(
            f"{name}: expected {size}={expected}, since {because}={expected}; got {got}"
        )
