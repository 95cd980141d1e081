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
def alone(device: Device, lock_timeout_s: float, who: str, *, at_work: int = 1) -> Iterator[Watch]:
    """Have the GPU alone, as far as others ask for it too, and watch what it is like.

    Where others hold it for longer than the time-out, the rounds are taken beside them, and the
    conditions say so. On the CPU nothing is locked or watched. ``who`` is what others are told who
    wait.

    Raises:
        GpuBusy: there can be no lock.
    """
    if device.kind != "cuda":
        yield unwatched()
        return
    from pytest_kernelprof.device.lock import gpu_lock
    from pytest_kernelprof.device.presence import finish_work
    from pytest_kernelprof.device.telemetry import watch
    from pytest_kernelprof.device.whole_lock import NotFree

    finish_work()
    with contextlib.ExitStack() as held:
        lock, why = None, ""
        try:
            lock = held.enter_context(gpu_lock(device, lock_timeout_s, who))
        except NotFree as busy:
            why = str(busy)
        watched = held.enter_context(watch(device, lock, at_work=at_work))
        yield watched
        watched.was_not_alone(why or (lock.lost if lock else ""))


def unwatched() -> Watch:
    """For counts, which need neither: it finds nothing."""
    return Watch(None, Conditions())
