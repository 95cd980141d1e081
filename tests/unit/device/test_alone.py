"""The conditions that timed rounds ask for: the lock around the watch, and neither on the CPU."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from nvml_double import CPU, GPU, Driver

from pytest_kernelprof.device import lock, telemetry
from pytest_kernelprof.device.conditions import alone, unwatched
from pytest_kernelprof.device.inventory import Device
from pytest_kernelprof.device.telemetry import Watch
from pytest_kernelprof.errors import GpuBusy
from pytest_kernelprof.schema.run import Conditions


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Device, float, str]]:
    """What the lock was asked for while it is held; the watch is on in between."""
    asked: list[tuple[Device, float, str]] = []
    watch = telemetry.watch

    @contextlib.contextmanager
    def gpu_lock(device: Device, timeout_s: float, who: str) -> Iterator[None]:
        asked.append((device, timeout_s, who))
        yield
        asked.clear()

    @contextlib.contextmanager
    def watch_while_held(device: Device) -> Iterator[Watch]:
        assert asked, "nobody may be waited for while another process holds the GPU"
        with watch(device) as watched:
            yield watched
        assert asked, "the last sample is taken before the next process begins"

    monkeypatch.setattr(lock, "gpu_lock", gpu_lock)
    monkeypatch.setattr(telemetry, "watch", watch_while_held)
    return asked


def test_a_gpu_is_locked_and_watched(driver: Driver, held: list[tuple[Device, float, str]]) -> None:
    with alone(GPU, 12.5, "test_it") as watched:
        assert held == [(GPU, 12.5, "test_it")]
        driver.reasons = 0x40
        assert not watched.block(12)
    assert held == []
    assert watched.conditions().discarded_rounds == 12


def test_the_cpu_is_neither(held: list[tuple[Device, float, str]]) -> None:
    with alone(CPU, 12.5, "test_it") as watched:
        assert held == []
        assert watched.block(12)
    assert watched.conditions() == Conditions()


def test_a_gpu_that_stays_busy_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextlib.contextmanager
    def busy(*_: object) -> Iterator[None]:
        raise GpuBusy("held by another test")
        yield

    monkeypatch.setattr(lock, "gpu_lock", busy)
    with pytest.raises(GpuBusy, match="held by another test"), alone(GPU, 0.1, ""):
        pytest.fail("it has no GPU to run on")


def test_counts_are_neither_and_any_number_of_blocks_is_kept() -> None:
    watched = unwatched()
    assert all(watched.block(rounds) for rounds in (1, 2, 3))
    assert watched.conditions() == Conditions()
