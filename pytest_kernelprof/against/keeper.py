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
from typing import NoReturn

from pytest_kernelprof.against import folders
from pytest_kernelprof.clock import sleep

_EVERY_S = 0.05
CODE = "import sys; sys.path.insert(0, sys.argv[1]); from {module} import main; main(sys.argv[2:])"


def main(arguments: list[str]) -> NoReturn:
    """Start a command in a session of its own; end as it does, or with who started this."""
    run, folder, log, ends, *command = arguments
    signal.signal(signal.SIGTERM, _leave)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    handles = tuple(map(int, ends.split(",")))
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
