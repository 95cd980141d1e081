"""The weights of an MLP, gated or plain: one record, so that nothing else is written twice."""

from __future__ import annotations

from typing import NamedTuple

import torch


class Weights(NamedTuple):
    """What x is multiplied by, in two forms.

    Plain: ``act(x first^T + first_bias) down^T + down_bias``; either bias may be ``None``.
    Gated: ``(act(x first^T) * (x up^T)) down^T``; no biases.

    Shapes: ``first`` and ``up`` (hidden, width), ``down`` (out, hidden), ``first_bias`` (hidden,),
    ``down_bias`` (out,).
    """

    first: torch.Tensor
    up: torch.Tensor | None
    down: torch.Tensor
    first_bias: torch.Tensor | None = None
    down_bias: torch.Tensor | None = None


def names_of(weights: Weights) -> tuple[str, str, str, str, str]:
    """What callers know the fields as, for messages. A function, since torch.compile before torch
    2.11 traces no property of a named tuple."""
    return ("w1", "", "w2", "b1", "b2") if weights.up is None else ("gate", "up", "down", "", "")
