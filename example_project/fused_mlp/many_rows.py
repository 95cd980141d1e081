"""Many rows and a wide hidden layer: both matrix products in one launch, tile after tile.

Phase 1 makes tiles of the hidden layer ``h = act(x Wg^T) * (x Wu^T)`` (plain:
``h = act(x W1^T + b1)``), phase 2 tiles of ``y = h Wd^T``. As many programs as the GPU has SMs
draw tickets (see `sync`): first all tiles of phase 1, then those of phase 2. Each finished tile
of h raises the counter of its row block, and a tile of phase 2 waits until its row block's
counter says that the whole row of h is there. The first row blocks are complete long before
phase 1 is over, so hardly anybody waits. h goes through L2, and no launch lies between.

Operands are read by TMA (tensor descriptors made on the host), which also pads with zeros beyond
the edges: a ragged last step along K adds nothing. Results are stored with masks.

What remains is the **last wave**. 8192 x 768 x 3072 has 192 output tiles of 128 x 256 for 132
SMs: one full wave, then 60 tiles while 72 SMs idle. `Config` names three remedies:

* ``tail="narrow"``: the last tiles are cut into halves of 128 columns;
* ``tail="split"``: they are cut along hidden instead. The first half leaves its float32 sums in
  a buffer and the second adds them to its own, always in that order, so the result is always the
  same bits. Tiles keep their 256 columns, and so their few bytes loaded per operation;
* ``block_out=192``: all tiles get 128 + 64 columns, of which 256 fill 132 SMs nearly twice.
"""

from __future__ import annotations

import functools
import heapq
import math
import os
from dataclasses import dataclass
from typing import Literal

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from . import sync, workspace
from .activations import activate
from .sync import COUNTERS

# ruff: noqa: N803, N806, SIM102  (compile-time constants are written in capitals, as Triton's users do)

INTERPRET = os.environ.get("TRITON_INTERPRET") == "1"

ALIGNMENT = 8
"""Numbers of 16 bits in the 16 bytes of which TMA wants every row to be a multiple."""

PIECE = 128
"""Columns of the larger part of a 192 wide tile, since Triton's tiles are powers of two wide."""

INTERPRETED_PROGRAMS = 3
"""Programs in the interpreter, which runs them one by one: any number gives the same result."""

Tail = Literal["whole", "narrow", "split"]


@dataclass(frozen=True)
class Config:
    """Sizes of tiles, and how the last ones are cut.

    A tile of h has ``block_rows`` x ``block_hidden`` numbers and goes along width in steps of
    ``block_width``; a tile of y has ``block_rows`` x ``block_out`` numbers and goes along hidden
    in the same steps. ``tail`` is one of "whole", "narrow" and "split" (see the top), ``cut``
    how many of the last tiles it cuts (``None``: as many as end the work soonest). ``group`` row
    blocks are worked on together, so that tiles running at one time share their operands in L2.
    ``warps`` and ``stages`` are Triton's num_warps and num_stages, ``residents`` the programs
    of an SM.
    """

    block_rows: int = 128
    block_hidden: int = 128
    block_width: int = 64
    block_out: int = 256
    tail: Tail = "split"
    group: int = 8
    warps: int = 8
    stages: int = 3
    cut: int | None = None
    residents: int = 1

    def __post_init__(self) -> None:
        if self.tail not in ("whole", "narrow", "split"):
            raise ValueError(f"tail: expected whole, narrow or split, got {self.tail!r}")
        powers = (self.block_rows, self.block_hidden, self.block_width, self.main_block, self.warps)
        if any(size & (size - 1) for size in powers):
            raise ValueError(f"expected powers of two (or block_out 192), got {self}")
        if self.side_block and self.tail != "whole":
            raise ValueError("tail: a block_out of 192 goes with whole tiles only")

    @property
    def main_block(self) -> int:
        """Columns of the tile of y, or of the larger part of it."""
        return PIECE if self.block_out == 192 else self.block_out

    @property
    def side_block(self) -> int:
        """Columns of the other part, if there are two."""
        return self.block_out - self.main_block

    @property
    def tail_block(self) -> int:
        """Columns of a second descriptor of down: of the narrow tail or of the side part."""
        return self.main_block // 2 if self.tail == "narrow" else self.side_block


GATED = Config()
PLAIN = Config(block_hidden=256)
"""With one product instead of two the tile of h may have twice the columns."""


@triton.jit
def place(tile, row_blocks, column_blocks, GROUP: tl.constexpr):
    """Row block and column block of a tile: groups of row blocks, within them column by column."""
    per_group = GROUP * column_blocks
    first = tile // per_group * GROUP
    rows_here = tl.minimum(row_blocks - first, GROUP)
    within = tile % per_group
    return first + within % rows_here, within // rows_here


@triton.jit
def store_tile(target, tile, row, column, rows, columns):
    """Store a tile at (row, column) of a row-major (rows, columns) tensor, as far as it is inside.

    Offsets of rows are 64-bit: rows * columns may exceed 2^31.
    """
    at_row = row + tl.arange(0, tile.shape[0])[:, None]
    at_column = column + tl.arange(0, tile.shape[1])[None, :]
    inside = (at_row < rows) & (at_column < columns)
    at = target + at_row.to(tl.int64) * columns + at_column
    tl.store(at, tile.to(target.dtype.element_ty), mask=inside)


@triton.jit
def load_sums(sums, row, HEIGHT: tl.constexpr, WIDTH: tl.constexpr):
    """A float32 tile that `store_tile` put at (row, 0) of the sums, which are WIDTH wide."""
    at_row = row + tl.arange(0, HEIGHT)[:, None]
    return tl.load(sums + at_row.to(tl.int64) * WIDTH + tl.arange(0, WIDTH)[None, :])


@triton.jit
def add_bias(tile, bias, column, columns):
    """``tile + bias`` for columns from ``column`` on, or the tile as it is if bias is None."""
    if bias is not None:
        at = column + tl.arange(0, tile.shape[1])
        tile += tl.load(bias + at, mask=at < columns, other=0.0).to(tl.float32)[None, :]
    return tile


@triton.jit
def product(
    left,
    right,
    row,
    column,
    first,
    last,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    STEP: tl.constexpr,
):
    """The tile (row, column) of ``left right^T`` in float32, from K's steps first to last."""
    acc = tl.zeros((HEIGHT, WIDTH), tl.float32)
    for step in tl.range(first, last):
        acc = tl.dot(left.load([row, step * STEP]), right.load([column, step * STEP]).T, acc)
    return acc


@triton.jit
def two_products(
    left,
    right,
    second,
    row,
    column,
    second_column,
    steps,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    SECOND_WIDTH: tl.constexpr,
    STEP: tl.constexpr,
):
    """Tiles of ``left right^T`` and ``left second^T``; a tile of left is loaded once for both."""
    a = tl.zeros((HEIGHT, WIDTH), tl.float32)
    b = tl.zeros((HEIGHT, SECOND_WIDTH), tl.float32)
    for step in tl.range(0, steps):
        left_tile = left.load([row, step * STEP])
        a = tl.dot(left_tile, right.load([column, step * STEP]).T, a)
        b = tl.dot(left_tile, second.load([second_column, step * STEP]).T, b)
    return a, b


@triton.jit
def many_rows_kernel(
    x,
    gate,
    up,
    gate_bias,
    h,
    h_out,
    keep_gate,
    keep_up,
    down,
    down_tail,
    down_bias,
    y,
    sums,
    slot,
    rows,
    width,
    hidden,
    out,
    whole_tiles,
    ACTIVATION: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_HIDDEN: tl.constexpr,
    BLOCK_WIDTH: tl.constexpr,
    BLOCK_OUT: tl.constexpr,
    SIDE: tl.constexpr,
    TAIL: tl.constexpr,
    GROUP: tl.constexpr,
    WARPS: tl.constexpr,
    INTERPRET: tl.constexpr,
):
    """One program of many; descriptors are x, gate, up, h, down and down_tail.

    ``up`` is None in the plain form. Of BLOCK_OUT columns of y, SIDE (0 or 64) are a second
    accumulator, read through ``down_tail``; with a narrow tail that reads BLOCK_OUT / 2. Tiles of
    y from ``whole_tiles`` on are cut in two. ``sums`` are (cut tiles, BLOCK_ROWS, BLOCK_OUT)
    float32 for the split tail. Of the slot's counters, the first are tiles of h ready in each
    row block, the others whether the sums of a cut tile are ready.
    """
    PRECISE: tl.constexpr = y.dtype.element_ty != tl.bfloat16  # see `activations`
    THREADS: tl.constexpr = WARPS * 32
    MAIN: tl.constexpr = BLOCK_OUT - SIDE
    NARROW: tl.constexpr = BLOCK_OUT // 2
    row_blocks = tl.cdiv(rows, BLOCK_ROWS)
    hidden_blocks = tl.cdiv(hidden, BLOCK_HIDDEN)
    out_blocks = tl.cdiv(out, BLOCK_OUT)
    hidden_tiles = row_blocks * hidden_blocks
    cut_tiles = row_blocks * out_blocks - whole_tiles
    tickets = hidden_tiles + whole_tiles + 2 * cut_tiles
    row_of_h = hidden // 8 * 8  # hidden, and the compiler sees that 8 divides it
    ready = slot + COUNTERS
    sums_ready = ready + row_blocks

    ticket = sync.take_ticket(slot)
    while ticket < tickets:
        if ticket < hidden_tiles:
            row_block, column_block = place(ticket, row_blocks, hidden_blocks, GROUP)
            row = row_block * BLOCK_ROWS
            column = column_block * BLOCK_HIDDEN
            steps = tl.cdiv(width, BLOCK_WIDTH)
            if up is None:
                a = product(x, gate, row, column, 0, steps, BLOCK_ROWS, BLOCK_HIDDEN, BLOCK_WIDTH)
                a = add_bias(a, gate_bias, column, hidden)
                if keep_gate is not None:
                    store_tile(keep_gate, a, row, column, rows, row_of_h)
                activated = activate(a, ACTIVATION, INTERPRET, PRECISE)
            else:
                a, b = two_products(
                    x, gate, up, row, column, column, steps,
                    BLOCK_ROWS, BLOCK_HIDDEN, BLOCK_HIDDEN, BLOCK_WIDTH,
                )  # fmt: skip
                if keep_gate is not None:
                    store_tile(keep_gate, a, row, column, rows, row_of_h)
                    store_tile(keep_up, b, row, column, rows, row_of_h)
                activated = activate(a, ACTIVATION, INTERPRET, PRECISE) * b
            activated = activated.to(h_out.dtype.element_ty)
            answer = sync.ask_for_ticket(slot, THREADS)  # it comes back while h is stored
            store_tile(h_out, activated, row, column, rows, row_of_h)
            sync.publish(ready + row_block, INTERPRET, TMA=True)
        else:
            tile = ticket - hidden_tiles
            half = 0  # 0: a whole tile; 1 and 2: its first and second half
            if TAIL != "whole":
                if tile >= whole_tiles:
                    half = 1 + (tile - whole_tiles) % 2
                    tile = whole_tiles + (tile - whole_tiles) // 2
            row_block, column_block = place(tile, row_blocks, out_blocks, GROUP)
            row = row_block * BLOCK_ROWS
            column = column_block * BLOCK_OUT
            steps = tl.cdiv(hidden, BLOCK_WIDTH)
            sync.wait_for(ready + row_block, hidden_blocks, INTERPRET, TMA=True)
            if SIDE > 0:
                second_column = column + MAIN
                acc, side = two_products(
                    h, down, down_tail, row, column, second_column, steps,
                    BLOCK_ROWS, MAIN, SIDE, BLOCK_WIDTH,
                )  # fmt: skip
                answer = sync.ask_for_ticket(slot, THREADS)
                store_tile(y, add_bias(acc, down_bias, column, out), row, column, rows, out)
                side = add_bias(side, down_bias, second_column, out)
                store_tile(y, side, row, second_column, rows, out)
            elif TAIL == "whole":
                acc = product(h, down, row, column, 0, steps, BLOCK_ROWS, MAIN, BLOCK_WIDTH)
                answer = sync.ask_for_ticket(slot, THREADS)
                store_tile(y, add_bias(acc, down_bias, column, out), row, column, rows, out)
            elif TAIL == "narrow":
                if half > 0:
                    column += (half - 1) * NARROW
                    narrow = product(
                        h, down_tail, row, column, 0, steps, BLOCK_ROWS, NARROW, BLOCK_WIDTH
                    )
                    answer = sync.ask_for_ticket(slot, THREADS)
                    narrow = add_bias(narrow, down_bias, column, out)
                    store_tile(y, narrow, row, column, rows, out)
                else:
                    acc = product(h, down, row, column, 0, steps, BLOCK_ROWS, MAIN, BLOCK_WIDTH)
                    answer = sync.ask_for_ticket(slot, THREADS)
                    store_tile(y, add_bias(acc, down_bias, column, out), row, column, rows, out)
            else:
                first = tl.where(half == 2, steps // 2, 0)
                last = tl.where(half == 1, steps // 2, steps)
                acc = product(h, down, row, column, first, last, BLOCK_ROWS, MAIN, BLOCK_WIDTH)
                cut = tile - whole_tiles
                if half == 1:
                    answer = sync.ask_for_ticket(slot, THREADS)
                    store_tile(sums, acc, cut * BLOCK_ROWS, 0, cut_tiles * BLOCK_ROWS, BLOCK_OUT)
                    sync.publish(sums_ready + cut, INTERPRET)
                else:
                    if half == 2:
                        sync.wait_for(sums_ready + cut, 1, INTERPRET)
                        acc += load_sums(sums, cut * BLOCK_ROWS, BLOCK_ROWS, BLOCK_OUT)
                    answer = sync.ask_for_ticket(slot, THREADS)
                    store_tile(y, add_bias(acc, down_bias, column, out), row, column, rows, out)
        ticket = sync.read_ticket(answer, THREADS)
    sync.leave(slot, row_blocks + cut_tiles + COUNTERS)


def supports(
    rows: int, width: int, hidden: int, out: int, dtype: torch.dtype, *tensors: torch.Tensor
) -> bool:
    """Can the kernel do this? It wants 16-bit floats, and 16-byte rows and addresses for TMA.

    ``tensors`` are those to be read by TMA: x and the weights. In the interpreter float32 will
    do as well, and bfloat16 will not (its products are wrong there).
    """
    dtypes = (torch.float16, torch.float32) if INTERPRET else (torch.float16, torch.bfloat16)
    return (
        dtype in dtypes
        and min(rows, width, hidden, out) > 0
        and max(rows, width, hidden, out) < 2**30
        and width % ALIGNMENT == 0
        and hidden % ALIGNMENT == 0
        and all(t.is_contiguous() and t.data_ptr() % 16 == 0 for t in tensors)
    )


def gated(
    x: torch.Tensor,
    gate: torch.Tensor,
    up: torch.Tensor,
    down: torch.Tensor,
    activation: str,
    keep: tuple[torch.Tensor, torch.Tensor] | None = None,
    config: Config = GATED,
) -> torch.Tensor:
    """``(act(x Wg^T) * (x Wu^T)) Wd^T`` in one launch.

    Shapes: x (rows, width), gate and up (hidden, width), down (out, hidden), y (rows, out); one
    dtype for all. ``keep``: two (rows, hidden) tensors that receive ``x Wg^T`` and ``x Wu^T``.

    Raises ValueError for what `supports` refuses, WorkspaceExhausted while capturing a graph.
    """
    kept = (None, None) if keep is None else keep
    return _launch(x, (gate, up), None, down, None, activation, kept, config)


def plain(
    x: torch.Tensor,
    w1: torch.Tensor,
    b1: torch.Tensor | None,
    w2: torch.Tensor,
    b2: torch.Tensor | None,
    activation: str,
    keep: torch.Tensor | None = None,
    config: Config = PLAIN,
) -> torch.Tensor:
    """``act(x W1^T + b1) W2^T + b2`` in one launch; either bias may be None.

    Shapes: x (rows, width), w1 (hidden, width), b1 (hidden), w2 (out, hidden), b2 (out),
    y (rows, out); one dtype for all. ``keep``: a (rows, hidden) tensor that receives
    ``x W1^T + b1``. Raises as `gated` does.
    """
    return _launch(x, (w1, None), b1, w2, b2, activation, (keep, None), config)


def _launch(
    x: torch.Tensor,
    into: tuple[torch.Tensor, torch.Tensor | None],
    b1: torch.Tensor | None,
    down: torch.Tensor,
    b2: torch.Tensor | None,
    activation: str,
    kept: tuple[torch.Tensor | None, torch.Tensor | None],
    config: Config,
) -> torch.Tensor:
    rows, width = x.shape
    out, hidden = down.shape
    gate, up = into
    read = (x, gate, down) if up is None else (x, gate, up, down)
    if not supports(rows, width, hidden, out, x.dtype, *read):
        raise ValueError(
            "expected contiguous tensors aligned to 16 bytes, width and hidden multiples of "
            f"{ALIGNMENT}, and bfloat16 or float16; got {rows} rows, width {width}, hidden "
            f"{hidden}, out {out}, {x.dtype}"
        )
    plan = make_plan(rows, width, hidden, out, up is not None, _programs(x.device, config), config)
    h = torch.empty((rows, hidden), dtype=x.dtype, device=x.device)
    y = torch.empty((rows, out), dtype=x.dtype, device=x.device)
    sums = None
    if config.tail == "split":
        sums = torch.empty(
            (plan.cut_tiles, config.block_rows, config.block_out),
            dtype=torch.float32,
            device=x.device,
        )
    step = config.block_width
    many_rows_kernel[(plan.programs,)](
        _tiles(x, config.block_rows, step),
        _tiles(gate, config.block_hidden, step),
        None if up is None else _tiles(up, config.block_hidden, step),
        b1,
        _tiles(h, config.block_rows, step),
        h,
        *kept,
        _tiles(down, config.main_block, step),
        _tiles(down, config.tail_block, step) if config.tail_block else None,
        b2,
        y,
        sums,
        workspace.slot(x.device, plan.ints),
        rows,
        width,
        hidden,
        out,
        plan.whole_tiles,
        ACTIVATION=activation,
        BLOCK_ROWS=config.block_rows,
        BLOCK_HIDDEN=config.block_hidden,
        BLOCK_WIDTH=step,
        BLOCK_OUT=config.block_out,
        SIDE=config.side_block,
        TAIL=config.tail,
        GROUP=config.group,
        WARPS=config.warps,
        INTERPRET=INTERPRET,
        num_warps=config.warps,
        num_stages=config.stages,
    )
    return y


def _tiles(tensor: torch.Tensor, height: int, width: int) -> TensorDescriptor:
    """What TMA needs to know of a contiguous matrix that is read in tiles of this size."""
    return TensorDescriptor(tensor, list(tensor.shape), [tensor.shape[1], 1], [height, width])


@functools.cache
def _sms(index: int) -> int:
    return torch.cuda.get_device_properties(index).multi_processor_count


def _programs(device: torch.device, config: Config) -> int:
    """Programs that the GPU holds at a time. More would only find no tickets left."""
    if device.type != "cuda":
        return INTERPRETED_PROGRAMS
    return _sms(device.index) * config.residents


@dataclass(frozen=True)
class Plan:
    """What a launch depends on beside its config: the grid, the cut tiles, the counters."""

    programs: int
    whole_tiles: int
    cut_tiles: int
    ints: int


EPILOGUE_OF_HIDDEN = 3.0
EPILOGUE_OF_OUT = 2.0
EPILOGUE_OF_SPLIT = 4.0
NARROW_STEP = 0.8
"""Rough costs for planning, in steps of a whole tile of y along K: what follows the last step of
a tile, and a step of half as many columns (no half, since it loads more per operation)."""


@functools.lru_cache(maxsize=1024)
def make_plan(
    rows: int, width: int, hidden: int, out: int, gated: bool, programs: int, config: Config
) -> Plan:
    """The grid for this problem, and how many tiles of y to cut."""
    row_blocks = math.ceil(rows / config.block_rows)
    hidden_tiles = row_blocks * math.ceil(hidden / config.block_hidden)
    out_tiles = row_blocks * math.ceil(out / config.block_out)
    cut = 0
    if config.tail != "whole":
        cut = config.cut
        if cut is None:
            area = config.block_hidden * (2 if gated else 1) / config.block_out
            steps = math.ceil(hidden / config.block_width)
            hidden_cost = math.ceil(width / config.block_width) * area + EPILOGUE_OF_HIDDEN
            half_cost = (
                steps * NARROW_STEP + EPILOGUE_OF_OUT
                if config.tail == "narrow"
                else steps / 2 + EPILOGUE_OF_SPLIT
            )
            costs = (hidden_cost, steps + EPILOGUE_OF_OUT, half_cost)
            cut = tiles_to_cut(hidden_tiles, out_tiles, programs, costs)
        cut = min(cut, out_tiles)
    return Plan(
        programs=min(programs, hidden_tiles),
        whole_tiles=out_tiles - cut,
        cut_tiles=cut,
        ints=sync.HEADER_INTS + row_blocks + cut,
    )


def tiles_to_cut(
    hidden_tiles: int, out_tiles: int, programs: int, costs: tuple[float, float, float]
) -> int:
    """How many of the last tiles of y to cut in two, so that the last program ends soonest.

    ``costs`` are those of a tile of h, of a whole tile of y, and of half of one. Tickets go to
    whoever is free first, so a heap of the programs' times tells when all are done. At most one
    tile per program is cut, in about 16 numbers tried; of equals, the fewest.
    """
    hidden_cost, whole_cost, half_cost = costs
    most = min(out_tiles, programs)
    tries = sorted({0, out_tiles % programs, *range(0, most + 1, max(1, programs // 16))})

    def end(cut: int) -> float:
        waves, rest = divmod(hidden_tiles, programs)
        times = [(waves + (i < rest)) * hidden_cost for i in range(programs)]
        waves, rest = divmod(out_tiles - cut, programs)
        times = [time + waves * whole_cost for time in times]
        heapq.heapify(times)
        for cost in [whole_cost] * rest + [half_cost] * (2 * cut):
            heapq.heapreplace(times, times[0] + cost)
        return max(times)

    return min((cut for cut in tries if cut <= out_tiles), key=end)
