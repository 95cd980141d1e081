"""How much an operator computes and moves at the least, from the shapes of its inputs."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_kernelprof.trace.inputs import Input

    Inputs = Sequence[Input]

_ITEM_SIZE = {
    "double": 8, "float": 4, "c10::Half": 2, "c10::BFloat16": 2,
    "c10::Float8_e4m3fn": 1, "c10::Float8_e5m2": 1, "c10::Float8_e4m3fnuz": 1,
    "c10::Float8_e5m2fnuz": 1, "long int": 8, "long": 8, "long long": 8, "int": 4, "short int": 2,
    "short": 2, "signed char": 1, "unsigned char": 1, "bool": 1, "c10::complex<float>": 8,
    "c10::complex<double>": 16,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Amount:
    """The work of one operator, however it is carried out.

    Attributes:
        flops: floating-point operations, a multiplication and an addition each one. An element of
            a pointwise operator counts as one, whatever its function: a lower bound.
        bytes: what has to be read and written once, with perfect caches: a lower bound. A tensor
            that is given twice (``x * x``) counts twice, since shapes do not tell.
        dtype: element type of the first tensor, as the profiler writes it.
        matrix: whether it is made of matrix products, for which GPUs have units of their own.
    """

    flops: int
    bytes: int
    dtype: str
    matrix: bool = False


def amount_of(operator: str, inputs: Inputs) -> Amount | None:
    """The work of an operator, by name and inputs; None where they do not tell it."""
    formula = _FORMULAS.get(operator) or _FORMULAS.get(_out_of_place(operator))
    if formula is None:
        return None
    try:
        return formula(inputs)
    except _Unknown:
        return None


class _Unknown(Exception):  # noqa: N818 (no error: the shapes do not tell)
    """The inputs do not tell how much is done."""


def _out_of_place(operator: str) -> str:
    """``aten::add_`` does and moves what ``aten::add`` does."""
    return operator.removesuffix("_")


def _size(one: Input) -> int:
    if one.dtype not in _ITEM_SIZE:
        raise _Unknown
    return _ITEM_SIZE[one.dtype]


def _tensors(inputs: Inputs) -> list[Input]:
    """The tensors among some inputs; those without a dimension move next to nothing."""
    found = [one for one in inputs if one.shape]
    if not found or any(one.dtype == "TensorList" for one in inputs):
        raise _Unknown
    return found


def _read(one: Input) -> int:
    """Bytes of a tensor in memory: an expanded dimension (stride 0) is there once."""
    strides = one.strides if len(one.strides) == len(one.shape) else (1,) * len(one.shape)
    return _size(one) * math.prod(
        n for n, stride in zip(one.shape, strides, strict=True) if stride != 0
    )


def _matrix(one: Input, dimensions: int) -> tuple[int, ...]:
    if len(one.shape) != dimensions:
        raise _Unknown
    return one.shape


def _argument(inputs: Inputs, index: int) -> Input:
    if index >= len(inputs):
        raise _Unknown
    return inputs[index]


def _product(first: int, dimensions: int) -> Callable[[Inputs], Amount]:
    """Matrix products whose operands are the inputs ``first`` and the next; what comes before is
    added to them (``addmm``)."""

    def amount(inputs: Inputs) -> Amount:
        a, b = _argument(inputs, first), _argument(inputs, first + 1)
        *batch, m, k = _matrix(a, dimensions)
        *other, inner, n = _matrix(b, dimensions)
        if inner != k or batch != other:
            raise _Unknown
        out = math.prod(batch) * m * n
        moved = _read(a) + _read(b) + out * _size(a) + sum(_read(one) for one in inputs[:first])
        return Amount(2 * out * k, moved, a.dtype, True)

    return amount


def _linear(inputs: Inputs) -> Amount:
    x, weight = _argument(inputs, 0), _argument(inputs, 1)
    n, k = _matrix(weight, 2)
    if not x.shape or x.shape[-1] != k:
        raise _Unknown
    out = math.prod(x.shape[:-1]) * n
    bias = sum(_read(one) for one in inputs[2:3] if one.shape)
    return Amount(2 * out * k, _read(x) + _read(weight) + out * _size(x) + bias, x.dtype, True)


def _matmul(inputs: Inputs) -> Amount:
    """As ``torch.matmul`` broadcasts; vectors count as matrices of one row or column."""
    a, b = _argument(inputs, 0), _argument(inputs, 1)
    if not a.shape or not b.shape:
        raise _Unknown
    left = a.shape if len(a.shape) > 1 else (1, *a.shape)
    right = b.shape if len(b.shape) > 1 else (*b.shape, 1)
    if left[-1] != right[-2]:
        raise _Unknown
    out = math.prod(_broadcast([left[:-2], right[:-2]])) * left[-2] * right[-1]
    return Amount(2 * out * left[-1], _read(a) + _read(b) + out * _size(a), a.dtype, True)


def _broadcast(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    rank = max(len(shape) for shape in shapes)
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    sizes = [set(column) - {1} for column in zip(*padded, strict=True)]
    if any(len(size) > 1 for size in sizes):
        raise _Unknown
    return tuple(size.pop() if size else 1 for size in sizes)


def _numbers(one: Input, count: int) -> tuple[int, ...]:
    """A list argument such as "[1, 1]", or one number for all dimensions."""
    found = tuple(int(text) for text in re.findall(r"-?\d+", one.value))
    if len(found) == 1:
        return found * count
    if len(found) != count:
        raise _Unknown
    return found


def _convolution(inputs: Inputs) -> Amount:
    """``aten::convolution``: input, weight, bias, stride, padding, dilation, transposed, ..."""
    x, weight = _argument(inputs, 0), _argument(inputs, 1)
    transposed = _argument(inputs, 6).value
    kernel = weight.shape[2:]
    if transposed != "False" or len(x.shape) != len(weight.shape) or not kernel:
        raise _Unknown
    stride, padding, dilation = (_numbers(inputs[i], len(kernel)) for i in (3, 4, 5))
    sides = [
        (n + 2 * pad - wide * (k - 1) - 1) // step + 1
        for n, k, step, pad, wide in zip(
            x.shape[2:], kernel, stride, padding, dilation, strict=True
        )
    ]
    if min(sides) < 1:
        raise _Unknown
    out = x.shape[0] * weight.shape[0] * math.prod(sides)
    moved = _read(x) + _read(weight) + out * _size(x)
    return Amount(2 * out * math.prod(weight.shape[1:]), moved, x.dtype, True)


def _attention(causal: int) -> Callable[[Inputs], Amount]:
    """Scaled dot-product attention; ``causal`` is the index of its argument ``is_causal``."""

    def amount(inputs: Inputs) -> Amount:
        q, k, v = (_argument(inputs, i) for i in range(3))
        batch, heads, rows, width = _matrix(q, 4)
        columns, deep = _matrix(k, 4)[2], _matrix(v, 4)[3]
        masked = {"True": True, "False": False}.get(_argument(inputs, causal).value)
        if masked is None or (masked and rows != columns):
            raise _Unknown
        pairs = rows * (rows + 1) // 2 if masked else rows * columns
        out = batch * heads * rows * deep
        moved = _read(q) + _read(k) + _read(v) + out * _size(q)
        return Amount(2 * batch * heads * pairs * (width + deep), moved, q.dtype, True)

    return amount


def _pointwise(operands: int, *, out_size: int | None = None) -> Callable[[Inputs], Amount]:
    """Reads every operand once and writes one output of their common shape.

    Args:
        operands: how many of the first inputs are read; what follows is options, or the tensor
            that ``out=`` gives.
        out_size: bytes of an element of the output; None for that of the widest operand.
    """

    def amount(inputs: Inputs) -> Amount:
        read = _tensors(inputs[:operands])
        out = math.prod(_broadcast([one.shape for one in read]))
        size = out_size or max(_size(one) for one in read)
        return Amount(out, sum(_read(one) for one in read) + out * size, read[0].dtype)

    return amount


def _copy(inputs: Inputs) -> Amount:
    """``copy_(to, from)`` reads the second and writes the first."""
    to, source = _argument(inputs, 0), _argument(inputs, 1)
    if not to.shape:
        raise _Unknown
    return Amount(0, _read(to) + (_read(source) if source.shape else 0), to.dtype)


def _fill(inputs: Inputs) -> Amount:
    (to,) = _tensors(inputs[:1])
    return Amount(0, _read(to), to.dtype)


def _reduction(inputs: Inputs) -> Amount:
    """Reads its first input; what it writes is small, and not known from shapes alone."""
    (x,) = _tensors(inputs[:1])
    return Amount(math.prod(x.shape), _read(x), x.dtype)


def _row_by_row(inputs: Inputs) -> Amount:
    """Reads its first input and writes as much (normalisations, softmax)."""
    (x,) = _tensors(inputs[:1])
    return Amount(math.prod(x.shape), 2 * _read(x), x.dtype)


def _named(names: str, formula: Callable[[Inputs], Amount]) -> dict[str, Callable[..., Amount]]:
    return {f"aten::{name}": formula for name in names.split()}


_FORMULAS: dict[str, Callable[[Inputs], Amount]] = {
    **_named("mm _scaled_mm", _product(0, 2)),
    **_named("addmm", _product(1, 2)),
    **_named("bmm", _product(0, 3)),
    **_named("baddbmm", _product(1, 3)),
    **_named("linear", _linear),
    **_named("matmul", _matmul),
    **_named("convolution", _convolution),
    **_named("_scaled_dot_product_flash_attention", _attention(4)),
    **_named(
        "_scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention", _attention(6)
    ),
    **_named("scaled_dot_product_attention", _attention(5)),
    **_named(
        "neg abs exp log sqrt rsqrt reciprocal sin cos tanh sigmoid relu gelu silu leaky_relu "
        "hardtanh elu softplus clamp clamp_min clamp_max erf sign square bitwise_not",
        _pointwise(1),
    ),
    **_named(
        "add sub mul div pow maximum minimum threshold_backward gelu_backward silu_backward "
        "tanh_backward sigmoid_backward bitwise_and bitwise_or masked_fill",
        _pointwise(2),
    ),
    **_named("lerp addcmul addcdiv where", _pointwise(3)),
    **_named("logical_not isnan isfinite", _pointwise(1, out_size=1)),
    **_named("eq ne lt le gt ge", _pointwise(2, out_size=1)),
    **_named("copy", _copy),
    **_named("fill zero", _fill),
    **_named("sum mean amax amin max min any all argmax argmin prod norm", _reduction),
    **_named("_softmax _log_softmax native_layer_norm native_group_norm", _row_by_row),
}
