"""One row and few rows: shares that cover all, nothing that hangs, and no memory that lies.

`test_fused_kernels` has what holds of every kernel. Kernels need a Hopper GPU; their plans do not.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

pytest.importorskip("triton.experimental.gluon")

from fused_mlp import few_rows, workspace
from fused_mlp.eager import eager
from fused_mlp.problem import Problem
from fused_mlp.weights import Weights

HOPPER = torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)
needs_gpu = pytest.mark.skipif(not HOPPER, reason="needs a Hopper GPU")

SIZES = (
    (768, 3072, 768),
    (896, 4864, 896),
    (1024, 14336, 1024),
    (2048, 8192, 2048),
    (4096, 14336, 4096),
    (8192, 3584, 8192),
    (776, 3080, 760),
    (8, 512, 3),
    (2880, 20480, 2880),
    (1024, 4096, 96),
    (1024, 8192, 8),
)
SOME_ROWS = pytest.mark.parametrize("rows", [1, 2, 4, 16])


def run(x: torch.Tensor, weights: Weights) -> torch.Tensor:
    return few_rows.few_rows(x, weights, "silu")


def numbers(*shape: int, seed: int = 0, device: str = "cuda") -> torch.Tensor:
    generator = torch.Generator(device).manual_seed(seed)
    made = torch.randn(shape, generator=generator, device=device)
    return made.mul_(shape[-1] ** -0.5).to(torch.bfloat16)


def random(
    rows: int, width: int, hidden: int, seed: int = 0, device: str = "cuda"
) -> tuple[torch.Tensor, Weights]:
    x = numbers(rows, width, seed=seed, device=device) * width**0.5
    first = numbers(hidden, width, seed=seed + 1, device=device)
    up = numbers(hidden, width, seed=seed + 2, device=device)
    return x, Weights(first, up, numbers(width, hidden, seed=seed + 3, device=device))


def plan_of(rows: int, sizes: tuple[int, int, int], sms: int) -> dict[str, Any]:
    """The constants of a plan, by the kernel's names for them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(few_rows, "sms", lambda index: sms)
        p = Problem(rows, *sizes, True, "silu", torch.bfloat16, (9, 0))
        plan = few_rows.make_plan.__wrapped__(p, torch.device("cuda", 0))
    found = dict(zip(few_rows.few_rows_kernel.arg_names[6:], plan.constants, strict=True))
    return {**found, "programs": plan.programs, "ints": plan.ints, "options": plan.options}


def largest_share(whole: int, parts: int) -> int:
    return max((i + 1) * whole // parts - i * whole // parts for i in range(parts))


@SOME_ROWS
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("sms", [132, 114, 7, 1])
def test_the_steps_cover_all_that_a_program_has(
    rows: int, sizes: tuple[int, int, int], sms: int
) -> None:
    """On a slice of a GPU as well, which has fewer SMs."""
    width, hidden, out = sizes
    if few_rows.config_for(rows, width, hidden).split > sms:
        pytest.skip("fewer programs than share hidden")
    c = plan_of(rows, sizes, sms)
    assert 1 <= c["PROGRAMS"] == c["programs"] <= min(sms, hidden)
    split, across = c["SPLIT"], c["ACROSS"]
    share = largest_share(hidden, c["PROGRAMS"])
    out_share = largest_share(out, c["PROGRAMS"] // split)
    part = 8 * largest_share(hidden // 8, split)
    assert 5 * 1024 >= c["PIECES"] * 1024 >= part > 0, "5 pieces fit into the registers"
    assert c["OUT_SHARE"] >= math.ceil(out_share / split)
    assert split * c["OUT_SHARE"] >= out_share
    assert split == 1 or out // (c["PROGRAMS"] // split) >= split, "each finishes some row"
    assert c["BLOCKS"] * 8 * across >= share
    assert c["SHARE"] >= share
    assert c["WIDTH_STEPS"] * 8 // across * 128 >= width
    assert c["OUT_BLOCKS"] * 8 >= out_share
    assert c["HIDDEN_STEPS"] * 2 * 8 * 128 >= part
    assert c["STAGES"] >= 2
    assert c["BUFFER"] >= rows * hidden
    assert c["BUFFER"] % 64 == 0
    assert c["options"]["launch_cooperative_grid"]


def test_more_programs_share_hidden_the_more_of_it_there_is() -> None:
    """What a program keeps of h must fit into its registers, and come quickly."""

    def split(rows: int, hidden: int) -> int:
        return few_rows.config_for(rows, 1024, hidden).split

    assert [split(4, hidden) for hidden in (3072, 4864, 8192, 14336, 20480)] == [1, 1, 2, 4, 4]
    assert [split(16, hidden) for hidden in (512, 3072, 4864, 8192, 20480)] == [1, 2, 2, 4, 4]


@SOME_ROWS
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_ring_and_x_fit_into_an_sm(rows: int, sizes: tuple[int, int, int]) -> None:
    c = plan_of(rows, sizes, 132)
    slots = c["WIDTH_STEPS"] if c["WHOLE_X"] else c["STAGES"]
    x_bytes, sums = slots * 8 // c["ACROSS"] * 16 * 128 * 2, 8 * 16 * 8 * 4
    assert c["STAGES"] * 8 * 4096 + x_bytes + sums <= 227 * 1024


@pytest.mark.parametrize(
    ("rows", "sizes"),
    [
        (17, (64, 512, 64)),
        (1, (60, 512, 64)),
        (2, (64, 516, 64)),
        (2, (64, 32768, 64)),
    ],
)
def test_what_cannot_be_done_is_refused(rows: int, sizes: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="expected a gated MLP of 1 "):
        plan_of(rows, sizes, 132)


def test_a_plain_mlp_is_refused() -> None:
    x = torch.zeros(1, 64, dtype=torch.bfloat16)
    weight = torch.zeros(64, 64, dtype=torch.bfloat16)
    with pytest.raises(ValueError, match="got plain"):
        run(x, Weights(weight, None, weight))


@needs_gpu
@SOME_ROWS
@pytest.mark.parametrize("value", [0.0, float("nan"), float("inf")], ids=str)
def test_no_number_of_h_is_mistaken_for_not_there(rows: int, value: float) -> None:
    """A true 0 is written as -0; a NaN is there as well. The next call finds the memory clean."""
    for width, hidden in ((768, 3072), (2048, 8192)):
        x, weights = random(rows, width, hidden)
        right = run(x, weights)
        got = run(torch.full_like(x, value), weights)
        assert not got.any() if value == 0 else got.isnan().all()
        assert torch.equal(run(x, weights), right)


@needs_gpu
@SOME_ROWS
@pytest.mark.parametrize(("width", "hidden"), [(768, 3072), (2048, 8192), (4096, 14336)])
def test_a_thousand_launches_beside_a_busy_stream(rows: int, width: int, hidden: int) -> None:
    """Bitwise, over changing weights, with no synchronisation in between."""
    cases = [random(rows, width, hidden, seed=10 * i) for i in range(3)]
    right = [run(*case) for case in cases]
    for case, y in zip(cases, right, strict=True):
        exact = eager(case[0].double(), Weights(*(w.double() for w in case[1][:3])), "silu")
        assert (y.double() - exact).norm() < 4e-3 * exact.norm()
    busy, side = numbers(4096, 4096), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    different = torch.zeros((), dtype=torch.int64, device="cuda")
    for i in range(1000):
        if i % 5 == 0:
            with torch.cuda.stream(side):
                busy @ busy
        different += (run(*cases[i % 3]) != right[i % 3]).any()
    torch.cuda.synchronize()
    assert int(different) == 0


@needs_gpu
@SOME_ROWS
def test_one_graph_on_two_streams_and_calls_in_between(rows: int) -> None:
    """A captured call has a workspace of its own; CUDA runs a graph once at a time."""
    (x, weights), other = random(rows, 1024, 4096), random(rows, 1024, 4096, seed=5)
    right, right_other = run(x, weights), run(*other)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = [run(x, weights) for _ in range(3)]
    streams = [torch.cuda.Stream() for _ in range(2)]
    between = []
    for i in range(100):
        with torch.cuda.stream(streams[i % 2]):
            graph.replay()
        between.append(run(*other))
    torch.cuda.synchronize()
    assert all(torch.equal(y, right) for y in results)
    assert all(torch.equal(y, right_other) for y in between)


@needs_gpu
@SOME_ROWS
def test_between_launches_the_buffer_whose_turn_it_is_is_clean(rows: int) -> None:
    """What a launch finds is what makes it wait."""
    x, weights = random(rows, 2048, 8192)
    for _ in range(3):
        run(x, weights)
        (slot,) = (
            slot
            for arena in workspace._arenas.values()
            for key, slot in arena._lent.items()
            if key[3] is not None and key[3][:3] == ("few_rows", rows, 8192)
        )
        turn = int(slot[0])
        half = rows * 8192 // 2  # of two numbers each
        buffers = slot[64 : 64 + 2 * half].view(2, half)
        assert not buffers[turn].any()
        assert buffers[1 - turn].any()
