"""The conditions that timed rounds ask for: the GPU alone, and watched."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from pytest_kernelprof.device.telemetry import Watch
from pytest_kernelprof.schema.run import Conditions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_kernelprof.device.inventory import Device

LOCK_TIMEOUT_S = 600.0


@contextlib.contextmanager
def alone(device: Device, lock_timeout_s: float, who: str) -> Iterator[Watch]:
    """Have the GPU alone, as far as others ask for it too, and watch what it is like.

    On the CPU nothing is locked or watched. ``who`` is what others are told who wait.

    Raises:
        GpuBusy: another process held the lock for longer than the time-out.
    """
    if device.kind != "cuda":
        yield unwatched()
        return
    from pytest_kernelprof.device.lock import gpu_lock
    from pytest_kernelprof.device.telemetry import watch

    with gpu_lock(device, lock_timeout_s, who), watch(device) as watched:
        yield watched


def unwatched() -> Watch:
    """For counts, which need neither: it finds nothing."""
    return Watch(None, Conditions())
