"""Sessions: no nesting, nothing left running, files that go away."""

from __future__ import annotations

import os

import pytest
import torch

from pytest_kernelprof.capture.devices import current_device
from pytest_kernelprof.capture.session import Session
from pytest_kernelprof.errors import IncompleteProfile, ProfilerUnavailable
from pytest_kernelprof.measure import Plan, measure, measure_once

X = torch.ones(4)


def running() -> bool:
    return bool(torch.autograd.profiler._is_profiler_enabled)


def test_a_running_profiler_is_refused_with_the_remedy_before_the_code_runs() -> None:
    calls: list[int] = []
    with torch.profiler.profile(), pytest.raises(ProfilerUnavailable, match="cannot nest"):
        measure(lambda: calls.append(1), Plan("cpu"))
    assert calls == []


def test_a_profiler_in_another_thread_is_refused_too() -> None:
    import threading

    go, done = threading.Event(), threading.Event()

    def profiles() -> None:
        with torch.profiler.profile():
            go.set()
            done.wait(10)

    other = threading.Thread(target=profiles)
    other.start()
    go.wait(10)
    try:
        with pytest.raises(ProfilerUnavailable, match="already running"):
            measure(lambda: X + 1, Plan("cpu"))
    finally:
        done.set()
        other.join()


def test_a_profiler_inside_the_measured_code_is_an_error_and_the_next_profile_is_sound() -> None:
    def profiles_itself() -> None:
        with torch.profiler.profile():
            X + 1

    with pytest.raises(IncompleteProfile, match="another profiler was started and stopped"):
        measure(profiles_itself, Plan("cpu"))
    assert measure(lambda: X + 1, Plan("cpu"))[1].profile.kernel_count == 1


@pytest.mark.parametrize("failing_call", [1, 2, 3])
def test_an_exception_passes_through_and_no_profiler_stays_behind(failing_call: int) -> None:
    calls: list[int] = []

    def fails() -> None:
        calls.append(1)
        if len(calls) == failing_call:
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        measure(fails, Plan("cpu"))
    assert not running()


def test_an_exception_in_a_region_passes_through() -> None:
    with pytest.raises(KeyError, match="mine"), measure_once(Plan("cpu")):
        raise KeyError("mine")
    assert not running()


def test_the_recorded_file_lives_as_long_as_its_recording() -> None:
    session = Session(current_device("cpu"), stacks=False)
    with session, session.round():
        X + 1
    recording = session.recording()
    path = recording.path
    assert os.path.getsize(path) > 0
    del recording
    assert not os.path.exists(path)


def test_a_session_holds_the_rounds_that_were_run_in_it() -> None:
    _, measurement = measure(lambda: X + 1, Plan("cpu", rounds=3))
    assert measurement.profile.rounds == 3
    assert measurement.profile.metrics["kernels"].rounds == (1, 1, 1)


def test_a_gpu_is_refused_with_the_reason_where_there_is_none() -> None:
    from pytest_kernelprof.capture.devices import why_no_gpu

    if not why_no_gpu():
        pytest.skip("this machine has a GPU")
    with pytest.raises(ProfilerUnavailable, match="no GPU"):
        measure(lambda: None, Plan("cuda"))
