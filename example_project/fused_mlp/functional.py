"""The calls: `mlp` and `gated_mlp`, from any tensors of the right shapes to the right path.

Three paths lead on from here:

- plain differentiable PyTorch, where no kernel of ours can run (`fallback`);
- the opaque operators (`ops`), when torch.compile traces or a gradient will be asked for;
- straight to the kernel (`dispatch`), in eager inference. A custom operator costs some ten
  microseconds a call, as much as a small decode step takes on the GPU.
"""

from __future__ import annotations

import torch
from torch import nn

from . import dispatch, fallback, ops
from .checks import check_gated, check_plain
from .problem import triton_runs


def mlp(
    x: torch.Tensor,
    w1: torch.Tensor,
    b1: torch.Tensor | None,
    w2: torch.Tensor,
    b2: torch.Tensor | None,
    activation: str = "gelu_tanh",
) -> torch.Tensor:
    """``act(x W1^T + b1) W2^T + b2``; in one launch where that is quickest.

    Shapes: x (..., width), w1 (hidden, width), b1 (hidden,) or ``None``, w2 (out, hidden), b2
    (out,) or ``None``; the result is (..., out). One dtype: bfloat16 or float16 for the kernels;
    float32 and float64 go to PyTorch. Activations: "relu", "gelu_tanh", "silu", "gelu".

    Raises TypeError for an argument of the wrong type or dtype, ValueError for a wrong shape,
    device or name.
    """
    if isinstance(x, torch.Tensor) and _under_autocast(x):
        x, w1, b1, w2, b2 = _as_autocast_does(x, w1, b1, w2, b2)
    check_plain(x, w1, b1, w2, b2, activation)
    if not (
        _kernels_take(x)
        and _is_plain(w1)
        and _is_plain(w2)
        and (b1 is None or _is_plain(b1))
        and (b2 is None or _is_plain(b2))
    ):
        return fallback.eager_plain(x, w1, b1, w2, b2, activation)
    rows = x if x.dim() == 2 else x.reshape(-1, x.shape[-1])
    if torch.is_grad_enabled() and (
        x.requires_grad
        or w1.requires_grad
        or w2.requires_grad
        or (b1 is not None and b1.requires_grad)
        or (b2 is not None and b2.requires_grad)
    ):
        y, _ = ops.plain_training(rows.contiguous(), w1, b1, w2, b2, activation)
    elif torch.compiler.is_compiling():
        y = ops.plain(rows.contiguous(), w1, b1, w2, b2, activation)
    else:
        y = dispatch.run_plain(rows.contiguous(), w1, b1, w2, b2, activation)
    return y if x.dim() == 2 else y.view(*x.shape[:-1], w2.shape[0])


def gated_mlp(
    x: torch.Tensor,
    gate: torch.Tensor,
    up: torch.Tensor,
    down: torch.Tensor,
    activation: str = "gelu_tanh",
) -> torch.Tensor:
    """``(act(x Wg^T) * (x Wu^T)) Wd^T``: GeGLU or SwiGLU; in one launch where that is quickest.

    Shapes: x (..., width), gate and up (hidden, width), down (out, hidden); the result is
    (..., out). Dtypes, activations and errors are those of `mlp`.
    """
    if isinstance(x, torch.Tensor) and _under_autocast(x):
        x, gate, up, down = _as_autocast_does(x, gate, up, down)
    check_gated(x, gate, up, down, activation)
    if not (_kernels_take(x) and _is_plain(gate) and _is_plain(up) and _is_plain(down)):
        return fallback.eager_gated(x, gate, up, down, activation)
    rows = x if x.dim() == 2 else x.reshape(-1, x.shape[-1])
    if torch.is_grad_enabled() and (
        x.requires_grad or gate.requires_grad or up.requires_grad or down.requires_grad
    ):
        y, _, _ = ops.gated_training(rows.contiguous(), gate, up, down, activation)
    elif torch.compiler.is_compiling():
        y = ops.gated(rows.contiguous(), gate, up, down, activation)
    else:
        y = dispatch.run_gated(rows.contiguous(), gate, up, down, activation)
    return y if x.dim() == 2 else y.view(*x.shape[:-1], down.shape[0])


def _kernels_take(x: torch.Tensor) -> bool:
    """Is x an ordinary tensor, not empty in width, where Triton runs or a test forces a kernel?"""
    return (
        _is_plain(x)
        and x.shape[-1] > 0
        and (triton_runs(x) or dispatch.forced_kernel() is not None)
    )


def _is_plain(tensor: torch.Tensor) -> bool:
    """No subclass: a quantised or distributed tensor has its own ``linear`` and maybe no data."""
    return type(tensor) is torch.Tensor or type(tensor) is nn.Parameter


def _under_autocast(x: torch.Tensor) -> bool:
    if x.is_cuda:
        return torch.is_autocast_enabled("cuda")
    kind = x.device.type  # of some, "meta" for one, there is no autocast to ask about
    return torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)


def _as_autocast_does(*tensors: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
    """Floating-point tensors in autocast's dtype, as it hands them to ``linear``; no float64."""
    first = tensors[0]
    assert first is not None
    dtype = torch.get_autocast_dtype(first.device.type)
    return tuple(
        t.to(dtype)
        if isinstance(t, torch.Tensor) and t.is_floating_point() and t.dtype is not torch.float64
        else t
        for t in tensors
    )
