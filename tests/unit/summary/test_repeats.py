"""Long sequences of kernels as short ones."""

from __future__ import annotations

import random

import pytest

from pytest_kernelprof.summary.kernels import Stretch, stretches, whole_repeats


@pytest.mark.parametrize(
    ("sequence", "units"),
    [
        ("", []),
        ("a", [("a", 1)]),
        ("abcabc", [("abcabc", 1)]),  # too little is saved
        ("abcdabcd", [("abcd", 2)]),
        ("xabcdabcdabcdy", [("x", 1), ("abcd", 3), ("y", 1)]),
        ("aaaaaaaa", [("a", 8)]),
        ("qabababababz", [("q", 1), ("ab", 5), ("z", 1)]),
        ("abcdabcdXwxyzwxyzwxyz", [("abcd", 2), ("X", 1), ("wxyz", 3)]),
        ("aabbccaabbccaabbcc", [("aabbcc", 3)]),
    ],
)
def test_what_repeats_stands_once(sequence: str, units: list[tuple[str, int]]) -> None:
    assert stretches(sequence) == tuple(Stretch(tuple(unit), times) for unit, times in units)


def test_nothing_is_lost_whatever_the_sequence() -> None:
    chosen = random.Random(7)
    for _ in range(200):
        sequence = [chosen.choice("abc") for _ in range(chosen.randrange(60))]
        told = [name for one in stretches(sequence) for name in one.unit * one.times]
        assert told == sequence


def test_equal_rounds_are_counted() -> None:
    assert [whole_repeats(one) for one in ("", "ab", "abcdeabcdeabcde", "abcdabcdx")] == [
        1,
        1,
        3,
        1,
    ]


@pytest.mark.parametrize(
    "sequence",
    [
        [str(i % 7) * (i % 5 + 1) for i in range(100_000)],
        [name for i in range(20_000) for name in [f"k{i}"] + ["a"] * 5],
        [str(random.Random(i).random()) for i in range(100_000)],
    ],
    ids=["one period", "thousands of short repeats", "none"],
)
@pytest.mark.bulk
def test_the_time_is_bounded(sequence: list[str]) -> None:
    told = stretches(sequence)  # one rescan for each repeat would take hours
    assert sum(len(one.unit) * one.times for one in told) == len(sequence)
