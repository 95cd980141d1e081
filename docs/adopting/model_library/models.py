"""The library: models with one interface."""

import torch
from torch import nn


class Encoder(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.up, self.down = nn.Linear(16, 32), nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x):
        return self.down(torch.sigmoid(self.gate(x)) * self.up(x))
