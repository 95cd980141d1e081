"""Gradients of a gated MLP: one kernel and GEMMs by cuBLAS, from what the forward kept.

The forward keeps x, what the activation was applied to, and the hidden layer h: it writes h anyway,
for its own second half. Then, with dg and du for the gradients of both pre-activations, both of
``dh = dy Wd``, which the kernel of `slopes` makes in one go,

    dWg = dg^T x        dWu = du^T x        dWd = dy^T h        dx = dg Wg + du Wu

Six launches: the kernel, and five for these lines (dx adds its second GEMM onto its first). Eager
takes ten. A gradient that nobody needs is not computed. (One GEMM for dWg and dWu would be a
launch less, and both gradients views of one storage, which saving and resharding trip over.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from . import dispatch
from .eager import SlopeOperands
from .weights import Weights

Slopes = Callable[[SlopeOperands, str], tuple[torch.Tensor, torch.Tensor]]


class GatedMLP(torch.autograd.Function):
    """``(act(x Wg^T) * (x Wu^T)) Wd^T`` of x, gate, up, down and the activation's name."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> torch.Tensor:
        x, gate, up, down, activation = inputs
        output = dispatch.run_and_keep(x, Weights(gate, up, down), activation)
        save(ctx, inputs, output)
        return output[0]

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> Any:
        return gradients(ctx, dy, dispatch.run_slopes)


def save(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
    """Keep x, the weights, the pre-activations and h; no y."""
    x, gate, up, down, activation = inputs
    _, gate_pre, up_pre, h = output
    ctx.activation = activation
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(x, gate, up, down, gate_pre, up_pre, h)


def gradients(ctx: Any, dy: torch.Tensor | None, slopes: Slopes) -> Any:
    """Of x, gate, up, down (each ``None`` where not needed) and of the name."""
    _refuse_a_second_derivative()
    if dy is None:
        return None, None, None, None, None
    x, gate, up, down, gate_pre, up_pre, h = ctx.saved_tensors
    need_x, need_gate, need_up, need_down = ctx.needs_input_grad[:4]
    # copied once for all that read it: the gradient of ``sum`` is one number expanded
    dy = dy.contiguous()
    if need_x or need_gate or need_up:
        d_gate, d_up = slopes(SlopeOperands(dy, down, gate_pre, up_pre), ctx.activation)
    return (
        # in place: ``addmm`` would copy the first product first
        (d_gate @ gate).addmm_(d_up, up) if need_x else None,
        d_gate.t() @ x if need_gate else None,
        d_up.t() @ x if need_up else None,
        dy.t() @ h if need_down else None,
        None,
    )


def _refuse_a_second_derivative() -> None:
    """Raise under ``create_graph=True``: the pre-activations kept are constants to autograd.

    Autograd would follow the GEMMs above, miss the way through the pre-activations, and return
    a wrong second derivative without a word.
    """
    if torch.is_grad_enabled():
        raise NotImplementedError(
            "fused_mlp: second derivatives (create_graph=True) are not implemented; "
            "use the eager MLP"
        )
