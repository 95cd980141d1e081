"""Measuring: what is called how often, with which arguments, and until the code is warm."""

from __future__ import annotations

import contextlib
import os
import time
import tracemalloc
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest
import torch
from compiled import fused, hidden
from corpus import FOLDER, reading

from pytest_kernelprof.analysis.session_profile import profile_of, session_facts
from pytest_kernelprof.distributed.agreement import ALONE, Agreement
from pytest_kernelprof.errors import GpuBusy, IncompleteProfile
from pytest_kernelprof.gpu.conditions import Watch, unwatched
from pytest_kernelprof.gpu.inventory import Device
from pytest_kernelprof.measure import policy, runner, sessions
from pytest_kernelprof.measure.arguments import Arguments
from pytest_kernelprof.measure.policy import (
    TRIES,
    Plan,
    ProfileRounds,
    RecordShapes,
    Shown,
    Step,
    WarmUp,
    plan_of_ranks,
    require_complete,
)
from pytest_kernelprof.measure.runner import Measurement, Run, measure, measure_once
from pytest_kernelprof.profiler.trace_folder import Folder, TraceFile
from pytest_kernelprof.profiler.unprofiled_rounds import RepeatedCall
from pytest_kernelprof.records.metrics import Rated
from pytest_kernelprof.records.profile import Bound, Profile, Verdict
from pytest_kernelprof.records.recording import Conditions, Integrity

X = torch.ones(4)
GPU = Device("cuda", 0, "NVIDIA H200", "sm_90", 0, {})


def recompiles_of(measurement: Measurement) -> float:
    return measurement.profile.metrics["recompiles"].value or 0.0


def test_the_first_calls_result_is_handed_back() -> None:
    numbers = iter(range(100))
    result, _ = measure(lambda: next(numbers), Plan("cpu"))
    assert result == 0


def test_exact_counts_take_one_call_to_warm_up_and_two_profiled() -> None:
    calls: list[int] = []
    measure(lambda: calls.append(1), Plan("cpu"))
    assert len(calls) == 1 + 2


def test_warm_up_and_rounds_are_as_asked() -> None:
    calls: list[int] = []
    measure(lambda: calls.append(1), Plan("cpu", warmup=4, rounds=7, host_rounds=5))
    assert len(calls) == 4 + 7 + 5


def test_progress_is_told_of_each_round() -> None:
    told: list[tuple[str, int, int, str]] = []

    def progress(what: str, done: int, of: int, reason: str = "") -> None:
        told.append((what, done, of, reason))

    measure(lambda: None, Plan("cpu", warmup=3, rounds=2, host_rounds=2), progress=progress)
    assert told == [
        ("warming up", 1, 3, ""),
        ("warming up", 2, 3, ""),
        ("profiling", 0, 2, ""),
        ("profiling", 1, 2, ""),
        ("timing", 0, 2, ""),
        ("timing", 1, 2, ""),
    ]


def test_after_long_rounds_progress_says_at_once_that_the_trace_is_read() -> None:
    """50,000 operators run within a second, and torch makes their trace in ten."""
    told: list[tuple[str, int, int]] = []

    def progress(what: str, done: int, of: int, reason: str = "") -> None:
        if done == of:
            told.append((what, done, of))

    measure(lambda: None, Plan("cpu"), progress=progress)
    assert not told
    measure(lambda: time.sleep(0.06), Plan("cpu"), progress=progress)
    assert told == [("reading the trace of round", 2, 2)]


def test_progress_says_why_code_is_profiled_again() -> None:
    reasons: list[str] = []
    calls: list[int] = []

    def progress(what: str, done: int, of: int, reason: str = "") -> None:
        reasons.append(reason)

    def compiles_late() -> torch.Tensor:
        calls.append(1)
        return torch.compile(lambda x: x + len(calls), backend="eager")(X) if len(calls) < 4 else X

    measure(compiles_late, Plan("cpu"), progress=progress)
    assert set(reasons) == {"", "not warm yet"}


@pytest.mark.parametrize("longer", [1, 2])
def test_one_longer_round_of_two_is_told_whichever_it_is(longer: int) -> None:
    """As with a gradient that is applied each fourth call: the largest count is the call's."""
    calls: list[int] = []

    def call() -> torch.Tensor:
        calls.append(1)
        return X + 1 if (len(calls) - 1) % 4 != longer else (X + 1) * 2

    _, measurement = measure(call, Plan("cpu"))
    assert sorted(measurement.profile.metrics["kernels"].rounds) == [1, 2]
    assert measurement.profile.kernel_count == 2


def test_several_ranks_warm_up_past_what_they_do_in_their_second_call() -> None:
    alone, several = (
        plan_of_ranks([Plan("cpu")]),
        plan_of_ranks([Plan("cpu"), Plan("cpu")]),
    )
    assert (alone.warmup, several.warmup) == (1, 2)
    assert plan_of_ranks([Plan("cpu", warmup=5), Plan("cpu")]).warmup == 5
    assert plan_of_ranks([Plan("cpu", warmup=0)]).warmup == 1


class SecondOfTwo(Agreement):
    """Rank 1; rank 0 has the same."""

    rank = 1

    def gather(self, what: str, own: Any, **_: Any) -> Any:
        return msgspec.structs.replace(own, rank=0), own


def test_what_all_ranks_ran_has_the_profiles_of_the_others() -> None:
    _, measurement = measure(lambda: X + 1, Plan("cpu"))
    found = runner.with_other_ranks(measurement.profile, SecondOfTwo())
    assert (found.rank, [one.rank for one in found.other_ranks]) == (1, [0])
    assert runner.with_other_ranks(measurement.profile, ALONE) is measurement.profile


@pytest.mark.parametrize(
    ("fresh", "expected"),
    [((1, 2), (1, 2)), ([1, 2], (1, 2)), (((1,), {"b": 2}), (1, 2)), (None, ("a", "b"))],
)
def test_setup_hands_back_the_arguments_of_each_call(fresh: Any, expected: Any) -> None:
    seen = []
    measure(
        lambda a, b: seen.append((a, b)),
        Plan("cpu"),
        Arguments(("a", "b"), setup=lambda: fresh),
    )
    assert seen == [expected] * 3


def test_a_setup_of_another_kind_is_refused() -> None:
    with pytest.raises(TypeError, match="setup returned int; expected the arguments as a tuple"):
        measure(lambda: None, Plan("cpu"), Arguments(setup=lambda: 3))


def test_work_of_setup_does_not_count() -> None:
    _, measurement = measure(
        lambda x: x.add_(1), Plan("cpu"), Arguments(setup=lambda: (X.clone() * 2,))
    )
    assert measurement.profile.kernel_count == 1


def test_host_times_are_taken_in_unprofiled_calls() -> None:
    seen: list[bool] = []

    def call() -> None:
        seen.append(torch.autograd.profiler._is_profiler_enabled)

    _, measurement = measure(call, Plan("cpu", rounds=2, host_rounds=9))
    assert seen == [False, True, True, *[False] * 9]
    assert len(measurement.profile.metrics["latency"].rounds) == 9


def test_compiled_code_is_warm_before_it_is_counted() -> None:
    _, measurement = measure(fused(), Plan("cpu"), Arguments((X,)))
    assert measurement.profile.integrity.settled
    assert recompiles_of(measurement) == 0
    assert measurement.profile.kernel_count == 1


def test_code_that_compiles_at_every_call_never_settles_and_says_so() -> None:
    torch.compiler.reset()
    sizes = iter(range(2, 100))
    compiled = torch.compile(lambda x, n: x[:n] * n, dynamic=False, backend="eager")
    x = torch.ones(200)
    with torch._dynamo.config.patch(recompile_limit=1000, accumulated_recompile_limit=1000):
        _, measurement = measure(lambda: compiled(x, next(sizes)), Plan("cpu"))
    assert not measurement.profile.integrity.settled
    assert recompiles_of(measurement) >= 2


def test_compilations_of_the_calls_after_the_session_count_too() -> None:
    torch.compiler.reset()
    calls: list[int] = []

    def compiles_late() -> None:
        calls.append(1)
        if len(calls) in (5, 7):  # among the unprofiled calls
            torch.compile(lambda x: x * len(calls), backend="eager")(X)

    _, measurement = measure(compiles_late, Plan("cpu", host_rounds=6))
    assert recompiles_of(measurement) == 2


def test_what_the_warm_up_uses_up_is_noted() -> None:
    torch.compiler.reset()
    sizes = iter(range(2, 100))
    compiled = torch.compile(lambda x, n: x[:n] * n, dynamic=False, backend="eager")
    x = torch.ones(200)
    _, measurement = measure(lambda: compiled(x, next(sizes)), Plan("cpu", warmup=12))
    assert measurement.profile.integrity.settled
    assert measurement.recording.refused == 1
    assert recompiles_of(measurement) == 2
    assert "gave up" in measurement.profile.metrics["recompiles"].why


def test_rounds_are_clocked_and_agree_with_the_trace() -> None:
    _, measurement = measure(lambda: (X @ X).relu(), Plan("cpu", rounds=3))
    assert len(measurement.recording.round_us) == 3
    assert min(measurement.recording.round_us) > 0
    assert measurement.profile.integrity.clock == ""


def test_kernels_that_a_compiled_graph_may_hide_make_the_profile_incomplete() -> None:
    with hidden() as call:
        _, measurement = measure(call, Plan("cpu"))
    assert "enable_kernel_profile" in measurement.profile.integrity.problems[0]


def test_an_incomplete_profile_is_taken_again_and_then_handed_back_as_it_is() -> None:
    calls: list[int] = []
    with hidden() as call:
        call()
        _, measurement = measure(lambda: (calls.append(1), call()), Plan("cpu"))
    assert measurement.profile.integrity.retakes == TRIES - 1
    assert len(calls) == 1 + 2 * TRIES
    with pytest.raises(IncompleteProfile, match=r"profile incomplete \(tried 3 times\)"):
        require_complete(measurement.profile)


def test_a_complete_profile_is_not_taken_again() -> None:
    _, measurement = measure(lambda: X + 1, Plan("cpu"))
    assert measurement.profile.integrity.retakes == 0
    require_complete(measurement.profile)


def test_keyword_arguments_reach_the_call() -> None:
    result, _ = measure(lambda a, *, b: (a, b), Plan("cpu"), Arguments((1,), {"b": 2}))
    assert result == (1, 2)


def test_setup_may_mutate_its_arguments_afresh_for_each_call() -> None:
    seen: list[float] = []

    def in_place(x: torch.Tensor) -> None:
        seen.append(x.add_(1)[0].item())

    measure(in_place, Plan("cpu", host_rounds=2), Arguments(setup=lambda: (torch.zeros(2),)))
    assert set(seen) == {1.0}


def test_an_exception_of_setup_passes_through() -> None:
    def fails() -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        measure(lambda: None, Plan("cpu"), Arguments(setup=fails))
    assert not torch.autograd.profiler._is_profiler_enabled


def test_the_profile_carries_device_versions_and_label() -> None:
    _, measurement = measure(lambda: X + 1, Plan("cpu"), label="forward")
    assert measurement.profile.label == "forward"
    assert measurement.profile.environment.device.startswith("CPU (")
    assert measurement.profile.environment.versions["torch"] == torch.__version__


def test_the_arguments_do_not_outlive_the_measurement() -> None:
    argument = torch.ones(3)
    alive = weakref.ref(argument)
    _, measurement = measure(lambda x: None, Plan("cpu"), Arguments((argument,)))
    found = measurement.profile
    del argument, measurement
    assert found.kernel_count == 0
    assert alive() is None


def test_a_block_is_profiled_once_as_it_stands() -> None:
    calls: list[int] = []
    with measure_once(Plan("cpu", warmup=5, rounds=5)) as found:
        calls.append(1)
        X.exp()
    assert calls == [1]
    assert [kernel.name for kernel in found[0].profile.kernels] == ["aten::exp"]
    assert found[0].attribute is None


def test_a_block_that_compiles_counts_its_compilations() -> None:
    torch.compiler.reset()
    compiled = torch.compile(lambda x: x * 7 + 2, backend="eager")
    with measure_once(Plan("cpu")) as found:
        compiled(X)
    assert recompiles_of(found[0]) == 1


def test_a_block_has_no_host_times_and_says_why() -> None:
    with measure_once(Plan("cpu", host_rounds=5)) as found:
        X.exp()
    assert found[0].profile.metrics["latency"].value is None
    assert "one-shot" in found[0].profile.metrics["latency"].why


def test_with_stacks_a_block_names_the_frames_of_its_operators() -> None:
    def helper() -> torch.Tensor:
        return X.exp()

    with measure_once(Plan("cpu", stacks=True)) as found:
        helper()
    assert os.path.basename(__file__) + ":" in found[0].profile.kernels[0].source


def test_recompilations_of_the_measured_calls_are_counted() -> None:
    torch.compiler.reset()
    sizes = iter([2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17])
    compiled = torch.compile(lambda x: x * 2, dynamic=False, backend="eager")
    with measure_once(Plan("cpu")) as found:
        for _ in range(3):
            compiled(torch.ones(next(sizes)))
    assert recompiles_of(found[0]) == 3


@pytest.mark.parametrize("verdict", ["gpu", "overhead", "sync", "mixed", "unknown"])
def test_shapes_are_recorded_only_where_the_device_is_the_limit_and_while_it_is_ours(
    verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[bool] = []
    taken: list[bool] = []

    @contextlib.contextmanager
    def alone(*_: object, **__: object) -> Iterator[Watch]:
        held.append(True)
        yield unwatched()
        held.clear()

    def record_shapes(_: Run, step: RecordShapes) -> Shown:
        taken.append(bool(held))
        return Shown(step)

    def bound(*given: Any) -> Profile:
        return msgspec.structs.replace(profile_of(*given), bound=Bound(verdict, ""))

    monkeypatch.setattr(runner, "alone", alone)
    monkeypatch.setattr(Run, "_record_shapes", record_shapes)
    monkeypatch.setattr(runner, "profile_of", bound)
    measure(lambda: None, Plan("cpu", rounds=8, host_rounds=8, roofline=True))
    assert taken == ([True] if verdict == "gpu" else [])


@pytest.mark.parametrize(
    ("plan", "locked"),
    [
        (Plan("cpu"), False),
        (Plan("cpu", rounds=3), False),
        (Plan("cpu", rounds=4), True),
        (Plan("cpu", host_rounds=1), True),
    ],
)
def test_the_gpu_is_asked_for_after_the_warm_up_and_for_times_only(
    plan: Plan, locked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    @contextlib.contextmanager
    def alone(device: Device, timeout_s: float, who: str, **_: object) -> Iterator[Watch]:
        raise GpuBusy(f"after {len(calls)} call")
        yield

    monkeypatch.setattr(runner, "alone", alone)
    refused = pytest.raises(GpuBusy, match="after 1 call") if locked else contextlib.nullcontext()
    with refused:
        measure(lambda: calls.append(1), plan)


def test_arguments_that_the_code_changes_are_noted() -> None:
    def in_place(x: torch.Tensor, *, y: torch.Tensor) -> None:
        y.add_(x)

    given, plan = {"y": torch.zeros(4)}, Plan("cpu")
    assert measure(in_place, plan, Arguments((X,), given))[1].profile.in_place == ("y",)
    fresh = measure(in_place, plan, Arguments(setup=lambda: ((X,), {"y": torch.zeros(4)})))
    assert fresh[1].profile.in_place == ()


def test_verdicts_are_asked_for_only_where_the_plan_samples_on() -> None:
    seen: list[Profile] = []

    def judge(profile: Profile) -> list[Verdict]:
        seen.append(profile)
        return []

    measure(lambda: None, Plan("cpu", rounds=2, host_rounds=2), judge=judge)
    assert seen == []
    measure(lambda: None, Plan("cpu", rounds=2, host_rounds=2, sample_on=True), judge=judge)
    assert [len(one.metrics["latency"].rounds) for one in seen] == [2]


def test_host_times_are_one_series_and_the_second_look_is_another() -> None:
    """Undecided by 12 rounds and over by 24: so 24 are taken once more, apart from them."""
    outcomes = iter(["undecided", "failed", "failed"])
    seen: list[tuple[int, int]] = []

    def judge(profile: Profile) -> list[Verdict]:
        second = profile.second_look["latency"].rounds if profile.second_look else ()
        seen.append((len(profile.metrics["latency"].rounds), len(second)))
        return [Verdict(limit="max_latency", metric="latency", outcome=next(outcomes))]  # type: ignore[arg-type]

    plan = Plan("cpu", rounds=2, host_rounds=12, sample_on=True)
    _, measurement = measure(lambda: None, plan, judge=judge)
    assert seen == [(12, 0), (24, 0), (24, 24)]
    assert len(measurement.profile.metrics["latency"].rounds) == 24
    assert len(measurement.profile.second_look["latency"].rounds) == 24


# A device's sessions, recorded before, in place of new ones.


class FakeWatch(Watch):
    """A GPU that throttles in the blocks that are told."""

    def __init__(self, throttled: Sequence[bool]) -> None:
        super().__init__(None, Conditions())
        self._throttled = iter(throttled)
        self._discarded = 0

    def block(self, rounds: int) -> bool:
        throttled = next(self._throttled, False)
        self._discarded += rounds * throttled
        return not throttled

    def conditions(self) -> Conditions:
        return Conditions(discarded_rounds=self._discarded)


def recorded_session(name: str, integrity: Integrity | None = None) -> sessions.Taken:
    found = reading(name)
    facts = session_facts(found)
    complete = msgspec.structs.replace(facts.profile, integrity=integrity or Integrity())
    facts = replace(facts, profile=complete)
    file = TraceFile(Folder(str(FOLDER), maker=0), "none.json")
    recording = msgspec.structs.replace(found.trace.recording, recompiles=0, more_rounds={})
    noted = replace(found, trace=replace(found.trace, recording=recording))
    return sessions.Taken(file, noted, facts)


def nothing() -> None:
    """A call that does nothing."""


def a_run(plan: Plan, judge: Callable[[Profile], Sequence[Verdict]] | None = None) -> Run:
    return Run(GPU, plan, nothing, Arguments(), "", judge)


def finished(run: Run) -> Measurement:
    while (step := run.next_step()) is not None:
        run.execute(step)
    return run.measurement()


@pytest.mark.parametrize("flush_l2", [True, False])
def test_rates_are_taken_with_the_cache_as_it_is_in_timed_rounds(
    flush_l2: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}

    def session(repeated: RepeatedCall, rounds: int, *_: int, **options: Any) -> sessions.Taken:
        asked.clear()
        asked.update(options, rounds=rounds, repeated=repeated)
        return recorded_session("memory")

    monkeypatch.setattr(sessions, "profile_rounds", session)
    run = a_run(Plan("cuda", flush_l2=flush_l2, roofline=True))
    run.execute(ProfileRounds(1))
    run.execute(RecordShapes())
    assert run._noted["roofline"].roof == "compute"
    repeated = asked.pop("repeated")
    assert asked == {"rounds": 1, "shapes": True}
    assert (repeated.flush_l2, repeated.agreement) == (flush_l2, ALONE)


LOST = Integrity(("a kernel is missing",))


@pytest.mark.parametrize(
    ("shaped", "sessions_taken", "known"),
    [
        ([("memory", None)], 2, True),
        ([("memory", LOST), ("memory", None)], 3, True),
        ([("memory", LOST)] * 3, 4, False),
        ([("copies", None)] * 3, 4, False),
    ],
    ids=["at once", "incomplete once", "stays incomplete", "other kernels"],
)
@pytest.mark.parametrize("said", [{}, {"throughput": 10**12}], ids=["", "said"])
def test_the_work_of_a_call_is_that_of_a_whole_session_with_its_kernels_or_is_said(
    shaped: list[tuple[str, Integrity | None]],
    sessions_taken: int,
    known: bool,
    said: dict[Rated, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left, asked = iter([("memory", None), *shaped]), []

    def session(*_: object, **options: Any) -> sessions.Taken:
        asked.append(options.get("shapes", False))
        return recorded_session(*next(left))

    monkeypatch.setattr(sessions, "profile_rounds", session)
    run = a_run(Plan("cuda", rounds=1, work=True))
    run.said = said
    metrics = finished(run).profile.metrics
    assert asked == [False, *[True] * (sessions_taken - 1)]
    busy = metrics["gpu_busy"].value or 0.0
    throughput, peak = metrics["throughput"], metrics["peak_throughput"]
    assert (throughput.value is not None) == (known or bool(said))
    assert (metrics["bandwidth"].value is not None) == known
    if said:
        assert throughput.value == pytest.approx(1e18 / busy, rel=0.01)
    elif not known:
        assert "kernel_profile.work(...)" in throughput.why
    assert (peak.value is not None) == known


def undecided_once() -> Callable[[Profile], list[Verdict]]:
    outcomes = iter(["undecided"])

    def judge(profile: Profile) -> list[Verdict]:
        outcome: Any = next(outcomes, "passed")
        return [Verdict(limit="max_cuda_time", metric="cuda_time", outcome=outcome)]

    return judge


@pytest.mark.parametrize(
    ("integrities", "throttled", "batches", "kept", "discarded"),
    [
        ([None, None], [], 2, 0, 0),
        ([None, LOST, None], [], 2, 0, 0),
        ([None, LOST, LOST, LOST], [], 1, 0, 0),
        ([None, None, None], [False, True], 2, 0, 12),
        ([None, None, None, None], [False, True, True, True], 2, 12, 24),
        ([None, None, LOST, LOST, LOST], [False, True], 1, 0, 12),
    ],
    ids=[
        "at once",
        "incomplete once",
        "stays incomplete",
        "throttled once",
        "stays throttled",
        "throttled, then incomplete",
    ],
)
def test_only_the_try_of_a_further_batch_that_stands_joins_the_first(
    integrities: list[Integrity | None],
    throttled: list[bool],
    batches: int,
    kept: int,
    discarded: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken = iter(integrities)

    def session(*_: object, **__: object) -> sessions.Taken:
        return recorded_session("memory", next(taken))

    monkeypatch.setattr(sessions, "profile_rounds", session)
    run = a_run(Plan("cuda", rounds=12, sample_on=True), undecided_once())
    run.watch = FakeWatch(throttled)
    profile = finished(run).profile
    first = len(recorded_session("memory").facts.profile.metrics["cuda_time"].rounds)
    assert len(profile.metrics["cuda_time"].rounds) == first * batches
    assert len(profile.metrics["latency"].rounds) == 0
    assert next(taken, "none left") == "none left"
    assert profile.conditions.kept_throttled_rounds == kept
    assert profile.conditions.discarded_rounds == discarded


@pytest.mark.parametrize(("rest", "known"), [([None], True), ([LOST, LOST, LOST], False)])
def test_two_rounds_of_a_long_call_tell_no_time_where_the_others_stay_incomplete(
    rest: list[Integrity | None], known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = iter([None, *rest])

    def session(_: object, rounds: int, *__: object, **___: object) -> sessions.Taken:
        found = recorded_session("memory", next(taken))
        few = msgspec.structs.replace(found.recording, rounds=2 if rounds == 12 else rounds)
        noted = replace(found.reading.trace, recording=few)
        return found._replace(reading=replace(found.reading, trace=noted))

    monkeypatch.setattr(sessions, "profile_rounds", session)
    profile = finished(a_run(Plan("cuda", rounds=12, sample_on=True))).profile
    assert next(taken, "none left") == "none left"
    time, kernels = profile.metrics["cuda_time"], profile.metrics["kernels"]
    assert (time.value is not None, kernels.value is not None) == (known, True)
    assert time.why == ("" if known else "further rounds stayed incomplete")


def test_the_profile_is_of_the_last_try_and_tells_of_those_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cold = Integrity(cold=("lazy loading",))
    taken = iter([LOST, cold, None])
    monkeypatch.setattr(
        sessions, "profile_rounds", lambda *_, **__: recorded_session("memory", next(taken))
    )
    integrity = finished(a_run(Plan("cuda"))).profile.integrity
    assert integrity.complete
    assert (integrity.retakes, integrity.settled) == (1, True)


def test_the_record_of_each_step_is_what_the_policy_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[Step] = []
    next_step = policy.next_step

    def noting(plan: Plan, history: Sequence[Shown]) -> Step | None:
        step = next_step(plan, history)
        if history:
            told.append(history[-1].step)
        return step

    monkeypatch.setattr(policy, "next_step", noting)
    measure(lambda: None, Plan("cpu", warmup=2))
    assert told[:2] == [WarmUp(0, 2), WarmUp(1, 2)]
    assert len(told) == 3


def test_memory_grows_with_events_alone_and_is_a_small_part_of_torchs_own() -> None:
    """torch keeps some 22 KB of each operator, and frees that before its trace is read."""

    def peak(rounds: int) -> float:
        """Bytes of each operator that is profiled."""
        tracemalloc.start()
        try:
            measure(lambda: [X.add(1) for _ in range(1_000)], Plan("cpu", rounds=rounds))
            return tracemalloc.get_traced_memory()[1] / (rounds * 1_000)
        finally:
            tracemalloc.stop()

    peak(2)  # what is loaded and cached by the first measurement
    few, many = peak(4), peak(8)
    assert many < 1.1 * few
    assert many < 2_000
