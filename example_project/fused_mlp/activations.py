"""Activation functions for the inside of a kernel, in the few instructions the hardware needs.

Each takes and gives float32 of any shape. They run once for every number of the hidden layer,
between two matrix products, while the tensor cores wait; so instructions count. The special
function unit of an SM does 16 results a clock, and the forms below differ in how many of them a
number costs:

* fast: ``tanh.approx.f32``, one. Its error of up to 2^-11 is small beside the rounding of h
  to bfloat16 (2^-9), but not beside that to float16 (2^-12).
* ``PRECISE``: ``ex2.approx`` and ``rcp.approx``, two, good to a few units of float32's last place.

The interpreter knows no PTX: with ``INTERPRET`` the same functions are spelt with ``tl.exp``.
"""

from __future__ import annotations

import triton
import triton.language as tl

# ruff: noqa: N803  (compile-time constants are written in capitals, as Triton's users do)


@triton.jit
def relu(a):
    """``max(a, 0)``, where a NaN stays a NaN, as in PyTorch."""
    return tl.where(a < 0.0, 0.0, a)


@triton.jit
def tanh_approx(z):
    """``tanh z`` in one instruction, to 2^-11 of its value."""
    return tl.inline_asm_elementwise(
        "tanh.approx.f32 $0, $1;", "=f,f", [z], dtype=tl.float32, is_pure=True, pack=1
    )


@triton.jit
def reciprocal_of_1_plus_exp2(z):
    """``1 / (1 + 2^z)``: 0 where 2^z overflows, 1 where it vanishes; NaN stays NaN."""
    return tl.inline_asm_elementwise(
        """
        {
            .reg .f32 e;
            ex2.approx.ftz.f32 e, $1;
            add.f32 e, e, 0f3F800000;
            rcp.approx.ftz.f32 $0, e;
        }
        """,
        "=f,f",
        [z],
        dtype=tl.float32,
        is_pure=True,
        pack=1,
    )


@triton.jit
def sigmoid_of_twice(z, INTERPRET: tl.constexpr, PRECISE: tl.constexpr):
    """``sigmoid(2 z)``, which is ``(1 + tanh z) / 2``."""
    if INTERPRET:
        return 1.0 / (1.0 + tl.exp(-2.0 * z))
    elif PRECISE:
        return reciprocal_of_1_plus_exp2(z * -2.8853900817779268)  # 2 / ln 2
    else:
        return 0.5 * tanh_approx(z) + 0.5


@triton.jit
def silu(a, INTERPRET: tl.constexpr, PRECISE: tl.constexpr = False):
    """``a * sigmoid(a)``."""
    return a * sigmoid_of_twice(0.5 * a, INTERPRET, PRECISE)


@triton.jit
def gelu_tanh(a, INTERPRET: tl.constexpr, PRECISE: tl.constexpr = False):
    """``a / 2 * (1 + tanh(sqrt(2 / pi) * (a + 0.044715 a^3)))``."""
    z = a * (0.7978845608028654 + 0.035677408136300125 * (a * a))
    return a * sigmoid_of_twice(z, INTERPRET, PRECISE)


@triton.jit
def activate(a, ACTIVATION: tl.constexpr, INTERPRET: tl.constexpr, PRECISE: tl.constexpr = False):
    """The activation of that name: "relu", "silu" or "gelu_tanh". Float32 in and out."""
    if ACTIVATION == "relu":
        return relu(a)
    elif ACTIVATION == "silu":
        return silu(a, INTERPRET, PRECISE)
    else:
        tl.static_assert(ACTIVATION == "gelu_tanh", "no such activation in a kernel")
        return gelu_tanh(a, INTERPRET, PRECISE)


@triton.jit
def value_and_slope(a, ACTIVATION: tl.constexpr, INTERPRET: tl.constexpr, PRECISE: tl.constexpr):
    """``act(a)`` and ``act'(a)``.

    Both SiLU and tanh-GELU are ``a * s(u(a))`` with the logistic function s: u is a itself for SiLU
    (Elfwing, Uchibe, Doya 2017) and ``2 sqrt(2/pi) (a + 0.044715 a^3)`` for tanh-GELU (Hendrycks,
    Gimpel 2016, section 2). With ``s' = s (1 - s)`` the slope is ``s + a s (1 - s) u'(a)``.
    """
    if ACTIVATION == "relu":
        value = relu(a)
        slope = tl.where(a <= 0.0, 0.0, 1.0)  # 0 at 0, as PyTorch has it
    else:
        if ACTIVATION == "silu":
            s = sigmoid_of_twice(0.5 * a, INTERPRET, PRECISE)
            inner_slope = 1.0
        else:
            tl.static_assert(ACTIVATION == "gelu_tanh", "no such activation in a kernel")
            square = a * a
            z = a * (0.7978845608028654 + 0.035677408136300125 * square)
            s = sigmoid_of_twice(z, INTERPRET, PRECISE)
            inner_slope = 1.5957691216057308 + 0.21406444881780077 * square
        value = a * s
        slope = s + value * (1.0 - s) * inner_slope
    return value, slope
