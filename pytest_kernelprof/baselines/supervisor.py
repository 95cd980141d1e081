"""A process between a run and its reference, which starts the reference, and ends it however the
run ends; and the folder for a revision's tree, which both keep.

A run that is killed cannot end its reference. Its child, the supervisor, sees that it has another
parent. It ends the reference with all processes of its group, and removes the folder.

A lock of the system keeps a folder, and is released however a process ends. A process that gets the
lock alone removes the folder: the run at its end, its supervisors, or the next run.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from pytest_kernelprof.gpu.file_lock import FileLock
from pytest_kernelprof.system import TEMPORARY_FOLDER, sleep

_PREFIX = "kernelprof-against-"
_LOCK = "lock"
_TRIES = 10
_EVERY_S = 0.05
_END_S = 10.0
PACKAGE_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# Without a folder the environment's own package is loaded.
CODE = (
    "import sys; sys.path[:0] = filter(None, sys.argv[1:2]); "
    "from {module} import main; main(sys.argv[2:])"
)


def start(
    folder: str,
    log: str,
    ends: Sequence[int],
    command: Sequence[str],
    environment: Mapping[str, str],
    cwd: str | None = None,
) -> subprocess.Popen[bytes]:
    """Start a supervisor, which starts a command.

    Args:
        folder: of the run, which the supervisor keeps. log: the file for the command's output.
        ends: open descriptors that the command gets.

    Raises:
        OSError: it cannot be started.
    """
    code = CODE.format(module="pytest_kernelprof.baselines.supervisor")
    ours = [PACKAGE_ROOT, str(os.getpid()), folder, log, ",".join(map(str, ends))]
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", code, *ours, *command],
        cwd=cwd,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=ends,
        start_new_session=True,
    )


def end(supervisor: subprocess.Popen[bytes]) -> None:
    """End a supervisor and what it has started."""
    supervisor.terminate()
    try:
        supervisor.wait(_END_S)
    except subprocess.TimeoutExpired:
        supervisor.kill()
        supervisor.wait()


def last_lines(log: str, size: int) -> list[str]:
    """The lines of the last ``size`` characters that a command printed."""
    with contextlib.suppress(OSError), open(log, errors="replace") as file:
        return file.read()[-size:].splitlines()
    return []


def main(arguments: list[str]) -> NoReturn:
    """Start a command in a session of its own; end as it does, or when the run ends."""
    run, folder, log, ends, *command = arguments
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    handles = tuple(map(int, filter(None, ends.split(","))))
    kept = join_folder(Path(folder))
    with open(log, "ab") as file:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            pass_fds=handles,
            start_new_session=True,
        )
    try:
        for handle in handles:
            os.close(handle)
        while process.poll() is None and os.getppid() == int(run):
            sleep(_EVERY_S)
    finally:
        _end(process)
        kept.let_go()
    sys.exit(process.returncode if process.returncode >= 0 else 128 - process.returncode)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and all of its group, and wait for it."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class Folder:
    """A folder that this process keeps; other processes may keep it too.

    Attributes:
        path: of the folder. tree: for the revision's files. scratch: for what its run writes.
    """

    def __init__(self, path: Path, lock: FileLock) -> None:
        self.path = path
        self.tree = path / "tree"
        self.scratch = path / "scratch"
        self._lock = lock

    def let_go(self) -> None:
        """Keep it no longer, and remove it unless another process keeps it."""
        self._lock.release()
        remove_unless_kept(self.path)


def make_folder(place: str = TEMPORARY_FOLDER) -> Folder:
    """Make a folder, and keep it.

    Raises:
        OSError: no folder can be made there, or its file system has no locks.
    """
    for _ in range(_TRIES):
        path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place or None))
        lock = FileLock(path / _LOCK)
        with contextlib.suppress(FileNotFoundError):  # another run may sweep it just now
            if lock.share():
                folder = Folder(path, lock)
                folder.tree.mkdir()
                folder.scratch.mkdir()
                return folder
    raise OSError(f"{place}: each new folder is removed at once")


def join_folder(path: Path) -> Folder:
    """Keep a folder that another process made.

    Raises:
        OSError: it is gone.
    """
    lock = FileLock(path / _LOCK)
    if not lock.opens() or not lock.share():
        lock.release()
        raise OSError(f"{path} is gone")
    return Folder(path, lock)


def sweep_folders(place: str = TEMPORARY_FOLDER) -> None:
    """Remove this user's folders that nobody keeps."""
    with contextlib.suppress(OSError):
        for name in os.listdir(place):
            if name.startswith(_PREFIX):
                remove_unless_kept(Path(place, name))


def remove_unless_kept(path: Path) -> None:
    """Remove a folder, unless a process keeps it or another user owns it; a failure is no error."""
    with contextlib.suppress(OSError):
        found = os.lstat(path)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            return
        lock = FileLock(path / _LOCK)
        if lock.opens() and lock.take():
            shutil.rmtree(path, ignore_errors=True)
        lock.release()
