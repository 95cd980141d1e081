"""Which kernel a call gets: one table of rules, read from the top; the first that holds decides.

`choose` is a pure function of a `Problem`, so every rule can be tested without a GPU. A rule gives
a call to a kernel where that was measured to be ahead of the simplest way by a tenth or more;
between the measured sizes and outside them PyTorch does what it would do anyway.

`run` then launches what was chosen. A launch that fails (no room for a cooperative one, no free
workspace while a graph is captured) is done by PyTorch, with a warning.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch.autograd import forward_ad

from .eager import ACTIVATE, SlopeOperands, eager
from .eager import slopes as eager_slopes
from .problem import KERNEL_ACTIVATIONS, KERNEL_DTYPES, TRITON, Problem, capability_of, problem_of
from .weights import Weights

REFUSALS: tuple[type[Exception], ...] = (RuntimeError,)
"""What a launch raises that did not come about; nothing has been computed or changed then."""

GLUON = False
if TRITON:
    from triton.runtime.errors import OutOfResources

    from . import narrow

    REFUSALS = (RuntimeError, OutOfResources)
    try:  # Gluon is experimental: where a Triton has none, or another, PyTorch does the work
        from . import few_rows, resident, slopes, specialised
    except (ImportError, AttributeError):
        pass
    else:
        GLUON = True

Kernel = Literal["narrow", "resident", "few_rows", "specialised", "pytorch"]
KERNELS: tuple[Kernel, ...] = get_args(Kernel)

ARCHITECTURES = ((9, 0),)
"""Compute capabilities that the kernels were written for and measured on: Hopper's."""

ALIGNMENT = 8
"""Numbers of 16 bits in 16 bytes: TMA and vector loads want rows of whole such pieces."""

NARROW_MAX_WIDTH = 128
NARROW_MAX_HIDDEN = 512
NARROW_MIN_ROWS = 16_384
"""Fewer rows do not pay for loading the weights into every SM."""
RESIDENT_ABOVE = 64
"""Up to this width and hidden, plain Triton keeps the memory just as busy."""

FEW_ROWS_MIN_HIDDEN = 512
FEW_ROWS_LARGEST = 8_192 * 3_584
"""Numbers in a matrix. At this size 1, 4 and 16 rows are 1.18 to 1.27 times as fast as eager; of
4,096 x 14,336, one row is 1.09 and four are 1.07, and behind by the wall clock."""

MANY_ROWS = 4_096
MANY_ROWS_HIDDEN = (1_024, 4_096)
MANY_ROWS_WIDTH = (256, 1_024)
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
        not p.keep
        and p.rows >= NARROW_MIN_ROWS
        and max(p.width, p.out) <= NARROW_MAX_WIDTH
        and p.hidden <= NARROW_MAX_HIDDEN
        and narrow.supports(p)
    )


def _is_resident(p: Problem) -> bool:
    return (
        GLUON
        and _is_narrow(p)
        and max(p.width, p.hidden, p.out) > RESIDENT_ABOVE
        and resident.supports(p)
    )


def _has_few_rows(p: Problem) -> bool:
    return (
        GLUON
        and p.gated
        and not p.keep
        and p.hidden >= FEW_ROWS_MIN_HIDDEN
        and p.hidden * max(p.width, p.out) <= FEW_ROWS_LARGEST
        and few_rows.supports(p)
    )


def _has_many_rows(p: Problem) -> bool:
    return (
        GLUON
        and p.gated
        and p.rows >= MANY_ROWS
        and MANY_ROWS_HIDDEN[0] <= p.hidden <= MANY_ROWS_HIDDEN[1]
        and MANY_ROWS_WIDTH[0] <= min(p.width, p.out)
        and max(p.width, p.out) <= MANY_ROWS_WIDTH[1]
    )


def _has_ragged_rows(p: Problem) -> bool:
    return p.width % ALIGNMENT != 0 or p.hidden % ALIGNMENT != 0 or p.out % ALIGNMENT != 0


RULES: tuple[Rule, ...] = (
    Rule(
        "pytorch",
        "nothing to compute",
        lambda p: p.rows == 0 or p.width == 0 or p.hidden == 0 or p.out == 0,
    ),
    Rule("pytorch", "no GPU that Triton compiles for", lambda p: p.capability is None),
    Rule("pytorch", "an unknown architecture", lambda p: p.capability not in ARCHITECTURES),
    Rule("pytorch", "no kernel for this dtype", lambda p: p.dtype not in KERNEL_DTYPES),
    Rule(
        "pytorch", "no kernel for this activation", lambda p: p.activation not in KERNEL_ACTIVATIONS
    ),
    Rule("resident", "narrow layers and many rows: memory and tensor cores busy", _is_resident),
    Rule("narrow", "narrow layers and many rows: weights stay on the SM", _is_narrow),
    Rule("pytorch", "rows that are no multiple of 16 bytes", _has_ragged_rows),
    Rule("few_rows", "few rows: bound by reading the weights once", _has_few_rows),
    Rule(
        "specialised", "many rows and a hidden layer that costs its way to memory", _has_many_rows
    ),
    Rule("pytorch", "no kernel was measured a tenth ahead here", lambda p: True),
)


def choose(problem: Problem) -> Choice:
    """The kernel for ``problem`` and the reason, by the first rule of `RULES` that holds."""
    for rule in RULES:
        if rule.holds(problem):
            return Choice(rule.kernel, rule.reason)
    raise AssertionError("the last rule always holds")


_remembered = functools.lru_cache(maxsize=4096)(choose)

_forced: Kernel | None = None


def forced_kernel() -> Kernel | None:
    """The kernel that `forced` asks for, if any."""
    return _forced


@contextlib.contextmanager
def forced(kernel: Kernel) -> Iterator[None]:
    """Inside, every call gets ``kernel``, on any device and with any dtype: for tests.

    It holds for the whole process. A kernel that cannot do what is asked of it raises. Where a
    backward will follow, kernels that keep no pre-activations give way to PyTorch.
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


def kernel_for(x: torch.Tensor, weights: Weights, activation: str, keep: bool = False) -> Kernel:
    """What x, (rows, width), and the weights get, unless they are not aligned.

    ``keep``: a backward will follow.
    """
    if _forced is not None:
        return _forced if _forced == "specialised" or not keep else "pytorch"
    decide = choose if torch.compiler.is_dynamo_compiling() else _remembered
    return decide(problem_of(x, weights, activation, keep)).kernel


def plan_for(kernel: Kernel, x: torch.Tensor, weights: Weights, activation: str) -> Any:
    """What a launch depends on beside its tensors, for `run`."""
    return globals()[kernel].make_plan(problem_of(x, weights, activation), x.device)


def run(
    kernel: Kernel, x: torch.Tensor, weights: Weights, activation: str, plan: Any = None
) -> torch.Tensor:
    """Launch what was chosen: x (rows, width), contiguous, to (rows, out). No autograd."""
    if kernel != "pytorch":
        try:
            if not _is_elsewhere(x):
                return _launch(kernel, x, weights, activation, plan)
            with torch.cuda.device(x.device):
                return _launch(kernel, x, weights, activation, plan)
        except REFUSALS as error:
            _go_on_without(error)
    return eager(x, weights, activation)


def run_and_keep(
    x: torch.Tensor, weights: Weights, activation: str
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """The result, both pre-activations, ``x Wg^T`` and ``x Wu^T``, and h, (rows, hidden) each."""
    assert weights.up is not None
    gate_pre = x.new_empty(x.shape[0], weights.first.shape[0])
    up_pre = torch.empty_like(gate_pre)
    kernel = kernel_for(x, weights, activation, keep=True)
    if kernel == "specialised" and are_aligned(x, weights):
        h = torch.empty_like(gate_pre)
        try:
            with on_its_device(x):
                y = specialised.specialised(x, weights, activation, keep=(gate_pre, up_pre, h))
                return y, gate_pre, up_pre, h
        except REFUSALS as error:
            _go_on_without(error)
    torch.mm(x, weights.first.t(), out=gate_pre)
    torch.mm(x, weights.up.t(), out=up_pre)
    h = ACTIVATE[activation](gate_pre) * up_pre
    return h @ weights.down.t(), gate_pre, up_pre, h


def run_slopes(operands: SlopeOperands, activation: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradients of both pre-activations, (rows, hidden) each.

    By the kernel wherever it can run: PyTorch trains the sizes for which none is ahead.
    """
    dy, _, gate_pre, _ = operands
    if (
        GLUON
        and _forced in (None, "specialised")
        and not is_transformed()
        and capability_of(dy.get_device()) in ARCHITECTURES
        and activation in KERNEL_ACTIVATIONS
        and slopes.supports(*gate_pre.shape, dy.shape[1], dy.dtype)
        and all(t.is_contiguous() and t.data_ptr() % 16 == 0 for t in operands)
    ):
        try:
            with on_its_device(dy):
                return slopes.slopes(operands, activation)
        except REFUSALS as error:
            _go_on_without(error)
    return eager_slopes(operands, activation)


def _launch(
    kernel: Kernel, x: torch.Tensor, weights: Weights, activation: str, plan: Any = None
) -> torch.Tensor:
    if _forced is not None:
        _require_contiguous(weights)
    module = globals()[kernel]  # each has one function, with its own name
    y: torch.Tensor = getattr(module, kernel)(x, weights, activation, plan)
    return y


_HERE = contextlib.nullcontext()


def on_its_device(x: torch.Tensor) -> contextlib.AbstractContextManager[None]:
    """Where Triton launches: on the current device."""
    return torch.cuda.device(x.device) if _is_elsewhere(x) else _HERE


def _is_elsewhere(x: torch.Tensor) -> bool:
    """On another GPU than the current one. `torch.cuda` would see to CUDA first, at each call."""
    return x.is_cuda and x.get_device() != torch._C._cuda_getDevice()


def _go_on_without(error: Exception) -> None:
    """A launch that failed has changed nothing: say so, and let PyTorch do it."""
    if isinstance(error, torch.OutOfMemoryError):
        raise error
    words = f"fused_mlp goes to PyTorch, since a launch failed: {error}"
    warnings.warn(words, RuntimeWarning, stacklevel=4)


def is_transformed() -> bool:
    """Under forward-mode AD or the transforms of ``torch.func`` tensors carry tangents or a batch,
    which a kernel would drop without a word. PyTorch does all of that right."""
    return forward_ad._current_level >= 0 or _is_in_functorch()


@torch.compiler.assume_constant_result
def _is_in_functorch() -> bool:
    """Asked while torch.compile traces, and no part of the graph; the level above is guarded on."""
    return torch._C._are_functorch_transforms_active()


def are_contiguous(weights: Weights) -> bool:
    """What is known of the weights while torch.compile traces, when they have no addresses."""
    for weight in weights:  # noqa: SIM110  (a generator would take the host longer)
        if weight is not None and not weight.is_contiguous():
            return False
    return True


def are_aligned(x: torch.Tensor, weights: Weights) -> bool:
    """Are the weights contiguous, and all addresses multiples of 16 bytes, as TMA wants them?

    A strided x is copied, so that its address does not matter.
    """
    if not are_contiguous(weights):
        return False
    addresses = weights.first.data_ptr() | weights.down.data_ptr()
    if weights.up is not None:
        addresses |= weights.up.data_ptr()
    if x.is_contiguous():
        addresses |= x.data_ptr()
    return addresses & 15 == 0


def _require_contiguous(weights: Weights) -> None:
    """What `forced` skips: the kernels take a pointer and sizes, and know nothing of strides."""
    for weight in weights:
        if weight is not None and not weight.is_contiguous():
            raise ValueError(
                f"a forced kernel expects contiguous weights, got strides {weight.stride()} for "
                f"shape {tuple(weight.shape)}"
            )
