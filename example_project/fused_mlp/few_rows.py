"""Decode on Hopper, 1 to 16 rows: one launch that reads the weights once, without a pause.

A few rows of x do little with each weight, so the time is that of the weights' way from memory.
What eager PyTorch loses is the start and the end of each of its kernels, when memory idles. Here:

* **One program an SM**, and one list of steps for it, known beforehand: its rows of gate and up,
  then its part of down. All pass through one ring in shared memory by ``cp.async``, down's first
  right behind up's last, so that memory does not idle while programs wait for h.
* **Loads answer in the order of asking.** So x is asked for before the first weights (after them
  it would come last, and nothing can be multiplied until then), and the ring is no deeper than it
  must be: the first look at h comes back when all that was asked for before has arrived.
* **h is its own flag**, see `flags`: no counters, fences or atomics between the two halves.
* **Tensor cores**, since ordinary arithmetic is too slow for more than two rows: the columns of
  an ``mma`` are 8 rows of weight, and its 16 rows are x or h, with zeros below. Each warp has
  its own piece of the columns of width or hidden, and their sums are added at the end.
* **h stays in registers.** A thread asks for just the numbers that it multiplies, as its share of
  the left operand. Where that is too much for one SM, some programs SPLIT hidden among them:
  each leaves its sums to the others, as flags again, and adds its part of them in their order.
* **Program 0 turns the buffers** at its end: by then every program has read whose turn it is, since
  what program 0 waited for was made, directly or not, by all of them.

Every number is the sum of the same products in the same order each time: the same bits.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy, mma_v2

from . import sync, workspace
from .activations import activate
from .flags import HEADER, PATIENCE, announce, constraints, registers, until_there
from .hopper import ALIGNMENT
from .launch import Launcher, Plan
from .problem import KERNEL_DTYPES, Problem, problem_of, refusal, sms
from .weights import Weights

# ruff: noqa: N803, N806  (compile-time constants are written in capitals, as Triton's users do)

MAX_ROWS = 16

MAX_HIDDEN = 20_480
"""Four programs keep this much of h in their registers."""

TILE = gl.constexpr(8)
"""Rows of weight in a tile: the columns of an ``mma``."""

WARPS = gl.constexpr(8)

PIECE = gl.constexpr(128)
"""Columns of a tile that a warp multiplies."""

SHARED_MEMORY = 227 * 1024
"""Bytes that a program may have of an SM's."""


@gluon.constexpr_function
def product(across):
    """(pieces, 16 rows of x, 8 across rows of weight): ``across`` warps share the rows of weight,
    the others the columns, a piece each, of which each has sums of its own."""
    return gl.NVMMADistributedLayout([2, 0], [WARPS.value // across, 1, across], [1, 16, 8])


@gluon.constexpr_function
def whole(across):
    """(pieces, 16, 8 across) with the sums of all pieces of a number in one thread."""
    pieces = WARPS.value // across
    return gl.BlockedLayout([pieces, 1, 1], [1, 4, 8], [1, pieces, across], [2, 1, 0])


@gluon.constexpr_function
def copied(pieces):
    """(pieces, rows, PIECE): who copies what, 512 bytes a warp at once."""
    wide = min(pieces, 2)
    return gl.BlockedLayout([1, 1, 8], [wide, 2 // wide, 16], [1, WARPS.value, 1], [2, 0, 1])


@gluon.constexpr_function
def swizzled():
    """(pieces, rows, PIECE) in shared memory: rows side by side are in different banks."""
    return gl.SwizzledSharedLayout(32, 1, 2, [2, 1, 0])


@gluon.constexpr_function
def pairs():
    """(warps, 16, PIECE / 2) of two numbers each, in the threads that multiply them."""
    return gl.DistributedLinearLayout(
        [[0, 0, 1], [0, 0, 2], [0, 8, 0], [0, 0, 16], [0, 0, 32]],
        [[0, 0, 4], [0, 0, 8], [0, 1, 0], [0, 2, 0], [0, 4, 0]],
        [[1, 0, 0], [2, 0, 0], [4, 0, 0]], [], [WARPS.value, 16, 64],
    )  # fmt: skip


@gluon.constexpr_function
def asking(ROWS, PIECES, HIDDEN, PATIENCE):
    """PTX: a thread's share of h, all of it at once, until all is there.

    Results: for each piece 8 times 16 bytes, of row r and row r + 8 in turn, every 32 columns.
    Operands: 32 addresses, rows, and columns left from there on, of which the first are meant.
    Past an edge nothing is loaded; the -0 there meets weights of 0.
    """
    address, row, left = (32 * PIECES + 32 * i for i in range(3))
    declare = [".reg .pred below, above, lower, upper;"]
    declare.append(f"setp.lt.s32 below, ${row}, {ROWS}; setp.lt.s32 above, ${row}, {ROWS - 8};")
    loads = []
    for i in range(4 * PIECES):
        piece, step = divmod(i, 4)
        ahead = piece * WARPS.value * 128 + step * 32
        loads.append(f"setp.gt.and.s32 lower, ${left}, {ahead}, below;")
        loads.append(f"setp.gt.and.s32 upper, ${left}, {ahead}, above;")
        for half, name in enumerate(("lower", "upper")):
            to = ", ".join(f"${8 * i + 4 * half + j}" for j in range(4))
            place = f"[${address} + {2 * (half * 8 * HIDDEN + ahead)}]"
            loads.append(f"@{name} ld.relaxed.gpu.global.v4.b32 {{{to}}}, {place};")
    return until_there(declare, loads, 32 * PIECES, "0x00010001", "0x80008000", PATIENCE)


@gluon.constexpr_function
def asking_for_sums(SPLIT, EACH, STRIDE, PATIENCE):
    """PTX: EACH sums of a thread, in SPLIT parts of float32, STRIDE numbers apart.

    Operands: EACH addresses, and whether there is such a number.
    """
    address, there = SPLIT * EACH, SPLIT * EACH + EACH
    loads = []
    for i in range(EACH):
        loads.append(f"setp.ne.s32 p, ${there + i}, 0;")
        for part in range(SPLIT):
            place = f"[${address + i} + {4 * part * STRIDE}]"
            loads.append(f"@p ld.relaxed.gpu.global.b32 ${part * EACH + i}, {place};")
    return until_there([], loads, SPLIT * EACH, "0x1", "0x80000000", PATIENCE)


@gluon.jit
def copy(
    to, source, row, row_end, column, column_end, LENGTH: gl.constexpr, ROWS: gl.constexpr,
    PIECES: gl.constexpr,
):  # fmt: skip
    """Ask for a tile of (ROWS, PIECES x PIECE) of a matrix; zeros beyond the ends."""
    L: gl.constexpr = copied(PIECES)
    piece = gl.arange(0, PIECES, gl.SliceLayout(1, gl.SliceLayout(2, L)))[:, None, None]
    tile_row = gl.arange(0, ROWS, gl.SliceLayout(0, gl.SliceLayout(2, L)))[None, :, None]
    lane = gl.arange(0, PIECE, gl.SliceLayout(0, gl.SliceLayout(1, L)))[None, None, :]
    at_row = row + tile_row
    at = column + piece * PIECE + lane
    inside = (at_row < row_end) & (at < column_end)
    async_copy.async_copy_global_to_shared(to, source + at_row * LENGTH + at, mask=inside)


@gluon.jit
def ask_for_down(
    later, slot, ring, down, out, out_end, first, last, HIDDEN: gl.constexpr,
    OUT_STEPS: gl.constexpr, HIDDEN_STEPS: gl.constexpr,
):  # fmt: skip
    """Ask for a tile of down and the one right of it."""
    if later < OUT_STEPS:
        row = out + later // HIDDEN_STEPS * TILE
        at = first + later % HIDDEN_STEPS * (2 * WARPS * PIECE)
        right = at + WARPS * PIECE
        copy(ring.index(2 * slot), down, row, out_end, at, last, HIDDEN, TILE, WARPS)
        copy(ring.index(2 * slot + 1), down, row, out_end, right, last, HIDDEN, TILE, WARPS)


@gluon.jit
def ask(
    step, slot, tiles, xs, ring, x, gate, up, down, row, row_end, out, out_end, first, last,
    ROWS: gl.constexpr, WIDTH: gl.constexpr, HIDDEN: gl.constexpr, STEPS: gl.constexpr,
    OUT_STEPS: gl.constexpr, WIDTH_STEPS: gl.constexpr, HIDDEN_STEPS: gl.constexpr,
    ACROSS: gl.constexpr, WHOLE_X: gl.constexpr,
):  # fmt: skip
    """Ask for the tiles of a step: of gate and of up, and of x unless all of it is there; after all
    of those, of down."""
    PIECES: gl.constexpr = WARPS // ACROSS
    HIGH: gl.constexpr = ACROSS * TILE
    if step < STEPS:
        at = row + step // WIDTH_STEPS * HIGH
        column = step % WIDTH_STEPS * (PIECES * PIECE)
        if not WHOLE_X:
            copy(xs.index(slot), x, 0, ROWS, column, WIDTH, WIDTH, 16, PIECES)
        copy(tiles.index(2 * slot), gate, at, row_end, column, WIDTH, WIDTH, HIGH, PIECES)
        copy(tiles.index(2 * slot + 1), up, at, row_end, column, WIDTH, WIDTH, HIGH, PIECES)
    else:
        ask_for_down(
            step - STEPS, slot, ring, down, out, out_end, first, last, HIDDEN, OUT_STEPS,
            HIDDEN_STEPS,
        )  # fmt: skip


@gluon.jit
def unpack(two, dtype: gl.constexpr, A: gl.constexpr):
    """(warps, 16, PIECE / 2) of two numbers each, as the left operand of an ``mma``."""
    low = two.to(gl.int16).to(dtype, bitcast=True)
    high = (two >> 16).to(gl.int16).to(dtype, bitcast=True)
    numbers = gl.join(low, high).reshape([two.shape[0], two.shape[1], 2 * two.shape[2]])
    return gl.convert_layout(numbers, A)


@gluon.jit
def few_rows_kernel(
    x, gate, up, down, y, work,
    ACTIVATION: gl.constexpr, ROWS: gl.constexpr, WIDTH: gl.constexpr, HIDDEN: gl.constexpr,
    OUT: gl.constexpr, PROGRAMS: gl.constexpr, SPLIT: gl.constexpr, ACROSS: gl.constexpr,
    WHOLE_X: gl.constexpr, BLOCKS: gl.constexpr, OUT_BLOCKS: gl.constexpr,
    WIDTH_STEPS: gl.constexpr, HIDDEN_STEPS: gl.constexpr, PIECES: gl.constexpr,
    BUFFER: gl.constexpr, SHARE: gl.constexpr, OUT_SHARE: gl.constexpr, STAGES: gl.constexpr,
    PATIENCE: gl.constexpr,
):  # fmt: skip
    """One program of PROGRAMS: BLOCKS of 8 ACROSS rows of h in WIDTH_STEPS steps each; then, with
    the others of its SPLIT, OUT_BLOCKS of 8 rows of y, over PIECES of hidden in HIDDEN_STEPS each.
    STAGES steps are in the ring. A buffer for h has BUFFER numbers, of which SHARE or fewer of a
    row are this program's; of a row of y it finishes OUT_SHARE or fewer."""
    M: gl.constexpr = product(ACROSS)
    S: gl.constexpr = whole(ACROSS)
    M2: gl.constexpr = product(1)
    S2: gl.constexpr = whole(1)
    X: gl.constexpr = gl.DotOperandLayout(0, M, 8)
    W: gl.constexpr = gl.DotOperandLayout(1, M, 8)
    H: gl.constexpr = gl.DotOperandLayout(0, M2, 8)
    D: gl.constexpr = gl.DotOperandLayout(1, M2, 8)
    ACROSS_PIECES: gl.constexpr = WARPS // ACROSS
    STEPS: gl.constexpr = BLOCKS * WIDTH_STEPS
    OUT_STEPS: gl.constexpr = OUT_BLOCKS * HIDDEN_STEPS
    GROUPS: gl.constexpr = PROGRAMS // SPLIT
    HIGH: gl.constexpr = ACROSS * TILE
    dtype: gl.constexpr = x.dtype.element_ty
    program = gl.program_id(0)
    group = program // SPLIT
    part = program % SPLIT
    row = program * HIDDEN // PROGRAMS
    row_end = (program + 1) * HIDDEN // PROGRAMS
    out = group * OUT // GROUPS
    out_end = (group + 1) * OUT // GROUPS
    first = HIDDEN // 8 * part // SPLIT * 8
    last = HIDDEN // 8 * (part + 1) // SPLIT * 8
    tiles = gl.allocate_shared_memory(dtype, [2 * STAGES, ACROSS_PIECES, HIGH, PIECE], swizzled())
    ring = tiles._reinterpret(dtype, [2 * STAGES, WARPS, TILE, PIECE], swizzled())
    X_SLOTS: gl.constexpr = WIDTH_STEPS if WHOLE_X else STAGES
    xs = gl.allocate_shared_memory(dtype, [X_SLOTS, ACROSS_PIECES, 16, PIECE], swizzled())

    turn = gl.load(work)
    if WHOLE_X:
        for piece in gl.static_range(WIDTH_STEPS):
            column = piece * (ACROSS_PIECES * PIECE)
            copy(xs.index(piece), x, 0, ROWS, column, WIDTH, WIDTH, 16, ACROSS_PIECES)
        async_copy.commit_group()
    for step in range(STAGES):
        ask(
            step, step, tiles, xs, ring, x, gate, up, down, row, row_end, out, out_end, first, last,
            ROWS, WIDTH, HIDDEN, STEPS, OUT_STEPS, WIDTH_STEPS, HIDDEN_STEPS, ACROSS, WHOLE_X,
        )  # fmt: skip
        async_copy.commit_group()

    h = (work + HEADER).to(gl.pointer_type(gl.int16), bitcast=True)
    x_row = gl.arange(0, 16, gl.SliceLayout(1, gl.SliceLayout(0, S)))[:, None]
    tile_row = gl.arange(0, HIGH, gl.SliceLayout(0, gl.SliceLayout(0, S)))[None, :]
    slot = 0
    step = STAGES
    for block in range(BLOCKS):
        a = gl.zeros([ACROSS_PIECES, 16, HIGH], gl.float32, M)
        b = gl.zeros([ACROSS_PIECES, 16, HIGH], gl.float32, M)
        for k in range(WIDTH_STEPS):
            async_copy.wait_group(STAGES - 1)
            numbers = xs.index(k if WHOLE_X else slot).load(X)
            left = tiles.index(2 * slot).permute((0, 2, 1)).load(W)
            right = tiles.index(2 * slot + 1).permute((0, 2, 1)).load(W)
            if STEPS + OUT_STEPS > STAGES:
                ask(
                    step, slot, tiles, xs, ring, x, gate, up, down, row, row_end, out, out_end,
                    first, last, ROWS, WIDTH, HIDDEN, STEPS, OUT_STEPS, WIDTH_STEPS, HIDDEN_STEPS,
                    ACROSS, WHOLE_X,
                )  # fmt: skip
            async_copy.commit_group()
            a = mma_v2(numbers, left, a)
            b = mma_v2(numbers, right, b)
            step += 1
            slot = gl.where(slot == STAGES - 1, 0, slot + 1)
        left_sum = gl.sum(gl.convert_layout(a, S), 0)
        right_sum = gl.sum(gl.convert_layout(b, S), 0)
        value = (activate(left_sum, ACTIVATION, False, True) * right_sum).to(dtype)
        at_h = row + block * HIGH + tile_row
        to_h = h + turn * BUFFER + x_row * HIDDEN + at_h
        announce(to_h, value, (at_h < row_end) & (x_row < ROWS))

    C: gl.constexpr = gl.BlockedLayout([1], [32], [WARPS], [0])
    clean = row + gl.arange(0, SHARE, C)
    for i in gl.static_range(ROWS):
        other = h + (1 - turn) * BUFFER + i * HIDDEN + clean
        gl.store(other, gl.zeros([SHARE], gl.int16, C), mask=clean < row_end)

    Q: gl.constexpr = pairs()
    warp = gl.arange(0, WARPS, gl.SliceLayout(1, gl.SliceLayout(2, Q)))[:, None, None]
    h_row = gl.arange(0, 16, gl.SliceLayout(0, gl.SliceLayout(2, Q)))[None, :, None]
    pair = gl.arange(0, PIECE // 2, gl.SliceLayout(0, gl.SliceLayout(1, Q)))[None, None, :]
    at_column = first + warp * PIECE + 2 * pair + 0 * h_row
    rows = h_row + 0 * at_column
    got = gl.inline_asm_elementwise(
        asking(ROWS, PIECES, HIDDEN, PATIENCE),
        constraints(32 * PIECES, 32, 64),
        [(h + turn * BUFFER + rows * HIDDEN + at_column).to(gl.int64), rows, last - at_column],
        dtype=registers(PIECES),
        is_pure=False,
        pack=32,
    )

    sums = (h + 2 * BUFFER).to(gl.pointer_type(gl.float32), bitcast=True)
    y_row = gl.arange(0, 16, gl.SliceLayout(1, gl.SliceLayout(0, S2)))[:, None]
    down_row = gl.arange(0, TILE, gl.SliceLayout(0, gl.SliceLayout(0, S2)))[None, :]
    # Not OUT_BLOCKS: of a loop known to run once Triton 3.6 makes what it cannot compile.
    for block in range(gl.cdiv(out_end - out, TILE)):
        c = gl.zeros([WARPS, 16, TILE], gl.float32, M2)
        for later in gl.static_range(HIDDEN_STEPS):
            async_copy.wait_group(STAGES - 1)
            above = ring.index(2 * slot).permute((0, 2, 1)).load(D)
            below = ring.index(2 * slot + 1).permute((0, 2, 1)).load(D)
            if OUT_STEPS > STAGES:
                ask_for_down(
                    block * HIDDEN_STEPS + later + STAGES, slot, ring, down, out, out_end, first,
                    last, HIDDEN, OUT_STEPS, HIDDEN_STEPS,
                )  # fmt: skip
            async_copy.commit_group()
            c = mma_v2(unpack(got[2 * later], dtype, H), above, c)
            if 2 * later + 1 < PIECES:
                c = mma_v2(unpack(got[2 * later + 1], dtype, H), below, c)
            slot = gl.where(slot == STAGES - 1, 0, slot + 1)
        result = gl.sum(gl.convert_layout(c, S2), 0)
        at_y = out + block * TILE + down_row
        inside = (at_y < out_end) & (y_row < ROWS)
        if SPLIT == 1:
            gl.store(y + y_row * OUT + at_y, result.to(dtype), mask=inside)
        else:
            place = sums + ((turn * SPLIT + part) * ROWS + y_row) * OUT + at_y
            announce(place, result, inside)

    if SPLIT > 1:
        Y: gl.constexpr = gl.BlockedLayout([1, 1], [1, 32], [WARPS, 1], [1, 0])
        EACH: gl.constexpr = 16 // WARPS * (OUT_SHARE // 32)
        mine = out + (out_end - out) * part // SPLIT
        mine_end = out + (out_end - out) * (part + 1) // SPLIT
        sum_row = gl.arange(0, 16, gl.SliceLayout(1, Y))[:, None]
        at_sum = mine + gl.arange(0, OUT_SHARE, gl.SliceLayout(0, Y))[None, :]
        there = (sum_row < ROWS) & (at_sum < mine_end)
        place = sums + (turn * SPLIT * ROWS + sum_row) * OUT + at_sum
        parts = gl.inline_asm_elementwise(
            asking_for_sums(SPLIT, EACH, ROWS * OUT, PATIENCE),
            constraints(SPLIT * EACH, EACH, EACH),
            [place.to(gl.int64), there.to(gl.int32)],
            dtype=registers(SPLIT),
            is_pure=False,
            pack=EACH,
        )
        total = gl.zeros([16, OUT_SHARE], gl.float32, Y)
        for i in gl.static_range(SPLIT):
            total += parts[i].to(gl.float32, bitcast=True)
        gl.store(y + sum_row * OUT + at_sum, total.to(dtype), mask=there)
        sum_clean = out + gl.arange(0, SPLIT * OUT_SHARE, C)
        for i in gl.static_range(ROWS):
            other = sums + (((1 - turn) * SPLIT + part) * ROWS + i) * OUT + sum_clean
            none = gl.zeros([SPLIT * OUT_SHARE], gl.float32, C)
            gl.store(other, none, mask=sum_clean < out_end)
    if program == 0:
        sync.barrier()  # one thread turns for all; together they have seen all of h
        gl.store(work, 1 - turn)


def supports(p: Problem) -> bool:
    """Can the kernel do this? Gated, 1 to 16 rows of 16-bit floats, width and hidden multiples of
    8."""
    return (
        p.gated
        and p.dtype in KERNEL_DTYPES
        and 0 < p.rows <= MAX_ROWS
        and min(p.width, p.hidden, p.out) > 0
        and p.width % ALIGNMENT == 0
        and p.hidden % ALIGNMENT == 0
        and p.hidden <= MAX_HIDDEN
        and p.hidden * max(p.width, p.out) < 2**31
    )


@dataclass(frozen=True)
class Config:
    """The most steps in the ring, of 32 KiB each and x; programs that ``split`` hidden among them;
    warps ``across`` the rows of a tile of gate and up, the others along its columns."""

    stages: int
    split: int
    across: int


def few_rows(
    x: torch.Tensor, weights: Weights, activation: str, plan: Plan | None = None
) -> torch.Tensor:
    """``(act(x Wg^T) * (x Wu^T)) Wd^T`` in one launch, on compute capability 9.0.

    Shapes: x (rows, width), y (rows, out), `Weights` of a gated MLP; one dtype, everything
    contiguous and aligned to 16 bytes.

    Raises ValueError for what `supports` refuses and for a plain MLP, WorkspaceExhausted while
    capturing a graph.
    """
    if plan is None:
        plan = make_plan(problem_of(x, weights, activation), x.device)
    y = x.new_empty((x.shape[0], weights.down.shape[0]))
    work = workspace.slot(x.device, plan.ints, plan.use)
    arguments = (x, weights.first, weights.up, weights.down, y, work)
    _launcher(plan, plan.programs, arguments, plan.constants, plan.options)
    return y


_launcher = Launcher(few_rows_kernel)


@functools.lru_cache(maxsize=1024)
def make_plan(p: Problem, device: torch.device) -> Plan:
    """Shares, steps and the ring. Raises ValueError for what `few_rows` refuses."""
    if not supports(p):
        raise refusal(
            f"gated MLP of 1 to {MAX_ROWS} rows of bfloat16 or float16, width and hidden multiples "
            f"of {ALIGNMENT}, hidden up to {MAX_HIDDEN}",
            p,
        )
    rows, width, hidden, out = p.rows, p.width, p.hidden, p.out
    size = config_for(rows, width, hidden)
    split, across, warps = size.split, size.across, WARPS.value
    programs = min(sms(device.index), hidden)
    if split > 1:  # each must finish some row of y: program 0 then has seen all of h, see the top
        programs = min(programs, out) // split * split
        if not programs:
            raise ValueError(
                f"expected out and SMs of {split} or more, got {out}, {sms(device.index)}"
            )
    blocks = math.ceil(math.ceil(hidden / programs) / (across * TILE.value))
    out_rows = math.ceil(out * split / programs)
    out_blocks = math.ceil(out_rows / TILE.value)
    columns = warps * PIECE.value
    width_steps = math.ceil(width * across / columns)
    pieces = math.ceil(math.ceil(hidden / split) / columns)
    hidden_steps = math.ceil(pieces / 2)
    buffer = math.ceil(rows * hidden / 64) * 64  # numbers of 16 bits: 128 bytes
    sums = 2 * split * rows * out if split > 1 else 0
    whole_x = across == 1
    x_step = 2 * 16 * columns // across
    step = 2 * 2 * TILE.value * columns + (0 if whole_x else x_step)
    room = SHARED_MEMORY - (width_steps * x_step if whole_x else 0) - 8 * columns - 1024
    stages = min(size.stages, room // step, blocks * width_steps + out_blocks * hidden_steps)
    share = max(32 * warps, triton.next_power_of_2(math.ceil(hidden / programs)))
    out_share = max(32, triton.next_power_of_2(math.ceil(out_rows / split)))
    constants = (
        *(p.activation, rows, width, hidden, out, programs, split, across, whole_x, blocks),
        *(out_blocks, width_steps, hidden_steps, pieces, buffer, share, out_share, stages),
        PATIENCE,
    )
    options = {"num_warps": warps, "launch_cooperative_grid": True}
    ints = HEADER.value + buffer + sums
    return Plan(programs, constants, options, ints, ("few_rows", rows, hidden, split, out))


def config_for(rows: int, width: int, hidden: int) -> Config:
    """The quickest on an H200, of those tried.

    More programs share hidden, the more of h each would have to keep and fetch. A deep ring pays
    where all is short; else the first look at h waits for what was asked for before it. With one
    row it does so everywhere.
    """
    split = 1
    while split < 4 and (hidden > split * 5_120 or rows * hidden > split * 40_960):
        split *= 2
    is_short = rows > 1 and width * hidden <= 4_500_000
    stages = 6 if is_short else 4 if 1 < rows <= 8 else 3
    return Config(stages, split, 1 if width <= 2_048 else 8 if hidden > 8_192 else 4)
