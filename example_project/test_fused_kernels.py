"""The kernels one by one: right at every edge, the same bits every time, counters left zero.

Narrow runs in Triton's interpreter where there is no GPU, on small sizes; those in Gluon
(specialised, few_rows, resident) have no interpreter and need a Hopper GPU.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton")

from fused_mlp import dispatch, narrow, tensor_maps, workspace
from fused_mlp.eager import eager
from fused_mlp.problem import Problem
from fused_mlp.weights import Weights

from pytest_kernelprof import KernelProfile

GPU = torch.cuda.is_available()
HOPPER = GPU and torch.cuda.get_device_capability() == (9, 0)
pytestmark = pytest.mark.skipif(GPU and not HOPPER, reason="tuned for Hopper")
needs_gpu = pytest.mark.skipif(not HOPPER, reason="needs a Hopper GPU")

DEVICE = "cuda" if GPU else "cpu"
DTYPES = [torch.bfloat16, torch.float16] if GPU else [torch.float16]
# The interpreter runs programs one after the other: a second time differs by what memory held.
REPEATS = 100 if GPU else 1

ACTIVATIONS = ("relu", "silu", "gelu_tanh")


class Operands(NamedTuple):
    """x, the weights of a gated MLP, and biases: a plain one takes gate and down with those."""

    x: torch.Tensor
    gate: torch.Tensor
    up: torch.Tensor
    down: torch.Tensor
    b1: torch.Tensor
    b2: torch.Tensor

    def weights(self, gated: bool) -> Weights:
        if gated:
            return Weights(self.gate, self.up, self.down)
        return Weights(self.gate, None, self.down, self.b1, self.b2)


def random(rows: int, width: int, hidden: int, out: int, dtype: torch.dtype) -> Operands:
    generator = torch.Generator(DEVICE).manual_seed(rows + width)

    def numbers(*shape: int, scale: float = 1.0) -> torch.Tensor:
        return torch.randn(shape, generator=generator, device=DEVICE).mul_(scale).to(dtype)

    into, back = width**-0.5, hidden**-0.5
    return Operands(
        numbers(rows, width),
        numbers(hidden, width, scale=into),
        numbers(hidden, width, scale=into),
        numbers(out, hidden, scale=back),
        numbers(hidden, scale=into),
        numbers(out, scale=back),
    )


def error(got: torch.Tensor, exact: torch.Tensor) -> tuple[float, float]:
    difference = got.double() - exact
    return difference.square().mean().sqrt().item(), difference.abs().max().item()


@dataclass(frozen=True)
class Form:
    """A kernel of the dispatch, and sizes to try it on: rows, width, hidden, out."""

    kernel: dispatch.Kernel
    gated: bool
    sizes: tuple[tuple[int, int, int, int], ...]

    def __call__(self, o: Operands, activation: str) -> torch.Tensor:
        """Launched as the dispatch does it; a launch that fails is an error here."""
        return dispatch._launch(self.kernel, o.x, o.weights(self.gated), activation)

    def eager(self, o: Operands, activation: str) -> torch.Tensor:
        return eager(o.x, o.weights(self.gated), activation)

    def exact(self, o: Operands, activation: str) -> torch.Tensor:
        return self.eager(Operands(*(t.double() for t in o)), activation)


NARROW_SIZES = (
    ((2**16, 64, 64, 64), (1000, 128, 512, 128), (777, 24, 40, 20), (1, 100, 300, 90))
    if GPU
    else ((70, 32, 32, 32), (33, 24, 40, 20), (1, 100, 300, 90))
)
FEW_ROWS_SIZES = (
    *((rows, 1024, 4096, 1024) for rows in (4, 1, 2, 5, 16)),
    *((1, 776, 3080, 760), (1, 8192, 3584, 8192), (1, 4096, 14336, 4096)),
    *((3, 776, 3080, 760), (9, 2048, 8192, 2048), (16, 4096, 14336, 4096), (4, 8192, 3584, 8192)),
)
MANY_SIZES = ((8192, 768, 3072, 768), (1000, 200, 1032, 392), (129, 64, 64, 8), (127, 8, 3000, 1))
RESIDENT_SIZES = ((2**16, 128, 128, 128), (1001, 64, 128, 96), (777, 24, 40, 72), (1, 8, 8, 8))

FORMS = {
    "narrow": Form("narrow", False, NARROW_SIZES),
    "specialised": Form("specialised", True, MANY_SIZES),
    "few_rows": Form("few_rows", True, FEW_ROWS_SIZES),
    "resident": Form("resident", False, RESIDENT_SIZES),
}
OF_GLUON = ("specialised", "few_rows", "resident")


def only_on_a_gpu(name: str) -> Any:
    return [needs_gpu] if name in OF_GLUON else []


EACH_FORM = pytest.mark.parametrize(
    "form", [pytest.param(form, id=name, marks=only_on_a_gpu(name)) for name, form in FORMS.items()]
)
EACH_SIZE = pytest.mark.parametrize(
    ("form", "sizes"),
    [
        pytest.param(form, sizes, id=f"{name} {sizes}", marks=only_on_a_gpu(name))
        for name, form in FORMS.items()
        for sizes in form.sizes
    ],
)


@pytest.fixture(autouse=True)
def poisoned(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Fresh tensors hold NaN: whatever a kernel forgets to write, or reads too early, shows.

    Not where kernels are counted: the poison is one.
    """
    if request.node.get_closest_marker("max_kernels"):
        return
    empty = torch.Tensor.new_empty

    def full_of_nan(*args: Any, **kwargs: Any) -> torch.Tensor:
        made = empty(*args, **kwargs)
        return made.fill_(float("nan")) if made.is_floating_point() else made

    monkeypatch.setattr(torch.Tensor, "new_empty", full_of_nan)


@pytest.fixture(autouse=True)
def counters_zero() -> Iterator[None]:
    """After each test all slots that were lent for counters are zero again."""
    yield
    for arena in workspace._arenas.values():
        for (*_, use), slot in arena._lent.items():
            assert use is not None or not slot.any(), "a kernel left a counter"


@EACH_SIZE
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_error_is_no_larger_than_eagers(
    form: Form, sizes: tuple[int, int, int, int], activation: str, dtype: torch.dtype
) -> None:
    """One rounding less than eager: a gated form rounds gate, up and their product together."""
    operands = random(*sizes, dtype)
    exact = form.exact(operands, activation)
    eager_rms, eager_max = error(form.eager(operands, activation), exact)
    rms, largest = error(form(operands, activation), exact)
    large = exact.numel() > 4096  # in a small result one number may decide
    bound = 0.8 if form.gated else 0.85 if activation == "gelu_tanh" else 1.02
    assert rms <= eager_rms * (bound if large else 1.25)
    assert largest <= eager_max * (1.25 if large else 2.0)


@EACH_SIZE
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_integers_come_out_exactly(
    form: Form, sizes: tuple[int, int, int, int], dtype: torch.dtype
) -> None:
    """Sparse small integers: every sum is exact in any order, so every number must be right."""
    rows, width, hidden, out = sizes
    generator = torch.Generator(DEVICE).manual_seed(1)

    def sparse(*shape: int) -> torch.Tensor:
        chance = torch.rand(shape, generator=generator, device=DEVICE)
        limit = 2.0 / shape[-1]
        return ((chance < limit).float() - (chance > 1 - limit).float()).to(dtype)

    operands = Operands(
        sparse(rows, width).abs() + sparse(rows, width),
        sparse(hidden, width),
        sparse(hidden, width),
        sparse(out, hidden),
        sparse(1, hidden)[0],
        sparse(1, out)[0],
    )
    exact = form.exact(operands, "relu")
    assert torch.equal(form(operands, "relu").double(), exact)


@EACH_FORM
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_same_bits_every_time(form: Form, dtype: torch.dtype) -> None:
    operands = random(*form.sizes[0], dtype)
    first = form(operands, "silu")
    assert all(torch.equal(form(operands, "silu"), first) for _ in range(REPEATS))


EACH_FORM_WITH_BIASES = pytest.mark.parametrize(
    "form",
    [
        pytest.param(form, id=name, marks=only_on_a_gpu(name))
        for name, form in FORMS.items()
        if not form.gated
    ],
)


@pytest.mark.parametrize("b1", [True, False], ids=["b1", "no b1"])
@pytest.mark.parametrize("b2", [True, False], ids=["b2", "no b2"])
@EACH_FORM_WITH_BIASES
def test_each_bias_may_be_missing(form: Form, b1: bool, b2: bool) -> None:
    o = random(*form.sizes[0], torch.float16)
    weights = Weights(o.gate, None, o.down, o.b1 if b1 else None, o.b2 if b2 else None)
    got = dispatch._launch(form.kernel, o.x, weights, "relu")
    torch.testing.assert_close(got, eager(o.x, weights, "relu"), rtol=2e-2, atol=2e-2)


@pytest.mark.filterwarnings("ignore:.* encountered in:RuntimeWarning")
@EACH_SIZE
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")], ids=str)
def test_nan_and_infinity_flow_as_in_eager(
    form: Form, sizes: tuple[int, int, int, int], activation: str, value: float
) -> None:
    """Signs and all, through weights of one sign; other rows are untouched. Tiles are filled up
    with zeros beyond the edges, and infinity times zero is no zero."""
    o = random(*sizes, DTYPES[0])
    o = Operands(o.x, *(t.abs() for t in o[1:]))
    clean = form(o, activation)
    x = o.x.clone()
    x[-1, 0] = value
    got = form(o._replace(x=x), activation)
    right = form.eager(o._replace(x=x), activation)
    torch.testing.assert_close(got[-1], right[-1], rtol=2e-2, atol=2e-2, equal_nan=True)
    assert torch.equal(got[:-1], clean[:-1])


@pytest.mark.parametrize(
    ("name", "sizes", "words"),
    [
        ("narrow", (8, 300, 64, 64), "width and out of 1 to 128"),
        ("narrow", (8, 64, 4096, 64), "hidden of 1 to 1024"),
        ("resident", (8, 60, 64, 64), "multiples of 8"),
        ("specialised", (8, 60, 64, 64), "multiples of 8"),
        ("few_rows", (17, 64, 64, 64), "1 to 16 rows"),
    ],
)
def test_what_a_kernel_cannot_do_is_refused(
    name: str, sizes: tuple[int, int, int, int], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        FORMS[name](random(*sizes, torch.float16), "relu")


@pytest.mark.parametrize(("programs", "rows"), [(7, 1000), (7, 3), (1, 1000)])
def test_the_grid_follows_the_device_at_hand(
    monkeypatch: pytest.MonkeyPatch, programs: int, rows: int
) -> None:
    """A slice of a GPU has fewer SMs than the GPU: as many programs as there are, or as rows."""
    monkeypatch.setattr(narrow, "sms", lambda index: programs)
    p = Problem(rows, 64, 256, 64, False, "relu", torch.float16, (9, 0))
    config = narrow.config_for(64, 256, 64)
    plan = narrow.make_plan.__wrapped__(p, torch.device("cuda", 0))
    assert plan.programs == min(programs * config.residents, -(-rows // config.block_rows))


@needs_gpu
@EACH_FORM
def test_any_number_of_programs_gives_the_same_bits(
    form: Form, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a slice with so many SMs, one of them included."""
    import importlib

    o = random(*form.sizes[1], torch.bfloat16)
    right = form(o, "silu")
    module = importlib.import_module(f"fused_mlp.{form.kernel}")
    if form.kernel == "few_rows":
        pytest.skip("sums are cut as programs are many")
    monkeypatch.setattr(module, "make_plan", module.make_plan.__wrapped__)
    for programs in (1, 7, 100):
        monkeypatch.setattr(module, "sms", lambda index, programs=programs: programs)
        assert torch.equal(form(o, "silu"), right)


@needs_gpu
@pytest.mark.parametrize("name", ["narrow", "resident"])
def test_more_than_two_thousand_million_numbers(name: str) -> None:
    """2^24 + 5 rows of 128: the last lie beyond 2^31 numbers, where 32-bit offsets wrap around."""
    rows = 2**24 + 5
    small = random(1024, 128, 128, 128, torch.bfloat16)
    x = small.x.repeat(rows // 1024 + 1, 1)[:rows]
    y = FORMS[name](small._replace(x=x), "relu")
    right = FORMS[name](small, "relu")
    assert torch.equal(y[: 2**24].view(-1, 1024, 128), right.expand(2**14, 1024, 128))
    assert torch.equal(y[2**24 :], right[:5])


@needs_gpu
def test_what_training_keeps_are_the_preactivations_and_h() -> None:
    o = random(1000, 768, 3072, 768, torch.bfloat16)
    keep = tuple(o.x.new_empty(1000, 3072) for _ in range(3))
    weights = o.weights(True)
    y = dispatch.specialised.specialised(o.x, weights, "gelu_tanh", keep=keep)
    assert torch.equal(y, FORMS["specialised"](o, "gelu_tanh"))
    gate, up, h = keep
    for kept, weight in ((gate, o.gate), (up, o.up)):
        torch.testing.assert_close(kept, F.linear(o.x, weight), rtol=1e-2, atol=1e-2)
    of_both = F.gelu(gate, approximate="tanh") * up
    torch.testing.assert_close(h, of_both, rtol=2e-2, atol=2e-2)


@needs_gpu
@pytest.mark.max_kernels(1)
@EACH_FORM
def test_it_is_one_launch(kernel_profile: KernelProfile, form: Form) -> None:
    kernel_profile(form, random(*form.sizes[0], torch.bfloat16), "silu")
    assert kernel_profile.last.kernel_count == 1


@needs_gpu
@EACH_FORM
def test_a_thousand_launches_with_changing_inputs_beside_a_busy_stream(form: Form) -> None:
    """Bitwise, with no synchronisation in between."""
    inputs = [random(*form.sizes[0], torch.bfloat16) for _ in range(2)]
    inputs[1] = inputs[1]._replace(x=inputs[1].x.flip(0).contiguous())
    right = [form(operands, "relu") for operands in inputs]
    busy, side = torch.randn(4096, 4096, device=DEVICE, dtype=torch.bfloat16), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    different = torch.zeros((), dtype=torch.int64, device=DEVICE)
    for i in range(1000):
        if i % 5 == 0:
            with torch.cuda.stream(side):
                busy @ busy
        different += (form(inputs[i % 2], "relu") != right[i % 2]).any()
    torch.cuda.synchronize()
    assert int(different) == 0


@needs_gpu
@EACH_FORM
def test_it_ends_while_another_stream_holds_most_of_the_gpu(form: Form) -> None:
    operands = random(*form.sizes[0], torch.bfloat16)
    right = form(operands, "relu")
    busy = torch.randn(8192, 8192, device=DEVICE, dtype=torch.bfloat16)
    other = torch.cuda.Stream()
    with torch.cuda.stream(other):
        for _ in range(20):
            busy = busy @ busy
    for _ in range(20):
        assert torch.equal(form(operands, "relu"), right)
    torch.cuda.synchronize()


@needs_gpu
@EACH_FORM
def test_two_streams_at_once(form: Form) -> None:
    operands = random(*form.sizes[0], torch.bfloat16)
    right = form(operands, "relu")
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in range(2)]
    results = []
    for _ in range(50):
        for stream in streams:
            with torch.cuda.stream(stream):
                results.append(form(operands, "relu"))
    torch.cuda.synchronize()
    assert all(torch.equal(result, right) for result in results)


@needs_gpu
@EACH_FORM
def test_two_graphs_captured_on_one_stream_replay_at_once(form: Form) -> None:
    operands = random(*form.sizes[0], torch.bfloat16)
    right = form(operands, "relu")
    torch.cuda.synchronize()
    graphs, results = [], []
    for _ in range(2):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            results.append(form(operands, "relu"))
        graphs.append(graph)
    streams = [torch.cuda.Stream() for _ in graphs]
    for _ in range(50):
        for stream, graph in zip(streams, graphs, strict=True):
            with torch.cuda.stream(stream):
                graph.replay()
    torch.cuda.synchronize()
    assert all(torch.equal(result, right) for result in results)


@needs_gpu
@EACH_FORM
def test_storage_that_was_freed_and_used_again(form: Form) -> None:
    """Other tensors at the same addresses, of other sizes: none is taken for what lay there."""
    places = set()
    for sizes in [form.sizes[0], form.sizes[1], form.sizes[0]] * 3:
        o = random(*sizes, torch.bfloat16)
        places.add(o.gate.data_ptr())
        torch.testing.assert_close(form(o, "silu"), form.eager(o, "silu"), rtol=2e-2, atol=2e-2)
        del o
        gc.collect()
    assert len(places) < 9, "no storage was used again"


@needs_gpu
@EACH_FORM
def test_views_into_one_storage(form: Form) -> None:
    """The layers of a model that lie side by side, and a view of x."""
    o = random(*form.sizes[0], torch.bfloat16)
    right = form(o, "silu")
    hidden, rows = o.gate.shape[0], o.x.shape[0]
    both = torch.cat([torch.zeros_like(o.gate), o.gate, o.up])
    gate, up = both[hidden : 2 * hidden], both[2 * hidden :]
    x = torch.cat([torch.ones_like(o.x), o.x])[rows:]
    assert torch.equal(form(o._replace(x=x, gate=gate, up=up), "silu"), right)


@needs_gpu
@EACH_FORM
def test_threads_on_their_streams(form: Form) -> None:
    o = random(*form.sizes[0], torch.bfloat16)
    right = form(o, "silu")
    torch.cuda.synchronize()
    wrong: list[int] = []

    def calls() -> None:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            got = [form(o, "silu") for _ in range(20)]
        stream.synchronize()
        wrong.append(sum(not torch.equal(y, right) for y in got))

    threads = [threading.Thread(target=calls) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [0] * 4


@needs_gpu
@EACH_FORM
def test_a_graph_keeps_its_maps_when_they_are_forgotten(form: Form) -> None:
    o, other = (random(*form.sizes[0], torch.bfloat16) for _ in range(2))
    right = form(o, "silu")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = form(o, "silu")
    tensor_maps._known.clear()
    form(other, "relu")
    for _ in range(2):
        y.zero_()
        graph.replay()
        assert torch.equal(y, right)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@pytest.mark.filterwarnings("error:fused_mlp goes to PyTorch")
@EACH_FORM
def test_two_devices_in_turn(form: Form) -> None:
    """With theirs and with another one as the current device."""
    o = random(*form.sizes[0], torch.bfloat16)
    right = form(o, "silu").cpu()
    for index in (1, 0, 1):
        there = Operands(*(t.to(f"cuda:{index}") for t in o))
        weights = there.weights(form.gated)
        for current in (0, 1):
            with torch.cuda.device(current):
                got = dispatch.run(form.kernel, there.x, weights, "silu")
            assert torch.equal(got.cpu(), right)
