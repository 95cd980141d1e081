"""Two profiles as one list."""

from __future__ import annotations

import random

import pytest
from records import kernel, profile

from pytest_kernelprof.comparison.kernel_diff import side_by_side


def told(old: str, new: str) -> list[str]:
    """Kernels as letters: ``a`` on both sides, ``-a`` gone, ``+a`` new."""
    before, after = (profile([kernel(one, one) for one in side]) for side in (old, new))
    return [
        new.name if old and new else f"+{new.name}" if new else f"-{old.name if old else None}"
        for old, new, _ in side_by_side(before, after)
    ]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("", "", ""),
        ("", "ab", "+a +b"),
        ("ab", "", "-a -b"),
        ("abcd", "abcd", "a b c d"),
        ("abcd", "abxcd", "a b +x c d"),
        ("abxcd", "abcd", "a b -x c d"),
        ("abxcd", "abycd", "a b -x +y c d"),
        ("abcdx", "xabcd", "x a b c d"),  # moved: it stands where it is now
        ("xabcd", "abcdx", "a b c d x"),
        ("xabcdy", "abcdx", "a b c d x -y"),
    ],
)
def test_each_stands_beside_the_same(old: str, new: str, expected: str) -> None:
    assert " ".join(told(old, new)) == expected


def test_every_kernel_of_both_is_told_once_whatever_they_are() -> None:
    chosen = random.Random(5)
    for _ in range(300):
        old, new = ("".join(chosen.choices("abcd", k=chosen.randrange(12))) for _ in range(2))
        rows = told(old, new)
        assert [one.lstrip("+") for one in rows if one[0] != "-"] == list(new)
        assert sorted(one.lstrip("-") for one in rows if one[0] != "+") == sorted(old)
