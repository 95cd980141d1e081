"""The calls: `mlp` and `gated_mlp`, from any tensors of the right shapes to the right path.

Four paths lead on from here:

- PyTorch, where no kernel is ahead or can run (`eager`);
- the opaque operators (`ops`), when torch.compile traces;
- an autograd function (`backward`), where a gradient will be asked for;
- straight to the kernel (`dispatch`), in eager inference.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import nn

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
    if up is None:
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
    if torch.compiler.is_dynamo_compiling():
        return _traced(x, weights, activation)
    way = _way(x, weights, activation)
    if way is PYTORCH or dispatch.is_transformed():
        return eager(x, weights, activation)
    kernel, keep, plan = way
    if not dispatch.are_aligned(x, weights) and dispatch.forced_kernel() is None:
        return eager(x, weights, activation)
    rows = (x if x.dim() == 2 else x.reshape(-1, x.shape[-1])).contiguous()
    if keep:
        y = backward.GatedMLP.apply(rows, *weights[:3], activation)
    else:
        y = dispatch.run(kernel, rows, weights, activation, plan)
    return y if x.dim() == 2 else y.view(*x.shape[:-1], y.shape[-1])


def _traced(x: torch.Tensor, weights: Weights, activation: str) -> torch.Tensor:
    """What torch.compile sees: an opaque operator, or PyTorch's, which Inductor may fuse."""
    check(x, weights, activation)
    kernel, keep, _ = _choice(x, weights, activation)
    if kernel == "pytorch" or dispatch.is_transformed() or not dispatch.are_contiguous(weights):
        return eager(x, weights, activation)  # the operator looks at addresses
    rows = x.reshape(-1, x.shape[-1]).contiguous()
    if keep:
        y, *_ = ops.gated_training(rows, *weights[:3], activation)
    else:
        y = ops.mlp(rows, *weights, activation)
    return y.view(*x.shape[:-1], y.shape[-1])


Way = tuple[dispatch.Kernel, bool, Any]
"""A kernel, whether a backward will follow, and the plan of a launch, if it has been made."""

PYTORCH: Way = ("pytorch", False, None)
MOST_WAYS = 4096

_ways: dict[Any, Way] = {}
"""Calls that have been checked and dispatched, by all that either looks at but addresses. A call
for few rows takes ten microseconds on the GPU; asking everything again would take the host more."""


def _way(x: torch.Tensor, weights: Weights, activation: str) -> Way:
    """What a call gets, checked. Raises as `check` does."""
    if dispatch.forced_kernel() is not None:
        check(x, weights, activation)
        return _choice(x, weights, activation)
    first, up, down, first_bias, down_bias = weights
    try:
        key = (
            *(activation, torch.is_grad_enabled(), _looks(x), _looks(first), _looks(down)),
            up if up is None else _looks(up),
            first_bias if first_bias is None else _looks(first_bias),
            down_bias if down_bias is None else _looks(down_bias),
        )
        way = _ways.get(key)
    except (AttributeError, TypeError):  # no tensors, a name that is no name, or symbolic sizes
        check(x, weights, activation)
        return _choice(x, weights, activation)
    if way is None:
        check(x, weights, activation)
        if len(_ways) >= MOST_WAYS:
            _ways.clear()
        kernel, keep, _ = way = _choice(x, weights, activation)
        if way is not PYTORCH and not keep:
            rows = x.reshape(-1, x.shape[-1])
            way = kernel, keep, dispatch.plan_for(kernel, rows, weights, activation)
        _ways[key] = way
    return way


_looks = operator.attrgetter("__class__", "shape", "dtype", "device", "requires_grad")


def _choice(x: torch.Tensor, weights: Weights, activation: str) -> Way:
    """The dispatch's, for tensors that a kernel can read.

    Those are no subclasses of tensors: a quantised or distributed one has its own ``linear`` and
    maybe no data.
    """
    if not (_is_on_a_gpu(x) or dispatch.forced_kernel() is not None):
        return PYTORCH
    if any(w is not None and type(w) not in _PLAIN for w in (x, *weights)) or x.shape[-1] == 0:
        return PYTORCH
    keep = torch.is_grad_enabled() and (
        x.requires_grad or any(w is not None and w.requires_grad for w in weights)
    )
    rows = x if x.dim() == 2 else x.reshape(-1, x.shape[-1])
    kernel = dispatch.kernel_for(rows, weights, activation, keep)
    return PYTORCH if kernel == "pytorch" else (kernel, keep, None)


_PLAIN = (torch.Tensor, nn.Parameter)


def _is_on_a_gpu(x: torch.Tensor) -> bool:
    return x.is_cuda


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
