"""Notices a profiler that the measured code starts while ours runs: torch has room for one."""

from __future__ import annotations

from typing import Any

from pytest_kernelprof.device.inventory import bound


class OtherProfilers:
    """Watches torch's one way of starting a profiler, and of switching recording off, between
    ``watch`` and ``unwatch``. What the code has bound before is not seen.

    The flag that torch keeps tells that a profiler runs, and not whose it is; of recording that was
    off for a while nothing tells.

    Attributes:
        started: whether any was started meanwhile.
        switched: whether recording was switched meanwhile.
    """

    def __init__(self) -> None:
        self.started = self.switched = False
        self._watched: list[tuple[Any, str, Any]] = []

    def watch(self) -> None:
        """Begin, when our own profiler has started."""
        torch = bound().module
        self._tell("started", torch.autograd.profiler, "_enable_profiler")
        for module in (torch.autograd, torch._C._autograd):
            self._tell("switched", module, "_enable_record_function")

    def _tell(self, what: str, module: Any, name: str) -> None:
        call = getattr(module, name)

        def call_and_tell(*args: Any, **kwargs: Any) -> Any:
            setattr(self, what, True)
            return call(*args, **kwargs)

        self._watched.append((module, name, call))
        setattr(module, name, call_and_tell)

    def unwatch(self) -> None:
        """End; what the measured code may have put there itself is replaced, too."""
        for module, name, call in self._watched:
            setattr(module, name, call)
