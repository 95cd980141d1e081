"""Callables in turn: the order of rounds."""

from __future__ import annotations

import pytest

from pytest_kernelprof.measure.turns import order_of_turns


@pytest.mark.parametrize(
    ("names", "first", "turns", "order"),
    [
        ("ab", 0, 3, "abbaab"),
        ("ab", 3, 2, "baab"),
        ("ab", 4, 1, "ab"),
        ("abc", 0, 2, "abccba"),
        ("a", 1, 3, "aaa"),
        ("ab", 0, 0, ""),
    ],
)
def test_the_order_turns_round_each_time_also_from_one_look_to_the_next(
    names: str, first: int, turns: int, order: str
) -> None:
    assert "".join(order_of_turns(list(names), first, turns)) == order


def test_taken_bit_by_bit_the_order_is_that_of_one_go() -> None:
    names = ["a", "b", "c"]
    bits = [name for first in range(10) for name in order_of_turns(names, first, 1)]
    assert bits == order_of_turns(names, 0, 10)
