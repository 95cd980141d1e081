"""The two calls: any shape and dtype that eager takes, the same numbers, and words for the rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from fused_mlp import dispatch
from fused_mlp.eager import eager
from fused_mlp.functional import gated_mlp, mlp
from fused_mlp.problem import ACTIVATIONS
from fused_mlp.weights import Weights
from torch.autograd import forward_ad

WIDTH, HIDDEN, OUT = 24, 40, 16


def random(*shape: int, device: str, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return (torch.randn(shape, device=device) / shape[-1] ** 0.5).to(dtype)


def plain_weights(device: str, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(1)
    shapes = ((HIDDEN, WIDTH), (HIDDEN,), (OUT, HIDDEN), (OUT,))
    return tuple(random(*shape, device=device, dtype=dtype) for shape in shapes)


def gated_weights(device: str, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(1)
    shapes = ((HIDDEN, WIDTH), (HIDDEN, WIDTH), (OUT, HIDDEN))
    return tuple(random(*shape, device=device, dtype=dtype) for shape in shapes)


def eager_plain(x, w1, b1, w2, b2, activation: str = "gelu_tanh") -> torch.Tensor:
    return eager(x, Weights(w1, None, w2, b1, b2), activation)


def eager_gated(x, gate, up, down, activation: str = "gelu_tanh") -> torch.Tensor:
    return eager(x, Weights(gate, up, down), activation)


FORMS = [
    pytest.param(mlp, eager_plain, plain_weights, id="plain"),
    pytest.param(gated_mlp, eager_gated, gated_weights, id="gated"),
]
EACH_FORM = pytest.mark.parametrize(("fused", "by_pytorch", "make"), FORMS)


@EACH_FORM
@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
def test_both_forms_agree_with_eager(
    kernelprof_device: str, activation: str, fused, by_pytorch, make
) -> None:
    x = random(9, WIDTH, device=kernelprof_device)
    weights = make(kernelprof_device)
    torch.testing.assert_close(fused(x, *weights, activation), by_pytorch(x, *weights, activation))


@pytest.mark.parametrize("forced", [False, True], ids=["by PyTorch", "by a kernel"])
@pytest.mark.parametrize("leading", [(), (5,), (2, 3), (2, 1, 3), (0,), (2, 0)])
def test_any_leading_dimensions_and_no_rows_at_all(
    kernelprof_device: str, leading: tuple[int, ...], forced: bool
) -> None:
    """The kernel: narrow, which the interpreter knows."""
    x = random(*leading, WIDTH, device=kernelprof_device, dtype=torch.float16)
    weights = plain_weights(kernelprof_device, torch.float16)
    kernel = "narrow" if forced and x.numel() else "pytorch"
    with dispatch.forced(kernel) if forced else torch.no_grad():
        y = mlp(x, *weights)
    assert y.shape == (*leading, OUT)
    torch.testing.assert_close(y, eager_plain(x, *weights), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("size", ["hidden", "out"])
def test_sizes_of_zero(kernelprof_device: str, size: str) -> None:
    hidden, out = (0, OUT) if size == "hidden" else (HIDDEN, 0)
    x = random(3, WIDTH, device=kernelprof_device)
    gate, up = (torch.ones(hidden, WIDTH, device=kernelprof_device) for _ in range(2))
    y = gated_mlp(x, gate, up, torch.ones(out, hidden, device=kernelprof_device))
    assert y.shape == (3, out)
    assert not y.any()


def test_strided_inputs_and_weights(kernelprof_device: str) -> None:
    x = random(3, WIDTH, 5, device=kernelprof_device).transpose(1, 2)
    gate, up, down = (w.t().contiguous().t() for w in gated_weights(kernelprof_device))
    assert not gate.is_contiguous()
    torch.testing.assert_close(gated_mlp(x, gate, up, down), eager_gated(x, gate, up, down))


def test_a_strided_x_reaches_a_kernel_as_a_copy(kernelprof_device: str) -> None:
    x = random(3, WIDTH, 5, device=kernelprof_device, dtype=torch.float16).transpose(1, 2)
    weights = plain_weights(kernelprof_device, torch.float16)
    with dispatch.forced("narrow"):
        y = mlp(x, *weights, "relu")
    torch.testing.assert_close(y, eager_plain(x, *weights, "relu"), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("bias", [torch.float32, torch.bfloat16])
def test_autocast_casts_as_it_does_for_linear(kernelprof_device: str, bias: torch.dtype) -> None:
    """Whatever the mixture: x and some weights in one dtype, the others in another."""
    x = random(4, WIDTH, device=kernelprof_device)
    w1, b1, w2, b2 = plain_weights(kernelprof_device)
    weights = [w1, b1.to(bias), w2.to(bias), b2]
    leaves = [w.requires_grad_() for w in weights]
    with torch.autocast(kernelprof_device, dtype=torch.bfloat16):
        y, expected = mlp(x, *leaves), eager_plain(x, *leaves)
    assert y.dtype is expected.dtype is torch.bfloat16
    assert torch.equal(y, expected)
    y.float().square().sum().backward()
    assert [w.grad.dtype for w in leaves] == [w.dtype for w in leaves]


class Casts(torch.utils._python_dispatch.TorchDispatchMode):
    """Counts what is cast to bfloat16."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func is torch.ops.aten._to_copy.default
        return func(*args, **(kwargs or {}))


def test_autocast_casts_each_weight_once_however_often_it_is_called(
    kernelprof_device: str,
) -> None:
    """As it does for ``linear``, by PyTorch's own cache: three weights, and x for each call."""
    weights = [w.requires_grad_() for w in gated_weights(kernelprof_device)]
    x = random(4, WIDTH, device=kernelprof_device, dtype=torch.bfloat16)
    with torch.autocast(kernelprof_device, dtype=torch.bfloat16), Casts() as casts:
        for _ in range(5):
            gated_mlp(x, *weights)
    assert casts.count == 3


def test_autocast_with_weights_in_its_dtype_goes_to_the_kernel(kernelprof_device: str) -> None:
    x = random(4, WIDTH, device=kernelprof_device)
    weights = plain_weights(kernelprof_device, torch.float16)
    with torch.autocast(kernelprof_device, dtype=torch.float16), dispatch.forced("narrow"):
        y = mlp(x, *weights, "relu")
    expected = eager_plain(x.half(), *weights, "relu")
    torch.testing.assert_close(y, expected, rtol=1e-2, atol=1e-2)


KERNELS = ["pytorch", "narrow"]


@pytest.mark.parametrize("kernel", KERNELS)
def test_forward_mode_differentiation_is_pytorchs(kernelprof_device: str, kernel: str) -> None:
    """A kernel would drop the tangent without a word."""
    x = random(4, WIDTH, device=kernelprof_device)
    tangent = random(4, WIDTH, device=kernelprof_device)
    weights = plain_weights(kernelprof_device)
    _, exact = torch.func.jvp(lambda x: eager_plain(x, *weights), (x,), (tangent,))
    with dispatch.forced(kernel), forward_ad.dual_level():
        y = mlp(forward_ad.make_dual(x, tangent), *weights)
        torch.testing.assert_close(forward_ad.unpack_dual(y).tangent, exact)


@pytest.mark.parametrize("kernel", KERNELS)
def test_compiled_code_keeps_tangents_and_plain_calls_their_kernel(
    kernelprof_device: str, kernel: str
) -> None:
    dtype = torch.float16  # which kernels take, on a GPU and in the interpreter
    x = random(4, WIDTH, device=kernelprof_device, dtype=dtype)
    tangent = random(4, WIDTH, device=kernelprof_device, dtype=dtype)
    weights = plain_weights(kernelprof_device, dtype)
    _, exact = torch.func.jvp(lambda x: eager_plain(x, *weights), (x,), (tangent,))
    torch._dynamo.reset()
    run = torch.compile(mlp, backend="eager")
    with dispatch.forced(kernel):
        plain = run(x, *weights)
        with forward_ad.dual_level():
            y = run(forward_ad.make_dual(x, tangent), *weights)
            torch.testing.assert_close(forward_ad.unpack_dual(y).tangent, exact)
        assert torch.equal(run(x, *weights), plain)


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_transforms_of_torch_func_are_pytorchs(kernelprof_device: str, kernel: str) -> None:
    x = random(6, 4, WIDTH, device=kernelprof_device)
    weights = plain_weights(kernelprof_device)

    def batched(call) -> torch.Tensor:
        return torch.func.vmap(lambda x: call(x, *weights))(x)

    def slope(call) -> torch.Tensor:
        return torch.func.grad(lambda x: call(x, *weights).square().sum())(x)

    def tangent(call) -> torch.Tensor:
        return torch.func.jvp(lambda x: call(x, *weights), (x,), (x,))[1]

    with dispatch.forced(kernel):
        for transformed in (batched, slope, tangent):
            torch.testing.assert_close(transformed(mlp), transformed(eager_plain))
            torch._dynamo.reset()
            compiled = torch.compile(lambda of=transformed: of(mlp), backend="eager")
            torch.testing.assert_close(compiled(), transformed(eager_plain))


def test_symbolic_sizes_are_pytorchs(kernelprof_device: str) -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    x, weights = random(4, WIDTH, device=kernelprof_device), plain_weights(kernelprof_device)
    graph = make_fx(lambda *given: mlp(*given), tracing_mode="symbolic")(x, *weights)
    torch.testing.assert_close(graph(x, *weights), eager_plain(x, *weights))


def test_what_is_known_of_a_call_does_not_outlive_its_shapes(kernelprof_device: str) -> None:
    """Calls are looked up by all that is checked and decided on: another shape, dtype, device,
    name or None is another call, and what was wrong stays wrong."""
    x, weights = random(3, WIDTH, device=kernelprof_device), gated_weights(kernelprof_device)
    gate, up, down = weights
    for _ in range(2):
        assert gated_mlp(x, *weights, "relu").shape == (3, OUT)
        for wrong in (
            (x[:, 1:], *weights, "relu"),
            (x.half(), *weights, "relu"),
            (x, gate, up[1:], down, "relu"),
            (x, gate, up, elsewhere(down), "relu"),
            (x, gate, None, down, "relu"),
            (x, *weights, "tanh"),
        ):
            with pytest.raises((TypeError, ValueError), match="expected"):
                gated_mlp(*wrong)


class Marked(torch.Tensor):
    """A subclass that counts nothing and stores nothing: any will do."""


def test_tensor_subclasses_keep_their_own_operators(
    kernelprof_device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = random(4, WIDTH, device=kernelprof_device).as_subclass(Marked)
    monkeypatch.setattr(dispatch, "run", None)
    with dispatch.forced("narrow"):
        assert type(mlp(x, *plain_weights(kernelprof_device))) is Marked


def replaced(arguments: dict[str, Any], name: str, value: Any) -> dict[str, Any]:
    return {**arguments, name: value(arguments[name]) if callable(value) else value}


def plain_arguments(device: str) -> dict[str, Any]:
    names = ("w1", "b1", "w2", "b2")
    weights = dict(zip(names, plain_weights(device), strict=True))
    return {"x": random(3, WIDTH, device=device), **weights, "activation": "relu"}


def gated_arguments(device: str) -> dict[str, Any]:
    weights = dict(zip(("gate", "up", "down"), gated_weights(device), strict=True))
    return {"x": random(3, WIDTH, device=device), **weights, "activation": "relu"}


def elsewhere(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to("meta")


PLAIN_FAULTS = [
    ("x", None, TypeError, r"x: expected a torch.Tensor, got NoneType"),
    ("x", lambda x: x.sum(), ValueError, r"x: expected shape \(..., width\), got a single number"),
    ("x", lambda x: x.int(), TypeError, r"x: expected one of .*bfloat16.*, got torch.int32"),
    ("x", lambda x: x[:, 1:], ValueError, r"w1: .*\(hidden, 23\).*x is \(3, 23\); got \(40, 24\)"),
    ("x", lambda x: x.half(), TypeError, r"w1: expected torch.float16 as x has, got torch.float32"),
    ("w1", None, TypeError, r"w1: expected a torch.Tensor, got NoneType"),
    ("w1", lambda w: w.t(), ValueError, r"w1: expected shape \(hidden, 24\).*got \(24, 40\)"),
    ("w1", lambda w: w[0], ValueError, r"w1: expected shape \(hidden, 24\).*got \(24,\)"),
    ("b1", lambda b: b[1:], ValueError, r"b1: expected shape \(40,\).*row of w1; got \(39,\)"),
    ("b1", lambda b: b[:, None], ValueError, r"b1: expected shape \(40,\).*got \(40, 1\)"),
    ("b1", lambda b: b.tolist(), TypeError, r"b1: expected a torch.Tensor, got list"),
    ("b1", lambda b: b.half(), TypeError, r"b1: expected torch.float32 as x has"),
    ("w2", lambda w: w.t(), ValueError, r"w2: expected shape \(out, 40\), since w1 .*\(40, 16\)"),
    ("w2", elsewhere, ValueError, r"w2: expected on .* where x is, got meta"),
    ("b2", lambda b: b[1:], ValueError, r"b2: expected shape \(16,\).*row of w2; got \(15,\)"),
    ("b2", elsewhere, ValueError, r"b2: expected on .* where x is, got meta"),
    ("activation", "tanh", ValueError, r"activation: expected one of 'gelu', .*, got 'tanh'"),
    ("activation", None, TypeError, r"activation: expected a name .*, got NoneType None"),
    ("activation", lambda _: torch.relu, TypeError, r"activation: expected a name"),
    ("activation", lambda _: ["relu"], TypeError, r"activation: expected a name .*, got list"),
]

GATED_FAULTS = [
    ("x", lambda x: x.numpy(force=True), TypeError, r"x: expected a torch.Tensor, got ndarray"),
    ("x", lambda x: x.to(torch.complex64), TypeError, r"x: expected one of .*got torch.complex64"),
    ("gate", lambda g: g.t(), ValueError, r"gate: expected shape \(hidden, 24\).*got \(24, 40\)"),
    ("up", lambda u: u[1:], ValueError, r"up: expected shape \(40, 24\), as gate has; got \(39"),
    ("up", None, TypeError, r"up: expected a torch.Tensor, got NoneType"),
    ("up", lambda u: u.double(), TypeError, r"up: expected torch.float32 as x has, got .*float64"),
    ("up", elsewhere, ValueError, r"up: expected on .* where x is, got meta"),
    ("down", lambda d: d.t(), ValueError, r"down: expected shape \(out, 40\), since gate is"),
    ("down", lambda d: d[None], ValueError, r"down: expected shape \(out, 40\)"),
    ("activation", "GELU", ValueError, r"activation: expected one of .*, got 'GELU'"),
]


@pytest.mark.parametrize(
    ("call", "make", "fault"),
    [
        pytest.param(call, make, fault, id=f"{call.__name__}-{fault[0]}-{number}")
        for call, make, faults in (
            (mlp, plain_arguments, PLAIN_FAULTS),
            (gated_mlp, gated_arguments, GATED_FAULTS),
        )
        for number, fault in enumerate(faults)
    ],
)
def test_bad_arguments_are_named(
    kernelprof_device: str,
    call: Callable[..., torch.Tensor],
    make: Callable[[str], dict[str, Any]],
    fault: tuple[str, Any, type[Exception], str],
) -> None:
    name, value, error, words = fault
    arguments = make(kernelprof_device)
    call(**arguments)
    with pytest.raises(error, match=words):
        call(**replaced(arguments, name, value))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_weight_on_the_cpu_is_named() -> None:
    arguments = gated_arguments("cuda")
    with pytest.raises(ValueError, match=r"down: expected on cuda:0 where x is, got cpu"):
        gated_mlp(**replaced(arguments, "down", lambda d: d.cpu()))
