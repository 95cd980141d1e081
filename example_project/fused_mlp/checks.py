"""Bad arguments: one quick test on the way in, and a slow search for the words when it fails.

A call for few rows takes some ten microseconds on the GPU, so the test that every call pays is a
chain of plain comparisons. Only when it fails does anything look for *which* argument is wrong.
"""

from __future__ import annotations

import torch

from .problem import ACTIVATIONS
from .weights import Weights

DTYPES = frozenset({torch.bfloat16, torch.float16, torch.float32, torch.float64})


def check(x: torch.Tensor, weights: Weights, activation: str) -> None:
    """Shapes: x (..., width), the weights as `Weights` has them.

    Raises TypeError for what is no tensor or of another dtype, ValueError for wrong shapes,
    devices and names; the message names the argument, what was given and what was expected.
    """
    first, up, down, first_bias, down_bias = weights
    if isinstance(x, torch.Tensor) and isinstance(first, torch.Tensor):
        dtype, device, shape = x.dtype, x.device, first.shape
        if (
            len(shape) == 2
            and x.dim() >= 1
            and x.shape[-1] == shape[1]
            and dtype in DTYPES
            and first.dtype is dtype
            and first.device == device
            and isinstance(down, torch.Tensor)
            and down.dim() == 2
            and down.shape[1] == shape[0]
            and down.dtype is dtype
            and down.device == device
            and (up is None or _is_like(up, shape, dtype, device))
            and (first_bias is None or _is_like(first_bias, shape[:1], dtype, device))
            and (down_bias is None or _is_like(down_bias, down.shape[:1], dtype, device))
            and isinstance(activation, str)
            and activation in ACTIVATIONS
        ):
            return
    _explain(x, weights, activation)


def check_tensor(name: str, value: object) -> None:
    """Raise TypeError unless ``value`` is a tensor."""
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{name}: expected a torch.Tensor, got {type(value).__name__}")


def check_activation(activation: object) -> None:
    """Raise unless ``activation`` is one of the names in `ACTIVATIONS`."""
    names = ", ".join(repr(name) for name in sorted(ACTIVATIONS))
    if not isinstance(activation, str):
        kind = type(activation).__name__
        raise TypeError(f"activation: expected a name ({names}), got {kind} {activation!r}")
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation: expected one of {names}, got {activation!r}")


def _is_like(tensor: object, shape: torch.Size, dtype: torch.dtype, device: torch.device) -> bool:
    return (
        isinstance(tensor, torch.Tensor)
        and tensor.shape == shape
        and tensor.dtype is dtype
        and tensor.device == device
    )


def _explain(x: torch.Tensor, weights: Weights, activation: object) -> None:
    """Raise for the first argument that is wrong, in the order of the arguments."""
    check_tensor("x", x)
    if x.dim() == 0:
        raise ValueError("x: expected shape (..., width), got a single number (no dimension)")
    if x.dtype not in DTYPES:
        names = ", ".join(sorted(str(dtype) for dtype in DTYPES))
        raise TypeError(f"x: expected one of {names}, got {x.dtype}")
    given = [
        (field, name, tensor)
        for field, name, tensor in zip(weights._fields, weights.names, weights, strict=True)
        if tensor is not None or field in ("first", "down")
    ]
    for _, name, tensor in given:
        check_tensor(name, tensor)
    for field, name, tensor in given:
        _explain_shape(field, name, tensor, x, weights)
    for _, name, tensor in given:
        if tensor.dtype is not x.dtype:
            raise TypeError(f"{name}: expected {x.dtype} as x has, got {tensor.dtype}")
        if tensor.device != x.device:
            raise ValueError(f"{name}: expected on {x.device} where x is, got {tensor.device}")
    check_activation(activation)
    raise AssertionError("the quick test and the slow one disagree")


def _explain_shape(
    field: str, name: str, tensor: torch.Tensor, x: torch.Tensor, weights: Weights
) -> None:
    """Raise ValueError unless the field fits those before it, which are known to be right."""
    first, down, width = weights.first, weights.down, x.shape[-1]
    first_name, _, down_name, *_ = weights.names
    if field == "first":
        good = first.dim() == 2 and first.shape[1] == width
        expected = f"(hidden, {width}), since x is {tuple(x.shape)}"
    elif field == "up":
        good = tensor.shape == first.shape
        expected = f"({first.shape[0]}, {width}), as {first_name} has"
    elif field == "down":
        good = down.dim() == 2 and down.shape[1] == first.shape[0]
        expected = f"(out, {first.shape[0]}), since {first_name} is {tuple(first.shape)}"
    else:
        of, matrix = (first_name, first) if field == "first_bias" else (down_name, down)
        good = tensor.shape == matrix.shape[:1]
        expected = f"({matrix.shape[0]},), one number a row of {of}"
    if not good:
        raise ValueError(f"{name}: expected shape {expected}; got {tuple(tensor.shape)}")
