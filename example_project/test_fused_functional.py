"""The two calls: any shape and dtype that eager takes, the same numbers, and words for the rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from fused_mlp import dispatch
from fused_mlp.fallback import eager_gated, eager_plain
from fused_mlp.functional import gated_mlp, mlp
from fused_mlp.problem import ACTIVATIONS

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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
def test_both_forms_agree_with_eager(
    kernelprof_device: str, activation: str, dtype: torch.dtype
) -> None:
    x = random(9, WIDTH, device=kernelprof_device, dtype=dtype)
    plain, gated = (make(kernelprof_device, dtype) for make in (plain_weights, gated_weights))
    tolerance = 1e-5 if dtype is torch.float32 else 2e-2
    for fused, eager, weights in ((mlp, eager_plain, plain), (gated_mlp, eager_gated, gated)):
        with dispatch.forced("fallback"):
            y = fused(x, *weights, activation)
        torch.testing.assert_close(
            y, eager(x, *weights, activation), rtol=tolerance, atol=tolerance
        )
        assert y.dtype is dtype


@pytest.mark.parametrize("forced", [False, True], ids=["by PyTorch", "by the kernels' path"])
@pytest.mark.parametrize("leading", [(), (5,), (2, 3), (2, 1, 3), (0,), (2, 0)])
def test_any_leading_dimensions_and_no_rows_at_all(
    kernelprof_device: str, leading: tuple[int, ...], forced: bool
) -> None:
    x = random(*leading, WIDTH, device=kernelprof_device)
    plain, gated = plain_weights(kernelprof_device), gated_weights(kernelprof_device)
    with dispatch.forced("fallback") if forced else torch.no_grad():
        y, z = mlp(x, *plain), gated_mlp(x, *gated)
    assert y.shape == z.shape == (*leading, OUT)
    torch.testing.assert_close(y, eager_plain(x, *plain, "gelu_tanh"))
    torch.testing.assert_close(z, eager_gated(x, *gated, "gelu_tanh"))


def test_strided_inputs_and_weights(kernelprof_device: str) -> None:
    x = random(3, WIDTH, 5, device=kernelprof_device).transpose(1, 2)
    gate, up, down = (w.t().contiguous().t() for w in gated_weights(kernelprof_device))
    assert not gate.is_contiguous()
    with dispatch.forced("fallback"):
        y = gated_mlp(x, gate, up, down)
    torch.testing.assert_close(y, eager_gated(x, gate, up, down, "gelu_tanh"))


def test_each_bias_may_be_missing(kernelprof_device: str) -> None:
    x = random(4, WIDTH, device=kernelprof_device)
    w1, b1, w2, b2 = plain_weights(kernelprof_device)
    with dispatch.forced("fallback"):
        for first, second in ((None, None), (b1, None), (None, b2)):
            y = mlp(x, w1, first, w2, second, "relu")
            torch.testing.assert_close(y, eager_plain(x, w1, first, w2, second, "relu"))


def test_a_nan_stays_one(kernelprof_device: str) -> None:
    x = random(4, WIDTH, device=kernelprof_device, dtype=torch.float16)
    x[1, 2] = float("nan")
    weights = gated_weights(kernelprof_device, torch.float16)
    for activation in sorted(ACTIVATIONS):
        with dispatch.forced("fallback"):
            y = gated_mlp(x, *weights, activation)
        assert y[1].isnan().all()
        assert not y[[0, 2, 3]].isnan().any()


@pytest.mark.parametrize("forced", [False, True], ids=["by PyTorch", "by the kernels' path"])
def test_autocast_casts_as_it_does_for_linear(kernelprof_device: str, forced: bool) -> None:
    x = random(4, WIDTH, device=kernelprof_device)
    weights = [w.requires_grad_() for w in gated_weights(kernelprof_device)]
    with torch.autocast(kernelprof_device, dtype=torch.bfloat16):
        with dispatch.forced("fallback") if forced else torch.enable_grad():
            y = gated_mlp(x, *weights)
        expected = eager_gated(x, *weights, "gelu_tanh")
    assert y.dtype is expected.dtype is torch.bfloat16
    torch.testing.assert_close(y, expected, rtol=2e-2, atol=2e-2)
    y.float().square().sum().backward()
    assert all(w.grad is not None and w.grad.dtype is torch.float32 for w in weights)


class Marked(torch.Tensor):
    """A subclass that counts nothing and stores nothing: any will do."""


def test_tensor_subclasses_keep_their_own_operators(
    kernelprof_device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = random(4, WIDTH, device=kernelprof_device).as_subclass(Marked)
    monkeypatch.setattr(dispatch, "run_gated", None)
    with dispatch.forced("fallback"):
        assert type(gated_mlp(x, *gated_weights(kernelprof_device))) is Marked


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
