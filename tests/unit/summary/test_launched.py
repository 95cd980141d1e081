"""Kernels by name."""

from __future__ import annotations

import pytest
from records import kernel

from pytest_kernelprof.summary.kernel_groups import MOST_NAMES, Order, by_name

KERNELS = [
    kernel("gemm", "aten::mm", us=60),
    kernel("copy2", "aten::copy_", us=5),
    kernel("copy10", "aten::clone", us=1),
    kernel("gemm", "aten::addmm", us=30),
    *[kernel("fill", us=1) for _ in range(4)],
]


def caller(one: object) -> str:
    return ""


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
    found = by_name(KERNELS, caller, order, most=99)
    assert [one.name for one in found.shown] == names
    assert (found.rest, found.us) == ((), 100)


def test_without_a_number_the_costliest_are_told_until_it_is_enough() -> None:
    found = by_name(KERNELS, lambda one: one.operators[0] if one.operators else "")
    assert [(one.name, one.calls, one.us) for one in found.shown] == [("gemm", 2, 90)]
    assert found.shown[0].callers == ("aten::mm", "aten::addmm")
    assert (len(found.rest), found.rest_calls, found.rest_us) == (3, 6, 10)


def test_one_that_would_be_left_alone_is_told() -> None:
    found = by_name([kernel("a", us=90), kernel("b", us=10)], caller)
    assert ([one.name for one in found.shown], found.rest) == (["a", "b"], ())


def test_of_very_many_equals_twenty_are_told() -> None:
    found = by_name([kernel(f"k{i}", us=1) for i in range(500)], caller)
    assert (len(found.shown), len(found.rest)) == (MOST_NAMES, 480)


def test_kernels_without_a_time_are_no_division_by_zero() -> None:
    found = by_name([kernel("a", us=0), kernel("b", us=0)], caller)
    assert [one.each_us for one in found.shown] == [0, 0]
