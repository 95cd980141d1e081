"""The device's work in order: of each round by itself, also where rounds overlap on the device."""

from __future__ import annotations

from pathlib import Path

import pytest
from built import call, kernel, reading_of_events, round_of
from corpus import NAMES, reading

from pytest_kernelprof.analysis.metric_values import timeline_of
from pytest_kernelprof.trace.columns import NO_ID


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_timeline_is_each_rounds_own(name: str) -> None:
    found = reading(name)
    acts, line = found.trace.activities, timeline_of(found)
    assert len(line.rows) == int((found.round_of_activity != NO_ID).sum())
    for number in range(found.rounds):
        begin, end = line.first[number], line.first[number + 1]
        rows = line.rows[begin:end].tolist()
        assert line.number[begin:end].tolist() == [number] * len(rows)
        assert rows == sorted(rows, key=lambda row: acts.start[row])
        ends = [int(acts.end[row]) for row in rows]
        reached = [max(ends[: i + 1]) for i in range(len(ends))]
        assert line.reached[begin:end].tolist() == reached


def test_a_round_that_runs_on_reaches_no_further_than_itself(tmp_path: Path) -> None:
    found = reading_of_events(
        tmp_path,
        round_of(0, 0, 10),
        [call("cudaLaunchKernel", 1, 1), kernel("long", 5, 1, dur=100)],
        round_of(1, 20, 10),
        [call("cudaLaunchKernel", 21, 2), kernel("short", 25, 2, dur=5, stream=8)],
        round_of(2, 40, 10),
    )
    line = timeline_of(found)
    assert line.first.tolist() == [0, 1, 2, 2]
    assert line.reached.tolist() == [105_000, 30_000]
