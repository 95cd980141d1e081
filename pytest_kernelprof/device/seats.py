"""Whose code runs on a GPU: each process has a file, its seat, that it holds while its code runs.

Held alone, the seat is taken; held shared, its process lives and is at rest; held by nobody, it is
gone. So whoever wants the GPU to itself sees whom to wait for, and who they are.

A process that works for another one (a subprocess of a test, a rank) is its partner, and may sit
whenever its owner does: who waits for the owner to stand up would else keep both waiting for each
other. Where it wants the GPU to itself, it has its owner stand up: an owner that waits for its
partner does nothing meanwhile.
"""

from __future__ import annotations

import atexit
import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pytest_kernelprof.clock import sleep
from pytest_kernelprof.device import notes
from pytest_kernelprof.device.filelocks import FileLock, held, held_alone
from pytest_kernelprof.system import Real

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

PARTNER_OF = "KERNELPROF_PARTNER_OF"
"""What children read in their environment: the tokens of the processes that they work for."""

_SEAT, _AWAY = ".seat", ".away"
_TRIES = 50
_RETRY_S = 0.001


class Seat(Protocol):
    """Who sits keeps others from having the GPU to themselves."""

    def sit(self) -> bool:
        """Take the seat; not to be had in this moment if False."""

    def stand(self) -> None:
        """Leave it; its process lives on."""

    def give_up(self) -> None:
        """Its code goes on although the seat could not be had in time."""


class OwnSeat:
    """The seat of this process.

    Attributes:
        token: what tells this process from all others, in names of files.
        taken: whether its code runs.
    """

    def __init__(self, folder: Path, uuid: str, token: str) -> None:
        self.token = token
        self.taken = False
        self._file = FileLock(folder / f"{uuid}.{token}{_SEAT}")
        self._process = 0
        self._said = ""

    def sit(self) -> bool:
        """Whoever looks whether it is taken shares it for that moment."""
        self.taken = _insist(self._file.take)
        return self.taken

    def stand(self) -> None:
        """The process is at rest."""
        self.taken = False
        _insist(self._file.share)

    def give_up(self) -> None:
        """Who times sees it by its work."""
        self.stand()

    def say(self, who: str, owners: Sequence[str]) -> None:
        """Leave word of what this process does, and for whom; once for all that a test does."""
        if who and who == self._said:
            return
        self._said = who
        if not self._process:
            self._process = Real.getpid()
            atexit.register(self._remove)
        notes.write(self._file.path, notes.myself(who, self.token, owners))

    def _remove(self) -> None:
        if Real.getpid() == self._process:  # and not a child of it
            self._file.release()
            with contextlib.suppress(OSError):
                Real.unlink(self._file.path)


class OwnersSeat:
    """The seat of a process that this one works for: it stands while this holds a file beside.

    Each partner has a file of its own, and holds it alone: so who looks need only share it, and
    nobody who looks can be taken for a partner.

    Args:
        token: of the owner. partner: of this process.
    """

    def __init__(self, folder: Path, uuid: str, token: str, partner: str) -> None:
        self._away = FileLock(folder / f"{uuid}.{token}.{partner}{_AWAY}")

    def sit(self) -> bool:
        """The owner never left its own. Of several partners the last that sits again seats it."""
        self._away.release()
        return True

    def stand(self) -> None:
        """Ask again as long as it matters: who looks may be in the way, for long on a busy
        machine."""
        _insist(self._away.take)

    def give_up(self) -> None:
        """Its owner knows of nothing, and goes on."""
        self.sit()


def owners() -> tuple[str, ...]:
    """The tokens of the processes that this one works for."""
    return tuple(filter(None, os.environ.get(PARTNER_OF, "").split(",")))


def is_taken(folder: Path, uuid: str, token: str) -> bool:
    """Whether the process of that token sits, or would but for a partner that has it stand."""
    return held_alone(folder / f"{uuid}.{token}{_SEAT}")


def is_away(folder: Path, uuid: str, token: str) -> bool:
    """Whether a partner has the process of that token stand."""
    return any(map(held_alone, _files_of_partners(folder, f"{uuid}.{token}")))


def _files_of_partners(folder: Path, owner: str) -> list[Path]:
    return [
        folder / name
        for name in Real.listdir(folder)
        if name.startswith(f"{owner}.") and name.endswith(_AWAY)
    ]


def taken_by(folder: Path, uuid: str, but: str) -> Iterator[notes.Note | None]:
    """Who sits, but for one's own token: the note of each; None of one that left none.

    Files of processes that are gone are removed.

    Raises:
        OSError: the folder cannot be read.
    """
    for path, token in _seats(folder, uuid):
        if token == but:
            continue
        if not held_alone(path):
            _remove_if_gone(path)
        elif not is_away(folder, uuid, token):
            yield notes.read(path)


def living(folder: Path, uuid: str) -> Iterator[tuple[notes.Note, bool]]:
    """The notes of the processes that live and have a seat, and whether it is taken.

    Only of those that count processes as this one does: another container's numbers are others'.
    """
    with contextlib.suppress(OSError):
        for path, _ in _seats(folder, uuid):
            note = notes.read(path)
            if note is not None and note.namespace == notes.namespace() and held(path):
                yield note, held_alone(path)


def _seats(folder: Path, uuid: str) -> list[tuple[Path, str]]:
    before = f"{uuid}."
    return [
        (folder / name, name[len(before) : -len(_SEAT)])
        for name in sorted(Real.listdir(folder))
        if name.startswith(before) and name.endswith(_SEAT)
    ]


def _remove_if_gone(path: Path) -> None:
    """While nobody holds it. Who is about to sit sees that its file is gone, and makes another."""
    look = FileLock(path)
    with contextlib.suppress(OSError):
        if look.opens() and look.take():
            Real.unlink(path)
            for other in _files_of_partners(path.parent, path.name.removesuffix(_SEAT)):
                Real.unlink(other)
    look.release()


def _insist(attempt: Callable[[], bool]) -> bool:
    """Try until it is had; whoever is in the way only looks, and is gone in microseconds."""
    for _ in range(_TRIES):
        if attempt():
            return True
        sleep(_RETRY_S)
    return False
