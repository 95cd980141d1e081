"""A trace with its joins: what they say of each activity and call, and that they hang together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from built import annotation, call, kernel, launched, operator, reading_of_events, round_of
from corpus import NAMES, reading

from pytest_kernelprof.trace.columns import NO_ID


def test_rounds_activities_calls_and_launches_are_joined(tmp_path: Path) -> None:
    found = reading_of_events(
        tmp_path,
        round_of(0, 0, 50),
        operator("op", 5, 30, external_id=3),
        launched("k", 10, 1, external_id=3),
        call("cudaEventRecord", 20, 2),
        launched("between", 60, 3),
        round_of(1, 100, 50),
        launched("late", 140, 4),
    )
    assert found.rounds == 2
    assert found.round_of_call.tolist() == [0, 0, NO_ID, 1]
    assert found.round_of_activity.tolist() == [0, NO_ID, 1]
    assert found.launches.tolist() == [True, False, True, True]
    assert found.call_of_activity.tolist() == [0, 2, 3]
    names = [found.trace.operators.name[i] for i in found.operator_of_call[:2]]
    assert names == ["op", "op"]


def test_a_trace_without_our_annotations_is_one_round_of_everything(tmp_path: Path) -> None:
    found = reading_of_events(tmp_path, annotation("epoch", 0, 5), launched("k", 100, 1))
    assert (found.rounds, found.layout.annotated) == (1, False)
    assert found.round_of_call.tolist() == found.round_of_activity.tolist() == [0]


def test_a_trace_without_events_can_be_read(tmp_path: Path) -> None:
    found = reading_of_events(tmp_path, {"ph": "M", "name": "process_name"})
    assert found.rounds == 1
    assert len(found.launches) == len(found.round_of_activity) == len(found.round_of_call) == 0


def test_a_kernel_without_a_call_has_its_round_and_no_launch(tmp_path: Path) -> None:
    found = reading_of_events(tmp_path, round_of(0, 0, 50), kernel("k", 70, 9))
    assert found.round_of_activity.tolist() == [0]
    assert found.call_of_activity.tolist() == [NO_ID]


@pytest.mark.parametrize("name", NAMES)
def test_the_joins_of_a_recorded_trace_hang_together(name: str) -> None:
    found = reading(name)
    trace, calls = found.trace, found.call_of_activity
    assert len(found.round_of_activity) == len(trace.activities)
    assert len(found.round_of_call) == len(found.launches) == len(trace.calls)
    linked = calls != NO_ID
    assert np.array_equal(found.round_of_activity[linked], found.round_of_call[calls[linked]])
    assert set(found.round_of_activity.tolist()) <= {NO_ID, *range(found.rounds)}
