"""Calls of compiled functions for which nothing that was compiled fitted."""

from __future__ import annotations

from pathlib import Path

import pytest
from built import Event, operator, profile_of, reading_of_events, round_of

from pytest_kernelprof.trace.correlation import missed_lookups
from pytest_kernelprof.trace.vocabulary import REGION_BEGINS


def lookup(ts: float, tid: int = 1) -> Event:
    return operator("TorchDynamo Cache Lookup", ts, 2, tid)


def region(ts: float, tid: int = 1) -> Event:
    return operator("Torch-Compiled Region: 0/0", ts, 5, tid)


@pytest.mark.parametrize(
    ("events", "missed"),
    [
        ([], 0),
        ([lookup(10), region(13)], 0),
        ([lookup(10), region(13), lookup(20), region(23)], 0),
        ([lookup(10), operator("aten::mul", 13, 2)], 1),
        ([lookup(10)], 1),
        ([lookup(10), lookup(20), region(23)], 1),
        ([lookup(10), operator("inside", 11, 1), region(13)], 0),  # a guard that computes
        # What the compiler itself calls in a new region; see torch 2.11.
        ([region(10), lookup(11), lookup(14), operator(REGION_BEGINS, 16, 1)], 0),
        ([lookup(5), region(10), lookup(14), operator(REGION_BEGINS, 16, 1), lookup(20)], 1),
        ([lookup(10, 1), lookup(11, 2), region(13, 1), region(14, 2)], 0),
        ([lookup(10, 1), region(13, 2)], 1),
        ([lookup(60), operator("aten::mul", 63, 2)], 0),  # outside of the rounds
    ],
)
def test_a_lookup_that_finds_something_runs_it_next(
    tmp_path: Path, events: list[Event], missed: int
) -> None:
    assert missed_lookups(reading_of_events(tmp_path, round_of(0, 0, 50), events)) == missed


@pytest.mark.parametrize(
    ("noted", "expected", "gave_up"),
    [
        ({"recompiles": 0}, 0, False),  # never refused: what misses was not meant to be compiled
        ({"recompiles": 0, "may_refuse": True}, 2, True),
        ({"recompiles": 1, "may_refuse": True}, 2, True),
        ({"recompiles": 2, "may_refuse": True}, 2, False),  # what missed was compiled
        ({"recompiles": 5, "may_refuse": True}, 5, False),
        ({"recompiles": 0, "may_refuse": True, "refused": 3}, 3, True),
        ({"recompiles": 0, "refused": 1}, 1, True),
    ],
)
def test_calls_that_would_be_compiled_are_recompilations(
    tmp_path: Path, noted: dict[str, object], expected: int, gave_up: bool
) -> None:
    beside = {"schema": 1, "device_kind": "cpu", "compute_operators": [], **noted}
    events = [round_of(0, 0, 50), lookup(10), operator("a", 13, 2), lookup(20)]
    metric = profile_of(tmp_path, *events, kernelprof=beside).metrics["recompiles"]
    assert metric.value == expected
    assert ("gave up" in metric.why) == gave_up


def test_what_the_compiler_cannot_be_asked_is_not_zero(tmp_path: Path) -> None:
    beside = {"schema": 1, "device_kind": "cpu", "compute_operators": []}
    metric = profile_of(tmp_path, round_of(0, 0, 50), kernelprof=beside).metrics["recompiles"]
    assert metric.value is None
    assert metric.why.startswith("not available")
