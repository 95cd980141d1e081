"""Decode of one row on Hopper: one launch that reads the weights once, without a pause.

One row of x does little with each weight, so the time is that of the weights' way from memory.
What eager PyTorch loses is the start and the end of each of its kernels, when memory idles. Here:

* **One program an SM**, and one list of steps for it, known beforehand: its rows of gate and up,
  then its rows of down. All pass through one ring in shared memory by ``cp.async``, down's first
  right behind up's last, so that memory does not idle while programs wait for h.
* **Loads answer in the order of asking.** So x is asked for before the first weights: after them
  it would come last, and nothing can be multiplied until then.
* **h is its own flag**, see `flags`: no counters, fences or atomics between the two halves.
* **A thread reads what it brought.** It copies the weights that it will multiply, and asks for just
  the numbers of h that these meet, which it keeps in registers.
* **Program 0 turns the buffers** when it has seen all of h: by then every program has read whose
  turn it is, since each has written some number of h into the buffer that it named.

A program computes its numbers of h and of y alone, each the sum of the same products in the same
order every time: the same bits.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy

from . import sync
from .activations import activate
from .flags import HEADER, PATIENCE, announce, constraints, launch, registers, until_there
from .hopper import ALIGNMENT, SHARED_MEMORY
from .launch import Launcher, Plan
from .problem import KERNEL_DTYPES, Problem, problem_of, refusal, sms
from .weights import Weights

# ruff: noqa: N803, N806  (compile-time constants are written in capitals, as Triton's users do)

LINE = gl.constexpr(256)
"""Numbers that a warp copies at once: 16 bytes, 8 numbers, a lane."""

CHUNKS = gl.constexpr(4)
"""Lines of gate, and as many of up, that a warp copies in a step; or of 2 x 4 rows of down."""

MAX_LENGTH = 32_768
"""Numbers in a row of any weight: x must fit beside the ring, and h into the registers."""


@gluon.constexpr_function
def lines(WARPS):
    """(chunks, warps, LINE): 8 numbers a thread."""
    return gl.BlockedLayout([1, 1, 8], [1, 1, 32], [1, WARPS, 1], [2, 1, 0])


@gluon.constexpr_function
def x_lines(WARPS):
    """(chunks, 1, LINE), copied by four warps."""
    return gl.BlockedLayout([1, 1, 8], [1, 1, 32], [4, WARPS // 4, 1], [2, 1, 0])


@gluon.constexpr_function
def sums(WARPS):
    """(chunks, warps, lanes, 8) in the same threads as `lines`, to add up the 8."""
    return gl.BlockedLayout([1, 1, 1, 8], [1, 1, 32, 1], [1, WARPS, 1, 1], [3, 2, 1, 0])


@gluon.constexpr_function
def pairs(WARPS):
    """(warps, LINE / 2) of two numbers each, in the same threads as `lines`."""
    return gl.BlockedLayout([1, 4], [1, 32], [WARPS, 1], [1, 0])


@gluon.constexpr_function
def asking(STEPS, WARPS, HIDDEN, PATIENCE):
    """PTX: 16 bytes of h for each step, all at once, until all are there.

    Results: 4 registers for each step. Operands: 4 addresses and 4 columns, of which the first is
    the thread's in step 0. Past the end nothing is loaded; the -0 there meets weights of 0.
    """
    address, column = 4 * STEPS, 4 * STEPS + 4
    loads = []
    for step in range(STEPS):
        ahead = step * WARPS * 256
        to = ", ".join(f"${4 * step + i}" for i in range(4))
        loads.append(f"setp.lt.s32 p, ${column}, {HIDDEN - ahead};")
        loads.append(f"@p ld.relaxed.gpu.global.v4.b32 {{{to}}}, [${address} + {2 * ahead}];")
    return until_there([], loads, 4 * STEPS, "0x00010001", "0x80008000", PATIENCE)


@gluon.jit
def ask_for_down(
    later, slot, ring, down, out, out_end, HIDDEN: gl.constexpr, OUT_STEPS: gl.constexpr,
    HIDDEN_STEPS: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    """Ask for 2 CHUNKS rows of down, a line for each warp. Beyond an edge nothing is read and zeros
    come; beyond the last step nothing at all."""
    L: gl.constexpr = lines(WARPS)
    chunk = gl.arange(0, CHUNKS, gl.SliceLayout(1, gl.SliceLayout(2, L)))[:, None, None]
    warp = gl.arange(0, WARPS, gl.SliceLayout(0, gl.SliceLayout(2, L)))[None, :, None]
    lane = gl.arange(0, LINE, gl.SliceLayout(0, gl.SliceLayout(1, L)))[None, None, :]
    if later < OUT_STEPS:
        row = out + later // HIDDEN_STEPS * (2 * CHUNKS) + chunk
        column = later % HIDDEN_STEPS * (WARPS * LINE) + warp * LINE + lane
        at = down + (row * HIDDEN + column)
        inside = (row < out_end) & (column < HIDDEN)
        async_copy.async_copy_global_to_shared(ring.index(2 * slot), at, mask=inside)
        inside = (row + CHUNKS < out_end) & (column < HIDDEN)
        below = at + CHUNKS * HIDDEN
        async_copy.async_copy_global_to_shared(ring.index(2 * slot + 1), below, mask=inside)


@gluon.jit
def ask(
    step, slot, ring, gate, up, down, row, row_end, out, out_end,
    WIDTH: gl.constexpr, HIDDEN: gl.constexpr, STEPS: gl.constexpr, OUT_STEPS: gl.constexpr,
    WIDTH_STEPS: gl.constexpr, HIDDEN_STEPS: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    """Ask for the weights of a step: of gate and up a row for each warp, CHUNKS lines of it; after
    all of those, of down."""
    L: gl.constexpr = lines(WARPS)
    chunk = gl.arange(0, CHUNKS, gl.SliceLayout(1, gl.SliceLayout(2, L)))[:, None, None]
    warp = gl.arange(0, WARPS, gl.SliceLayout(0, gl.SliceLayout(2, L)))[None, :, None]
    lane = gl.arange(0, LINE, gl.SliceLayout(0, gl.SliceLayout(1, L)))[None, None, :]
    if step < STEPS:
        at_row = row + step // WIDTH_STEPS * WARPS + warp
        column = step % WIDTH_STEPS * (CHUNKS * LINE) + chunk * LINE + lane
        at = at_row * WIDTH + column
        inside = (at_row < row_end) & (column < WIDTH)
        async_copy.async_copy_global_to_shared(ring.index(2 * slot), gate + at, mask=inside)
        async_copy.async_copy_global_to_shared(ring.index(2 * slot + 1), up + at, mask=inside)
    else:
        ask_for_down(
            step - STEPS, slot, ring, down, out, out_end, HIDDEN, OUT_STEPS, HIDDEN_STEPS, WARPS
        )


@gluon.jit
def products(weights, numbers, WARPS: gl.constexpr):
    """(chunks, warps, lanes): sums of each thread's 8 products, in float32.

    ``weights`` (chunks, warps, LINE), ``numbers`` (chunks or 1, warps or 1, LINE) in float32.
    """
    each = (weights.to(gl.float32) * numbers).reshape([CHUNKS, WARPS, 32, 8])
    return gl.sum(gl.convert_layout(each, sums(WARPS), assert_trivial=True), 3)


@gluon.jit
def unpack(two, dtype: gl.constexpr, WARPS: gl.constexpr):
    """(warps, LINE / 2) of two numbers each, to (1, warps, LINE) in float32."""
    low = two.to(gl.int16).to(dtype, bitcast=True).to(gl.float32)
    high = (two >> 16).to(gl.int16).to(dtype, bitcast=True).to(gl.float32)
    line = gl.join(low, high).reshape([1, WARPS, LINE])
    return gl.convert_layout(line, lines(WARPS), assert_trivial=True)


@gluon.jit
def one_row_kernel(
    x, gate, up, down, y, work,
    ACTIVATION: gl.constexpr, WIDTH: gl.constexpr, HIDDEN: gl.constexpr, OUT: gl.constexpr,
    PROGRAMS: gl.constexpr, BLOCKS: gl.constexpr, OUT_BLOCKS: gl.constexpr,
    WIDTH_STEPS: gl.constexpr, HIDDEN_STEPS: gl.constexpr, BUFFER: gl.constexpr,
    SHARE: gl.constexpr, WARPS: gl.constexpr, STAGES: gl.constexpr, PATIENCE: gl.constexpr,
):  # fmt: skip
    """One program of PROGRAMS: BLOCKS of a row of h for each warp, in WIDTH_STEPS steps each, then
    OUT_BLOCKS of 2 CHUNKS rows of y in HIDDEN_STEPS each. STAGES steps are in the ring. A buffer
    for h has BUFFER numbers, of which SHARE or fewer are this program's."""
    L: gl.constexpr = lines(WARPS)
    PARTIAL: gl.constexpr = gl.SliceLayout(3, sums(WARPS))
    STEPS: gl.constexpr = BLOCKS * WIDTH_STEPS
    OUT_STEPS: gl.constexpr = OUT_BLOCKS * HIDDEN_STEPS
    dtype: gl.constexpr = x.dtype.element_ty
    program = gl.program_id(0)
    row = program * HIDDEN // PROGRAMS  # contiguous shares, equal but for one row
    row_end = (program + 1) * HIDDEN // PROGRAMS
    out = program * OUT // PROGRAMS
    out_end = (program + 1) * OUT // PROGRAMS
    flat: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [2, 1, 0])
    ring = gl.allocate_shared_memory(dtype, [2 * STAGES, CHUNKS, WARPS, LINE], flat)
    xs = gl.allocate_shared_memory(dtype, [WIDTH_STEPS, CHUNKS, 1, LINE], flat)

    turn = gl.load(work)
    X: gl.constexpr = x_lines(WARPS)
    chunk = gl.arange(0, CHUNKS, gl.SliceLayout(1, gl.SliceLayout(2, X)))[:, None, None]
    lane = gl.arange(0, LINE, gl.SliceLayout(0, gl.SliceLayout(1, X)))[None, None, :]
    for piece in gl.static_range(WIDTH_STEPS):
        x_column = (piece * CHUNKS + chunk) * LINE + lane
        to = xs.index(piece)
        async_copy.async_copy_global_to_shared(to, x + x_column, mask=x_column < WIDTH)
    async_copy.commit_group()
    for step in range(STAGES):
        ask(
            step, step, ring, gate, up, down, row, row_end, out, out_end, WIDTH, HIDDEN, STEPS,
            OUT_STEPS, WIDTH_STEPS, HIDDEN_STEPS, WARPS,
        )  # fmt: skip
        async_copy.commit_group()  # an empty one too: as many groups as steps

    h = (work + HEADER).to(gl.pointer_type(dtype), bitcast=True)
    slot = 0
    step = STAGES
    for block in range(BLOCKS):
        a = gl.zeros([CHUNKS, WARPS, 32], gl.float32, PARTIAL)
        b = gl.zeros([CHUNKS, WARPS, 32], gl.float32, PARTIAL)
        for k in range(WIDTH_STEPS):
            async_copy.wait_group(STAGES - 1)
            left = ring.index(2 * slot).load(L)
            right = ring.index(2 * slot + 1).load(L)
            if STEPS + OUT_STEPS > STAGES:
                ask(
                    step, slot, ring, gate, up, down, row, row_end, out, out_end, WIDTH, HIDDEN,
                    STEPS, OUT_STEPS, WIDTH_STEPS, HIDDEN_STEPS, WARPS,
                )  # fmt: skip
            async_copy.commit_group()
            numbers = xs.index(k).load(L).to(gl.float32)
            a += products(left, numbers, WARPS)
            b += products(right, numbers, WARPS)
            step += 1
            slot = gl.where(slot == STAGES - 1, 0, slot + 1)
        left_sum = gl.sum(gl.sum(a, 0), 1)  # within each warp
        right_sum = gl.sum(gl.sum(b, 0), 1)
        value = activate(left_sum, ACTIVATION, False, True) * right_sum
        at_h = row + block * WARPS + gl.arange(0, WARPS, value.type.layout)
        announce(h + turn * BUFFER + at_h, value.to(dtype), at_h < row_end)

    C: gl.constexpr = gl.BlockedLayout([1], [32], [WARPS], [0])
    clean = row + gl.arange(0, SHARE, C)
    other = h + (1 - turn) * BUFFER + clean
    gl.store(other, gl.zeros([SHARE], dtype, C), mask=clean < row_end)

    P: gl.constexpr = pairs(WARPS)
    warp = gl.arange(0, WARPS, gl.SliceLayout(1, P))[:, None]
    column = warp * LINE + 2 * gl.arange(0, LINE // 2, gl.SliceLayout(0, P))[None, :]
    got = gl.inline_asm_elementwise(
        asking(HIDDEN_STEPS, WARPS, HIDDEN, PATIENCE),
        constraints(4 * HIDDEN_STEPS, 4, 4),
        [(h + turn * BUFFER + column).to(gl.int64), column],
        dtype=registers(HIDDEN_STEPS),
        is_pure=False,
        pack=4,
    )

    # Not OUT_BLOCKS: of a loop known to run once Triton 3.6 makes what it cannot compile.
    for block in range(gl.cdiv(out_end - out, 2 * CHUNKS)):
        a = gl.zeros([CHUNKS, WARPS, 32], gl.float32, PARTIAL)
        b = gl.zeros([CHUNKS, WARPS, 32], gl.float32, PARTIAL)
        for later in gl.static_range(HIDDEN_STEPS):
            async_copy.wait_group(STAGES - 1)
            left = ring.index(2 * slot).load(L)
            right = ring.index(2 * slot + 1).load(L)
            if OUT_STEPS > STAGES:
                ask_for_down(
                    block * HIDDEN_STEPS + later + STAGES, slot, ring, down, out, out_end, HIDDEN,
                    OUT_STEPS, HIDDEN_STEPS, WARPS,
                )  # fmt: skip
            async_copy.commit_group()
            numbers = unpack(got[later], dtype, WARPS)
            a += products(left, numbers, WARPS)
            b += products(right, numbers, WARPS)
            slot = gl.where(slot == STAGES - 1, 0, slot + 1)
        both = gl.sum(gl.sum(gl.join(a, b), 2), 1)  # at once: one way through shared memory
        first, second = gl.split(both)
        at_y = out + block * (2 * CHUNKS) + gl.arange(0, CHUNKS, first.type.layout)
        gl.store(y + at_y, first.to(dtype), mask=at_y < out_end)
        gl.store(y + at_y + CHUNKS, second.to(dtype), mask=at_y + CHUNKS < out_end)
    if program == 0:
        sync.barrier()  # one thread turns for all, and each has seen its own part of h
        gl.store(work, 1 - turn)


def supports(p: Problem) -> bool:
    """Can the kernel do this? Gated, one row of 16-bit floats, width and hidden multiples of 8."""
    return (
        p.gated
        and p.dtype in KERNEL_DTYPES
        and p.rows == 1
        and min(p.width, p.hidden, p.out) > 0
        and p.width % ALIGNMENT == 0
        and p.hidden % ALIGNMENT == 0
        and max(p.width, p.hidden) <= MAX_LENGTH
        and p.hidden * max(p.width, p.out) < 2**31
    )


@dataclass(frozen=True)
class Config:
    """``warps`` of a program, and the most steps in its ring, of ``warps`` x 4 KiB each."""

    warps: int
    stages: int


def one_row(
    x: torch.Tensor, weights: Weights, activation: str, plan: Plan | None = None
) -> torch.Tensor:
    """``(act(x Wg^T) * (x Wu^T)) Wd^T`` of one row in one launch, on compute capability 9.0.

    Shapes: x (1, width), y (1, out), `Weights` of a gated MLP; one dtype, everything contiguous
    and aligned to 16 bytes.

    Raises ValueError for what `supports` refuses and for a plain MLP, WorkspaceExhausted while
    capturing a graph.
    """
    if plan is None:
        plan = make_plan(problem_of(x, weights, activation), x.device)
    return launch(_launcher, plan, x, weights)


_launcher = Launcher(one_row_kernel)


@functools.lru_cache(maxsize=1024)
def make_plan(p: Problem, device: torch.device, config: Config | None = None) -> Plan:
    """Shares, steps and the ring. Raises ValueError for what `one_row` refuses."""
    if not supports(p):
        raise refusal(
            f"gated MLP of 1 row of bfloat16 or float16, width and hidden multiples of {ALIGNMENT} "
            f"up to {MAX_LENGTH}",
            p,
        )
    width, hidden, out = p.width, p.hidden, p.out
    size = config or config_for(width, hidden)
    warps, chunks, line = size.warps, CHUNKS.value, LINE.value
    programs = min(sms(device.index), hidden)
    blocks = math.ceil(math.ceil(hidden / programs) / warps)
    out_blocks = math.ceil(math.ceil(out / programs) / (2 * chunks))
    width_steps = math.ceil(width / (chunks * line))
    hidden_steps = math.ceil(hidden / (warps * line))
    buffer = math.ceil(hidden / 64) * 64  # numbers of 16 bits: 128 bytes
    step_bytes = 2 * chunks * warps * line * 2
    room = SHARED_MEMORY - 2 * width_steps * chunks * line - 1024  # of the last sum
    stages = min(size.stages, room // step_bytes, blocks * width_steps + out_blocks * hidden_steps)
    share = max(32 * warps, triton.next_power_of_2(math.ceil(hidden / programs)))
    constants = (
        *(p.activation, width, hidden, out, programs, blocks, out_blocks, width_steps),
        *(hidden_steps, buffer, share, warps, stages, PATIENCE),
    )
    options = {"num_warps": warps, "launch_cooperative_grid": True}
    return Plan(programs, constants, options, HEADER.value + buffer, ("one_row", 1, hidden))


def config_for(width: int, hidden: int) -> Config:
    """The quickest on an H200, of those tried. Where all is short, nothing is gained by a shallow
    ring; else the first look at h waits for what was asked for before it."""
    if width * hidden <= 4_500_000:
        return Config(8, 6)
    return Config(4, 4) if hidden <= 8192 else Config(8, 5)
