"""Decode, one to 64 rows: bound by reading the weights once, so nothing may interrupt that.

A few rows of x do little with each weight, and the time is that of the weights' way from memory.
What eager PyTorch loses is the start and the end of each of its kernels, when memory idles. Here
one launch reads all weights, in two phases: blocks of the hidden layer ``h``, then tiles of
``y = h Wd^T``, which wait until all of h is there.

* What each program reads is fixed beforehand, so it can ask for it early: ``ahead`` units before
  it is needed a piece of weight starts on its way from memory to L2, across the border between
  the phases. Memory stays busy while programs wait for h.
* Who waits for others must be sure that they run. Tickets (see `sync`) would do, but a ticket is
  known too late to fetch ahead. So the launch is cooperative: all programs at once or none. Beside
  another stream's kernel it starts later; it cannot hang.
* One or two rows are multiplied by ordinary arithmetic, in float32; more by the tensor cores,
  with rows padded to 16, 32 or 64.
* A tile of y is small and there are few of them: along hidden it can be cut into pieces. Each
  piece leaves its float32 sums, and who finishes last adds them all, always from first to last:
  the result does not depend on who that was. (An atomic addition of floats would.)
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from . import sync, workspace
from .activations import activate
from .launch import INTERPRET, Launcher
from .sync import COUNTERS

# ruff: noqa: N803, N806  (compile-time constants are written in capitals, as Triton's users do)

INTERPRETED_PROGRAMS = 1
"""The interpreter runs programs one after the other, so nobody may wait for a later one."""

MAX_ROWS = 64
VECTOR_ROWS = 2
"""So many rows are multiplied without tensor cores."""


@dataclass(frozen=True)
class Config:
    """Sizes of tiles: of h and along width, of y and along hidden, and pieces of hidden.

    ``warps`` and ``stages`` are Triton's num_warps and num_stages of the loops over weights;
    ``residents`` programs share an SM; ``ahead`` is how many units early a unit is fetched.
    """

    block_hidden: int
    block_width: int
    block_out: int
    block_depth: int
    pieces: int
    warps: int
    stages: int
    residents: int
    ahead: int


@triton.jit
def prefetch(weight, first, count, width, column, numbers, THREADS: tl.constexpr):
    """Start ``numbers`` of each of ``count`` rows on their way from memory to L2; no waiting.

    One thread a row: as a tensor of ``THREADS`` numbers the row is in one thread alone.
    """
    lane = tl.arange(0, THREADS)
    at = weight + (first + lane).to(tl.int64) * width + column
    tl.inline_asm_elementwise(
        """
        {
            .reg .pred mine;
            setp.lt.s32 mine, $2, $3;
            @mine cp.async.bulk.prefetch.L2.global [$1], $4;
            mov.u32 $0, 0;
        }
        """,
        "=r,l,r,r,r",
        [at.to(tl.int64), lane, count, numbers * 2],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def load_rows(source, row, rows, column, columns, CACHE: tl.constexpr):
    """The (ROWS, BLOCK) tile of a row-major (rows, columns) tensor, zeros beyond its edges.

    ``CACHE`` is ".cg" for what this launch wrote: through L2, since an L1 may hold an older line.
    """
    inside = (row < rows) & (column < columns)
    return tl.load(source + row * columns + column, mask=inside, other=0.0, cache_modifier=CACHE)


@triton.jit
def load_weights(weight, row, height, column, width, EVEN: tl.constexpr):
    """A tile of a (height, width) weight, each read once: it should leave the cache first."""
    at = weight + row.to(tl.int64) * width + column
    if EVEN:
        return tl.load(at, eviction_policy="evict_first")
    inside = (row < height) & (column < width)
    return tl.load(at, mask=inside, other=0.0, eviction_policy="evict_first")


@triton.jit
def add_bias(tile, bias, at, count):
    """``tile`` (numbers, rows) plus a bias by number, or as it is if bias is None."""
    if bias is not None:
        tile += tl.load(bias + at, mask=at < count, other=0.0).to(tl.float32)[:, None]
    return tile


@triton.jit
def times(
    weight,
    x,
    at,
    height,
    first,
    last,
    depth,
    rows,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    STEP: tl.constexpr,
    VECTOR: tl.constexpr,
    EVEN: tl.constexpr,
    CACHE: tl.constexpr,
    STAGES: tl.constexpr,
):
    """``weight[at] x^T`` along depth from first to last: a (BLOCK, ROWS) tile in float32."""
    step = tl.arange(0, STEP)
    row = tl.arange(0, ROWS)
    if VECTOR:
        acc = tl.zeros((BLOCK, ROWS, STEP), tl.float32)
        for k in tl.range(first, last, STEP, num_stages=STAGES):
            part = load_rows(x, row[:, None], rows, k + step[None, :], depth, CACHE)
            tile = load_weights(weight, at[:, None], height, k + step[None, :], depth, EVEN)
            acc += tile.to(tl.float32)[:, None, :] * part.to(tl.float32)[None, :, :]
        return tl.sum(acc, axis=2)
    else:
        acc = tl.zeros((BLOCK, ROWS), tl.float32)
        for k in tl.range(first, last, STEP, num_stages=STAGES):
            part = load_rows(x, row[None, :], rows, k + step[:, None], depth, CACHE)
            tile = load_weights(weight, at[:, None], height, k + step[None, :], depth, EVEN)
            acc = tl.dot(tile, part, acc)
        return acc


@triton.jit
def times_two(
    weight,
    second,
    x,
    at,
    height,
    depth,
    rows,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    STEP: tl.constexpr,
    VECTOR: tl.constexpr,
    EVEN: tl.constexpr,
    STAGES: tl.constexpr,
):
    """`times` for two weights of one shape, each piece of x loaded once for both."""
    step = tl.arange(0, STEP)
    row = tl.arange(0, ROWS)
    if VECTOR:
        a = tl.zeros((BLOCK, ROWS, STEP), tl.float32)
        b = tl.zeros((BLOCK, ROWS, STEP), tl.float32)
        for k in tl.range(0, depth, STEP, num_stages=STAGES):
            part = load_rows(x, row[:, None], rows, k + step[None, :], depth, "")
            tile = load_weights(weight, at[:, None], height, k + step[None, :], depth, EVEN)
            other = load_weights(second, at[:, None], height, k + step[None, :], depth, EVEN)
            part = part.to(tl.float32)[None, :, :]
            a += tile.to(tl.float32)[:, None, :] * part
            b += other.to(tl.float32)[:, None, :] * part
        return tl.sum(a, axis=2), tl.sum(b, axis=2)
    else:
        a = tl.zeros((BLOCK, ROWS), tl.float32)
        b = tl.zeros((BLOCK, ROWS), tl.float32)
        for k in tl.range(0, depth, STEP, num_stages=STAGES):
            part = load_rows(x, row[None, :], rows, k + step[:, None], depth, "")
            tile = load_weights(weight, at[:, None], height, k + step[None, :], depth, EVEN)
            other = load_weights(second, at[:, None], height, k + step[None, :], depth, EVEN)
            a = tl.dot(tile, part, a)
            b = tl.dot(other, part, b)
        return a, b


@triton.jit
def decode_kernel(
    x,
    gate,
    up,
    gate_bias,
    down,
    down_bias,
    h,
    y,
    sums,
    slot,
    rows,
    width,
    hidden,
    out,
    ACTIVATION: tl.constexpr,
    ROWS: tl.constexpr,
    VECTOR: tl.constexpr,
    BLOCK_HIDDEN: tl.constexpr,
    BLOCK_WIDTH: tl.constexpr,
    BLOCK_OUT: tl.constexpr,
    BLOCK_DEPTH: tl.constexpr,
    PIECES: tl.constexpr,
    EVEN: tl.constexpr,
    STAGES: tl.constexpr,
    THREADS: tl.constexpr,
    AHEAD: tl.constexpr,
    INTERPRET: tl.constexpr,
):
    """One program of many. ``up`` is None in the plain form; h (rows, hidden) is scratch.

    ``sums`` (PIECES, out, ROWS) float32. Counters of the slot: programs whose blocks of h are
    ready, then for each tile of y the pieces that are.
    """
    dtype: tl.constexpr = y.dtype.element_ty
    PRECISE: tl.constexpr = True  # one special function more costs nothing here
    program = tl.program_id(0)
    programs = tl.num_programs(0)
    hidden_tiles = tl.cdiv(hidden, BLOCK_HIDDEN)
    out_tiles = tl.cdiv(out, BLOCK_OUT)
    hidden_units = tl.cdiv(hidden_tiles - program, programs)  # those of this program
    units = hidden_units + tl.cdiv(out_tiles * PIECES - program, programs)
    depth = tl.cdiv(tl.cdiv(hidden, PIECES), BLOCK_DEPTH) * BLOCK_DEPTH
    ready = slot + COUNTERS
    pieces_ready = ready + 1
    row = tl.arange(0, ROWS)

    for unit in range(-AHEAD, units):
        if EVEN and not INTERPRET:
            coming = unit + AHEAD
            if coming < hidden_units:
                first_row = (program + coming * programs) * BLOCK_HIDDEN
                prefetch(gate, first_row, BLOCK_HIDDEN, width, 0, width, THREADS)
                if up is not None:
                    prefetch(up, first_row, BLOCK_HIDDEN, width, 0, width, THREADS)
            elif coming < units:
                index = program + (coming - hidden_units) * programs
                first_row = index // PIECES * BLOCK_OUT
                prefetch(down, first_row, BLOCK_OUT, hidden, index % PIECES * depth, depth, THREADS)
        if unit >= 0:
            if unit < hidden_units:
                at = (program + unit * programs) * BLOCK_HIDDEN + tl.arange(0, BLOCK_HIDDEN)
                if up is None:
                    a = times(
                        gate, x, at, hidden, 0, width, width, rows,
                        ROWS, BLOCK_HIDDEN, BLOCK_WIDTH, VECTOR, EVEN, "", STAGES,
                    )  # fmt: skip
                    a = add_bias(a, gate_bias, at, hidden)
                    activated = activate(a, ACTIVATION, INTERPRET, PRECISE)
                else:
                    a, b = times_two(
                        gate, up, x, at, hidden, width, rows,
                        ROWS, BLOCK_HIDDEN, BLOCK_WIDTH, VECTOR, EVEN, STAGES,
                    )  # fmt: skip
                    activated = activate(a, ACTIVATION, INTERPRET, PRECISE) * b
                inside = (row[None, :] < rows) & (at[:, None] < hidden)
                tl.store(h + row[None, :] * hidden + at[:, None], activated.to(dtype), mask=inside)
                if unit == hidden_units - 1:
                    sync.publish(ready, INTERPRET)
            else:
                index = program + (unit - hidden_units) * programs
                tile = index // PIECES
                piece = index % PIECES
                at_out = tile * BLOCK_OUT + tl.arange(0, BLOCK_OUT)
                first = piece * depth
                last = tl.minimum(first + depth, hidden)
                if unit == hidden_units:
                    sync.wait_for(ready, tl.minimum(programs, hidden_tiles), INTERPRET)
                acc = times(
                    down, h, at_out, out, first, last, hidden, rows,
                    ROWS, BLOCK_OUT, BLOCK_DEPTH, VECTOR, EVEN, ".cg", STAGES,
                )  # fmt: skip
                inside_out = (row[None, :] < rows) & (at_out[:, None] < out)
                last_piece = True
                if PIECES > 1:
                    to_sums = sums + at_out[:, None] * ROWS + row[None, :]
                    tl.store(to_sums + piece * out * ROWS, acc, mask=at_out[:, None] < out)
                    tl.debug_barrier()  # see `sync`: all threads' stores before the release
                    before = tl.atomic_add(pieces_ready + tile, 1, sem="acq_rel", scope="gpu")
                    last_piece = before == PIECES - 1
                    if last_piece:
                        acc = tl.zeros((BLOCK_OUT, ROWS), tl.float32)
                        for i in tl.static_range(PIECES):
                            acc += tl.load(
                                to_sums + i * out * ROWS,
                                mask=at_out[:, None] < out,
                                other=0.0,
                                cache_modifier=".cg",
                            )
                if last_piece:
                    acc = add_bias(acc, down_bias, at_out, out)
                    tl.store(
                        y + row[None, :] * out + at_out[:, None], acc.to(dtype), mask=inside_out
                    )
    sync.leave(slot, out_tiles + 1 + COUNTERS)


def supports(rows: int, width: int, hidden: int, out: int, dtype: torch.dtype) -> bool:
    """Can the kernel do this? 1 to 64 rows, 16-bit floats, any widths."""
    dtypes = (torch.float16, torch.float32) if INTERPRET else (torch.float16, torch.bfloat16)
    return dtype in dtypes and 0 < rows <= MAX_ROWS and min(width, hidden, out) > 0


def gated(
    x: torch.Tensor,
    gate: torch.Tensor,
    up: torch.Tensor,
    down: torch.Tensor,
    activation: str,
    config: Config | None = None,
) -> torch.Tensor:
    """``(act(x Wg^T) * (x Wu^T)) Wd^T`` in one launch.

    Shapes: x (rows, width), gate and up (hidden, width), down (out, hidden), y (rows, out); one
    dtype, everything contiguous, weights aligned to 16 bytes.

    Raises ValueError for what `supports` refuses, WorkspaceExhausted while capturing a graph.
    """
    return _launch(x, gate, up, None, down, None, activation, config)


def plain(
    x: torch.Tensor,
    w1: torch.Tensor,
    b1: torch.Tensor | None,
    w2: torch.Tensor,
    b2: torch.Tensor | None,
    activation: str,
    config: Config | None = None,
) -> torch.Tensor:
    """``act(x W1^T + b1) W2^T + b2`` in one launch; either bias may be None.

    Shapes: x (rows, width), w1 (hidden, width), b1 (hidden), w2 (out, hidden), b2 (out),
    y (rows, out). Raises as `gated` does.
    """
    return _launch(x, w1, None, b1, w2, b2, activation, config)


def _launch(
    x: torch.Tensor,
    gate: torch.Tensor,
    up: torch.Tensor | None,
    b1: torch.Tensor | None,
    down: torch.Tensor,
    b2: torch.Tensor | None,
    activation: str,
    config: Config | None,
) -> torch.Tensor:
    rows, width = x.shape
    out, hidden = down.shape
    plan = make_plan(rows, width, hidden, out, x.dtype, x.device, config)
    size = plan.config
    h = torch.empty((rows, hidden), dtype=x.dtype, device=x.device)
    y = torch.empty((rows, out), dtype=x.dtype, device=x.device)
    sums = None
    if size.pieces > 1:
        sums = torch.empty((size.pieces, out, plan.rows), dtype=torch.float32, device=x.device)
    slot = workspace.slot(x.device, plan.ints)
    _launcher(
        (plan, activation, up is None, b1 is None, b2 is None, _aligned(x, b1, b2)),
        plan.programs,
        (x, gate, up, b1, down, b2, h, y, sums, slot, rows, width, hidden, out),
        (activation, *plan.constants),
        plan.options,
    )
    return y


_launcher = Launcher(decode_kernel)


def _aligned(*tensors: torch.Tensor | None) -> tuple[bool, ...]:
    """Which addresses are multiples of 16, as Triton distinguishes them; weights always are."""
    return tuple(t is not None and t.data_ptr() % 16 == 0 for t in tensors)


@dataclass(frozen=True)
class Plan:
    """What a launch depends on beside its tensors; ``problem`` tells two plans apart."""

    problem: tuple[object, ...]
    config: Config
    programs: int
    rows: int
    vector: bool
    even: bool
    ints: int

    @functools.cached_property
    def constants(self) -> tuple[object, ...]:
        """The kernel's constants after the activation, in its order."""
        c = self.config
        return (
            *(self.rows, self.vector, c.block_hidden, c.block_width, c.block_out, c.block_depth),
            *(c.pieces, self.even, c.stages, c.warps * 32, c.ahead, INTERPRET),
        )

    @functools.cached_property
    def options(self) -> dict[str, object]:
        """Triton's own. The interpreter, which has one program, knows of no cooperative launch."""
        options: dict[str, object] = {"num_warps": self.config.warps}
        return options if INTERPRET else {**options, "launch_cooperative_grid": True}


@functools.lru_cache(maxsize=1024)
def make_plan(
    rows: int,
    width: int,
    hidden: int,
    out: int,
    dtype: torch.dtype,
    device: torch.device,
    config: Config | None,
) -> Plan:
    """Tiles, grid and counters for a problem.

    Raises ValueError for what `supports` refuses.
    """
    if not supports(rows, width, hidden, out, dtype):
        raise ValueError(
            f"expected 1 to {MAX_ROWS} rows of bfloat16 or float16; got {rows} rows, width "
            f"{width}, hidden {hidden}, out {out}, {dtype}"
        )
    vector = rows <= VECTOR_ROWS
    config = config or config_for(rows, width, hidden, out)
    even = (
        hidden % config.block_hidden == 0
        and width % config.block_width == 0
        and out % config.block_out == 0
        and hidden % (config.block_depth * config.pieces) == 0
    )
    hidden_tiles = triton.cdiv(hidden, config.block_hidden)
    out_tiles = triton.cdiv(out, config.block_out)
    programs = INTERPRETED_PROGRAMS
    if device.type == "cuda":
        programs = _sms(device.index) * config.residents
    return Plan(
        (rows, width, hidden, out, dtype, device),
        config,
        min(programs, max(hidden_tiles, out_tiles * config.pieces)),
        triton.next_power_of_2(rows) if vector else max(16, triton.next_power_of_2(rows)),
        vector,
        even,
        sync.HEADER_INTS + 1 + out_tiles,
    )


def config_for(rows: int, width: int, hidden: int, out: int) -> Config:
    """The quickest tiles on an H200, of those tried (`benchmarks`)."""
    if rows <= VECTOR_ROWS:
        return Config(8, 512, 4, 1024, 1, 4, 3, 2, 4)
    if width * hidden >= 4_194_304:
        return Config(64 if rows > 1 and hidden % 64 == 0 else 32, 128, 32, 128, 4, 4, 4, 1, 1)
    return Config(32, 128, 32, 128, 4, 4, 3, 1, 1)


@functools.cache
def _sms(index: int) -> int:
    return torch.cuda.get_device_properties(index).multi_processor_count
