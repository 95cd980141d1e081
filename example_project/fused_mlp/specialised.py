"""Many rows, gated, on Hopper: one launch in which each warp has one job, written in Gluon.

As many programs as the GPU has SMs draw tickets: first for tiles of ``h = act(x Wg^T) * (x Wu^T)``,
then for tiles of ``y = h Wd^T``. A counter for each row block says when its h is complete (see
`sync`), and the first row blocks are complete long before the last tile of h is begun, so hardly
anybody waits. h goes through L2, and no launch lies between.

In plain Triton all warps load, multiply, activate and store together, so that the tensor cores wait
at each end of a tile. Here, of the nine warps of a program,

* one **producer** draws tickets, waits for h where it must, and loads operands by TMA into a ring
  of ``STAGES`` buffers, running ahead into the next tile while the last is being finished;
* eight **consumers**, two groups of four with 64 rows of the tile each (sums for more do not fit
  the registers), multiply what has arrived and store the result. While one group is in its
  epilogue, the other multiplies.

Each buffer has two barriers in shared memory: ``full``, at which TMA counts the bytes that have
arrived, and ``empty``, at which both groups say that they have read it. Tickets travel with the
data: the producer leaves each in a mailbox before the first buffer of its tile is full.

Gate and up lie in one buffer, gate above up, so one ``wgmma`` of 256 columns makes both: the left
half of the sums is the gate's, the right half the up's, and both halves of a pair are in one
thread. Tiles of y have 256 columns as well. Where the last of them would leave most SMs idle (192
tiles for 132 SMs), those beyond the last full wave are cut into two of 128 columns.
"""

from __future__ import annotations

import functools
import math

import torch
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
from .hopper import ALIGNMENT, claim
from .launch import Launcher, Plan, kind_of
from .problem import KERNEL_DTYPES, Problem, problem_of, refusal, sms
from .sync import COUNTERS, LEFT
from .tensor_maps import Tiles
from .weights import Weights

# ruff: noqa: N803, N806  (compile-time constants are written in capitals, as Triton's users do)

ROWS, COLUMNS, DEPTH = 128, 128, 64
"""A tile's rows; columns of gate and of up, and half of those of a tile of y; numbers of a step
along K."""

STAGES = 4
GROUP = 16
"""Row blocks worked on together, so that tiles running at one time share operands in L2."""

CONSUMER_REGISTERS, PRODUCER_REGISTERS = 240, 24
"""Of a thread."""

MAILBOX = 8
"""More tickets than the ring has buffers: none is overwritten before it was read."""


@gluon.jit
def place(tile, row_blocks, column_blocks, GROUP: gl.constexpr):
    """Row block and column block of a tile: groups of row blocks, within them column by column."""
    per_group = GROUP * column_blocks
    first = tile // per_group * GROUP
    rows_here = gl.minimum(row_blocks - first, GROUP)
    within = tile % per_group
    return first + within % rows_here, within // rows_here


@gluon.jit
def post(mailbox, number, ticket):
    """Leave ticket ``number`` for the consumers."""
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [1], [0])
    mailbox.index(number % mailbox.shape[0]).store(gl.full([1], ticket, gl.int32, layout))


@gluon.jit
def collect(mailbox, number, full, step, STAGES: gl.constexpr):
    """Wait for the first buffer of ticket ``number``, then read the ticket."""
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    mbarrier.wait(full.index(step % STAGES), (step // STAGES) & 1)
    return gl.sum(mailbox.index(number % mailbox.shape[0]).load(layout), 0)


@gluon.jit
def load_steps(
    left, right, row, column, steps, step, a, b, full, empty,
    ROWS: gl.constexpr, COLUMNS: gl.constexpr, DEPTH: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """Load a tile's operands, ``steps`` buffers of them; the number of the next buffer."""
    for k in range(steps):
        i = claim(empty, full, step, (ROWS + COLUMNS) * DEPTH * 2, STAGES)
        tma.async_copy_global_to_shared(left, [row, k * DEPTH], full.index(i), a.index(i))
        target = b.index(i).slice(0, COLUMNS)
        tma.async_copy_global_to_shared(right, [column, k * DEPTH], full.index(i), target)
        step += 1
    return step


@gluon.jit
def produce(
    x, gate, up, h, down, down_tail, slot, mailbox, a, b, full, empty,
    row_blocks, hidden_blocks, out_blocks, width_steps, hidden_steps, whole_tiles, programs,
    ROWS: gl.constexpr, COLUMNS: gl.constexpr, DEPTH: gl.constexpr, STAGES: gl.constexpr,
    GROUP: gl.constexpr,
):  # fmt: skip
    """The producer: draw tickets and load what they need."""
    hidden_tiles = row_blocks * hidden_blocks
    tickets = hidden_tiles + 2 * row_blocks * out_blocks - whole_tiles
    step = 0
    number = 0
    ticket = sync.take_ticket(slot)
    while ticket < tickets:
        post(mailbox, number, ticket)
        if ticket < hidden_tiles:
            row_block, column_block = place(ticket, row_blocks, hidden_blocks, GROUP)
            row = row_block * ROWS
            column = column_block * COLUMNS
            for k in range(width_steps):
                i = claim(empty, full, step, (ROWS + 2 * COLUMNS) * DEPTH * 2, STAGES)
                at = k * DEPTH
                above = b.index(i).slice(0, COLUMNS)
                below = b.index(i).slice(COLUMNS, COLUMNS)
                tma.async_copy_global_to_shared(x, [row, at], full.index(i), a.index(i))
                tma.async_copy_global_to_shared(gate, [column, at], full.index(i), above)
                tma.async_copy_global_to_shared(up, [column, at], full.index(i), below)
                step += 1
        else:
            tile = ticket - hidden_tiles
            half = gl.maximum(tile - whole_tiles, 0)  # of which the lowest bit counts
            is_half = tile >= whole_tiles
            tile = gl.where(is_half, whole_tiles + half // 2, tile)
            row_block, column_block = place(tile, row_blocks, out_blocks, GROUP)
            row = row_block * ROWS
            column = column_block * (2 * COLUMNS) + (half % 2) * COLUMNS
            # each tile of h is published by both groups of consumers
            sync.wait_for(slot + COUNTERS + row_block, 2 * hidden_blocks)
            if is_half:
                step = load_steps(
                    h, down_tail, row, column, hidden_steps, step, a, b, full, empty,
                    ROWS, COLUMNS, DEPTH, STAGES,
                )  # fmt: skip
            else:
                step = load_steps(
                    h, down, row, column, hidden_steps, step, a, b, full, empty,
                    ROWS, 2 * COLUMNS, DEPTH, STAGES,
                )  # fmt: skip
        number += 1
        ticket = sync.take_ticket(slot)
    post(mailbox, number, tickets)  # there is no such ticket: the consumers stop
    buffer = step % STAGES
    mbarrier.wait(empty.index(buffer), ((step // STAGES) & 1) ^ 1)
    mbarrier.arrive(full.index(buffer), count=1)
    # Only producers read counters, and this one is done. Whatever consumers add to them was awaited
    # by the producer of some tile of y, so nobody will: the last one out leaves them zeroed.
    left = gl.atomic_add(slot + LEFT, 1, sem="acq_rel", scope="gpu")
    if left == programs - 1:
        for i in range(row_blocks + COUNTERS):
            gl.store(slot + i, 0)


@gluon.jit
def multiply(
    a, b, full, empty, step, steps,
    FIRST: gl.constexpr, HEIGHT: gl.constexpr, COLUMNS: gl.constexpr, STAGES: gl.constexpr,
    ORDER: gl.constexpr,
):  # fmt: skip
    """Rows FIRST to FIRST + HEIGHT of a tile, in float32, and the number of the next buffer.

    One product is always under way while the next buffer is awaited: a buffer is given back one
    step after its product was started.
    """
    warps: gl.constexpr = [gl.num_warps(), 1]
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], warps, [16, COLUMNS, 16])
    acc = gl.zeros([HEIGHT, COLUMNS], gl.float32, layout)
    for k in range(steps):
        i = step % STAGES
        mbarrier.wait(full.index(i), (step // STAGES) & 1)
        left = a.index(i).slice(FIRST, HEIGHT)
        right = b.index(i).slice(0, COLUMNS, dim=ORDER[1]).permute(ORDER)
        acc = warpgroup_mma(left, right, acc, is_async=True)
        acc = warpgroup_mma_wait(1, deps=(acc,))
        mbarrier.arrive(empty.index((step + STAGES - 1) % STAGES), count=1, pred=k > 0)
        step += 1
    acc = warpgroup_mma_wait(0, deps=(acc,))
    mbarrier.arrive(empty.index((step + STAGES - 1) % STAGES), count=1)
    return acc, step


@gluon.jit
def halves(acc, HEIGHT: gl.constexpr, WIDTH: gl.constexpr):
    """The left and the right half of the columns; each thread has both numbers of each pair."""
    left, right = acc.reshape([HEIGHT, 2, WIDTH]).permute(0, 2, 1).split()
    return left, right


@gluon.jit
def store_tile(target, tile, row, column, rows, columns):
    """Store a tile, 16 bytes a thread, as far as it lies inside a (rows, columns) tensor."""
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [2, 16], [4, 1], [1, 0])
    tile = gl.convert_layout(tile.to(target.dtype.element_ty), layout)
    at_row = row + gl.arange(0, tile.shape[0], gl.SliceLayout(1, layout))[:, None]
    at_column = column + gl.arange(0, tile.shape[1], gl.SliceLayout(0, layout))[None, :]
    inside = (at_row < rows) & (at_column < columns)
    gl.store(target + at_row.to(gl.int64) * columns + at_column, tile, mask=inside)


@gluon.jit
def consume(
    h, keep_gate, keep_up, y, slot, mailbox, a, b, full, empty, rows, hidden, out,
    row_blocks, hidden_blocks, out_blocks, width_steps, hidden_steps, whole_tiles,
    FIRST: gl.constexpr, ACTIVATION: gl.constexpr, ROWS: gl.constexpr,
    COLUMNS: gl.constexpr, STAGES: gl.constexpr, GROUP: gl.constexpr,
):  # fmt: skip
    """A group of consumers: multiply, activate, store half of each tile's rows, from FIRST on."""
    PRECISE: gl.constexpr = y.dtype.element_ty != gl.bfloat16  # see `activations`
    HALF: gl.constexpr = ROWS // 2
    hidden_tiles = row_blocks * hidden_blocks
    tickets = hidden_tiles + 2 * row_blocks * out_blocks - whole_tiles
    row_of_h = hidden // 8 * 8  # hidden, and the compiler sees that 8 divides it
    step = 0
    number = 0
    ticket = collect(mailbox, number, full, step, STAGES)
    while ticket < tickets:
        if ticket < hidden_tiles + whole_tiles:
            of_h = ticket < hidden_tiles
            steps = gl.where(of_h, width_steps, hidden_steps)
            acc, step = multiply(
                a, b, full, empty, step, steps, FIRST, HALF, 2 * COLUMNS, STAGES, (1, 0)
            )
            left, right = halves(acc, HALF, COLUMNS)
            if of_h:
                row_block, column_block = place(ticket, row_blocks, hidden_blocks, GROUP)
                row = row_block * ROWS + FIRST
                column = column_block * COLUMNS
                activated = activate(left, ACTIVATION, False, PRECISE) * right
                store_tile(h, activated, row, column, rows, row_of_h)
                sync.publish(slot + COUNTERS + row_block)
                if keep_gate is not None:  # not before: publishing waits for all stores so far
                    store_tile(keep_gate, left, row, column, rows, row_of_h)
                    store_tile(keep_up, right, row, column, rows, row_of_h)
            else:
                row_block, column_block = place(
                    ticket - hidden_tiles, row_blocks, out_blocks, GROUP
                )
                row = row_block * ROWS + FIRST
                column = column_block * (2 * COLUMNS)
                store_tile(y, left, row, column, rows, out)
                store_tile(y, right, row, column + COLUMNS, rows, out)
        else:
            half = ticket - hidden_tiles - whole_tiles
            row_block, column_block = place(whole_tiles + half // 2, row_blocks, out_blocks, GROUP)
            tail, step = multiply(
                a, b, full, empty, step, hidden_steps, FIRST, HALF, COLUMNS, STAGES, (1, 0)
            )
            row = row_block * ROWS + FIRST
            column = column_block * (2 * COLUMNS) + (half % 2) * COLUMNS
            store_tile(y, tail, row, column, rows, out)
        number += 1
        ticket = collect(mailbox, number, full, step, STAGES)


@gluon.jit
def specialised_kernel(
    x, gate, up, h_tiles, down, down_tail, h, keep_gate, keep_up, y, slot,
    rows, width, hidden, out, whole_tiles, programs,
    ACTIVATION: gl.constexpr, ROWS: gl.constexpr, COLUMNS: gl.constexpr, DEPTH: gl.constexpr,
    STAGES: gl.constexpr, GROUP: gl.constexpr, SLOTS: gl.constexpr,
    CONSUMER_REGISTERS: gl.constexpr, PRODUCER_REGISTERS: gl.constexpr,
):  # fmt: skip
    """Set up the ring, the barriers and the mailbox, and split the warps."""
    row_blocks = gl.cdiv(rows, ROWS)
    hidden_blocks = gl.cdiv(hidden, COLUMNS)
    out_blocks = gl.cdiv(out, 2 * COLUMNS)
    width_steps = gl.cdiv(width, DEPTH)
    hidden_steps = gl.cdiv(hidden, DEPTH)
    a = gl.allocate_shared_memory(x.dtype, [STAGES, ROWS, DEPTH], x.layout)
    b = gl.allocate_shared_memory(x.dtype, [STAGES, 2 * COLUMNS, DEPTH], down.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    mailbox = gl.allocate_shared_memory(gl.int32, [SLOTS, 1], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=2)
    gl.warp_specialize(
        [
            (consume, (
                h, keep_gate, keep_up, y, slot, mailbox, a, b, full, empty, rows, hidden, out,
                row_blocks, hidden_blocks, out_blocks, width_steps, hidden_steps, whole_tiles,
                0, ACTIVATION, ROWS, COLUMNS, STAGES, GROUP,
            )),
            (consume, (
                h, keep_gate, keep_up, y, slot, mailbox, a, b, full, empty, rows, hidden, out,
                row_blocks, hidden_blocks, out_blocks, width_steps, hidden_steps, whole_tiles,
                ROWS // 2, ACTIVATION, ROWS, COLUMNS, STAGES, GROUP,
            )),
            (produce, (
                x, gate, up, h_tiles, down, down_tail, slot, mailbox, a, b, full, empty,
                row_blocks, hidden_blocks, out_blocks, width_steps, hidden_steps, whole_tiles,
                programs, ROWS, COLUMNS, DEPTH, STAGES, GROUP,
            )),
        ],
        [4, 1],
        [CONSUMER_REGISTERS, PRODUCER_REGISTERS],
    )  # fmt: skip


def supports(p: Problem) -> bool:
    """Can the kernel do this? Gated, 16-bit floats, rows of whole 16-byte pieces, as TMA wants."""
    return (
        p.gated
        and p.dtype in KERNEL_DTYPES
        and min(p.rows, p.width, p.hidden, p.out) > 0
        and max(p.rows, p.width, p.hidden, p.out) < 2**30
        and p.width % ALIGNMENT == 0
        and p.hidden % ALIGNMENT == 0
    )


def specialised(
    x: torch.Tensor,
    weights: Weights,
    activation: str,
    plan: Plan | None = None,
    keep: tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None = None,
) -> torch.Tensor:
    """A gated MLP in one launch, on compute capability 9.0.

    Shapes: x (rows, width), y (rows, out), the weights as `Weights` has them; one dtype, everything
    contiguous and aligned to 16 bytes. ``keep``: three (rows, hidden) tensors that receive
    ``x Wg^T``, ``x Wu^T`` and h.

    Raises ValueError for what `supports` refuses, WorkspaceExhausted while capturing a graph.
    """
    if plan is None:
        plan = make_plan(problem_of(x, weights, activation, keep is not None), x.device)
    gate, up, down, *_ = weights
    rows, width = x.shape
    out, hidden = down.shape
    keep_gate, keep_up, h = (None, None, None) if keep is None else keep
    h = x.new_empty((rows, hidden)) if h is None else h
    y = x.new_empty((rows, out))
    slot = workspace.slot(x.device, plan.ints)
    arguments = (
        Tiles(x, rows, width, ROWS, DEPTH),
        Tiles(gate, hidden, width, COLUMNS, DEPTH),
        Tiles(up, hidden, width, COLUMNS, DEPTH),
        Tiles(h, rows, hidden, ROWS, DEPTH),
        Tiles(down, out, hidden, 2 * COLUMNS, DEPTH),
        Tiles(down, out, hidden, COLUMNS, DEPTH),
        *(h, keep_gate, keep_up, y, slot),
    )
    _launcher(plan.kind, plan.programs, arguments, plan.constants, plan.options)
    return y


_launcher = Launcher(specialised_kernel)


@functools.lru_cache(maxsize=1024)
def make_plan(p: Problem, device: torch.device) -> Plan:
    """Tiles of y that stay whole, and a counter for each row block.

    Raises ValueError for what `specialised` refuses.
    """
    if not supports(p):
        raise refusal(
            f"gated MLP, width and hidden multiples of {ALIGNMENT}, and bfloat16 or float16", p
        )
    row_blocks = math.ceil(p.rows / ROWS)
    tiles = row_blocks * math.ceil(p.out / (2 * COLUMNS))
    programs = sms(device.index)
    numbers = (p.rows, p.width, p.hidden, p.out, tiles // programs * programs, programs)
    constants = (
        *(*numbers, p.activation, ROWS, COLUMNS, DEPTH, STAGES, GROUP, MAILBOX),
        *(CONSUMER_REGISTERS, PRODUCER_REGISTERS),
    )
    ints = sync.HEADER_INTS + row_blocks
    return Plan(programs, constants, {"num_warps": 4}, ints, kind=kind_of(p, *numbers))
