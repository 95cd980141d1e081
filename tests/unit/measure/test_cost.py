"""What a profile asks of the machine, counted: sessions, and questions to the driver."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace

import msgspec
import pytest
import torch
from corpus import FOLDER, reading
from cuda_double import GPU, CudaDouble
from nvml_double import Driver, forget, installed

from pytest_kernelprof.analysis.session_profile import session_facts
from pytest_kernelprof.distributed import agreement
from pytest_kernelprof.gpu import inventory, usage_lock
from pytest_kernelprof.measure import sessions
from pytest_kernelprof.measure.policy import Needs, plan_of
from pytest_kernelprof.measure.runner import measure
from pytest_kernelprof.profiler import torch_profiler
from pytest_kernelprof.profiler.trace_folder import Folder, TraceFile
from pytest_kernelprof.records.recording import Integrity

X = torch.ones(4)
COUNTS = Needs()
DEVICE_TIMES = Needs(device_times=True)
ALL_TIMES = Needs(device_times=True, host_times=True)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    """A GPU on which each session is a sound one that was recorded."""
    made = installed(monkeypatch)
    monkeypatch.setattr(agreement, "gpu_lock", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(usage_lock, "_share", lambda *_: None)
    monkeypatch.setattr(inventory, "current_device", lambda kind: GPU)
    monkeypatch.setattr(inventory, "_bound", [CudaDouble().functions()])
    monkeypatch.setattr(torch_profiler, "prime", lambda device: torch_profiler.Primed())
    monkeypatch.setattr(sessions, "profile_rounds", recorded)
    forget()
    yield made
    forget()


def recorded(*_: object, **__: object) -> sessions.Taken:
    """The session of the call that was recorded, as it is."""
    found = reading("mlp")
    facts = session_facts(found)
    facts = replace(facts, profile=msgspec.structs.replace(facts.profile, integrity=Integrity()))
    file = TraceFile(Folder(str(FOLDER), maker=0), "none.json")
    recording = msgspec.structs.replace(found.trace.recording, recompiles=0, more_rounds={})
    noted = replace(found, trace=replace(found.trace, recording=recording))
    return sessions.Taken(file, noted, facts)


def asked(driver: Driver, needs: Needs) -> list[str]:
    """What the driver is asked in the second of two profiles."""
    for _ in range(2):
        driver.asked.clear()
        measure(lambda: None, plan_of("cuda", needs))
    return driver.asked


def test_a_profile_that_counts_asks_the_driver_nothing(driver: Driver) -> None:
    assert asked(driver, COUNTS) == []


@pytest.mark.parametrize(("needs", "blocks"), [(DEVICE_TIMES, 1), (ALL_TIMES, 2)])
def test_a_timed_profile_asks_the_driver_once_a_block_for_what_takes_long(
    driver: Driver, needs: Needs, blocks: int
) -> None:
    questions = asked(driver, needs)
    slow = ("FieldValues", "ProcessUtilization", "MaxClockInfo", "HandleByUUID", "UUID")
    assert [questions.count(one) for one in slow] == [blocks, blocks, 0, 0, 0]
    assert questions.count("ComputeRunningProcesses") == 2
    assert questions.count("ClockInfo") == questions.count("CurrentClocksEventReasons") == blocks


@pytest.mark.parametrize("needs", [COUNTS, DEVICE_TIMES, ALL_TIMES])
def test_code_that_is_warm_and_whole_takes_one_session(
    needs: Needs, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []
    start = torch_profiler.start

    def counted(kind: inventory.DeviceKind, **options: bool) -> torch_profiler.Running:
        started.append(kind)
        return start(kind, **options)

    monkeypatch.setattr(torch_profiler, "start", counted)
    _, measurement = measure(lambda: X + 1, plan_of("cpu", needs))
    assert measurement.profile.kernel_count == 1
    assert started == ["cpu"]
