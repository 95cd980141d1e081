"""Gradients of a gated MLP: GEMMs by cuBLAS and one kernel, from x and the pre-activations alone.

The forward keeps x and what the activation was applied to; the hidden layer h is computed again,
in the same kernel that applies the activation's slope, because writing h once more is cheaper
than keeping it from the forward on. With ``dh = dy Wd`` that kernel makes h and the gradients dg
and du of both pre-activations, and then

    dWg = dg^T x        dWu = du^T x        dWd = dy^T h        dx = dg Wg + du Wu

Seven launches: five for these lines (dx adds its second GEMM onto its first), dh, and the kernel.
Eager takes ten. A gradient that nobody needs is not computed. (One GEMM for dWg and dWu would be a
launch less, and both gradients views of one storage, which saving and resharding trip over.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from . import dispatch
from .problem import TRITON
from .weights import Weights

if TRITON:
    from . import slopes

Slopes = Callable[..., tuple[torch.Tensor, torch.Tensor, torch.Tensor]]


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
        return gradients(ctx, dy, slopes.gated_slopes)


def save(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
    """Keep x, the weights and the pre-activations; no h and no y."""
    x, gate, up, down, activation = inputs
    _, gate_pre, up_pre = output
    ctx.activation = activation
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(x, gate, up, down, gate_pre, up_pre)


def gradients(ctx: Any, dy: torch.Tensor | None, gated_slopes: Slopes) -> Any:
    """Of x, gate, up, down (each ``None`` where not needed) and of the name."""
    _refuse_a_second_derivative()
    if dy is None:
        return None, None, None, None, None
    x, gate, up, down, gate_pre, up_pre = ctx.saved_tensors
    need_x, need_gate, need_up, need_down = ctx.needs_input_grad[:4]
    dy = _for_gemm(dy)
    d_gate, d_up, h = gated_slopes(gate_pre, up_pre, dy @ down, ctx.activation)
    return (
        # in place: ``addmm`` would copy the first product first
        (d_gate @ gate).addmm_(d_up, up) if need_x else None,
        d_gate.t() @ x if need_gate else None,
        d_up.t() @ x if need_up else None,
        dy.t() @ h if need_down else None,
        None,
    )


def _for_gemm(dy: torch.Tensor) -> torch.Tensor:
    """``dy``, copied if its strides suit no GEMM: the gradient of ``sum`` is one number expanded.

    Several kernels read dy, and each would make that copy for itself.
    """
    if dy.is_contiguous() or dy.t().is_contiguous():
        return dy
    return dy.contiguous()


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
