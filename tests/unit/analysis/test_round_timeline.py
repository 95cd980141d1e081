"""One round event by event: every kernel with its call, on the stream that it ran on."""

from __future__ import annotations

from collections import Counter

import pytest
from corpus import NAMES, reading, record

from pytest_kernelprof.analysis import round_events
from pytest_kernelprof.analysis.round_events import timeline_of_round
from pytest_kernelprof.analysis.session_profile import session_facts
from pytest_kernelprof.records.profile import Timeline


def timeline(name: str) -> Timeline:
    found = reading(name)
    return timeline_of_round(found, session_facts(found).fullest)


def lengths(one: Timeline, *, of_device: bool) -> list[float]:
    device = ("kernel", "memcpy", "memset")
    pairs = zip(one.kind, one.duration_us, strict=True)
    return [us for kind, us in pairs if (kind in device) == of_device]


@pytest.mark.parametrize("name", NAMES)
def test_it_has_the_kernels_copies_and_memsets_of_the_profile(name: str) -> None:
    found, profile = Counter(timeline(name).kind), record(name)
    if profile.environment.kind == "cpu":
        assert not found["kernel"]
        return
    assert found["kernel"] == profile.kernel_count
    assert found["memcpy"] == (profile.metrics["memcpys"].value or 0)
    assert found["memset"] == (profile.metrics["memsets"].value or 0)


@pytest.mark.parametrize("name", NAMES)
def test_columns_have_one_length_and_are_in_order_of_time(name: str) -> None:
    found = timeline(name)
    columns = (found.kind, found.name, found.lane, found.duration_us, found.correlation)
    assert {len(one) for one in columns} == {len(found.start_us)}
    assert list(found.start_us) == sorted(found.start_us)
    assert set(found.start_us[:1]) <= {0}
    assert found.left_out == 0


def test_a_kernel_has_its_calls_correlation_and_its_stream() -> None:
    found = timeline("mlp")
    by_kind = {
        kind: {found.correlation[i] for i, one in enumerate(found.kind) if one == kind}
        for kind in ("call", "kernel")
    }
    assert by_kind["kernel"] <= by_kind["call"]
    assert 0 not in by_kind["kernel"]
    lanes = {lane for kind, lane in zip(found.kind, found.lane, strict=True) if kind == "kernel"}
    assert lanes == {"device 0 stream 7"}


def test_of_very_many_events_the_longest_are_kept_and_it_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = timeline("backward")
    monkeypatch.setattr(round_events, "MOST_EVENTS", 10)
    short = timeline("backward")
    assert short.left_out == len(whole.name) - len(short.name)
    assert list(short.start_us) == sorted(short.start_us)
    for of_device in (False, True):  # each side has its own room: the host's events are longer
        longest = sorted(lengths(whole, of_device=of_device))[-10:]
        assert sorted(lengths(short, of_device=of_device)) == longest


def test_our_own_marks_of_rounds_are_not_in_it() -> None:
    assert not any("kernelprof" in name for one in NAMES for name in timeline(one).name)
