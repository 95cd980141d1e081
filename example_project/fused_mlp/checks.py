"""Bad arguments: one quick test on the way in, and a slow search for the words when it fails.

A decode step takes some ten microseconds on the GPU, so the test that every call pays is a chain
of plain comparisons. Only when it fails does anything look for *which* argument is wrong.
"""

from __future__ import annotations

import torch

from .problem import ACTIVATIONS

DTYPES = frozenset({torch.bfloat16, torch.float16, torch.float32, torch.float64})


def check_plain(
    x: torch.Tensor,
    w1: torch.Tensor,
    b1: torch.Tensor | None,
    w2: torch.Tensor,
    b2: torch.Tensor | None,
    activation: str,
) -> None:
    """Shapes: x (..., width), w1 (hidden, width), b1 (hidden,), w2 (out, hidden), b2 (out,).

    Raises TypeError for what is no tensor or of another dtype, ValueError for wrong shapes,
    devices and names; the message names the argument, what was given and what was expected.
    """
    if (
        isinstance(x, torch.Tensor)
        and isinstance(w1, torch.Tensor)
        and isinstance(w2, torch.Tensor)
        and w1.dim() == 2
        and w2.dim() == 2
        and x.dim() >= 1
        and x.shape[-1] == w1.shape[1]
        and w2.shape[1] == w1.shape[0]
        and x.dtype is w1.dtype
        and x.dtype is w2.dtype
        and x.dtype in DTYPES
        and x.device == w1.device
        and x.device == w2.device
        and (b1 is None or _is_bias(b1, w1))
        and (b2 is None or _is_bias(b2, w2))
        and isinstance(activation, str)
        and activation in ACTIVATIONS
    ):
        return
    _explain(x, {"w1": w1, "b1": b1, "w2": w2, "b2": b2}, activation)


def check_gated(
    x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor, activation: str
) -> None:
    """Shapes: x (..., width), gate and up (hidden, width), down (out, hidden).

    Raises as `check_plain` does.
    """
    if (
        isinstance(x, torch.Tensor)
        and isinstance(gate, torch.Tensor)
        and isinstance(up, torch.Tensor)
        and isinstance(down, torch.Tensor)
        and gate.dim() == 2
        and down.dim() == 2
        and x.dim() >= 1
        and x.shape[-1] == gate.shape[1]
        and up.shape == gate.shape
        and down.shape[1] == gate.shape[0]
        and x.dtype is gate.dtype
        and x.dtype is up.dtype
        and x.dtype is down.dtype
        and x.dtype in DTYPES
        and x.device == gate.device
        and x.device == up.device
        and x.device == down.device
        and isinstance(activation, str)
        and activation in ACTIVATIONS
    ):
        return
    _explain(x, {"gate": gate, "up": up, "down": down}, activation)


def check_activation(activation: object) -> None:
    """Raise unless ``activation`` is one of the names in `ACTIVATIONS`."""
    names = ", ".join(repr(name) for name in sorted(ACTIVATIONS))
    if not isinstance(activation, str):
        raise TypeError(
            f"activation: expected a name ({names}), got {_kind(activation)} {activation!r}"
        )
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation: expected one of {names}, got {activation!r}")


def _is_bias(bias: torch.Tensor, weight: torch.Tensor) -> bool:
    return (
        isinstance(bias, torch.Tensor)
        and bias.dim() == 1
        and bias.shape[0] == weight.shape[0]
        and bias.dtype is weight.dtype
        and bias.device == weight.device
    )


def _explain(x: object, weights: dict[str, object], activation: object) -> None:
    """Raise for the first argument that is wrong, in the order of the arguments."""
    x = _a_tensor("x", x)
    if x.dim() == 0:
        raise ValueError("x: expected shape (..., width), got a single number (no dimension)")
    if x.dtype not in DTYPES:
        names = ", ".join(sorted(str(dtype) for dtype in DTYPES))
        raise TypeError(f"x: expected one of {names}, got {x.dtype}")
    tensors = {
        name: _a_tensor(name, weight)
        for name, weight in weights.items()
        if weight is not None or not name.startswith("b")
    }
    _explain_shapes(x, tensors)
    for name, tensor in tensors.items():
        if tensor.dtype is not x.dtype:
            raise TypeError(f"{name}: expected {x.dtype} as x has, got {tensor.dtype}")
        if tensor.device != x.device:
            raise ValueError(f"{name}: expected on {x.device} where x is, got {tensor.device}")
    check_activation(activation)
    raise AssertionError("the quick test and the slow one disagree")


def _explain_shapes(x: torch.Tensor, tensors: dict[str, torch.Tensor]) -> None:
    first, *others = tensors
    width = x.shape[-1]
    if tensors[first].dim() != 2 or tensors[first].shape[1] != width:
        raise ValueError(
            f"{first}: expected shape (hidden, {width}), since x is {_shape(x)}; "
            f"got {_shape(tensors[first])}"
        )
    hidden = tensors[first].shape[0]
    for name in others:
        got = tensors[name]
        if name == "up":
            good, expected = got.shape == (hidden, width), f"({hidden}, {width}), as gate has"
        elif name in ("w2", "down"):
            good = got.dim() == 2 and got.shape[1] == hidden
            expected = f"(out, {hidden}), since {first} is {_shape(tensors[first])}"
        else:
            weight = {"b1": "w1", "b2": "w2"}[name]
            size = tensors[weight].shape[0]
            good, expected = got.shape == (size,), f"({size},), one number a row of {weight}"
        if not good:
            raise ValueError(f"{name}: expected shape {expected}; got {_shape(got)}")


def _a_tensor(name: str, value: object) -> torch.Tensor:
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{name}: expected a torch.Tensor, got {_kind(value)}")
    return value


def _shape(tensor: torch.Tensor) -> str:
    return str(tuple(tensor.shape))


def _kind(value: object) -> str:
    return type(value).__name__
