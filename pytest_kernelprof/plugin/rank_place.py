"""Where the ranks of torchrun on one machine leave word for each other: files of one folder."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
from dataclasses import dataclass
from typing import Any

from pytest_kernelprof.system import TEMPORARY_FOLDER, Real

_INSIDE = "KERNELPROF_INSIDE_RANK"


@dataclass(frozen=True, slots=True)
class Place:
    """Which rank of how many this process is, and where they leave word for each other."""

    rank: int
    size: int
    folder: str

    def file(self, rank: int) -> str:
        """What a rank has to say."""
        return os.path.join(self.folder, f"rank{rank}.json")

    def tests(self, rank: int) -> str:
        """Which tests a rank runs."""
        return os.path.join(self.folder, f"tests{rank}.json")


def place_of_rank() -> Place | None:
    """This process's, where ``torchrun`` has started it as one of several on this machine; None of
    any other, such as one that a test has started."""
    ranks = said_by_torchrun()
    if ranks is None:
        return None
    rank, size, run = ranks
    os.environ[_INSIDE] = str(Real.getpid())
    name = hashlib.sha1("\n".join(run).encode(), usedforsecurity=False).hexdigest()[:16]
    folder = os.path.join(TEMPORARY_FOLDER, f"kernelprof-ranks-{os.getuid()}-{name}")
    return Place(rank, size, folder) if _is_ours(folder) else None


def said_by_torchrun() -> tuple[int, int, list[str]] | None:
    """The number of this rank, how many there are, and what tells their run from others."""
    said = os.environ
    try:
        rank, size = int(said["RANK"]), int(said["WORLD_SIZE"])
        run = [said["TORCHELASTIC_RUN_ID"], said["TORCHELASTIC_RESTART_COUNT"]]
        run += [said["MASTER_ADDR"], said["MASTER_PORT"]]
        on_one_machine = int(said["LOCAL_WORLD_SIZE"]) == size
    except (KeyError, ValueError):
        return None
    inside = said.get(_INSIDE, "")
    if size < 2 or not on_one_machine or inside not in ("", str(Real.getpid())):
        return None
    return rank, size, run


def _is_ours(folder: str) -> bool:
    """Whether nobody else can leave word there; it is made where there is none."""
    try:
        with contextlib.suppress(FileExistsError):
            Real.mkdir(folder, 0o700)
        found = Real.lstat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()


def this_process() -> tuple[int, str]:
    """Its number, and what tells it from a later one of that number."""
    from pytest_kernelprof.device.procfs import started_at

    return Real.getpid(), started_at(Real.getpid())


def read(path: str) -> dict[str, Any] | None:
    """What was left there; None where that is nothing whole."""
    try:
        with open(path, encoding="utf-8") as file:
            said: dict[str, Any] = json.load(file)
    except (OSError, ValueError):
        return None
    return said


def write(path: str, data: dict[str, Any]) -> None:
    """Leave word, whole or not at all."""
    beside = f"{path}.{Real.getpid()}"
    with contextlib.suppress(OSError):
        with open(beside, "w", encoding="utf-8") as file:
            json.dump(data, file)
        Real.replace(beside, path)


def lives(said: dict[str, Any]) -> bool:
    """Whether the process is still there that has left word."""
    from pytest_kernelprof.device.procfs import started_at

    number, started = said["process"]
    return not started or started_at(number) == started
