"""The operators that torch.compile sees: opaque, functional, with fakes and with gradients.

``mlp`` is inference. ``gated_training`` returns what the backward wants, too: an operator cannot
see whether a gradient will be asked for, so `functional` picks the one or the other.
``gated_slopes`` is the backward's kernel; the GEMMs after it stay aten operators, which Inductor
may tune.

None declares a mutation. The kernels do write to a workspace, but leave it as they found it and
share it with nobody (see `workspace`); declaring it would cost copies, or the CUDA graph.

Shapes: x is (rows, width), weights as `Weights` has them, results (rows, out), pre-activations and
h (rows, hidden).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Optional

import torch
from torch import library

from . import backward, dispatch
from .eager import SlopeOperands, eager
from .weights import Weights


def operator(function: Callable[..., Any]) -> Any:
    """Register an operator of the function's name that mutates nothing, for every device.

    PyTorch's `custom_op` does so, too, and puts Python around each call that takes the host
    longer than all of a call for one row.
    """
    name = f"fused_mlp::{function.__name__}"
    library.define(name, library.infer_schema(function, mutates_args=()))
    library.impl(name, "default")(function)
    return getattr(torch.ops.fused_mlp, function.__name__).default


# ``Optional[...]``, not ``... | None``: the schema is read from these annotations.
# ruff: noqa: UP045


@operator
def mlp(
    x: torch.Tensor,
    first: torch.Tensor,
    up: Optional[torch.Tensor],
    down: torch.Tensor,
    first_bias: Optional[torch.Tensor],
    down_bias: Optional[torch.Tensor],
    activation: str,
) -> torch.Tensor:
    """The MLP that `Weights` describes, for inference."""
    x, weights = x.contiguous(), Weights(first, up, down, first_bias, down_bias)
    if not dispatch.are_aligned(x, weights):
        return eager(x, weights, activation)
    return dispatch.run(dispatch.kernel_for(x, weights, activation), x, weights, activation)


@library.register_fake("fused_mlp::mlp")
def _(x: torch.Tensor, first: Any, up: Any, down: torch.Tensor, *_: Any) -> torch.Tensor:
    return x.new_empty(x.shape[0], down.shape[0])


@operator
def gated_training(
    x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor, activation: str
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """The gated MLP, both pre-activations, ``x Wg^T`` and ``x Wu^T``, and h."""
    return dispatch.run_and_keep(x.contiguous(), Weights(gate, up, down), activation)


@library.register_fake("fused_mlp::gated_training")
def _(
    x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor, activation: str
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    pre = x.new_empty(x.shape[0], gate.shape[0])
    y = x.new_empty(x.shape[0], down.shape[0])
    return y, pre, torch.empty_like(pre), torch.empty_like(pre)


@operator
def gated_slopes(
    dy: torch.Tensor,
    down: torch.Tensor,
    gate_pre: torch.Tensor,
    up_pre: torch.Tensor,
    activation: str,
) -> tuple[torch.Tensor, torch.Tensor]:
    """As `dispatch.run_slopes`; an operator's arguments are tensors, one by one."""
    operands = SlopeOperands(dy.contiguous(), down, gate_pre.contiguous(), up_pre.contiguous())
    return dispatch.run_slopes(operands, activation)


@library.register_fake("fused_mlp::gated_slopes")
def _(
    dy: Any, down: Any, gate_pre: torch.Tensor, up_pre: torch.Tensor, activation: str
) -> tuple[torch.Tensor, torch.Tensor]:
    return gate_pre.new_empty(gate_pre.shape), up_pre.new_empty(up_pre.shape)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
    ctx.mark_non_differentiable(*output[1:])
    backward.save(ctx, inputs, output)


def _slopes(operands: SlopeOperands, activation: str) -> Any:
    return torch.ops.fused_mlp.gated_slopes(*operands, activation)


def _gradients(ctx: Any, dy: torch.Tensor | None, *_: None) -> Any:
    return backward.gradients(ctx, dy, _slopes)


library.register_autograd("fused_mlp::gated_training", _gradients, setup_context=_save)
