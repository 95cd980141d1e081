"""Narrow layers, many rows: the weights stay on the SM and the hidden row never leaves it.

With widths up to some 128 an MLP is bound by reading x and writing y. Eager PyTorch also writes
the hidden layer to memory and reads it back, twice where the activation is a kernel of its own.
Here each program keeps the weights on chip and goes over blocks of rows: x in, both products and
the activation between them, y out. No program needs anything from another, so nothing waits.

Where both weights do not fit beside the tiles, hidden is cut into blocks and the weights come
from L2 again for each block of rows; the hidden numbers still never leave the SM.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from .activations import activate
from .launch import INTERPRET, Launcher, Plan, alignment, kind_of
from .problem import KERNEL_DTYPES, Problem, problem_of, refusal, sms
from .weights import Weights

# ruff: noqa: N803, N806  (compile-time constants are written in capitals, as Triton's users do)

INTERPRETED_PROGRAMS = 2

MAX_WIDTH = 128
MAX_HIDDEN = 1024
MAX_ROWS = 2**30
"""Beyond, the number of a row would not fit 32 bits. Where a row lies is counted in 64."""
SMALLEST = 16
"""The least size that the tensor cores multiply: smaller widths are padded with zeros."""


@dataclass(frozen=True)
class Config:
    """Sizes of tiles: rows of x, and columns of the hidden layer (all of them: weights stay).

    ``warps`` and ``stages`` are Triton's num_warps and the stages of the loop (over rows or over
    hidden); ``residents`` programs share an SM.
    """

    block_rows: int
    block_hidden: int
    warps: int
    stages: int
    residents: int


@triton.jit
def load_weight(
    at, first, ROWS: tl.constexpr, COLUMNS: tl.constexpr, PR: tl.constexpr, PC: tl.constexpr
):
    """Rows ``first`` to ``first + PR`` of a (ROWS, COLUMNS) matrix, zeros beyond its edges."""
    row = first + tl.arange(0, PR)[:, None]
    column = tl.arange(0, PC)[None, :]
    return tl.load(at + row * COLUMNS + column, mask=(row < ROWS) & (column < COLUMNS), other=0.0)


@triton.jit
def load_columns(
    at, first, ROWS: tl.constexpr, COLUMNS: tl.constexpr, PR: tl.constexpr, PC: tl.constexpr
):
    """Columns ``first`` to ``first + PC`` of a (ROWS, COLUMNS) matrix, zeros beyond its edges."""
    row = tl.arange(0, PR)[:, None]
    column = first + tl.arange(0, PC)[None, :]
    return tl.load(at + row * COLUMNS + column, mask=(row < ROWS) & (column < COLUMNS), other=0.0)


@triton.jit
def load_bias(bias, first, COUNT: tl.constexpr, PADDED: tl.constexpr):
    """A piece of a bias as a float32 row, zeros beyond its end and where there is none."""
    at = first + tl.arange(0, PADDED)
    if bias is None:
        return tl.zeros((1, PADDED), tl.float32)
    else:
        return tl.load(bias + at, mask=at < COUNT, other=0.0).to(tl.float32)[None, :]


@triton.jit
def activate_inside(
    a, first, HIDDEN: tl.constexpr, BLOCK_HIDDEN: tl.constexpr, ACTIVATION: tl.constexpr,
    INTERPRET: tl.constexpr, PRECISE: tl.constexpr,
):  # fmt: skip
    """The activation, and 0 in the columns beyond HIDDEN that fill up the tile.

    Those are x times zeros, which is no zero where x is infinite: inf times 0 is NaN, and would
    spread over the whole row of y.
    """
    h = activate(a, ACTIVATION, INTERPRET, PRECISE)
    if HIDDEN % BLOCK_HIDDEN != 0:
        column = first + tl.arange(0, BLOCK_HIDDEN)[None, :]
        h = tl.where(column < HIDDEN, h, 0.0)
    return h


@triton.jit
def narrow_kernel(
    x, w1, b1, w2, b2, y, rows,
    WIDTH: tl.constexpr, HIDDEN: tl.constexpr, OUT: tl.constexpr, PADDED_WIDTH: tl.constexpr,
    PADDED_OUT: tl.constexpr, ACTIVATION: tl.constexpr, BLOCK_ROWS: tl.constexpr,
    BLOCK_HIDDEN: tl.constexpr, STAGES: tl.constexpr, INTERPRET: tl.constexpr,
):  # fmt: skip
    """One of a grid of programs that stay; each takes every ``num_programs``-th block of rows."""
    dtype: tl.constexpr = y.dtype.element_ty
    PRECISE: tl.constexpr = dtype != tl.bfloat16  # see `activations`
    tiles = tl.cdiv(rows, BLOCK_ROWS)
    from_x = tl.arange(0, PADDED_WIDTH)[None, :]
    to_y = tl.arange(0, PADDED_OUT)[None, :]
    y_bias = load_bias(b2, 0, OUT, PADDED_OUT)
    if BLOCK_HIDDEN >= HIDDEN:
        first = load_weight(w1, 0, HIDDEN, WIDTH, BLOCK_HIDDEN, PADDED_WIDTH)
        second = load_columns(w2, 0, OUT, HIDDEN, PADDED_OUT, BLOCK_HIDDEN)
        h_bias = load_bias(b1, 0, HIDDEN, BLOCK_HIDDEN)
        for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), num_stages=STAGES):
            row = (tile * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)).to(tl.int64)[:, None]
            inside = row < rows
            block = tl.load(x + row * WIDTH + from_x, mask=inside & (from_x < WIDTH), other=0.0)
            h = tl.dot(block, first.T) + h_bias
            h = activate_inside(h, 0, HIDDEN, BLOCK_HIDDEN, ACTIVATION, INTERPRET, PRECISE)
            result = tl.dot(h.to(dtype), second.T) + y_bias
            tl.store(y + row * OUT + to_y, result.to(dtype), mask=inside & (to_y < OUT))
    else:
        for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
            row = (tile * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)).to(tl.int64)[:, None]
            inside = row < rows
            block = tl.load(x + row * WIDTH + from_x, mask=inside & (from_x < WIDTH), other=0.0)
            acc = tl.zeros((BLOCK_ROWS, PADDED_OUT), tl.float32) + y_bias
            for start in tl.range(0, HIDDEN, BLOCK_HIDDEN, num_stages=STAGES):
                first = load_weight(w1, start, HIDDEN, WIDTH, BLOCK_HIDDEN, PADDED_WIDTH)
                second = load_columns(w2, start, OUT, HIDDEN, PADDED_OUT, BLOCK_HIDDEN)
                h = tl.dot(block, first.T) + load_bias(b1, start, HIDDEN, BLOCK_HIDDEN)
                h = activate_inside(h, start, HIDDEN, BLOCK_HIDDEN, ACTIVATION, INTERPRET, PRECISE)
                acc = tl.dot(h.to(dtype), second.T, acc)
            tl.store(y + row * OUT + to_y, acc.to(dtype), mask=inside & (to_y < OUT))


def supports(p: Problem) -> bool:
    """Can the kernel do this? Plain, widths up to 128 and hidden up to 1,024, 16-bit floats."""
    dtypes = (torch.float16, torch.float32) if INTERPRET else KERNEL_DTYPES
    return (
        not p.gated
        and p.dtype in dtypes
        and 0 < p.rows <= MAX_ROWS
        and 0 < p.width <= MAX_WIDTH
        and 0 < p.out <= MAX_WIDTH
        and 0 < p.hidden <= MAX_HIDDEN
    )


def narrow(
    x: torch.Tensor, weights: Weights, activation: str, plan: Plan | None = None
) -> torch.Tensor:
    """A plain MLP in one launch.

    Shapes: x (rows, width), y (rows, out), the weights as `Weights` has them; one dtype,
    everything contiguous.

    Raises ValueError for what `supports` refuses.
    """
    w1, _, w2, b1, b2 = weights
    if plan is None:
        plan = make_plan(problem_of(x, weights, activation), x.device)
    y = x.new_empty((x.shape[0], w2.shape[0]))
    arguments = (x, w1, b1, w2, b2, y)
    key = (plan.kind, alignment(*arguments))
    _launcher(key, plan.programs, arguments, plan.constants, plan.options)
    return y


_launcher = Launcher(narrow_kernel)


@functools.lru_cache(maxsize=1024)
def make_plan(p: Problem, device: torch.device) -> Plan:
    """As many programs as stay at once. Raises ValueError for what `narrow` refuses."""
    if not supports(p):
        raise refusal(
            f"plain MLP, up to {MAX_ROWS} rows, a width and out of 1 to {MAX_WIDTH}, hidden of 1 "
            f"to {MAX_HIDDEN}, and bfloat16 or float16",
            p,
        )
    config = config_for(p.width, p.hidden, p.out)
    stay = sms(device.index) * config.residents if device.type == "cuda" else INTERPRETED_PROGRAMS
    constants = (
        *(p.rows, p.width, p.hidden, p.out, padded(p.width), padded(p.out), p.activation),
        *(config.block_rows, config.block_hidden, config.stages, INTERPRET),
    )
    programs = min(stay, math.ceil(p.rows / config.block_rows))
    return Plan(programs, constants, {"num_warps": config.warps}, kind=kind_of(p, p.rows))


def padded(size: int) -> int:
    """The next power of two that the tensor cores multiply."""
    return max(SMALLEST, 1 << (size - 1).bit_length())


def config_for(width: int, hidden: int, out: int) -> Config:
    """The quickest tiles on an H200, of those tried (`benchmarks`), by the padded sizes."""
    wide, deep = max(padded(width), padded(out)), padded(hidden)
    if wide <= 32 and deep <= 32:
        return Config(64, deep, 4, 4, 3)
    if wide * deep <= 64 * 64:
        return Config(128, deep, 8, 3, 2)
    if wide * deep <= 128 * 128 and deep <= 128:
        return Config(128, deep, 8, 3, 1)
    if wide <= 64 and deep <= 256:
        return Config(64, deep, 4, 2, 2)
    return Config(128, 64, 4, 2, 2)
