"""The kernels one by one: right at every edge, the same bits every time, counters left zero.

Narrow and decode run in Triton's interpreter where there is no GPU, on small sizes; the
three in Gluon (specialised, streaming, resident) have no interpreter and need a Hopper GPU.
`many_rows`, the specialised one's algorithm in plain Triton, has tests of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton")

from fused_mlp import decode, narrow, workspace

from pytest_kernelprof import KernelProfile

GPU = torch.cuda.is_available()
HOPPER = GPU and torch.cuda.get_device_capability() == (9, 0)
pytestmark = pytest.mark.skipif(GPU and not HOPPER, reason="tuned for Hopper")
needs_gpu = pytest.mark.skipif(not HOPPER, reason="needs a Hopper GPU")

DEVICE = "cuda" if GPU else "cpu"
DTYPES = [torch.bfloat16, torch.float16] if GPU else [torch.float16]
# The interpreter runs programs one after the other: a second time differs by what memory held.
REPEATS = 100 if GPU else 1

ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": F.relu,
    "silu": F.silu,
    "gelu_tanh": lambda a: F.gelu(a, approximate="tanh"),
}


class Operands(NamedTuple):
    """x and the weights of both forms; the plain one takes gate as w1 and down as w2."""

    x: torch.Tensor
    gate: torch.Tensor
    up: torch.Tensor
    down: torch.Tensor
    b1: torch.Tensor
    b2: torch.Tensor


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


def plainly(o: Operands, activation: str) -> torch.Tensor:
    return F.linear(ACTIVATIONS[activation](F.linear(o.x, o.gate, o.b1)), o.down, o.b2)


def gatedly(o: Operands, activation: str) -> torch.Tensor:
    return F.linear(ACTIVATIONS[activation](F.linear(o.x, o.gate)) * F.linear(o.x, o.up), o.down)


def error(got: torch.Tensor, exact: torch.Tensor) -> tuple[float, float]:
    difference = got.double() - exact
    return difference.square().mean().sqrt().item(), difference.abs().max().item()


@dataclass(frozen=True)
class Form:
    """A kernel in one of its forms, what it should give, and sizes to try it on."""

    run: Callable[..., torch.Tensor]
    eager: Callable[[Operands, str], torch.Tensor]
    sizes: tuple[tuple[int, int, int, int], ...]

    def __call__(self, o: Operands, activation: str, **options: Any) -> torch.Tensor:
        if self.eager is gatedly:
            return self.run(o.x, o.gate, o.up, o.down, activation, **options)
        return self.run(o.x, o.gate, o.b1, o.down, o.b2, activation, **options)


def specialised(*args: Any, **options: Any) -> torch.Tensor:
    from fused_mlp.specialised import gated

    return gated(*args, **options)


def streaming(*args: Any, **options: Any) -> torch.Tensor:
    from fused_mlp.streaming import gated

    return gated(*args, **options)


def resident(*args: Any, **options: Any) -> torch.Tensor:
    from fused_mlp.resident import plain

    return plain(*args, **options)


NARROW_SIZES = (
    ((2**16, 64, 64, 64), (1000, 128, 512, 128), (777, 24, 40, 20), (1, 100, 300, 90))
    if GPU
    else ((70, 32, 32, 32), (33, 24, 40, 20), (1, 100, 300, 90))
)
DECODE_SIZES = (
    (*((rows, 1024, 4096, 1024) for rows in (1, 2, 5, 16, 17, 33, 64)), (3, 776, 3080, 760))
    if GPU
    else (*((rows, 64, 128, 64) for rows in (1, 2, 5, 17)), (3, 40, 72, 24))
)
MANY_SIZES = ((8192, 768, 3072, 768), (1000, 200, 1032, 392), (129, 64, 64, 8), (127, 8, 3000, 1))

RESIDENT_SIZES = ((2**16, 128, 128, 128), (1001, 64, 128, 96), (777, 24, 40, 72), (1, 8, 8, 8))

FORMS = {
    "narrow": Form(narrow.plain, plainly, NARROW_SIZES),
    "decode": Form(decode.gated, gatedly, DECODE_SIZES),
    "decode, plain": Form(decode.plain, plainly, DECODE_SIZES),
    "specialised": Form(specialised, gatedly, MANY_SIZES),
    "streaming": Form(streaming, gatedly, (*DECODE_SIZES, (1, 8192, 3584, 8192))),
    "resident": Form(resident, plainly, RESIDENT_SIZES),
}
OF_GLUON = ("specialised", "streaming", "resident")


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
    empty = torch.empty

    def full_of_nan(*args: Any, **kwargs: Any) -> torch.Tensor:
        made = empty(*args, **kwargs)
        return made.fill_(float("nan")) if made.is_floating_point() else made

    monkeypatch.setattr(torch, "empty", full_of_nan)


@pytest.fixture(autouse=True)
def counters_zero() -> Iterator[None]:
    """After each test all slots that were lent are zero again."""
    yield
    for arena in workspace._arenas.values():
        for slot in arena._lent.values():
            assert not slot.any(), "a kernel left a counter"


@EACH_SIZE
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_error_is_no_larger_than_eagers(
    form: Form, sizes: tuple[int, int, int, int], activation: str, dtype: torch.dtype
) -> None:
    """One rounding less than eager: a gated form rounds gate, up and their product together."""
    operands = random(*sizes, dtype)
    exact = form.eager(Operands(*(t.double() for t in operands)), activation)
    eager_rms, eager_max = error(form.eager(operands, activation), exact)
    rms, largest = error(form(operands, activation), exact)
    large = exact.numel() > 4096  # in a small result one number may decide
    bound = 0.8 if form.eager is gatedly else 0.85 if activation == "gelu_tanh" else 1.02
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
    exact = form.eager(Operands(*(t.double() for t in operands)), "relu")
    assert torch.equal(form(operands, "relu").double(), exact)


@EACH_FORM
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_same_bits_every_time(form: Form, dtype: torch.dtype) -> None:
    operands = random(*form.sizes[0], dtype)
    first = form(operands, "silu")
    assert all(torch.equal(form(operands, "silu"), first) for _ in range(REPEATS))


@pytest.mark.parametrize("b1", [True, False], ids=["b1", "no b1"])
@pytest.mark.parametrize("b2", [True, False], ids=["b2", "no b2"])
@pytest.mark.parametrize("name", ["narrow", "decode, plain"])
def test_each_bias_may_be_missing(name: str, b1: bool, b2: bool) -> None:
    o = random(*FORMS[name].sizes[0], torch.float16)
    nothing = Operands(
        *o[:4], o.b1 if b1 else torch.zeros_like(o.b1), o.b2 if b2 else torch.zeros_like(o.b2)
    )
    got = FORMS[name].run(o.x, o.gate, o.b1 if b1 else None, o.down, o.b2 if b2 else None, "relu")
    torch.testing.assert_close(got, plainly(nothing, "relu"), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("pieces", [1, 2, 4])
@pytest.mark.parametrize("rows", [1, 5])
def test_pieces_of_hidden_are_added_in_their_order(rows: int, pieces: int) -> None:
    config = decode.Config(16, 32, 16, 32, pieces, 4, 3, 1, 2)
    operands = random(rows, 64, 256, 64, torch.float16)
    exact = gatedly(Operands(*(t.double() for t in operands)), "silu")
    eager = error(gatedly(operands, "silu"), exact)[0]
    first = FORMS["decode"](operands, "silu", config=config)
    assert error(first, exact)[0] <= 1.25 * eager
    assert torch.equal(FORMS["decode"](operands, "silu", config=config), first)


@pytest.mark.parametrize(
    ("call", "sizes", "words"),
    [
        (FORMS["narrow"], (8, 300, 64, 64), "width and out of 1 to 128"),
        (FORMS["narrow"], (8, 64, 4096, 64), "hidden of 1 to 1024"),
        (FORMS["decode"], (65, 64, 64, 64), "1 to 64 rows"),
        pytest.param(FORMS["specialised"], (8, 60, 64, 64), "multiples of 8", marks=needs_gpu),
        pytest.param(FORMS["streaming"], (65, 64, 64, 64), "1 to 64 rows", marks=needs_gpu),
    ],
)
def test_what_a_kernel_cannot_do_is_refused(
    call: Form, sizes: tuple[int, int, int, int], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        call(random(*sizes, torch.float16), "relu")


@needs_gpu
def test_what_training_keeps_are_the_preactivations() -> None:
    o = random(1000, 768, 3072, 768, torch.bfloat16)
    keep = tuple(o.x.new_empty(1000, 3072) for _ in range(2))
    y = FORMS["specialised"](o, "gelu_tanh", keep=keep)
    assert torch.equal(y, FORMS["specialised"](o, "gelu_tanh"))
    for kept, weight in zip(keep, (o.gate, o.up), strict=True):
        torch.testing.assert_close(kept, F.linear(o.x, weight), rtol=1e-2, atol=1e-2)


@needs_gpu
@pytest.mark.max_kernels(1)
@EACH_FORM
def test_it_is_one_launch(kernel_profile: KernelProfile, form: Form) -> None:
    kernel_profile(form, random(*form.sizes[0], torch.bfloat16), "silu")
    assert kernel_profile.last.kernel_count == 1


@needs_gpu
@EACH_FORM
def test_a_thousand_launches_with_changing_inputs(form: Form) -> None:
    inputs = [random(*form.sizes[0], torch.bfloat16) for _ in range(2)]
    inputs[1] = inputs[1]._replace(x=inputs[1].x.flip(0).contiguous())
    right = [form(operands, "relu") for operands in inputs]
    for i in range(1000):
        assert torch.equal(form(inputs[i % 2], "relu"), right[i % 2])


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
