"""The code under test."""

import torch


def forward(x: torch.Tensor) -> torch.Tensor:
    x = x * 0.5
    return torch.nn.functional.gelu(x @ x)
