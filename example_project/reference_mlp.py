"""The modules under test: MLPs in eager PyTorch, written for reading."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


class MLP(nn.Module):
    """``y = gelu(x W1^T + b1) W2^T + b2``, the MLP of GPT-2 and its kin.

    Shapes: x is (..., width), y the same; weights are (hidden, width) and (width, hidden).
    """

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.gelu(self.up(x), approximate="tanh"))


class GatedMLP(nn.Module):
    """``y = (act(x Wg^T) * (x Wu^T)) Wd^T``: GeGLU with GELU, SwiGLU with SiLU; no biases.

    Shapes: x is (..., width), y the same; gate and up weights are (hidden, width), down is
    (width, hidden).
    """

    def __init__(self, width: int, hidden: int, activation: str = "gelu") -> None:
        super().__init__()
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)
        self.activation = activation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate = self.gate(x)
        gelu = self.activation == "gelu"
        gate = F.gelu(gate, approximate="tanh") if gelu else F.silu(gate)
        return self.down(gate * self.up(x))
