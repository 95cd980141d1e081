"""Gives each pytest-xdist worker a GPU of its own, where there are several."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

_VISIBLE = "CUDA_VISIBLE_DEVICES"
_GPU_FOLDERS = Path("/proc/driver/nvidia/gpus")
# Without any of these (the last is WSL's) Linux has no NVIDIA GPU to ask for.
_DRIVER_FILES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg")


_given: list[str | None] = []


def visible_to_all() -> str | None:
    """``CUDA_VISIBLE_DEVICES`` as it was before this worker was given one GPU of its own."""
    return _given[0] if _given else os.environ.get(_VISIBLE)


def spread_workers(config: pytest.Config) -> None:
    """In a worker, set ``CUDA_VISIBLE_DEVICES`` to one GPU: worker gwN takes number N, counted
    round. A user's own ``CUDA_VISIBLE_DEVICES`` is what they are taken from.

    Nothing is changed outside of a worker, with one GPU or none, and where CUDA is already up in
    this process, which then no longer reads the variable.
    """
    worker = _worker_number(config)
    if worker is None or _cuda_is_up():
        return
    given = os.environ.get(_VISIBLE)
    gpus = gpus_of_machine() if given is None else visible(given)
    if len(gpus) > 1:
        _given[:] = [given]
        os.environ[_VISIBLE] = gpus[worker % len(gpus)]


def visible(text: str) -> tuple[str, ...]:
    """The devices that CUDA reads from ``CUDA_VISIBLE_DEVICES``: indices, UUIDs or MIG names, up
    to the first entry that is none of these, each once."""
    gpus: list[str] = []
    for entry in text.split(","):
        name = entry.strip()
        if not re.fullmatch(r"\d+|(GPU|MIG)-\S+", name):
            break
        gpus.append(name)
    return tuple(dict.fromkeys(gpus))


def gpus_of_machine() -> tuple[str, ...]:
    """The UUIDs of the GPUs that this process may use; empty where there are not several, and
    where that cannot be told.

    NVML is asked only where the driver's files leave it open: loading it takes time in each
    worker. It knows what a container may use, and a UUID means the same GPU in whatever order
    CUDA counts them.
    """
    if sys.platform == "darwin":
        return ()
    if sys.platform == "linux":
        if not any(os.path.exists(path) for path in _DRIVER_FILES):
            return ()
        if _GPU_FOLDERS.is_dir() and len(list(_GPU_FOLDERS.iterdir())) < 2:
            return ()
    from pytest_kernelprof.device.nvml import Unknown, gpu_uuids

    gpus = gpu_uuids()
    return () if isinstance(gpus, Unknown) else gpus


def _worker_number(config: pytest.Config) -> int | None:
    """N of the worker gwN. Not by the environment: a worker's own child processes inherit that."""
    name = getattr(config, "workerinput", {}).get("workerid", "")
    found = re.fullmatch(r"gw(\d+)", name)
    return int(found[1]) if found else None


def _cuda_is_up() -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_initialized())
