"""Which GPU a worker gets, and when nothing is changed."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pytest_kernelprof.gpu import allocation as spread
from pytest_kernelprof.gpu import nvml
from pytest_kernelprof.gpu.allocation import gpus_of_machine, spread_workers, visible


def worker(name: str) -> Any:
    return SimpleNamespace(workerinput={"workerid": name})


def given_to(config: Any, variable: str | None, monkeypatch: pytest.MonkeyPatch) -> str | None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable or "")  # so that it is restored
    if variable is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    spread_workers(config)
    return os.environ.get("CUDA_VISIBLE_DEVICES")


@pytest.fixture(autouse=True)
def cuda_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where other tests have brought it up."""
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)


@pytest.mark.parametrize(
    ("variable", "number", "gpu"),
    [
        ("0,1", 0, "0"),
        ("0,1", 1, "1"),
        ("0,1", 2, "0"),
        ("2, 5 ,7", 4, "5"),
        ("GPU-a1,GPU-b2", 3, "GPU-b2"),
        ("MIG-a1,MIG-b2", 0, "MIG-a1"),
        ("MIG-GPU-a1/1/0,MIG-GPU-a1/2/0", 1, "MIG-GPU-a1/2/0"),
        ("0,1,-1,2", 2, "0"),  # CUDA stops reading at what is no device
        ("3", 1, "3"),
        ("3,3", 1, "3,3"),
        ("", 1, ""),
        ("-1", 1, "-1"),
        ("NoDevFiles", 1, "NoDevFiles"),
        (" , ", 0, " , "),
    ],
)
def test_workers_take_the_users_gpus_in_turn(
    monkeypatch: pytest.MonkeyPatch, variable: str, number: int, gpu: str
) -> None:
    assert given_to(worker(f"gw{number}"), variable, monkeypatch) == gpu


def test_workers_take_the_machines_gpus_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spread, "gpus_of_machine", lambda: ("GPU-a", "GPU-b", "GPU-c"))
    given = [given_to(worker(f"gw{n}"), None, monkeypatch) for n in range(5)]
    assert given == ["GPU-a", "GPU-b", "GPU-c", "GPU-a", "GPU-b"]


@pytest.mark.parametrize("gpus", [(), ("GPU-a",)])
def test_with_one_gpu_or_none_nothing_changes(
    monkeypatch: pytest.MonkeyPatch, gpus: tuple[str, ...]
) -> None:
    monkeypatch.setattr(spread, "gpus_of_machine", lambda: gpus)
    assert given_to(worker("gw1"), None, monkeypatch) is None


@pytest.mark.parametrize("config", [SimpleNamespace(), worker("remote"), worker("")])
def test_outside_of_a_worker_nothing_changes(monkeypatch: pytest.MonkeyPatch, config: Any) -> None:
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw1")  # inherited from a worker
    assert given_to(config, "0,1", monkeypatch) == "0,1"


def test_where_cuda_is_up_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    assert given_to(worker("gw1"), "0,1", monkeypatch) == "0,1"


def test_an_entry_that_is_no_device_ends_the_list() -> None:
    assert visible("0,GPU-x,oops,1") == ("0", "GPU-x")


def driver_files(monkeypatch: pytest.MonkeyPatch, here: Path, gpus: int | None) -> None:
    """A driver's files with so many GPUs; None leaves its list of GPUs out."""
    (here / "nvidiactl").touch()
    monkeypatch.setattr(spread, "_DRIVER_FILES", (str(here / "nvidiactl"),))
    monkeypatch.setattr(spread, "_GPU_FOLDERS", here / "gpus")
    for n in range(gpus or 0):
        (here / "gpus" / f"0000:0{n}:00.0").mkdir(parents=True)


@pytest.mark.parametrize("gpus", [2, 8, None])
def test_nvml_says_which_gpus_there_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, gpus: int | None
) -> None:
    driver_files(monkeypatch, tmp_path, gpus)
    monkeypatch.setattr(nvml, "gpu_uuids", lambda: ("GPU-a", "GPU-b"))
    assert gpus_of_machine() == ("GPU-a", "GPU-b")


def test_nvml_is_not_loaded_for_one_gpu_or_without_a_driver(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(nvml, "gpu_uuids", lambda: pytest.fail("NVML was asked"))
    driver_files(monkeypatch, tmp_path, 1)
    assert gpus_of_machine() == ()
    monkeypatch.setattr(spread, "_DRIVER_FILES", (str(tmp_path / "missing"),))
    assert gpus_of_machine() == ()


def test_where_nvml_cannot_tell_workers_are_left_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    driver_files(monkeypatch, tmp_path, 2)
    monkeypatch.setattr(nvml, "gpu_uuids", lambda: ())
    assert gpus_of_machine() == ()
