"""Notices a profiler that the measured code starts while ours runs: torch has room for one."""

from __future__ import annotations

from typing import Any

from pytest_kernelprof.device.inventory import bound


class OtherProfilers:
    """Watches torch's one way of starting a profiler, between ``watch`` and ``unwatch``.

    The flag that torch keeps tells that a profiler runs, and not whose it is.

    Attributes:
        started: whether any was started meanwhile.
    """

    def __init__(self) -> None:
        self.started = False
        self._enable: Any = None

    def watch(self) -> None:
        """Begin, when our own profiler has started."""
        profiler = bound().module.autograd.profiler
        self._enable = enable = profiler._enable_profiler

        def enable_and_tell(*args: Any, **kwargs: Any) -> Any:
            self.started = True
            return enable(*args, **kwargs)

        profiler._enable_profiler = enable_and_tell

    def unwatch(self) -> None:
        """End; what the measured code may have put there itself is replaced, too."""
        bound().module.autograd.profiler._enable_profiler = self._enable
