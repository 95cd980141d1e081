"""A trace from which something is missing is never called complete."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from built import call, copy, kernel, launched, profile_of, reading_of_events, round_of, span
from built import operator as host_operator
from corpus import NAMES, Event, document, edited, kernels_of_rounds, of, reading, recorded
from msgspec import structs, to_builtins

from pytest_kernelprof.records.codec import VERSION
from pytest_kernelprof.records.recording import GraphNodes, Integrity, Recording
from pytest_kernelprof.trace.correlation import reading_of
from pytest_kernelprof.trace.integrity import check_integrity


@pytest.mark.parametrize("name", NAMES)
def test_recorded_traces_are_complete(name: str) -> None:
    assert recorded(name).integrity.problems == ()


@pytest.mark.parametrize(
    "name", ["linear", "mlp", "decode", "backward", "compiled", "triton", "threads", "two_streams"]
)
def test_every_single_lost_kernel_is_noticed(tmp_path: Path, name: str) -> None:
    lost = kernels_of_rounds(recorded_events(name))
    assert lost
    for victim in lost:
        profile = edited(tmp_path, name, lambda events, victim=victim: without(events, victim))
        assert any("have no kernel" in p for p in profile.integrity.problems)


def recorded_events(name: str) -> list[Event]:
    events: list[Event] = document(name)["traceEvents"]
    return events


def without(events: list[Event], victim: Event) -> list[Event]:
    return [event for event in events if event != victim]


@pytest.mark.parametrize("which", [0, -1])
def test_a_lost_sentinel_makes_the_session_incomplete(tmp_path: Path, which: int) -> None:
    def edit(events: list[Event]) -> list[Event]:
        sentinels = [e for e in of(events, "kernel") if "spin_kernel" in e["name"]]
        sentinels.sort(key=lambda e: e["ts"])
        return without(events, sentinels[which])

    problems = edited(tmp_path, "mlp", edit).integrity.problems
    assert problems == (
        f"the {'first' if which == 0 else 'last'} sentinel kernel of the session was not recorded",
    )


def test_a_lost_copy_is_noticed(tmp_path: Path) -> None:
    profile = edited(
        tmp_path, "copies", lambda events: without(events, of(events, "gpu_memcpy")[0])
    )
    assert any("memcpy calls have no copy" in p for p in profile.integrity.problems)


def test_a_lost_memset_is_not_held_against_a_trace(tmp_path: Path) -> None:
    profile = edited(tmp_path, "mlp", lambda events: without(events, of(events, "gpu_memset")[0]))
    assert profile.integrity.complete


def test_a_lost_kernel_of_a_graph_replay_shows_by_the_other_replays(tmp_path: Path) -> None:
    profile = edited(
        tmp_path, "graph", lambda events: without(events, kernels_of_rounds(events)[0])
    )
    assert any("graph replays have different numbers" in p for p in profile.integrity.problems)


def of_graph(*seen: GraphNodes | None) -> Integrity:
    """Of three rounds with a replay each, of five kernels."""
    whole = reading("graph").trace
    noted = structs.replace(whole.recording, replays=seen)
    return check_integrity(reading_of(replace(whole, recording=noted)))


def test_a_graph_that_nobody_has_looked_at_is_unproven_however_equal_its_replays() -> None:
    assert recorded("graph").integrity.graph_replays == "unproven"
    assert of_graph(GraphNodes(5), GraphNodes(5)).graph_replays == "unproven"
    assert of_graph(*[GraphNodes(5)] * 2, None).graph_replays == "unproven"
    assert of_graph(*[GraphNodes(5)] * 3).graph_replays == "proved"
    assert of_graph(*[GraphNodes(5)] * 3).complete


def test_a_kernel_that_each_replay_lacks_shows_by_the_nodes_of_the_graph() -> None:
    integrity = of_graph(*[GraphNodes(6)] * 3)
    assert integrity.graph_replays == "unproven"
    assert integrity.problems == (
        "3 replays of CUDA graphs have fewer kernels than kernel nodes (5 of 6)",
    )


def test_memset_nodes_may_run_as_kernels() -> None:
    assert of_graph(*[GraphNodes(3, 2)] * 3).graph_replays == "proved"
    assert of_graph(*[GraphNodes(3, 2)] * 3).complete


def test_replays_of_a_graph_with_conditional_nodes_are_incomplete() -> None:
    integrity = of_graph(*[GraphNodes(5, 0, conditional=True)] * 3)
    assert integrity.graph_replays == "unproven"
    assert integrity.problems == (
        "3 replays are of CUDA graphs with conditional nodes, and the profiler records only the "
        "first iteration of their loops",
    )


def replaying(seen: Sequence[GraphNodes | None]) -> dict[str, Any]:
    """What our capture notes beside a trace with these replays."""
    return {"schema": VERSION, "device_kind": "cuda", "replays": to_builtins(seen)}


def one_replay(folder: Path, *seen: GraphNodes | None) -> Integrity:
    """Of one round with one replay of two kernels."""
    return profile_of(
        folder,
        round_of(0, 0, 100),
        call("cudaGraphLaunch", 10, 1),
        *(kernel("a", 20, 1), kernel("b", 40, 1)),
        kernelprof=replaying(seen),
    ).integrity


def test_one_replay_is_proved_by_its_nodes_alone(tmp_path: Path) -> None:
    assert one_replay(tmp_path, GraphNodes(2)).graph_replays == "proved"
    assert one_replay(tmp_path, None).graph_replays == "unproven"
    assert one_replay(tmp_path, GraphNodes(1)).graph_replays == "unproven"  # one too many
    assert one_replay(tmp_path, GraphNodes(1)).complete
    assert not one_replay(tmp_path, GraphNodes(3)).complete


def test_a_graph_of_two_replays_is_unproven(tmp_path: Path) -> None:

    def two_rounds(events: list[Event]) -> list[Event]:
        third = next(e for e in events if e["name"] == "kernelprof::round#2" and e["ph"] == "X")
        last = next(e for e in events if e["name"] == "kernelprof::sentinel#last")
        return [e for e in events if not third["ts"] <= e["ts"] < last["ts"]]

    profile = edited(tmp_path, "graph", two_rounds)
    assert (profile.rounds, profile.integrity.graph_replays) == (2, "unproven")


def test_a_kernel_without_positive_duration_is_a_problem(tmp_path: Path) -> None:
    def edit(events: list[Event]) -> list[Event]:
        kernels_of_rounds(events)[0]["dur"] = 0.0
        return events

    assert any(
        "no positive duration" in p for p in edited(tmp_path, "mlp", edit).integrity.problems
    )


def test_a_kernel_before_its_launch_is_clock_skew_and_no_problem(tmp_path: Path) -> None:
    def edit(events: list[Event]) -> list[Event]:
        for category in ("kernel", "gpu_memset"):
            for event in of(events, category):
                event["ts"] -= 400.0
        return events

    profile = edited(tmp_path, "mlp", edit)
    assert profile.integrity.complete
    assert profile.integrity.clock_skew
    assert profile.kernel_count == 5
    assert profile.gpu_idle is None
    assert "clocks" in profile.metrics["gpu_idle"].why


def test_full_buffers_are_a_problem() -> None:
    whole = reading("mlp").trace
    stopped = structs.replace(whole.recording, collection_stopped=True)
    integrity = check_integrity(reading_of(replace(whole, recording=stopped)))
    assert any("stopped collecting" in p for p in integrity.problems)


@pytest.mark.parametrize(
    ("context", "recorded_call", "complete"),
    [(1, False, True), (2, True, True), (2, False, False)],
    ids=["torch's", "another, by a known call", "another, by an unknown call"],
)
def test_a_kernel_of_another_context_by_an_unknown_call_may_not_be_the_last(
    tmp_path: Path, context: int, recorded_call: bool, complete: bool
) -> None:
    def in_context(number: int, event: dict[str, Any]) -> dict[str, Any]:
        return {**event, "args": {**event["args"], "context": number}}

    profile = profile_of(
        tmp_path,
        *[call("cudaLaunchKernel", 1, 1), in_context(1, kernel("spin", 3, 1, dur=1))],
        round_of(0, 10, 50),
        *([call("cuLaunchKernel", 20, 2)] if recorded_call else []),
        in_context(context, kernel("mine", 25, 2)),
    )
    assert profile.kernel_count == 1
    assert profile.integrity.complete is complete
    if not complete:
        assert "another CUDA context" in profile.integrity.problems[0]


def test_autotuners_that_benched_are_a_sign_of_cold_code(tmp_path: Path) -> None:
    found = reading_of_events(tmp_path, round_of(0, 0, 99))
    noted = Recording(autotuned=("an autotuner",), rounds=1)
    integrity = check_integrity(reading_of(replace(found.trace, recording=noted)))
    assert integrity.cold == ("an autotuner benched",)


def test_launches_during_a_graph_capture_execute_nothing_and_are_not_missed() -> None:
    integrity = recorded("graph_capture_inside").integrity
    assert integrity.complete
    assert integrity.launches == integrity.matched


def test_a_kernel_whose_launch_call_is_not_recorded_counts(tmp_path: Path) -> None:
    def edit(events: list[Event]) -> list[Event]:
        launches = [e for e in events if e.get("cat") == "cuda_driver"]
        return [e for e in events if e not in launches]

    profile = edited(tmp_path, "triton_coop", edit)
    assert profile.kernel_count == 1
    assert profile.kernels[0].launch == "unknown"
    assert profile.integrity.unknown_launches == profile.rounds
    assert profile.launches is None
    assert "calls that launched" in profile.metrics["launches"].why
    assert profile.integrity.complete


def test_work_from_before_the_recording_is_left_out_and_told(tmp_path: Path) -> None:
    def edit(events: list[Event]) -> list[Event]:
        began = min(e["ts"] for e in events if e.get("cat") == "user_annotation")
        early = dict(kernels_of_rounds(events)[0], ts=began - 500.0)
        early["args"] = dict(early["args"], correlation=1)
        return [*events, early]

    profile = edited(tmp_path, "mlp", edit)
    assert profile.kernel_count == 5
    assert profile.integrity.leaked == 1


def test_cold_code_is_known_by_its_lazy_loading() -> None:
    assert recorded("cold_add").integrity.cold == ("Lazy Function Loading",)
    assert recorded("mlp").integrity.cold == ()


@pytest.mark.parametrize("name", ["graph", "graph_twice_a_round", "compiled_graphs"])
def test_every_single_lost_child_of_a_graph_is_noticed(tmp_path: Path, name: str) -> None:
    for victim in kernels_of_rounds(recorded_events(name)):
        profile = edited(tmp_path, name, lambda events, victim=victim: without(events, victim))
        assert not profile.integrity.complete


@pytest.mark.parametrize("name", ["copies", "syncs", "threads"])
def test_every_single_lost_copy_is_noticed(tmp_path: Path, name: str) -> None:
    for victim in of(recorded_events(name), "gpu_memcpy"):
        profile = edited(tmp_path, name, lambda events, victim=victim: without(events, victim))
        assert not profile.integrity.complete


def test_all_kernels_lost_is_not_zero_kernels(tmp_path: Path) -> None:
    profile = edited(
        tmp_path, "mlp", lambda events: [e for e in events if e.get("cat") != "kernel"]
    )
    assert profile.kernel_count == 0
    assert len(profile.integrity.problems) == 3  # launches and both sentinels


def test_a_problem_names_how_many_and_which_calls(tmp_path: Path) -> None:
    profile = profile_of(
        tmp_path, round_of(0, 0, 99), launched("k", 10, 1),
        call("cudaLaunchKernel", 20, 2), call("cudaLaunchKernel", 30, 3),
    )  # fmt: skip
    assert profile.integrity.problems == (
        "2 launch calls have no kernel in the trace (cudaLaunchKernel x2)",
    )
    assert (profile.integrity.matched, profile.integrity.launches) == (1, 3)


@pytest.mark.parametrize(
    "name",
    [
        "cudaLaunchKernel", "cuLaunchKernel", "cuLaunchKernelEx", "cudaLaunchKernelExC",
        "cudaLaunchCooperativeKernel", "cudaGraphLaunch", "cuGraphLaunch", "hipLaunchKernel",
        "hipExtModuleLaunchKernel", "urEnqueueKernelLaunch",
    ],
)  # fmt: skip
def test_a_launch_of_any_name_needs_its_kernel(tmp_path: Path, name: str) -> None:
    assert not profile_of(tmp_path, round_of(0, 0, 99), call(name, 10, 1)).integrity.complete


@pytest.mark.parametrize(
    "name",
    [
        "cudaLaunchHostFunc", "cuLaunchHostFunc", "cudaMemsetAsync", "cudaEventRecord",
        "cudaMalloc", "cudaStreamIsCapturing", "urEnqueueMemFill",
    ],
)  # fmt: skip
def test_calls_that_run_no_kernel_need_none(tmp_path: Path, name: str) -> None:
    assert profile_of(tmp_path, round_of(0, 0, 99), call(name, 10, 1)).integrity.complete


def test_a_launch_outside_the_rounds_is_not_asked_for_its_kernel(tmp_path: Path) -> None:
    profile = profile_of(
        tmp_path, call("cudaLaunchKernel", 0, 1), round_of(0, 50, 99), launched("k", 60, 2)
    )
    assert profile.integrity.complete


@pytest.mark.parametrize(("thread", "complete"), [(1, True), (2, False)])
def test_a_capture_exempts_the_launches_of_its_own_thread_alone(
    tmp_path: Path, thread: int, complete: bool
) -> None:
    profile = profile_of(
        tmp_path,
        round_of(0, 0, 99),
        call("cudaStreamBeginCapture", 10, 1),
        call("cudaLaunchKernel", 20, 2, tid=thread),
        call("cudaStreamEndCapture", 30, 3),
    )
    assert profile.integrity.complete is complete


def test_a_launch_after_the_capture_needs_its_kernel(tmp_path: Path) -> None:
    profile = profile_of(
        tmp_path, round_of(0, 0, 99), call("cudaStreamBeginCapture", 10, 1),
        call("cudaStreamEndCapture", 30, 2), call("cudaLaunchKernel", 40, 3),
    )  # fmt: skip
    assert not profile.integrity.complete


def test_a_graph_of_copies_alone_is_matched(tmp_path: Path) -> None:
    profile = profile_of(
        tmp_path, round_of(0, 0, 99), call("cudaGraphLaunch", 10, 1),
        copy("Memcpy DtoD (Device -> Device)", 20, 1),
    )  # fmt: skip
    assert profile.integrity.complete
    assert profile.launches == 1


def test_different_graphs_are_compared_each_with_itself(tmp_path: Path) -> None:
    assert recorded("compiled_graphs").integrity.complete
    rounds = []
    for i in range(3):
        at = 1000 * (i + 1)
        rounds.append(
            [
                round_of(i, at, 200),
                call("cudaGraphLaunch", at + 10, at + 1),
                kernel("a", at + 20, at + 1),
                call("cudaGraphLaunch", at + 50, at + 2),
                kernel("b", at + 60, at + 2),
                kernel("c", at + 80, at + 2),
            ]
        )
    profile = profile_of(
        tmp_path, *rounds, kernelprof=replaying([GraphNodes(1), GraphNodes(2)] * 3)
    )
    assert profile.integrity.graph_replays == "proved"


def test_a_negative_duration_is_a_problem(tmp_path: Path) -> None:
    profile = profile_of(
        tmp_path, round_of(0, 0, 99), call("cudaLaunchKernel", 10, 1), kernel("k", 20, 1, dur=-5)
    )
    assert profile.integrity.problems == ("1 kernels have no positive duration (k x1)",)


def test_cold_records_outside_the_rounds_are_no_sign_of_cold_code(tmp_path: Path) -> None:
    profile = profile_of(
        tmp_path, span("overhead", "Lazy Function Loading", 0, 5), round_of(0, 50, 99)
    )
    assert profile.integrity.cold == ()


def test_an_annotation_of_a_compilation_is_a_sign_of_cold_code(tmp_path: Path) -> None:
    compiling = span("user_annotation", "compile_fx (dynamo_timed)", 60, 5)
    assert profile_of(tmp_path, round_of(0, 50, 99), compiling).integrity.cold == ("compilation",)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("_compile.compile_inner (dynamo_timed)", "compilation"),
        ("backward._backward_impl (dynamo_timed)", "compilation of a backward"),
        ("CUDAGraphNode.record (dynamo_timed)", "recording of a CUDA graph"),
        ("CachingAutotuner.benchmark_all_configs (dynamo_timed)", "autotuning"),
        ("CachingAutotuner.coordinate_descent_tuning (dynamo_timed)", "autotuning"),
    ],
)
def test_what_the_compiler_does_at_run_time_is_named(tmp_path: Path, name: str, words: str) -> None:
    profile = profile_of(tmp_path, round_of(0, 50, 99), host_operator(name, 60, 5))
    assert profile.integrity.cold == (words,)


def test_counts_that_differ_between_complete_rounds_are_unstable_and_not_incomplete(
    tmp_path: Path,
) -> None:
    profile = profile_of(
        tmp_path, round_of(0, 0, 100), launched("a", 10, 1), launched("b", 20, 2),
        round_of(1, 200, 100), launched("a", 210, 3),
    )  # fmt: skip
    assert profile.integrity.complete
    assert not profile.metrics["kernels"].stable
    assert profile.kernel_count == 2


def test_a_copy_during_a_graph_capture_executes_nothing_and_is_not_missed(tmp_path: Path) -> None:
    profile = profile_of(
        tmp_path,
        round_of(0, 0, 100),
        call("cudaStreamBeginCapture", 10, 1),
        call("cudaMemcpyAsync", 20, 2),
        call("cudaStreamEndCapture", 30, 3),
        launched("k", 40, 4),
    )
    assert profile.integrity.complete


def test_a_copy_that_a_kernel_carries_out_is_not_missed(tmp_path: Path) -> None:
    profile = profile_of(
        tmp_path, round_of(0, 0, 100), call("cudaMemcpyAsync", 10, 1), kernel("copy_kernel", 15, 1)
    )
    assert profile.integrity.complete


@pytest.mark.parametrize(("noted", "complete"), [(1, False), (2, True), (3, False)])
def test_as_many_rounds_as_were_annotated_must_be_there_no_more_and_no_fewer(
    tmp_path: Path, noted: int, complete: bool
) -> None:
    events = [round_of(0, 0, 50), round_of(1, 60, 50), *launched("k", 10, 1)]
    trace = replace(reading_of_events(tmp_path, *events).trace, recording=Recording(rounds=noted))
    assert check_integrity(reading_of(trace)).complete is complete


def test_replays_that_differ_are_noticed_though_their_sums_are_equal(tmp_path: Path) -> None:
    """Two graphs a round, of one and two kernels; one round lost one of the one and got another."""
    correlation = iter(range(1, 100))

    def replay(ts: float, nodes: int) -> list[Event]:
        one = next(correlation)
        return [
            call("cudaGraphLaunch", ts, one),
            *(kernel(f"node{i}", ts + 5 + i, one) for i in range(nodes)),
        ]

    shapes = [(1, 2), (1, 2), (2, 1)]
    events: list[Event | list[Event]] = []
    for number, (first, second) in enumerate(shapes):
        at = 200.0 * number
        events += [
            round_of(number, at, 190),
            replay(at + 10, first),
            replay(at + 100, second),
        ]
    problems = profile_of(tmp_path, *events).integrity.problems
    assert any("graph replays have different numbers" in problem for problem in problems)


def test_two_replays_of_one_round_prove_nothing(tmp_path: Path) -> None:
    events: list[Event | list[Event]] = [round_of(0, 0, 300)]
    events += [
        [call("cudaGraphLaunch", at, i), kernel("node", at + 5, i)] for i, at in ((1, 10), (2, 100))
    ]
    assert profile_of(tmp_path, *events).integrity.graph_replays == "unproven"


def test_a_call_of_unknown_name_that_has_a_kernel_is_a_launch(tmp_path: Path) -> None:
    profile = profile_of(
        tmp_path, round_of(0, 0, 100), call("someVendorsCall", 10, 1), kernel("k", 15, 1)
    )
    assert (profile.integrity.launches, profile.integrity.matched) == (1, 1)


def test_a_capture_without_an_end_exempts_no_launch(tmp_path: Path) -> None:
    profile = profile_of(
        tmp_path, round_of(0, 0, 99), call("cudaStreamBeginCapture", 10, 1),
        call("cudaLaunchKernel", 40, 2),
    )  # fmt: skip
    assert not profile.integrity.complete
