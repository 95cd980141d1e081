"""Times of calls that are not profiled."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
import torch

from pytest_kernelprof.gpu.inventory import current_device
from pytest_kernelprof.profiler import unprofiled_rounds
from pytest_kernelprof.profiler.unprofiled_rounds import RepeatedCall, time_calls
from pytest_kernelprof.records.recording import HostTimings

CPU = current_device("cpu")


def nothing() -> None:
    """A call that does nothing."""


def timings(call: object = nothing, rounds: int = 9) -> HostTimings:
    return time_calls(RepeatedCall(CPU, lambda: call), rounds, fresh_arguments=False)  # type: ignore[arg-type,return-value]


def test_each_round_gives_one_value_of_each_time() -> None:
    found = timings(rounds=9)
    assert len(found.latency_us) == len(found.dispatch_us) == len(found.floor_us) == 9


def test_the_latency_holds_the_call() -> None:
    found = timings(lambda: time.sleep(0.002), rounds=3)
    assert min(found.latency_us) >= 2000


def test_the_call_returns_before_the_device_is_done_or_then() -> None:
    found = timings(lambda: torch.ones(64, 64) @ torch.ones(64, 64))
    pairs = zip(found.dispatch_us, found.latency_us, strict=True)
    assert all(dispatch <= latency for dispatch, latency in pairs)


def test_making_arguments_and_flushing_lie_outside_the_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(unprofiled_rounds, "flush_l2", lambda device: time.sleep(0.005))

    def prepare() -> object:
        time.sleep(0.005)
        return nothing

    found = time_calls(RepeatedCall(CPU, prepare, flush_l2=True), 3, fresh_arguments=True)  # type: ignore[arg-type]
    assert min(found.latency_us) < 5000


def test_arguments_are_made_for_each_round() -> None:
    made: list[int] = []

    def prepare() -> object:
        made.append(1)
        return nothing

    time_calls(RepeatedCall(CPU, prepare), 5, fresh_arguments=True)  # type: ignore[arg-type]
    assert len(made) == 5


def test_an_exception_of_the_call_passes_through() -> None:
    def fails() -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        timings(fails)


def test_calls_in_a_row_are_timed_on_a_device_only() -> None:
    assert timings().back_to_back_us is None


def test_on_a_gpu_the_calls_in_a_row_are_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unprofiled_rounds, "synchronize", lambda device: None)
    gpu, calls = replace(CPU, kind="cuda"), list[int]()
    repeated = RepeatedCall(gpu, lambda: lambda: calls.append(1))
    assert time_calls(repeated, 3, fresh_arguments=True).back_to_back_us is None
    assert len(calls) == 3
    found = time_calls(repeated, 3, fresh_arguments=False).back_to_back_us
    assert found is not None
    assert len(calls) > 2 * 3 + 1
