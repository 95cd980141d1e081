"""What this process shares while its code runs: the GPUs are a double, the locks are real."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from nvml_double import CPU, GPU

from pytest_kernelprof.gpu import inventory, usage_lock
from pytest_kernelprof.gpu.usage_lock import SharedGpuLock, lock_of


@dataclass
class Cuda:
    """What torch would tell."""

    up: bool = True
    in_use: list[int] = field(default_factory=lambda: [0])
    capturing: bool = False
    broken: bool = False
    synchronized: int = 0

    def is_initialized(self) -> bool:
        return self.up

    def is_capturing(self) -> bool:
        return self.capturing

    def count(self) -> int:
        return 3

    def has_context(self, index: int) -> bool:
        return index in self.in_use

    def exchange_device(self, index: int) -> int:
        return index

    put_back_device = exchange_device

    def synchronize(self) -> None:
        self.synchronized += 1
        if self.broken:
            raise RuntimeError("CUDA error: an illegal memory access")

    def uuid(self, index: int) -> str:
        if self.broken:
            raise RuntimeError("CUDA error: an illegal memory access")
        return f"gpu-{index}"


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cuda:
    made = Cuda()
    monkeypatch.setattr(usage_lock, "TEMPORARY_FOLDER", str(tmp_path))
    monkeypatch.setattr(usage_lock, "_stretches", [])
    monkeypatch.setattr(inventory, "bound_already", lambda: made)
    monkeypatch.setattr(inventory, "gpu_uuid", made.uuid)
    return made


def sits(index: int = 0) -> bool:
    hold = lock_of(f"gpu-{index}")
    assert isinstance(hold, SharedGpuLock)
    return hold.shares


def test_a_test_shares_the_gpus_in_use_until_it_is_through_and_the_device_is_done(
    cuda: Cuda,
) -> None:
    cuda.in_use = [0, 2]
    usage_lock.begin("a test", 1.0)
    assert (sits(0), sits(1), sits(2)) == (True, False, True)
    assert cuda.synchronized == 0
    usage_lock.end()
    assert (sits(0), sits(2)) == (False, False)
    assert cuda.synchronized == 2


def test_without_cuda_nothing_is_held_and_nothing_is_made(cuda: Cuda, tmp_path: Path) -> None:
    cuda.up = False
    usage_lock.begin("a test", 1.0)
    usage_lock.end()
    assert not list(tmp_path.iterdir())
    assert cuda.synchronized == 0


def test_torch_that_nobody_loaded_is_not_asked(
    cuda: Cuda, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(inventory, "bound_already", lambda: None)
    usage_lock.begin("a test", 1.0)
    usage_lock.end()
    assert not list(tmp_path.iterdir())


def test_who_brings_cuda_up_in_a_test_shares_it_from_the_first_measurement_on(cuda: Cuda) -> None:
    cuda.up = False
    usage_lock.begin("a test", 1.0)
    cuda.up = True
    with usage_lock.sharing(GPU, 1.0, "a test"):
        assert sits()
    assert sits()  # until the test is through
    usage_lock.end()
    assert not sits()


def test_a_measurement_without_a_test_shares_for_itself(cuda: Cuda) -> None:
    with usage_lock.sharing(GPU, 1.0, "a script"):
        assert sits()
        with usage_lock.sharing(GPU, 1.0, "a script"):
            pass
        assert sits()
    assert not sits()
    with usage_lock.sharing(CPU, 1.0, "a script"):
        assert not sits()


def test_a_run_inside_of_a_test_leaves_the_test_its_share(cuda: Cuda) -> None:
    usage_lock.begin("outer", 1.0)
    usage_lock.begin("inner", 1.0)
    usage_lock.end()
    assert sits()
    usage_lock.end()
    assert not sits()


def test_a_stop_in_the_debugger_gives_the_share_up_for_a_while(cuda: Cuda) -> None:
    usage_lock.stop()  # outside of a test there is nothing to give up
    usage_lock.go_on()
    usage_lock.begin("a test", 1.0)
    usage_lock.stop()
    assert not sits()
    assert cuda.synchronized == 1
    usage_lock.go_on()
    assert sits()
    usage_lock.end()


@pytest.mark.parametrize("state", ["broken", "capturing"])
def test_a_device_that_cannot_be_waited_for_keeps_no_test_from_ending(
    cuda: Cuda, state: str
) -> None:
    usage_lock.begin("a test", 1.0)
    setattr(cuda, state, True)
    usage_lock.end()
    assert not sits()
    assert cuda.synchronized == (state == "broken")


def test_on_a_broken_cuda_there_is_nothing_to_share(cuda: Cuda) -> None:
    cuda.broken = True
    usage_lock.begin("a test", 1.0)
    usage_lock.end()
    cuda.broken = False
    assert not sits()


def test_without_a_folder_for_locks_tests_run_all_the_same(
    cuda: Cuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage_lock, "TEMPORARY_FOLDER", "")
    usage_lock.begin("a test", 1.0)
    usage_lock.end()
    with usage_lock.sharing(GPU, 1.0, "a script"):
        pass


def test_a_time_limit_that_rings_while_a_test_waits_leaves_nothing_behind(
    cuda: Cuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rings(*_: object) -> None:
        raise TimeoutError("of the test")

    with monkeypatch.context() as patch:
        patch.setattr(SharedGpuLock, "join", rings)
        with pytest.raises(TimeoutError, match="of the test"):
            usage_lock.begin("a test", 1.0)
    assert not usage_lock._stretches


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing is forked here")
def test_a_forked_child_that_ends_the_test_too_leaves_its_parents_share(cuda: Cuda) -> None:
    usage_lock.begin("a test", 30.0)
    hold = lock_of("gpu-0")
    hold.take(1.0, "a test")
    child = os.fork()
    if child == 0:
        try:
            hold.give_back()
            usage_lock.end()
        finally:
            os._exit(len(usage_lock._stretches))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert json.loads(hold.path.with_suffix(".notes").read_text())["who"] == "a test"
    hold.give_back()
    assert sits()
    usage_lock.end()
