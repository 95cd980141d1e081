"""One call on several ranks: transfers and waiting, and who came last."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from records import absent, gathered, profile, timed

from pytest_kernelprof.records.profile import Collective, Profile


def reduce_of(*us: float, **more: Any) -> Collective:
    said = {"operation": "allreduce", "group": "0", "ranks": (0, 1), **more}
    return Collective(kernel=0, rounds_us=us, **said)


def rank(number: int, *collectives: Collective) -> Profile:
    times = [absent("comm_transfer", "alone"), absent("comm_wait", "alone")]
    return profile((), [*times, timed("comm_time", [9.0])], rank=number, collectives=collectives)


def split(one: Profile) -> tuple[float | None, float | None]:
    return one.metrics["comm_transfer"].value, one.metrics["comm_wait"].value


def why(one: Profile) -> str:
    return one.metrics["comm_wait"].why


def test_the_least_of_all_ranks_is_the_transfer_and_the_rest_is_waiting() -> None:
    slow, fast = rank(1, reduce_of(20, 20, 22)), rank(0, reduce_of(100, 110, 90))
    found = gathered([slow, fast])
    assert [one.rank for one in found.ranks] == [0, 1]
    assert [split(one) for one in found.ranks] == [(20, 80), (20, 0)]
    assert [one.collectives[0].last for one in found.ranks] == [1, 1]
    assert found.collectives[0].waited_us == 80
    assert found.metrics["comm_wait"].rounds == (80, 90, 68)


def test_equal_profiles_are_gathered_alike_whoever_gathers_them() -> None:
    ranks = [rank(number, reduce_of(10.0 * number + 5, ranks=(0, 1, 2))) for number in range(3)]
    assert gathered(ranks) == gathered(ranks[::-1])


def test_one_rank_alone_is_handed_back_as_it_is() -> None:
    assert gathered([rank(3, reduce_of(5))]) == rank(3, reduce_of(5))


def test_ranks_that_do_not_communicate_keep_what_was_said_of_them() -> None:
    found = gathered([rank(0), rank(1)])
    assert [why(one) for one in found.ranks] == ["alone", "alone"]


def test_where_times_are_not_to_be_had_nor_is_what_they_are_made_of() -> None:
    """As under MPS."""
    shared = [
        replace(one, metrics=one.metrics | {"comm_time": absent("comm_time", "MPS")})
        for one in (rank(0, reduce_of(5)), rank(1, reduce_of(9)))
    ]
    assert [why(one) for one in gathered(shared).ranks] == ["alone", "alone"]


def test_groups_are_told_apart() -> None:
    """Two pairs of four, tensor parallel, and all four, data parallel."""
    all_four = {"group": "0", "ranks": (0, 1, 2, 3)}
    found = gathered(
        [
            rank(
                number,
                reduce_of(10 + number, group="1", ranks=(0, 1) if number < 2 else (2, 3)),
                reduce_of(50 - number, **all_four),
            )
            for number in range(4)
        ]
    )
    assert [split(one) for one in found.ranks] == [(57, 3), (57, 3), (59, 1), (59, 1)]
    assert [[c.last for c in one.collectives] for one in found.ranks] == [[0, 3]] * 2 + [[2, 3]] * 2


def test_the_numbers_of_a_group_match_them_whatever_their_order() -> None:
    one = rank(0, reduce_of(10, number=4), reduce_of(70, number=5))
    other = rank(1, reduce_of(60, number=5), reduce_of(30, number=4))
    assert [split(r) for r in gathered([one, other]).ranks] == [(70, 10), (70, 20)]


def test_a_send_meets_its_receive() -> None:
    """A pipeline of three: 0 to 1, then 1 to 2."""
    send = {"group": "0", "operation": "send"}
    receive = {"group": "0", "operation": "recv"}
    found = gathered(
        [
            rank(0, reduce_of(5, **{**send, "ranks": (1,)})),
            rank(
                1,
                reduce_of(40, **{**receive, "ranks": (0,)}),
                reduce_of(6, **{**send, "ranks": (2,)}),
            ),
            rank(2, reduce_of(90, **{**receive, "ranks": (1,)})),
        ]
    )
    assert [split(one) for one in found.ranks] == [(5, 0), (11, 35), (6, 84)]


def test_a_send_may_name_both_of_its_ranks() -> None:
    send, receive = reduce_of(5, operation="send"), reduce_of(40, operation="recv")
    assert [split(one) for one in gathered([rank(0, send), rank(1, receive)]).ranks] == [
        (5, 0),
        (5, 35),
    ]


def test_a_group_of_one_rank_waits_for_nobody() -> None:
    alone = reduce_of(7, group="1", ranks=(1,))
    found = gathered([rank(0, reduce_of(9)), rank(1, reduce_of(9), alone)])
    assert [split(one) for one in found.ranks] == [(9, 0), (16, 0)]


@pytest.mark.parametrize("size", [0, 2])
def test_two_ranks_need_not_say_who_takes_part(size: int) -> None:
    plain = {"operation": "AllReduce", "group": "", "ranks": (), "size": size}
    found = gathered([rank(0, reduce_of(30, **plain)), rank(1, reduce_of(10, **plain))])
    assert split(found) == (10, 20)


@pytest.mark.parametrize(
    ("others", "words"),
    [
        ([rank(1)], "rank 1 has 0 of the collectives of group 0 that rank 0 has 1 of"),
        ([rank(2, reduce_of(1))], "rank 1, which takes part in allreduce, is not among them"),
        (
            [rank(1, reduce_of(1, operation="broadcast"))],
            "rank 0 does allreduce where rank 1 does broadcast",
        ),
        ([rank(1, reduce_of(1, 2))], "rank 0 has 1 rounds of allreduce, rank 1 2"),
        (
            [rank(1, reduce_of(1)), rank(2, reduce_of(1, ranks=(), group=""))],
            "the trace of rank 2 does not say which ranks take part in allreduce",
        ),
    ],
)
def test_what_does_not_match_is_not_to_be_had_and_says_why(
    others: list[Profile], words: str
) -> None:
    found = gathered([rank(0, reduce_of(9)), *others])
    assert split(found) == (None, None)
    assert why(found) == f"not available: {words}"
    assert replace(found.collectives[0]) == reduce_of(9)


def test_other_numbers_on_another_rank_do_not_match() -> None:
    found = gathered([rank(0, reduce_of(9, number=1)), rank(1, reduce_of(9, number=2))])
    assert why(found).endswith("that rank 0 has 1 of, and other ones")
