"""Records that contradict each other are told; what only looks so is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from built import (
    Event,
    call,
    copy,
    kernel,
    launched,
    marks_of,
    operator,
    profile_of,
    round_of,
)

A_DEVICE = {"deviceProperties": [{"id": 0, "name": "a GPU"}]}


def problems(folder: Path, *events: Event | list[Event], **beside: Any) -> tuple[str, ...]:
    return profile_of(folder, *events, **beside).integrity.problems


def with_args(event: Event, **args: Any) -> Event:
    return {**event, "args": {**event["args"], **args}}


@pytest.mark.parametrize(
    "name", ["cudaGraphLaunch", "hipGraphLaunch", "cudaMemcpyBatchAsync", "cudaMemcpy3DBatchAsync"]
)
def test_a_call_that_may_have_many_activities_is_no_problem(tmp_path: Path, name: str) -> None:
    acts = [copy("Memcpy DtoD", 20, 1), copy("Memcpy DtoD", 30, 1)]
    assert problems(tmp_path, call(name, 10, 1), *acts) == ()


def test_a_node_of_a_graph_that_is_written_twice_is_told(tmp_path: Path) -> None:
    replay = [call("cudaGraphLaunch", 10, 1), kernel("k", 20, 1), kernel("k", 40, 1)]
    assert problems(tmp_path, *replay) == ()
    assert problems(tmp_path, *replay, kernel("k", 20, 1)) == (
        "1 kernels, copies or memsets are in the trace twice (k x1)",
    )


def test_equal_kernels_of_two_streams_are_two(tmp_path: Path) -> None:
    branches = [kernel("k", 20, 1, stream=7), kernel("k", 20, 1, stream=8)]
    assert problems(tmp_path, call("cudaGraphLaunch", 10, 1), *branches) == ()


def test_calls_and_operators_that_are_written_twice_are_told(tmp_path: Path) -> None:
    wait, mm = call("cudaDeviceSynchronize", 50, 2), operator("aten::mm", 5, 20, external_id=9)
    assert problems(tmp_path, launched("k", 10, 1), wait, wait, mm, mm) == (
        "1 calls are in the trace twice (cudaDeviceSynchronize x1)",
        "1 operators are in the trace twice (aten::mm x1)",
    )


def test_a_device_without_calls_is_not_zero_kernels(tmp_path: Path) -> None:
    nothing = operator("aten::mm", 5, 20)
    assert problems(tmp_path, nothing, **A_DEVICE)
    assert problems(tmp_path, nothing, kernel("k", 10, 1))
    assert problems(tmp_path, call("cudaDeviceSynchronize", 50, 2), **A_DEVICE) == ()


@pytest.mark.parametrize(
    ("of_call", "of_kernel", "told"),
    [(5, 5, 0), (5, 6, 1), (5, 1, 0), (1, 6, 0), (0, 6, 0), (5, 0, 0)],
    ids=["same", "another", "kernel has its correlation", "so has the call", "no", "none"],
)
def test_a_kernel_that_names_another_operator_than_its_call_is_told(
    tmp_path: Path, of_call: int, of_kernel: int, told: int
) -> None:
    launch = call("cudaLaunchKernel", 10, 1, external_id=of_call)
    ran = with_args(kernel("k", 20, 1), **{"External id": of_kernel})
    found = problems(tmp_path, launch, ran)
    assert len(found) == told


def test_correlation_ids_go_up_with_time_on_each_thread_of_our_sessions(tmp_path: Path) -> None:
    early = [launched("a", 20, 5), launched("b", 40, 4)]
    assert problems(tmp_path, *early) == ()  # put together from several files, perhaps
    assert problems(tmp_path, round_of(0, 10, 80), *early) == (
        "1 calls are not in the order of their correlation ids (cudaLaunchKernel x1)",
    )
    other_thread = [launched("a", 20, 5), launched("b", 40, 4, tid=2)]
    assert problems(tmp_path, round_of(0, 10, 80), *other_thread) == ()


@pytest.mark.parametrize(("stream", "told"), [(7, 1), (8, 0)], ids=["one stream", "two"])
def test_a_stream_runs_in_order_of_launch(tmp_path: Path, stream: int, told: int) -> None:
    calls = [call("cudaLaunchKernel", 20, 1), call("cudaLaunchKernel", 22, 2)]
    ran = [kernel("late", 60, 1), kernel("early", 40, 2, stream=stream)]
    found = problems(tmp_path, round_of(0, 10, 90), *calls, *ran)
    assert len(found) == told
    assert all("ran before others launched before them (late x1)" in one for one in found)


def test_rounds_do_not_overlap_on_the_device_that_we_wait_for(tmp_path: Path) -> None:
    def session(second: float) -> tuple[str, ...]:
        return problems(
            tmp_path,
            launched("sentinel", 1, 1),
            *(round_of(0, 10, 20), launched("k", 20, 2)),
            *(round_of(1, 50, 20), call("cudaLaunchKernel", 60, 3)),
            kernel("k", second, 3, stream=8),
        )

    assert session(70) == ()
    assert session(30) == (
        "work of a round runs before that of the round before it is done (round 1)",
    )


def test_rounds_are_numbered_from_zero_without_a_gap(tmp_path: Path) -> None:
    rounds = [round_of(number, 10 + 50 * number, 20) for number in range(3)]
    events = [call("cudaDeviceSynchronize", 500, 1)]
    assert problems(tmp_path, *events, *rounds) == ()
    assert problems(tmp_path, *events, *rounds[1:]) == (
        "the rounds in the trace are numbered 1, 2 where they begin and 1, 2 where they end: some "
        "are lost or repeated",
    )
    assert "numbered 0, 1, 1, 2" in problems(tmp_path, *events, *rounds, rounds[1])[0]


@pytest.mark.parametrize(
    ("kept", "told"),
    [
        ((0, 1, 2), "0, 1 where they begin and 0 where they end"),
        ((0, 1, 3), "0 where they begin and 0, 1 where they end"),
        ((0, 2, 3), "0, 1 where they begin and 1 where they end"),
        ((1, 2, 3), "1 where they begin and 0, 1 where they end"),
        ((1, 3), "not at all where they begin and 0, 1 where they end"),
        ((0, 2), "0, 1 where they begin and not at all where they end"),
    ],
)
def test_a_mark_of_a_round_that_is_lost_is_told(
    kept: tuple[int, ...], told: str, tmp_path: Path
) -> None:
    marks = [*marks_of(0, 10, 20), *marks_of(1, 60, 20)]
    events = [call("cudaDeviceSynchronize", 500, 1), *(marks[i] for i in kept)]
    assert told in problems(tmp_path, *events)[0]


def test_launches_are_not_given_where_a_kernel_has_no_call(tmp_path: Path) -> None:
    profile = profile_of(tmp_path, launched("k", 10, 1), kernel("k", 40, 7))
    assert (profile.kernel_count, profile.launches, profile.integrity.complete) == (2, None, True)
    assert "the calls that launched some of the kernels" in profile.metrics["launches"].why


def test_memsets_are_not_given_where_a_call_has_none(tmp_path: Path) -> None:
    profile = profile_of(tmp_path, launched("k", 10, 1), call("cudaMemsetAsync", 40, 2))
    assert (profile.memsets, profile.integrity.complete) == (None, True)
    captured = [call("cudaStreamBeginCapture_v10000", 30, 3), call("cudaStreamEndCapture", 50, 4)]
    whole = profile_of(
        tmp_path, launched("k", 10, 1), *captured, call("cudaMemsetAsync", 40, 2)
    )  # fmt: skip
    assert whole.memsets == 0
