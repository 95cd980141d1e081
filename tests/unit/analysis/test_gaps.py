"""Gaps between activities: their sums on recorded traces, their classes on traces made by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from built import Event, call, kernel, profile_of, reading_of_events, round_of
from corpus import NAMES, reading, recorded

from pytest_kernelprof.analysis.metric_values import gaps_of, timeline_of
from pytest_kernelprof.records.profile import Gaps, RoundGaps
from pytest_kernelprof.trace.correlation import Reading


def gaps(found: Reading) -> Gaps:
    return gaps_of(found, timeline_of(found))


@pytest.mark.parametrize("name", NAMES)
def test_the_classes_of_a_recorded_trace_sum_up_to_its_idle_time(name: str) -> None:
    profile = recorded(name)
    found = profile.gaps
    if profile.integrity.clock_skew:
        assert found.rounds == ()
        assert "clocks" in found.why
        return
    sums = [one.host_wait + one.kernel_wait + one.other for one in found.rounds]
    assert sums == pytest.approx(list(profile.metrics["gpu_idle"].rounds))
    assert all(min(one.host_wait, one.kernel_wait, one.other) >= 0 for one in found.rounds)


def test_small_kernels_of_a_recorded_call_wait_for_the_host() -> None:
    for one in gaps(reading("decode")).rounds:
        assert one.host_wait > 100
        assert one.kernel_wait + one.other < 1


def test_kernels_of_a_recorded_graph_wait_for_each_other() -> None:
    for one in gaps(reading("graph")).rounds:
        assert 3 < one.kernel_wait < 12


def launch(ts: float, correlation: int, dur: float = 2) -> Event:
    return call("cudaLaunchKernel", ts, correlation, dur=dur)


def rounds(folder: Path, *events: Event) -> tuple[RoundGaps, ...]:
    return gaps(reading_of_events(folder, round_of(0, 0, 1000), *events)).rounds


def test_a_launch_after_the_previous_end_is_a_wait_for_the_host(tmp_path: Path) -> None:
    events = [launch(1, 1), kernel("a", 10, 1), launch(30, 2), kernel("b", 35, 2)]
    assert rounds(tmp_path, *events) == (RoundGaps(15, 0, 0),)


def test_a_launch_that_still_runs_at_the_previous_end_is_one_too(tmp_path: Path) -> None:
    events = [launch(1, 1), kernel("a", 10, 1), launch(18, 2, dur=5), kernel("b", 26, 2)]
    assert rounds(tmp_path, *events) == (RoundGaps(6, 0, 0),)


def test_queued_work_that_begins_soon_waits_for_the_kernel_before(tmp_path: Path) -> None:
    events = [launch(1, 1), kernel("a", 10, 1), launch(5, 2), kernel("b", 21, 2)]
    assert rounds(tmp_path, *events) == (RoundGaps(0, 1, 0),)


def test_queued_work_that_begins_late_waits_for_something_else(tmp_path: Path) -> None:
    events = [launch(1, 1), kernel("a", 10, 1), launch(5, 2), kernel("b", 50, 2)]
    assert rounds(tmp_path, *events) == (RoundGaps(0, 0, 30),)


def test_work_of_unknown_launch_is_other(tmp_path: Path) -> None:
    events = [launch(1, 1), kernel("a", 10, 1), kernel("b", 22, 99)]
    assert rounds(tmp_path, *events) == (RoundGaps(0, 0, 2),)


def test_overlapping_streams_leave_no_gap(tmp_path: Path) -> None:
    events = [
        launch(1, 1),
        kernel("a", 10, 1, dur=40),
        launch(4, 2),
        kernel("b", 12, 2, dur=5, stream=8),
        launch(7, 3),
        kernel("c", 45, 3, dur=20, stream=8),
    ]
    assert rounds(tmp_path, *events) == (RoundGaps(0, 0, 0),)


def test_gaps_between_rounds_are_none_of_theirs(tmp_path: Path) -> None:
    session = reading_of_events(
        tmp_path,
        round_of(0, 0, 5),
        launch(1, 1),
        kernel("a", 10, 1),
        round_of(1, 100, 5),
        launch(101, 2),
        kernel("b", 110, 2),
    )
    assert gaps(session).rounds == (RoundGaps(0, 0, 0), RoundGaps(0, 0, 0))


def test_a_round_without_activities_has_no_gap(tmp_path: Path) -> None:
    assert rounds(tmp_path) == (RoundGaps(0, 0, 0),)


def test_with_skewed_clocks_nothing_is_claimed(tmp_path: Path) -> None:
    events = [launch(20, 1), kernel("a", 10, 1)]
    found = profile_of(tmp_path, round_of(0, 0, 100), *events).gaps
    assert found == Gaps((), "not available: the clocks of host and device disagree in this trace")
