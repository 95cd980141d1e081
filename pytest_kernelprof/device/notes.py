"""Who holds a GPU's lock: a note in a file, as its writer left it and as others tell of it."""

from __future__ import annotations

import contextlib
import functools
import getpass
import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_kernelprof.clock import unix_ns
from pytest_kernelprof.device.filelocks import open_file, open_or_make
from pytest_kernelprof.system import Real

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_LONGEST_NAME = 200
_LONGEST_NOTE = 4096
_NAMESPACE = "/proc/self/ns/pid"


@dataclass(frozen=True, slots=True)
class Note:
    """What a process says of itself. Anyone may have written it: it is taken as text only.

    Attributes:
        pid: its number. namespace: where that number holds; empty where that is everywhere.
        who: what it does, a test for example. user: whose it is. since: seconds since 1970.
        token: what its files are called. owners: the tokens of those that it works for.
    """

    pid: int
    who: str
    user: str
    since: float
    namespace: str = ""
    token: str = ""
    owners: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """For example ``pid 7 of user me (test_mlp.py::test_it) since 12:00:01, 0 min 3 s ago``."""
        minutes, seconds = divmod(int(unix_ns() / 1e9 - self.since), 60)
        clock = time.strftime("%H:%M:%S", time.localtime(self.since))
        of = f" of user {self.user}" if self.user else ""
        who = self.who or "unnamed"
        return f"pid {self.pid}{of} ({who}) since {clock}, {minutes} min {seconds} s ago"


def myself(who: str, token: str = "", owners: Sequence[str] = ()) -> str:
    """The note of this process, now."""
    command = Path(sys.argv[0]).name if sys.argv else ""
    note: Mapping[str, Any] = {
        "pid": Real.getpid(),
        "who": who or command,
        "user": _user(),
        "since": unix_ns() / 1e9,
        "namespace": namespace(),
        "token": token,
        "owners": list(owners),
    }
    return json.dumps(note)


def write(path: Path, text: str) -> None:
    """Write a note. In place: another user's file in this folder cannot be replaced.

    What cannot be written is left out: the lock holds all the same.
    """
    with contextlib.suppress(OSError), Real.file(open_or_make(path, os.O_WRONLY), "w") as file:
        file.truncate(0)
        file.write(text.encode("ascii"))


def read(path: Path) -> Note | None:
    """A note; None where there is none that can be read."""
    try:
        with Real.file(open_file(path, os.O_RDONLY)) as file:
            said = json.loads(file.read(_LONGEST_NOTE))
        note = Note(
            int(said["pid"]),
            _printable(str(said["who"])),
            _printable(str(said["user"])),
            float(said["since"]),
            str(said.get("namespace", "")),
            str(said.get("token", "")),
            tuple(map(str, said.get("owners", ()))),
        )
        return note if note.words else None  # a time that no clock shows cannot be told
    except (
        *(OSError, ValueError, KeyError, TypeError),
        *(AttributeError, OverflowError, RecursionError),
    ):
        return None


@functools.cache
def namespace() -> str:
    """Where numbers of processes mean the same as for this one, as Linux names it."""
    try:
        return os.readlink(_NAMESPACE)
    except OSError:
        return ""


@functools.cache
def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a user id without a name, as in containers
        return ""


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text[:_LONGEST_NAME])
