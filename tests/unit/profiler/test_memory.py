"""Memory of calls that are not profiled, by the allocator's history; it is a double here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_kernelprof.gpu.inventory import Device, current_device
from pytest_kernelprof.profiler import unprofiled_rounds
from pytest_kernelprof.profiler.unprofiled_rounds import RepeatedCall, watch_memory
from pytest_kernelprof.records.recording import MemoryUse

CPU = current_device("cpu")
GPU = Device("cuda", 0, "a GPU", "sm_90", 0, {})


def event(action: str, size: int) -> dict[str, Any]:
    return {"action": action, "size": size}


def alloc(size: int) -> dict[str, Any]:
    return event("alloc", size)


def free(size: int) -> dict[str, Any]:
    return event("free_completed", size)


@dataclass
class Allocator:
    """Torch's caching allocator, on one or two devices: a call appends to ``events``."""

    backend: str = "native"
    recorded_by_the_user: bool = False
    events: list[dict[str, Any]] = field(default_factory=list)
    elsewhere: list[dict[str, Any]] = field(default_factory=list)
    allocations: int = 7
    frees: int = 3
    recording: bool = False

    def record(self, enabled: str | None, **_: Any) -> None:
        self.recording = enabled is not None
        if self.recording:
            self.events.clear()
            self.elsewhere.clear()

    def torch(self) -> Any:
        return SimpleNamespace(
            _C=SimpleNamespace(_cuda_isHistoryEnabled=lambda: self.recorded_by_the_user),
            cuda=SimpleNamespace(
                get_allocator_backend=lambda: self.backend,
                memory_stats=lambda _: {
                    "num_device_alloc": self.allocations,
                    "num_device_free": self.frees,
                },
                memory=SimpleNamespace(
                    _record_memory_history=self.record,
                    _snapshot=lambda: {"device_traces": [self.events, self.elsewhere]},
                ),
            ),
        )


@pytest.fixture
def allocator(monkeypatch: pytest.MonkeyPatch) -> Allocator:
    made = Allocator()
    monkeypatch.setattr(unprofiled_rounds, "load_torch", made.torch)
    monkeypatch.setattr(unprofiled_rounds, "synchronize", lambda device: None)
    monkeypatch.setattr(unprofiled_rounds, "devices_in_use", lambda: [0])
    return made


def watched(call: Callable[[], object], rounds: int = 1) -> MemoryUse | None:
    return watch_memory(RepeatedCall(GPU, lambda: call), rounds)


@pytest.mark.parametrize(
    ("events", "peak"),
    [
        ([], 0),
        ([alloc(100)], 100),
        ([alloc(100), alloc(50), free(100), alloc(20)], 150),
        ([alloc(100), free(100), alloc(80)], 100),
        ([free(1000), alloc(100)], 0),  # what was there before went: never above the start
        ([alloc(10), event("free_requested", 10), alloc(10)], 20),  # not free before it completes
        ([alloc(10), event("segment_alloc", 1 << 21), free(10)], 10),
    ],
)
def test_the_peak_is_of_requested_bytes_above_the_start(
    allocator: Allocator, events: list[dict[str, Any]], peak: int
) -> None:
    assert watched(lambda: allocator.events.extend(events)) == MemoryUse((peak,), (0,))


def test_of_several_devices_the_largest_peak_counts(allocator: Allocator) -> None:
    def call() -> None:
        allocator.events.append(alloc(5))
        allocator.elsewhere.append(alloc(70))

    assert watched(call) == MemoryUse((70,), (0,))


def test_each_round_begins_anew_and_counts_allocations_of_the_device(allocator: Allocator) -> None:
    sizes = iter([10, 30])

    def call() -> None:
        allocator.events.append(alloc(next(sizes)))
        allocator.allocations += 2
        allocator.frees += 1

    assert watched(call, rounds=2) == MemoryUse((10, 30), (3, 3))


def test_making_arguments_is_not_watched(allocator: Allocator) -> None:
    while_recording: list[bool] = []

    def prepare() -> Callable[[], object]:
        while_recording.append(allocator.recording)
        allocator.events.append(alloc(1 << 30))
        return lambda: while_recording.append(allocator.recording)

    assert watch_memory(RepeatedCall(GPU, prepare), 2) == MemoryUse((0, 0), (0, 0))
    assert while_recording == [False, True] * 2


def test_a_history_that_overflowed_tells_no_peak(
    allocator: Allocator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unprofiled_rounds, "_MAX_HISTORY", 3)
    assert watched(lambda: allocator.events.extend([alloc(1)] * 3)) is None
    assert not allocator.recording


def test_an_error_of_the_call_ends_the_recording(allocator: Allocator) -> None:
    def fails() -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        watched(fails)
    assert not allocator.recording


@pytest.mark.parametrize(
    "given", [{"backend": "cudaMallocAsync"}, {"recorded_by_the_user": True}], ids=str
)
def test_without_a_history_of_ours_nothing_is_run(
    allocator: Allocator, given: dict[str, Any]
) -> None:
    for name, value in given.items():
        setattr(allocator, name, value)
    calls: list[int] = []
    assert watched(lambda: calls.append(1)) is None
    assert calls == []


def test_the_cpu_has_no_memory_to_watch() -> None:
    calls: list[int] = []
    assert watch_memory(RepeatedCall(CPU, lambda: lambda: calls.append(1)), 2) is None
    assert calls == []
