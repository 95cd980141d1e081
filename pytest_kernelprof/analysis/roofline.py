"""How near a call's kernels come to what the device can compute and move, and which is nearer.

The work of an operator follows from the shapes of its inputs, whatever carries it out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from pytest_kernelprof.analysis.round_events import directions, kernels_of, operators_of_activities
from pytest_kernelprof.records.metrics import Rated
from pytest_kernelprof.records.profile import Kernel
from pytest_kernelprof.records.recording import Roofline, Work
from pytest_kernelprof.trace.columns import KERNEL, MEMCPY, MEMSET, NO_ID, Input, Trace
from pytest_kernelprof.trace.correlation import Reading, ancestors
from pytest_kernelprof.units import first_of

Inputs = Sequence[Input]


_ITEM_SIZE = {
    "double": 8, "float": 4, "c10::Half": 2, "c10::BFloat16": 2,
    "c10::Float8_e4m3fn": 1, "c10::Float8_e5m2": 1, "c10::Float8_e4m3fnuz": 1,
    "c10::Float8_e5m2fnuz": 1, "long int": 8, "long": 8, "long long": 8, "int": 4, "short int": 2,
    "short": 2, "signed char": 1, "unsigned char": 1, "bool": 1, "c10::complex<float>": 8,
    "c10::complex<double>": 16,
}  # fmt: skip


class Amount(NamedTuple):
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
    """The work of an operator, by name and inputs; None where they do not tell it: its formula
    raises a LookupError or ValueError then."""
    # ``aten::add_`` does and moves what ``aten::add`` does.
    formula = _FORMULAS.get(operator) or _FORMULAS.get(operator.removesuffix("_"))
    if formula is None:
        return None
    try:
        return formula(inputs)
    except (LookupError, ValueError):  # an input is missing, or of another form or type
        return None


def _size(one: Input) -> int:
    return _ITEM_SIZE[one.dtype]


def _tensors(inputs: Inputs) -> list[Input]:
    """The tensors among some inputs; those without a dimension move next to nothing."""
    found = [one for one in inputs if one.shape]
    if not found or any(one.dtype == "TensorList" for one in inputs):
        raise ValueError
    return found


def _read(one: Input) -> int:
    """Bytes of a tensor in memory: an expanded dimension (stride 0) is there once."""
    strides = one.strides if len(one.strides) == len(one.shape) else (1,) * len(one.shape)
    there = (n for n, stride in zip(one.shape, strides, strict=True) if stride != 0)
    return _size(one) * math.prod(there)


def _sums(a: Input, b: Input, count: int, length: int, *added: Input) -> Amount:
    """So many sums of so many products of numbers of two tensors; others are added to them."""
    moved = sum(map(_read, (a, b, *added))) + count * _size(a)
    return Amount(2 * count * length, moved, a.dtype, matrix=True)


def _product(first: int, dimensions: int) -> Callable[[Inputs], Amount]:
    """Matrix products whose operands are the inputs ``first`` and the next; what comes before is
    added to them (``addmm``)."""

    def amount(inputs: Inputs) -> Amount:
        a, b = inputs[first], inputs[first + 1]
        (*batch, m, k), (*other, inner, n) = a.shape, b.shape
        if len(a.shape) != dimensions or inner != k or batch != other:
            raise ValueError
        return _sums(a, b, math.prod(batch) * m * n, k, *inputs[:first])

    return amount


def _linear(inputs: Inputs) -> Amount:
    x, weight = inputs[0], inputs[1]
    n, k = weight.shape
    if x.shape[-1] != k:
        raise ValueError
    bias = [one for one in inputs[2:3] if one.shape]
    return _sums(x, weight, math.prod(x.shape[:-1]) * n, k, *bias)


def _matmul(inputs: Inputs) -> Amount:
    """As ``torch.matmul`` broadcasts; vectors count as matrices of one row or column."""
    a, b = inputs[0], inputs[1]
    if not a.shape or not b.shape:
        raise ValueError
    left = a.shape if len(a.shape) > 1 else (1, *a.shape)
    right = b.shape if len(b.shape) > 1 else (*b.shape, 1)
    if left[-1] != right[-2]:
        raise ValueError
    out = math.prod(np.broadcast_shapes(left[:-2], right[:-2])) * left[-2] * right[-1]
    return _sums(a, b, out, left[-1])


def _numbers(one: Input, count: int) -> tuple[int, ...]:
    """A list argument such as "[1, 1]", or one number for all dimensions."""
    found = tuple(int(text) for text in re.findall(r"-?\d+", one.value))
    if len(found) == 1:
        return found * count
    if len(found) != count:
        raise ValueError
    return found


def _convolution(inputs: Inputs) -> Amount:
    """``aten::convolution``: input, weight, bias, stride, padding, dilation, transposed, ..."""
    x, weight = inputs[0], inputs[1]
    kernel = weight.shape[2:]
    if inputs[6].value != "False" or len(x.shape) != len(weight.shape) or not kernel:
        raise ValueError
    stride, padding, dilation = (_numbers(inputs[i], len(kernel)) for i in (3, 4, 5))
    dimensions = zip(x.shape[2:], kernel, stride, padding, dilation, strict=True)
    sides = [(n + 2 * pad - wide * (k - 1) - 1) // step + 1 for n, k, step, pad, wide in dimensions]
    if min(sides) < 1:
        raise ValueError
    out = x.shape[0] * weight.shape[0] * math.prod(sides)
    return _sums(x, weight, out, math.prod(weight.shape[1:]))


def _attention(causal: int) -> Callable[[Inputs], Amount]:
    """Scaled dot-product attention; ``causal`` is the index of its argument ``is_causal``."""

    def amount(inputs: Inputs) -> Amount:
        q, k, v = inputs[:3]
        batch, heads, rows, width = q.shape
        _, _, columns, _ = k.shape
        _, _, _, deep = v.shape
        masked = {"True": True, "False": False}[inputs[causal].value]
        if masked and rows != columns:
            raise ValueError
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
        out = math.prod(np.broadcast_shapes(*(one.shape for one in read)))
        size = out_size or max(_size(one) for one in read)
        return Amount(out, sum(_read(one) for one in read) + out * size, read[0].dtype)

    return amount


def _copy(inputs: Inputs) -> Amount:
    """``copy_(to, from)`` reads the second and writes the first."""
    to, source = inputs[0], inputs[1]
    if not to.shape:
        raise ValueError
    return Amount(0, _read(to) + (_read(source) if source.shape else 0), to.dtype)


def _passes(times: int, *, computes: bool = True) -> Callable[[Inputs], Amount]:
    """Goes over its first input so many times, and moves next to nothing else."""

    def amount(inputs: Inputs) -> Amount:
        (x,) = _tensors(inputs[:1])
        return Amount(math.prod(x.shape) if computes else 0, times * _read(x), x.dtype)

    return amount


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
    **_named("fill zero", _passes(1, computes=False)),
    # What a reduction writes is small, and not known from shapes alone.
    **_named("sum mean amax amin max min any all argmax argmin prod norm", _passes(1)),
    # Row by row: as much is written as is read.
    **_named("_softmax _log_softmax native_layer_norm native_group_norm", _passes(2)),
}


class Peaks(NamedTuple):
    """Peaks of one GPU model.

    Attributes:
        bandwidth: of the device's memory, in GB/s (10**9 bytes).
        tflops: dense matrix products (no sparsity, float32 accumulation), in TFLOP/s (10**12), by
            precision: "16" (float16, bfloat16), "tf32", "32" (float32 outside tensor cores), "8"
            (float8); only those that the GPU has.
    """

    bandwidth: float
    tflops: Mapping[str, float]


# By the whole name that the driver gives, but for "NVIDIA" and "Tesla" before it: a slice of a GPU
# (MIG) or a sister model (A10G) must not get its figures. The figures are those of NVIDIA's data
# sheets; of a T4 and a GeForce those of the white papers on Turing and Ada, of a B200 those of the
# Blackwell architecture technical brief (HGX B200, 1000 W). Where figures with sparsity are given,
# half of them stands here.
_BY_MODEL: dict[str, Peaks] = {
    r"V100-SXM\d.*": Peaks(900, {"16": 125, "32": 15.7}),
    r"V100-PCIE.*": Peaks(900, {"16": 112, "32": 14}),
    r"V100S-PCIE.*": Peaks(1134, {"16": 130, "32": 16.4}),
    r"T4": Peaks(320, {"16": 65, "32": 8.1}),
    r"A10": Peaks(600, {"16": 125, "32": 31.2, "tf32": 62.5}),
    r"A100-(SXM4|PCIE)-40GB": Peaks(1555, {"16": 312, "32": 19.5, "tf32": 156}),
    r"A100-SXM4-80GB": Peaks(2039, {"16": 312, "32": 19.5, "tf32": 156}),
    r"A100 80GB PCIe": Peaks(1935, {"16": 312, "32": 19.5, "tf32": 156}),
    r"L4": Peaks(300, {"16": 121, "32": 30.3, "tf32": 60, "8": 242.5}),
    r"L40S": Peaks(864, {"16": 362, "32": 91.6, "tf32": 183, "8": 733}),
    r"GeForce RTX 4090": Peaks(1008, {"16": 165.2, "32": 82.6, "tf32": 82.6, "8": 330.3}),
    r"H100 80GB HBM3": Peaks(3350, {"16": 989.5, "32": 67, "tf32": 494.5, "8": 1979}),
    r"H100 PCIe": Peaks(2039, {"16": 756, "32": 51, "tf32": 378, "8": 1513}),
    r"H200": Peaks(4800, {"16": 989.5, "32": 67, "tf32": 494.5, "8": 1979}),
    r"B200": Peaks(8000, {"16": 2250, "32": 80, "tf32": 1100, "8": 4500}),
}


def peaks_of(gpu: str) -> Peaks | None:
    """The peaks of a GPU by its full name, such as "NVIDIA H200"; None for an unknown one."""
    bare = re.sub(r"^(NVIDIA )?(Tesla )?", "", gpu)
    return next((found for model, found in _BY_MODEL.items() if re.fullmatch(model, bare)), None)


Roof = Literal["compute", "memory"]

# Peaks of data sheets are never reached: good matrix products get 60 to 80 % of them, good copies
# 75 to 90 %. Below this share neither roof is what limits a kernel.
_NEAR = 0.4
# A verdict on the call needs most of its GPU time to be of one class.
_MOST = 0.5

_PRECISIONS = {"c10::Half": "16", "c10::BFloat16": "16"}
_PRECISIONS |= {f"c10::Float8_{kind}": "8" for kind in ("e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz")}
_TF32 = re.compile(r"tf32|s1688(?!\d)|s16816tf32", re.I)
_FLOAT32 = re.compile(r"sgemm|simt|ffma|f32f32_f32f32_f32", re.I)


class Rate(NamedTuple):
    """What one run of an operator achieved, which one kernel or several carried out.

    Attributes:
        operator: its name.
        amount: its work.
        precision: of the arithmetic: "16", "tf32", "32" or "8"; empty where it does not show.
        duration_us: of its kernels together.
        peaks: those of the device; None where they are unknown.
        runs: its kernels, by their places among those that were given.
    """

    operator: str
    amount: Amount
    precision: str
    duration_us: float
    peaks: Peaks | None
    runs: tuple[int, ...] = ()

    @property
    def of_compute(self) -> float | None:
        """The share of the device's peak of arithmetic; None where that is unknown."""
        peak = self.peaks and self.peaks.tflops.get(self.precision)
        return self.amount.flops / self.duration_us / 1e6 / peak if peak else None

    @property
    def of_memory(self) -> float | None:
        """The share of the memory's peak; None where that is unknown. Data that lie in the L2 cache
        may be read quicker."""
        peak = self.peaks and self.peaks.bandwidth
        return self.amount.bytes / self.duration_us / 1e3 / peak if peak else None

    @property
    def roof(self) -> Roof | None:
        """The roof that limits it: the nearer one, if it is near; None if neither is, or if the
        peaks are not known."""
        compute, memory = self.of_compute, self.of_memory
        if memory is None or (compute is None and self.amount.flops):
            return None
        if max(compute or 0.0, memory) < _NEAR:
            return None
        return "compute" if (compute or 0.0) > memory else "memory"


def rates(
    reading: Reading, operators: Sequence[int], kernels: Sequence[Kernel], peaks: Peaks | None
) -> tuple[Rate, ...]:
    """What each operator achieved whose work is known, in order of its first kernel. Shapes, which
    tell it, are there only in a session with ``shapes=True``.

    Args:
        operators: the innermost operator of each kernel.
        kernels: their names tell the precision of float32 matrix products.
    """
    trace, parent = reading.trace, reading.parent
    amounts: dict[int, Amount] = {}
    of_row: dict[int, list[int]] = {}
    for at, operator in enumerate(operators):
        for row in ancestors(parent, operator):
            amount = amounts.get(row) or _amount_of_row(trace, row)
            if amount is not None:
                amounts[row] = amount
                of_row.setdefault(row, []).append(at)
                break
    # Where a kernel has an operator of its own inside another (a copy in a matmul), the outer one
    # is not what the rest of the kernels do alone.
    around = {above for row in amounts for above in ancestors(parent, row) if above != row}
    found = []
    for row, amount in amounts.items():
        name, runs = trace.operators.name[row], tuple(of_row[row])
        duration = sum(kernels[at].duration_us for at in runs)
        if row not in around and duration > 0:
            precision = _precision(amount.dtype, kernels[runs[0]].name) if amount.matrix else "32"
            found.append(Rate(name, amount, precision, duration, peaks, runs))
    return tuple(found)


def work_of(reading: Reading, number: int, gpu: str) -> dict[Rated, Work]:
    """The work of one round, by the metric that says it a second: that of its known operators.

    The peak of arithmetic is that of the mix: all operations over the least time that they take,
    each at the peak of its precision. So a part of the work over its peak is never more than the
    whole over its own.

    Args:
        reading: of a session with ``shapes=True``.
        gpu: the device's full name.
    """
    rows = np.concatenate([reading.activities(one)[number] for one in (KERNEL, MEMCPY, MEMSET)])
    kinds, runs = reading.trace.activities.kind[rows], kernels_of(reading, rows)
    # What bounds a copy from or to the host is another memory.
    outside = (kinds == MEMCPY) & ~directions(reading.trace.activities.name[rows]).are("d2d")
    operators = np.where(outside, NO_ID, operators_of_activities(reading, rows)).tolist()
    found, peaks = rates(reading, operators, runs, peaks_of(gpu)), peaks_of(gpu)
    unknown = sorted({*range(len(runs))}.difference(*(one.runs for one in found)))
    flops, peakless = sum(one.amount.flops for one in found), f"the peaks of {gpu} are not known"
    shares = [(one, one.of_compute) for one in found if one.amount.flops]
    least_us = sum(share * one.duration_us for one, share in shares if share)
    odd = next((f"{peakless} for {one.operator}" for one, share in shares if share is None), "")
    why = (odd if peaks else peakless) or ("" if least_us else "nothing that is known computes")
    computes = _first(runs[at] for at in unknown if kinds[at] == KERNEL)  # no copy or set does
    moved, most = sum(one.amount.bytes for one in found), 1e9 * peaks.bandwidth if peaks else None
    return {
        "throughput": Work(flops, computes, None if why else 1e6 * flops / least_us, why),
        "bandwidth": Work(moved, _first(runs[at] for at in unknown), most, "" if most else why),
    }


def _first(runs: Iterable[Kernel]) -> tuple[str, ...]:
    """What they are launched by, or else are: the first three."""
    names = dict.fromkeys((*one.operators, one.short_name)[0] for one in runs)
    return tuple(first_of([*names], 3))


def _amount_of_row(trace: Trace, row: int) -> Amount | None:
    inputs = trace.operators.inputs
    of_row = inputs[row] if inputs is not None else None
    return amount_of(trace.operators.name[row], of_row) if of_row else None


def _precision(dtype: str, kernel: str) -> str:
    """Of a matrix product. Only the kernel's name tells what float32 is multiplied in."""
    if dtype != "float":
        return _PRECISIONS.get(dtype, "")
    if _TF32.search(kernel):
        return "tf32"
    return "32" if _FLOAT32.search(kernel) else ""


def roofline_of(found: Sequence[Rate], busy_us: float, peaks: Peaks | None) -> Roofline:
    """Which roof limits a call whose kernels take ``busy_us`` together.

    A roof is the verdict if kernels that are near it take more than half of the time.
    """
    if not found:
        return Roofline(None, "no shapes of a known operator were recorded")
    if peaks is None:
        return Roofline(None, "the peaks of this GPU are not in the table")
    for roof in ("compute", "memory"):
        of_roof = [rate for rate in found if rate.roof == roof]
        share = _share(of_roof, busy_us)
        if share > _MOST:
            return Roofline(roof, f"{_words(roof, of_roof)} in {share:.0%} of the GPU time")
    known = _share(found, busy_us)
    return Roofline(
        None, f"neither roof is near in most of the GPU time (work known for {known:.0%} of it)"
    )


def _share(found: Sequence[Rate], busy_us: float) -> float:
    return sum(rate.duration_us for rate in found) / busy_us if busy_us > 0 else 0.0


def _words(roof: Roof, found: Sequence[Rate]) -> str:
    """The achieved rate over all, and its share of the peak."""
    time = sum(rate.duration_us for rate in found)
    if roof == "memory":
        gbps = sum(rate.amount.bytes for rate in found) / time / 1e3
        share = sum((rate.of_memory or 0.0) * rate.duration_us for rate in found) / time
        return f"{gbps:.0f} GB/s, {share:.0%} of the memory's peak,"
    tflops = sum(rate.amount.flops for rate in found) / time / 1e6
    share = sum((rate.of_compute or 0.0) * rate.duration_us for rate in found) / time
    return f"{tflops:.3g} TFLOP/s, {share:.0%} of the peak,"
