"""FLOPs and bytes from shapes: by hand, and against torch's own counter of FLOPs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from pytest_kernelprof.analysis.roofline import Amount, amount_of
from pytest_kernelprof.gpu.inventory import current_device
from pytest_kernelprof.profiler.session import Session
from pytest_kernelprof.trace.columns import Input
from pytest_kernelprof.trace.reader import read_trace


def tensor(*shape: int, dtype: str = "c10::BFloat16", strides: Sequence[int] = ()) -> Input:
    return Input(shape, tuple(strides), dtype)


def value(text: str) -> Input:
    return Input((), (), "Scalar", text)


A, B = tensor(64, 32), tensor(32, 16)


@pytest.mark.parametrize(
    ("operator", "inputs", "flops", "moved"),
    [
        ("aten::mm", [A, B], 2 * 64 * 32 * 16, 2 * (64 * 32 + 32 * 16 + 64 * 16)),
        ("aten::addmm", [tensor(16), A, B], 65536, 2 * (2048 + 512 + 1024 + 16)),
        ("aten::bmm", [tensor(3, 64, 32), tensor(3, 32, 16)], 3 * 65536, 3 * 2 * 3584),
        ("aten::linear", [A, tensor(16, 32), tensor(16)], 65536, 2 * (3584 + 16)),
        ("aten::linear", [tensor(2, 32, 32), tensor(16, 32)], 65536, 2 * 3584),
        ("aten::matmul", [tensor(5, 64, 32), B], 5 * 65536, 2 * (5 * 2048 + 512 + 5 * 1024)),
        ("aten::matmul", [tensor(32), B], 2 * 32 * 16, 2 * (32 + 512 + 16)),
        ("aten::add", [A, A, value("1")], 2048, 3 * 4096),
        ("aten::add_", [A, tensor(32)], 2048, 4096 + 64 + 4096),
        ("aten::mul", [A, tensor(64, 32, strides=(1, 0))], 2048, 4096 + 128 + 4096),
        ("aten::gelu", [A, value("none")], 2048, 8192),
        ("aten::gelu", [A, value("none"), A], 2048, 8192),
        ("aten::add", [A, A, value("1"), A], 2048, 3 * 4096),
        ("aten::gt", [A, value("0")], 2048, 4096 + 2048),
        ("aten::where", [tensor(64, 32, dtype="bool"), A, A], 2048, 2048 + 3 * 4096),
        ("aten::copy_", [tensor(64, 32, dtype="float"), A, value("False")], 0, 8192 + 4096),
        ("aten::fill_", [A, value("0")], 0, 4096),
        ("aten::sum", [A], 2048, 4096),
        ("aten::_softmax", [A, value("-1"), value("False")], 2048, 8192),
    ],
)
def test_work_by_hand(operator: str, inputs: list[Input], flops: int, moved: int) -> None:
    amount = amount_of(operator, inputs)
    assert amount is not None
    assert (amount.flops, amount.bytes) == (flops, moved)


def test_eight_bit_products_move_a_byte_an_element() -> None:
    a, b = (tensor(*one.shape, dtype="c10::Float8_e4m3fn") for one in (A, B))
    assert amount_of("aten::_scaled_mm", [a, b]) == Amount(
        65536, 3584, "c10::Float8_e4m3fn", matrix=True
    )


@pytest.mark.parametrize(
    ("operator", "inputs"),
    [
        ("aten::index", [A]),
        ("aten::mm", []),
        ("aten::mm", [A]),
        ("aten::mm", [A, A]),
        ("aten::mm", [tensor(2, 2, dtype="c10::Odd"), tensor(2, 2, dtype="c10::Odd")]),
        ("aten::add", [value("1"), value("2")]),
        ("aten::add", [A, tensor(7)]),
        ("aten::add", [A, Input((), (), "TensorList")]),
        ("aten::linear", [A, tensor(16, 31)]),
        ("aten::matmul", [A, tensor()]),
        ("aten::copy_", [tensor(), A]),
        ("aten::sum", [value("1")]),
        ("aten::convolution", [tensor(1, 2, 3, 3), tensor(4, 2, 3, 3)]),
        ("aten::_scaled_dot_product_flash_attention", [tensor(1, 1, 8, 4)] * 3),
    ],
)
def test_what_shapes_do_not_tell_is_not_guessed(operator: str, inputs: list[Input]) -> None:
    assert amount_of(operator, inputs) is None


def recorded_inputs(call: Callable[[], object], operator: str) -> list[Sequence[Input]]:
    session = Session(current_device("cpu"), stacks=False, shapes=True)
    with session, session.round():
        call()
    file = session.export().file
    operators = read_trace(file.path, inputs="all").operators
    assert operators.inputs is not None
    pairs = zip(operators.name, operators.inputs, strict=True)
    return [inputs for name, inputs in pairs if name == operator]


X = torch.randn(2, 8, 16, 20)
Q = torch.randn(2, 4, 8, 16)
CASES: dict[str, tuple[str, Callable[[], object]]] = {
    "mm": ("aten::mm", lambda: torch.mm(X[0, 0], X[0, 0].t())),
    "addmm": ("aten::addmm", lambda: F.linear(X[0, 0], torch.ones(3, 20), torch.ones(3))),
    "bmm": ("aten::bmm", lambda: torch.bmm(X[0], X[0].transpose(1, 2))),
    "baddbmm": ("aten::baddbmm", lambda: torch.baddbmm(torch.ones(8, 16, 16), X[0], X[0].mT)),
    "matmul": ("aten::matmul", lambda: torch.matmul(X, X[0, 0].t())),
    "linear": ("aten::linear", lambda: F.linear(X, torch.ones(3, 20))),
    "conv2d": ("aten::convolution", lambda: F.conv2d(X, torch.ones(4, 8, 3, 3), padding=1)),
    "strided": (
        "aten::convolution",
        lambda: F.conv2d(X, torch.ones(6, 4, 3, 2), stride=(2, 3), dilation=2, groups=2),
    ),
    "conv1d": ("aten::convolution", lambda: F.conv1d(X[0], torch.ones(5, 16, 4))),
}


@pytest.mark.parametrize("case", CASES)
def test_flops_agree_with_torchs_own_counter(case: str) -> None:
    operator, call = CASES[case]
    with FlopCounterMode(display=False) as counter:
        call()
    (inputs,) = recorded_inputs(call, operator)
    amount = amount_of(operator, inputs)
    assert amount is not None
    assert amount.flops == counter.get_total_flops()
    assert amount.matrix


def test_attention_from_real_inputs() -> None:
    name = "aten::scaled_dot_product_attention"
    (inputs,) = recorded_inputs(lambda: F.scaled_dot_product_attention(Q, Q, Q), name)
    assert amount_of(name, inputs) == Amount(
        4 * 2 * 4 * 8 * 8 * 16, 4 * 4 * Q.numel(), "float", matrix=True
    )


def test_causal_attention_computes_half_the_pairs() -> None:
    name = "aten::scaled_dot_product_attention"
    (inputs,) = recorded_inputs(
        lambda: F.scaled_dot_product_attention(Q, Q, Q, is_causal=True), name
    )
    amount = amount_of(name, inputs)
    assert amount is not None
    assert amount.flops == 4 * 2 * 4 * (8 * 9 // 2) * 16


def test_causal_attention_over_a_longer_cache_is_not_guessed() -> None:
    name = "aten::scaled_dot_product_attention"
    call = lambda: F.scaled_dot_product_attention(Q[:, :, :4], Q, Q, is_causal=True)  # noqa: E731
    (inputs,) = recorded_inputs(call, name)
    assert amount_of(name, inputs) is None


def test_a_transposed_convolution_is_not_guessed() -> None:
    name = "aten::convolution"
    (inputs,) = recorded_inputs(lambda: F.conv_transpose2d(X, torch.ones(8, 3, 2, 2)), name)
    assert amount_of(name, inputs) is None


def test_the_same_work_in_place_and_not() -> None:
    y = X.clone()
    (there,) = recorded_inputs(lambda: torch.add(X, y), "aten::add")
    (given,) = recorded_inputs(lambda: torch.add(X, y, out=torch.empty_like(X)), "aten::add")
    assert amount_of("aten::add", given) == amount_of("aten::add", there)
    (here,) = recorded_inputs(lambda: y.add_(X), "aten::add_")
    assert amount_of("aten::add", there) == amount_of("aten::add_", here)
