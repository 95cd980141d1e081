"""The dispatch: every rule of the table by numbers alone, and that the choice is what runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from fused_mlp import dispatch, problem
from fused_mlp.dispatch import choose
from fused_mlp.eager import eager
from fused_mlp.functional import gated_mlp, mlp
from fused_mlp.problem import Problem
from fused_mlp.weights import Weights

from pytest_kernelprof import KernelProfile

needs_hopper = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0),
    reason="needs a GPU that the kernels know",
)

DECODE = Problem(1, 1024, 4096, 1024, True, "silu", torch.bfloat16, (9, 0))
LARGE = Problem(1, 4096, 14336, 4096, True, "silu", torch.bfloat16, (9, 0))
GEGLU = Problem(8192, 768, 3072, 768, True, "gelu_tanh", torch.bfloat16, (9, 0))
NARROW = Problem(2**20, 64, 64, 64, False, "relu", torch.float16, (9, 0))


def but(problem: Problem, **changes: object) -> Problem:
    return problem._replace(**changes)


CASES = [
    pytest.param(DECODE, "few_rows", "few rows", id="decode"),
    pytest.param(but(DECODE, rows=16), "few_rows", "few rows", id="decode, 16 rows"),
    pytest.param(but(DECODE, rows=16, hidden=16384), "few_rows", "few rows", id="and 16 rows"),
    pytest.param(
        but(DECODE, width=512, out=512, hidden=32768), "pytorch", "no kernel was", id="long h"
    ),
    pytest.param(LARGE, "pytorch", "no kernel was", id="decode, the largest weights"),
    pytest.param(
        but(LARGE, width=8192, hidden=3592, out=8192), "pytorch", "no kernel was", id="larger ones"
    ),
    pytest.param(
        but(LARGE, width=8192, hidden=3584, out=8192), "few_rows", "few rows", id="large weights"
    ),
    pytest.param(GEGLU, "specialised", "many rows", id="geglu"),
    pytest.param(but(GEGLU, keep=True), "specialised", "many rows", id="training"),
    pytest.param(NARROW, "narrow", "narrow layers", id="narrow"),
    pytest.param(but(NARROW, width=128), "resident", "narrow layers", id="less narrow"),
    pytest.param(but(NARROW, width=100), "narrow", "narrow layers", id="narrow, ragged width"),
    pytest.param(but(NARROW, hidden=256), "narrow", "narrow layers", id="narrow, more hidden"),
    pytest.param(but(GEGLU, rows=0), "pytorch", "nothing", id="no rows"),
    pytest.param(but(GEGLU, width=0), "pytorch", "nothing", id="no width"),
    pytest.param(but(GEGLU, hidden=0), "pytorch", "nothing", id="no hidden"),
    pytest.param(but(GEGLU, out=0), "pytorch", "nothing", id="no out"),
    pytest.param(but(GEGLU, capability=None), "pytorch", "no GPU", id="no GPU"),
    pytest.param(but(GEGLU, capability=(8, 0)), "pytorch", "unknown arch", id="A100"),
    pytest.param(but(GEGLU, capability=(10, 0)), "pytorch", "unknown arch", id="B200"),
    pytest.param(but(GEGLU, dtype=torch.float32), "pytorch", "dtype", id="float32"),
    pytest.param(but(GEGLU, activation="gelu"), "pytorch", "activation", id="exact"),
    pytest.param(but(DECODE, width=1020), "pytorch", "16 bytes", id="ragged width"),
    pytest.param(but(DECODE, hidden=4099), "pytorch", "16 bytes", id="ragged hidden"),
    pytest.param(but(DECODE, rows=17), "pytorch", "no kernel was", id="17 rows"),
    pytest.param(but(DECODE, hidden=504), "pytorch", "no kernel was", id="one row, small hidden"),
    pytest.param(but(DECODE, gated=False), "pytorch", "no kernel was", id="decode, plain"),
    pytest.param(but(DECODE, keep=True), "pytorch", "no kernel was", id="decode, training"),
    pytest.param(but(GEGLU, gated=False), "pytorch", "no kernel was", id="many rows, plain"),
    pytest.param(but(NARROW, keep=True), "pytorch", "no kernel was", id="narrow, training"),
    pytest.param(but(NARROW, gated=True), "pytorch", "no kernel was", id="narrow, gated"),
    pytest.param(but(NARROW, hidden=4096), "pytorch", "no kernel was", id="narrow, wide hidden"),
    pytest.param(but(NARROW, rows=2**31), "pytorch", "no kernel was", id="rows beyond 32 bits"),
    pytest.param(
        but(GEGLU, width=4096, hidden=11008, out=4096), "pytorch", "no kernel was", id="7B"
    ),
    pytest.param(but(GEGLU, width=1536, hidden=4096), "pytorch", "no kernel was", id="wider"),
]


@pytest.mark.parametrize(("given", "kernel", "reason"), CASES)
def test_each_rule(given: Problem, kernel: str, reason: str) -> None:
    choice = choose(given)
    assert choice.kernel == kernel, choice
    assert reason in choice.reason


def test_each_rule_decides_something() -> None:
    """No rule stands below another that always holds where it does: each reason is reachable."""
    chosen = {choose(case.values[0]).reason for case in CASES}
    assert chosen == {rule.reason for rule in dispatch.RULES}


def test_forced_ends_and_refuses_other_names() -> None:
    with dispatch.forced("pytorch"):
        with dispatch.forced("narrow"):
            assert dispatch.forced_kernel() == "narrow"
        assert dispatch.forced_kernel() == "pytorch"
    assert dispatch.forced_kernel() is None
    with pytest.raises(ValueError, match=r"expected one of narrow, .*, got 'eager'"):
        dispatch.forced("eager").__enter__()


def gated(device: str, dtype: torch.dtype = torch.float16) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(0)
    return tuple(
        torch.randn(shape, device=device).mul(0.2).to(dtype)
        for shape in ((3, 32), (64, 32), (64, 32), (32, 64))
    )


def plain(device: str) -> tuple[torch.Tensor, ...]:
    x, first, _, down = gated(device)
    return x, first, first[:, 0].contiguous(), down, down[:, 0].contiguous()


def test_forced_kernels_refuse_strided_weights(kernelprof_device: str) -> None:
    """They take a pointer and a size: strides would be read past without a word."""
    x, w1, b1, w2, b2 = plain(kernelprof_device)
    strided = w2.T.contiguous().T
    with (
        dispatch.forced("narrow"),
        pytest.raises(ValueError, match=r"contiguous weights.*strides \(1, 32\)"),
    ):
        mlp(x, w1, b1, strided, b2)


@pytest.mark.parametrize("kernel", ["few_rows", "specialised"])
def test_kernels_for_gated_mlps_refuse_plain_ones(kernelprof_device: str, kernel: str) -> None:
    pytest.importorskip("triton.experimental.gluon")
    with dispatch.forced(kernel), pytest.raises(ValueError, match="gated MLP"):
        mlp(*plain(kernelprof_device))


@pytest.mark.parametrize("kernel", ["narrow", "resident"])
def test_kernels_for_plain_mlps_refuse_gated_ones(kernelprof_device: str, kernel: str) -> None:
    with dispatch.forced(kernel), pytest.raises(ValueError, match="expected a plain MLP"):
        gated_mlp(*gated(kernelprof_device))


def test_another_vendors_gpu_is_no_hopper(monkeypatch: pytest.MonkeyPatch) -> None:
    problem.capability_of.cache_clear()
    monkeypatch.setattr(torch.version, "hip", "6.4")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    try:
        assert problem.capability_of(0) is None
    finally:
        problem.capability_of.cache_clear()


def test_the_cpu_and_float32_go_to_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the operators nor the dispatch are asked: what runs is differentiable PyTorch."""
    monkeypatch.setattr(dispatch, "run", None)
    x, *weights = gated("cpu", torch.float32)
    assert torch.equal(gated_mlp(x, *weights), eager(x, Weights(*weights), "gelu_tanh"))


def refusals() -> list[Exception]:
    """What drivers and Triton have answered: in a green context, with too little shared memory,
    without cooperative launches, and while a graph is captured."""
    pytest.importorskip("triton")
    from fused_mlp.workspace import WorkspaceExhausted
    from triton.runtime.errors import OutOfResources

    return [
        RuntimeError("Triton Error [CUDA]: too many blocks in cooperative launch"),
        RuntimeError("Triton Error [CUDA]: operation not supported"),
        OutOfResources(300_000, 232_448, "shared memory"),
        WorkspaceExhausted("no slot is free"),
    ]


@pytest.mark.parametrize("which", range(4))
def test_a_launch_that_fails_is_done_by_pytorch_with_a_warning(
    kernelprof_device: str, monkeypatch: pytest.MonkeyPatch, which: int
) -> None:
    def refuse(*args: object, **options: object) -> torch.Tensor:
        raise refusals()[which]

    monkeypatch.setattr(dispatch.narrow, "narrow", refuse)
    x, w1, b1, w2, b2 = plain(kernelprof_device)
    words = "goes to PyTorch, since a launch failed: .*(CUDA|shared memory|no slot)"
    with dispatch.forced("narrow"), pytest.warns(RuntimeWarning, match=words):
        y = mlp(x, w1, b1, w2, b2, "silu")
    assert torch.equal(y, eager(x, Weights(w1, None, w2, b1, b2), "silu"))


def test_a_training_launch_that_fails_still_has_its_gradients(
    kernelprof_device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton.experimental.gluon")

    def refuse(*args: object, **options: object) -> torch.Tensor:
        raise refusals()[0]

    monkeypatch.setattr(dispatch.specialised, "specialised", refuse)
    leaves = [t.float().requires_grad_() for t in gated(kernelprof_device)]
    with dispatch.forced("specialised"), pytest.warns(RuntimeWarning, match="a launch failed"):
        ours = torch.autograd.grad(gated_mlp(*leaves).sum(), leaves)
    x, *weights = leaves
    exact = torch.autograd.grad(eager(x, Weights(*weights), "gelu_tanh").sum(), leaves)
    torch.testing.assert_close(ours, exact, rtol=1e-3, atol=1e-4)


def test_memory_that_is_out_is_told_as_it_is(
    kernelprof_device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch would need more of it, not less."""

    def refuse(*args: object, **options: object) -> torch.Tensor:
        raise torch.OutOfMemoryError("tried to allocate 1 GiB")

    monkeypatch.setattr(dispatch.narrow, "narrow", refuse)
    with dispatch.forced("narrow"), pytest.raises(torch.OutOfMemoryError):
        mlp(*plain(kernelprof_device))


@pytest.mark.parametrize("kernel", ["narrow", "resident"])
def test_a_forced_kernel_is_the_one_that_runs(
    kernelprof_device: str, monkeypatch: pytest.MonkeyPatch, kernel: str
) -> None:
    calls = []
    for name in ("narrow", "resident"):
        monkeypatch.setattr(
            getattr(dispatch, name), name, lambda x, *_, name=name: calls.append(name) or x.clone()
        )
    with dispatch.forced(kernel):
        mlp(*plain(kernelprof_device))
    assert calls == [kernel]


def test_strided_weights_and_odd_addresses_are_not_aligned(kernelprof_device: str) -> None:
    """A strided x is copied before a kernel sees it, so that only its size counts."""
    x, gate, up, down = gated(kernelprof_device)
    odd = torch.zeros(x.numel() + 1, device=x.device, dtype=x.dtype)[1:].view_as(x)
    odd_down = torch.zeros(down.numel() + 1, device=x.device, dtype=x.dtype)[1:].view_as(down)
    strided, strided_x = down.t().contiguous().t(), x.t().contiguous().t()
    cases = ((x, down), (odd, down), (x, strided), (x, odd_down), (strided_x, down))
    found = [dispatch.are_aligned(first, Weights(gate, up, last)) for first, last in cases]
    assert found == [True, False, False, False, True]


@needs_hopper
@pytest.mark.max_kernels(1)
@pytest.mark.parametrize("rows", [1, 16, 8192])
def test_what_the_table_gives_to_a_kernel_is_one_launch(
    kernel_profile: KernelProfile, rows: int
) -> None:
    shapes = ((rows, 768), (3072, 768), (3072, 768), (768, 3072))
    tensors = [torch.randn(s, device="cuda").mul(0.03).bfloat16() for s in shapes]
    with torch.no_grad():
        kernel_profile(gated_mlp, *tensors)


@needs_hopper
@pytest.mark.max_kernels(1)
def test_a_narrow_mlp_is_one_launch(kernel_profile: KernelProfile) -> None:
    shapes = ((2**17, 64), (256, 64), (256,), (64, 256), (64,))
    tensors = [torch.randn(s, device="cuda").mul(0.1).bfloat16() for s in shapes]
    with torch.no_grad():
        kernel_profile(mlp, *tensors, "relu")


@pytest.fixture
def green_context() -> Iterator[Any]:
    """A part of the GPU's SMs: 16 of them, far fewer than a cooperative launch asks for."""
    create = getattr(getattr(torch.cuda, "GreenContext", None), "create", None)
    if create is None:
        pytest.skip("this PyTorch has no torch.cuda.GreenContext")
    try:
        context = create(num_sms=16, device_id=torch.cuda.current_device())
    except RuntimeError as error:  # not built with it, or a driver that has none
        pytest.skip(f"no green context: {error}")
    right = [gated_mlp(*decode(rows), "silu") for rows in (1, 4)]
    torch.cuda.synchronize()
    context.set_context()
    try:
        yield
    finally:
        context.pop_context()
        torch.cuda.synchronize()
    for rows, before in zip((1, 4), right, strict=True):
        assert torch.equal(gated_mlp(*decode(rows), "silu"), before), "as if nothing had been"


def decode(rows: int) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(rows)
    shapes = ((rows, 768), (3072, 768), (3072, 768), (768, 3072))
    return tuple(torch.randn(s, device="cuda").mul(0.05).bfloat16() for s in shapes)


@needs_hopper
@pytest.mark.usefixtures("green_context")
@pytest.mark.parametrize("rows", [1, 4])
def test_a_launch_that_a_green_context_refuses_is_done_by_pytorch(rows: int) -> None:
    """Its programs wait for each other and do not all fit: CUDA refuses, nothing was changed."""
    x, *weights = decode(rows)
    with pytest.warns(RuntimeWarning, match="goes to PyTorch, since a launch failed: .*CUDA"):
        y = gated_mlp(x, *weights, "silu")
    torch.testing.assert_close(y, eager(x, Weights(*weights), "silu"), rtol=1e-2, atol=1e-2)
