"""Devices, and what is said where there is none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from pytest_kernelprof import ProfilerUnavailable
from pytest_kernelprof.gpu import inventory
from pytest_kernelprof.gpu.inventory import (
    current_device,
    devices_in_use,
    gpu_uuid,
    has_no_device,
    load_torch,
    why_no_gpu,
)


def printed(code: str, python: str = sys.executable) -> tuple[str, str]:
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip(), done.stderr.strip()


def test_the_cpu_is_named_with_its_versions() -> None:
    device = current_device("cpu")
    assert device.name.startswith("CPU (")
    assert device.versions["torch"] == torch.__version__


def test_asking_for_devices_in_use_brings_none_up() -> None:
    before = torch.cuda.is_initialized()
    devices_in_use()
    assert torch.cuda.is_initialized() is before


@pytest.mark.skipif(torch.version.cuda is not None, reason="this torch is built with CUDA")
def test_a_torch_without_cuda_is_named_as_the_cause() -> None:
    assert why_no_gpu() == f"no CUDA device: torch {torch.__version__} is built without CUDA"


def test_a_device_that_cuda_cannot_start_is_no_missing_device(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(inventory, "_DEVICE_NODES", f"{tmp_path}/nvidia[0-9]*")
    assert why_no_gpu() == "no CUDA device: torch sees none"
    assert has_no_device()
    (tmp_path / "nvidia0").touch()
    assert why_no_gpu().startswith(f"CUDA cannot be used: {tmp_path}/nvidia0 is there, but torch")
    assert not has_no_device()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert why_no_gpu() == "no CUDA device: CUDA_VISIBLE_DEVICES='' leaves none visible to torch"


def test_a_missing_torch_is_an_error_that_names_the_remedy() -> None:
    out, _ = printed(
        "import sys; sys.modules['torch'] = None\n"
        "from pytest_kernelprof import ProfilerUnavailable, profile\n"
        "try: profile(print, device='cpu')\n"
        "except ProfilerUnavailable as error: print(error)"
    )
    assert out.startswith("torch cannot be imported")
    assert "install torch" in out


@pytest.mark.parametrize(
    "version", ["2.8.0", "2.8.0+cu128", "2.8.0a0+34c6371d24.nv25.08", "2.8.1.dev20250630", "1.13.1"]
)
def test_a_torch_that_is_too_old_is_an_error_that_names_both_versions(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "__version__", version)
    with pytest.raises(ProfilerUnavailable) as caught:
        load_torch()
    assert str(caught.value) == (
        f"torch {version} is too old: pytest-kernelprof needs torch 2.9 or later. Install one "
        "(pip install 'torch>=2.9'), or where torch belongs to a container, take a newer image"
    )


@pytest.mark.parametrize(
    "version",
    [
        "2.9.0",
        "2.9.0a0+nv25.9",
        "2.9.0.dev20250801+cu129",
        "2.11.0+cu130",
        "2.13.0+cpu",
        "2.14.0rc1",
        "3.0.0a0+git1234567",
        "10.0",
        "main",
        "",
    ],
)
def test_vendors_builds_nightlies_and_unknown_versions_are_taken(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "__version__", version)
    assert load_torch() is torch


def test_a_log_level_that_the_user_chose_is_kept(python: str) -> None:
    out, _ = printed(
        "import os; os.environ['KINETO_LOG_LEVEL'] = '3'\n"
        "from pytest_kernelprof.gpu.inventory import load_torch; load_torch()\n"
        "print(os.environ['KINETO_LOG_LEVEL'])",
        python,
    )
    assert out == "3"


def test_a_gpu_is_asked_for_its_uuid_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def properties(index: int) -> SimpleNamespace:
        asked.append(index)
        return SimpleNamespace(uuid=f"uuid of {index}")

    monkeypatch.setattr(torch.cuda, "get_device_properties", properties)
    monkeypatch.setattr(inventory, "_made", [])  # the double is not put aside as a test's patch
    gpu_uuid.cache_clear()
    found = [gpu_uuid(index) for index in (0, 1, 0, 1)]
    gpu_uuid.cache_clear()
    assert found == ["uuid of 0", "uuid of 1"] * 2
    assert asked == [0, 1]


def test_whether_onednn_computes_is_part_of_what_a_cpu_is_and_can_be_switched() -> None:
    is_there = torch.backends.mkldnn.is_available()
    for enabled in (True, False):
        with torch.backends.mkldnn.flags(enabled=enabled):
            found = current_device("cpu").versions["mkldnn"]
        assert found == ("on" if enabled and is_there else "off")
