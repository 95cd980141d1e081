"""The dispatch: every rule of the table by numbers alone, and that the choice is what runs."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from fused_mlp import dispatch, fallback, problem
from fused_mlp.dispatch import choose
from fused_mlp.functional import gated_mlp, mlp
from fused_mlp.problem import Problem

from pytest_kernelprof import KernelProfile

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
needs_hopper = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0),
    reason="needs a GPU that the kernels know",
)

DECODE = Problem(1, 1024, 4096, 1024, True, False, "silu", torch.bfloat16, (9, 0))
GEGLU = Problem(8192, 768, 3072, 768, True, False, "gelu_tanh", torch.bfloat16, (9, 0))
NARROW = Problem(2**20, 64, 64, 64, False, True, "relu", torch.float16, (9, 0))


@pytest.mark.parametrize(
    ("given", "kernel", "reason"),
    [
        pytest.param(DECODE, "streaming", "few rows", id="decode"),
        pytest.param(replace(DECODE, rows=16), "streaming", "few rows", id="decode, 16 rows"),
        pytest.param(replace(DECODE, gated=False, bias=True), "decode", "few rows", id="plain"),
        pytest.param(GEGLU, dispatch.MANY_ROWS, "many rows", id="geglu"),
        pytest.param(replace(GEGLU, keep=True), dispatch.MANY_ROWS, "many rows", id="training"),
        pytest.param(NARROW, "narrow", "narrow layers", id="narrow"),
        pytest.param(replace(NARROW, width=128), "resident", "narrow layers", id="less narrow"),
        pytest.param(
            replace(NARROW, width=100), "narrow", "narrow layers", id="narrow, ragged width"
        ),
        pytest.param(
            replace(NARROW, hidden=256), "narrow", "narrow layers", id="narrow, more hidden"
        ),
        pytest.param(replace(GEGLU, rows=0), "fallback", "nothing", id="no rows"),
        pytest.param(replace(GEGLU, capability=None), "fallback", "no GPU", id="no GPU"),
        pytest.param(replace(GEGLU, capability=(8, 0)), "fallback", "unknown arch", id="A100"),
        pytest.param(replace(GEGLU, capability=(10, 0)), "fallback", "unknown arch", id="B200"),
        pytest.param(replace(GEGLU, dtype=torch.float32), "fallback", "dtype", id="float32"),
        pytest.param(replace(GEGLU, activation="gelu"), "fallback", "activation", id="exact"),
        pytest.param(replace(GEGLU, aligned=False), "fallback", "unaligned", id="unaligned"),
        pytest.param(replace(DECODE, width=1020), "fallback", "16 bytes", id="ragged width"),
        pytest.param(replace(DECODE, hidden=4099), "fallback", "16 bytes", id="ragged hidden"),
        pytest.param(replace(DECODE, rows=64), "fallback", "cuBLAS", id="64 rows"),
        pytest.param(replace(DECODE, hidden=16384), "streaming", "few rows", id="large weights"),
        pytest.param(
            replace(DECODE, gated=False, hidden=16384), "fallback", "cuBLAS", id="large and plain"
        ),
        pytest.param(replace(DECODE, keep=True), "fallback", "cuBLAS", id="decode, training"),
        pytest.param(replace(NARROW, keep=True), "fallback", "cuBLAS", id="narrow, training"),
        pytest.param(replace(NARROW, gated=True), "fallback", "cuBLAS", id="narrow, gated"),
        pytest.param(replace(NARROW, hidden=4096), "fallback", "cuBLAS", id="narrow, wide hidden"),
        pytest.param(
            replace(GEGLU, width=4096, hidden=11008, out=4096), "fallback", "cuBLAS", id="7B"
        ),
        pytest.param(replace(GEGLU, width=1536, hidden=4096), "fallback", "cuBLAS", id="wider"),
    ],
)
def test_each_rule(given: Problem, kernel: str, reason: str) -> None:
    choice = choose(given)
    assert choice.kernel == kernel, choice
    assert reason in choice.reason


def test_each_rule_decides_something() -> None:
    """No rule stands below another that always holds where it does: each reason is reachable."""
    reasons = {rule.reason for rule in dispatch.RULES}
    variants = [DECODE, GEGLU, NARROW, replace(GEGLU, rows=0), replace(DECODE, width=1020)]
    variants += [replace(GEGLU, capability=None), replace(GEGLU, capability=(8, 0))]
    variants += [replace(GEGLU, dtype=torch.float32), replace(GEGLU, activation="gelu")]
    variants += [replace(GEGLU, aligned=False), replace(DECODE, rows=64)]
    variants += [replace(DECODE, gated=False), replace(NARROW, hidden=128)]
    assert {choose(variant).reason for variant in variants} == reasons


def test_forced_ends_and_refuses_other_names() -> None:
    with dispatch.forced("decode"):
        with dispatch.forced("narrow"):
            assert dispatch.forced_kernel() == "narrow"
        assert dispatch.forced_kernel() == "decode"
    assert dispatch.forced_kernel() is None
    with pytest.raises(ValueError, match=r"expected one of narrow, .*, got 'eager'"):
        dispatch.forced("eager").__enter__()


def small(device: str, dtype: torch.dtype = torch.float16) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(0)
    return tuple(
        torch.randn(shape, device=device).mul(0.2).to(dtype)
        for shape in ((3, 32), (64, 32), (64, 32), (32, 64))
    )


def test_forced_kernels_refuse_strided_weights() -> None:
    """They take a pointer and a size: strides would be read past without a word."""
    x, gate, up, down = small("cpu")
    strided = down.T.contiguous().T
    with (
        dispatch.forced("decode"),
        pytest.raises(ValueError, match=r"contiguous weights.*strides \(1, 32\)"),
    ):
        gated_mlp(x, gate, up, strided)


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
    monkeypatch.setattr(dispatch, "run_gated", None)
    x, gate, up, down = small("cpu", torch.float32)
    y = gated_mlp(x, gate, up, down)
    assert torch.equal(y, fallback.eager_gated(x, gate, up, down, "gelu_tanh"))


def test_no_slot_left_means_the_fallback_and_a_warning(
    kernelprof_device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhausted(*args: object, **options: object) -> torch.Tensor:
        raise dispatch.WorkspaceExhausted("no slot is free")

    monkeypatch.setattr(dispatch.decode, "gated", exhausted)
    x, gate, up, down = small(kernelprof_device)
    with dispatch.forced("decode"), pytest.warns(RuntimeWarning, match="no slot is free"):
        y = gated_mlp(x, gate, up, down)
    expected = fallback.eager_gated(x, gate, up, down, "gelu_tanh")
    torch.testing.assert_close(y, expected, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("kernel", ["decode", "many_rows"])
def test_a_forced_kernel_is_the_one_that_runs(
    kernelprof_device: str, monkeypatch: pytest.MonkeyPatch, kernel: str
) -> None:
    calls = []
    for name in ("decode", "many_rows"):
        module = getattr(dispatch, name)
        monkeypatch.setattr(
            module, "gated", lambda x, *_, name=name, **__: calls.append(name) or x.clone()
        )
    with dispatch.forced(kernel):
        gated_mlp(*small(kernelprof_device))
    assert calls == [kernel]


def test_strided_weights_and_odd_addresses_are_not_aligned(
    kernelprof_device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []

    def record(*numbers: object) -> str:
        seen.append(bool(numbers[9]))
        return "fallback"

    monkeypatch.setattr(dispatch, "_kernel_for", record)
    x, gate, up, down = small(kernelprof_device)
    odd = torch.zeros(x.numel() + 1, device=x.device, dtype=x.dtype)[1:].view_as(x)
    strided = down.t().contiguous().t()
    for first, last in ((x, down), (odd, down), (x, strided)):
        dispatch.run_gated(first, gate, up, last, "silu")
    assert seen == [True, False, False]


@needs_gpu
@pytest.mark.max_kernels(4)
def test_the_gated_fallback_is_four_kernels(kernel_profile: KernelProfile) -> None:
    """Guess: three GEMMs and one kernel for activation and product; eager has five."""
    with torch.no_grad(), dispatch.forced("fallback"):
        kernel_profile(gated_mlp, *small("cuda", torch.bfloat16))


@needs_gpu
@pytest.mark.parametrize("activation", ["relu", "gelu_tanh"])
@pytest.mark.max_kernels(2)
def test_the_plain_fallback_is_two_kernels(kernel_profile: KernelProfile, activation: str) -> None:
    """Guess: two GEMMs; cuBLASLt applies bias and activation before it rounds. Eager has three."""
    x = torch.randn(4096, 1024, device="cuda", dtype=torch.bfloat16)
    w1, w2 = (torch.randn(s, device="cuda").bfloat16() for s in ((4096, 1024), (1024, 4096)))
    b1, b2 = (torch.randn(s, device="cuda").bfloat16() for s in (4096, 1024))
    with torch.no_grad(), dispatch.forced("fallback"):
        kernel_profile(mlp, x, w1, b1, w2, b2, activation)


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
