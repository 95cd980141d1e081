"""What the dispatch decides on: the sizes of an MLP, the type of its numbers, and the GPU."""

from __future__ import annotations

import functools
import importlib.util
from typing import NamedTuple

import torch

from .weights import Weights

TRITON = importlib.util.find_spec("triton") is not None
"""Is Triton there? Without it every call goes to PyTorch."""

KERNEL_DTYPES = frozenset({torch.bfloat16, torch.float16})
KERNEL_ACTIVATIONS = frozenset({"relu", "gelu_tanh", "silu"})
ACTIVATIONS = KERNEL_ACTIVATIONS | {"gelu"}
"""All names of activations; ``"gelu"``, the exact one with ``erf``, has no one-launch kernel."""


class Problem(NamedTuple):
    """One call of an MLP, as far as it bears on which kernel is quickest.

    ``rows`` counts all leading dimensions of x together. ``capability`` is the CUDA compute
    capability, ``None`` where no kernel of Triton can run (a CPU, another vendor's GPU, no
    Triton). ``keep``: a backward will follow, so the pre-activations must be written out too.
    """

    rows: int
    width: int
    hidden: int
    out: int
    gated: bool
    activation: str
    dtype: torch.dtype
    capability: tuple[int, int] | None
    keep: bool = False


@functools.cache
def capability_of(device: int) -> tuple[int, int] | None:
    """The compute capability of CUDA device number ``device``; of the CPU (-1), ``None``.

    AMD's GPUs are "cuda" to PyTorch as well, and one of them calls itself (9, 0), which is
    Hopper's number: they are told apart by the build of PyTorch.
    """
    if device < 0 or not TRITON or torch.version.hip is not None:
        return None
    return torch.cuda.get_device_capability(device)


@functools.cache
def sms(device: int) -> int:
    """Streaming multiprocessors of CUDA device number ``device``; of a slice of a GPU, its own."""
    return torch.cuda.get_device_properties(device).multi_processor_count


def problem_of(x: torch.Tensor, weights: Weights, activation: str, keep: bool = False) -> Problem:
    """That of x, (rows, width), and the weights."""
    rows, width = x.shape
    out, hidden = weights.down.shape
    gated, capability = weights.up is not None, capability_of(x.get_device())
    return Problem(rows, width, hidden, out, gated, activation, x.dtype, capability, keep)


def refusal(expected: str, p: Problem) -> ValueError:
    """What a kernel raises for what it cannot do."""
    return ValueError(
        f"expected a {expected}; got {'gated' if p.gated else 'plain'}, {p.rows} rows, width "
        f"{p.width}, hidden {p.hidden}, out {p.out}, {p.dtype}"
    )
