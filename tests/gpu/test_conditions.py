"""Clock, other processes and the lock, on a real GPU."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest
import torch

from pytest_kernelprof.gpu.conditions import watch
from pytest_kernelprof.gpu.inventory import Device, current_device
from pytest_kernelprof.gpu.nvml import Gpu, Unknown, gpu_of, gpu_uuids
from pytest_kernelprof.gpu.usage_lock import PARTNER_OF, gpu_lock
from pytest_kernelprof.records.recording import Conditions
from pytest_kernelprof.summary import wording

NEIGHBOUR = """
import sys, time, torch
x = torch.randn(4096, 4096, device="cuda")
x @ x
torch.cuda.synchronize()
print("ready", flush=True)
while {busy}:
    x @ x
    torch.cuda.synchronize()
sys.stdin.read()
"""

Neighbour = Callable[..., "subprocess.Popen[str]"]

pytestmark = pytest.mark.usefixtures("_disturbs_the_gpu")


@pytest.fixture
def device() -> Device:
    found = current_device("cuda")
    torch.zeros(1, device="cuda")
    seen = gpu_of(found)
    if isinstance(seen, Unknown):
        pytest.skip(seen.why)
    return found


@pytest.fixture
def neighbour() -> Iterator[Neighbour]:
    """Start a second process on the GPU, that works or only holds memory."""
    started: list[subprocess.Popen[str]] = []

    def start(*, busy: bool) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", NEIGHBOUR.format(busy=busy)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        time.sleep(1.5)  # its start-up, and NVML's samples of it, lie behind it
        return process

    yield start
    for process in started:
        end(process)


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def work(seconds: float) -> None:
    x = torch.randn(4096, 4096, device="cuda")
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        x @ x
        torch.cuda.synchronize()


def watched(device: Device, *, seconds: float = 0.5) -> Conditions:
    with watch(device) as looking:
        work(seconds)
        looking.block(12)
    return looking.conditions()


def alone(device: Device) -> bool:
    gpu = gpu_of(device)
    return isinstance(gpu, Gpu) and gpu.processes() <= {os.getpid()}


def test_a_sample_is_plausible(device: Device) -> None:
    work(0.2)
    gpu = gpu_of(device)
    assert isinstance(gpu, Gpu)
    assert 50 <= gpu.power_limit_w() <= 2000
    assert 100 <= gpu.sample().sm_clock_mhz <= gpu.sm_clock_mhz_max <= 5000


def test_a_watched_block_knows_its_clock(device: Device) -> None:
    seen = watched(device)
    assert seen.blocks == 1
    assert seen.sm_clock_mhz_low is not None
    assert seen.why_unknown == ""
    assert wording.conditions(seen).startswith("SM clock ")


@pytest.mark.parametrize("seconds", [0.5, 0.001])
def test_a_process_that_loads_the_gpu_is_a_contender(
    device: Device, neighbour: Neighbour, seconds: float
) -> None:
    was_alone = alone(device)  # else NVML may name another that works
    process = neighbour(busy=True)
    work(0.5)  # as the warm-up does
    seen = watched(device, seconds=seconds)
    assert seen.contended, seen
    if was_alone and os.readlink("/proc/self/ns/pid") == "pid:[4026531836]":
        assert process.pid in {contender.pid for contender in seen.contenders}


@pytest.mark.parametrize("seconds", [0.5, 0.001])
def test_a_process_that_only_holds_memory_is_none(
    device: Device, neighbour: Neighbour, seconds: float
) -> None:
    if not alone(device):
        pytest.skip("other processes are on this GPU")
    neighbour(busy=False)
    seen = watched(device, seconds=seconds)
    assert not seen.contended, seen
    assert seen.why_contention_unknown == ""


def test_work_that_has_ended_just_before_is_no_contention(
    device: Device, neighbour: Neighbour
) -> None:
    if not alone(device):
        pytest.skip("other processes are on this GPU")
    end(neighbour(busy=True))
    assert not watched(device).contended


def test_alone_on_the_gpu_watching_takes_no_time(device: Device) -> None:
    if not alone(device) or os.readlink("/proc/self/ns/pid") != "pid:[4026531836]":
        pytest.skip("not certainly alone on this GPU")
    watched(device, seconds=0)
    start = time.monotonic()
    for _ in range(5):
        watched(device, seconds=0)
    assert (time.monotonic() - start) / 5 < 0.1


def test_the_lock_is_by_uuid_whatever_the_index(device: Device) -> None:
    code = """
from pytest_kernelprof.gpu.inventory import current_device
from pytest_kernelprof.gpu.usage_lock import gpu_lock
from pytest_kernelprof.errors import GpuBusy
try:
    with gpu_lock(current_device("cuda"), {patience}):
        print("held")
except GpuBusy as error:
    print(error)
"""
    uuid = f"GPU-{torch.cuda.get_device_properties(device.index).uuid}"
    listed = gpu_uuids()
    assert not listed or uuid in listed

    def second_process(partner_of: str, patience: float) -> str:
        return subprocess.run(
            [sys.executable, "-c", code.format(patience=patience)],
            env={**os.environ, "CUDA_VISIBLE_DEVICES": uuid, PARTNER_OF: partner_of},
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
        ).stdout

    with gpu_lock(device, 60, "the first"):
        said, owner = second_process("", 0.5), os.environ[PARTNER_OF]
    assert f"held by pid {os.getpid()}" in said
    assert "(the first)" in said
    assert second_process(owner, 60) == "held\n"
