"""Rows of the report: plain builtins that survive the way between processes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from corpus import NAMES, recorded

from pytest_kernelprof.analysis.profile import Profile
from pytest_kernelprof.limits.evaluate import judge
from pytest_kernelprof.limits.kinds import parse_keyword
from pytest_kernelprof.measure.runner import Measurement
from pytest_kernelprof.plugin.collect import expected_to_fail, row, severity
from pytest_kernelprof.report.terminal import integrity_line
from pytest_kernelprof.schema.conditions import Conditions, Contender


def taken(profile: Profile, **limits: Any) -> dict[str, Any]:
    verdicts = judge(profile, [parse_keyword(name, value) for name, value in limits.items()])
    return row("tests/test_it.py::test_it", Measurement(profile, 0, True), verdicts)


def incomplete(name: str) -> Profile:
    whole = recorded(name)
    return Profile(replace(whole.trace, recording={**whole.recording, "collection_stopped": True}))


def types_in(value: Any) -> set[type]:
    found = {type(value)}
    if isinstance(value, dict):
        found |= {kind for pair in value.items() for part in pair for kind in types_in(part)}
    elif isinstance(value, list):
        found |= {kind for part in value for kind in types_in(part)}
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_row_holds_builtin_types_alone(name: str) -> None:
    found = taken(recorded(name), max_kernels=0, max_cuda_time="1us")
    assert types_in(found) <= {dict, list, str, int, float, bool, type(None)}


def test_a_row_survives_json() -> None:
    found = taken(recorded("mlp"), max_kernels=1)
    assert json.loads(json.dumps(found)) == found


def test_a_name_with_a_lone_surrogate_becomes_text_that_can_be_sent() -> None:
    found = row("tests/\udcff.py::test_it", Measurement(recorded("mlp"), 0, True), [])
    assert found["test"] == "tests/\\udcff.py::test_it"


@pytest.mark.parametrize(
    ("limits", "verdict"),
    [
        ({}, "no limit"),
        ({"max_kernels": 5}, "pass"),
        ({"max_kernels": 4, "max_syncs": 0}, "fail"),
        ({"max_kernels": 5, "max_latency": "1s"}, "unavailable"),
        ({"max_kernels": 4, "max_latency": "1s"}, "fail"),
    ],
)
def test_the_worst_outcome_is_the_verdict(limits: dict[str, Any], verdict: str) -> None:
    assert taken(recorded("mlp"), **limits)["verdict"] == verdict


@pytest.mark.parametrize(
    ("limits", "verdict"),
    [({}, "incomplete"), ({"max_kernels": 5}, "incomplete"), ({"max_kernels": 4}, "fail")],
)
def test_an_incomplete_profile_never_passes_but_may_fail(
    limits: dict[str, Any], verdict: str
) -> None:
    assert taken(incomplete("mlp"), **limits)["verdict"] == verdict


def test_a_limit_that_does_not_apply_is_no_verdict() -> None:
    profile = recorded("mlp").with_recording({"device_kind": "cpu", "compute_operators": []})
    assert taken(profile, max_syncs=0)["verdict"] == "no limit"


def test_only_failed_rows_of_an_expected_failure_change() -> None:
    rows = [taken(recorded("mlp"), max_kernels=n) for n in (4, 5)]
    assert [one["verdict"] for one in expected_to_fail(rows)] == ["xfail", "pass"]


def test_the_worst_sorts_first() -> None:
    verdicts = ["no limit", "pass", "inconclusive", "incomplete", "fail"]
    assert sorted(verdicts, key=severity) == [
        "fail",
        "incomplete",
        "inconclusive",
        "pass",
        "no limit",
    ]


def test_the_integrity_line_counts_what_cannot_be_trusted_at_once() -> None:
    again = row("t", Measurement(recorded("mlp"), 2, True), [])
    rows = [taken(recorded("mlp")), again, taken(incomplete("mlp")), taken(recorded("cold_add"))]
    assert integrity_line(rows) == "4 profiles, 1 taken again, 1 incomplete, 1 cold"


def test_the_integrity_line_tells_of_contention_and_discarded_rounds() -> None:
    noted = Conditions(blocks=3, contenders=(Contender(7, 60),), discarded_rounds=12).plain()
    profile = recorded("mlp").with_recording({"conditions": noted})
    one = row("a", Measurement(profile, 0, True), [])
    assert one["conditions"]["words"] == (
        "CONTENDED: other processes worked on this GPU (pid 7 up to 60 %)"
    )
    assert integrity_line([one]) == (
        "1 profile, 0 taken again, 0 incomplete, 1 timed while other processes worked on the GPU, "
        "12 rounds discarded, since the GPU throttled"
    )
