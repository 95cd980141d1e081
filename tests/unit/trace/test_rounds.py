"""What belongs to a round: what it launched, however late it ran and wherever it was launched."""

from __future__ import annotations

from pathlib import Path

import pytest
from built import (
    annotation,
    kernel,
    launched,
    marks_of,
    operator,
    profile_of,
    reading_of_events,
    round_of,
)
from corpus import reading

from pytest_kernelprof.trace.correlation import repeated

FIRST, LAST = "kernelprof::sentinel#first", "kernelprof::sentinel#last"


def test_a_late_kernel_belongs_to_the_round_that_launched_it(tmp_path: Path) -> None:
    profile = profile_of(
        tmp_path,
        round_of(0, 0, 100),
        round_of(1, 200, 100),
        launched("early", 10, 1),
        [{**event, "ts": 250.0} if event["cat"] == "kernel" else event
         for event in launched("late", 90, 2)],
    )  # fmt: skip
    assert profile.metrics["kernels"].rounds == (2, 0)


def test_a_round_lies_between_the_marks_of_its_number(tmp_path: Path) -> None:
    profile = profile_of(
        tmp_path,
        *(launched("before", 5, 1), marks_of(0, 10, 100), launched("k", 50, 2)),
        *(launched("flush", 150, 3), marks_of(1, 200, 100), launched("k", 250, 4, tid=99)),
        launched("after", 350, 5),
    )
    assert profile.metrics["kernels"].rounds == (1, 1)
    assert profile.integrity.complete


def test_work_launched_between_rounds_belongs_to_none(tmp_path: Path) -> None:
    profile = profile_of(
        tmp_path, round_of(0, 0, 100), launched("flush", 150, 1), round_of(1, 200, 100)
    )
    assert profile.metrics["kernels"].rounds == (0, 0)


def test_work_of_other_threads_counts_by_its_time(tmp_path: Path) -> None:
    profile = profile_of(tmp_path, round_of(0, 0, 100), launched("k", 50, 1, tid=99))
    assert profile.metrics["kernels"].rounds == (1,)


def test_a_name_is_repeated_where_one_round_has_it_twice(tmp_path: Path) -> None:
    found = reading_of_events(
        tmp_path,
        *(round_of(0, 0, 100), operator("once a round", 10, 1), operator("twice", 20, 9)),
        *(operator("twice", 23, 1, tid=2), annotation("mine", 30, 1), annotation("mine", 40, 1)),
        *(round_of(1, 200, 100), operator("once a round", 210, 1)),
        *(operator("outside", 310, 1), operator("outside", 320, 1)),
    )
    assert repeated(found) == {"twice"}


def test_a_kernel_without_launch_call_belongs_to_the_round_in_which_it_ran(
    tmp_path: Path,
) -> None:
    profile = profile_of(
        tmp_path, round_of(0, 0, 100), round_of(1, 200, 100), kernel("k", 150, 9),
        kernel("k", 250, 10), kernel("k", 260, 11),
    )  # fmt: skip
    assert profile.metrics["kernels"].rounds == (1, 2)


def test_the_sentinels_and_what_follows_the_last_belong_to_no_round(tmp_path: Path) -> None:
    profile = profile_of(
        tmp_path,
        annotation(FIRST, 0, 20),
        launched("spin", 5, 1),
        round_of(0, 100, 50),
        launched("k", 110, 2),
        annotation(LAST, 200, 20),
        launched("spin", 205, 3),
        kernel("unknown", 230, 9),
    )
    assert [one.name for one in profile.kernels] == ["k"]
    assert profile.integrity.complete


def test_a_kernel_elsewhere_does_not_stand_in_for_a_sentinel(tmp_path: Path) -> None:
    profile = profile_of(
        tmp_path, annotation(FIRST, 0, 20), launched("spin", 5, 1), round_of(0, 100, 50),
        launched("k", 110, 2), annotation(LAST, 200, 20),
    )  # fmt: skip
    assert profile.integrity.problems == (
        "the last sentinel kernel of the session was not recorded",
    )


def test_an_annotation_of_the_user_makes_no_round(tmp_path: Path) -> None:
    profile = profile_of(tmp_path, annotation("epoch", 0, 10), launched("k", 50, 1))
    assert (profile.rounds, profile.kernel_count) == (1, 1)


def test_an_operator_named_like_a_round_makes_no_round(tmp_path: Path) -> None:
    profile = profile_of(tmp_path, operator("kernelprof::round#0", 0, 10), launched("k", 50, 1))
    assert profile.kernel_count == 1


def test_a_session_with_one_sentinel_misses_the_other(tmp_path: Path) -> None:
    profile = profile_of(
        tmp_path, round_of(0, 100, 50), launched("k", 110, 2), annotation(LAST, 200, 20),
        launched("spin", 205, 3),
    )  # fmt: skip
    assert profile.integrity.problems == (
        "the first sentinel kernel of the session was not recorded",
    )


NOTED = {"kernelprof": {"schema": 1, "device_kind": "cuda", "nonce": "5eed", "rounds": 1}}


def test_only_annotations_with_the_nonce_of_the_session_are_ours(tmp_path: Path) -> None:
    profile = profile_of(
        tmp_path,
        annotation("kernelprof::5eed::sentinel#first", 0, 20),
        launched("spin", 5, 1),
        [round_of(0, 30, 5), annotation("kernelprof::f00d::round#0", 40, 5)],
        [annotation("kernelprof::5eed::round#0", 100, 50), round_of(1, 101, 40)],
        [*launched("k", 110, 2, external_id=3), annotation(LAST, 130, 5)],
        annotation("kernelprof::5eed::sentinel#last", 200, 20),
        launched("spin", 205, 3),
        **NOTED,
    )
    assert profile.integrity.complete
    assert profile.metrics["kernels"].rounds == (1,)
    assert [one.operators for one in profile.kernels] == [("kernelprof::round#1",)]


@pytest.mark.parametrize("name", [FIRST, LAST])
def test_an_operator_named_like_a_sentinel_is_none(name: str, tmp_path: Path) -> None:
    profile = profile_of(
        tmp_path, round_of(0, 100, 50), launched("k", 110, 2), operator(name, 200, 10)
    )
    assert profile.integrity.complete


def test_sessions_recorded_before_there_were_nonces_have_their_rounds() -> None:
    layout = reading("mlp").layout
    assert (layout.annotated, len(layout.rounds), layout.sentinels_seen) == (True, 2, (True, True))
