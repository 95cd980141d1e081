"""Kernels that do what others did."""

from __future__ import annotations

import pytest
from corpus import record
from records import kernel, profile

from pytest_kernelprof.comparison.kernel_diff import diff_profiles
from pytest_kernelprof.records.comparison import KernelDiff, fusions_of
from pytest_kernelprof.summary.verdicts import causes_of_diff


def pointwise(functor: str) -> str:
    return (
        "void at::native::vectorized_elementwise_kernel<4, at::native::"
        f"CUDAFunctor_{functor}<float>, std::array<char*, 3ul> >(int)"
    )


ADD, MUL = kernel(pointwise("add"), "aten::add", us=3), kernel(pointwise("mul"), "aten::mul", us=4)
BOTH = kernel("triton_poi_fused_add_mul_0", "fx", us=5)
GEMM = kernel("gemm", "aten::mm")


def diffed(old: list[object], new: list[object]) -> KernelDiff:
    return diff_profiles(profile(old), profile(new))  # type: ignore[arg-type]


def test_one_for_several_wherever_they_stand() -> None:
    (found,) = fusions_of(diffed([ADD, GEMM, MUL], [GEMM, BOTH]))
    assert found.words == "add + mul is now triton_poi_fused [add, mul]"
    assert found.us == (7, 5)
    (found,) = fusions_of(diffed([GEMM, BOTH], [ADD, GEMM, MUL]))
    assert found.words == "triton_poi_fused [add, mul] is now add + mul"
    assert found.us == (5, 7)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ([BOTH], [ADD]),  # what it did besides is done by nothing
        ([BOTH], [ADD, GEMM]),
        ([BOTH], [GEMM]),
        ([ADD], [MUL]),
        ([ADD, MUL], [ADD, MUL]),
        ([BOTH], [BOTH, ADD, MUL]),
    ],
)
def test_what_does_not_add_up_is_no_fusion(old: list[object], new: list[object]) -> None:
    assert fusions_of(diffed(old, new)) == ()


def test_in_each_layer_it_is_told_once_with_the_time_of_one() -> None:
    (found,) = fusions_of(diffed([GEMM, ADD, MUL] * 48, [GEMM, BOTH] * 48))
    assert found.us == (pytest.approx(7), pytest.approx(5))


def test_a_kernel_is_taken_by_one_alone_and_another_like_it_is_told() -> None:
    found = causes_of_diff(diffed([GEMM, ADD, MUL], [BOTH, kernel("k", "op"), BOTH, GEMM]))
    assert [(one.sign, one.text) for one in found] == [
        ("", "add + mul is now triton_poi_fused [add, mul]"),
        ("+", "k, from op"),
        ("+", "triton_poi_fused [add, mul], from fx"),
    ]


def test_causes_name_it_in_the_place_of_its_kernels() -> None:
    found = causes_of_diff(diff_profiles(record("compiled"), record("mlp")))
    assert [(one.sign, one.text) for one in found] == [
        ("", "triton_poi_fused [gelu, mul] is now gelu + mul")
    ]
    more = causes_of_diff(diffed([ADD, GEMM, MUL], [GEMM, BOTH, kernel("extra", "op")]))
    assert [(one.sign, one.text) for one in more] == [
        ("", "add + mul is now triton_poi_fused [add, mul]"),
        ("+", "extra, from op"),
    ]
