"""Watchdog of a rank: ends collectives that wait for a rank which does not come.

The thread that measures may wait in a collective or for the device. A second thread checks
whether another rank is lost, and whether the wait is too long. Then it aborts the collective.
"""

from __future__ import annotations

import contextlib
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from pytest_kernelprof.distributed.rendezvous import SETTLE_S
from pytest_kernelprof.system import Real, now_s

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pytest_kernelprof.distributed.rendezvous import Meeting

_LOOK_S = 1.5
"""Rarely, since each look costs a timed call some microseconds; and long enough for the thread to
count as idle."""
_SYNCHRONIZE = "synchronize"  # how torch's functions and ours that wait begin


class Watchdog:
    """Watches the thread that has made it, as long as it is entered.

    Args:
        break_off: makes collectives end in which this process waits.
        limit_s: how long it may wait for the device, whose kernels may wait for another rank.
    """

    def __init__(self, meeting: Meeting, break_off: Callable[[], None], limit_s: float) -> None:
        self._meeting = meeting
        self._break_off = break_off
        self._limit_s = limit_s
        self._measures = Real.this_thread()
        self._waits_since: tuple[float, float] | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="kernelprof-ranks", daemon=True)

    def __enter__(self) -> Watchdog:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()

    def _watch(self) -> None:
        while not self._ended.wait(min(_LOOK_S, self._limit_s)):
            # The store may be gone, which the thread that measures will say.
            with contextlib.suppress(Exception):
                if self._is_left() or self._waits_too_long():
                    self._break_off()
                    return

    def _is_left(self) -> bool:
        """Whether another rank is lost, and this one does not return from its call."""
        since = self._meeting.inside_since
        if since is None or now_s() - since < SETTLE_S or self._meeting.look() is None:
            return False
        # Work that waits for nobody comes to its end.
        self._ended.wait(SETTLE_S)
        return self._meeting.inside_since == since and not self._ended.is_set()

    def _waits_too_long(self) -> bool:
        """Whether it has waited for the device, and for nothing else, for as long as a rank may be
        waited for. Who compiles does not come back either, but does not wait."""
        inside, now = self._meeting.inside_since, now_s()
        if inside is None or not self._waits_for_device():
            self._waits_since = None
            return False
        if self._waits_since is None or self._waits_since[0] != inside:
            self._waits_since = inside, now
        if now - self._waits_since[1] < self._limit_s:
            return False
        self._meeting.stuck()
        return True

    def _waits_for_device(self) -> bool:
        frame = Real.frames_of_threads().get(self._measures)
        return frame is not None and frame.f_code.co_name.startswith(_SYNCHRONIZE)


@contextlib.contextmanager
def shorter_waits(backends: Iterable[Any], limit_s: float) -> Iterator[None]:
    """Have gloo wait no longer than we do for a rank that does not come: it cannot be broken off.
    By itself it waits for half an hour."""
    changed: list[tuple[Any, timedelta]] = []
    limit = timedelta(seconds=limit_s)
    for backend in backends:
        with contextlib.suppress(AttributeError, RuntimeError):
            before = backend.options._timeout
            if before > limit:
                backend._set_default_timeout(limit)
                changed.append((backend, before))
    try:
        yield
    finally:
        for backend, before in changed:
            backend._set_default_timeout(before)


def abort(backends: Iterable[Any]) -> None:
    """End the NCCL kernels that wait for a rank that does not come: all communicators are aborted,
    as one, since each may wait for another. The groups stay, and raise when they are used again."""
    every = list(backends)
    if not every:
        return
    every[0]._group_start()
    for backend in reversed(every):
        backend.abort()
    every[0]._group_end()
