"""The conditions that timed rounds ask for: the lock around the watch, and neither on the CPU."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from nvml_double import CPU, GPU, Driver

from pytest_kernelprof.errors import GpuBusy
from pytest_kernelprof.gpu import conditions
from pytest_kernelprof.gpu.conditions import OtherProcesses, Watch, alone, unwatched
from pytest_kernelprof.gpu.inventory import Device
from pytest_kernelprof.gpu.usage_lock import GpuLock, NotFree
from pytest_kernelprof.records.recording import Conditions
from pytest_kernelprof.summary import wording


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Device, float, str]]:
    """What the lock was asked for while it is held; the watch is on in between."""
    asked: list[tuple[Device, float, str]] = []
    watch = conditions.watch

    @contextlib.contextmanager
    def gpu_lock(device: Device, timeout_s: float, who: str) -> Iterator[None]:
        asked.append((device, timeout_s, who))
        yield
        asked.clear()

    @contextlib.contextmanager
    def watch_while_held(
        device: Device, company: OtherProcesses | None, *, at_work: int
    ) -> Iterator[Watch]:
        assert asked, "nobody may be waited for while another process holds the GPU"
        with watch(device, company, at_work=at_work) as watched:
            yield watched
        assert asked, "the last sample is taken before the next process begins"

    monkeypatch.setattr(conditions, "gpu_lock", gpu_lock)
    monkeypatch.setattr(conditions, "watch", watch_while_held)
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


def lock_that_raises(error: GpuBusy, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextlib.contextmanager
    def busy(*_: object) -> Iterator[None]:
        raise error
        yield

    monkeypatch.setattr(conditions, "gpu_lock", busy)


def test_on_a_gpu_that_stays_busy_rounds_are_taken_and_say_who_held_it(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock_that_raises(NotFree("not free: held by another test"), monkeypatch)
    with alone(GPU, 0.1, "") as watched:
        assert watched.block(12)
    seen = watched.conditions()
    assert (seen.blocks, seen.contended, seen.disturbed) == (1, True, True)
    assert wording.doubt(seen) == "CONTENDED: not free: held by another test"


def test_a_lock_that_cannot_be_made_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    lock_that_raises(GpuBusy("cannot be created"), monkeypatch)
    with pytest.raises(GpuBusy, match="cannot be created"), alone(GPU, 0.1, ""):
        pytest.fail("there is no knowing who else is on the GPU")


def test_what_was_lost_at_a_stop_in_the_debugger_is_said(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hold = GpuLock(tmp_path, "a GPU")

    @contextlib.contextmanager
    def held_until_lost(*_: object) -> Iterator[GpuLock]:
        yield hold
        hold.lost = ""

    monkeypatch.setattr(conditions, "gpu_lock", held_until_lost)
    with alone(GPU, 0.1, "") as watched:
        hold.lost = "after a stop it was not free"
        watched.block(12)
    assert watched.conditions().not_alone == "after a stop it was not free"


def test_the_device_is_done_before_its_share_is_given_up(
    driver: Driver, held: list[tuple[Device, float, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[bool] = []
    monkeypatch.setattr(conditions, "finish_work", lambda: done.append(not held))
    with alone(GPU, 1.0, ""):
        pass
    assert done == [True]


def test_counts_are_neither_and_any_number_of_blocks_is_kept() -> None:
    watched = unwatched()
    assert all(watched.block(rounds) for rounds in (1, 2, 3))
    assert watched.conditions() == Conditions()
