"""Where one launch would lose: cuBLAS's GEMMs and one kernel between them, or plain PyTorch.

Two levels. `gated` and `plain` are for GPUs, 2-D x and no autograd: four launches and two (or
three), where eager PyTorch takes five and three. `eager_gated` and `eager_plain` are ordinary
differentiable PyTorch for everything else: the CPU, float32, no Triton, tensor subclasses.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

from .problem import TRITON, triton_runs

if TRITON:
    from . import pointwise

ACTIVATE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": F.relu,
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda a: F.gelu(a, approximate="tanh"),
}
ACTIVATE_IN_PLACE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": torch.relu_,
    "silu": lambda a: F.silu(a, inplace=True),
    "gelu": torch.ops.aten.gelu_,
    "gelu_tanh": lambda a: torch.ops.aten.gelu_(a, approximate="tanh"),
}

EPILOGUES = frozenset({"relu", "gelu_tanh"})
"""Activations that cuBLASLt applies inside a GEMM with bias, before its result is rounded."""


def eager_plain(
    x: torch.Tensor,
    w1: torch.Tensor,
    b1: torch.Tensor | None,
    w2: torch.Tensor,
    b2: torch.Tensor | None,
    activation: str,
) -> torch.Tensor:
    """``act(x W1^T + b1) W2^T + b2`` in differentiable PyTorch; x is (..., width)."""
    return F.linear(ACTIVATE[activation](F.linear(x, w1, b1)), w2, b2)


def eager_gated(
    x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor, activation: str
) -> torch.Tensor:
    """``(act(x Wg^T) * (x Wu^T)) Wd^T`` in differentiable PyTorch; x is (..., width)."""
    return F.linear(ACTIVATE[activation](F.linear(x, gate)) * F.linear(x, up), down)


def gated(
    x: torch.Tensor,
    gate: torch.Tensor,
    up: torch.Tensor,
    down: torch.Tensor,
    activation: str,
    keep: tuple[torch.Tensor, torch.Tensor] | None = None,
) -> torch.Tensor:
    """Three GEMMs and one pointwise kernel: four launches. No autograd.

    Shapes: x (rows, width), gate and up (hidden, width), down (out, hidden), the result
    (rows, out). With ``keep`` the pre-activations go into its two (rows, hidden) tensors, and
    the hidden layer gets a third; without, it overwrites the gate's.
    """
    if keep is None:
        gate_pre, up_pre = torch.mm(x, gate.t()), torch.mm(x, up.t())
        h = gate_pre
    else:
        gate_pre, up_pre = keep
        torch.mm(x, gate.t(), out=gate_pre)
        torch.mm(x, up.t(), out=up_pre)
        h = torch.empty_like(gate_pre)
    if triton_runs(x):
        pointwise.activate_and_multiply(gate_pre, up_pre, h, activation)
    else:
        torch.mul(ACTIVATE[activation](gate_pre), up_pre, out=h)
    return torch.mm(h, down.t())


def plain(
    x: torch.Tensor,
    w1: torch.Tensor,
    b1: torch.Tensor | None,
    w2: torch.Tensor,
    b2: torch.Tensor | None,
    activation: str,
    keep: torch.Tensor | None = None,
) -> torch.Tensor:
    """Two GEMMs, the activation inside the first where cuBLASLt can; else between. No autograd.

    Shapes: x (rows, width), w1 (hidden, width), b1 (hidden,), w2 (out, hidden), b2 (out,), the
    result (rows, out). With ``keep``, a (rows, hidden) tensor that the pre-activations go into,
    the activation is a kernel of its own.
    """
    if keep is not None:
        _linear_into(keep, x, w1, b1)
        h = ACTIVATE[activation](keep)
    elif b1 is not None and activation in EPILOGUES and x.is_cuda and x.shape[0]:
        # CUDA only: on the CPU the same operator means the exact GELU by ``use_gelu``.
        h = torch._addmm_activation(b1, x, w1.t(), use_gelu=activation == "gelu_tanh")
    else:
        h = ACTIVATE_IN_PLACE[activation](F.linear(x, w1, b1))
    return F.linear(h, w2, b2)


def _linear_into(
    out: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
) -> None:
    if bias is None:
        torch.mm(x, weight.t(), out=out)
    else:
        torch.addmm(bias, x, weight.t(), out=out)
