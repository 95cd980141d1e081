"""The MLP in differentiable PyTorch: what is compared with, and what runs where no kernel wins."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

from .weights import Weights

ACTIVATE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": F.relu,
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda a: F.gelu(a, approximate="tanh"),
}


def eager(x: torch.Tensor, weights: Weights, activation: str) -> torch.Tensor:
    """As `Weights` has it: five kernels where gated, three or so where plain. x is (..., width)."""
    h = ACTIVATE[activation](F.linear(x, weights.first, weights.first_bias))
    if weights.up is not None:
        h = h * F.linear(x, weights.up)
    return F.linear(h, weights.down, weights.down_bias)
