"""Kernels by name."""

from __future__ import annotations

import pytest
from records import kernel

from pytest_kernelprof.summary.kernels import Order, by_name

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


def test_what_has_one_name_is_told_with_all_that_launch_it() -> None:
    first = by_name(KERNELS)[0]
    assert (first.name, first.calls, first.us) == ("gemm", 2, 90)
    assert first.callers == ("aten::mm", "aten::addmm")


def test_kernels_without_a_time_are_no_division_by_zero() -> None:
    ranked = by_name([kernel("a", us=0), kernel("b", us=0)], "each")
    assert len(ranked) == 2
