"""Processes as Linux shows them under /proc, and what profiling this process may do.

Other systems have no /proc: there is nothing to read, which is no error.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import platform
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from pytest_kernelprof.system import Real

_BOOT = "/proc/sys/kernel/random/boot_id"
_GPU_FILE = "/dev/nvidia-uvm"

_HAS_WAITID = hasattr(os, "waitid") and hasattr(os, "WNOHANG")
TELLS_CHILDREN = _HAS_WAITID and Path(f"/proc/self/task/{os.getpid()}/children").exists()
"""Whether this system tells which processes a process has started: Linux does."""


class Process(NamedTuple):
    """A process at one moment.

    Attributes:
        parent: who started it, or has taken it in since.
        started: tells it from a later one of its number.
        image: where its program and stack lie, as in those that it forks; not in other programs.
        main_ns: how long its first thread has run. all_ns: how long all of its threads have.
    """

    parent: int
    started: str
    image: tuple[str, ...]
    main_ns: int
    all_ns: int


_ours: set[tuple[int, str]] = set()


def text_of(path: Path | str) -> str:
    """The text of a file; empty where it cannot be read."""
    with contextlib.suppress(OSError), Real.file(str(path)) as file:
        return file.readall().decode("utf-8", "replace")
    return ""


def mapped_files(pid: int | str = "self") -> tuple[str, ...]:
    """Paths of the files in a process's memory map, its loaded libraries among them: each once, in
    the order of the map."""
    lines = (line.split(maxsplit=5) for line in text_of(f"/proc/{pid}/maps").splitlines())
    return tuple(dict.fromkeys(line[5] for line in lines if len(line) > 5 and "/" in line[5]))


def host_of_processes() -> str:
    """Identifies the system whose process numbers and clock this process uses: equal for processes
    that see each other. Where /proc does not say, the name of this machine."""
    namespace = pid_namespace()
    return f"{text_of(_BOOT).strip()} {namespace}" if namespace else platform.node()


def pid_namespace() -> str:
    """Where numbers of processes mean the same as for this one, as Linux names it; else empty."""
    return _link("/proc/self/ns/pid")


def started_at(pid: int) -> str:
    """When a process was started, which tells it from a later one of its number; empty where there
    is none or it has ended, and on systems that do not tell."""
    fields = _stat(pid)
    return fields[19] if fields else ""


def note_ours(pid: int) -> None:
    """Note a child that we have started: its work belongs to no test's call."""
    _ours.add((pid, started_at(pid)))


def processes_below() -> dict[int, Process]:
    """The living processes that this one has started, and theirs, but for those that are ours."""
    try:
        Real.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:  # as nearly always: it has no child
        return {}
    found: dict[int, Process] = {}
    parents = [Real.getpid()]
    while parents:
        for pid in _children(parents.pop()):
            process = process_of(pid)
            if process is not None and pid not in found and (pid, process.started) not in _ours:
                found[pid] = process
                parents.append(pid)
    return found


def process_of(pid: int) -> Process | None:
    """A process as it is now; None where it has ended."""
    fields = _stat(pid)
    if not fields:
        return None
    main_ns = text_of(f"/proc/{pid}/schedstat").split()[:1]
    return Process(
        parent=int(fields[1]),
        started=fields[19],
        image=(fields[23], fields[25]),
        main_ns=int(*main_ns),
        all_ns=_cpu_time_ns(pid),
    )


def is_runnable(thread: int) -> bool:
    """Whether a thread, by the system's number, runs or waits for a processor."""
    return TELLS_CHILDREN and _stat(thread)[:1] == ["R"]


def command_of(pid: int) -> str:
    """What a process was started as, its program without the folder."""
    program, *arguments = text_of(f"/proc/{pid}/cmdline").rstrip("\0").split("\0")
    return " ".join((os.path.basename(program), *arguments))


def holds_gpu(pid: int) -> bool:
    """Whether a process has the file open that CUDA works through, or has it from its parent."""
    return any(_link(f"/proc/{pid}/fd/{one}") == _GPU_FILE for one in _listed(f"/proc/{pid}/fd"))


def has_cuda_threads(pid: int) -> bool:
    """Whether a process has threads of the driver, which no child gets from its parent."""
    tasks = f"/proc/{pid}/task"
    names = (text_of(f"{tasks}/{one}/comm") for one in _listed(tasks))
    return any(name.startswith("cuda") for name in names)


def _children(pid: int) -> list[int]:
    tasks = f"/proc/{pid}/task"
    told = (text_of(f"{tasks}/{one}/children") for one in _listed(tasks))
    return [int(child) for children in told for child in children.split()]


def _cpu_time_ns(pid: int) -> int:
    """By the clock that Linux has of each process, whose number is made of the process's."""
    with contextlib.suppress(OSError):
        return int(Real.clock_ns(~pid << 3 | 2))
    return 0


def _listed(folder: str) -> list[str]:
    with contextlib.suppress(OSError):
        return Real.listdir(folder)
    return []


def _link(path: str) -> str:
    with contextlib.suppress(OSError):
        return Real.readlink(path)
    return ""


def _stat(pid: int) -> list[str]:
    """What is told of a living process; nothing of others."""
    # Behind the command in brackets, which may hold anything: the state, ..., the start.
    fields = text_of(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return fields if len(fields) > 25 and fields[0] not in "ZX" else []


_PARAMETERS = Path("/proc/driver/nvidia/params")
_STATUS = Path("/proc/self/status")
_CAP_SYS_ADMIN, _CAP_PERFMON = 21, 38


class Permissions(NamedTuple):
    """Whether this process may profile, as far as the system tells.

    Attributes:
        admin_only: whether the driver lets only administrators profile; None where unknown.
        privileged: whether this process has CAP_SYS_ADMIN or CAP_PERFMON, and may all the same.
    """

    admin_only: bool | None = None
    privileged: bool = False

    @property
    def refused(self) -> bool:
        """Whether the driver keeps profiling to administrators, and this process is none."""
        return bool(self.admin_only) and not self.privileged


def permissions() -> Permissions:
    """The permissions of this process."""
    return Permissions(admin_only(text_of(_PARAMETERS)), is_privileged(text_of(_STATUS)))


def admin_only(parameters: str) -> bool | None:
    """Whether the driver's parameters keep profiling to administrators; None without them."""
    match = re.search(r"RmProfilingAdminOnly:\s*(\d)", parameters)
    return None if match is None else match[1] != "0"


def is_privileged(status: str) -> bool:
    """Whether ``/proc/self/status`` grants CAP_SYS_ADMIN or CAP_PERFMON."""
    match = re.search(r"^CapEff:\s*([0-9a-f]+)", status, re.M)
    held = int(match[1], 16) if match else 0
    return bool(held >> _CAP_SYS_ADMIN & 1 or held >> _CAP_PERFMON & 1)


# What other profiling tools put into the environment of the processes that they watch.
_VARIABLES = {
    "NSYS_": "Nsight Systems",
    "NV_NSIGHT_": "Nsight Compute",
    "NV_COMPUTE_PROFILER": "Nsight Compute",
    "CUDA_INJECTION64_PATH": "a library from CUDA_INJECTION64_PATH",
}
_LIBRARIES = re.compile(
    r"libToolsInjection|libcuda-injection|libnsys|libInterceptorInjection|nsight-(systems|compute)"
    r"|libaccinj|libproton"
)


def tools_of(environment: Iterable[str]) -> list[str]:
    """The profiling tools that variables of these names tell of, each once."""
    pairs = itertools.product(environment, _VARIABLES.items())
    return sorted({tool for name, (start, tool) in pairs if name.startswith(start)})


def injected_libraries(paths: Iterable[str]) -> tuple[str, ...]:
    """File names of profiling tools' libraries among the files of a process, each once."""
    return tuple(sorted({os.path.basename(path) for path in paths if _LIBRARIES.search(path)}))
