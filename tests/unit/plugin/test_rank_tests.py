"""Tests that ranks would run at the same time and have to: their order is looked at before."""

from __future__ import annotations

import pytest

from pytest_kernelprof.plugin.torchrun import missing, why_out_of_order


@pytest.mark.parametrize(
    "tests",
    [
        {0: ["a", "b"], 1: ["a", "b"]},
        {0: ["a", "b", "c"], 1: ["a", "c"]},  # one is of rank 0 alone
        {0: ["a", "b"], 1: ["c", "b"], 2: []},
        {1: ["a"]},
        {0: [], 1: []},
    ],
)
def test_tests_that_several_ranks_run_have_one_order(tests: dict[int, list[str]]) -> None:
    assert why_out_of_order(tests) == ""


@pytest.mark.parametrize(
    ("tests", "words"),
    [
        ({0: ["a", "b"], 1: ["b", "a"]}, "rank 1 would run b where rank 0 runs a; give all"),
        ({0: ["a", "b", "c"], 1: ["a", "b", "c"], 2: ["a", "c", "b"]}, "rank 2 would run c where"),
        ({0: ["a"], 1: ["c", "d"], 2: ["d", "c"]}, "rank 2 would run d where rank 1 runs c"),
        ({0: ["x", "a", "b"], 3: ["b", "y", "a"]}, "rank 3 would run b where rank 0 runs a"),
    ],
)
def test_the_first_difference_is_named(tests: dict[int, list[str]], words: str) -> None:
    assert words in why_out_of_order(tests)
    assert "--randomly-seed=1" in why_out_of_order(tests)


def test_what_a_rank_does_not_run_is_known() -> None:
    tests = {0: ["a", "b", "c"], 1: ["a", "c"], 2: ["a"]}
    assert missing(tests) == {"b": {1, 2}, "c": {2}}
    assert missing({0: ["a"]}) == {}
