"""What a measurement does next: histories in, a step out. Nothing is measured here."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from pytest_kernelprof.measure.policy import (
    EVERYTHING,
    MOST_KERNELS,
    MOST_ROUNDS,
    TRIES,
    Judge,
    Needs,
    Plan,
    ProfileRounds,
    RecordShapes,
    SecondLook,
    Shown,
    Step,
    TimeCalls,
    WarmUp,
    WatchMemory,
    again,
    kept_throttled,
    next_rounds,
    next_step,
    plan_of,
    retakes,
    settled,
)
from pytest_kernelprof.records.profile import STATUSES, Status, Verdict

Answer = Callable[[Step, Sequence[Shown]], Shown]

SOUND: dict[str, Any] = {}
INCOMPLETE = {"complete": False}
COLD = {"cold": True}
BOTH = {"complete": False, "cold": True}
THROTTLED = {"throttled": True}
SHOWN = {"s": SOUND, "i": INCOMPLETE, "c": COLD, "b": BOTH, "t": THROTTLED}

DEVICE_TIMES = plan_of("cuda", Needs(device_times=True))
HOST_TIMES = plan_of("cuda", Needs(host_times=True))
BOTH_TIMES = plan_of("cuda", Needs(device_times=True, host_times=True))


def all_is_well(step: Step, history: Sequence[Shown]) -> Shown:
    return Shown(step)


def driven(plan: Plan, answer: Answer = all_is_well, most: int = 100) -> list[Shown]:
    """All steps of a measurement to its end, with what each showed."""
    history: list[Shown] = []
    while (step := next_step(plan, history)) is not None:
        assert len(history) < most, "a measurement that does not end"
        history.append(answer(step, history))
    return history


def steps(plan: Plan, answer: Answer = all_is_well) -> list[Step]:
    return [one.step for one in driven(plan, answer)]


def showing(letters: str, *kinds: type[Step]) -> Answer:
    """What steps of these kinds show, one letter a step; all is well with those that follow."""
    left = iter(letters)

    def answer(step: Step, history: Sequence[Shown]) -> Shown:
        if isinstance(step, kinds):
            return Shown(step, **SHOWN[next(left, "s")])
        return Shown(step)

    return answer


def judged(*outcomes: str | dict[str, Status], metric: str = "") -> Answer:
    """What each asking for verdicts gets: an outcome of one metric, or outcomes by metric; after
    the last the limits are kept."""
    left = iter(outcomes)

    def answer(step: Step, history: Sequence[Shown]) -> Shown:
        if not isinstance(step, Judge):
            return Shown(step)
        found = next(left, {})
        by_metric = {metric: found} if isinstance(found, str) else found
        return Shown(step, verdicts=verdicts(by_metric))

    return answer


def verdicts(by_metric: dict[str, Any]) -> tuple[Verdict, ...]:
    return tuple(Verdict(limit="a limit", outcome=o, metric=m) for m, o in by_metric.items())


def always(outcome: Status, metric: str) -> Answer:
    return judged(*[outcome] * 50, metric=metric)


def plain(found: Sequence[Step]) -> list[tuple[str, int]]:
    """Kinds and numbers of rounds of the steps that take timed rounds, and where it judges."""
    names = {ProfileRounds: "profile", TimeCalls: "time", SecondLook: "time"}
    return [
        ("judge", 0) if isinstance(step, Judge) else (names[type(step)], step.rounds)
        for step in found
        if isinstance(step, (ProfileRounds, TimeCalls, Judge))
    ]


# The order of steps.


@pytest.mark.parametrize("warmup", [0, 1, 2, 5])
def test_warm_up_calls_come_first_and_are_counted(warmup: int) -> None:
    assert steps(Plan("cpu", warmup=warmup)) == [
        *(WarmUp(done, warmup) for done in range(warmup)),
        ProfileRounds(2),
    ]


def test_exact_counts_take_one_warm_up_call_and_one_session() -> None:
    assert steps(plan_of("cuda", Needs())) == [WarmUp(0, 1), ProfileRounds(2)]


def test_memory_is_watched_before_host_times_are_taken_and_verdicts_are_asked_for_last() -> None:
    assert steps(plan_of("cuda", EVERYTHING)) == [
        WarmUp(0, 1),
        ProfileRounds(12, flush_l2=True),
        WatchMemory(2),
        TimeCalls(12),
        Judge(),
    ]


def test_shapes_that_a_limit_needs_are_recorded_before_verdicts_are_asked_for() -> None:
    assert steps(plan_of("cuda", Needs(device_times=True, work=True))) == [
        WarmUp(0, 1),
        ProfileRounds(12, flush_l2=True),
        RecordShapes(),
        Judge(),
    ]


def test_shapes_are_recorded_three_times_at_most_until_a_session_is_whole() -> None:
    plan = plan_of("cuda", Needs(device_times=True, work=True))
    taken = steps(plan, lambda step, _: Shown(step, complete=not isinstance(step, RecordShapes)))
    assert taken.count(RecordShapes()) == 3


def test_on_the_cpu_no_limit_needs_shapes() -> None:
    assert not plan_of("cpu", Needs(device_times=True, work=True)).work


def test_memory_alone_takes_no_times() -> None:
    assert steps(plan_of("cuda", Needs(memory=True))) == [
        WarmUp(0, 1),
        ProfileRounds(2),
        WatchMemory(2),
    ]


@pytest.mark.parametrize("rounds", [1, 2, 3, 4, 12])
@pytest.mark.parametrize("flush_l2", [True, False])
def test_the_cache_is_flushed_before_timed_rounds_only(rounds: int, flush_l2: bool) -> None:
    (_, session) = steps(Plan("cuda", rounds=rounds, flush_l2=flush_l2))
    assert session == ProfileRounds(rounds, flush_l2=flush_l2 and rounds > 3)


def test_asking_changes_nothing() -> None:
    history = [Shown(WarmUp(0, 1)), Shown(ProfileRounds(2), complete=False)]
    assert next_step(Plan("cuda"), tuple(history)) == next_step(Plan("cuda"), history)
    assert len(history) == 2


# A session until it is sound.


@pytest.mark.parametrize("lost", [0, 1, 2, 3, 8])
def test_an_incomplete_session_is_taken_three_times_and_then_kept(lost: int) -> None:
    history = driven(Plan("cuda"), showing("i" * lost, ProfileRounds))
    sessions = [one.step for one in history if isinstance(one.step, ProfileRounds)]
    assert [step.reason for step in sessions] == [
        "",
        "incomplete, try 2 of 3",
        "incomplete, try 3 of 3",
    ][: lost + 1]
    assert {step.rounds for step in sessions} == {2}
    assert retakes(history) == min(lost, TRIES - 1)
    assert history[-1].complete == (lost < TRIES)


@pytest.mark.parametrize("cold", [0, 1, 4, 5, 6, 20])
def test_cold_code_is_run_again_until_it_is_warm_at_most_five_times(cold: int) -> None:
    history = driven(Plan("cuda"), showing("c" * cold, ProfileRounds))
    sessions = [one.step for one in history if isinstance(one.step, ProfileRounds)]
    assert [step.reason for step in sessions] == ["", *["not warm yet"] * min(cold, 5)]
    assert settled(history) == (cold <= 5)
    assert retakes(history) == 0


@pytest.mark.parametrize(
    ("shown", "taken", "is_settled", "retaken"),
    [
        ("ic", 3, True, 1),
        ("ci", 3, True, 1),
        ("cici", 5, True, 2),
        ("iii", 3, True, 2),  # the third is kept, incomplete
        ("cccccc", 6, False, 0),
        ("ccccciis", 8, True, 2),
        ("iicccccc", 8, False, 2),
        ("b", 2, True, 1),
        ("bb", 3, True, 2),
        ("bbb", 4, True, 3),  # incomplete often enough, but not warm
        ("iib", 4, True, 3),
        ("bbbi", 4, True, 3),  # warm, and incomplete as before
    ],
)
def test_cold_and_incomplete_sessions_are_counted_apart(
    shown: str, taken: int, is_settled: bool, retaken: int
) -> None:
    history = driven(Plan("cuda"), showing(shown, ProfileRounds))
    assert sum(isinstance(one.step, ProfileRounds) for one in history) == taken
    assert settled(history) == is_settled
    assert retakes(history) == retaken


def test_code_that_is_always_cold_and_incomplete_comes_to_an_end() -> None:
    """Three tries for what is missing and five more to become warm."""
    history = driven(Plan("cpu"), showing("b" * 50, ProfileRounds))
    assert sum(isinstance(one.step, ProfileRounds) for one in history) == TRIES + 5
    assert not settled(history)
    assert not history[-1].complete


def unproven(step: Step, history: Sequence[Shown]) -> Shown:
    """Two replays of a graph prove nothing; three do."""
    return Shown(step, unproven=isinstance(step, ProfileRounds) and step.rounds < 3)


@pytest.mark.parametrize(("rounds", "taken"), [(1, [1, 3]), (2, [2, 3]), (3, [3]), (12, [12])])
def test_replays_that_are_not_proved_raise_the_rounds_to_three(
    rounds: int, taken: list[int]
) -> None:
    found = [one for one in steps(Plan("cuda", rounds=rounds), unproven) if type(one) is not WarmUp]
    assert [one.rounds for one in found if isinstance(one, ProfileRounds)] == taken
    reasons = [one.reason for one in found if isinstance(one, ProfileRounds)]
    assert reasons[1:] == ["to prove the graph's replays"] * (len(taken) - 1)


def test_three_rounds_that_prove_nothing_are_kept() -> None:
    def never(step: Step, history: Sequence[Shown]) -> Shown:
        return Shown(step, unproven=True)

    assert plain(steps(Plan("cuda"), never)) == [("profile", 2), ("profile", 3)]


def test_a_session_with_three_rounds_is_taken_again_with_three_rounds() -> None:
    def lost_once(step: Step, history: Sequence[Shown]) -> Shown:
        if isinstance(step, ProfileRounds) and step.rounds == 3 and not history[-1].step.reason:  # type: ignore[union-attr]
            return Shown(step, complete=False)
        return unproven(step, history)

    assert plain(steps(Plan("cuda"), lost_once)) == [("profile", 2), ("profile", 3), ("profile", 3)]


# Throttling.


@pytest.mark.parametrize(
    ("plan", "kind", "rounds"),
    [
        (plan_of("cuda", Needs(device_times=True), rounds=10), ProfileRounds, 10),
        (plan_of("cuda", EVERYTHING, rounds=10), TimeCalls, 10),
    ],
)
@pytest.mark.parametrize("throttled", [0, 1, 2, 3, 9])
def test_a_throttled_batch_is_taken_three_times_and_then_kept(
    plan: Plan, kind: type[Step], rounds: int, throttled: int
) -> None:
    history = driven(plan, showing("t" * throttled, kind))
    taken = [one for one in history if isinstance(one.step, kind)]
    assert len(taken) == min(throttled + 1, TRIES)
    reasons = [getattr(one.step, "reason", "") for one in taken]
    assert reasons[1:] == [f"the GPU throttled, try {i} of 3" for i in range(2, len(taken) + 1)]
    assert kept_throttled(history) == (rounds if throttled >= TRIES else 0)


def test_throttled_rounds_of_all_batches_that_are_kept_add_up() -> None:
    plan = plan_of("cuda", EVERYTHING, rounds=10)
    history = driven(plan, lambda step, _: Shown(step, throttled=type(step) is not WarmUp))
    assert kept_throttled(history) == 10 + 10
    assert retakes(history) == 0


def test_a_throttled_further_batch_and_second_look_are_taken_again_and_kept() -> None:
    outcomes = judged("undecided", "failed", metric="latency")

    def answer(step: Step, history: Sequence[Shown]) -> Shown:
        if isinstance(step, TimeCalls) and (step.batch or isinstance(step, SecondLook)):
            return Shown(step, throttled=True)
        return outcomes(step, history)

    history = driven(HOST_TIMES, answer)
    timed = [one.step for one in history if isinstance(one.step, TimeCalls)]
    assert [(type(one), one.rounds, one.batch) for one in timed] == [
        (TimeCalls, 12, 0),
        *[(TimeCalls, 12, 1)] * 3,
        *[(SecondLook, 24, 0)] * 3,
    ]
    assert kept_throttled(history) == 12 + 24


def test_what_was_throttled_and_lost_is_not_kept_twice() -> None:
    """The incomplete tries are gone; of the last one its throttling is told."""
    history = driven(Plan("cuda", rounds=12), showing("tit", ProfileRounds))
    assert kept_throttled(history) == 0
    assert len(history) == 1 + 4


# Verdicts, a second look and further rounds.


@pytest.mark.parametrize(
    "plan",
    [
        plan_of("cuda", Needs()),
        plan_of("cuda", Needs(memory=True)),
        plan_of("cuda", EVERYTHING, rounds=12),
        plan_of("cuda", Needs(host_times=True), rounds=2),
    ],
    ids=["counts", "memory", "asked for rounds", "asked for few"],
)
def test_no_verdict_is_asked_for_that_would_change_nothing(plan: Plan) -> None:
    """Of counts, and of who asked for rounds: that many they get, with no second look."""
    found = steps(plan, always("failed", "latency"))
    assert not any(isinstance(step, Judge) for step in found)
    assert not any(isinstance(step, SecondLook) for step in found)


@pytest.mark.parametrize(
    ("plan", "metric", "kind"),
    [
        (DEVICE_TIMES, "cuda_time", ProfileRounds),
        (DEVICE_TIMES, "gpu_busy", ProfileRounds),
        (HOST_TIMES, "latency", TimeCalls),
        (HOST_TIMES, "dispatch_time", TimeCalls),
    ],
)
def test_an_undecided_time_is_sampled_on_to_96_rounds(
    plan: Plan, metric: str, kind: type[ProfileRounds] | type[TimeCalls]
) -> None:
    found = [step for step in steps(plan, always("undecided", metric)) if isinstance(step, kind)]
    assert [(step.rounds, step.batch, step.reason) for step in found] == [
        (12, 0, ""),
        (12, 1, "undecided: 12 -> 24 rounds"),
        (24, 2, "undecided: 24 -> 48 rounds"),
        (48, 3, "undecided: 48 -> 96 rounds"),
    ]
    others = [step for step in plain(steps(plan, always("undecided", metric))) if step[1]]
    assert len(others) == len(found) + (kind is TimeCalls)


def test_verdicts_are_asked_for_after_each_batch() -> None:
    assert plain(steps(DEVICE_TIMES, always("undecided", "cuda_time"))) == [
        *[("profile", 12), ("judge", 0)],
        *[("profile", 12), ("judge", 0)],
        *[("profile", 24), ("judge", 0)],
        *[("profile", 48), ("judge", 0)],
    ]


def test_a_time_of_both_kinds_takes_both_of_the_one_with_fewer_first() -> None:
    assert plain(steps(BOTH_TIMES, always("undecided", "launch_overhead"))) == [
        *[("profile", 12), ("time", 12), ("judge", 0)],
        *[("profile", 12), ("judge", 0), ("time", 12), ("judge", 0)],
        *[("profile", 24), ("judge", 0), ("time", 24), ("judge", 0)],
        *[("profile", 48), ("judge", 0), ("time", 48), ("judge", 0)],
    ]


def test_a_limit_on_each_kind_takes_what_is_undecided_still() -> None:
    both: dict[str, Status] = {"cuda_time": "undecided", "latency": "undecided"}
    host: dict[str, Status] = {"cuda_time": "passed", "latency": "undecided"}
    assert plain(steps(BOTH_TIMES, judged(both, host, host))) == [
        *[("profile", 12), ("time", 12), ("judge", 0)],
        *[("profile", 12), ("judge", 0)],
        *[("time", 12), ("judge", 0)],
        *[("time", 24), ("judge", 0)],
    ]


@pytest.mark.parametrize(
    "outcome", ["failed", "passed", "incomplete", "expected failure", "not judged"]
)
def test_a_time_that_is_decided_takes_no_more(outcome: Status) -> None:
    assert plain(steps(DEVICE_TIMES, always(outcome, "cuda_time"))) == [
        ("profile", 12),
        ("judge", 0),
    ]


def test_sampling_stops_with_the_decision() -> None:
    found = plain(
        steps(DEVICE_TIMES, judged("undecided", "undecided", "passed", metric="cuda_time"))
    )
    assert [rounds for kind, rounds in found if kind == "profile"] == [12, 12, 24]


def test_a_ratio_or_a_limit_on_names_takes_no_further_rounds() -> None:
    """A verdict without a metric of the profile's own."""
    assert len(steps(BOTH_TIMES, always("undecided", ""))) == 4


@pytest.mark.parametrize("metric", ["cuda_time", "launch_overhead"])
def test_further_rounds_that_stay_incomplete_end_the_sampling(metric: str) -> None:
    """The verdict stays what it is: not reached."""
    undecided = always("undecided", metric)

    def answer(step: Step, history: Sequence[Shown]) -> Shown:
        if isinstance(step, ProfileRounds) and step.batch:
            return Shown(step, complete=False)
        return undecided(step, history)

    found = driven(BOTH_TIMES, answer)
    assert plain([one.step for one in found]) == [
        *[("profile", 12), ("time", 12), ("judge", 0)],
        *[("profile", 12)] * 3,
        ("judge", 0),
    ]
    assert retakes(found) == 0


def test_a_further_batch_that_was_incomplete_once_joins_the_others() -> None:
    undecided, lost = always("undecided", "cuda_time"), showing("si", ProfileRounds)

    def answer(step: Step, history: Sequence[Shown]) -> Shown:
        return lost(step, history) if isinstance(step, ProfileRounds) else undecided(step, history)

    profiled = [one for one in steps(DEVICE_TIMES, answer) if isinstance(one, ProfileRounds)]
    assert [(one.rounds, one.batch) for one in profiled] == [
        *[(12, 0), (12, 1), (12, 1), (24, 2), (48, 3)]
    ]
    assert profiled[2] == ProfileRounds(12, 1, "incomplete, try 2 of 3", True)


def test_a_first_session_that_stays_incomplete_gets_no_further_rounds() -> None:
    undecided = always("undecided", "cuda_time")

    def answer(step: Step, history: Sequence[Shown]) -> Shown:
        if isinstance(step, ProfileRounds):
            return Shown(step, complete=False)
        return undecided(step, history)

    assert plain(steps(DEVICE_TIMES, answer)) == [*[("profile", 12)] * 3, ("judge", 0)]


def test_host_times_are_not_added_to_where_none_are_taken() -> None:
    assert plain(steps(DEVICE_TIMES, always("undecided", "latency"))) == [
        ("profile", 12),
        ("judge", 0),
    ]


@pytest.mark.parametrize("metric", ["latency", "dispatch_time", "launch_overhead"])
def test_a_limit_on_a_host_time_fails_only_after_one_second_look(metric: str) -> None:
    found = steps(HOST_TIMES, always("failed", metric))
    assert found[2:] == [
        TimeCalls(12),
        Judge(),
        SecondLook(12, reason="a second look before a limit fails"),
        Judge(),
    ]


def test_a_limit_on_a_device_time_needs_no_second_look() -> None:
    assert plain(steps(BOTH_TIMES, always("failed", "cuda_time"))) == [
        *[("profile", 12), ("time", 12), ("judge", 0)]
    ]


def test_a_second_look_has_as_many_rounds_as_the_first() -> None:
    found = steps(HOST_TIMES, judged("undecided", "failed", "failed", metric="latency"))
    looks = [one for one in found if isinstance(one, SecondLook)]
    assert [one.rounds for one in looks] == [24]


def test_a_second_look_that_does_not_confirm_is_followed_by_further_rounds() -> None:
    """They join the first, not the second look; there is no third."""
    found = steps(HOST_TIMES, judged("failed", "undecided", "failed", metric="latency"))
    timed = [one for one in found if isinstance(one, TimeCalls)]
    assert [(type(one), one.rounds, one.batch) for one in timed] == [
        (TimeCalls, 12, 0),
        (SecondLook, 12, 0),
        (TimeCalls, 12, 1),
    ]


# Long calls.


def long(kernels: float, after: Answer = all_is_well, least: int = 2) -> Answer:
    """A call whose rounds take so long that two end its first session, with so many kernels."""

    def answer(step: Step, history: Sequence[Shown]) -> Shown:
        shown = after(step, history)
        if not isinstance(step, ProfileRounds):
            return shown
        rounds = step.rounds if step.batch or step.rounds <= 3 else min(step.rounds, least)
        return shown._replace(step=replace(step, rounds=rounds), kernels=kernels)

    return answer


def profiled(found: Sequence[Shown]) -> list[ProfileRounds]:
    return [one.step for one in found if isinstance(one.step, ProfileRounds)]


@pytest.mark.parametrize(
    ("kernels", "taken"),
    [(0, [2, 10]), (MOST_KERNELS / 12, [2, 10]), (MOST_KERNELS / 12 + 1, [2])],
)
@pytest.mark.parametrize("plan", [DEVICE_TIMES, HOST_TIMES, BOTH_TIMES])
def test_of_a_long_call_all_rounds_are_profiled_only_if_their_kernels_are_not_too_many(
    plan: Plan, kernels: float, taken: list[int]
) -> None:
    found = profiled(driven(plan, long(kernels)))
    assert [(one.rounds, one.batch) for one in found] == [(n, at) for at, n in enumerate(taken)]
    assert all(one.flush_l2 and not one.reason for one in found)


def test_of_a_long_call_host_times_have_all_their_rounds() -> None:
    found = [one.step for one in driven(HOST_TIMES, long(MOST_KERNELS))]
    assert plain(found) == [("profile", 2), ("time", 12), ("judge", 0)]


def test_a_call_that_is_not_long_has_all_rounds_whatever_it_launches() -> None:
    found = profiled(driven(DEVICE_TIMES, long(MOST_KERNELS, least=12)))
    assert [one.rounds for one in found] == [12]


@pytest.mark.parametrize("outcome", ["undecided", "passed", "failed"])
def test_a_limit_on_a_time_gets_twelve_rounds_at_least_however_many_kernels_a_call_has(
    outcome: Status,
) -> None:
    def judge(step: Step, history: Sequence[Shown]) -> Shown:
        told = outcome if len(profiled(history)) == 1 else "passed"
        one = Verdict(limit="max_cuda_time", outcome=told, metric="cuda_time", unit="us")
        return Shown(step, verdicts=(one,) if isinstance(step, Judge) else ())

    found = profiled(driven(DEVICE_TIMES, long(MOST_KERNELS, judge)))
    why = "undecided" if outcome == "undecided" else "too few"
    assert [(one.rounds, one.batch, one.reason) for one in found] == [
        (2, 0, ""),
        (10, 1, f"{why}: 2 -> 12 rounds"),
    ]


def test_a_limit_on_a_count_needs_no_more_rounds() -> None:
    def judge(step: Step, history: Sequence[Shown]) -> Shown:
        one = Verdict(limit="max_kernels", outcome="failed", metric="kernels", unit="count")
        return Shown(step, verdicts=(one,) if isinstance(step, Judge) else ())

    assert [one.rounds for one in profiled(driven(BOTH_TIMES, long(MOST_KERNELS, judge)))] == [2]


def test_both_sessions_of_a_long_call_are_taken_again_until_they_are_sound() -> None:
    for letters, reason in (("i", "incomplete, try 2 of 3"), ("c", "not warm yet")):
        found = profiled(driven(DEVICE_TIMES, long(100, showing(letters, ProfileRounds))))
        assert [(one.rounds, one.batch, one.reason) for one in found] == [
            *[(2, 0, ""), (2, 0, reason), (10, 1, "")]
        ]
        found = profiled(driven(BOTH_TIMES, long(100, showing(f"s{letters}", ProfileRounds))))
        assert [(one.rounds, one.batch, one.reason) for one in found] == [
            *[(2, 0, ""), (10, 1, ""), (10, 1, reason)]
        ]


def test_a_first_session_that_stays_incomplete_is_followed_by_no_other() -> None:
    found = profiled(driven(BOTH_TIMES, long(100, showing("iii", ProfileRounds))))
    assert [(one.rounds, one.batch) for one in found] == [(2, 0)] * 3


# Shapes.


@pytest.mark.parametrize("bound", ["gpu", "overhead", "sync", "mixed", "unknown"])
@pytest.mark.parametrize("rounds", [None, 8], ids=["sampled", "asked for"])
def test_shapes_are_recorded_once_and_last_where_the_device_is_the_limit(
    bound: str, rounds: int | None
) -> None:
    found = steps(
        plan_of("cuda", EVERYTHING, rounds=rounds), lambda step, _: Shown(step, bound=bound)
    )
    assert [i for i, one in enumerate(found) if isinstance(one, RecordShapes)] == (
        [len(found) - 1] if bound == "gpu" else []
    )


def test_shapes_are_not_recorded_where_nobody_needs_host_times() -> None:
    found = steps(DEVICE_TIMES, lambda step, _: Shown(step, bound="gpu"))
    assert not any(isinstance(one, RecordShapes) for one in found)


def test_the_bound_of_all_rounds_is_what_counts() -> None:
    outcomes = judged("undecided", "passed", metric="latency")

    def answer(step: Step, history: Sequence[Shown]) -> Shown:
        shown = outcomes(step, history)
        bound = "gpu" if len(history) < 5 else "overhead"
        return Shown(shown.step, bound=bound, verdicts=shown.verdicts)

    assert not any(isinstance(one, RecordShapes) for one in steps(HOST_TIMES, answer))


# Numbers.


@pytest.mark.parametrize(
    ("taken", "more"), [(0, 0), (1, 1), (12, 12), (48, 48), (50, 46), (96, 0), (200, 0)]
)
def test_rounds_double_up_to_96(taken: int, more: int) -> None:
    assert next_rounds(taken) == more


@pytest.mark.parametrize(
    ("shown", "reason"),
    [
        ("s", ""),
        ("i", "incomplete, try 2 of 3"),
        ("ii", "incomplete, try 3 of 3"),
        ("iii", ""),
        ("is", ""),
        ("t", "the GPU throttled, try 2 of 3"),
        ("ttt", ""),
        ("ct", "the GPU throttled, try 2 of 3"),
        ("c", "not warm yet"),
        ("cccccc", ""),
        ("iib", "not warm yet"),
        ("iibbbbb", "not warm yet"),
        ("iibbbbbb", ""),
    ],
)
def test_why_a_batch_is_taken_again(shown: str, reason: str) -> None:
    assert again([Shown(ProfileRounds(12), **SHOWN[letter]) for letter in shown]) == reason


# Whatever happens, it ends.


def at_random(source: random.Random) -> Answer:
    """Anything may happen, with a mood that makes some of it lasting."""
    mood = {name: source.choice([0.0, 0.1, 0.5, 1.0]) for name in ("lost", "cold", "hot", "graph")}
    names = ["latency", "cuda_time", "launch_overhead", "dispatch_time", "kernels", ""]
    outcome, is_long = source.choice([None, *STATUSES]), source.random() < 0.5

    def answer(step: Step, history: Sequence[Shown]) -> Shown:
        happens = {name: source.random() < share for name, share in mood.items()}
        profiled, timed = isinstance(step, ProfileRounds), isinstance(step, TimeCalls)
        if isinstance(step, ProfileRounds) and not step.batch and is_long and step.rounds > 3:
            step = replace(step, rounds=2)
        return Shown(
            step,
            complete=not (profiled and happens["lost"]),
            cold=profiled and happens["cold"],
            unproven=profiled and happens["graph"],
            throttled=(profiled or timed) and happens["hot"],
            kernels=source.choice([0, 100, MOST_KERNELS]),
            bound=source.choice(["gpu", "overhead", "unknown"]),
            verdicts=verdicts({name: outcome or source.choice(STATUSES) for name in names})
            if isinstance(step, Judge)
            else (),
        )

    return answer


@pytest.mark.parametrize("seed", range(400))
def test_whatever_happens_a_measurement_ends_and_repeats_no_finished_step(seed: int) -> None:
    source = random.Random(seed)
    needs = Needs(*(source.random() < 0.6 for _ in range(3)))
    rounds = source.choice([None, None, None, 1, 2, 7, 96])
    plan = plan_of("cuda", needs, rounds=rounds)._replace(warmup=source.choice([1, 2, 4]))
    history = driven(plan, at_random(source), most=120)

    assert next_step(plan, history) is None
    finished: list[tuple[object, ...]] = []
    taken: dict[type[Step], int] = {ProfileRounds: 0, TimeCalls: 0}
    for shown in history:
        step = shown.step
        key: tuple[object, ...] = (type(step),)
        if isinstance(step, WarmUp):
            key = (WarmUp, step.done)
        elif isinstance(step, ProfileRounds):
            key = (ProfileRounds, step.batch)
        elif isinstance(step, TimeCalls):
            key = (type(step), step.batch)
        elif isinstance(step, Judge):
            key = (Judge, len(finished))
        if finished and finished[-1] == key:
            assert getattr(step, "reason", ""), "the same once more, and nobody knows why"
            continue
        assert key not in finished, "taken up again after something else"
        finished.append(key)
        if type(step) in taken:
            taken[type(step)] += getattr(step, "rounds", 0)
    assert max(taken.values()) <= max(MOST_ROUNDS, plan.rounds)
    assert kept_throttled(history) <= 3 * MOST_ROUNDS
