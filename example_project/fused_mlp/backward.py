"""Gradients: GEMMs by cuBLAS and one pointwise kernel, from x and the pre-activations alone.

The forward keeps x and what the activation was applied to; the hidden layer h is computed again,
in the same kernel that applies the activation's slope, because writing h once more is cheaper
than keeping it from the forward on. With ``dh = dy Wd`` that kernel makes h and, side by side in
one (rows, 2 hidden) buffer, the gradients dg and du of both pre-activations. So side by side,
both weight gradients are one GEMM::

    [dWg; dWu] = [dg du]^T x        dWd = dy^T h        dx = dg Wg + du Wu

Six launches: four for these lines (dx adds its second GEMM onto its first), dh, and the kernel.
Eager takes ten. Only what is needed is computed.
"""

from __future__ import annotations

from typing import Any

import torch


def gated_setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
    """Keep x, the weights and the pre-activations; no h and no y."""
    x, gate, up, down, activation = inputs
    _, gate_pre, up_pre = output
    ctx.activation = activation
    ctx.mark_non_differentiable(gate_pre, up_pre)
    ctx.set_materialize_grads(False)  # else two kernels would fill zeros for the pre-activations
    ctx.save_for_backward(x, gate, up, down, gate_pre, up_pre)


def gated_backward(ctx: Any, dy: torch.Tensor | None, *_: None) -> Any:
    """Gradients of x, gate, up, down (each ``None`` where not needed) and of the name."""
    _refuse_a_second_derivative()
    if dy is None:
        return None, None, None, None, None
    x, gate, up, down, gate_pre, up_pre = ctx.saved_tensors
    need_x, need_gate, need_up, need_down = ctx.needs_input_grad[:4]
    dy = _for_gemm(dy)
    dh = dy @ down if need_x or need_gate or need_up else None
    d_pre, h = torch.ops.fused_mlp.gated_slopes(gate_pre, up_pre, dh, ctx.activation, need_down)
    d_gate, d_up = _weight_gradients(d_pre, x, gate.shape[0], need_gate, need_up)
    dx = None
    if need_x:
        hidden = gate.shape[0]
        dx = d_pre[:, :hidden] @ gate
        dx = dx.addmm_(d_pre[:, hidden:], up)  # in place: ``addmm`` would copy dx first
    return dx, d_gate, d_up, dy.t() @ h if need_down else None, None


def plain_setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
    """Keep x, the weights and the pre-activation; no h and no y."""
    x, w1, _, w2, _, activation = inputs
    _, pre = output
    ctx.activation = activation
    ctx.mark_non_differentiable(pre)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(x, w1, w2, pre)


def plain_backward(ctx: Any, dy: torch.Tensor | None, *_: None) -> Any:
    """Gradients of x, w1, b1, w2, b2 (each ``None`` where not needed) and of the name."""
    _refuse_a_second_derivative()
    if dy is None:
        return None, None, None, None, None, None
    x, w1, w2, pre = ctx.saved_tensors
    need_x, need_w1, need_b1, need_w2, need_b2 = ctx.needs_input_grad[:5]
    dy = _for_gemm(dy)
    d_pre = h = None
    need_d_pre = need_x or need_w1 or need_b1
    if need_d_pre or need_w2:
        dh = dy @ w2 if need_d_pre else None
        d_pre, h = torch.ops.fused_mlp.plain_slopes(pre, dh, ctx.activation, need_w2)
    return (
        d_pre @ w1 if need_x else None,
        d_pre.t() @ x if need_w1 else None,
        d_pre.sum(0) if need_b1 else None,
        dy.t() @ h if need_w2 else None,
        dy.sum(0) if need_b2 else None,
        None,
    )


def value_and_slope(pre: torch.Tensor, activation: str) -> tuple[torch.Tensor, torch.Tensor]:
    """``act(pre)`` and ``act'(pre)`` in PyTorch, float32 or float64; `pointwise` explains them."""
    a = pre if pre.dtype is torch.float64 else pre.float()
    if activation == "relu":
        return a.clamp(min=0), (~(a <= 0)).to(a.dtype)
    if activation == "gelu":
        below = 0.5 * (1 + torch.erf(a * 0.5**0.5))
        return a * below, below + a * torch.exp(-0.5 * a * a) * 0.3989422804014327
    if activation == "silu":
        s, inner_slope = torch.sigmoid(a), 1.0
    else:
        s = torch.sigmoid(1.5957691216057308 * a * (1 + 0.044715 * a * a))
        inner_slope = 1.5957691216057308 * (1 + 0.134145 * a * a)
    value = a * s
    return value, s + value * (1 - s) * inner_slope


def _weight_gradients(
    d_pre: torch.Tensor, x: torch.Tensor, hidden: int, need_gate: bool, need_up: bool
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Both gradients as halves of one GEMM's result, (2 * hidden, width); or the one needed."""
    if need_gate and need_up:
        both = d_pre.t() @ x
        return both[:hidden], both[hidden:]
    d_gate = d_pre[:, :hidden].t() @ x if need_gate else None
    d_up = d_pre[:, hidden:].t() @ x if need_up else None
    return d_gate, d_up


def _for_gemm(dy: torch.Tensor) -> torch.Tensor:
    """``dy``, copied if its strides suit no GEMM: the gradient of ``sum`` is one number expanded.

    Several kernels read dy, and each would make that copy for itself.
    """
    if dy.is_contiguous() or dy.t().is_contiguous():
        return dy
    return dy.contiguous()


def _refuse_a_second_derivative() -> None:
    """Raise under ``create_graph=True``: the pre-activations kept are constants to autograd.

    Autograd would follow the GEMMs below, miss the way through the pre-activations, and return
    a wrong second derivative without a word.
    """
    if torch.is_grad_enabled():
        raise NotImplementedError(
            "fused_mlp: second derivatives (create_graph=True) are not implemented; "
            "use the eager MLP"
        )
