"""A GPU's lock as one process at a time holds it: all that there is where the system has no locks
that can be shared (Windows), and what both kinds have in common."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from pytest_kernelprof.clock import now_s, sleep
from pytest_kernelprof.device import notes
from pytest_kernelprof.device.filelocks import FOR_ALL_USERS
from pytest_kernelprof.errors import GpuBusy
from pytest_kernelprof.system import Real

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from filelock import BaseFileLock

BEHIND_S = 0.006
"""How long who is not next in turn waits before it looks again, about: at no fixed pace, so that
all have the same chance to be next."""


class NotFree(GpuBusy):
    """The time was up before the lock could be had."""


class WholeLock:
    """What this process holds of a GPU's lock: all of it, or nothing. Processes that do not time
    are seen by their work only.

    Attributes:
        lost: why it was held no more for a while although nobody gave it back; empty where it was.
    """

    def __init__(self, folder: Path, uuid: str) -> None:
        self.lost = ""
        self.folder, self.uuid = folder, uuid
        self.path = folder / f"{uuid}.lock"
        self.note = folder / f"{uuid}.holder"
        self._process = Real.getpid()
        self._alone = 0
        self._file: BaseFileLock | None = None

    def take(self, timeout_s: float, who: str, name: str = "GPU") -> None:
        """Have it alone; may be asked for again, and is given back as often.

        Raises:
            NotFree: the time is up, with who holds it.
            GpuBusy: it cannot be made, with the remedy.
        """
        if not self._alone:
            self.lost = ""
            try:
                had = self._take(timeout_s, who)
            except (OSError, NotImplementedError) as error:
                raise GpuBusy(cannot_be_made(self.path, error)) from error
            if not had:
                raise NotFree(f"{name} ({self.uuid}) {self._not_free(timeout_s)}")
        self._alone += 1

    def give_back(self) -> None:
        """Have it alone no more. A child that was forked meanwhile never had it."""
        self._alone -= 1
        if not self._alone and self._process == Real.getpid():
            self._give_back()

    def join(self, timeout_s: float, who: str) -> None:
        """Share it; may be asked for again, and is left as often. Who cannot goes on as well."""

    def leave(self) -> None:
        """The code has run, and the device is done."""

    def stop(self) -> None:
        """Give up what is held while a debugger has the process."""

    def go_on(self, timeout_s: float, who: str) -> None:
        """Have it back."""

    def kept_at_rest(self) -> frozenset[int]:
        """The numbers of the processes that wait with their work."""
        return frozenset()

    def partners(self) -> frozenset[int]:
        """The numbers of the processes that this one works for, and of those that work for them or
        for this one."""
        return frozenset()

    def _take(self, timeout_s: float, who: str) -> bool:
        from filelock import FileLock, Timeout

        lock = FileLock(self.path, mode=FOR_ALL_USERS, thread_local=False)

        def attempt() -> bool:
            with contextlib.suppress(Timeout):
                lock.acquire(timeout=0)
                return True
            return False

        if not wait(attempt, now_s() + timeout_s, BEHIND_S):
            return False
        self._file = lock
        notes.write(self.note, notes.myself(who))
        return True

    def _give_back(self) -> None:
        notes.write(self.note, "")
        if self._file is not None:
            self._file.release()

    def _not_free(self, timeout_s: float) -> str:
        held = ", and by ".join(self._holders()) or (
            f"an unknown process (one that has {self.path} open)"
        )
        return (
            f"was not free for timing within {timeout_s:g} s: held by {held}. Wait for that "
            "process or end it, allow more time with -o kernelprof_lock_timeout=SECONDS, or "
            "choose another GPU with CUDA_VISIBLE_DEVICES"
        )

    def _holders(self) -> Iterator[str]:
        note = notes.read(self.note)
        if note is not None:
            yield note.words


def wait(attempt: Callable[[], bool], deadline: float, pause_s: float) -> bool:
    """Wait for something, and say whether it was had in time: by our own clock, since a test may
    stop the one that others wait by. It is tried once in any case."""
    while not attempt():
        if now_s() >= deadline:
            return False
        sleep(pause_s * (0.5 + Real.urandom(1)[0] / 255))
    return True


def cannot_be_made(path: Path, error: Exception) -> str:
    """Why there is no lock, and what to do."""
    reason = getattr(error, "strerror", None) or error
    return (
        f"the lock of the GPU cannot be created: {path}: {reason}. Make its folder writable for "
        f"all (chmod 1777 {path.parent if path.suffix else path}), or set TMPDIR to a writable "
        "folder, the same one for all who measure on this machine"
    )
