"""Bad arguments: which one is wrong, what was given and what was expected.

`functional` asks once for each kind of call, so this need not be quick.
"""

from __future__ import annotations

import torch

from .problem import ACTIVATIONS
from .weights import Weights, names_of

DTYPES = frozenset({torch.bfloat16, torch.float16, torch.float32, torch.float64})


def check(x: torch.Tensor, weights: Weights, activation: str) -> None:
    """Shapes: x (..., width), the weights as `Weights` has them.

    Raises for the first argument that is wrong: TypeError for what is no tensor or of another
    dtype, ValueError for wrong shapes, devices and names.
    """
    check_tensor("x", x)
    if x.dim() == 0:
        raise ValueError("x: expected shape (..., width), got a single number (no dimension)")
    if x.dtype not in DTYPES:
        names = ", ".join(sorted(str(dtype) for dtype in DTYPES))
        raise TypeError(f"x: expected one of {names}, got {x.dtype}")
    given = [
        (field, name, tensor)
        for field, name, tensor in zip(weights._fields, names_of(weights), weights, strict=True)
        if tensor is not None or field in ("first", "down")
    ]
    for _, name, tensor in given:
        check_tensor(name, tensor)
    for field, name, tensor in given:
        _check_shape(field, name, tensor, x, weights)
    for _, name, tensor in given:
        if tensor.dtype is not x.dtype:
            raise TypeError(f"{name}: expected {x.dtype} as x has, got {tensor.dtype}")
        if tensor.device != x.device:
            raise ValueError(f"{name}: expected on {x.device} where x is, got {tensor.device}")
    check_activation(activation)


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


def _check_shape(
    field: str, name: str, tensor: torch.Tensor, x: torch.Tensor, weights: Weights
) -> None:
    """Raise ValueError unless the field fits those before it, which are known to be right."""
    first, down, width = weights.first, weights.down, x.shape[-1]
    first_name, _, down_name, *_ = names_of(weights)
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
