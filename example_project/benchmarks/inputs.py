"""The random data of one shape, and calls on it that find nothing in the L2."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from .shapes import Shape

Function = Callable[..., torch.Tensor]
"""From x and the weights to y: ``fn(x, gate, up, down)`` or ``fn(x, w1, b1, w2, b2)``."""


class Case:
    """x, the gradient of y, and the sets of weights that take turns.

    Random normal numbers, the weights scaled to keep the size of what passes through: GEMMs on
    zeros take less power, and so less time.
    """

    def __init__(self, shape: Shape, kind: str) -> None:
        self.shape = shape
        self._places = {"device": kind, "dtype": dtype_on(kind)}
        self._generator = torch.Generator(kind).manual_seed(0)
        self._turn = 0
        rows, width, hidden = shape.rows, shape.width, shape.hidden
        self.x = self._random(rows, width, scale=1.0)
        self.dy = self._random(rows, width, scale=1.0).requires_grad_(False)
        sets = shape.weight_sets(self.x.element_size())
        self.sets = [self._weights(width, hidden) for _ in range(sets)]

    def prepared(self, fn: Function) -> Callable[[], Any]:
        """The next call, on the next set of weights; gradients are cleared."""
        self._turn = (self._turn + 1) % len(self.sets)
        return self.call(fn, self._turn)

    def call(self, fn: Function, which: int) -> Callable[[], Any]:
        """The call on one set of weights, as it stands for the clock."""
        arguments = (self.x, *self.sets[which])
        if not self.shape.training:
            return functools.partial(fn, *arguments)
        for tensor in arguments:
            if tensor is not None:
                tensor.grad = None
        return functools.partial(_step, fn, self.dy, *arguments)

    def error(self, fn: Function, reference: Function) -> float:
        """Relative norm of the error against ``reference`` in float64; the worst of the gradients
        in training."""
        exact = self._outputs(reference, torch.float64)
        found = self._outputs(fn, self.x.dtype)
        return max(
            float(torch.linalg.vector_norm(a.double() - b) / torch.linalg.vector_norm(b))
            for a, b in zip(found, exact, strict=True)
        )

    def held_bytes(self, fn: Function) -> int | None:
        """What the forward leaves allocated for the backward, besides y."""
        if not (self.shape.training and self.x.is_cuda):
            return None
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        y = fn(self.x, *self.sets[0])
        return torch.cuda.memory_allocated() - before - y.numel() * y.element_size()

    def _outputs(self, fn: Function, dtype: torch.dtype) -> list[torch.Tensor]:
        arguments = [
            None
            if tensor is None
            else tensor.detach().to(dtype).requires_grad_(tensor.requires_grad)
            for tensor in (self.x, *self.sets[0])
        ]
        y = fn(*arguments)
        if not self.shape.training:
            return [y]
        y.backward(self.dy.to(dtype))
        return [tensor.grad for tensor in arguments if tensor is not None]

    def _random(self, *size: int, scale: float) -> torch.Tensor:
        numbers = torch.randn(*size, generator=self._generator, **self._places)
        return numbers.mul_(scale).requires_grad_(self.shape.training)

    def _weights(self, width: int, hidden: int) -> tuple[torch.Tensor | None, ...]:
        first = functools.partial(self._random, hidden, width, scale=width**-0.5)
        last = self._random(width, hidden, scale=hidden**-0.5)
        if self.shape.gated:
            return first(), first(), last
        if not self.shape.bias:
            return first(), None, last, None
        return first(), self._random(hidden, scale=0.1), last, self._random(width, scale=0.1)


def dtype_on(kind: str) -> torch.dtype:
    return torch.bfloat16 if kind == "cuda" else torch.float32


def _step(fn: Function, dy: torch.Tensor, *arguments: torch.Tensor | None) -> None:
    fn(*arguments).backward(dy)
