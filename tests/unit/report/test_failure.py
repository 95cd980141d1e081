"""The message of a failed limit, on profiles of a real GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from corpus import recorded

from pytest_kernelprof.analysis.profile import Lines, Profile
from pytest_kernelprof.limits.evaluate import judge
from pytest_kernelprof.limits.kinds import parse_keyword
from pytest_kernelprof.report.failure import failure_message, footing, integrity_words


def message(profile: Profile, **limits: Any) -> list[str]:
    verdicts = judge(profile, [parse_keyword(name, value) for name, value in limits.items()])
    return failure_message(profile, verdicts).splitlines()


def test_verdicts_come_first_then_kernels_then_where_and_how_complete() -> None:
    places: Lines = {("kernel", i): "src/mlp.py:31" for i in range(5)}
    lines = message(recorded("mlp").with_lines(places), max_kernels=1, max_launches=4)
    assert lines[0] == "max_kernels: 5 kernels launched, limit 1"
    assert lines[1] == "max_launches: 5 launch calls, limit 4"
    assert lines[2].split() == ["#", "kernel", "launched", "by", "line", "cuda", "time"]
    assert all("mlp.py:31" in line for line in lines[3:8])
    place = "NVIDIA H200, torch 2.11.0+cu130, triton 3.6.0"
    assert lines[8] == f"  {place}; complete: 10/10 launches matched in 2 rounds"
    assert len(lines) == 9


def test_a_kept_limit_is_not_told() -> None:
    lines = message(recorded("mlp"), max_kernels=1, max_syncs=0)
    assert not any("max_syncs" in line for line in lines)


def test_copies_are_shown_where_copies_are_the_violation() -> None:
    text = "\n".join(message(recorded("copies"), max_memcpys=0))
    assert "no kernels were launched" in text
    assert "Memcpy DtoH (Device -> Pageable)" in text


def test_waits_are_shown_where_waits_are_the_violation() -> None:
    lines = message(recorded("syncs"), max_syncs=0)
    assert any("waits in" in line for line in lines)
    assert any("aten::_local_scalar_dense" in line for line in lines)


@pytest.mark.parametrize("name", ["mlp", "backward", "copies", "syncs", "compiled"])
def test_tables_fit_a_hundred_columns(name: str) -> None:
    lines = message(recorded(name), max_kernels=0, max_memcpys=0, max_syncs=0)
    assert max(len(line) for line in lines[:-1]) <= 100


def test_a_profile_of_several_is_named() -> None:
    profile = recorded("mlp")
    profile.label = "profile 2"
    assert message(profile, max_kernels=1)[0] == "in profile 2:"


def test_a_violated_limit_of_an_incomplete_profile_says_so() -> None:
    whole = recorded("mlp")
    stopped = {**whole.recording, "collection_stopped": True}
    profile = Profile(replace(whole.trace, recording=stopped))
    assert "INCOMPLETE: the profiler stopped collecting" in message(profile, max_kernels=1)[-1]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("linear", "complete: 2/2 launches matched in 2 rounds"),
        ("stack", "complete: 5/5 launches matched"),
        ("graph", "graph replay proved"),
        ("cold_add", "COLD (Lazy Function Loading)"),
    ],
)
def test_completeness_is_told_in_words(name: str, words: str) -> None:
    assert words in integrity_words(recorded(name))


def test_what_bounds_the_call_is_told_where_it_was_measured() -> None:
    timings = {
        "latency_us": [300.0] * 12,
        "dispatch_us": [200.0] * 12,
        "floor_us": [5.0] * 12,
        "back_to_back_us": 10_000.0,
    }
    profile = recorded("mlp").with_recording({"host_timings": timings})
    assert "overhead-bound: yes (10.00ms a call in a row" in footing(profile)
    assert "overhead-bound" not in footing(recorded("mlp"))
