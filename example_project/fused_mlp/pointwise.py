"""The pointwise kernels beside cuBLAS's GEMMs: the fallback's one and the backward's two.

All are bound by memory: each number is read once and written once, in 16-byte pieces, and the
arithmetic between (float32) is free. That is why the exact exponential is used here, not the
hardware's approximate tanh as in the one-launch kernels.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

# ruff: noqa: N803  (compile-time constants are written in capitals, as Triton's users do)

FLAT_BLOCK = 2048
"""Numbers a program of the flat kernels: 4 warps with two 16-byte loads a thread and tensor."""

TILE_COLUMNS = 1024
TILE_NUMBERS = 2048
"""Tile of the gated backward: at most so many columns, and rows until it has so many numbers."""


@triton.jit
def value_and_slope(a, ACTIVATION: tl.constexpr):
    """``act(a)`` and ``act'(a)`` of a float32 tile.

    Both SiLU and tanh-GELU are ``a * s(u(a))`` with the logistic function s, since
    ``(1 + tanh z) / 2 = s(2z)``: u is a itself for SiLU (Elfwing, Uchibe, Doya 2017) and
    ``2 sqrt(2/pi) (a + 0.044715 a^3)`` for tanh-GELU (Hendrycks, Gimpel 2016, section 2). With
    ``s' = s (1 - s)`` the slope is ``s + a s (1 - s) u'(a)``. Exact GELU is ``a P(a)`` with the
    normal distribution P; its slope is ``P(a) + a p(a)`` with the density p.
    """
    if ACTIVATION == "relu":
        value = tl.where(a < 0.0, 0.0, a)  # no maximum(a, 0), which would turn a NaN into 0
        slope = tl.where(a <= 0.0, 0.0, 1.0)  # 0 at 0, as PyTorch has it
    elif ACTIVATION == "gelu":
        below = 0.5 * (1.0 + tl.erf(a * 0.7071067811865476))
        value = a * below
        slope = below + a * 0.3989422804014327 * tl.exp(-0.5 * a * a)
    else:
        if ACTIVATION == "silu":
            s = tl.sigmoid(a)
            inner_slope = 1.0
        else:
            tl.static_assert(ACTIVATION == "gelu_tanh")
            square = a * a
            s = tl.sigmoid(1.5957691216057308 * a * (1.0 + 0.044715 * square))
            inner_slope = 1.5957691216057308 * (1.0 + 0.134145 * square)
        value = a * s
        slope = s + value * (1.0 - s) * inner_slope
    return value, slope


@triton.jit
def activate_and_multiply_kernel(
    gate, up, out, numbers, ACTIVATION: tl.constexpr, BLOCK: tl.constexpr
):
    """``out = act(gate) * up``; out may be gate, since each thread reads before it writes."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < numbers
    a = tl.load(gate + at, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(up + at, mask=inside, other=0.0).to(tl.float32)
    value, _ = value_and_slope(a, ACTIVATION)
    tl.store(out + at, (value * b).to(out.dtype.element_ty), mask=inside)


@triton.jit
def plain_backward_kernel(
    pre,
    d_hidden,
    d_pre,
    h,
    numbers,
    ACTIVATION: tl.constexpr,
    WANT_D: tl.constexpr,
    WANT_H: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """``d_pre = d_hidden * act'(pre)`` and ``h = act(pre)``, each only if wanted."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < numbers
    a = tl.load(pre + at, mask=inside, other=0.0).to(tl.float32)
    value, slope = value_and_slope(a, ACTIVATION)
    if WANT_H:
        tl.store(h + at, value.to(h.dtype.element_ty), mask=inside)
    if WANT_D:
        d = tl.load(d_hidden + at, mask=inside, other=0.0).to(tl.float32)
        tl.store(d_pre + at, (d * slope).to(d_pre.dtype.element_ty), mask=inside)


@triton.jit
def gated_backward_kernel(
    gate_pre,
    up_pre,
    d_hidden,
    d_pre,
    h,
    rows,
    hidden,
    ACTIVATION: tl.constexpr,
    WANT_D: tl.constexpr,
    WANT_H: tl.constexpr,
    TILE_ROWS: tl.constexpr,
    TILE_COLS: tl.constexpr,
):
    """``h = act(g) u``; in one buffer of 2 * hidden columns, ``dg = dh u act'(g), du = dh act(g)``.

    Shapes: gate_pre (g), up_pre (u), d_hidden (dh) and h are (rows, hidden), d_pre is
    (rows, 2 * hidden): dg in the left half of a row and du in the right.
    """
    columns_of_tiles = tl.cdiv(hidden, TILE_COLS)
    tile = tl.program_id(0)
    row = (tile // columns_of_tiles) * TILE_ROWS + tl.arange(0, TILE_ROWS)[:, None]
    column = (tile % columns_of_tiles) * TILE_COLS + tl.arange(0, TILE_COLS)[None, :]
    inside = (row < rows) & (column < hidden)
    start = row.to(tl.int64) * hidden
    a = tl.load(gate_pre + start + column, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(up_pre + start + column, mask=inside, other=0.0).to(tl.float32)
    value, slope = value_and_slope(a, ACTIVATION)
    if WANT_H:
        tl.store(h + start + column, (value * b).to(h.dtype.element_ty), mask=inside)
    if WANT_D:
        d = tl.load(d_hidden + start + column, mask=inside, other=0.0).to(tl.float32)
        left = d_pre + 2 * start + column
        tl.store(left, (d * b * slope).to(d_pre.dtype.element_ty), mask=inside)
        tl.store(left + hidden, (d * value).to(d_pre.dtype.element_ty), mask=inside)


def activate_and_multiply(
    gate: torch.Tensor, up: torch.Tensor, out: torch.Tensor, activation: str
) -> torch.Tensor:
    """``out = act(gate) * up`` in one launch; all three contiguous, of one shape."""
    numbers = gate.numel()
    if numbers:
        grid = (triton.cdiv(numbers, FLAT_BLOCK),)
        activate_and_multiply_kernel[grid](
            gate, up, out, numbers, ACTIVATION=activation, BLOCK=FLAT_BLOCK
        )
    return out


def plain_backward(
    pre: torch.Tensor, d_hidden: torch.Tensor | None, activation: str, want_h: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """``(d_pre, h)`` in one launch; what is not wanted (d_hidden ``None``: d_pre) is empty.

    Shapes: pre, d_hidden, d_pre and h are (rows, hidden), contiguous.
    """
    d_pre = torch.empty_like(pre) if d_hidden is not None else pre.new_empty(0)
    h = torch.empty_like(pre) if want_h else pre.new_empty(0)
    numbers = pre.numel()
    if numbers:
        plain_backward_kernel[(triton.cdiv(numbers, FLAT_BLOCK),)](
            pre,
            d_hidden if d_hidden is not None else pre,
            d_pre,
            h,
            numbers,
            ACTIVATION=activation,
            WANT_D=d_hidden is not None,
            WANT_H=want_h,
            BLOCK=FLAT_BLOCK,
        )
    return d_pre, h


def gated_backward(
    gate_pre: torch.Tensor,
    up_pre: torch.Tensor,
    d_hidden: torch.Tensor | None,
    activation: str,
    want_h: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """``(d_pre, h)`` in one launch; what is not wanted (d_hidden ``None``: d_pre) is empty.

    Shapes: gate_pre, up_pre, d_hidden and h are (rows, hidden), contiguous; d_pre is
    (rows, 2 * hidden), the gradient of gate_pre left and that of up_pre right.
    """
    rows, hidden = gate_pre.shape
    d_pre = gate_pre.new_empty((rows, 2 * hidden) if d_hidden is not None else 0)
    h = torch.empty_like(gate_pre) if want_h else gate_pre.new_empty(0)
    if gate_pre.numel():
        columns = min(TILE_COLUMNS, triton.next_power_of_2(hidden))
        tile_rows = max(1, TILE_NUMBERS // columns)
        tiles = triton.cdiv(rows, tile_rows) * triton.cdiv(hidden, columns)
        gated_backward_kernel[(tiles,)](
            gate_pre,
            up_pre,
            d_hidden if d_hidden is not None else gate_pre,
            d_pre,
            h,
            rows,
            hidden,
            ACTIVATION=activation,
            WANT_D=d_hidden is not None,
            WANT_H=want_h,
            TILE_ROWS=tile_rows,
            TILE_COLS=columns,
        )
    return d_pre, h
