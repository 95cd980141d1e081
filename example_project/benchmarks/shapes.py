"""What is measured: the shapes of each regime, and the target that stands beside each."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

REGIMES = ("narrow", "decode", "many-rows", "elsewhere", "training")

ROTATED_BYTES = 120e6
"""Twice an H200's L2: what passes through it between two uses of the same weights."""

ROTATED_ROWS = 256
"""With few rows a call is bound by its weights, and those must come from memory: sets of weights
take turns. Flushing the L2 by writing would leave lines there that the call has to write back."""

MOST_SETS = 16
"""The tiny shapes for a CPU would ask for thousands."""


@dataclass(frozen=True)
class Target:
    """What our candidate is to reach; a field that is ``None`` asks for nothing.

    ``faster`` and ``wall_faster``: times as fast as the best of the others, in GPU and wall time.
    ``at_most_us``: GPU time. ``floor_percent``: of the floor, see `floors`. ``memory``: hold no
    more for the backward than Liger's layer.
    """

    faster: float | None = None
    wall_faster: float | None = None
    at_most_us: float | None = None
    stretch_us: float | None = None
    floor_percent: float | None = None
    memory: bool = False


@dataclass(frozen=True)
class Shape:
    """One MLP: x is (rows, width), the weights (hidden, width) and (width, hidden)."""

    regime: str
    activation: str
    rows: int
    width: int
    hidden: int
    gated: bool = True
    bias: bool = False
    target: Target = Target()

    @property
    def training(self) -> bool:
        return self.regime == "training"

    @property
    def rotates(self) -> bool:
        return self.rows <= ROTATED_ROWS

    @property
    def label(self) -> str:
        plain = {"relu": "ReLU", "gelu_tanh": "GELU", "silu": "SiLU"}
        gated = {"relu": "ReGLU", "gelu_tanh": "GeGLU", "silu": "SwiGLU"}
        name = (gated if self.gated else plain)[self.activation]
        without = "" if self.gated or self.bias else ", no bias"
        step = ", forward and backward" if self.training else ""
        return f"{name} {self.rows} x {self.width} x {self.hidden}{without}{step}"

    @property
    def weights(self) -> int:
        """Numbers in the weights and biases."""
        matrices = 3 if self.gated else 2
        biases = self.hidden + self.width if self.bias else 0
        return matrices * self.width * self.hidden + biases

    @property
    def flops(self) -> int:
        """Of the GEMMs; a backward has two for each of the forward's."""
        forward = 2 * self.rows * self.width * self.hidden * (3 if self.gated else 2)
        return forward * 3 if self.training else forward

    def bytes(self, itemsize: int) -> int:
        """The fewest that can move: each input read once, each output written once.

        A training step reads dy beside x and the weights, and writes a gradient of each.
        """
        forward = (2 * self.rows * self.width + self.weights) * itemsize
        return forward * 2 if self.training else forward

    def weight_sets(self, itemsize: int) -> int:
        """So many that `ROTATED_BYTES` of other weights pass between two uses of one set."""
        if not self.rotates:
            return 1
        return 1 + min(MOST_SETS, math.ceil(ROTATED_BYTES / (self.weights * itemsize)))


def all_shapes() -> Iterator[Shape]:
    """Every shape, regime by regime."""
    yield from _narrow()
    yield from _decode()
    many = Shape("many-rows", "gelu_tanh", 8192, 768, 3072)
    yield replace(many, target=Target(faster=1.0, at_most_us=190, stretch_us=178))
    yield replace(many, activation="silu", target=Target(faster=1.0))  # Liger fuses SwiGLU only
    for width, hidden in ((4096, 11008), (1536, 4096)):
        for rows in (64, 128, 256, 512, 1024, 2048, 4096, 8192):
            yield Shape("elsewhere", "silu", rows, width, hidden, target=Target(faster=0.98))
    yield replace(many, regime="training", target=Target(faster=1.0, memory=True))


def _narrow() -> Iterator[Shape]:
    reach = {  # width, hidden: ReLU, tanh-GELU, percent of the floor where bound by memory
        (32, 32): (3.0, 2.5, 75),
        (64, 64): (3.0, 2.5, 75),
        (128, 128): (2.5, 2.5, 75),
        (64, 256): (3.0, 2.5, None),
        (128, 512): (1.8, 1.6, None),
    }
    for at, activation in enumerate(("relu", "gelu_tanh")):
        for (width, hidden), (*faster, percent) in reach.items():
            target = Target(faster=faster[at], floor_percent=percent)
            yield Shape("narrow", activation, 2**20, width, hidden, False, True, target)
    for width, hidden in ((64, 64), (128, 128), (64, 256)):  # b2b_gemm_pass takes no biases
        target = Target(faster=1.0)
        yield Shape("narrow", "relu", 2**20, width, hidden, False, False, target)


def _decode() -> Iterator[Shape]:
    for width, hidden in ((768, 3072), (896, 4864), (1024, 4096)):
        for rows in (1, 16):
            target = Target(faster=1.5, wall_faster=1.7)
            yield Shape("decode", "silu", rows, width, hidden, target=target)
    for rows, most in ((1, 28), (16, 31)):
        yield Shape("decode", "silu", rows, 2048, 8192, target=Target(at_most_us=most))
    for width, hidden, percent in ((4096, 14336, 90), (8192, 3584, 85)):
        for rows in (1, 4, 16):
            target = Target(faster=1.0, floor_percent=percent)
            yield Shape("decode", "silu", rows, width, hidden, target=target)


def chosen(
    regimes: list[str], match: str = "", *, tiny: bool = False, first_only: bool = False
) -> list[Shape]:
    """The shapes of some regimes whose label a pattern is found in.

    ``tiny``: as many, at sizes that a CPU can do; ``first_only``: one a regime.
    """
    found = [s for s in all_shapes() if s.regime in regimes and re.search(match, s.label)]
    if first_only:
        found = [next(s for s in found if s.regime == r) for r in {s.regime: 0 for s in found}]
    if tiny:
        found = [
            replace(s, rows=min(s.rows, 48), width=16 + s.width // 16, hidden=16 + s.hidden // 16)
            for s in found
        ]
    return list(dict.fromkeys(found))
