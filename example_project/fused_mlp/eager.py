"""The MLP in differentiable PyTorch: what is compared with, and what runs where no kernel wins."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F

from .weights import Weights

ACTIVATE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": F.relu,
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda a: F.gelu(a, approximate="tanh"),
}


_SLOPE: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "relu": lambda d, a: torch.ops.aten.threshold_backward(d, a, 0),
    "silu": torch.ops.aten.silu_backward,
    "gelu_tanh": lambda d, a: torch.ops.aten.gelu_backward(d, a, approximate="tanh"),
}


def eager(x: torch.Tensor, weights: Weights, activation: str) -> torch.Tensor:
    """As `Weights` has it: five kernels where gated, three or so where plain. x is (..., width)."""
    h = ACTIVATE[activation](F.linear(x, weights.first, weights.first_bias))
    if weights.up is not None:
        h = h * F.linear(x, weights.up)
    return F.linear(h, weights.down, weights.down_bias)


class SlopeOperands(NamedTuple):
    """What the gradients of both pre-activations are made of.

    Shapes: ``dy``, the gradient of the result, (rows, out); ``down`` (out, hidden); ``gate_pre``
    and ``up_pre``, x Wg^T and x Wu^T, (rows, hidden).
    """

    dy: torch.Tensor
    down: torch.Tensor
    gate_pre: torch.Tensor
    up_pre: torch.Tensor


def slopes(operands: SlopeOperands, activation: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradients of both pre-activations, (rows, hidden) each."""
    dy, down, gate_pre, up_pre = operands
    dh = dy @ down
    return _SLOPE[activation](dh * up_pre, gate_pre), dh * ACTIVATE[activation](gate_pre)
