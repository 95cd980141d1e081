"""What runs while a session is paused is not recorded; what lies around it is, whole."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from cuda_double import GPU, CudaDouble, other_functions

from pytest_kernelprof.gpu import inventory
from pytest_kernelprof.gpu.inventory import current_device
from pytest_kernelprof.profiler import torch_profiler
from pytest_kernelprof.profiler.autotuning import Pauses
from pytest_kernelprof.records.recording import OwnNames

X = torch.ones(4)
NAMES = OwnNames("0f")


Toggle = Callable[[bool, set[Any]], None]


def toggled_by(monkeypatch: pytest.MonkeyPatch, toggle: Toggle) -> None:
    """Have collection switched by this."""
    functions = other_functions(CudaDouble().functions(), toggle_collection=toggle)
    monkeypatch.setattr(inventory, "_bound", [functions])


class Profiler:
    """torch's, with what was asked of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.toggled: list[tuple[bool, set[str]]] = []
        toggled_by(monkeypatch, self._toggle)

    def _toggle(self, on: bool, activities: set[Any]) -> None:
        self.toggled.append((on, {one.name for one in activities}))


class OfTheCpu:
    """A session's profiler, of which the CPU's part is switched alone."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        toggle = CudaDouble().functions().toggle_collection
        toggled_by(monkeypatch, lambda on, _: toggle(on, {torch.profiler.ProfilerActivity.CPU}))
        self._running = torch_profiler.start("cuda")

    def end(self) -> list[str]:
        """The names of what was recorded."""
        return [event.name() for event in self._running.end().events()]


@pytest.fixture(autouse=True)
def _cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventory, "_bound", [CudaDouble().functions()])


def test_operators_around_a_pause_are_recorded_and_those_in_it_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    running = OfTheCpu(monkeypatch)
    pauses = Pauses(GPU, NAMES)
    X + 1
    for _ in range(2):
        assert pauses.pause()
        X * 2
        assert pauses.resume()
        X - 1
    names = running.end()
    assert [names.count(f"aten::{name}") for name in ("add", "mul", "sub")] == [1, 0, 2]
    assert names.count(NAMES.pause) == names.count(NAMES.resume) == 2


def test_torchs_warnings_of_it_are_not_printed(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    running = OfTheCpu(monkeypatch)
    pauses = Pauses(GPU, NAMES)
    pauses.pause()
    pauses.resume()
    running.end()
    assert "Toggling" not in capfd.readouterr().err


def test_a_thread_of_autograd_pauses_the_device_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Profiler(monkeypatch)
    pauses = Pauses(GPU, NAMES)

    with torch.profiler.profile():
        pauses.pause()
        pauses.resume()
        pauses._thread = -1  # as in another thread that works for this one
        pauses.pause()
        pauses.resume()
    both, alone = {"CPU", "CUDA"}, {"CUDA"}
    assert seen.toggled == [(False, both), (True, both), (False, alone), (True, alone)]


def test_a_thread_that_the_session_does_not_see_does_not_pause_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: list[bool] = []
    Profiler(monkeypatch)
    pauses = Pauses(GPU, NAMES)
    with torch.profiler.profile():
        other = threading.Thread(target=lambda: found.append(pauses.pause()))
        other.start()
        other.join()
    assert found == [False]


def test_neither_the_cpu_nor_a_capture_is_paused(monkeypatch: pytest.MonkeyPatch) -> None:
    with torch.profiler.profile():
        assert not Pauses(current_device("cpu"), NAMES).pause()
        capturing = other_functions(inventory.bind(torch), is_capturing=lambda: True)
        monkeypatch.setattr(inventory, "_bound", [capturing])
        assert not Pauses(GPU, NAMES).pause()


def test_a_profiler_that_has_ended_does_not_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def toggle(on: bool, activities: set[Any]) -> None:
        if on:
            raise RuntimeError("Expected profiler state set")

    toggled_by(monkeypatch, toggle)
    pauses = Pauses(GPU, NAMES)
    with torch.profiler.profile():
        assert pauses.pause()
        assert not pauses.resume()
