"""Kernels by name."""

from __future__ import annotations

import pytest
from records import kernel

from pytest_kernelprof.summary.kernels import Order, by_name, enough

KERNELS = [
    kernel("gemm", "aten::mm", us=60),
    kernel("copy2", "aten::copy_", us=5),
    kernel("copy10", "aten::clone", us=1),
    kernel("gemm", "aten::addmm", us=30),
    *[kernel("fill", us=1) for _ in range(4)],
]


@pytest.mark.parametrize(
    ("order", "names"),
    [
        ("total", ["gemm", "copy2", "fill", "copy10"]),
        ("calls", ["fill", "gemm", "copy2", "copy10"]),
        ("each", ["gemm", "copy2", "copy10", "fill"]),
        ("name", ["copy2", "copy10", "fill", "gemm"]),
    ],
)
def test_names_stand_in_the_order_that_is_asked_for(order: Order, names: list[str]) -> None:
    assert [one.name for one in by_name(KERNELS, order)] == names


def test_the_costliest_are_told_until_it_is_enough() -> None:
    ranked = by_name(KERNELS)
    assert enough(ranked) == 1
    first = ranked[0]
    assert (first.name, first.calls, first.us) == ("gemm", 2, 90)
    assert first.callers == ("aten::mm", "aten::addmm")


def test_one_that_would_be_left_alone_is_told() -> None:
    assert enough(by_name([kernel("a", us=90), kernel("b", us=10)])) == 2


def test_of_very_many_equals_twenty_are_told() -> None:
    assert enough(by_name([kernel(f"k{i}", us=1) for i in range(500)])) == 20


def test_kernels_without_a_time_are_no_division_by_zero() -> None:
    ranked = by_name([kernel("a", us=0), kernel("b", us=0)], "each")
    assert (len(ranked), enough(ranked)) == (2, 2)
