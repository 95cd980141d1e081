"""Who takes part: each candidate as one function of x and the weights, or why it cannot."""

from __future__ import annotations

import functools
import itertools
import types
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from fused_mlp import dispatch, functional
from fused_mlp.eager import ACTIVATE
from fused_mlp.eager import eager as fused_eager
from fused_mlp.problem import Problem
from fused_mlp.weights import Weights

from .shapes import Function, Shape

T = torch.Tensor
_numbers = itertools.count()

CANDIDATES = {  # max-autotune compiles for long, so it comes last: a run may end before
    "narrow": ("eager", "ours", "our narrow", "epilogue", "compiled", "max_autotune"),
    "few rows": ("eager", "ours", "merged", "compiled", "reduce_overhead", "liger", "max_autotune"),
    "many rows": (
        *("eager", "ours", "gemms", "liger", "liger_fused", "quack", "merged", "compiled"),
        "max_autotune",
    ),
    "elsewhere": ("eager", "ours", "merged", "compiled", "liger"),
    "training": ("eager", "ours", "compiled", "liger"),
}
TITLES = {
    "eager": "eager",
    "ours": "fused_mlp",
    "our narrow": "fused_mlp, `narrow`",
    "epilogue": "cuBLASLt, activation inside",
    "compiled": "torch.compile",
    "reduce_overhead": "torch.compile, reduce-overhead",
    "max_autotune": "torch.compile, max-autotune",
    "merged": "torch.compile, gate and up merged",
    "liger": "Liger's layer",
    "liger_fused": "Liger's fused layer",
    "quack": "QuACK's gated GEMM",
    "gemms": "its GEMMs alone",
}
NO_RIVALS = ("ours", "our narrow", "gemms")
"""``gemms`` computes no MLP: it is what cuBLAS alone would take, for orientation."""
BY_THE_WALL_ONLY = ("reduce_overhead",)
"""A CUDA graph of the compiled kernels: on the GPU it is what torch.compile is."""


class UnavailableError(Exception):
    """The candidate cannot take part; the message says why."""


def eager(shape: Shape) -> Function:
    """Plain PyTorch: what the others are compared with, and compiled from."""
    return lambda x, weights: fused_eager(x, weights, shape.activation)


def ours(shape: Shape) -> Function:
    """The example's package, by the dispatch that every user gets."""
    if shape.gated:
        return lambda x, w: functional.gated_mlp(x, w.first, w.up, w.down, shape.activation)
    return lambda x, w: functional.mlp(
        x, w.first, w.first_bias, w.down, w.down_bias, shape.activation
    )


def our_narrow(shape: Shape) -> Function:
    """The simpler of two kernels of ours, where the dispatch prefers the other."""
    if _kernel_for(shape) != "resident":
        raise UnavailableError("`narrow` is what fused_mlp itself takes")
    return lambda x, weights: dispatch.run("narrow", x, weights, shape.activation)


def epilogue(shape: Shape) -> Function:
    """Two kernels: cuBLASLt applies bias and activation inside the first GEMM."""
    if not torch.cuda.is_available():
        raise UnavailableError("on a CPU the operator means another GELU")

    def two(x: T, w: Weights) -> T:
        gelu = shape.activation == "gelu_tanh"
        h = torch._addmm_activation(w.first_bias, x, w.first.t(), use_gelu=gelu)
        return F.linear(h, w.down, w.down_bias)

    return two


def compiled(shape: Shape, **how: Any) -> Function:
    run = _compile(lambda x, *w: fused_eager(x, Weights(*w), shape.activation), **how)
    return lambda x, weights: run(x, *weights)


def reduce_overhead(shape: Shape) -> Function:
    """The weights are said to stay where they are: else they would be copied for each call."""
    run = compiled(shape, mode="reduce-overhead")
    known: set[int] = set()

    def step(x: T, weights: Weights) -> T:
        if id(weights) not in known:
            known.add(id(weights))
            for weight in weights[:3]:
                torch._dynamo.mark_static_address(weight, guard=False)
        torch.compiler.cudagraph_mark_step_begin()
        return run(x, weights)

    return step


def merged(shape: Shape) -> Function:
    """torch.compile, with one GEMM for gate and up, which lie one behind the other."""
    activate = ACTIVATE[shape.activation]

    def layer(x: T, both: T, down: T) -> T:
        gate, up = F.linear(x, both).chunk(2, dim=-1)
        return F.linear(activate(gate) * up, down)

    run = _compile(layer)
    return lambda x, weights: run(x, weights.first._base, weights.down)


def liger(shape: Shape) -> Function:
    """What the forward of LigerGEGLUMLP and LigerSwiGLUMLP computes, without the module."""
    ops = _import("liger_kernel.ops")
    if shape.activation == "gelu_tanh":
        multiply = ops.LigerGELUMulFunction.apply
    else:
        multiply = lambda a, b: ops.LigerSiLUMulFunction.apply(a, b, 1.0, 1.0)  # noqa: E731
    return lambda x, w: F.linear(multiply(F.linear(x, w.first), F.linear(x, w.up)), w.down)


def liger_fused(shape: Shape) -> Function:
    """LigerMLP: gate, up and SiLU in one kernel that tunes itself, then cuBLAS. x is 3-D there."""
    ops = _import("liger_kernel.ops")
    if not hasattr(ops, "LigerMLPFunction"):
        raise UnavailableError("this version of Liger has no fused layer")
    if shape.activation != "silu":
        raise UnavailableError("Liger's fused layer is SwiGLU")
    run = ops.LigerMLPFunction.apply
    return lambda x, w: run(x.unsqueeze(0), w.first, w.up, w.down).squeeze(0)


def quack(shape: Shape) -> Function:
    """Gate, up and activation in one GEMM, then cuBLAS."""
    gemm = _import("quack.gemm_interface").gemm_gated
    activation = {"silu": "swiglu", "gelu_tanh": "geglu"}[shape.activation]

    def layer(x: T, w: Weights) -> T:
        both = w.first._base.t()
        how = {"activation": activation, "store_preact": False, "concat_layout": ("B",)}
        return F.linear(gemm(x, both, **how)[1], w.down)

    return layer


def gemms(shape: Shape) -> Function:
    """The three GEMMs and nothing between them."""

    def three(x: T, w: Weights) -> T:
        F.linear(x, w.first)
        return F.linear(F.linear(x, w.up), w.down)

    return three


BUILDERS: dict[str, Callable[[Shape], Function]] = {
    "eager": eager,
    "ours": ours,
    "our narrow": our_narrow,
    "epilogue": epilogue,
    "compiled": compiled,
    "reduce_overhead": reduce_overhead,
    "max_autotune": functools.partial(compiled, mode="max-autotune-no-cudagraphs"),
    "merged": merged,
    "liger": liger,
    "liger_fused": liger_fused,
    "quack": quack,
    "gemms": gemms,
}


def _compile(fn: Callable[..., T], **how: Any) -> Any:
    """torch.compile, from a code object of its own.

    Compilations are kept by code object: one for all shapes would soon reach the limit of
    recompilations, and would check the guards of every other shape at each call.
    """
    assert isinstance(fn, types.FunctionType)
    code = fn.__code__.replace(co_name=f"{fn.__name__}_{next(_numbers)}".strip("<>"))
    own = types.FunctionType(code, fn.__globals__, code.co_name, None, fn.__closure__)
    return torch.compile(own, dynamic=False, fullgraph=True, **how)


def _kernel_for(shape: Shape) -> str:
    """What the dispatch gives the shape on a Hopper."""
    sizes = (shape.rows, shape.width, shape.hidden, shape.width)
    problem = Problem(
        *sizes, shape.gated, shape.activation, torch.bfloat16, (9, 0), keep=shape.training
    )
    return dispatch.choose(problem).kernel


def _import(module: str) -> Any:
    import importlib

    if not torch.cuda.is_available():
        raise UnavailableError("its kernels need a GPU")
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UnavailableError(f"not installed: {error}") from error
