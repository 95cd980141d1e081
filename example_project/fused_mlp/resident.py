"""Narrow layers on Hopper: weights reside in shared memory, rows stream past; written in Gluon.

`narrow` says why narrow layers are worth a kernel, and does any widths in plain Triton. There all
warps of a program load, multiply, activate, multiply and store together, so at any time either
the memory or the tensor cores wait. Here, of the nine warps of a program,

* one **producer** loads the weights once, then blocks of rows of x by TMA into a ring of buffers;
* eight **consumers**, two groups of four, take turns at the blocks: while one group activates,
  the other multiplies. h goes from registers straight into the second product, and y into the
  buffer that x came in, from where TMA stores it.
"""

from __future__ import annotations

import functools
import math

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from .activations import activate
from .hopper import ALIGNMENT, claim
from .launch import Launcher, Plan, alignment, kind_of
from .problem import KERNEL_DTYPES, Problem, problem_of, refusal, sms
from .tensor_maps import Tiles
from .weights import Weights

# ruff: noqa: N803, N806  (compile-time constants are written in capitals, as Triton's users do)

NARROWEST = 64
"""Widths are padded to this or to the widest: 128 bytes are what a tile's row is swizzled by."""

WIDEST = 128
"""Beyond it, of any size, both weights and the sums no longer fit shared memory and registers."""

SHARED_BYTES = 224 * 1024
"""Of an SM's 227 KiB, what weights and ring may take."""

MOST_STAGES = 8

CONSUMER_REGISTERS, PRODUCER_REGISTERS = 240, 24
"""Of a thread."""


@gluon.jit
def fill_bias(bias, count, PADDED: gl.constexpr):
    """A bias in shared memory as float32, zeros beyond its end and where there is none."""
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    shared = gl.allocate_shared_memory(gl.float32, [PADDED], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    at = gl.arange(0, PADDED, layout)
    if bias is None:
        shared.store(gl.zeros([PADDED], gl.float32, layout))
    else:
        shared.store(gl.load(bias + at, mask=at < count, other=0.0).to(gl.float32))
    return shared


@gluon.jit
def produce(
    x, w1, w2, ring, first, second, full, empty, weights_full, blocks,
    ROWS: gl.constexpr, WIDTH: gl.constexpr, HIDDEN: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """The producer: the weights, then every block of this program."""
    mbarrier.expect(weights_full, 2 * WIDTH * HIDDEN * 2)
    tma.async_copy_global_to_shared(w1, [0, 0], weights_full, first)
    tma.async_copy_global_to_shared(w2, [0, 0], weights_full, second)
    step = 0
    for block in range(gl.program_id(0), blocks, gl.num_programs(0)):
        i = claim(empty, full, step, ROWS * WIDTH * 2, STAGES)
        tma.async_copy_global_to_shared(x, [block * ROWS, 0], full.index(i), ring.index(i))
        step += 1  # noqa: SIM113  (the compiler knows no enumerate)


@gluon.jit
def consume(
    y, ring, first, second, h_bias, y_bias, full, empty, weights_full, blocks, hidden,
    GROUP: gl.constexpr, RAGGED: gl.constexpr, ACTIVATION: gl.constexpr, ROWS: gl.constexpr,
    WIDTH: gl.constexpr, HIDDEN: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """A group of consumers: every second block of this program."""
    dtype: gl.constexpr = ring.dtype
    PRECISE: gl.constexpr = dtype != gl.bfloat16  # see `activations`
    of_h: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HIDDEN, 16])
    of_y: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, WIDTH, 16])
    mbarrier.wait(weights_full, 0)
    step = GROUP
    programs = gl.num_programs(0)
    for block in range(gl.program_id(0) + GROUP * programs, blocks, 2 * programs):
        i = step % STAGES
        mbarrier.wait(full.index(i), (step // STAGES) & 1)
        acc = gl.zeros([ROWS, HIDDEN], gl.float32, of_h)
        acc = warpgroup_mma(ring.index(i), first.permute((1, 0)), acc, use_acc=False, is_async=True)
        # Meanwhile: the block before has left its buffer, which may be filled again.
        tma.store_wait(0)
        mbarrier.arrive(empty.index((step + STAGES - 2) % STAGES), count=1, pred=step > GROUP)
        acc = warpgroup_mma_wait(0, deps=(acc,))
        acc += h_bias.load(gl.SliceLayout(0, of_h))[None, :]
        h = activate(acc, ACTIVATION, False, PRECISE)
        if RAGGED:  # as in `narrow`: beyond hidden stand x times zeros, NaN where x is infinite
            h = gl.where(gl.arange(0, HIDDEN, gl.SliceLayout(0, of_h))[None, :] < hidden, h, 0.0)
        h = h.to(dtype)
        result = gl.zeros([ROWS, WIDTH], gl.float32, of_y)
        h = gl.convert_layout(h, gl.DotOperandLayout(0, of_y, 2))
        result = warpgroup_mma(h, second.permute((1, 0)), result, use_acc=False)
        result += y_bias.load(gl.SliceLayout(0, of_y))[None, :]
        ring.index(i).store(result.to(dtype))
        fence_async_shared()
        tma.async_copy_shared_to_global(y, [block * ROWS, 0], ring.index(i))
        step += 2
    tma.store_wait(0)


@gluon.jit
def resident_kernel(
    x, w1, b1, w2, b2, y, rows, hidden, out,
    RAGGED: gl.constexpr, ACTIVATION: gl.constexpr, ROWS: gl.constexpr, WIDTH: gl.constexpr,
    HIDDEN: gl.constexpr, STAGES: gl.constexpr, CONSUMER_REGISTERS: gl.constexpr,
    PRODUCER_REGISTERS: gl.constexpr,
):  # fmt: skip
    """Set up the ring and the biases, and split the warps."""
    blocks = gl.cdiv(rows, ROWS)
    ring = gl.allocate_shared_memory(x.dtype, [STAGES, ROWS, WIDTH], x.layout)
    first = gl.allocate_shared_memory(x.dtype, [HIDDEN, WIDTH], w1.layout)
    second = gl.allocate_shared_memory(x.dtype, [WIDTH, HIDDEN], w2.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    weights_full = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=1)
    mbarrier.init(weights_full, count=1)
    h_bias = fill_bias(b1, hidden, HIDDEN)
    y_bias = fill_bias(b2, out, WIDTH)
    gl.warp_specialize(
        [
            (consume, (
                y, ring, first, second, h_bias, y_bias, full, empty, weights_full, blocks,
                hidden, 0, RAGGED, ACTIVATION, ROWS, WIDTH, HIDDEN, STAGES,
            )),
            (consume, (
                y, ring, first, second, h_bias, y_bias, full, empty, weights_full, blocks,
                hidden, 1, RAGGED, ACTIVATION, ROWS, WIDTH, HIDDEN, STAGES,
            )),
            (produce, (
                x, w1, w2, ring, first, second, full, empty, weights_full, blocks,
                ROWS, WIDTH, HIDDEN, STAGES,
            )),
        ],
        [4, 1],
        [CONSUMER_REGISTERS, PRODUCER_REGISTERS],
    )  # fmt: skip


def supports(p: Problem) -> bool:
    """Can the kernel do this? Plain, sizes that are multiples of 8, up to 128; 16-bit floats."""
    return (
        not p.gated
        and p.dtype in KERNEL_DTYPES
        and 0 < p.rows < 2**30
        and all(0 < n <= WIDEST and n % ALIGNMENT == 0 for n in (p.width, p.hidden, p.out))
    )


def resident(
    x: torch.Tensor, weights: Weights, activation: str, plan: Plan | None = None
) -> torch.Tensor:
    """A plain MLP in one launch, on compute capability 9.0.

    Shapes: x (rows, width), y (rows, out), the weights as `Weights` has them; one dtype,
    everything contiguous and aligned to 16 bytes.

    Raises ValueError for what `supports` refuses.
    """
    w1, _, w2, b1, b2 = weights
    if plan is None:
        plan = make_plan(problem_of(x, weights, activation), x.device)
    rows, width = x.shape
    out, hidden = w2.shape
    high, wide, deep = tile_of(width, hidden, out)
    y = x.new_empty((rows, out))
    arguments = (
        Tiles(x, rows, width, high, wide),
        *(Tiles(w1, hidden, width, deep, wide), b1),
        *(Tiles(w2, out, hidden, wide, deep), b2),
        Tiles(y, rows, out, high, wide),
    )
    key = (plan.kind, alignment(b1, b2))
    _launcher(key, plan.programs, arguments, plan.constants, plan.options)
    return y


_launcher = Launcher(resident_kernel)


@functools.lru_cache(maxsize=1024)
def make_plan(p: Problem, device: torch.device) -> Plan:
    """As many buffers as fit beside the weights. Raises ValueError for what `resident` refuses."""
    if not supports(p):
        raise refusal(
            f"plain MLP, widths and hidden of 8 to {WIDEST}, multiples of {ALIGNMENT}, and "
            "bfloat16 or float16",
            p,
        )
    high, wide, deep = tile_of(p.width, p.hidden, p.out)
    room = SHARED_BYTES - 2 * deep * wide * 2
    # Three at least: a group still stores from one while both wait for the next.
    stages = min(MOST_STAGES, room // (high * wide * 2))
    constants = (
        *(p.rows, p.hidden, p.out, p.hidden != deep, p.activation, high, wide, deep, stages),
        *(CONSUMER_REGISTERS, PRODUCER_REGISTERS),
    )
    programs = min(sms(device.index), math.ceil(p.rows / high))
    return Plan(programs, constants, {"num_warps": 4}, kind=kind_of(p, p.rows, p.hidden, p.out))


def tile_of(width: int, hidden: int, out: int) -> tuple[int, int, int]:
    """Rows of a block, and width and hidden as they are padded."""
    wide = NARROWEST if width <= NARROWEST and out <= NARROWEST else WIDEST
    return 64 if wide == WIDEST else 128, wide, NARROWEST if hidden <= NARROWEST else WIDEST
