"""Which GPUs a process gets: one for each pytest-xdist worker, or several for one test."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_kernelprof.errors import GpuBusy
from pytest_kernelprof.system import now_s, sleep

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pytest

    from pytest_kernelprof.gpu.usage_lock import GpuLock


_VISIBLE = "CUDA_VISIBLE_DEVICES"
_GPU_FOLDERS = Path("/proc/driver/nvidia/gpus")
# Without any of these (the last is WSL's) Linux has no NVIDIA GPU to ask for.
_DRIVER_FILES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg")


_given: list[str | None] = []
"""``CUDA_VISIBLE_DEVICES`` as it was before this worker was given one GPU of its own."""


def spread_workers(config: pytest.Config) -> None:
    """In a worker, set ``CUDA_VISIBLE_DEVICES`` to one GPU: worker gwN takes number N, counted
    round. A user's own ``CUDA_VISIBLE_DEVICES`` is what they are taken from.

    Nothing is changed outside of a worker, with one GPU or none, and where CUDA is already up in
    this process, which then no longer reads the variable.
    """
    # Not by the environment: a worker's own child processes inherit that.
    name = getattr(config, "workerinput", {}).get("workerid", "")
    worker, torch = re.fullmatch(r"gw(\d+)", name), sys.modules.get("torch")
    if worker is None or (torch is not None and torch.cuda.is_initialized()):
        return
    given = os.environ.get(_VISIBLE)
    gpus = gpus_of_machine() if given is None else visible(given)
    if len(gpus) > 1:
        _given[:] = [given]
        os.environ[_VISIBLE] = gpus[int(worker[1]) % len(gpus)]


def visible(text: str) -> tuple[str, ...]:
    """The devices that CUDA reads from ``CUDA_VISIBLE_DEVICES``: indices, UUIDs or MIG names, up
    to the first entry that is none of these, each once."""
    names = map(str.strip, text.split(","))
    return tuple(dict.fromkeys(takewhile(re.compile(r"\d+|(GPU|MIG)-\S+").fullmatch, names)))


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
    from pytest_kernelprof.gpu.nvml import gpu_uuids

    return gpu_uuids()


_POLL_S = 0.2
_MOMENT_S = 1.0


@contextlib.contextmanager
def lock_all(
    gpus: Sequence[str], timeout_s: float, who: str, name: str
) -> Iterator[dict[str, GpuLock]]:
    """Have these GPUs alone, by UUID.

    After the first it waits for the others for a moment only, and then begins again: ranks of
    another run may hold one of these and wait for the first. The moment doubles, since a GPU that
    many share becomes free only for a process that waits at its lock.

    Raises:
        NotFree: the time is up, with who holds one of them.
        GpuBusy: they cannot be locked at all.
    """
    from pytest_kernelprof.gpu.usage_lock import NotFree, lock_by_uuid

    deadline, moment_s = now_s() + timeout_s, _MOMENT_S
    while True:
        with contextlib.ExitStack() as held:
            locks: dict[str, GpuLock] = {}
            try:
                for gpu in gpus:
                    left_s = deadline - now_s()
                    patience_s = min(moment_s, left_s) if locks else left_s
                    locks[gpu] = held.enter_context(lock_by_uuid(gpu, patience_s, who, name))
            except NotFree as busy:
                if not locks or now_s() >= deadline:
                    together = f"{len(gpus)} GPUs were not free together in {timeout_s:g} s: "
                    raise NotFree(f"{together if locks else ''}{busy}") from busy
            if len(locks) == len(gpus):
                yield locks
                return
        moment_s *= 2
        sleep(_POLL_S)


@contextlib.contextmanager
def several_gpus(number: int, timeout_s: float, who: str) -> Iterator[tuple[str, ...]]:
    """Have this number of GPUs alone, as soon as so many are free. Yields their UUIDs.

    It holds none while it waits, so that two that want several do not wait for each other.

    Raises:
        GpuBusy: the time is up, or there are not so many.
    """
    if not number:
        yield ()
        return
    from pytest_kernelprof.gpu.usage_lock import NotFree, lock_by_uuid

    gpus = _gpus()
    if len(gpus) < number:
        raise GpuBusy(
            f"{number} ranks need {number} GPUs, and this process may use {len(gpus)} (see "
            "CUDA_VISIBLE_DEVICES): run the test on a machine that has them, or fewer ranks"
        )
    deadline = now_s() + timeout_s
    while True:
        with contextlib.ExitStack() as held:
            taken: list[str] = []
            for gpu in gpus:
                with contextlib.suppress(NotFree):
                    held.enter_context(lock_by_uuid(gpu.partition("-")[2] or gpu, 0.0, who))
                    taken.append(gpu)
                if len(taken) == number:
                    yield tuple(taken)
                    return
        if now_s() >= deadline:
            raise GpuBusy(
                f"{number} of {len(gpus)} GPUs were not free within {timeout_s:g} s: wait for the "
                "tests that use them, or allow more time with -o kernelprof_lock_timeout=SECONDS"
            )
        sleep(_POLL_S)


def _gpus() -> tuple[str, ...]:
    """The GPUs that ``CUDA_VISIBLE_DEVICES`` may name, by UUID."""
    from pytest_kernelprof.gpu.nvml import gpu_uuids

    known, given = gpu_uuids(), _given[0] if _given else os.environ.get(_VISIBLE)
    if given is None:
        return known
    return tuple(
        known[int(one)] if one.isdecimal() and int(one) < len(known) else one
        for one in visible(given)
    )
