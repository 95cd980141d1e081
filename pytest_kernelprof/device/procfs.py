"""What Linux tells under /proc; on other systems there is nothing to read, which is no error."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from pytest_kernelprof.system import Real

_PROC = Path("/proc")
_MAPS = _PROC / "self/maps"
_BOOT = _PROC / "sys/kernel/random/boot_id"
_PIDS = _PROC / "self/ns/pid"


def text_of(path: Path) -> str:
    """The text of a file; empty where it cannot be read."""
    try:
        with Real.file(str(path)) as file:
            return file.readall().decode("utf-8", "replace")
    except OSError:
        return ""


def mapped_files() -> tuple[str, ...]:
    """Paths of the files in this process's memory map, its loaded libraries among them."""
    return files_in(text_of(_MAPS))


def files_in(maps: str) -> tuple[str, ...]:
    """The paths in a memory map, each once, in its order."""
    lines = (line.split(maxsplit=5) for line in maps.splitlines())
    return tuple(dict.fromkeys(line[5] for line in lines if len(line) > 5 and "/" in line[5]))


def host_of_processes() -> str:
    """What the numbers of processes and the clock are of: two processes of which it is the same see
    each other. Of a system that does not tell, this machine's name."""
    try:
        return f"{text_of(_BOOT).strip()} {os.readlink(_PIDS)}"
    except OSError:
        return platform.node()


def started_at(pid: int) -> str:
    """When a process was started, which tells it from a later one of its number; empty where there
    is none or it has ended, and on systems that do not tell."""
    # Behind the command in brackets, which may hold anything: the state, ..., the start.
    fields = text_of(_PROC / str(pid) / "stat").rpartition(")")[2].split()
    return fields[19] if len(fields) > 19 and fields[0] not in "ZX" else ""
