"""Many rows in one launch: right at every tile's edge, the same bits every time, no deadlock.

Without a GPU the interpreter runs the same kernel on small tiles; there are more of them in a
small problem, so ragged sizes meet all edges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton")

from fused_mlp import many_rows, workspace
from fused_mlp.many_rows import Config, make_plan, tiles_to_cut

from pytest_kernelprof import KernelProfile

GPU = torch.cuda.is_available()
HOPPER = GPU and torch.cuda.get_device_capability() == (9, 0)
pytestmark = pytest.mark.skipif(GPU and not HOPPER, reason="reads by TMA, tuned for Hopper")
needs_gpu = pytest.mark.skipif(not HOPPER, reason="needs a Hopper GPU")

DEVICE = "cuda" if GPU else "cpu"
DTYPES = [torch.bfloat16, torch.float16] if GPU else [torch.float16]
EXACT_DTYPES = DTYPES if GPU else [torch.float16, torch.float32]
SMALL = Config(block_rows=16, block_hidden=16, block_width=16, block_out=32, group=2, warps=4)
BASE = Config() if GPU else SMALL
CONFIGS = {
    "split tail": replace(BASE, tail="split", cut=3),
    "narrow tail": replace(BASE, tail="narrow", cut=3),
    "whole tiles": replace(BASE, tail="whole"),
    "192 columns": replace(BASE, tail="whole", block_out=192),
    "as planned": BASE,
}
# The interpreter runs programs one after the other: a second time differs by what memory held.
REPEATS = 100 if GPU else 1

ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": F.relu,
    "silu": F.silu,
    "gelu_tanh": lambda a: F.gelu(a, approximate="tanh"),
}


class Sizes(NamedTuple):
    """Of a problem."""

    rows: int
    width: int
    hidden: int
    out: int


USUAL = Sizes(8192, 768, 3072, 768) if GPU else Sizes(48, 48, 96, 96)
RAGGED = Sizes(1000, 200, 1032, 392) if GPU else Sizes(35, 40, 72, 56)


class Weights(NamedTuple):
    """x and the weights of both forms; the plain one uses gate as w1 and down as w2."""

    x: torch.Tensor
    gate: torch.Tensor
    up: torch.Tensor
    down: torch.Tensor
    b1: torch.Tensor
    b2: torch.Tensor


def random(sizes: Sizes, dtype: torch.dtype, seed: int = 0) -> Weights:
    rows, width, hidden, out = sizes
    generator = torch.Generator(DEVICE).manual_seed(seed)

    def numbers(*shape: int, scale: float = 1.0) -> torch.Tensor:
        return torch.randn(shape, generator=generator, device=DEVICE).mul_(scale).to(dtype)

    return Weights(
        numbers(rows, width),
        numbers(hidden, width, scale=width**-0.5),
        numbers(hidden, width, scale=width**-0.5),
        numbers(out, hidden, scale=hidden**-0.5),
        numbers(hidden, scale=width**-0.5),
        numbers(out, scale=hidden**-0.5),
    )


def integers(sizes: Sizes, dtype: torch.dtype) -> Weights:
    """Of -1, 0 and 1, few of them not 0, so that all sums are small integers, exact anywhere."""
    generator = torch.Generator(DEVICE).manual_seed(1)

    def numbers(*shape: int, chance: float) -> torch.Tensor:
        some = torch.rand(shape, generator=generator, device=DEVICE) < chance
        sign = torch.randint(0, 2, shape, generator=generator, device=DEVICE) * 2 - 1
        return (some * sign).to(dtype)

    rows, width, hidden, out = sizes
    chance = 8 / width
    return Weights(
        numbers(rows, width, chance=0.5),
        numbers(hidden, width, chance=chance),
        numbers(hidden, width, chance=chance),
        numbers(out, hidden, chance=8 / hidden),
        numbers(hidden, chance=0.5),
        numbers(out, chance=0.5),
    )


def gated(w: Weights, activation: str, config: Config, keep: object = None) -> torch.Tensor:
    return many_rows.gated(w.x, w.gate, w.up, w.down, activation, keep=keep, config=config)


def plain(w: Weights, activation: str, config: Config, keep: object = None) -> torch.Tensor:
    return many_rows.plain(w.x, w.gate, w.b1, w.down, w.b2, activation, keep=keep, config=config)


def exact(w: Weights, activation: str, is_gated: bool) -> torch.Tensor:
    """In float64, from the same rounded inputs."""
    x, gate, up, down, b1, b2 = (tensor.double() for tensor in w)
    if is_gated:
        return (ACTIVATIONS[activation](x @ gate.T) * (x @ up.T)) @ down.T
    return ACTIVATIONS[activation](x @ gate.T + b1) @ down.T + b2


def eager(w: Weights, activation: str, is_gated: bool) -> torch.Tensor:
    """As PyTorch computes on a GPU: in float32 inside an operator, rounded after each."""
    dtype = w.x.dtype

    def rounded(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(dtype).float()

    x, gate, up, down, b1, b2 = (tensor.float() for tensor in w)
    if is_gated:
        h = rounded(rounded(ACTIVATIONS[activation](rounded(x @ gate.T))) * rounded(x @ up.T))
        return rounded(h @ down.T)
    h = rounded(ACTIVATIONS[activation](rounded(x @ gate.T + b1)))
    return rounded(h @ down.T + b2)


def poisoned(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.full(shape, float("nan"), dtype=dtype, device=DEVICE)


@pytest.fixture(autouse=True)
def no_tf32() -> Iterator[None]:
    """Eager here means float32 inside an operator, not TF32."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    yield
    torch.backends.cuda.matmul.allow_tf32 = before


@pytest.fixture(autouse=True)
def poison(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the kernel's host code allocates is full of NaN: y, h and the sums."""
    real = torch.empty

    def empty(*args: object, **kwargs: object) -> torch.Tensor:
        tensor = real(*args, **kwargs)
        return tensor.fill_(float("nan")) if tensor.is_floating_point() else tensor

    monkeypatch.setattr(torch, "empty", empty)


def counters_are_zero() -> bool:
    arenas = workspace._arenas.values()
    return all(not slot.any() for arena in arenas for slot in arena._lent.values())


def errors(y: torch.Tensor, reference: torch.Tensor) -> tuple[float, float]:
    """Root mean square and maximum of the difference."""
    difference = (y.double() - reference).abs()
    return difference.square().mean().sqrt().item(), difference.max().item()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", [USUAL, RAGGED], ids=["usual", "ragged"])
@pytest.mark.parametrize(
    ("activation", "is_gated", "share"),
    [
        ("gelu_tanh", True, 0.8),
        ("silu", True, 0.8),
        ("relu", True, 0.85),
        ("gelu_tanh", False, 0.85),
        ("silu", False, 0.85),
        ("relu", False, 1.02),
    ],
)
def test_the_error_is_no_larger_than_eagers(
    dtype: torch.dtype, sizes: Sizes, activation: str, is_gated: bool, share: float
) -> None:
    """One rounding less, or two: h is rounded once, where eager rounds each operator's result.
    Plain ReLU rounds as often as eager does."""
    w = random(sizes, dtype)
    y = (gated if is_gated else plain)(w, activation, BASE)
    reference = exact(w, activation, is_gated)
    ours, eagers = errors(y, reference), errors(eager(w, activation, is_gated), reference)
    assert ours[0] <= share * eagers[0]
    assert ours[1] <= 1.25 * eagers[1]
    assert y.dtype is dtype


@pytest.mark.parametrize("is_gated", [True, False], ids=["gated", "plain"])
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("dtype", EXACT_DTYPES)
@pytest.mark.parametrize("sizes", [USUAL, RAGGED], ids=["usual", "ragged"])
def test_integers_come_out_exactly(
    sizes: Sizes, dtype: torch.dtype, config: Config, is_gated: bool
) -> None:
    """A tile left out, done twice or read too early cannot hide in a tolerance. Small integers
    are exact in bfloat16 up to 256, so the reference is rounded as the kernel does: h, then y."""
    w = integers(sizes, dtype)
    y = (gated if is_gated else plain)(w, "relu", config)
    x, gate, up, down, b1, b2 = (tensor.double() for tensor in w)
    h = F.relu(x @ gate.T) * (x @ up.T) if is_gated else F.relu(x @ gate.T + b1)
    reference = h.to(dtype).double() @ down.T + (0 if is_gated else b2)
    assert torch.equal(y, reference.to(dtype))
    assert counters_are_zero()


def around(tile: int) -> list[int]:
    return [1, 2, tile - 1, tile, tile + 1, 2 * tile - 1, 2 * tile + 1, 3 * tile + 5]


@pytest.mark.parametrize("rows", around(BASE.block_rows))
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_any_number_of_rows(rows: int, config: Config) -> None:
    w = integers(RAGGED._replace(rows=rows), torch.float16)
    assert torch.equal(gated(w, "relu", config), exact(w, "relu", True).half())
    assert torch.equal(plain(w, "relu", config), exact(w, "relu", False).half())
    assert counters_are_zero()


@pytest.mark.parametrize("out", [1, 3, 8, 31, 32, 33, 63, 65, 127, 129, 191, 193, 257])
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_any_number_of_columns_of_y(out: int, config: Config) -> None:
    w = integers(Sizes(BASE.block_rows + 1, 24, 40, out), torch.float16)
    assert torch.equal(gated(w, "relu", config), exact(w, "relu", True).half())


@pytest.mark.parametrize("hidden", [8, 16, 24, 64, 120, 128, 136, 264])
@pytest.mark.parametrize("width", [8, 24, 64, 72])
def test_ragged_steps_along_k_add_nothing(width: int, hidden: int) -> None:
    """Beyond the edge TMA gives zeros, whatever lies in memory there: here, NaN."""
    w = integers(Sizes(20, width, hidden, 40), torch.float16)
    padded = []
    for tensor in w[:4]:
        memory = poisoned(tensor.numel() + 4096, dtype=tensor.dtype)
        memory[: tensor.numel()] = tensor.reshape(-1)
        padded.append(memory[: tensor.numel()].view(tensor.shape))
    y = gated(Weights(*padded, *w[4:]), "relu", CONFIGS["split tail"])
    assert torch.equal(y, exact(w, "relu", True).half())


@pytest.mark.parametrize("b1", [True, False], ids=["b1", "no b1"])
@pytest.mark.parametrize("b2", [True, False], ids=["b2", "no b2"])
def test_each_bias_may_be_missing(b1: bool, b2: bool) -> None:
    w = integers(RAGGED, torch.float16)
    first, second = w.b1 if b1 else None, w.b2 if b2 else None
    zeroed = w._replace(b1=w.b1 * b1, b2=w.b2 * b2)
    y = many_rows.plain(w.x, w.gate, first, w.down, second, "relu", config=BASE)
    assert torch.equal(y, exact(zeroed, "relu", False).half())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("is_gated", [True, False], ids=["gated", "plain"])
def test_the_same_bits_every_time(dtype: torch.dtype, config: Config, is_gated: bool) -> None:
    w = random(USUAL if GPU else RAGGED, dtype)
    run = gated if is_gated else plain
    first = run(w, "gelu_tanh", config)
    assert not first.isnan().any()
    assert all(torch.equal(run(w, "gelu_tanh", config), first) for _ in range(REPEATS))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", [USUAL, RAGGED], ids=["usual", "ragged"])
def test_keep_receives_the_preactivations_and_changes_nothing(
    dtype: torch.dtype, sizes: Sizes
) -> None:
    w = random(sizes, dtype)
    kept = [poisoned(sizes.rows, sizes.hidden, dtype=dtype) for _ in range(3)]
    assert torch.equal(gated(w, "silu", BASE, (kept[0], kept[1])), gated(w, "silu", BASE))
    assert torch.equal(plain(w, "silu", BASE, kept[2]), plain(w, "silu", BASE))
    x, gate, up, _, b1, _ = (tensor.double() for tensor in w)
    for tensor, reference in zip(kept, (x @ gate.T, x @ up.T, x @ gate.T + b1), strict=True):
        rounding = torch.finfo(dtype).eps / 2
        torch.testing.assert_close(
            tensor.double(), reference, rtol=1.01 * rounding, atol=1e-5 + 1e-8 / rounding
        )


@pytest.mark.filterwarnings("ignore:.* encountered in:RuntimeWarning")
def test_nan_and_infinity_stay_in_their_row() -> None:
    w = random(RAGGED, torch.float16)
    clean = gated(w, "silu", BASE)
    x = w.x.clone()
    x[3, 5], x[9, 0] = float("nan"), float("inf")
    y = gated(w._replace(x=x), "silu", BASE)
    others = [row for row in range(RAGGED.rows) if row not in (3, 9)]
    assert y[3].isnan().all()
    assert not y[9].isfinite().any()
    assert torch.equal(y[others], clean[others])


@pytest.mark.filterwarnings("ignore:.* encountered in:RuntimeWarning")
def test_large_preactivations_neither_overflow_nor_vanish() -> None:
    """Far from 0 the activations are 0 or their argument."""
    w = random(RAGGED, torch.float16)
    big = w._replace(gate=w.gate * 100, down=w.down / 100)
    for activation in ACTIVATIONS:
        y, reference = gated(big, activation, BASE), exact(big, activation, True)
        assert y.isfinite().all()
        torch.testing.assert_close(y.double(), reference, rtol=1e-2, atol=1e-2)


def test_what_the_kernel_cannot_do_is_refused() -> None:
    dtype = torch.float16
    assert many_rows.supports(5, 16, 24, 7, dtype)
    assert not many_rows.supports(5, 12, 24, 8, dtype)
    assert not many_rows.supports(5, 16, 20, 8, dtype)
    assert not many_rows.supports(0, 16, 24, 8, dtype)
    assert not many_rows.supports(5, 16, 24, 8, torch.float64)
    memory = torch.zeros(5 * 16 + 1, dtype=dtype, device=DEVICE)
    unaligned, strided = memory[1:].view(5, 16), memory[:80].view(16, 5).t()
    assert not many_rows.supports(5, 16, 24, 8, dtype, unaligned)
    assert not many_rows.supports(5, 16, 24, 8, dtype, strided)
    w = random(Sizes(5, 12, 24, 8), dtype)
    with pytest.raises(ValueError, match="multiples of 8"):
        gated(w, "relu", BASE)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"tail": "short"}, "tail: expected whole, narrow or split, got 'short'"),
        ({"block_rows": 96}, "expected powers of two"),
        ({"block_out": 192, "tail": "split"}, "a block_out of 192 goes with whole tiles"),
    ],
)
def test_a_wrong_config_says_so(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Config(**wrong)


def test_the_plan_cuts_what_does_not_fill_a_wave() -> None:
    """192 tiles on 132 SMs: a wave and 60 tiles. Narrow halves cost more than half a tile, so only
    those are cut that would begin last."""
    sizes = (8192, 768, 3072, 768)
    for tail, least in (("split", 50), ("narrow", 10)):
        plan = make_plan(*sizes, True, 132, Config(tail=tail))
        assert least <= plan.cut_tiles <= 66
        assert plan.whole_tiles + plan.cut_tiles == 192
        assert plan.ints == 2 + 64 + plan.cut_tiles
    assert make_plan(*sizes, True, 132, Config(tail="whole")).cut_tiles == 0
    assert make_plan(*sizes, True, 132, Config(cut=1000)).cut_tiles == 192
    assert make_plan(1, 8, 8, 8, True, 132, Config()).programs == 1


def test_cutting_is_left_where_it_does_not_help() -> None:
    assert tiles_to_cut(132 * 10, 132 * 2, 132, (10.0, 40.0, 25.0)) == 0
    assert tiles_to_cut(132 * 10, 132 + 60, 132, (10.0, 40.0, 40.0)) == 0
    assert 50 <= tiles_to_cut(132 * 10, 132 + 60, 132, (10.0, 40.0, 22.0)) <= 66


@pytest.mark.parametrize("programs", [1, 2, 7])
def test_any_number_of_programs_gives_the_same_bits(
    programs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing waits for a program that has not begun, so even one alone does it all."""
    w = random(RAGGED, torch.float16)
    reference = gated(w, "silu", CONFIGS["split tail"])
    monkeypatch.setattr(many_rows, "_programs", lambda device, config: programs)
    assert torch.equal(gated(w, "silu", CONFIGS["split tail"]), reference)
    assert counters_are_zero()


@needs_gpu
@pytest.mark.max_kernels(1)
@pytest.mark.parametrize("keep", [False, True], ids=["inference", "training"])
def test_it_is_one_launch(
    kernel_profile: KernelProfile, monkeypatch: pytest.MonkeyPatch, keep: bool
) -> None:
    monkeypatch.undo()  # the poison would be a kernel of its own
    w = random(USUAL, torch.bfloat16)
    kept = [torch.zeros(USUAL.rows, USUAL.hidden, device="cuda").bfloat16() for _ in range(2)]
    kernel_profile(gated, w, "gelu_tanh", BASE, tuple(kept) if keep else None)


@needs_gpu
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_a_thousand_launches_with_changing_inputs(config: Config) -> None:
    """Stale numbers of the launch before would be wrong ones here."""
    inputs = [integers(Sizes(300, 128, 512, 512), torch.bfloat16)]
    inputs += [inputs[0]._replace(x=inputs[0].x.roll(i + 1, 1)) for i in range(3)]
    references = [gated(w, "relu", config) for w in inputs]
    wrong = torch.zeros((), dtype=torch.int64, device="cuda")
    for i in range(1000):
        wrong += (gated(inputs[i % 4], "relu", config) != references[i % 4]).sum()
    assert wrong.item() == 0
    assert counters_are_zero()


@needs_gpu
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_it_ends_while_another_stream_holds_most_of_the_gpu(config: Config) -> None:
    """Programs then begin late, a few at a time; those that began must not wait for them."""
    w = random(USUAL, torch.bfloat16)
    reference = gated(w, "gelu_tanh", config)
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    other = torch.cuda.Stream()
    other.wait_stream(torch.cuda.current_stream())
    for _ in range(10):
        with torch.cuda.stream(other):
            for _ in range(3):
                torch.mm(a, a)
        assert torch.equal(gated(w, "gelu_tanh", config), reference)
    torch.cuda.synchronize()


@needs_gpu
def test_two_streams_at_once() -> None:
    inputs = [random(Sizes(2048, 256, 1024, 512), torch.bfloat16, seed=s) for s in range(2)]
    references = [gated(w, "silu", BASE) for w in inputs]
    streams = [torch.cuda.Stream() for _ in inputs]
    for stream in streams:
        stream.wait_stream(torch.cuda.current_stream())
    results: list[list[torch.Tensor]] = [[], []]
    for _ in range(50):
        for i, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                results[i].append(gated(inputs[i], "silu", BASE))
    torch.cuda.synchronize()
    for mine, reference in zip(results, references, strict=True):
        assert all(torch.equal(y, reference) for y in mine)


@needs_gpu
def test_two_graphs_captured_on_one_stream_replay_at_once() -> None:
    """Each captured call has counters of its own."""
    inputs = [random(Sizes(2048, 256, 1024, 512), torch.bfloat16, seed=s) for s in range(2)]
    references = [gated(w, "silu", BASE) for w in inputs]
    graphs, outputs = [], []
    for w in inputs:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            outputs.append([gated(w, "silu", BASE) for _ in range(3)])
        graphs.append(graph)
    streams = [torch.cuda.Stream() for _ in graphs]
    for _ in range(50):
        for graph, stream in zip(graphs, streams, strict=True):
            with torch.cuda.stream(stream):
                graph.replay()
    torch.cuda.synchronize()
    for mine, reference in zip(outputs, references, strict=True):
        assert all(torch.equal(y, reference) for y in mine)
