"""How long a run may take turns, by all of its processes: a file to which each adds seconds."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from pytest_kernelprof.clock import now_s

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Budget:
    """So many seconds for the turns of a run.

    Args:
        path: the file. limit_s: how many; None for no limit.
    """

    def __init__(self, path: Path, limit_s: float | None) -> None:
        self._path = path
        self._limit_s = limit_s

    @property
    def is_spent(self) -> bool:
        """Whether all processes together have taken as long."""
        return self._limit_s is not None and self._spent() >= self._limit_s

    @contextlib.contextmanager
    def spending(self) -> Iterator[None]:
        """What the block takes is spent."""
        begun = now_s()
        try:
            yield
        finally:
            if self._limit_s is not None:
                self._spend(now_s() - begun)

    def _spent(self) -> float:
        with contextlib.suppress(OSError):
            return sum(map(float, self._path.read_text().split()))
        return 0.0

    def _spend(self, seconds: float) -> None:
        with contextlib.suppress(OSError):  # short lines that are appended do not mix
            handle = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(handle, f"{seconds:.3f}\n".encode())
            finally:
                os.close(handle)
