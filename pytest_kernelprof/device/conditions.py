"""The conditions that timed rounds ask for: the GPU alone, and watched."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from pytest_kernelprof.device.telemetry import Watch
from pytest_kernelprof.schema.run import Conditions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from pytest_kernelprof.device.inventory import Device
    from pytest_kernelprof.device.whole_lock import WholeLock

    Locking = Callable[[Device, float, str], AbstractContextManager[WholeLock | None]]

LOCK_TIMEOUT_S = 600.0


def own_lock(
    device: Device, timeout_s: float, who: str
) -> AbstractContextManager[WholeLock | None]:
    """How a process locks its GPU by itself: ``gpu_lock``."""
    from pytest_kernelprof.device.lock import gpu_lock

    return gpu_lock(device, timeout_s, who)


@contextlib.contextmanager
def alone(
    device: Device,
    lock_timeout_s: float,
    who: str,
    *,
    at_work: int = 1,
    locking: Locking = own_lock,
) -> Iterator[Watch]:
    """Have the GPU alone, as far as others ask for it too, and watch what it is like.

    Where others hold it for longer than the time-out, the rounds are taken beside them, and the
    conditions say so. On the CPU nothing is locked or watched. ``who`` is what others are told who
    wait; ``locking`` is how the lock is taken.

    Raises:
        GpuBusy: there can be no lock.
    """
    if device.kind != "cuda":
        yield unwatched()
        return
    from pytest_kernelprof.device.presence import finish_work
    from pytest_kernelprof.device.telemetry import watch
    from pytest_kernelprof.device.whole_lock import NotFree

    finish_work()
    with contextlib.ExitStack() as held:
        lock, why = None, ""
        try:
            lock = held.enter_context(locking(device, lock_timeout_s, who))
        except NotFree as busy:
            why = str(busy)
        watched = held.enter_context(watch(device, lock, at_work=at_work))
        yield watched
        watched.was_not_alone(why or (lock.lost if lock else ""))


def unwatched() -> Watch:
    """For counts, which need neither: it finds nothing."""
    return Watch(None, Conditions())
