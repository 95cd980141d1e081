"""Timed rounds on a quiet GPU: locked, watched, and taken again where it throttled."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, TypeVar

from pytest_kernelprof.schema.conditions import Conditions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_kernelprof.device.inventory import Device
    from pytest_kernelprof.device.nvml import Watch

T = TypeVar("T")

LOCK_TIMEOUT_S = 600.0
_TRIES = 3


class Quiet:
    """Takes blocks of timed rounds; made by ``quiet``."""

    def __init__(self, watched: Watch | None) -> None:
        self._watched = watched
        self._kept_throttled = 0

    def take(self, rounds: int, once: Callable[[], T]) -> T:
        """A block of so many rounds: ``once()``, and again where the GPU throttled meanwhile.

        After three tries the last block is kept, and the conditions say so.
        """
        for _ in range(_TRIES):
            taken = once()
            if self._watched is None or self._watched.block(rounds):
                return taken
        self._kept_throttled += rounds
        return taken

    def conditions(self) -> Conditions:
        """What the GPU was like; call it after the ``with`` block."""
        found = Conditions() if self._watched is None else self._watched.conditions()
        return found.keeping_throttled(self._kept_throttled)


@contextlib.contextmanager
def quiet(device: Device, lock_timeout_s: float, who: str) -> Iterator[Quiet]:
    """Have the GPU alone, as far as others ask for it too, and watch what it is like.

    On the CPU nothing is locked or watched. ``who`` is what others are told who wait.

    Raises:
        GpuBusy: another process held the lock for longer than the time-out.
    """
    if device.kind != "cuda":
        yield Quiet(None)
        return
    from pytest_kernelprof.device.lock import gpu_lock
    from pytest_kernelprof.device.nvml import watch

    with gpu_lock(device, lock_timeout_s, who), watch(device) as watched:
        yield Quiet(watched)


@contextlib.contextmanager
def unwatched() -> Iterator[Quiet]:
    """For counts, which need neither."""
    yield Quiet(None)
