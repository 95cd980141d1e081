"""Which of several ranks are the odd ones."""

from __future__ import annotations

import pytest
from records import calls_of, timed

from pytest_kernelprof.report.kernel_tables import rank_table
from pytest_kernelprof.summary.ranks import Rank, odd_ones


def rank(name: str, kernels: int = 5, us: float = 100, comm_us: float = 0) -> Rank:
    one = calls_of(kernels, timed("cuda_time", [us]), timed("comm_time", [comm_us]))
    return Rank(name, f"rank{name}.json", one)


def test_who_has_other_counts_than_most_is_odd() -> None:
    (found,) = odd_ones([rank("0"), rank("1"), rank("2", 7), rank("3")])
    assert (found.rank.name, found.like.name, found.counts) == ("2", "0", {"kernels": 2.0})
    assert found.slower == 0


def test_who_computes_longer_is_odd_and_who_waits_for_it_is_not() -> None:
    ranks = [rank("0", comm_us=50), rank("1", comm_us=50), rank("2", us=150), rank("3", comm_us=50)]
    (found,) = odd_ones(ranks)
    assert (found.rank.name, found.counts, found.slower) == ("2", {}, pytest.approx(0.5))


@pytest.mark.parametrize(
    "kernels", [[5], [5, 5], [5, 7], [5, 6, 7], [5, 5, 7, 7]], ids=lambda one: str(one)
)
def test_without_a_majority_nobody_is(kernels: list[int]) -> None:
    assert odd_ones([rank(str(i), number) for i, number in enumerate(kernels)]) == ()


def test_neighbours_that_are_alike_are_one_row_and_the_odd_one_stands_alone() -> None:
    found = rank_table([rank("0"), rank("1"), rank("2", us=150), rank("3"), rank("4", 9)])
    assert [line.split() for line in found.lines()] == [
        ["rank", "kernels", "GPU", "us"],
        ["0..1", "5", "100.0"],
        ["2", "5", "150.0", "differs"],
        ["3", "5", "100.0"],
        ["4", "9", "100.0", "differs"],
        ["all", "29", "550.0"],
    ]
    traces = rank_table([rank("a"), rank("b", us=104)], "trace")
    assert [line.split() for line in traces.lines()[1:]] == [["a..b", "5", "100.0..104.0"]]


@pytest.mark.parametrize(
    ("own", "times"),
    [
        ([100, 130], 1.3),
        ([100, 100, 150], 1.5),
        ([100, 100, 120, 150], 1.5),
        ([80, 100, 100, 90], 100 / 90),
        ([0, 0], 1),
    ],
)
def test_a_rank_is_slower_than_the_median_of_all(own: list[float], times: float) -> None:
    ranks = [rank(str(at), us=us) for at, us in enumerate(own)]
    slower = max((one.slower for one in odd_ones(ranks)), default=0.0)
    assert slower == pytest.approx(times - 1)


def test_a_difference_is_told_in_words() -> None:
    odd = odd_ones([rank("0"), rank("1"), rank("2", 7, 116), rank("3", 4), rank("4")])
    assert [one.words for one in odd] == ["2 more kernels, 16 % more GPU time", "1 fewer kernel"]
