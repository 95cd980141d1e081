"""A trace from which something is missing is never called complete."""

from __future__ import annotations

from pathlib import Path

import pytest
from corpus import NAMES, Event, edited, kernels_of_rounds, of, recorded


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
    from corpus import document

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


def test_a_graph_of_two_replays_is_unproven_and_of_three_proved(tmp_path: Path) -> None:
    assert recorded("graph").integrity.graph_replays == "proved"

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
        for event in of(events, "kernel"):
            event["ts"] -= 400.0
        return events

    profile = edited(tmp_path, "mlp", edit)
    assert profile.integrity.complete
    assert profile.integrity.clock_skew
    assert profile.kernel_count == 5
    assert profile.gpu_idle is None
    assert "clocks" in profile.metrics["gpu_idle"].why


def test_full_buffers_are_a_problem(tmp_path: Path) -> None:
    from dataclasses import replace

    from pytest_kernelprof.profiles import Profile

    whole = recorded("mlp")
    stopped = {**whole.recording, "collection_stopped": True}
    profile = Profile(replace(whole.trace, recording=stopped))
    assert any("stopped collecting" in p for p in profile.integrity.problems)


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
    assert profile.integrity.complete


def test_work_from_before_the_recording_is_left_out_and_told(tmp_path: Path) -> None:
    def edit(events: list[Event]) -> list[Event]:
        began = min(e["ts"] for e in events if e.get("cat") == "user_annotation")
        early = dict(kernels_of_rounds(events)[0], ts=began - 500.0)
        early["args"] = dict(early["args"], correlation=999_999_999)
        return [*events, early]

    profile = edited(tmp_path, "mlp", edit)
    assert profile.kernel_count == 5
    assert profile.integrity.leaked == 1


def test_cold_code_is_known_by_its_lazy_loading() -> None:
    assert recorded("cold_add").integrity.cold == ("Lazy Function Loading",)
    assert recorded("mlp").integrity.cold == ()
