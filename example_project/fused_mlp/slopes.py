"""The backward's own kernel, on Hopper: ``dh = dy Wd``, and the activation's slope in its epilogue.

``dg = dh u act'(g)`` and ``du = dh act(g)`` of the pre-activations g and u that the forward kept.
dh itself stays in registers: by cuBLAS and a pointwise kernel it would go to memory and back.

As in `specialised` one warp, the producer, fills a ring by TMA, and eight consumers multiply. After
the steps along K a tile has four more, in which the same ring brings g and u, 64 columns of them a
step, so that they are there when the sums are. Consumers write dg and du into the buffers that g
and u came in, from where TMA stores them. There are no tickets: each program has every so many-th
tile.

All eight consumers are one group here. The epilogue is unrolled and most of the kernel, two groups
would be two copies of it, and each launch has to fetch them anew.
"""

from __future__ import annotations

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma

from .activations import value_and_slope
from .eager import SlopeOperands
from .hopper import ALIGNMENT, claim
from .launch import Launcher
from .problem import KERNEL_DTYPES, sms
from .specialised import halves, multiply, place
from .tensor_maps import Tiles

# ruff: noqa: N803, N806  (compile-time constants are written in capitals, as Triton's users do)

ROWS, COLUMNS, DEPTH = 128, 256, 64
"""Of a tile; numbers of a step along K, and columns of g and u in a step of the epilogue."""

STAGES = 4
GROUP = 4
"""Row blocks worked on together, so that tiles running at one time share operands in L2."""

CONSUMERS = 8
"""Warps. They have the registers that the producer leaves."""

PRODUCER_REGISTERS = 24
"""Of a thread."""


@gluon.jit
def beside(a, b, i):
    """Buffer i of b, as high and wide as a's: where u lies while g is in a's."""
    tall = b.index(i)._reinterpret(b.dtype, [b.shape[2], b.shape[1]], a.type.layout)
    return tall.slice(0, a.shape[1])


@gluon.jit
def produce(
    dy, down, gate_pre, up_pre, a, b, full, empty, row_blocks, column_blocks, steps,
    ROWS: gl.constexpr, COLUMNS: gl.constexpr, DEPTH: gl.constexpr, STAGES: gl.constexpr,
    GROUP: gl.constexpr,
):  # fmt: skip
    """The producer: the operands of each tile, then its g and u."""
    step = 0
    for tile in range(gl.program_id(0), row_blocks * column_blocks, gl.num_programs(0)):
        row_block, column_block = place(tile, row_blocks, column_blocks, GROUP)
        row = row_block * ROWS
        column = column_block * COLUMNS
        for k in range(steps):
            i = claim(empty, full, step, (ROWS + COLUMNS) * DEPTH * 2, STAGES)
            at = k * DEPTH
            tma.async_copy_global_to_shared(dy, [row, at], full.index(i), a.index(i))
            tma.async_copy_global_to_shared(down, [at, column], full.index(i), b.index(i))
            step += 1
        for part in range(COLUMNS // DEPTH):
            i = claim(empty, full, step, 2 * ROWS * DEPTH * 2, STAGES)
            at = column + part * DEPTH
            tma.async_copy_global_to_shared(gate_pre, [row, at], full.index(i), a.index(i))
            tma.async_copy_global_to_shared(up_pre, [row, at], full.index(i), beside(a, b, i))
            step += 1


@gluon.jit
def consume(
    d_gate, d_up, a, b, full, empty, row_blocks, column_blocks, steps,
    ACTIVATION: gl.constexpr, ROWS: gl.constexpr, COLUMNS: gl.constexpr, DEPTH: gl.constexpr,
    STAGES: gl.constexpr, GROUP: gl.constexpr,
):  # fmt: skip
    """The consumers: multiply, apply the slope and store."""
    gl.static_assert(COLUMNS == 4 * DEPTH)
    step = 0
    for tile in range(gl.program_id(0), row_blocks * column_blocks, gl.num_programs(0)):
        acc, step = multiply(a, b, full, empty, step, steps, 0, ROWS, COLUMNS, STAGES, (0, 1))
        row_block, column_block = place(tile, row_blocks, column_blocks, GROUP)
        row = row_block * ROWS
        left, right = halves(acc, ROWS, 2 * DEPTH)
        quarters = halves(left, ROWS, DEPTH) + halves(right, ROWS, DEPTH)
        for part in gl.static_range(4):
            column = column_block * COLUMNS + part * DEPTH
            i = step % STAGES
            mbarrier.wait(full.index(i), (step // STAGES) & 1)
            apply(
                quarters[part], a.index(i), beside(a, b, i), d_gate, d_up, row, column, ACTIVATION
            )
            # The part before has left its buffer once no more than two stores are left.
            if part > 0:
                tma.store_wait(2)
                mbarrier.arrive(empty.index((step + STAGES - 1) % STAGES), count=1)
            step += 1
        tma.store_wait(0)
        mbarrier.arrive(empty.index((step + STAGES - 1) % STAGES), count=1)


@gluon.jit
def apply(dh, first, second, d_gate, d_up, row, column, ACTIVATION: gl.constexpr):
    """From dh and the buffers with g and u to dg and du, in those buffers and on their way out."""
    dtype: gl.constexpr = first.dtype
    PRECISE: gl.constexpr = dtype != gl.bfloat16  # see `activations`
    layout: gl.constexpr = dh.type.layout
    gate = first.load(layout).to(gl.float32)
    value, slope = value_and_slope(gate, ACTIVATION, False, PRECISE)
    up = second.load(layout).to(gl.float32)
    first.store((dh * up * slope).to(dtype))
    second.store((dh * value).to(dtype))
    fence_async_shared()
    tma.async_copy_shared_to_global(d_gate, [row, column], first)
    tma.async_copy_shared_to_global(d_up, [row, column], second)


@gluon.jit
def slopes_kernel(
    dy, down, gate_pre, up_pre, d_gate, d_up, rows, hidden, out,
    ACTIVATION: gl.constexpr, ROWS: gl.constexpr, COLUMNS: gl.constexpr, DEPTH: gl.constexpr,
    STAGES: gl.constexpr, GROUP: gl.constexpr, PRODUCER_REGISTERS: gl.constexpr,
):  # fmt: skip
    """Set up the ring and its barriers, and split the warps."""
    row_blocks = gl.cdiv(rows, ROWS)
    column_blocks = gl.cdiv(hidden, COLUMNS)
    steps = gl.cdiv(out, DEPTH)
    a = gl.allocate_shared_memory(dy.dtype, [STAGES, ROWS, DEPTH], dy.layout)
    b = gl.allocate_shared_memory(dy.dtype, [STAGES, DEPTH, COLUMNS], down.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=1)
    gl.warp_specialize(
        [
            (consume, (
                d_gate, d_up, a, b, full, empty, row_blocks, column_blocks, steps,
                ACTIVATION, ROWS, COLUMNS, DEPTH, STAGES, GROUP,
            )),
            (produce, (
                dy, down, gate_pre, up_pre, a, b, full, empty, row_blocks, column_blocks, steps,
                ROWS, COLUMNS, DEPTH, STAGES, GROUP,
            )),
        ],
        [1],
        [PRODUCER_REGISTERS],
    )  # fmt: skip


def supports(rows: int, hidden: int, out: int, dtype: torch.dtype) -> bool:
    """Can the kernel do this? 16-bit floats, and rows of whole 16-byte pieces, as TMA wants."""
    return (
        dtype in KERNEL_DTYPES
        and min(rows, hidden, out) > 0
        and max(rows, hidden, out) < 2**30
        and hidden % ALIGNMENT == 0
        and out % ALIGNMENT == 0
    )


def slopes(operands: SlopeOperands, activation: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradients of both pre-activations in one launch, on compute capability 9.0.

    Shapes: both results (rows, hidden), the others as `SlopeOperands` has them; one dtype,
    everything contiguous and aligned to 16 bytes.

    Raises ValueError for what `supports` refuses.
    """
    dy, down, gate_pre, up_pre = operands
    rows, out = dy.shape
    hidden = down.shape[1]
    if not supports(rows, hidden, out, dy.dtype):
        raise ValueError(
            f"expected hidden and out multiples of {ALIGNMENT}, and bfloat16 or float16; got "
            f"{rows} rows, hidden {hidden}, out {out}, {dy.dtype}"
        )
    d_gate, d_up = torch.empty_like(gate_pre), torch.empty_like(up_pre)
    _launcher(
        (rows, hidden, out, dy.dtype, dy.device, activation),
        sms(dy.device.index),
        (
            Tiles(dy, rows, out, ROWS, DEPTH),
            Tiles(down, out, hidden, DEPTH, COLUMNS),
            *(Tiles(t, rows, hidden, ROWS, DEPTH) for t in (gate_pre, up_pre, d_gate, d_up)),
            *(rows, hidden, out),
        ),
        (activation, ROWS, COLUMNS, DEPTH, STAGES, GROUP, PRODUCER_REGISTERS),
        {"num_warps": CONSUMERS},
    )
    return d_gate, d_up


_launcher = Launcher(slopes_kernel)
