"""The waits of the host for the device: what is one, what is none, and what is one with another."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from built import annotation, call, copy, launched, operator, profile_of, round_of, span
from corpus import Event, edited, recorded


def wait(name: str, ts: float, correlation: int) -> dict[str, Any]:
    return span("cuda_sync", name, ts, 1, 1, correlation=correlation)


def test_each_explicit_synchronisation_is_a_wait(tmp_path: Path) -> None:
    profile = profile_of(
        tmp_path,
        round_of(0, 0, 99),
        call("cudaStreamSynchronize", 10, 1),
        call("cudaEventSynchronize", 20, 2),
        call("cuCtxSynchronize", 30, 3),
        call("hipDeviceSynchronize", 40, 4),
    )
    assert profile.syncs == 4


def test_our_own_wait_before_a_pause_is_none(tmp_path: Path) -> None:
    profile = profile_of(
        tmp_path,
        round_of(0, 0, 99),
        annotation("kernelprof::pause", 10, 10),
        call("cudaDeviceSynchronize", 12, 1),
        call("cudaDeviceSynchronize", 30, 2),
    )
    assert profile.syncs == 1


def test_what_waits_until_the_session_has_gone_on_is_none(tmp_path: Path) -> None:
    profile = profile_of(
        tmp_path,
        round_of(0, 0, 99),
        annotation("kernelprof::pause", 10, 10),
        call("cudaDeviceSynchronize", 12, 1),
        call("cudaDeviceSynchronize", 22, 2),  # torch's, as it switches collection off
        annotation("kernelprof::resume", 40, 1),
        call("cudaDeviceSynchronize", 50, 3),
    )
    assert profile.syncs == 1


def test_the_calls_of_one_operator_are_one_wait(tmp_path: Path) -> None:
    profile = profile_of(
        tmp_path,
        round_of(0, 0, 99),
        operator("aten::nonzero", 10, 50, external_id=4),
        call("cudaStreamSynchronize", 20, 1, external_id=4),
        call("cudaStreamSynchronize", 30, 2, external_id=4),
    )
    assert profile.syncs == 1


@pytest.mark.parametrize(
    "name", ["cudaEventQuery", "cudaStreamQuery", "cudaStreamWaitEvent", "cudaEventRecord"]
)
def test_polling_and_waits_of_the_device_are_no_waits_of_the_host(
    tmp_path: Path, name: str
) -> None:
    profile = profile_of(
        tmp_path, round_of(0, 0, 99), call(name, 10, 1), wait("Stream Wait Event", 10, 1)
    )
    assert profile.syncs == 0


def test_a_blocking_copy_waits_and_an_asynchronous_one_does_not(tmp_path: Path) -> None:
    copies = [copy("Memcpy DtoH (Device -> Pinned)", 20, 1), copy("Memcpy DtoH (x)", 40, 2)]
    blocking = profile_of(
        tmp_path, round_of(0, 0, 99), call("cudaMemcpy", 10, 1),
        call("cudaMemcpyAsync", 30, 2), copies,
    )  # fmt: skip
    assert blocking.syncs == 1


def test_a_copy_to_pageable_memory_waits_without_a_synchronising_call(tmp_path: Path) -> None:
    profile = profile_of(
        tmp_path, round_of(0, 0, 99), call("cudaMemcpyAsync", 10, 1),
        copy("Memcpy DtoH (Device -> Pageable)", 20, 1),
    )  # fmt: skip
    assert profile.syncs == 1


def test_our_own_synchronisations_after_a_round_are_no_waits(tmp_path: Path) -> None:
    profile = profile_of(
        tmp_path, round_of(0, 0, 99), launched("k", 10, 1), call("cudaDeviceSynchronize", 120, 2),
        wait("Context Sync", 121, 2),
    )  # fmt: skip
    assert profile.syncs == 0


def test_a_recorded_wait_whose_call_is_unknown_counts_in_its_round(tmp_path: Path) -> None:
    profile = profile_of(
        tmp_path, round_of(0, 0, 99), launched("k", 10, 1), wait("Stream Sync", 50, 123)
    )
    assert profile.syncs == 1
    assert profile.waits[0].call == "unknown"


def test_polling_an_event_is_no_wait(tmp_path: Path) -> None:
    def only_polling(events: list[Event]) -> list[Event]:
        return [
            e
            for e in events
            if e.get("cat") != "cuda_runtime"
            or not re.search("Synchronize|Memcpy", e["name"])
            or "External id" not in e["args"]
        ]

    calls = [w.call for w in edited(tmp_path, "syncs", only_polling).waits]
    assert "cudaEventQuery" not in calls
    assert "cudaEventSynchronize" in calls


def test_the_profilers_own_last_synchronisation_is_no_wait_of_a_foreign_trace() -> None:
    calls = [wait.call for wait in recorded("memory").waits]
    assert calls == ["cudaDeviceSynchronize"]  # the recorded program's own, just before


def test_a_recorded_wait_whose_call_is_unknown_counts_in_no_round_outside_all(
    tmp_path: Path,
) -> None:
    profile = profile_of(
        tmp_path, round_of(0, 0, 99), launched("k", 10, 1), wait("Stream Sync", 150, 123)
    )
    assert (profile.syncs, profile.waits) == (0, ())
