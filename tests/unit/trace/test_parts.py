"""One process and one step of a trace, as a loaded trace is judged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from built import Event, annotation, call, kernel, launched, span, written
from corpus import FOLDER, edited, recorded, two_ranks

from pytest_kernelprof.api import Profile
from pytest_kernelprof.errors import TraceError


def step(number: int, ts: float, dur: float = 100) -> Event:
    return annotation(f"ProfilerStep#{number}", ts, dur)


def names(profile: Profile) -> list[str]:
    return [one.name for one in profile.kernels]


def of_two_steps(folder: Path, *more: Event | list[Event]) -> Path:
    return written(
        folder,
        *(step(3, 0), launched("a", 10, 1), launched("b", 20, 2)),
        *(step(4, 100), launched("c", 110, 3)),
        *more,
    )


def test_a_step_has_what_was_launched_in_it(tmp_path: Path) -> None:
    path = of_two_steps(tmp_path)
    assert names(Profile.load(path, step=3)) == ["a", "b"]
    assert names(Profile.load(path, step=4)) == ["c"]


def test_a_kernel_that_runs_late_belongs_to_the_step_that_launched_it(tmp_path: Path) -> None:
    late = [call("cudaLaunchKernel", 90, 9), kernel("late", 150, 9)]
    path = of_two_steps(tmp_path, late)
    assert names(Profile.load(path, step=3)) == ["a", "b", "late"]
    assert names(Profile.load(path, step=4)) == ["c"]


def test_what_other_threads_launch_meanwhile_belongs_to_the_step(tmp_path: Path) -> None:
    path = of_two_steps(tmp_path, launched("backward", 30, 9, tid=2))
    assert names(Profile.load(path, step=3)) == ["a", "b", "backward"]


def test_what_was_launched_before_and_after_the_steps_is_in_none(tmp_path: Path) -> None:
    around = [*launched("before", -50, 8), *launched("after", 250, 9)]
    path = of_two_steps(tmp_path, around)
    assert names(Profile.load(path, step=3)) == ["a", "b"]
    assert names(Profile.load(path, step=4)) == ["c"]


NO_CALL = (
    "1 kernels, copies or memsets have no recorded call, so their step is not known (unknown x1)"
)


def test_a_kernel_whose_call_is_not_recorded_counts_where_it_ran_and_proves_nothing(
    tmp_path: Path,
) -> None:
    path = of_two_steps(tmp_path, kernel("unknown", 130, 77))
    assert names(Profile.load(path, step=3)) == ["a", "b"]
    assert Profile.load(path, step=3).integrity.complete  # "c" ran before it, on the same stream
    assert names(Profile.load(path, step=4)) == ["c", "unknown"]
    assert Profile.load(path, step=4).launches is None
    assert Profile.load(path, step=4).integrity.problems == (NO_CALL,)
    whole = written(tmp_path, step(3, 0), launched("a", 10, 1), kernel("unknown", 130, 77))
    assert Profile.load(whole).integrity.complete


@pytest.mark.parametrize(("at", "stream"), [(105, 7), (130, 8)])
def test_a_kernel_that_runs_late_without_a_call_may_be_of_an_earlier_step(
    tmp_path: Path, at: float, stream: int
) -> None:
    path = of_two_steps(tmp_path, kernel("unknown", at, 77, stream=stream))
    for number in (3, 4):
        assert Profile.load(path, step=number).integrity.problems == (NO_CALL,)


def test_a_launch_that_lost_its_kernel_makes_its_own_step_incomplete(tmp_path: Path) -> None:
    path = of_two_steps(tmp_path, call("cudaLaunchKernel", 120, 9))
    assert Profile.load(path, step=3).integrity.complete
    (problem,) = Profile.load(path, step=4).integrity.problems
    assert problem == "1 launch calls have no kernel in the trace (cudaLaunchKernel x1)"


def test_one_step_needs_no_choice_and_then_the_whole_trace_counts(tmp_path: Path) -> None:
    path = written(tmp_path, launched("before", -50, 8), step(3, 0), launched("a", 10, 9))
    assert names(Profile.load(path)) == ["before", "a"]
    assert names(Profile.load(path, step=3)) == ["a"]


def test_what_is_read_again_is_of_the_step(tmp_path: Path) -> None:
    loaded = Profile.load(of_two_steps(tmp_path), step=4)
    assert [[one.name for one in of_round] for of_round in loaded.kernels_of_rounds()] == [["c"]]
    assert loaded.timeline().name == ("ProfilerStep#4", "cudaLaunchKernel", "c")


@pytest.mark.parametrize(
    ("choice", "told"),
    [
        ({}, "the trace has step 3 with 2 kernels, step 4 with 1 kernel. Choose one "),
        ({"step": 5}, "step=5 is not there: the trace has step 3 with 2 kernels"),
        ({"step": "3"}, "step='3' is not there: "),
        ({"step": True}, "step=True is not there: "),
        ({"step": [3]}, "step=[3] is not there: "),
        ({"process": 1}, "process=1 is not there: the trace has process 0 with 3 kernels"),
    ],
)
def test_a_choice_that_is_missing_or_wrong_lists_what_there_is(
    choice: dict[str, Any], told: str, tmp_path: Path
) -> None:
    path = of_two_steps(tmp_path)
    with pytest.raises(TraceError) as raised:
        Profile.load(path, **choice)
    assert str(raised.value).startswith(f"{path}: {told}")


def test_a_step_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    path = of_two_steps(tmp_path, step(3, 200), launched("d", 210, 9))
    with pytest.raises(TraceError, match="step=3 is there twice: the trace has step"):
        Profile.load(path, step=3)
    assert names(Profile.load(path, step=4)) == ["c"]


def test_of_many_steps_the_first_twenty_are_listed(tmp_path: Path) -> None:
    steps = [
        one for n in range(30) for one in (step(n, 100 * n), *launched("a", 100 * n + 10, n + 1))
    ]
    with pytest.raises(
        TraceError, match=r"step 19 with 1 kernel, and 10 more. Choose one with step=N"
    ):
        Profile.load(written(tmp_path, steps))


def test_of_several_processes_one_has_to_be_chosen(tmp_path: Path) -> None:
    path = two_ranks(tmp_path, "memory", "stack")
    with pytest.raises(
        TraceError, match=r"the trace has process 0 with \d+ kernels, process 1 with"
    ):
        Profile.load(path)
    parts = [names(Profile.load(path, process=number)) for number in (0, 1)]
    assert parts == [names(recorded("memory")), names(recorded("stack"))]


@pytest.mark.parametrize("pid", [1, 9], ids=["one number", "two numbers"])
@pytest.mark.parametrize("ids", [0, 1, 40], ids=["equal ids", "some equal ids", "other ids"])
@pytest.mark.parametrize("process", [None, 0, 1])
def test_processes_that_share_a_device_are_refused(
    tmp_path: Path, pid: int, ids: int, process: int | None
) -> None:
    events = [*launched("a", 10, 1), *launched("b", 20, 2)]
    others = [*launched("c", 11, ids + 1), *launched("d", 21, ids + 2)]
    for one in others[::2]:
        one["pid"] = pid
    events[0]["pid"] = events[2]["pid"] = 1
    path = written(tmp_path, *events, *others)
    if (pid, ids) == (1, 40):  # as one process leaves them
        assert process or names(Profile.load(path, process=process)) == ["a", "c", "b", "d"]
        whole = [span("Trace", f"PyTorch Profiler ({n})", 0, 99) for n in (0, 0)]
        written(tmp_path, *events, *others, *whole)
    with pytest.raises(
        TraceError, match=r"so their kernels cannot be distinguished: load the trace"
    ):
        Profile.load(path, process=process)


def test_a_process_that_shares_one_of_its_devices_is_refused(tmp_path: Path) -> None:
    path = two_ranks(tmp_path, "memory", "stack")
    whole = json.loads(path.read_text())
    moved = next(one for one in whole["traceEvents"][::-1] if one.get("cat") == "kernel")
    moved["pid"] = moved["args"]["device"] = 0
    path.write_text(json.dumps(whole))
    for process in (0, 1):
        with pytest.raises(TraceError, match="several processes launch on one device, so their"):
            Profile.load(path, process=process)


def test_a_call_of_a_driver_inside_that_of_a_runtime_may_have_its_id(tmp_path: Path) -> None:
    inner = span("cuda_driver", "cuLaunchKernel", 10.2, 0.5, correlation=1)
    path = written(tmp_path, *launched("a", 10, 1), inner, *launched("b", 20, 2))
    assert names(Profile.load(path)) == ["a", "b"]
    inner |= {"ts": 12}
    with pytest.raises(TraceError, match="several calls of one process have one correlation id"):
        Profile.load(written(tmp_path, *launched("a", 10, 1), inner, *launched("b", 20, 2)))


def test_events_that_stand_there_twice_are_refused(tmp_path: Path) -> None:
    whole = json.loads(two_ranks(tmp_path, "memory", "stack").read_text())
    whole["traceEvents"] *= 2
    (tmp_path / "twice.json").write_text(json.dumps(whole))
    with pytest.raises(TraceError, match="it holds more recordings than processes"):
        Profile.load(tmp_path / "twice.json", process=0)


def test_the_waits_of_another_process_do_not_count(tmp_path: Path) -> None:
    path = two_ranks(tmp_path, "syncs", "syncs")
    for number in (0, 1):
        profile = Profile.load(path, process=number)
        assert profile.syncs == recorded("syncs").syncs
        assert len(profile.waits) == profile.syncs


def test_steps_inside_a_recording_of_ours_divide_nothing(tmp_path: Path) -> None:
    def with_steps(events: list[Event]) -> list[Event]:
        first = min(one["ts"] for one in events if one.get("cat") == "kernel")
        return [*events, step(0, first), step(1, first + 100)]

    whole = edited(tmp_path, "mlp", with_steps)
    assert Profile.load(tmp_path / "mlp.json").metrics == whole.metrics


@pytest.mark.parametrize("name", ["mlp", "graph", "copies", "empty"])
def test_a_recording_of_ours_is_loaded_as_it_was_measured(name: str) -> None:
    path = FOLDER / f"{name}.json.gz"
    assert Profile.load(path).metrics == Profile.from_trace(path).metrics


@pytest.mark.parametrize(
    ("events", "where"),
    [
        ([*launched("a", 10, 1), step(3, 0), step(4, 100)], "step 4"),
        ([call("cudaDeviceSynchronize", 10, 1)], "the trace"),
        ([annotation("a CPU trace", 0, 10)], "the trace"),
    ],
    ids=["an empty step", "no kernels", "no device"],
)
def test_a_trace_without_kernels_is_refused(
    events: list[Event], where: str, tmp_path: Path
) -> None:
    choice = {"step": 4} if where == "step 4" else {}
    with pytest.raises(TraceError, match=f"no kernels in {where}, so limits would pass on nothing"):
        Profile.load(written(tmp_path, events), **choice)
