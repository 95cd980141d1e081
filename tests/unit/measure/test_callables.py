"""Callables in turn: whose value each is, and when more of them are taken. Sessions are a stand-in:
a call hands back the time that it takes."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from records import GELU, counted, kernel, profile
from unfinished import leaving_work

from pytest_kernelprof.distributed.agreement import ALONE, Agreement
from pytest_kernelprof.errors import IncompleteProfile, MarkerError, WrongResult
from pytest_kernelprof.gpu.conditions import Watch
from pytest_kernelprof.gpu.inventory import Device
from pytest_kernelprof.measure import callables, sessions
from pytest_kernelprof.measure.arguments import Arguments
from pytest_kernelprof.measure.callables import CLOSE, CompareBy, Contest, contest, refuse_idle
from pytest_kernelprof.measure.policy import Plan, Progress, no_progress
from pytest_kernelprof.profiler import unprofiled_rounds
from pytest_kernelprof.profiler.unprofiled_rounds import RepeatedCall
from pytest_kernelprof.records.profile import Profile
from pytest_kernelprof.records.recording import Conditions, MemoryUse, Neighbour

GPU = Device("cuda", 0, "a GPU", "sm_90", 0, {})
TIMES = {"a": 10.0, "b": 20.0, "c": 30.0}


class Gpu(Watch):
    """A GPU that throttles in the blocks that are told, or on which others work."""

    def __init__(self) -> None:
        super().__init__(None, Conditions())
        self.throttles: Iterator[bool] = iter(())
        self.contended = False
        self.discarded = 0

    def block(self, rounds: int) -> bool:
        throttled = next(self.throttles, False)
        self.discarded += rounds * throttled
        return not throttled

    def conditions(self) -> Conditions:
        neighbours = (Neighbour(7, 60),) if self.contended else ()
        return Conditions(blocks=1, contenders=neighbours, discarded_rounds=self.discarded)


class Stage:
    """What is asked of a session, and what it answers."""

    def __init__(self) -> None:
        self.gpu = Gpu()
        self.sessions = 0
        self.ran: list[str] = []
        self.lost: Iterator[bool] = iter(())
        self.kernels: Callable[[int], float] = lambda i: 1.0

    def session(self, repeated: RepeatedCall, rounds: int, **_: object) -> Any:
        self.sessions += 1
        times: list[Any] = [repeated.prepare()() for _ in range(rounds)]
        problems = ("a kernel is missing",) if next(self.lost, False) else ()
        metrics = {
            "cuda_time": SimpleNamespace(rounds=times),
            "kernels": SimpleNamespace(rounds=[self.kernels(i) for i in range(rounds)]),
        }
        integrity = SimpleNamespace(problems=problems)
        session = SimpleNamespace(integrity=integrity, metrics=metrics)
        return SimpleNamespace(facts=SimpleNamespace(profile=session))

    @contextlib.contextmanager
    def alone(
        self, device: Device, lock_timeout_s: float, who: str, **_: object
    ) -> Iterator[Watch]:
        yield self.gpu

    def timed(self, name: str) -> Callable[[], float]:
        def call() -> float:
            self.ran.append(name)
            return TIMES[name]

        return call

    def named(self, *names: str, **more: Any) -> Contest:
        return contest_of({name: self.timed(name) for name in names}, **more)


@pytest.fixture(autouse=True)
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    made = Stage()
    monkeypatch.setattr(sessions, "profile_rounds", made.session)
    monkeypatch.setattr(callables, "alone", made.alone)
    return made


def silently() -> contextlib.AbstractContextManager[Progress]:
    return contextlib.nullcontext(no_progress)


def nobody_else() -> contextlib.AbstractContextManager[Agreement]:
    return contextlib.nullcontext(ALONE)


def contest_of(
    calls: dict[str, Callable[[], float]], metric: CompareBy = "cuda_time", **more: Any
) -> Contest:
    plan = Plan("cuda", rounds=12, lock_timeout_s=1.0)
    profiles = {name: profile([kernel(GELU)]) for name in calls}
    prepares = {name: (lambda call=call: call) for name, call in calls.items()}
    return Contest(
        *(GPU, plan, metric, list(calls)[-1], prepares, profiles),
        **{"measuring": silently, "agreeing": nobody_else, **more},
    )


def pairs_of(candidate: Callable[[int], float], taken: int) -> Contest:
    """So many rounds of a candidate by their number, and of a reference that always takes 10 us."""
    turn = itertools.count()
    found = contest_of({"candidate": lambda: candidate(next(turn)), "reference": lambda: 10.0})
    found.take(taken)
    return found


def scattered(i: int) -> float:
    return 5.0 + i * 5 % 12 / 10


def slow_for_a_while(i: int) -> float:
    return 20.0 if i // 6 % 2 else 5.0


# Turns.


def test_the_order_turns_round_each_time_also_from_one_look_to_the_next(stage: Stage) -> None:
    two = stage.named("a", "b")
    two.take(3)
    two.take(2)
    assert "".join(stage.ran) == "abbaab" + "baab"
    assert two.pairs == 5


def test_each_value_goes_to_its_callable(stage: Stage) -> None:
    three = stage.named("a", "b", "c")
    three.take(4)
    assert {name: three.values(name) for name in "abc"} == {
        name: (TIMES[name],) * 4 for name in "abc"
    }


def test_a_callable_whose_kernels_differ_is_told_of(stage: Stage) -> None:
    """In turns a b, b a: the first and the fourth call are of one callable."""
    stage.kernels = lambda i: 3.0 if i == 3 else 1.0
    two = stage.named("a", "b")
    two.take(2)
    assert {one.name: one.unstable for one in two.record().callables} == {"a": (1, 3), "b": ()}


def test_progress_is_told_of_each_round(stage: Stage) -> None:
    told: list[tuple[str, int, int]] = []

    def progress(what: str, done: int, of: int, reason: str = "") -> None:
        told.append((what, done, of))

    stage.named("a", "b", measuring=lambda: contextlib.nullcontext(progress)).take(2)
    assert told == [("comparing", i, 4) for i in range(4)]


# Sessions that are incomplete, a GPU that throttles.


@pytest.mark.parametrize("lost", [1, 2])
def test_an_incomplete_session_is_taken_again(stage: Stage, lost: int) -> None:
    stage.lost = iter([True] * lost)
    two = stage.named("a", "b")
    two.take(2)
    assert stage.sessions == lost + 1
    assert two.values("a") == (10.0, 10.0)


@pytest.mark.parametrize("throttled", [[], [True]], ids=["", "throttled before"])
def test_three_incomplete_sessions_are_an_error(stage: Stage, throttled: list[bool]) -> None:
    stage.gpu.throttles = iter(throttled)
    stage.lost = itertools.chain([False] * len(throttled), itertools.repeat(True))
    with pytest.raises(IncompleteProfile, match="incomplete 3 times: a kernel is missing"):
        stage.named("a", "b").take(2)
    assert stage.sessions == 3 + len(throttled)


@pytest.mark.parametrize("throttled", [0, 1, 2, 3])
def test_rounds_of_a_gpu_that_throttles_are_taken_three_times_and_then_kept(
    stage: Stage, throttled: int
) -> None:
    stage.gpu.throttles = iter([True] * throttled)
    two = stage.named("a", "b")
    two.take(2)
    assert stage.sessions == min(throttled + 1, 3)
    assert two.pairs == 2
    assert two.more_pairs(decided=False) == (0 if throttled == 3 else 2)
    kept = [one.kept_throttled_rounds for one in two.record().conditions]
    assert kept == ([4] if throttled == 3 else [])


# More pairs.


@pytest.mark.parametrize(
    ("candidate", "begun", "taken"),
    [(scattered, 12, 12), (slow_for_a_while, 12, 48), (slow_for_a_while, 13, 52)],
    ids=["scattered", "alike", "alike, from thirteen"],
)
def test_pairs_are_added_until_there_is_an_interval(
    candidate: Callable[[int], float], begun: int, taken: int
) -> None:
    found = pairs_of(candidate, begun)
    found.take_until_sure()
    assert found.pairs == taken
    assert found.paired("candidate").low is not None
    assert found.more_pairs(decided=True) == 0


def test_who_begins_with_few_pairs_gets_no_more() -> None:
    found = pairs_of(slow_for_a_while, 7)
    found.take_until_sure()
    assert found.pairs == 7
    assert found.paired("candidate").low is None


def test_a_disturbed_gpu_is_asked_for_no_more_pairs(stage: Stage) -> None:
    """More of them could not decide: the doubt stays."""
    stage.gpu.contended = True
    found = pairs_of(slow_for_a_while, 12)
    found.take_until_sure()
    assert found.pairs == 12
    assert found.more_pairs(decided=False) == 0
    assert [one.contended for one in found.record().conditions] == [True]


def test_a_doubt_of_some_rounds_stays_with_quiet_ones(stage: Stage) -> None:
    two = stage.named("a", "b")
    stage.gpu.contended = True
    two.take(2)
    stage.gpu.contended = False
    two.take(2)
    assert two.more_pairs(decided=False) == 0
    assert len(two.record().conditions) == 1


# Ratios and records.


def test_what_takes_no_time_at_all_cannot_be_compared() -> None:
    found = pairs_of(lambda i: 0.0, 12)
    with pytest.raises(MarkerError, match="candidate cannot be compared with reference: a round"):
        found.take_until_sure()


@pytest.fixture
def peaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is what a call hands back."""

    def watch_memory(repeated: RepeatedCall, rounds: int) -> MemoryUse:
        peak: Any = repeated.prepare()()
        return MemoryUse((peak,), (0,))

    monkeypatch.setattr(unprofiled_rounds, "watch_memory", watch_memory)


@pytest.mark.usefixtures("peaks")
def test_a_call_that_allocates_nothing_is_taken_for_a_byte(stage: Stage) -> None:
    found = contest_of({"candidate": lambda: 0, "reference": lambda: 10}, "peak_memory")
    found.take(12)
    assert found.paired("candidate").speedup == pytest.approx(10.0)
    assert found.values("candidate") == (0.0,) * 12
    assert stage.sessions == 0


def test_memory_that_cannot_be_watched_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unprofiled_rounds, "watch_memory", lambda *_: None)
    found = contest_of({"candidate": lambda: 0, "reference": lambda: 10}, "peak_memory")
    with pytest.raises(IncompleteProfile, match="peak_memory is not available"):
        found.take(2)


def test_a_record_has_the_ratio_of_each_with_the_reference(stage: Stage) -> None:
    three = stage.named("a", "b", "c")
    three.take(12)
    record = three.record()
    assert (record.metric, record.reference, record.pairs) == ("cuda_time", "c", 12)
    speedups = [
        (one.name, one.value, one.paired and one.paired.speedup, one.kernels)
        for one in record.callables
    ]
    assert speedups == [
        ("a", 10.0, pytest.approx(3.0), 1),
        ("b", 20.0, pytest.approx(1.5), 1),
        ("c", 30.0, None, 1),
    ]
    assert [one.name for one in three.record(["c", "a"]).callables] == ["a", "c"]


# From warming up on, on the CPU.


def on_cpu(*calls: Callable[..., object], args: Sequence[Any] = (), pairs: int = 3) -> Contest:
    plan = Plan("cpu", rounds=pairs, lock_timeout_s=1.0)
    named = {f"call {i}": call for i, call in enumerate(calls)}
    return contest(
        *(named, plan, Arguments(args)),
        reference="call 0",
        metric="latency",
        check=CLOSE,
        fresh=None,
        measuring=silently,
        agreeing=nobody_else,
    )


def test_each_callable_is_warmed_up_and_profiled_before_the_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.undo()
    ran: list[str] = []
    found = on_cpu(lambda: ran.append("a"), lambda: ran.append("b"))
    assert "".join(ran) == "aaa" + "bbb" + "abbaab"
    assert found.pairs == 3
    assert {name: one.label for name, one in found.profiles.items()} == {
        "call 0": "call 0",
        "call 1": "call 1",
    }


def test_arguments_that_a_callable_changes_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    x = torch.zeros(2)
    assert on_cpu(lambda x: x + 1, lambda x: x.add_(1), args=(x,)).in_place == ("argument 1",)
    assert on_cpu(lambda x: x + 1, lambda x: 1 + x, args=(x,)).in_place == ()


@pytest.mark.parametrize("work", [profile([kernel(GELU)]), profile([], [counted("memcpys", 1, 1)])])
def test_a_candidate_that_does_nothing_where_the_reference_does_is_refused(work: Profile) -> None:
    idle = profile([])
    with pytest.raises(WrongResult, match="a launched no kernels, copies or memsets, b launched 1"):
        refuse_idle({"a": idle, "b": work}, "b")
    both, one = (replace(work, rank=0, other_ranks=(replace(of, rank=1),)) for of in (work, idle))
    with pytest.raises(WrongResult, match="a launched no kernels"):
        refuse_idle({"a": one, "b": both}, "b")
    refuse_idle({"a": work, "b": idle}, "b")
    refuse_idle({"a": idle, "b": idle}, "b")


def test_a_profile_that_stays_incomplete_ends_a_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    words = r"profile incomplete \(tried \d times\)"
    with leaving_work() as call, pytest.raises(IncompleteProfile, match=words):
        on_cpu(lambda: None, call)
