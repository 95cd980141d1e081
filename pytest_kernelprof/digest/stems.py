"""Words in the names of tests that stand for a large part of a run's kernels."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_kernelprof.digest.records import Row

_LEAST_TESTS, _LEAST_SHARE, _MOST_OF_ALL = 5, 0.3, 0.5
_WORD = re.compile(r"[A-Za-z]{4,40}")
_SAYS_NOTHING = {"test", "tests", "cuda"}


@dataclass(frozen=True, slots=True)
class Stem:
    """A word, in how many tests' names it is, and the share of the kernels that they launch."""

    word: str
    tests: int
    share: float


def heaviest_stem(rows: Sequence[Row]) -> Stem | None:
    """The word with the largest share: 30 % or more of the kernels, in five tests or more, though
    not in half of all; None without one."""
    kernels: defaultdict[str, int] = defaultdict(int)
    for row in rows:
        if row.profile.environment.kind == "cuda" and row.told != "rerun":
            kernels[row.test] += row.profile.kernel_count
    total = sum(kernels.values())
    tests: defaultdict[str, list[int]] = defaultdict(list)
    for test, number in kernels.items():
        for word in set(_WORD.findall(_function_of(test))) - _SAYS_NOTHING:
            tests[word].append(number)
    found = [
        Stem(word, len(numbers), sum(numbers) / total)
        for word, numbers in tests.items()
        if total and _LEAST_TESTS <= len(numbers) <= _MOST_OF_ALL * len(kernels)
    ]
    heavy = [one for one in found if one.share >= _LEAST_SHARE]
    return max(heavy, key=lambda one: (one.share, one.tests, one.word), default=None)


def _function_of(test: str) -> str:
    """The name of the function, without parameters that may hold anything."""
    return test.partition("[")[0].rpartition("::")[2]
