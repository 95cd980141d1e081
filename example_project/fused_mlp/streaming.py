"""Decode on Hopper: one launch whose weights never stop streaming, written in Gluon.

`decode` says what bounds a few rows: the weights' way from memory. There a program loads, adds
up, and only then loads again. Here, of the six warps of a program,

* one **weight producer** brings pieces of weight by TMA into a ring of buffers, as far ahead as
  there are buffers: into the next tile, and across the border of the phases, for no weight
  depends on h. While everybody waits for h, its share of ``down`` is on its way, as far as 96 KiB
  of ring hold it;
* one **input producer** does the same with pieces of x, and of h as soon as all of h is there;
* four **consumers** multiply what both have brought, on the tensor cores: a piece of weight is
  the 64 rows of the product, x or h its columns, padded to 16, 32 or 64.

Tiles are 32 rows of gate above 32 of up, then 64 rows of ``down``, of which there are few: those
are cut along hidden, each piece leaves its float32 sums, and who finishes last adds them all in
their order. What a program does is fixed beforehand, so a program that waits must be sure that
the others run: the launch is cooperative, all programs at once or none.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from . import sync, workspace
from .activations import activate
from .hopper import ALIGNMENT, claim, descriptor, sms
from .launch import Launcher
from .sync import COUNTERS, LEFT

# ruff: noqa: N803, N806  (compile-time constants are written in capitals, as Triton's users do)

MAX_ROWS = 64
TILE = 64
"""Rows of weight in a piece: what one ``wgmma`` multiplies."""

SUMS_ALIGNMENT = 64
"""Numbers of 16 bits in 128 bytes: where the sums begin in the scratch, a whole cache line."""


@dataclass(frozen=True)
class Config:
    """``depth``: numbers along K in a piece; ``stages``: buffers in the ring; ``pieces``: of hidden
    for a tile of y (``None``: so many that all programs have one)."""

    depth: int = 128
    stages: int = 6
    pieces: int | None = None


@gluon.jit
def bring_weights(
    gate, up, down, a, full, empty, hidden_tiles, out_units, width_steps, piece_steps,
    TILE: gl.constexpr, DEPTH: gl.constexpr, STAGES: gl.constexpr, PIECES: gl.constexpr,
):  # fmt: skip
    """The weight producer."""
    BYTES: gl.constexpr = TILE * DEPTH * 2
    HALF: gl.constexpr = TILE // 2
    step = 0
    for tile in range(gl.program_id(0), hidden_tiles, gl.num_programs(0)):
        for k in range(width_steps):
            i = claim(empty, full, step, BYTES, STAGES)
            above = a.index(i).slice(0, HALF)
            below = a.index(i).slice(HALF, HALF)
            tma.async_copy_global_to_shared(gate, [tile * HALF, k * DEPTH], full.index(i), above)
            tma.async_copy_global_to_shared(up, [tile * HALF, k * DEPTH], full.index(i), below)
            step += 1
    for unit in range(gl.program_id(0), out_units, gl.num_programs(0)):
        row = unit // PIECES * TILE
        first = unit % PIECES * piece_steps
        for k in range(piece_steps):
            i = claim(empty, full, step, BYTES, STAGES)
            at = [row, (first + k) * DEPTH]
            tma.async_copy_global_to_shared(down, at, full.index(i), a.index(i))
            step += 1


@gluon.jit
def bring_inputs(
    x, h, slot, b, full, empty, hidden_tiles, out_units, width_steps, piece_steps,
    ROWS: gl.constexpr, DEPTH: gl.constexpr, STAGES: gl.constexpr, PIECES: gl.constexpr,
):  # fmt: skip
    """The input producer, which alone waits for other programs."""
    BYTES: gl.constexpr = ROWS * DEPTH * 2
    step = 0
    for _ in range(gl.program_id(0), hidden_tiles, gl.num_programs(0)):
        for k in range(width_steps):
            i = claim(empty, full, step, BYTES, STAGES)
            tma.async_copy_global_to_shared(x, [0, k * DEPTH], full.index(i), b.index(i))
            step += 1
    if gl.program_id(0) < out_units:
        sync.wait_for(slot + COUNTERS, hidden_tiles, False, TMA=True)
        for unit in range(gl.program_id(0), out_units, gl.num_programs(0)):
            first = unit % PIECES * piece_steps
            for k in range(piece_steps):
                i = claim(empty, full, step, BYTES, STAGES)
                at = [0, (first + k) * DEPTH]
                tma.async_copy_global_to_shared(h, at, full.index(i), b.index(i))
                step += 1


@gluon.jit
def multiply(
    a, b, a_full, a_empty, b_full, b_empty, step, steps,
    ROWS: gl.constexpr, TILE: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """A (TILE, ROWS) tile in float32, and the number of the next buffer."""
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, ROWS, 16])
    acc = gl.zeros([TILE, ROWS], gl.float32, layout)
    for k in range(steps):
        i = step % STAGES
        before = (step + STAGES - 1) % STAGES
        phase = (step // STAGES) & 1
        mbarrier.wait(a_full.index(i), phase)
        mbarrier.wait(b_full.index(i), phase)
        acc = warpgroup_mma(a.index(i), b.index(i).permute((1, 0)), acc, is_async=True)
        acc = warpgroup_mma_wait(1, deps=(acc,))
        mbarrier.arrive(a_empty.index(before), count=1, pred=k > 0)
        mbarrier.arrive(b_empty.index(before), count=1, pred=k > 0)
        step += 1
    acc = warpgroup_mma_wait(0, deps=(acc,))
    mbarrier.arrive(a_empty.index((step + STAGES - 1) % STAGES), count=1)
    mbarrier.arrive(b_empty.index((step + STAGES - 1) % STAGES), count=1)
    return acc, step


@gluon.jit
def consume(
    h, y, slot, a, b, a_full, a_empty, b_full, b_empty, rows, hidden, out, h_numbers,
    hidden_tiles, out_units, width_steps, piece_steps, out_tiles, ACTIVATION: gl.constexpr,
    ROWS: gl.constexpr, TILE: gl.constexpr, STAGES: gl.constexpr, PIECES: gl.constexpr,
):  # fmt: skip
    """The consumers: multiply, activate, store."""
    sums = (h + h_numbers).to(gl.pointer_type(gl.float32), bitcast=True)
    HALF: gl.constexpr = TILE // 2
    pairs: gl.constexpr = gl.BlockedLayout([1, 4, 2], [8, 4, 1], [4, 1, 1], [2, 1, 0])
    flat: gl.constexpr = gl.BlockedLayout([1, 4], [8, 4], [4, 1], [1, 0])
    row = gl.arange(0, ROWS, gl.SliceLayout(0, flat))[None, :]
    step = 0
    for tile in range(gl.program_id(0), hidden_tiles, gl.num_programs(0)):
        acc, step = multiply(
            a, b, a_full, a_empty, b_full, b_empty, step, width_steps, ROWS, TILE, STAGES
        )
        both = acc.reshape([2, HALF, ROWS]).permute(1, 2, 0)  # gate and up of a pair: two warps'
        left, right = gl.convert_layout(both, pairs).split()
        activated = activate(left, ACTIVATION, False, True) * right
        activated = gl.convert_layout(activated.to(h.dtype.element_ty), flat)
        at = (tile * HALF + gl.arange(0, HALF, gl.SliceLayout(1, flat)))[:, None]
        gl.store(h + row * hidden + at, activated, mask=(row < rows) & (at < hidden))
        sync.publish(slot + COUNTERS, False, TMA=True)
    for unit in range(gl.program_id(0), out_units, gl.num_programs(0)):
        tail, step = multiply(
            a, b, a_full, a_empty, b_full, b_empty, step, piece_steps, ROWS, TILE, STAGES
        )
        result = gl.convert_layout(tail, flat)
        tile = unit // PIECES
        to = (tile * TILE + gl.arange(0, TILE, gl.SliceLayout(1, flat)))[:, None]
        inside = (row < rows) & (to < out)
        last = True
        if PIECES > 1:
            at_sums = sums + to * ROWS + row
            gl.store(at_sums + unit % PIECES * out * ROWS, result, mask=inside)
            sync.barrier()  # see `sync`: all threads' stores before the release
            counter = slot + COUNTERS + 1 + tile
            last = gl.atomic_add(counter, 1, sem="acq_rel", scope="gpu") == PIECES - 1
            if last:
                result = gl.zeros([TILE, ROWS], gl.float32, flat)
                for piece in gl.static_range(PIECES):
                    result += gl.load(
                        at_sums + piece * out * ROWS, mask=inside, other=0.0, cache_modifier=".cg"
                    )
        if last:
            gl.store(y + row * out + to, result.to(y.dtype.element_ty), mask=inside)
    # This program's input producer read its last counter before the last buffer was full.
    left = gl.atomic_add(slot + LEFT, 1, sem="acq_rel", scope="gpu")
    if left == gl.num_programs(0) - 1:
        for i in range(out_tiles + 1 + COUNTERS):
            gl.store(slot + i, 0)


@gluon.jit
def streaming_kernel(
    x, gate, up, down, h_pieces, h, y, slot, rows, width, hidden, out, h_numbers, piece_steps,
    ACTIVATION: gl.constexpr, ROWS: gl.constexpr, TILE: gl.constexpr, DEPTH: gl.constexpr,
    STAGES: gl.constexpr, PIECES: gl.constexpr,
):  # fmt: skip
    """Set up both rings and split the warps."""
    hidden_tiles = gl.cdiv(hidden, TILE // 2)
    out_tiles = gl.cdiv(out, TILE)
    out_units = out_tiles * PIECES
    width_steps = gl.cdiv(width, DEPTH)
    a = gl.allocate_shared_memory(x.dtype, [STAGES, TILE, DEPTH], down.layout)
    b = gl.allocate_shared_memory(x.dtype, [STAGES, ROWS, DEPTH], x.layout)
    a_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    a_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    b_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    b_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(a_full.index(i), count=1)
        mbarrier.init(a_empty.index(i), count=1)
        mbarrier.init(b_full.index(i), count=1)
        mbarrier.init(b_empty.index(i), count=1)
    gl.warp_specialize(
        [
            (consume, (
                h, y, slot, a, b, a_full, a_empty, b_full, b_empty, rows, hidden, out, h_numbers,
                hidden_tiles, out_units, width_steps, piece_steps, out_tiles, ACTIVATION,
                ROWS, TILE, STAGES, PIECES,
            )),
            (bring_weights, (
                gate, up, down, a, a_full, a_empty, hidden_tiles, out_units, width_steps,
                piece_steps, TILE, DEPTH, STAGES, PIECES,
            )),
            (bring_inputs, (
                x, h_pieces, slot, b, b_full, b_empty, hidden_tiles, out_units, width_steps,
                piece_steps, ROWS, DEPTH, STAGES, PIECES,
            )),
        ],
        [1, 1],
        [40, 40],
    )  # fmt: skip


def supports(rows: int, width: int, hidden: int, out: int, dtype: torch.dtype) -> bool:
    """Can the kernel do this? 1 to 64 rows, 16-bit floats, width and hidden multiples of 8."""
    return (
        dtype in (torch.float16, torch.bfloat16)
        and 0 < rows <= MAX_ROWS
        and min(width, hidden, out) > 0
        and width % ALIGNMENT == 0
        and hidden % ALIGNMENT == 0
    )


def gated(
    x: torch.Tensor,
    gate: torch.Tensor,
    up: torch.Tensor,
    down: torch.Tensor,
    activation: str,
    config: Config | None = None,
) -> torch.Tensor:
    """``(act(x Wg^T) * (x Wu^T)) Wd^T`` in one launch, on compute capability 9.0.

    Shapes: x (rows, width), gate and up (hidden, width), down (out, hidden), y (rows, out); one
    dtype, everything contiguous and aligned to 16 bytes.

    Raises ValueError for what `supports` refuses, WorkspaceExhausted while capturing a graph.
    """
    rows, width = x.shape
    out, hidden = down.shape
    device = x.device
    plan = make_plan(rows, width, hidden, out, x.dtype, device.index, config)
    h = torch.empty(plan.scratch_numbers, dtype=x.dtype, device=device)  # and the sums behind it
    y = torch.empty((rows, out), dtype=x.dtype, device=device)
    depth = plan.depth
    _launcher(
        (plan, activation),
        plan.programs,
        (
            descriptor(x, rows, width, plan.rows, depth),
            descriptor(gate, hidden, width, TILE // 2, depth),
            descriptor(up, hidden, width, TILE // 2, depth),
            descriptor(down, out, hidden, TILE, depth),
            descriptor(h, rows, hidden, plan.rows, depth),
            *(h, y, workspace.slot(device, plan.ints)),
            *(rows, width, hidden, out, plan.h_numbers, plan.piece_steps),
        ),
        (activation, plan.rows, TILE, depth, plan.stages, plan.pieces),
        OPTIONS,
    )
    return y


OPTIONS = {"num_warps": 4, "launch_cooperative_grid": True}

_launcher = Launcher(streaming_kernel)


@dataclass(frozen=True, eq=False)
class Plan:
    """What a launch depends on beside its tensors. Each problem has one, compared by identity.

    ``h_numbers`` of the scratch are h's, in its dtype; behind them lie the sums of the pieces.
    """

    programs: int
    rows: int
    depth: int
    stages: int
    pieces: int
    piece_steps: int
    h_numbers: int
    scratch_numbers: int
    ints: int


@functools.lru_cache(maxsize=1024)
def make_plan(
    rows: int,
    width: int,
    hidden: int,
    out: int,
    dtype: torch.dtype,
    device: int,
    config: Config | None,
) -> Plan:
    """Sizes of a launch. Raises ValueError for what `supports` refuses."""
    if not supports(rows, width, hidden, out, dtype):
        raise ValueError(
            f"expected 1 to {MAX_ROWS} rows of bfloat16 or float16, width and hidden multiples of "
            f"{ALIGNMENT}; got {rows} rows, width {width}, hidden {hidden}, out {out}, {dtype}"
        )
    padded = max(16, triton.next_power_of_2(rows))
    config = config or Config()
    programs = sms(device)
    steps = math.ceil(hidden / config.depth)
    tiles = math.ceil(out / TILE)
    pieces = config.pieces or max(1, min(8, steps, programs // tiles))
    h_numbers = math.ceil(rows * hidden / SUMS_ALIGNMENT) * SUMS_ALIGNMENT
    sums = pieces * out * padded if pieces > 1 else 0
    return Plan(
        programs,
        padded,
        config.depth,
        config.stages,
        pieces,
        math.ceil(steps / pieces),
        h_numbers,
        h_numbers + 2 * sums,
        sync.HEADER_INTS + 1 + tiles,
    )
