"""Which kernels a pattern matches, and where a sequence of kernels first goes wrong."""

from __future__ import annotations

import time

import pytest
from records import MLP, kernel

from pytest_kernelprof.limits.evaluate import Patterns, first_mismatch, hits, matches, names_nothing
from pytest_kernelprof.records.profile import Hit, Mismatch


@pytest.mark.parametrize(
    "pattern",
    [
        "vectorized_elementwise_kernel<4, .*GeluCUDAKernel",
        r"^vectorized_elementwise \[gelu\]$",
        "^aten::gelu$",
        "GELU",
    ],
    ids=["full name", "short name", "operator", "another case"],
)
def test_a_pattern_looks_at_full_name_short_name_and_operators(pattern: str) -> None:
    assert matches(MLP[1], pattern)


def test_a_pattern_that_is_nowhere_matches_nothing() -> None:
    assert not any(matches(one, "softmax") for one in MLP)


@pytest.mark.parametrize(
    "patterns",
    [
        ("mm", "gelu", "mm", "mul", "mm"),
        ("mm", None, "mm"),
        (None,),
        (None, "mul", None, "mm", None),
        (None, None, "mm"),
    ],
)
def test_kernels_that_are_as_expected_have_no_mismatch(patterns: Patterns) -> None:
    assert first_mismatch(MLP, patterns) is None


def test_no_kernels_are_what_no_patterns_expect() -> None:
    assert first_mismatch((), ()) is None


CHAIN = ("aten::gelu",)
SHORT = "vectorized_elementwise [gelu]"


@pytest.mark.parametrize(
    ("patterns", "mismatch"),
    [
        (("mm", "relu", None), Mismatch(5, 2, SHORT, CHAIN, ("relu",))),
        (("mm",), Mismatch(5, 2, SHORT, CHAIN)),
        (("mm", "gelu", "mm", "mul", "mm", "add"), Mismatch(5, wanted=("add",))),
        ((None, "add", "gelu"), Mismatch(5, wanted=("add", "gelu"))),
        (
            ("mm", "gelu", "mm", "mul"),
            Mismatch(5, 5, MLP[4].short_name, ("aten::mm", "aten::matmul", "aten::linear")),
        ),
        ((), Mismatch(5, 1, MLP[0].short_name, ("aten::mm", "aten::matmul", "aten::linear"))),
    ],
)
def test_the_first_unexpected_kernel_is_found(patterns: Patterns, mismatch: Mismatch) -> None:
    assert first_mismatch(MLP, patterns) == mismatch


def test_all_patterns_that_would_have_been_right_are_told() -> None:
    kernels = [kernel("first"), kernel("other")]
    found = first_mismatch(kernels, ("first", "second", None))
    assert found is not None
    assert found.wanted == ("second",)


def test_many_wildcards_are_matched_quickly() -> None:
    patterns = (None, "nothing like it") * 30
    start = time.perf_counter()
    assert first_mismatch(MLP * 4, patterns) is not None
    assert time.perf_counter() - start < 1


def test_a_kernel_that_two_patterns_match_is_one_hit() -> None:
    assert hits(MLP, ("gelu", "aten::gelu")) == (Hit(2, SHORT, "gelu"),)


def test_hits_come_in_launch_order() -> None:
    assert [hit.position for hit in hits(MLP, ("mul", "mm"))] == [1, 3, 4, 5]


NAMES = {"aten::mm", "aten::gelu", "mine::twice"}


@pytest.mark.parametrize(
    ("patterns", "impossible"),
    [
        (("mm", "GELU", "mine::"), ()),
        (("elementwise", "mm", "nvjet"), ("elementwise", "nvjet")),
        (("elementwise|gelu",), ()),
        (("cpp_fused", "^graph_0", ".*cpp_.*relu"), ()),
        (("triton_poi_fused", "fused_moe_kernel"), ("triton_poi_fused", "fused_moe_kernel")),
        (("AddmmBackward0", "autograd::engine"), ()),
        (("MyBlock",), ()),
    ],
)
def test_a_pattern_names_nothing_where_no_operator_and_no_kernel_has_such_a_name(
    patterns: tuple[str, ...], impossible: tuple[str, ...]
) -> None:
    ran = [kernel("aten::mm", "aten::mm", "MyBlock")]
    assert names_nothing(patterns, ran, lambda: NAMES) == impossible


def test_operators_are_asked_only_where_no_kernel_that_ran_tells() -> None:
    def never() -> set[str]:
        raise AssertionError

    assert names_nothing(("mm", "cpp"), [kernel("aten::mm", "aten::mm")], never) == ()
