"""The operators that torch.compile sees: opaque, functional, with fakes and with gradients.

Four have a kernel behind them. ``gated`` and ``plain`` are inference. ``gated_training`` and
``plain_training`` return the pre-activations, too, which the backward wants: an operator cannot
see whether a gradient will be asked for, so `functional` picks the one or the other.
``gated_slopes`` and ``plain_slopes`` are the backward's pointwise kernel; the GEMMs around it stay
aten operators, which Inductor may tune.

None declares a mutation. The kernels do write to a workspace, but leave it zeroed as they found it
and share it with nobody (see `workspace`); declaring it would cost copies, or the CUDA graph.

Shapes: x is (rows, width), weights as in `functional`, results (rows, out), pre-activations
(rows, hidden). x may be strided, and is then copied.
"""

from __future__ import annotations

from typing import Optional

import torch

from . import backward, dispatch
from .backward import value_and_slope
from .problem import TRITON

if TRITON:
    import triton

    from . import pointwise

# ``Optional[...]``, not ``... | None``: the schema is read from these annotations.
# ruff: noqa: UP045


@torch.library.custom_op("fused_mlp::gated", mutates_args=())
def gated(
    x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor, activation: str
) -> torch.Tensor:
    """``(act(x Wg^T) * (x Wu^T)) Wd^T``, for inference."""
    return dispatch.run_gated(x.contiguous(), gate, up, down, activation)


@gated.register_fake
def _(
    x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor, activation: str
) -> torch.Tensor:
    return x.new_empty(x.shape[0], down.shape[0])


@torch.library.custom_op("fused_mlp::gated_training", mutates_args=())
def gated_training(
    x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor, activation: str
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """``gated``'s result and both pre-activations, ``x Wg^T`` and ``x Wu^T``."""
    gate_pre = x.new_empty(x.shape[0], gate.shape[0])
    up_pre = torch.empty_like(gate_pre)
    y = dispatch.run_gated(x.contiguous(), gate, up, down, activation, (gate_pre, up_pre))
    return y, gate_pre, up_pre


@gated_training.register_fake
def _(
    x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor, activation: str
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    rows, hidden = x.shape[0], gate.shape[0]
    return (
        x.new_empty(rows, down.shape[0]),
        x.new_empty(rows, hidden),
        x.new_empty(rows, hidden),
    )


@torch.library.custom_op("fused_mlp::gated_slopes", mutates_args=())
def gated_slopes(
    gate_pre: torch.Tensor,
    up_pre: torch.Tensor,
    d_hidden: Optional[torch.Tensor],
    activation: str,
    want_h: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """``([dg du], h)``: gradients of both pre-activations in one (rows, 2 hidden), and h.

    Without ``d_hidden`` the first is empty, without ``want_h`` the second.
    """
    if _by_triton(gate_pre):
        with torch.cuda.device_of(gate_pre):
            return pointwise.gated_backward(
                gate_pre.contiguous(),
                up_pre.contiguous(),
                None if d_hidden is None else d_hidden.contiguous(),
                activation,
                want_h,
            )
    value, slope = value_and_slope(gate_pre, activation)
    nothing = gate_pre.new_empty(0)
    h = (value * up_pre).to(gate_pre.dtype) if want_h else nothing
    if d_hidden is None:
        return nothing.clone(), h
    d_pre = torch.cat([d_hidden * up_pre.to(slope.dtype) * slope, d_hidden * value], dim=1)
    return d_pre.to(gate_pre.dtype), h


@gated_slopes.register_fake
def _(
    gate_pre: torch.Tensor,
    up_pre: torch.Tensor,
    d_hidden: Optional[torch.Tensor],
    activation: str,
    want_h: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    rows, hidden = gate_pre.shape
    d_pre = gate_pre.new_empty((rows, 2 * hidden) if d_hidden is not None else (0,))
    return d_pre, gate_pre.new_empty((rows, hidden) if want_h else (0,))


@torch.library.custom_op("fused_mlp::plain", mutates_args=())
def plain(
    x: torch.Tensor,
    w1: torch.Tensor,
    b1: Optional[torch.Tensor],
    w2: torch.Tensor,
    b2: Optional[torch.Tensor],
    activation: str,
) -> torch.Tensor:
    """``act(x W1^T + b1) W2^T + b2``, for inference."""
    return dispatch.run_plain(x.contiguous(), w1, b1, w2, b2, activation)


@plain.register_fake
def _(
    x: torch.Tensor,
    w1: torch.Tensor,
    b1: Optional[torch.Tensor],
    w2: torch.Tensor,
    b2: Optional[torch.Tensor],
    activation: str,
) -> torch.Tensor:
    return x.new_empty(x.shape[0], w2.shape[0])


@torch.library.custom_op("fused_mlp::plain_training", mutates_args=())
def plain_training(
    x: torch.Tensor,
    w1: torch.Tensor,
    b1: Optional[torch.Tensor],
    w2: torch.Tensor,
    b2: Optional[torch.Tensor],
    activation: str,
) -> tuple[torch.Tensor, torch.Tensor]:
    """``plain``'s result and the pre-activation ``x W1^T + b1``."""
    pre = x.new_empty(x.shape[0], w1.shape[0])
    y = dispatch.run_plain(x.contiguous(), w1, b1, w2, b2, activation, pre)
    return y, pre


@plain_training.register_fake
def _(
    x: torch.Tensor,
    w1: torch.Tensor,
    b1: Optional[torch.Tensor],
    w2: torch.Tensor,
    b2: Optional[torch.Tensor],
    activation: str,
) -> tuple[torch.Tensor, torch.Tensor]:
    return x.new_empty(x.shape[0], w2.shape[0]), x.new_empty(x.shape[0], w1.shape[0])


@torch.library.custom_op("fused_mlp::plain_slopes", mutates_args=())
def plain_slopes(
    pre: torch.Tensor, d_hidden: Optional[torch.Tensor], activation: str, want_h: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """``(d_hidden * act'(pre), act(pre))``; without ``d_hidden``, ``want_h`` one is empty."""
    if _by_triton(pre):
        with torch.cuda.device_of(pre):
            return pointwise.plain_backward(
                pre.contiguous(),
                None if d_hidden is None else d_hidden.contiguous(),
                activation,
                want_h,
            )
    value, slope = value_and_slope(pre, activation)
    d_pre = pre.new_empty(0) if d_hidden is None else (d_hidden * slope).to(pre.dtype)
    # ``copy``: operators must not return what they were given, nor one tensor twice
    return d_pre, value.to(pre.dtype, copy=True) if want_h else pre.new_empty(0)


@plain_slopes.register_fake
def _(
    pre: torch.Tensor, d_hidden: Optional[torch.Tensor], activation: str, want_h: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    d_pre = pre.new_empty(pre.shape if d_hidden is not None else (0,))
    return d_pre, pre.new_empty(pre.shape if want_h else (0,))


gated_training.register_autograd(backward.gated_backward, setup_context=backward.gated_setup)
plain_training.register_autograd(backward.plain_backward, setup_context=backward.plain_setup)


def _by_triton(tensor: torch.Tensor) -> bool:
    """On a GPU, and on the CPU in Triton's interpreter: what the tests without a GPU run."""
    return TRITON and (tensor.is_cuda or triton.knobs.runtime.interpret)
