"""Pauses the collection of a running session on a GPU, and goes on, without losing what lies
around the pause."""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING, Any, Protocol

from pytest_kernelprof.device.inventory import Device, bound, is_capturing, synchronize

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_kernelprof.schema.recording import OwnNames

_STDERR = 2


class Profiler(Protocol):
    """A profiler that runs, as far as it is known here."""

    def toggle_collection(self, on: bool, activities: Iterable[Any]) -> None:
        """Go on to collect these activities, or stop to; a RuntimeError where it has ended."""


class Pauses:
    """Pauses and resumes a session of this thread.

    The profiler of a GPU session is this thread's own, and is known to the threads of autograd that
    work for it. The CPU's sees all threads, and torch cannot switch that off and on again.

    Args:
        profiler: torch's, running.
        names: of the annotations that tell our waits from those of the measured code.
    """

    def __init__(self, profiler: Profiler, device: Device, names: OwnNames) -> None:
        self._profiler = profiler
        self._device = device
        self._names = names
        self._thread = threading.get_ident()
        self._paused: list[Any] = []

    def pause(self) -> bool:
        """Collect nothing until ``resume``; False where that cannot be done."""
        torch = bound()
        if self._device.kind == "cpu" or not torch.runs_in_this_thread() or is_capturing():
            return False
        # A kernel whose record is on its way would be lost.
        with torch.record_function(self._names.pause), contextlib.suppress(RuntimeError):
            synchronize(self._device)
        activities = torch.module.profiler.ProfilerActivity
        self._paused = [activities.CUDA]
        if threading.get_ident() == self._thread:
            # Operators are recorded by callbacks of a thread: another's are not ours to take off.
            self._paused.append(activities.CPU)
        self._toggle(False)
        return True

    def resume(self) -> bool:
        """Collect again, after a wait for what was not to be collected; False where the profiler
        could not go on. An error of the device is the measured code's, and shows there."""
        with contextlib.suppress(RuntimeError):
            synchronize(self._device)
        try:
            self._toggle(True)
        except RuntimeError:
            return False
        with bound().record_function(self._names.resume):
            return True

    def _toggle(self, on: bool) -> None:
        with _without_stderr():
            self._profiler.toggle_collection(on, self._paused)


@contextlib.contextmanager
def _without_stderr() -> Iterator[None]:
    """torch warns of each toggle, from C++; what a test prints would not be its own."""
    try:
        kept = os.dup(_STDERR)
    except OSError:  # it is closed: nothing can be written
        yield
        return
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, _STDERR)
        os.close(nowhere)
        yield
    finally:
        os.dup2(kept, _STDERR)
        os.close(kept)
