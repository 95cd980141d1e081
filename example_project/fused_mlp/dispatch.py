"""Which kernel a call gets: one table of rules, read from the top; the first that holds decides.

`choose` is a pure function of a `Problem`, so every rule can be tested without a GPU. The
thresholds are where the kernels were measured to be ahead of cuBLAS; between the measured sizes
and outside them the fallback is the safe answer, since it is never slower than eager PyTorch.

`run_plain` and `run_gated` then launch what was chosen. They are the whole way from Python to the
kernel in eager mode, so the choice is looked up by its numbers instead of being made again.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple, get_args

import torch

from . import fallback
from .problem import KERNEL_ACTIVATIONS, KERNEL_DTYPES, TRITON, Problem, capability_of

if TRITON:
    from . import decode, many_rows, narrow
    from .workspace import WorkspaceExhausted

    try:  # Gluon is experimental: where a Triton has none, or another, plain Triton does the work
        from . import resident, specialised, streaming
    except (ImportError, AttributeError):
        GLUON = False
    else:
        GLUON = True

Kernel = Literal[
    "narrow", "resident", "streaming", "decode", "specialised", "many_rows", "fallback"
]
MANY_ROWS: Kernel = "specialised" if TRITON and GLUON else "many_rows"
KERNELS: tuple[Kernel, ...] = get_args(Kernel)

ARCHITECTURES = frozenset({(9, 0)})
"""Compute capabilities that the kernels were written for and measured on: Hopper's."""

ALIGNMENT = 8
"""Numbers of 16 bits in 16 bytes: TMA and vector loads want rows of whole such pieces."""

NARROW_MAX_WIDTH = 128
NARROW_MAX_HIDDEN = 512
NARROW_MIN_ROWS = 16_384
"""Fewer rows do not pay for loading the weights into every SM."""
RESIDENT_ABOVE = 64
"""Up to this width and hidden, plain Triton keeps the memory just as busy."""

DECODE_MAX_ROWS = 16
"""With more rows the tensor cores, not the weights' way from memory, begin to bound cuBLAS too."""
DECODE_MIN_HIDDEN = 512
DECODE_MAX_WEIGHTS = 14_000_000
"""Numbers in all weights together: with more, cuBLAS is quicker than `decode` in plain Triton."""

MANY_ROWS_MIN_ROWS = 4_096
MANY_ROWS_MIN_HIDDEN = 1_024
MANY_ROWS_MAX_HIDDEN = 4_096
MANY_ROWS_MIN_WIDTH = 256
MANY_ROWS_MAX_WIDTH = 1_024
"""The wider a GEMM, the nearer cuBLAS comes to the matrix rate, and the less a launch matters."""


class Choice(NamedTuple):
    """The kernel that a call gets, and why."""

    kernel: Kernel
    reason: str


class Rule(NamedTuple):
    """If ``holds``, then ``kernel``, because of ``reason``."""

    kernel: Kernel
    reason: str
    holds: Callable[[Problem], bool]


def _is_narrow(p: Problem) -> bool:
    return (
        not p.gated
        and not p.keep
        and p.rows >= NARROW_MIN_ROWS
        and max(p.width, p.out) <= NARROW_MAX_WIDTH
        and p.hidden <= NARROW_MAX_HIDDEN
        and TRITON
        and narrow.supports(p.rows, p.width, p.hidden, p.out, p.dtype)
    )


def _is_resident(p: Problem) -> bool:
    return (
        GLUON
        and _is_narrow(p)
        and max(p.width, p.hidden, p.out) > RESIDENT_ABOVE
        and resident.supports(p.rows, p.width, p.hidden, p.out, p.dtype)
    )


def _is_decode(p: Problem) -> bool:
    return p.rows <= DECODE_MAX_ROWS and p.hidden >= DECODE_MIN_HIDDEN and not p.keep


def _is_streamed(p: Problem) -> bool:
    return GLUON and p.gated and _is_decode(p)


def _is_small_decode(p: Problem) -> bool:
    weights = p.hidden * (p.width * (2 if p.gated else 1) + p.out)
    return weights <= DECODE_MAX_WEIGHTS and _is_decode(p)


def _is_many_rows(p: Problem) -> bool:
    return (
        p.gated
        and p.rows >= MANY_ROWS_MIN_ROWS
        and MANY_ROWS_MIN_HIDDEN <= p.hidden <= MANY_ROWS_MAX_HIDDEN
        and MANY_ROWS_MIN_WIDTH <= p.width <= MANY_ROWS_MAX_WIDTH
        and MANY_ROWS_MIN_WIDTH <= p.out <= MANY_ROWS_MAX_WIDTH
    )


def _has_ragged_rows(p: Problem) -> bool:
    return any(size % ALIGNMENT for size in (p.width, p.hidden, p.out))


RULES: tuple[Rule, ...] = (
    Rule("fallback", "nothing to compute", lambda p: 0 in (p.rows, p.width, p.hidden, p.out)),
    Rule("fallback", "no GPU that Triton compiles for", lambda p: p.capability is None),
    Rule("fallback", "an unknown architecture", lambda p: p.capability not in ARCHITECTURES),
    Rule("fallback", "no kernel for this dtype", lambda p: p.dtype not in KERNEL_DTYPES),
    Rule(
        "fallback",
        "no kernel for this activation",
        lambda p: p.activation not in KERNEL_ACTIVATIONS,
    ),
    Rule("fallback", "strided or unaligned tensors", lambda p: not p.aligned),
    Rule("resident", "narrow layers and many rows: memory and tensor cores busy", _is_resident),
    Rule("narrow", "narrow layers and many rows: weights stay on the SM", _is_narrow),
    Rule("fallback", "rows that are no multiple of 16 bytes", _has_ragged_rows),
    Rule("streaming", "few rows: bound by reading the weights once", _is_streamed),
    Rule("decode", "few rows and small weights, not gated or without Gluon", _is_small_decode),
    Rule(MANY_ROWS, "many rows and a hidden layer that costs its way to memory", _is_many_rows),
    Rule("fallback", "cuBLAS is at least as quick", lambda p: True),
)


def choose(problem: Problem) -> Choice:
    """The kernel for ``problem`` and the reason, by the first rule of `RULES` that holds."""
    for rule in RULES:
        if rule.holds(problem):
            return Choice(rule.kernel, rule.reason)
    raise AssertionError("the last rule always holds")


_forced: Kernel | None = None


def forced_kernel() -> Kernel | None:
    """The kernel that `forced` asks for, if any."""
    return _forced


@contextlib.contextmanager
def forced(kernel: Kernel) -> Iterator[None]:
    """Inside, every call gets ``kernel``, on any device and with any dtype: for tests.

    It holds for the whole process. A kernel that cannot do what is asked of it raises. Where a
    backward will follow, kernels that keep no pre-activations are replaced by the fallback.
    """
    global _forced
    if kernel not in KERNELS:
        raise ValueError(f"kernel: expected one of {', '.join(KERNELS)}, got {kernel!r}")
    before = _forced
    _forced = kernel
    try:
        yield
    finally:
        _forced = before


@functools.lru_cache(maxsize=4096)
def _kernel_for(
    rows: int,
    width: int,
    hidden: int,
    out: int,
    gated: bool,
    bias: bool,
    activation: str,
    dtype: torch.dtype,
    device: int,
    aligned: bool,
    keep: bool,
) -> Kernel:
    capability = capability_of(device)
    return choose(
        Problem(rows, width, hidden, out, gated, bias, activation, dtype, capability, aligned, keep)
    ).kernel


def run_gated(
    x: torch.Tensor,
    gate: torch.Tensor,
    up: torch.Tensor,
    down: torch.Tensor,
    activation: str,
    keep: tuple[torch.Tensor, torch.Tensor] | None = None,
) -> torch.Tensor:
    """Choose and launch: x (rows, width), contiguous, to (rows, out). No checks, no autograd.

    ``keep`` takes the pre-activations of gate and up, (rows, hidden) each, for the backward.
    """
    kernel = _forced if x.shape[0] else "fallback"
    if kernel is None:
        rows, width = x.shape
        out, hidden = down.shape
        aligned = (
            gate.is_contiguous()
            and up.is_contiguous()
            and down.is_contiguous()
            and not (x.data_ptr() | gate.data_ptr() | up.data_ptr() | down.data_ptr()) & 15
        )
        kernel = _kernel_for(
            rows, width, hidden, out, True, False, activation, x.dtype, x.get_device(), aligned,
            keep is not None,
        )  # fmt: skip
    elif kernel != "fallback":
        _require_contiguous(gate, up, down)
    if kernel in ("narrow", "resident"):
        raise ValueError(f"the {kernel} kernel does no gated MLPs")
    if x.is_cuda and x.get_device() != torch.cuda.current_device():
        with torch.cuda.device(x.device):  # Triton launches on the current device
            return _launch_gated(kernel, x, gate, up, down, activation, keep)
    return _launch_gated(kernel, x, gate, up, down, activation, keep)


def run_plain(
    x: torch.Tensor,
    w1: torch.Tensor,
    b1: torch.Tensor | None,
    w2: torch.Tensor,
    b2: torch.Tensor | None,
    activation: str,
    keep: torch.Tensor | None = None,
) -> torch.Tensor:
    """Choose and launch: x (rows, width), contiguous, to (rows, out). No checks, no autograd.

    ``keep`` takes the pre-activation, (rows, hidden), for the backward.
    """
    kernel = _forced if x.shape[0] else "fallback"
    if kernel is None:
        rows, width = x.shape
        out, hidden = w2.shape
        aligned = (
            w1.is_contiguous()
            and w2.is_contiguous()
            and (b1 is None or b1.is_contiguous())
            and (b2 is None or b2.is_contiguous())
            and not (x.data_ptr() | w1.data_ptr() | w2.data_ptr()) & 15
        )
        kernel = _kernel_for(
            rows, width, hidden, out, False, b1 is not None, activation, x.dtype, x.get_device(),
            aligned, keep is not None,
        )  # fmt: skip
    elif kernel != "fallback":
        _require_contiguous(w1, b1, w2, b2)
    if x.is_cuda and x.get_device() != torch.cuda.current_device():
        with torch.cuda.device(x.device):
            return _launch_plain(kernel, x, w1, b1, w2, b2, activation, keep)
    return _launch_plain(kernel, x, w1, b1, w2, b2, activation, keep)


def _require_contiguous(*weights: torch.Tensor | None) -> None:
    """What `forced` skips: the kernels take a pointer and sizes, and know nothing of strides."""
    for weight in weights:
        if weight is not None and not weight.is_contiguous():
            raise ValueError(
                f"a forced kernel expects contiguous weights, got strides {weight.stride()} for "
                f"shape {tuple(weight.shape)}"
            )


def _launch_gated(
    kernel: Kernel,
    x: torch.Tensor,
    gate: torch.Tensor,
    up: torch.Tensor,
    down: torch.Tensor,
    activation: str,
    keep: tuple[torch.Tensor, torch.Tensor] | None,
) -> torch.Tensor:
    if kernel != "fallback":
        try:
            if kernel == "streaming" and keep is None:
                return streaming.gated(x, gate, up, down, activation)
            if kernel == "specialised":
                return specialised.gated(x, gate, up, down, activation, keep=keep)
            if kernel == "many_rows":
                return many_rows.gated(x, gate, up, down, activation, keep=keep)
            if kernel == "decode" and keep is None:
                return decode.gated(x, gate, up, down, activation)
        except WorkspaceExhausted as error:
            _warn_of_the_fallback(error)
    return fallback.gated(x, gate, up, down, activation, keep)


def _launch_plain(
    kernel: Kernel,
    x: torch.Tensor,
    w1: torch.Tensor,
    b1: torch.Tensor | None,
    w2: torch.Tensor,
    b2: torch.Tensor | None,
    activation: str,
    keep: torch.Tensor | None,
) -> torch.Tensor:
    if kernel in ("specialised", "streaming"):
        raise ValueError(f"the {kernel} kernel does gated MLPs only")
    if kernel != "fallback":
        try:
            if kernel == "many_rows":
                return many_rows.plain(x, w1, b1, w2, b2, activation, keep=keep)
            if keep is None and kernel == "resident":
                return resident.plain(x, w1, b1, w2, b2, activation)
            if keep is None and kernel == "narrow":
                return narrow.plain(x, w1, b1, w2, b2, activation)
            if keep is None:
                return decode.plain(x, w1, b1, w2, b2, activation)
        except WorkspaceExhausted as error:
            _warn_of_the_fallback(error)
    return fallback.plain(x, w1, b1, w2, b2, activation, keep)


def _warn_of_the_fallback(error: Exception) -> None:
    """Capturing more graphs than there are slots is slower, not wrong: say so, and go on."""
    warnings.warn(f"fused_mlp falls back to cuBLAS: {error}", RuntimeWarning, stacklevel=4)
