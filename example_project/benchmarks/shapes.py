"""What is measured: the shapes of each regime, the most telling first, and their random data."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from fused_mlp.weights import Weights

REGIMES = ("narrow", "few rows", "many rows", "elsewhere", "training")

ROTATED_BYTES = 120e6
"""Twice an H200's L2: what passes through it between two uses of the same weights."""

ROTATED_ROWS = 256
"""With few rows a call is bound by its weights, and those must come from memory: sets of weights
take turns. Flushing the L2 by writing would leave lines there that the call has to write back."""

MOST_SETS = 16
"""The tiny shapes for a CPU would ask for thousands."""

Function = Callable[[torch.Tensor, Weights], torch.Tensor]
"""From x and the weights to y."""


@dataclass(frozen=True)
class Shape:
    """One MLP: x is (rows, width), the weights (hidden, width) and (width, hidden)."""

    regime: str
    activation: str
    rows: int
    width: int
    hidden: int

    @property
    def training(self) -> bool:
        return self.regime == "training"

    @property
    def gated(self) -> bool:
        """Plain ones are narrow, and have biases."""
        return self.regime != "narrow"

    @property
    def rotates(self) -> bool:
        return self.rows <= ROTATED_ROWS

    @property
    def label(self) -> str:
        plain = {"relu": "ReLU", "gelu_tanh": "GELU", "silu": "SiLU"}
        gated = {"relu": "ReGLU", "gelu_tanh": "GeGLU", "silu": "SwiGLU"}
        name = (gated if self.gated else plain)[self.activation]
        step = ", a training step" if self.training else ""
        return f"{name} {self.rows} x {self.width} x {self.hidden}{step}"

    @property
    def weights(self) -> int:
        """Numbers in the weights and biases."""
        numbers = self.width * self.hidden
        return 3 * numbers if self.gated else 2 * numbers + self.hidden + self.width

    @property
    def flops(self) -> int:
        """Of the GEMMs; a backward has two for each of the forward's."""
        forward = 2 * self.rows * self.width * self.hidden * (3 if self.gated else 2)
        return forward * 3 if self.training else forward

    @property
    def bytes(self) -> int:
        """The fewest that can move, 16-bit: each input read once, each output written once.

        A training step reads dy beside x and the weights, and writes a gradient of each.
        """
        forward = (2 * self.rows * self.width + self.weights) * 2
        return forward * 2 if self.training else forward


def shapes(regimes: tuple[str, ...], tiny: bool) -> list[Shape]:
    """Those of some regimes; ``tiny``: as many, at sizes that a CPU can do."""
    found = [shape for shape in ALL if shape.regime in regimes]
    if tiny:
        found = [
            replace(s, rows=min(s.rows, 48), width=16 + s.width // 16, hidden=16 + s.hidden // 16)
            for s in found
        ]
    return list(dict.fromkeys(found))


def _few(rows: int, width: int, hidden: int) -> Shape:
    return Shape("few rows", "silu", rows, width, hidden)


_NARROW = [
    Shape("narrow", activation, 2**20, width, hidden)
    for width, hidden in ((64, 64), (128, 128), (32, 32), (64, 256), (128, 512))
    for activation in ("relu", "gelu_tanh")
]
_FEW = [
    *(_few(rows, 1024, 4096) for rows in (1, 16)),
    *(_few(rows, 4096, 14336) for rows in (1, 16)),
    *(_few(rows, 768, 3072) for rows in (1, 16)),
    *(_few(rows, 8192, 3584) for rows in (1, 4, 16)),
    *(_few(rows, 896, 4864) for rows in (1, 16)),
    *(_few(rows, 2048, 8192) for rows in (1, 16)),
    *(_few(4, width, hidden) for width, hidden in ((1024, 4096), (768, 3072), (4096, 14336))),
]
_MANY = [Shape("many rows", activation, 8192, 768, 3072) for activation in ("gelu_tanh", "silu")]
_ELSEWHERE = [
    Shape("elsewhere", "silu", rows, width, hidden)
    for rows in (64, 512, 8192)
    for width, hidden in ((1536, 4096), (4096, 11008))
]
_TRAINING = [Shape("training", "gelu_tanh", 8192, 768, 3072)]

ALL = [
    *(_MANY[0], _TRAINING[0], _NARROW[0], _NARROW[3], *_FEW[:2], _ELSEWHERE[0]),
    *(_NARROW[2], _MANY[1], *_FEW[2:], *_NARROW[1:], *_ELSEWHERE),
]
"""The most telling of each regime first: a run may end early."""


class Case:
    """A shape's x, gradient of y, and sets of weights that take turns.

    Random normal numbers, the weights scaled to keep the size of what passes through: GEMMs on
    zeros take less power, and so less time. Gate and up lie one behind the other, so that
    ``weights.first._base`` is both, for those who want one GEMM of them.
    """

    def __init__(self, shape: Shape, kind: str) -> None:
        self.shape, self._turn = shape, 0
        dtype = torch.bfloat16 if kind == "cuda" else torch.float32
        self._places: dict[str, Any] = {"device": kind, "dtype": dtype}
        self._generator = torch.Generator(kind).manual_seed(0)
        self.x = self._random(shape.rows, shape.width, scale=1.0)
        self.dy = self._random(shape.rows, shape.width, scale=1.0)
        self.x.requires_grad_(shape.training)
        fewest = math.ceil(ROTATED_BYTES / (2 * shape.weights))
        self.sets = [
            self._weights() for _ in range(1 + min(MOST_SETS, fewest) if shape.rotates else 1)
        ]

    def next_call(self, fn: Function) -> Callable[[], Any]:
        """The next call, on the next set of weights; gradients are cleared."""
        self._turn = (self._turn + 1) % len(self.sets)
        return self.call(fn, self._turn)

    def call(self, fn: Function, which: int) -> Callable[[], Any]:
        """The call on one set of weights, as it stands for the clock."""
        weights = self.sets[which]
        if not self.shape.training:
            return functools.partial(fn, self.x, weights)
        for tensor in (self.x, *weights):
            if tensor is not None:
                tensor.grad = None
        return lambda: fn(self.x, weights).backward(self.dy)

    def error(self, fn: Function, reference: Function) -> float:
        """Relative norm of the error against ``reference`` in float64; the worst of the gradients
        in training."""
        exact = self._outputs(reference, torch.float64)
        found = self._outputs(fn, self.x.dtype)
        return max(
            float(torch.linalg.vector_norm(a.double() - b) / torch.linalg.vector_norm(b))
            for a, b in zip(found, exact, strict=True)
        )

    def _outputs(self, fn: Function, dtype: torch.dtype) -> list[torch.Tensor]:
        if not self.shape.training:
            if dtype is self.x.dtype:
                return [fn(self.x, self.sets[0])]
            return [fn(self.x.to(dtype), Weights(*map(_to(dtype), self.sets[0])))]
        leaves = [_to(dtype)(t) for t in (self.x, *self.sets[0])]
        leaves = [t if t is None else t.detach().requires_grad_() for t in leaves]
        y = fn(leaves[0], Weights(*leaves[1:]))
        y.backward(self.dy.to(dtype))
        return [tensor.grad for tensor in leaves if tensor is not None]

    def _random(self, *size: int, scale: float) -> torch.Tensor:
        return torch.randn(*size, generator=self._generator, **self._places).mul_(scale)

    def _weights(self) -> Weights:
        width, hidden, into = self.shape.width, self.shape.hidden, self.shape.width**-0.5
        down = self._random(width, hidden, scale=hidden**-0.5)
        if not self.shape.gated:
            biases = self._random(hidden, scale=0.1), self._random(width, scale=0.1)
            return Weights(self._random(hidden, width, scale=into), None, down, *biases)
        both = self._random(2 * hidden, width, scale=into)
        if not self.shape.training:
            return Weights(both[:hidden], both[hidden:], down)
        return Weights(*(t.clone().requires_grad_() for t in (*both.split(hidden), down)))


def _to(dtype: torch.dtype) -> Callable[[torch.Tensor | None], torch.Tensor | None]:
    return lambda tensor: None if tensor is None else tensor.to(dtype)
