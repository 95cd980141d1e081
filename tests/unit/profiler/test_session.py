"""Sessions: no nesting, nothing left running, files that go away."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import types
import warnings
from pathlib import Path

import pytest
import torch

from pytest_kernelprof.api import Profile
from pytest_kernelprof.errors import IncompleteProfile, ProfilerUnavailable
from pytest_kernelprof.gpu.inventory import current_device
from pytest_kernelprof.measure.policy import Plan
from pytest_kernelprof.measure.runner import measure, measure_once
from pytest_kernelprof.profiler import torch_profiler
from pytest_kernelprof.profiler.session import Session

X = torch.ones(4)


def running() -> bool:
    return bool(torch.autograd.profiler._is_profiler_enabled)


def test_a_running_profiler_is_refused_with_the_remedy_before_the_code_runs() -> None:
    calls: list[int] = []
    with torch.profiler.profile(), pytest.raises(ProfilerUnavailable, match="cannot nest"):
        measure(lambda: calls.append(1), Plan("cpu"))
    assert calls == []


def test_a_profiler_in_another_thread_is_refused_too() -> None:
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

    with pytest.raises(IncompleteProfile, match="another profiler was started inside"):
        measure(profiles_itself, Plan("cpu"))
    assert measure(lambda: X + 1, Plan("cpu"))[1].profile.kernel_count == 1


@pytest.mark.parametrize("module", ["torch.autograd", "torch._C._autograd"])
def test_recording_that_is_off_for_a_while_is_an_error_that_names_the_remedy(module: str) -> None:
    def hides_one() -> None:
        sys.modules[module]._enable_record_function(False)
        X + 1
        sys.modules[module]._enable_record_function(True)

    with pytest.raises(IncompleteProfile, match="switches the recording of operators"):
        measure(hides_one, Plan("cpu"))
    assert measure(lambda: X + 1, Plan("cpu"))[1].profile.kernel_count == 1


def test_recording_that_stays_off_is_not_told_as_a_profiler() -> None:
    switch = torch.autograd._enable_record_function  # bound before, so nobody sees the call
    try:
        measured = measure(lambda: switch(False), Plan("cpu"))[1].profile
    finally:
        switch(True)
    assert "or switched recording off" in measured.integrity.problems[0]


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


def test_torchs_cupti_monitor_beside_a_profile_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monitor = types.ModuleType("torch.profiler._cupti_monitor")
    collecting: list[object] = [object()]
    monitor.get_monitor = lambda: collecting[0]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, monitor.__name__, monitor)
    with pytest.raises(ProfilerUnavailable, match="cupti_monitor"):
        measure(lambda: X + 1, Plan("cpu"))
    collecting[0] = None
    measure(lambda: X + 1, Plan("cpu"))


def test_a_thread_that_is_older_than_the_block_counts_in_it() -> None:
    begin, done = threading.Event(), threading.Event()

    def computes() -> None:
        begin.wait(10)
        X * 2
        done.set()

    older = threading.Thread(target=computes)
    older.start()
    with measure_once(Plan("cpu")) as found:
        X + 1
        begin.set()
        done.wait(10)
    older.join()
    names = [kernel.name for kernel in found[0].profile.kernels]
    assert sorted(names) == ["aten::add", "aten::mul"]


def test_a_trace_file_lives_as_long_as_somebody_holds_it() -> None:
    session = Session(current_device("cpu"), stacks=False)
    with session, session.round():
        X + 1
    recorded = session.export()
    path = recorded.file.path
    assert os.path.getsize(path) > 0
    del recorded
    assert not os.path.exists(path)


def test_a_session_holds_the_rounds_that_were_run_in_it() -> None:
    _, measurement = measure(lambda: X + 1, Plan("cpu", rounds=3))
    assert measurement.profile.rounds == 3
    assert measurement.profile.metrics["kernels"].rounds == (1, 1, 1)


def test_a_recording_says_how_many_rounds_there_are() -> None:
    session = Session(current_device("cpu"), stacks=False)
    with session:
        for _ in range(3):
            with session.round():
                X + 1
    noted = session.export().recording
    assert (noted.rounds, noted.collection_stopped) == (3, False)


def test_a_gpu_is_refused_with_the_reason_where_there_is_none() -> None:
    from pytest_kernelprof.gpu.inventory import why_no_gpu

    if not why_no_gpu():
        pytest.skip("this machine has a GPU")
    with pytest.raises(ProfilerUnavailable, match="no CUDA device"):
        measure(lambda: None, Plan("cuda"))


def test_a_profiler_that_the_measured_code_leaves_running_is_an_error_and_runs_on() -> None:
    left = torch.profiler.profile()
    with pytest.raises(IncompleteProfile, match="another profiler"), measure_once(Plan("cpu")):
        left.start()
    X + 1
    assert running()
    X * 2
    left.stop()
    assert {"aten::add", "aten::mul"} <= {event.key for event in left.key_averages()}
    assert not running()
    assert measure(lambda: X + 1, Plan("cpu"))[1].profile.kernel_count == 1


def test_profilers_one_after_another_in_the_measured_code_are_an_error() -> None:
    def profiles_twice() -> None:
        for _ in range(2):
            with torch.profiler.profile():
                X + 1

    with pytest.raises(IncompleteProfile, match="another profiler"), measure_once(Plan("cpu")):
        profiles_twice()


def test_the_older_profiler_of_autograd_is_refused_too() -> None:
    with torch.autograd.profiler.profile(), pytest.raises(ProfilerUnavailable):
        measure(lambda: X + 1, Plan("cpu"))


def test_a_running_profiler_is_not_disturbed_by_the_refusal() -> None:
    with torch.profiler.profile() as theirs:
        with pytest.raises(ProfilerUnavailable):
            measure(lambda: None, Plan("cpu"))
        X.exp()
    assert "aten::exp" in {event.name for event in theirs.events()}


def test_the_users_own_profiler_works_after_ours() -> None:
    measure(lambda: X + 1, Plan("cpu"))
    with torch.profiler.profile() as theirs:
        X.exp()
    assert "aten::exp" in {event.name for event in theirs.events()}


def test_a_profile_keeps_its_file_for_saving_and_no_longer(tmp_path: Path) -> None:
    _, measurement = measure(lambda: X + 1, Plan("cpu"))
    path = measurement.file.path
    profile = Profile.of(measurement)
    del measurement
    profile.save_trace(tmp_path / "kept.json")
    assert os.path.exists(path)
    del profile
    assert not os.path.exists(path)


def test_a_forked_child_does_not_remove_the_file_of_its_parent() -> None:
    session = Session(current_device("cpu"), stacks=False)
    with session, session.round():
        X + 1
    file = session.export().file
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forks beside threads
        child = os.fork()
    if child == 0:
        del file
        os._exit(0)
    os.waitpid(child, 0)
    assert os.path.exists(file.path)


def test_an_interrupt_passes_through_and_closes_the_profiler() -> None:
    with pytest.raises(KeyboardInterrupt), measure_once(Plan("cpu")):
        raise KeyboardInterrupt
    assert not running()


def test_many_profiles_in_a_row_leave_no_file_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for _ in range(20):
        measure(lambda: X + 1, Plan("cpu"))
    assert list(tmp_path.iterdir()) == []


FIRST_PROFILE = """
import sys, torch
from pytest_kernelprof.api import profile
print(profile(torch.ones, 3, device="cpu", rounds=2).kernel_count)
print("torch._inductor" in sys.modules, hasattr(torch, "_inductor"))
"""


def test_a_first_profile_does_not_load_torchs_compiler_and_writes_nothing_to_stderr() -> None:
    """The compiler takes seconds. In a process of its own, since others may have loaded it."""
    command = [sys.executable, "-c", FIRST_PROFILE]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "False", "True"]
    assert done.stderr.strip() == ""


class Cupti:
    """A library that answers each call with a number."""

    def __init__(self, subscribes: int, enables: int = 0) -> None:
        self.cuptiSubscribe = lambda *_: subscribes
        self.cuptiActivityEnable = lambda *_: enables
        self.cuptiUnsubscribe = self.cuptiActivityDisable = lambda *_: 0


@pytest.mark.parametrize(
    ("cupti", "refused", "words"),
    [
        (None, False, "CUPTI (libcupti) is not loaded"),
        (Cupti(39), False, "Another CUPTI subscriber"),
        (Cupti(0, 39), False, "Another CUPTI subscriber"),
        (Cupti(35), False, "This user may not profile"),
        (Cupti(0, 35), False, "This user may not profile"),
        (Cupti(0), True, "This user may not profile"),
        (Cupti(7), False, "CUPTI returned 7"),
    ],
)
def test_why_no_kernel_is_seen_is_what_cupti_answers(
    cupti: Cupti | None, refused: bool, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    all_activities = set(torch.profiler.ProfilerActivity.__members__.values())
    monkeypatch.setattr(torch.profiler, "supported_activities", lambda: all_activities)
    files = ["/lib/libc.so"] + ["/lib/libcupti.so.12"] * (cupti is not None)
    monkeypatch.setattr(torch_profiler, "mapped_files", lambda: files)
    monkeypatch.setattr("ctypes.CDLL", lambda path: {"/lib/libcupti.so.12": cupti}[path])
    permissions = types.SimpleNamespace(refused=refused)
    monkeypatch.setattr(torch_profiler, "permissions", lambda: permissions)
    assert words in torch_profiler.why_blind()


def test_a_torch_without_cupti_is_why_no_kernel_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.profiler, "supported_activities", set)
    assert "built without CUPTI" in torch_profiler.why_blind()
