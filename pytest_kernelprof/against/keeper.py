"""A process between a run and its reference: it starts that and ends it, whatever ends the run.

A run that is killed tells nobody. Its child sees that its parent is another one, ends the reference
with all processes of its group, and removes the folder if nobody else keeps it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from pytest_kernelprof.against import folders
from pytest_kernelprof.clock import sleep

if TYPE_CHECKING:
    from collections.abc import Sequence

_EVERY_S = 0.05
_END_S = 10.0
_PACKAGE_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# Without a folder the environment's own package is loaded.
CODE = (
    "import sys; sys.path[:0] = filter(None, sys.argv[1:2]); "
    "from {module} import main; main(sys.argv[2:])"
)


def watched(folder: str, log: str, ends: Sequence[int], command: Sequence[str]) -> list[str]:
    """The command line of a keeper, and behind it what that is to start.

    Args:
        folder: of our own, which it keeps. log: where the command's output goes.
        ends: open descriptors that the command gets.
    """
    keeper = CODE.format(module="pytest_kernelprof.against.keeper")
    given = ",".join(map(str, ends))
    ours = [str(os.getpid()), folder, log, given]
    return [sys.executable, "-I", "-S", "-c", keeper, _PACKAGE_ROOT, *ours, *command]


def end(keeper: subprocess.Popen[bytes]) -> None:
    """End a keeper, and with it what it has started."""
    keeper.terminate()
    try:
        keeper.wait(_END_S)
    except subprocess.TimeoutExpired:
        keeper.kill()
        keeper.wait()


def main(arguments: list[str]) -> NoReturn:
    """Start a command in a session of its own; end as it does, or with who started this."""
    run, folder, log, ends, *command = arguments
    signal.signal(signal.SIGTERM, _leave)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    handles = tuple(map(int, filter(None, ends.split(","))))
    kept = folders.join(Path(folder))
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


def _leave(*_: object) -> NoReturn:
    sys.exit(0)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and all of its group, and wait for it."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
