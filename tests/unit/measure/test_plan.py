"""What a plan takes: what is needed, and no more."""

from __future__ import annotations

import pytest

from pytest_kernelprof.measure.policy import EVERYTHING, LOCK_TIMEOUT_S, Needs, Plan, plan_of


@pytest.mark.parametrize(
    ("needs", "plan"),
    [
        (Needs(), Plan("cuda")),
        (Needs(memory=True), Plan("cuda", memory=True)),
        (Needs(spills=True), Plan("cuda", spills=True)),
        (Needs(device_times=True), Plan("cuda", rounds=12, sample_on=True)),
        (
            Needs(host_times=True),
            Plan("cuda", rounds=12, host_rounds=12, roofline=True, sample_on=True),
        ),
        (
            EVERYTHING,
            Plan("cuda", rounds=12, host_rounds=12, memory=True, roofline=True, sample_on=True),
        ),
    ],
    ids=["counts", "memory", "spills", "device times", "host times", "everything"],
)
def test_a_plan_takes_what_is_needed_and_no_more(needs: Needs, plan: Plan) -> None:
    assert plan_of("cuda", needs) == plan


@pytest.mark.parametrize("needs", [Needs(), Needs(device_times=True), Needs(host_times=True)])
def test_who_asks_for_rounds_gets_that_many_and_host_times_decided_or_not(needs: Needs) -> None:
    assert plan_of("cuda", needs, rounds=7) == Plan(
        "cuda", rounds=7, host_rounds=7, roofline=True, sample_on=False
    )


def test_one_call_warms_up_and_the_gpu_is_waited_for_where_nobody_says_more() -> None:
    assert (plan_of("cpu", Needs()).warmup, plan_of("cpu", Needs()).lock_timeout_s) == (
        1,
        LOCK_TIMEOUT_S,
    )


@pytest.mark.parametrize(
    ("plan", "timed"),
    [
        (Plan("cuda"), False),
        (Plan("cuda", rounds=3), False),  # enough to prove a graph's replays: counts still
        (Plan("cuda", rounds=4), True),
        (Plan("cuda", rounds=2, host_rounds=1), True),
        (Plan("cuda", memory=True), False),
    ],
)
def test_times_want_the_gpu_alone_and_counts_do_not(plan: Plan, timed: bool) -> None:
    assert plan.timed == timed
