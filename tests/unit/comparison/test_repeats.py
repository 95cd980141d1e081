"""Long sequences of kernels as short ones."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

import pytest
from records import kernel

from pytest_kernelprof.comparison.kernel_pairing import folded, one_repeat, without_frame


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
    assert folded(sequence) == units


def test_nothing_is_lost_whatever_the_sequence() -> None:
    chosen = random.Random(7)
    for _ in range(200):
        sequence = [chosen.choice("abc") for _ in range(chosen.randrange(60))]
        told = [name for part, times in folded(sequence) for name in [*part] * times]
        assert told == sequence


@pytest.mark.parametrize(
    ("names", "times"),
    [("", 1), ("ab", 1), ("abcdeabcdeabcde", 3), ("abcdabcdx", 1), ("aa", 1)],
)
def test_equal_rounds_are_counted(names: str, times: int) -> None:
    part, found = one_repeat(list(map(kernel, names)))
    assert (len(part) * found, found) == (len(names), times)


def test_a_kernel_of_equal_rounds_has_its_mean_time() -> None:
    kernels = [kernel(name, us=us) for us in (10.0, 12.0, 17.0) for name in "abcde"]
    part, times = one_repeat(kernels)
    assert times == 3
    assert part == tuple(kernel(name, us=13.0) for name in "abcde")


def test_an_annotation_around_all_kernels_is_dropped() -> None:
    def under(*outermost: str) -> list[tuple[str, ...]]:
        kernels = [kernel("k", "aten::mul", *outermost), kernel("k", "aten::add", *outermost[:1])]
        return [one.operators for one in without_frame(kernels)]

    assert under("step") == [("aten::mul",), ("aten::add",)]
    for kept in (("aten::linear",), ("block", "step")):  # an operator; not around all
        assert under(*kept)[0] == ("aten::mul", *kept)
    alone = (kernel("k", "aten::mul", "step"),)
    assert without_frame(alone) == alone


@pytest.mark.parametrize(
    "names",
    [
        lambda: (str(i % 7) * (i % 5 + 1) for i in range(100_000)),
        lambda: (name for i in range(8_000) for name in [f"k{i}"] + ["a"] * 5),
        lambda: map(str, random.Random(1).sample(range(1_000_000), 100_000)),
    ],
    ids=["one period", "thousands of short repeats", "none"],
)
@pytest.mark.bulk
def test_the_time_is_bounded(names: Callable[[], Iterable[str]]) -> None:
    sequence = list(names())
    told = folded(sequence)  # one rescan for each repeat would take hours
    assert sum(len(part) * times for part, times in told) == len(sequence)
