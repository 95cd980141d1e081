"""The locks of the GPUs, across processes and users of a machine: one for each, by its UUID."""

from __future__ import annotations

import contextlib
import functools
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_kernelprof.device.filelocks import can_share
from pytest_kernelprof.device.inventory import gpu_uuid
from pytest_kernelprof.device.shared_lock import SharedLock
from pytest_kernelprof.device.whole_lock import WholeLock, cannot_be_made
from pytest_kernelprof.errors import GpuBusy
from pytest_kernelprof.system import TEMPORARY_FOLDER, Real

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_kernelprof.device.inventory import Device

_FOLDER = "kernelprof-locks"


@contextlib.contextmanager
def gpu_lock(device: Device, timeout_s: float, who: str = "") -> Iterator[WholeLock | None]:
    """Have the GPU alone; nothing on the CPU.

    Only timed rounds need that, counts do not. They are locks of the operating system on files, so
    a holder that dies frees them, and a process that has the GPU may ask for it again. What it
    shared is given up meanwhile: the device has to be done.

    Args:
        timeout_s: seconds to wait for other processes.
        who: what others read of this holder when their time is up: the test's node id.

    Raises:
        NotFree: the time is up, with who holds the lock.
        GpuBusy: it cannot be made, with the remedy.
    """
    if device.kind != "cuda":
        yield None
        return
    with lock_by_uuid(gpu_uuid(device), timeout_s, who, device.name) as lock:
        yield lock


@contextlib.contextmanager
def lock_by_uuid(
    uuid: str, timeout_s: float, who: str = "", name: str = "GPU"
) -> Iterator[WholeLock]:
    """Have the GPU with this UUID alone; ``name`` is what messages call it.

    Raises:
        GpuBusy: as ``gpu_lock`` does.
    """
    lock = lock_of(uuid)
    lock.take(timeout_s, who, name)
    try:
        yield lock
    finally:
        lock.give_back()


def lock_of(uuid: str) -> WholeLock:
    """This process's hold of a GPU's lock. A forked child has its own, and holds nothing.

    Raises:
        GpuBusy: it cannot be made, with the remedy.
    """
    return _lock(Real.getpid(), _folder(), uuid, can_share())


@functools.cache
def _lock(process: int, folder: Path, uuid: str, shared: bool) -> WholeLock:
    """One object per process and GPU, since it counts how often it is held."""
    return SharedLock(folder, uuid) if shared else WholeLock(folder, uuid)


def _folder() -> Path:
    """The folder of the locks, made for all users: each may lock, none may remove another's."""
    folder = Path(TEMPORARY_FOLDER) / _FOLDER
    try:
        if not TEMPORARY_FOLDER:
            raise FileNotFoundError("there was no temporary folder at the start")
        with contextlib.suppress(FileExistsError):
            Real.mkdir(folder)
            Real.chmod(folder, 0o777 | stat.S_ISVTX)  # mkdir's own mode is cut by the umask
        mode = Real.lstat(folder).st_mode
    except OSError as error:
        raise GpuBusy(cannot_be_made(folder, error)) from error
    if not stat.S_ISDIR(mode):  # also a link, which somebody may have put there to mislead
        raise GpuBusy(cannot_be_made(folder, NotADirectoryError("it is not a folder")))
    return folder
