"""The lock of a GPU: shared while code runs on it, exclusive while one process times.

LOCKDOC
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import functools
import getpass
import importlib
import json
import os
import stat
import sys
import time
import weakref
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pytest_kernelprof.clock import now_s, sleep, unix_ns
from pytest_kernelprof.device.bindings import bound_already
from pytest_kernelprof.device.inventory import (
    devices_in_use,
    gpu_uuid,
    is_capturing,
    synchronize_in_use,
    uuid_of_index,
)
from pytest_kernelprof.errors import GpuBusy
from pytest_kernelprof.system import TEMPORARY_FOLDER, Real

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from filelock import BaseFileLock

    from pytest_kernelprof.device.inventory import Device


_fcntl: Any = None
with contextlib.suppress(ImportError):  # not on Windows
    _fcntl = importlib.import_module("fcntl")

FOR_ALL_USERS = 0o666
_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_HELD_BY_OTHERS = (errno.EACCES, errno.EAGAIN)


def can_share() -> bool:
    """Whether this system has locks that several processes hold at once."""
    return _fcntl is not None


def open_file(path: Path, how: int) -> int:
    """Open a file that anyone may have put there.

    Raises:
        OSError: it is none that could be opened without following or waiting for anything.
    """
    handle = Real.open_handle(path, _FLAGS | how)
    if not stat.S_ISREG(Real.fstat(handle).st_mode):  # a pipe has no end, nor has a device
        Real.close(handle)
        raise OSError(f"{path} is not a file")
    return handle


def open_or_make(path: Path, how: int) -> int:
    """Open a file, and make it for all users where there is none.

    Raises:
        OSError: neither can be done.
    """
    # Not with O_CREAT at once: of another user's file in a folder for all, Linux refuses that.
    with contextlib.suppress(FileNotFoundError):
        return open_file(path, how)
    try:
        handle = Real.open_handle(path, _FLAGS | how | os.O_CREAT | os.O_EXCL, FOR_ALL_USERS)
    except FileExistsError:  # somebody was faster
        return open_file(path, how)
    Real.chmod(path, FOR_ALL_USERS)  # the mode of a new file is cut by the umask
    return handle


class FileLock:
    """A lock on one file; this process holds nothing of it, its share, or all of it.

    Every method may raise ``OSError``: the file cannot be opened, or its system has no locks.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.handle = -1
        _locks.add(self)

    def opens(self) -> bool:
        """Open the file, if it is there; none is made."""
        try:
            self.handle = open_file(self.path, os.O_RDWR)
        except FileNotFoundError:
            return False
        return True

    def share(self) -> bool:
        """Hold it with others, if nobody has it alone."""
        return self._attempt(_fcntl.LOCK_SH)

    def take(self) -> bool:
        """Hold it alone, if nobody else holds any of it. What was held before may be lost in the
        attempt."""
        return self._attempt(_fcntl.LOCK_EX)

    def release(self) -> None:
        """Hold nothing of it any more."""
        handle, self.handle = self.handle, -1
        if handle >= 0:
            # Closing would do, but for children that were forked beside Python and have it open.
            with contextlib.suppress(OSError):
                _fcntl.flock(handle, _fcntl.LOCK_UN)
            Real.close(handle)

    def _attempt(self, how: int) -> bool:
        if self.handle < 0:
            self.handle = open_or_make(self.path, os.O_RDWR)
        try:
            _fcntl.flock(self.handle, how | _fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _HELD_BY_OTHERS:
                return False
            self.release()
            raise
        if self._is_the_file():
            return True
        self.release()  # who comes next would open another one
        return False

    def _is_the_file(self) -> bool:
        """Whether what is locked is still the file at its path: folders for all are swept."""
        mine = Real.fstat(self.handle)
        with contextlib.suppress(FileNotFoundError):
            there = Real.lstat(self.path)
            return (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino)
        return False


_locks: weakref.WeakSet[FileLock] = weakref.WeakSet()


def held_alone(path: Path) -> bool:
    """Whether somebody else has a file alone; False where that cannot be told."""
    return _refused(path, FileLock.share)


def held(path: Path) -> bool:
    """Whether somebody else has a file, alone or not; False where that cannot be told."""
    return _refused(path, FileLock.take)


def _refused(path: Path, how: Callable[[FileLock], bool]) -> bool:
    look = FileLock(path)
    try:
        return look.opens() and not how(look) and look.handle >= 0
    except OSError:
        return False
    finally:
        look.release()


def _hold_nothing() -> None:
    """In a forked child: the locks are its parent's, who may end before it does."""
    for lock in list(_locks):
        handle, lock.handle = lock.handle, -1
        if handle >= 0:
            with contextlib.suppress(OSError):
                Real.close(handle)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_hold_nothing)


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
        write(self._file.path, myself(who, self.token, owners))

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


def taken_by(folder: Path, uuid: str, but: str) -> Iterator[Note | None]:
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
            yield read(path)


def living(folder: Path, uuid: str) -> Iterator[tuple[Note, bool]]:
    """The notes of the processes that live and have a seat, and whether it is taken.

    Only of those that count processes as this one does: another container's numbers are others'.
    """
    with contextlib.suppress(OSError):
        for path, _ in _seats(folder, uuid):
            note = read(path)
            if note is not None and note.namespace == namespace() and held(path):
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
        write(self.note, myself(who))
        return True

    def _give_back(self) -> None:
        write(self.note, "")
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
        note = read(self.note)
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


_NEXT_S = 0.001
_MOST_NAMED = 4


class SharedLock(WholeLock):
    """What this process holds of it: its share while its code runs, all of it while it times."""

    def __init__(self, folder: Path, uuid: str) -> None:
        super().__init__(folder, uuid)
        self._token, self._owners = _identity(Real.getpid())
        self._turnstile = FileLock(folder / f"{uuid}.turn")
        self._room = FileLock(self.path)
        self._own = OwnSeat(folder, uuid, self._token)
        self._joined = 0
        self._covered = self._in_room = False
        self._stood: list[Seat] = []
        self._patient = True
        self._timeout_s = 0.0

    def join(self, timeout_s: float, who: str) -> None:
        """Sit, or go on without where there are no files or no locks."""
        self._joined += 1
        if self._joined == 1 and not self._alone:
            with contextlib.suppress(OSError):
                self._own.say(who, self._owners)
                self._sit(self._own, timeout_s)

    def leave(self) -> None:
        """Stand up."""
        self._joined -= 1
        if not self._joined and self._own.taken:
            with contextlib.suppress(OSError):
                self._own.stand()

    def stop(self) -> None:
        """Stand up, or leave the room."""
        with contextlib.suppress(OSError):
            if self._in_room:
                self._leave_room()
            elif self._own.taken:
                self._own.stand()

    def go_on(self, timeout_s: float, who: str) -> None:
        """What cannot be had back in time is gone; ``lost`` tells it of the room."""
        with contextlib.suppress(OSError):
            if self._alone and not self._covered:
                if not self._enter(now_s() + timeout_s, who):
                    self.lost = f"after a stop in the debugger the GPU {self._not_free(timeout_s)}"
            elif self._joined:
                self._own.say(who, self._owners)
                self._sit(self._own, timeout_s)

    def kept_at_rest(self) -> frozenset[int]:
        """While this process has the room, whoever lives and does not sit, and its owners."""
        if not self._in_room:
            return frozenset()
        found = living(self.folder, self.uuid)
        return frozenset(note.pid for note, sits in found if not sits or note.token in self._owners)

    def partners(self) -> frozenset[int]:
        """Of who is alone those that work for it, and of each of these the others and it itself.

        Only those that have a seat: of others nothing is known but what they do.
        """
        ours = self._owners if self._covered else (self._token,)
        return frozenset(
            note.pid
            for note, _ in living(self.folder, self.uuid)
            if note.token in ours or set(ours).intersection(note.owners)
        )

    def _take(self, timeout_s: float, who: str) -> bool:
        self._covered = self._owner_is_alone()
        if self._covered:
            return True
        self._timeout_s = timeout_s
        self._stood = list(self._seats())
        for seat in self._stood:
            seat.stand()
        entered = False
        try:
            entered = self._enter(now_s() + timeout_s, who)
        finally:
            if not entered:
                self._sit_again(0.0)
        return entered

    def _give_back(self) -> None:
        with contextlib.suppress(OSError):
            self._leave_room()
            self._sit_again(self._timeout_s)

    def _holders(self) -> Iterator[str]:
        if held_alone(self.path):
            yield from super()._holders()
        with contextlib.suppress(OSError):
            found = list(taken_by(self.folder, self.uuid, self._token))
            known = [note.words for note in found if note is not None]
            yield from known[:_MOST_NAMED]
            if len(found) > len(known[:_MOST_NAMED]):
                yield f"{len(found) - len(known[:_MOST_NAMED])} more"

    def _enter(self, deadline: float, who: str) -> bool:
        """Have the room alone, and all seats empty."""
        entered = False
        try:
            self._in_room = wait(self._turnstile.take, deadline, BEHIND_S) and wait(
                self._room.take, deadline, _NEXT_S
            )
            if self._in_room:
                self._turnstile.release()
                write(self.note, myself(who, self._token))
                entered = wait(self._all_stand, deadline, _NEXT_S)
        finally:
            self._turnstile.release()
            if not entered:
                self._leave_room()
        return entered

    def _leave_room(self) -> None:
        if self._in_room:
            write(self.note, "")
        self._in_room = False
        self._room.release()

    def _all_stand(self) -> bool:
        for seat in self._stood:  # who looked may have been in the way
            if seat is not self._own:
                seat.stand()
        return not any(True for _ in taken_by(self.folder, self.uuid, self._token))

    def _sit(self, seat: Seat, timeout_s: float) -> None:
        """Pass the turnstile and sit, or go on without: who times sees this process by its work.

        Who was kept out once does not wait again until it gets in: whoever is in the way is stuck.
        """
        deadline = now_s() + (timeout_s if self._patient else 0.0)
        try:
            self._patient = wait(
                lambda: self._turnstile.share() or self._may_pass(seat), deadline, BEHIND_S
            ) and wait(lambda: self._sits(seat), deadline, _NEXT_S)
        finally:
            self._turnstile.release()
            self._room.release()
        if not self._patient:
            seat.give_up()

    def _sits(self, seat: Seat) -> bool:
        """Look at the room once more from the seat: who takes it looks at the seats then. Before,
        so that who waits in it does not see somebody sit down and stand up again and again."""
        if not self._is_open(seat) or not seat.sit():
            return False
        if self._is_open(seat):
            return True
        seat.stand()
        return False

    def _is_open(self, seat: Seat) -> bool:
        """Whether nobody has the room, or it does not matter to this seat."""
        if self._room.share():
            self._room.release()
            return True
        return self._may_pass(seat)

    def _may_pass(self, seat: Seat) -> bool:
        """Whether nobody can have the room to itself but an owner: then one may sit at any time."""
        if seat is not self._own:
            return False
        sitting = (one for one in self._owners_that_sit() if not self._is_away(one))
        return any(True for _ in sitting) or self._owner_is_alone()

    def _sit_again(self, timeout_s: float) -> None:
        stood, self._stood = self._stood, []
        for seat in stood:
            if seat is not self._own or self._joined:
                self._sit(seat, timeout_s)

    def _seats(self) -> Iterator[Seat]:
        """What would keep this process from being alone, and is its own to give up."""
        for owner in self._owners_that_sit():
            yield OwnersSeat(self.folder, self.uuid, owner, self._token)
        if self._own.taken:
            yield self._own

    def _owners_that_sit(self) -> Iterator[str]:
        return (one for one in self._owners if is_taken(self.folder, self.uuid, one))

    def _is_away(self, owner: str) -> bool:
        return is_away(self.folder, self.uuid, owner)

    def _owner_is_alone(self) -> bool:
        if not self._owners or not held_alone(self.path):
            return False
        note = read(self.note)
        return note is not None and note.token in self._owners


def tell_children() -> None:
    """Children are told what the files of this process are called: they work for it."""
    _identity(Real.getpid())


@functools.cache
def _identity(process: int) -> tuple[str, tuple[str, ...]]:
    """What the files of this process are called, which its children are told, and those of the
    processes that it works for."""
    known = owners()
    token = f"{process}-{Real.urandom(4).hex()}"
    os.environ[PARTNER_OF] = ",".join((*known, token))
    return token, known


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


@dataclass(frozen=True, slots=True)
class _Stretch:
    """A stretch of code, and the locks that it shares by the index of their GPU."""

    who: str
    timeout_s: float
    process: int = field(default_factory=Real.getpid)
    locks: dict[int, WholeLock] = field(default_factory=dict)


_stretches: list[_Stretch] = []


def begin(who: str, timeout_s: float) -> None:
    """From here on code runs that may use the GPUs that are in use; wait for who times on them.

    Args:
        who: whose code it is, as others are told. timeout_s: how long to wait; then it runs anyway.
    """
    _stretches.append(_Stretch(who, timeout_s))
    if not _cuda_is_up():
        return
    try:
        with contextlib.suppress(RuntimeError):  # CUDA is broken: nothing runs on it
            for index in devices_in_use():
                _share(_stretches[-1], index)
    except BaseException:  # a time limit of the test, Ctrl-C
        end()
        raise


def end() -> None:
    """What began last is through: others may time once the device is done with it."""
    ended = _stretches.pop()
    if ended.locks and ended.process == Real.getpid():  # a forked child holds nothing
        finish_work()
        for lock in ended.locks.values():
            lock.leave()


@contextlib.contextmanager
def sharing(device: Device, timeout_s: float, who: str) -> Iterator[None]:
    """Share a GPU while the code that is measured runs on it; inside of a test until the test's
    fixture, call or teardown is through. Nothing on the CPU."""
    if device.kind != "cuda":
        yield
        return
    if _stretches:
        _share(_stretches[-1], device.index)
        yield
        return
    begin(who, timeout_s)
    try:
        _share(_stretches[-1], device.index)
        yield
    finally:
        end()


def stop() -> None:
    """A debugger has the process, for minutes or hours: nobody waits for it."""
    locks = _shared_locks()
    if locks:
        finish_work()
        for lock in locks:
            lock.stop()


def go_on() -> None:
    """The debugger lets it go on."""
    for lock in _shared_locks():
        lock.go_on(_stretches[-1].timeout_s, _stretches[-1].who)


@contextlib.contextmanager
def at_rest() -> Iterator[None]:
    """Share no GPU meanwhile: another process has it to itself, for this one, too."""
    stop()
    try:
        yield
    finally:
        go_on()


def finish_work() -> None:
    """Wait for what this process has queued: it must not run beside what another one times."""
    if _cuda_is_up() and not is_capturing():
        with contextlib.suppress(RuntimeError):  # CUDA is broken, and runs nothing
            synchronize_in_use()


def _shared_locks() -> list[WholeLock]:
    ours = [one for one in _stretches if one.process == Real.getpid()]
    return list({id(lock): lock for one in ours for lock in one.locks.values()}.values())


def _share(stretch: _Stretch, index: int) -> None:

    if index in stretch.locks:
        return
    with contextlib.suppress(GpuBusy, RuntimeError):  # no lock, no CUDA: its code runs all the same
        lock = lock_of(uuid_of_index(index))
        lock.join(stretch.timeout_s, stretch.who)
        stretch.locks[index] = lock


def _cuda_is_up() -> bool:
    torch = bound_already()
    return torch is not None and torch.is_initialized()
