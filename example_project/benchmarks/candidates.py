"""Who takes part: each candidate as one function of x and the weights, or why it cannot."""

from __future__ import annotations

import functools
import itertools
import types
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from .inputs import Function
from .shapes import Shape

EVERYWHERE = ("eager", "compile", "liger", "ours")
DEFAULTS = {  # max-autotune compiles for minutes: only where it was seen to matter
    "narrow": ("eager", "compile", "b2b", "ours"),
    "decode": ("eager", "compile", "max_autotune", "liger", "ours"),
    "many-rows": (*("eager", "compile", "max_autotune", "liger", "liger_fused", "gemms", "ours"),),
    "elsewhere": EVERYWHERE,
    "training": EVERYWHERE,
}
TITLES = {
    "eager": "eager",
    "compile": "torch.compile",
    "max_autotune": "torch.compile, max-autotune",
    "b2b": "torch.compile, b2b_gemm_pass",
    "liger": "Liger's layer",
    "liger_fused": "Liger's fused layer",
    "gemms": "its GEMMs alone",
    "ours": "fused_mlp",
}
NO_RIVALS = ("ours", "gemms")
"""``gemms`` computes no MLP: it is what cuBLAS alone would take, for orientation."""

T = torch.Tensor
_numbers = itertools.count()


class UnavailableError(Exception):
    """The candidate cannot take part; the message says why."""


def eager(shape: Shape) -> Function:
    """Plain PyTorch: what the others are compared with, and compiled from."""
    activate: Callable[[T], T] = {
        "relu": F.relu,
        "silu": F.silu,
        "gelu_tanh": functools.partial(F.gelu, approximate="tanh"),
    }[shape.activation]

    def gated(x: T, gate: T, up: T, down: T) -> T:
        return F.linear(activate(F.linear(x, gate)) * F.linear(x, up), down)

    def plain(x: T, w1: T, b1: T | None, w2: T, b2: T | None) -> T:
        return F.linear(activate(F.linear(x, w1, b1)), w2, b2)

    return gated if shape.gated else plain


def compiled(shape: Shape, **how: Any) -> Function:
    """torch.compile of the eager function, from a code object of its own.

    Compilations are kept by code object: one for all shapes would soon reach the limit of
    recompilations, and would check the guards of every other shape at each call.
    """
    fn = eager(shape)
    assert isinstance(fn, types.FunctionType)
    code = fn.__code__.replace(co_name=f"{fn.__name__}_{next(_numbers)}")
    own = types.FunctionType(code, fn.__globals__, code.co_name, None, fn.__closure__)
    function: Function = torch.compile(own, dynamic=False, fullgraph=True, **how)
    return function


def b2b(shape: Shape) -> Function:
    """torch.compile with the pass that makes one kernel of two GEMMs and what is between them."""
    if shape.gated or shape.bias:
        raise UnavailableError("b2b_gemm_pass matches two GEMMs without biases, nothing else")
    return compiled(shape, options={"b2b_gemm_pass": True})


def liger(shape: Shape) -> Function:
    """What the forward of LigerGEGLUMLP and LigerSwiGLUMLP computes, without the module."""
    ops = _liger_ops()
    if not shape.gated:
        raise UnavailableError("Liger has no plain MLP")
    if shape.activation == "gelu_tanh":
        multiply = ops.LigerGELUMulFunction.apply
    else:
        multiply = lambda a, b: ops.LigerSiLUMulFunction.apply(a, b, 1.0, 1.0)  # noqa: E731

    def layer(x: T, gate: T, up: T, down: T) -> T:
        return F.linear(multiply(F.linear(x, gate), F.linear(x, up)), down)

    return layer


def liger_fused(shape: Shape) -> Function:
    """LigerMLP: gate, up and SiLU in one kernel that tunes itself, then cuBLAS. x is 3-D there."""
    ops = _liger_ops()
    if not hasattr(ops, "LigerMLPFunction"):
        raise UnavailableError("this version of Liger has no fused layer")
    if not shape.gated or shape.activation != "silu":
        raise UnavailableError("Liger's fused layer is SwiGLU")

    def layer(x: T, gate: T, up: T, down: T) -> T:
        y: T = ops.LigerMLPFunction.apply(x.unsqueeze(0), gate, up, down)
        return y.squeeze(0)

    return layer


def gemms(shape: Shape) -> Function:
    """The three GEMMs and nothing between them."""
    if not shape.gated:
        raise UnavailableError("for gated MLPs only")

    def three(x: T, gate: T, up: T, down: T) -> T:
        F.linear(x, gate)
        return F.linear(F.linear(x, up), down)

    return three


def ours(shape: Shape) -> Function:
    """The example's package, by the dispatch that every user gets."""
    from fused_mlp import functional

    call = functional.gated_mlp if shape.gated else functional.mlp
    return functools.partial(call, activation=shape.activation)


BUILDERS: dict[str, Callable[[Shape], Function]] = {
    "eager": eager,
    "compile": compiled,
    "max_autotune": functools.partial(compiled, mode="max-autotune-no-cudagraphs"),
    "b2b": b2b,
    "liger": liger,
    "liger_fused": liger_fused,
    "gemms": gemms,
    "ours": ours,
}


def _liger_ops() -> Any:
    if not torch.cuda.is_available():
        raise UnavailableError("Liger's kernels need a GPU")
    try:
        from liger_kernel import ops
    except ImportError as error:
        raise UnavailableError(f"Liger is not installed: {error}") from error
    return ops
