"""Numbers that say themselves whether they are there: 0 is "not yet".

A program that waits for what others compute usually waits for a counter, and that needs a barrier
and a release on one side, an acquire and a barrier on the other (see `sync`), each a way to L2.
Here no counter is needed: memory holds zeros at first, and each number that arrives is its own
flag.

* A true 0 is written as -0, which multiplies and adds alike. A NaN is a number too.
* A number of 16 or 32 bits is never torn, and none announces another, so accesses are relaxed.
  They must not be weak ones: those the compiler may do once for all, or never.
* A thread asks for all that it needs at once, and for all again while a 0 is among it.
* Who waits must be sure that the others run: launches are cooperative. CUDA starts all programs at
  once, later if the GPU is busy, or refuses. Should one not come all the same, a thread gives up
  after `PATIENCE` looks, and CUDA reports a failed launch: no wait is for ever.

**Two buffers take turns**, so that nobody has to clean up at the end: a launch fills one and zeroes
the other. Whose turn it is stands in the workspace, not in an argument, so that a replayed graph
is right too. Program 0 turns it at its end, when every program must have read it: `few_rows` says
why that is so.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

# ruff: noqa: N806  (compile-time constants are written in capitals, as Triton's users do)

HEADER = gl.constexpr(64)
"""Numbers (int32) of a workspace before its buffers: whose turn it is, alone in a cache line."""

PATIENCE = 1 << 26
"""Looks before a thread gives up: half a minute or more, since each is a way to L2."""


@gluon.constexpr_function
def until_there(declare, loads, registers, lowest, highest, patience):
    """PTX: ``loads`` into the first registers, and again while a number in them is 0.

    ``lowest`` and ``highest``: a register with that bit of each of its numbers set. Of a register v
    (v - lowest) & ~v & highest is 0 unless a number in it is. What is not loaded is -0.
    """
    code = [".reg .pred p, q; .reg .b32 t, missing, looks; mov.b32 looks, 0;", *declare]
    code += [f"mov.b32 ${i}, {highest};" for i in range(registers)]
    code += ["AGAIN:", *loads, "mov.b32 missing, 0;"]
    for i in range(registers):
        code.append(f"sub.u32 t, ${i}, {lowest};")
        code.append(f"lop3.b32 t, t, ${i}, {highest}, 0x20; or.b32 missing, missing, t;")
    code.append(f"add.u32 looks, looks, 1; setp.gt.u32 q, looks, {patience}; @q trap;")
    code.append("setp.ne.u32 p, missing, 0; @p bra AGAIN;")
    return "{\n" + "\n".join(code) + "\n}"


@gluon.constexpr_function
def constraints(results, addresses, numbers):
    """Of so many registers that are loaded, and operands of 64 and of 32 bits."""
    return ",".join(["=&r"] * results + ["l"] * addresses + ["r"] * numbers)


@gluon.constexpr_function
def registers(count):
    """The types of ``count`` tensors of 32 bits, of which the asking gives a tuple."""
    return (gl.int32,) * count


@gluon.constexpr_function
def storing(bits):
    """PTX: store $2 at $1 if $3 is not 0."""
    return f"""
        {{
            .reg .pred p;
            setp.ne.s32 p, $3, 0;
            @p st.relaxed.gpu.global.b{bits} [$1], $2;
            mov.u32 $0, 0;
        }}
    """


@gluon.jit
def announce(at, value, mask):
    """Store numbers of 16 or 32 bits for those who wait for them."""
    BITS: gl.constexpr = value.dtype.primitive_bitwidth
    INT: gl.constexpr = gl.int16 if BITS == 16 else gl.int32
    number = value.to(INT, bitcast=True)
    number = gl.where(number == 0, -(2 ** (BITS - 1)), number).to(INT)  # -0
    gl.inline_asm_elementwise(
        storing(BITS),
        "=r,l,h,r" if BITS == 16 else "=r,l,r,r",
        [at.to(gl.int64), number, (mask & (number != 0)).to(gl.int32)],
        dtype=gl.int32,
        is_pure=False,
        pack=1,
    )
