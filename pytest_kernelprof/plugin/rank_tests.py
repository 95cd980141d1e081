"""The tests of each rank of torchrun: those that several run have one order on all of them."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_REMEDY = (
    "give all ranks one order: pytest-randomly needs one seed for all of them, --randomly-seed=1 "
    "or -p no:randomly"
)


def why_out_of_order(tests: Mapping[int, Sequence[str]]) -> str:
    """Which tests ranks would run at the same time, each of them to wait for the other in vain, and
    what to do; empty where they have one order.

    Args:
        tests: node ids in the order in which they run, by rank. Some may be of some ranks only.
    """
    for first, rank in itertools.combinations(sorted(tests), 2):
        ours, theirs = _common(tests[first], tests[rank]), _common(tests[rank], tests[first])
        for one, other in zip(ours, theirs, strict=False):
            if one != other:
                return (
                    "ranks have to run their tests in one order, since they wait for each other in "
                    f"each: rank {rank} would run {other} where rank {first} runs {one}; {_REMEDY}"
                )
    return ""


def missing(tests: Mapping[int, Sequence[str]]) -> dict[str, frozenset[int]]:
    """The ranks that do not run a test that another one does, by test."""
    have = {rank: set(ids) for rank, ids in tests.items()}
    everywhere = set.intersection(*have.values())
    return {
        test: frozenset(rank for rank, ids in have.items() if test not in ids)
        for test in set.union(*have.values()) - everywhere
    }


def _common(tests: Sequence[str], others: Sequence[str]) -> list[str]:
    there = set(others)
    return [test for test in tests if test in there]
