"""The backward's one kernel: the activation's slope, applied, and the hidden layer once more.

It is bound by memory: each number is read once and written once, in 16-byte pieces, and the
arithmetic between (float32) is free. That is why the exact exponential is used here, not the
hardware's approximate tanh as in the one-launch kernels.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .launch import Launcher

# ruff: noqa: N803  (compile-time constants are written in capitals, as Triton's users do)

BLOCK = 2048
"""Numbers a program: 4 warps with two 16-byte loads a thread and tensor."""


@triton.jit
def value_and_slope(a, ACTIVATION: tl.constexpr):
    """``act(a)`` and ``act'(a)`` of a float32 tile.

    Both SiLU and tanh-GELU are ``a * s(u(a))`` with the logistic function s, since
    ``(1 + tanh z) / 2 = s(2z)``: u is a itself for SiLU (Elfwing, Uchibe, Doya 2017) and
    ``2 sqrt(2/pi) (a + 0.044715 a^3)`` for tanh-GELU (Hendrycks, Gimpel 2016, section 2). With
    ``s' = s (1 - s)`` the slope is ``s + a s (1 - s) u'(a)``.
    """
    if ACTIVATION == "relu":
        value = tl.where(a < 0.0, 0.0, a)  # no maximum(a, 0), which would turn a NaN into 0
        slope = tl.where(a <= 0.0, 0.0, 1.0)  # 0 at 0, as PyTorch has it
    else:
        if ACTIVATION == "silu":
            s = tl.sigmoid(a)
            inner_slope = 1.0
        else:
            tl.static_assert(ACTIVATION == "gelu_tanh")
            square = a * a
            s = tl.sigmoid(1.5957691216057308 * a * (1.0 + 0.044715 * square))
            inner_slope = 1.5957691216057308 * (1.0 + 0.134145 * square)
        value = a * s
        slope = s + value * (1.0 - s) * inner_slope
    return value, slope


@triton.jit
def slopes_kernel(
    gate_pre,
    up_pre,
    d_hidden,
    d_gate,
    d_up,
    h,
    numbers,
    ACTIVATION: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """``h = act(g) u``, ``dg = dh u act'(g)`` and ``du = dh act(g)``, number by number."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < numbers
    a = tl.load(gate_pre + at, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(up_pre + at, mask=inside, other=0.0).to(tl.float32)
    d = tl.load(d_hidden + at, mask=inside, other=0.0).to(tl.float32)
    value, slope = value_and_slope(a, ACTIVATION)
    tl.store(h + at, (value * b).to(h.dtype.element_ty), mask=inside)
    tl.store(d_gate + at, (d * b * slope).to(h.dtype.element_ty), mask=inside)
    tl.store(d_up + at, (d * value).to(h.dtype.element_ty), mask=inside)


def gated_slopes(
    gate_pre: torch.Tensor, up_pre: torch.Tensor, d_hidden: torch.Tensor, activation: str
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """``(d_gate, d_up, h)`` in one launch, on the current device.

    Shapes: all (rows, hidden), contiguous, of one dtype.
    """
    d_gate, d_up, h = (torch.empty_like(gate_pre) for _ in range(3))
    numbers = gate_pre.numel()
    if numbers:
        tensors = (gate_pre, up_pre, d_hidden, d_gate, d_up, h)
        aligned = tuple(tensor.data_ptr() % 16 == 0 for tensor in tensors)
        size = (numbers == 1, numbers % 16 == 0, numbers < 2**31)
        _launcher(
            (size, aligned, gate_pre.dtype, gate_pre.device, activation),
            triton.cdiv(numbers, BLOCK),
            (*tensors, numbers),
            (activation, BLOCK),
            {"num_warps": 4},
        )
    return d_gate, d_up, h


_launcher = Launcher(slopes_kernel)
