"""The calls: `mlp` and `gated_mlp`, from any tensors of the right shapes to the right path.

Four paths lead on from here:

- PyTorch, where no kernel is ahead or can run (`eager`);
- the opaque operators (`ops`), when torch.compile traces;
- an autograd function (`backward`), where a gradient will be asked for;
- straight to the kernel (`dispatch`), in eager inference.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.autograd import forward_ad

from . import backward, dispatch, ops
from .checks import check, check_activation, check_tensor
from .eager import eager
from .weights import Weights


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
    return _mlp(x, Weights(w1, None, w2, b1, b2), activation)


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
    check_tensor("up", up)
    return _mlp(x, Weights(gate, up, down), activation)


def _mlp(x: torch.Tensor, weights: Weights, activation: str) -> torch.Tensor:
    if isinstance(x, torch.Tensor) and _under_autocast(x):
        dtype = torch.get_autocast_dtype(x.device.type)
        if not all(weight is None or _has_dtype(weight, dtype) for weight in weights):
            # PyTorch's autocast casts a weight once for as long as it is on, where it may. Casting
            # here would be once for each call.
            check_activation(activation)
            return eager(x, weights, activation)
        x = x.to(dtype)
    check(x, weights, activation)
    if not _kernels_take(x, weights):
        return eager(x, weights, activation)
    rows = x if x.dim() == 2 else x.reshape(-1, x.shape[-1])
    keep = torch.is_grad_enabled() and _requires_grad(x, weights)
    kernel = dispatch.kernel_for(rows, weights, activation, keep)
    if kernel == "pytorch":
        return eager(x, weights, activation)
    rows = rows.contiguous()
    if torch.compiler.is_compiling():
        y = (
            ops.gated_training(rows, *weights[:3], activation)[0]
            if keep
            else ops.mlp(rows, *weights, activation)
        )
    elif keep:
        y = backward.GatedMLP.apply(rows, *weights[:3], activation)
    else:
        y = dispatch.run(kernel, rows, weights, activation)
    return y if x.dim() == 2 else y.view(*x.shape[:-1], y.shape[-1])


def _kernels_take(x: torch.Tensor, weights: Weights) -> bool:
    """Can kernels read these, and will nobody miss what autograd would have done?

    Not subclasses of tensors: a quantised or distributed one has its own ``linear`` and maybe no
    data. Not under forward-mode AD or the transforms of ``torch.func``: their tensors carry
    tangents or a batch, which a kernel would drop without a word. PyTorch does all of that right.
    """
    return (
        (_is_on_a_gpu(x) or dispatch.forced_kernel() is not None)
        and all(w is None or type(w) in _PLAIN for w in (x, *weights))
        and x.shape[-1] > 0
        and (torch.compiler.is_compiling() or not _is_transformed())
    )


def _is_on_a_gpu(x: torch.Tensor) -> bool:
    return x.is_cuda


_PLAIN = (torch.Tensor, nn.Parameter)


def _is_transformed() -> bool:
    return forward_ad._current_level >= 0 or torch._C._are_functorch_transforms_active()


def _requires_grad(x: torch.Tensor, weights: Weights) -> bool:
    return x.requires_grad or any(w is not None and w.requires_grad for w in weights)


def _under_autocast(x: torch.Tensor) -> bool:
    if x.is_cuda:
        return torch.is_autocast_enabled("cuda")
    if x.is_cpu:
        return torch.is_autocast_enabled("cpu")
    kind = x.device.type
    # Of some, "meta" for one, there is no autocast to ask about.
    return torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)


def _has_dtype(tensor: object, dtype: torch.dtype) -> bool:
    return isinstance(tensor, torch.Tensor) and tensor.dtype is dtype
