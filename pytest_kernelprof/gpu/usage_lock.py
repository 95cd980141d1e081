"""The lock of a GPU: shared while code runs on it, exclusive while one process times.

One file for each GPU lies in a folder for all users of the machine. Processes lock bytes of it:

- ``_TURN`` is the queue. A process that wants to time holds it alone until it has the GPU; code
  that starts shares it until it has started. So a stream of code keeps no timing process waiting,
  and code that a stream of timing processes keeps waiting starts together, before the next of them.
- ``_ALONE``: the process that times, or that waits until all code rests. Each locks from its own
  byte to the last one, so two exclude each other, and the first byte tells which process it is.
- ``_LIVES``: one byte for each process for as long as it lives. Its number is the process's place.
- ``_RUNS``: the byte of its place, while the process's code runs.
- ``_WAITS``: the byte of an owner's place, shared by its partners that ask for the GPU alone.

A process has the GPU to itself when it holds ``_ALONE`` and no other code runs. Nobody goes from
shared to exclusive in one step, where two would wait for each other: its own code rests first.

A process that works for another one (a subprocess of a test, a rank) is its partner, and may run
whenever its owner does. If it had to wait until the owner rests, both would wait for each other.
While it asks for the GPU alone, its owner counts as at rest: an owner that waits for its partner
does nothing meanwhile.

The system frees these locks however a process ends, and shows them without taking them. A second
file has a note at each place: who the process is, in words.

A process that has not brought up CUDA holds nothing and pays nothing. One that brings it up inside
a test shares the GPU from its first measurement on, or from its next fixture, call or teardown.
"""

from __future__ import annotations

import contextlib
import functools
import getpass
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from pytest_kernelprof.errors import GpuBusy
from pytest_kernelprof.gpu import file_lock, inventory
from pytest_kernelprof.gpu.procfs import pid_namespace
from pytest_kernelprof.system import TEMPORARY_FOLDER, Real, now_s, sleep, unix_ns

if TYPE_CHECKING:
    from filelock import BaseFileLock

# Notes of processes.

_LONGEST_NAME = 200
_LONGEST_NOTE = 4096


class Note(msgspec.Struct, frozen=True):
    """What a process says about itself in a file. Anyone may have written it: it is only text.

    Attributes:
        pid: its number. namespace: where that number holds; empty where it holds everywhere.
        who: what it does, a test for example. user: whose it is. since: seconds since 1970.
        token: identifies the process. owners: the tokens of those that it works for.
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
        of = f" of user {_printable(self.user)}" if self.user else ""
        who = _printable(self.who) or "unnamed"
        return f"pid {self.pid}{of} ({who}) since {clock}, {minutes} min {seconds} s ago"


# One decoder for all threads: msgspec crashes where two are the first to look at a type.
_NOTE = msgspec.json.Decoder(Note)


def _write_note(
    path: Path, place: int, who: str, token: str = "", owners: tuple[str, ...] = ()
) -> None:
    """Write the note of this process in place: another user's file in this folder cannot be
    replaced. What cannot be written is left out: the lock holds all the same."""
    command = Path(sys.argv[0]).name if sys.argv else ""
    name, since = _printable(who or command), unix_ns() / 1e9
    note = Note(Real.getpid(), name, _user(), since, pid_namespace(), token, owners)
    text = msgspec.json.encode(note)[:_LONGEST_NOTE].ljust(_LONGEST_NOTE)
    with (
        contextlib.suppress(OSError),
        Real.file(file_lock.open_or_make(path, os.O_WRONLY), "w") as file,
    ):
        file.seek(place * _LONGEST_NOTE)
        file.write(text)


def _read_note(path: Path, place: int) -> Note | None:
    """The note at a place; None where there is none that can be read."""
    try:
        with Real.file(file_lock.open_file(path, os.O_RDONLY)) as file:
            file.seek(place * _LONGEST_NOTE)
            note = _NOTE.decode(file.read(_LONGEST_NOTE))
        return note if note.words else None  # a time that no clock shows cannot be told
    except (OSError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
        return None


@functools.cache
def _user() -> str:
    with contextlib.suppress(OSError, KeyError):  # a user id without a name, as in containers
        return _printable(getpass.getuser())
    return ""


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text[:_LONGEST_NAME])


# The lock of one GPU.

PARTNER_OF = "KERNELPROF_PARTNER_OF"
"""What children read in their environment: the tokens of the processes that they work for."""

_BEHIND_S = 0.006
"""How long a process that is not next in turn waits before it looks again, about: at no fixed pace,
so that all have the same chance to be next."""
_NEXT_S = 0.001
_MOST_NAMED = 4
_PLACES = 4096
# Where the bytes of each kind begin. Between two kinds a gap: the system joins what touches.
_TURN, _ALONE, _LIVES, _RUNS, _WAITS = range(0, 10 * _PLACES, 2 * _PLACES)


class NotFree(GpuBusy):
    """The time was up before the lock could be had."""


class OtherProcesses:
    """What is known of the other processes on a GPU beyond what NVML says: here nothing."""

    def kept_at_rest(self) -> frozenset[int]:
        """The numbers of the processes that the lock keeps from working now."""
        return frozenset()

    def partners(self) -> frozenset[int]:
        """The numbers of the processes that this one works for, and of those that work for them or
        for this one: their work belongs to what is timed."""
        return frozenset()


class GpuLock(OtherProcesses):
    """What this process holds of a GPU's lock: all of it, or nothing. That is all where the system
    has no locks that can be shared (Windows): other processes are seen by their work only.

    Attributes:
        lost: why it was not held for a while although nobody gave it back; empty where it was.
    """

    def __init__(self, folder: Path, uuid: str) -> None:
        self.lost = ""
        self.path = folder / f"{uuid}.lock"
        self._uuid = uuid
        self._notes = folder / f"{uuid}.notes"
        self._process = Real.getpid()
        self._taken = 0
        self._file: BaseFileLock | None = None

    def take(self, timeout_s: float, who: str, name: str = "GPU") -> None:
        """Have it alone; may be asked for again, and is given back as often.

        Raises:
            NotFree: the time is up, with who holds it.
            GpuBusy: it cannot be made, with the remedy.
        """
        if not self._taken:
            self.lost = ""
            try:
                had = self._take(timeout_s, who)
            except (OSError, NotImplementedError) as error:
                raise GpuBusy(_cannot_be_made(self.path, error)) from error
            if not had:
                raise NotFree(f"{name} ({self._uuid}) {self._not_free(timeout_s)}")
        self._taken += 1

    def give_back(self) -> None:
        """Have it alone no more. A child that was forked meanwhile never had it."""
        self._taken -= 1
        if not self._taken and self._process == Real.getpid():
            self._give_back()

    def _take(self, timeout_s: float, who: str) -> bool:
        from filelock import FileLock, Timeout

        lock = FileLock(self.path, mode=file_lock.FOR_ALL_USERS, thread_local=False)

        def attempt() -> bool:
            with contextlib.suppress(Timeout):
                lock.acquire(timeout=0)
                return True
            return False

        if not _wait(attempt, now_s() + timeout_s, _BEHIND_S):
            return False
        self._file = lock
        _write_note(self._notes, 0, who)
        return True

    def _give_back(self) -> None:
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

    def _holders(self) -> list[str]:
        note = _read_note(self._notes, 0)
        return [] if note is None else [note.words]


class SharedGpuLock(GpuLock):
    """What this process holds of it: its share while its code runs, all of it while it times.

    Attributes:
        shares: whether others wait for the code of this process.
    """

    def __init__(self, folder: Path, uuid: str) -> None:
        super().__init__(folder, uuid)
        self._token, self._owners = _identity(Real.getpid())
        self._bytes = file_lock.ByteLocks(self.path)
        self._place = -1
        self._waiting: list[int] = []
        self._noted = ""
        self.shares = False
        self._joined = 0
        self._under_owner = self._alone = False
        self._patient = True
        self._timeout_s = 0.0

    def join(self, timeout_s: float, who: str) -> None:
        """Share it, or go on without where there are no files or no locks; may be asked for again,
        and is left as often."""
        self._joined += 1
        if self._joined == 1 and not self._taken:
            self._say_and_start(timeout_s, who)

    def leave(self) -> None:
        """The code has run, and the device is done: come to rest."""
        self._joined -= 1
        if not self._joined and self.shares:
            self._rest()

    def stop(self) -> None:
        """Come to rest, or time no more, while a debugger has the process."""
        if self._alone:
            self._leave_alone()
        elif self.shares:
            self._rest()

    def go_on(self, timeout_s: float, who: str) -> None:
        """Have it back. What cannot be had back in time is gone; ``lost`` says so where it was held
        alone."""
        if self._taken and not self._under_owner:
            with contextlib.suppress(OSError):
                if not self._enter(now_s() + timeout_s, who):
                    self.lost = f"after a stop in the debugger the GPU {self._not_free(timeout_s)}"
        elif self._joined:
            self._say_and_start(timeout_s, who)

    def kept_at_rest(self) -> frozenset[int]:
        """While this process times: each other one that lives and does not run, and its owners."""
        if not self._alone:
            return frozenset()
        found = [note for note, runs in self._living() if not runs or note.token in self._owners]
        return frozenset(note.pid for note in found)

    def partners(self) -> frozenset[int]:
        """Of one that times those that work for it, and of each of these the others and the owner.

        Only those with a note: of others nothing is known but what they do.
        """
        ours = self._owners if self._under_owner else (self._token,)
        found = (note for note, _ in self._living())
        return frozenset(
            note.pid for note in found if not {note.token, *note.owners}.isdisjoint(ours)
        )

    def _take(self, timeout_s: float, who: str) -> bool:
        self._open()
        self._under_owner = bool(self._owners_at(_ALONE))
        if self._under_owner:
            return True
        self._timeout_s = timeout_s
        self._waiting = self._owners_at(_RUNS)
        if self.shares:
            self._rest()
        entered = False
        try:
            entered = self._enter(now_s() + timeout_s, who)
        finally:
            if not entered:
                self._start(0.0)
        return entered

    def _give_back(self) -> None:
        if self._under_owner:  # its owner has the lock, and it came to rest for nobody
            return
        with contextlib.suppress(OSError):
            self._leave_alone()
            self._start(self._timeout_s)

    def _holders(self) -> list[str]:
        with contextlib.suppress(OSError):
            running, known = self._others_that_run(), self._known(_RUNS)
            named = [known[place] for place in running if place in known][:_MOST_NAMED]
            words = [note.words for note in (*self._known(_ALONE).values(), *named)]
            more = len(running) - len(named)
            return [*words, *([f"{more} more"] if more else [])]
        return []

    def _enter(self, deadline: float, who: str) -> bool:
        """Hold the lock, and wait until no other code runs."""
        own, last = _ALONE + self._place, _ALONE + _PLACES
        entered = False
        try:
            self._have_owners_rest()
            self._alone = _wait(lambda: self._bytes.hold(_TURN), deadline, _BEHIND_S) and _wait(
                lambda: self._bytes.hold(own, last), deadline, _NEXT_S
            )
            if self._alone:
                self._bytes.free(_TURN)
                self._say(who)
                entered = _wait(lambda: not self._others_that_run(), deadline, _NEXT_S)
        finally:
            self._bytes.free(_TURN)
            if not entered:
                self._leave_alone()
        return entered

    def _leave_alone(self) -> None:
        self._alone = False
        self._bytes.free(_ALONE, _ALONE + _PLACES)

    def _have_owners_rest(self) -> None:
        for place in self._waiting:
            self._bytes.hold(_WAITS + place, alone=False)

    def _have_owners_run(self) -> None:
        self._bytes.free(_WAITS, _WAITS + _PLACES)

    def _open(self) -> None:
        """Have the file open, and a place in it. Folders for all are swept: then both are new.

        Raises:
            OSError: it cannot be opened, or locked.
        """
        if self._place >= 0 and self._bytes.is_open():
            return
        self._bytes.open()
        self._place = next((one for one in range(_PLACES) if self._bytes.hold(_LIVES + one)), -1)
        if self._place < 0:
            raise OSError(f"{_PLACES} processes use it")
        self._say("")

    def _say(self, who: str) -> None:
        """Note what this process does, and for whom."""
        self._noted = who
        _write_note(self._notes, self._place, who, self._token, self._owners)

    def _say_and_start(self, timeout_s: float, who: str) -> None:
        """Note what this process does, once for all that a test does; then start."""
        with contextlib.suppress(OSError):
            self._open()
            if not who or who != self._noted:
                self._say(who)
            self._start(timeout_s)

    def _start(self, timeout_s: float) -> None:
        """Pass the queue and start, with the owners that count as at rest; or go on without: who
        times sees this process by its work.

        Who was kept out once does not wait again until it gets in: whoever is in the way is stuck.
        """
        if not self._waiting and not self._joined:
            return
        deadline = now_s() + (timeout_s if self._patient else 0.0)
        try:
            self._patient = _wait(self._is_next, deadline, _BEHIND_S) and _wait(
                self._starts, deadline, _NEXT_S
            )
        finally:
            self._bytes.free(_TURN)
            self._have_owners_run()
            self._waiting = []
        if self._joined and not self._patient:
            if self._may_pass():
                self._run()
            else:
                self._rest()

    def _is_next(self) -> bool:
        return self._bytes.hold(_TURN, alone=False) or self._may_pass()

    def _starts(self) -> bool:
        """Look once more whether it is open after the start: who has taken the lock meanwhile looks
        at who runs. And before it, so that one that waits does not see others start and stop."""
        if not self._is_open():
            return False
        if self._joined:
            self._run()
        self._have_owners_run()
        if self._is_open():
            return True
        if self._joined:
            self._rest()
        self._have_owners_rest()
        return False

    def _run(self) -> None:
        """Have others wait for the code of this process."""
        self.shares = self._bytes.hold(_RUNS + self._place)

    def _rest(self) -> None:
        """The code of this process rests; the process lives on."""
        self.shares = False
        with contextlib.suppress(OSError):
            self._bytes.free(_RUNS + self._place)

    def _is_open(self) -> bool:
        """Whether nobody times, or it does not matter to this process."""
        return not self._others(_ALONE) or self._may_pass()

    def _may_pass(self) -> bool:
        """Whether nobody but an owner can have the GPU to itself. Then one may start at any time,
        but not where this process has its owners rest."""
        if self._waiting:
            return False
        owners_wait = all(map(self._is_waiting, self._owners_at(_RUNS)))
        return not owners_wait or bool(self._owners_at(_ALONE))

    def _owners_at(self, kind: int) -> list[int]:
        """The places of this process's owners that hold a byte of a kind."""
        if not self._owners:
            return []
        return [place for place, one in self._known(kind).items() if one.token in self._owners]

    def _is_waiting(self, place: int) -> bool:
        """Whether a partner has the process at that place count as at rest."""
        return place in self._waiting or any(self._bytes.held(_WAITS + place, _WAITS + place))

    def _others_that_run(self) -> list[int]:
        """The places of the other processes whose code runs."""
        return [place for place in self._others(_RUNS) if not self._is_waiting(place)]

    def _living(self) -> list[tuple[Note, bool]]:
        """The notes of the other processes that live, and whether their code runs.

        Only of those that count processes as this one does: in another container the numbers are
        those of other processes.
        """
        with contextlib.suppress(OSError, ValueError):  # nothing is open yet
            running, living = self._others(_RUNS), self._known(_LIVES).items()
            ours = ((place, note) for place, note in living if note.namespace == pid_namespace())
            return [(note, place in running) for place, note in ours]
        return []

    def _known(self, kind: int) -> dict[int, Note]:
        """The notes of the other processes that hold a byte of a kind, if they can be read."""
        notes = {place: _read_note(self._notes, place) for place in self._others(kind)}
        return {place: note for place, note in notes.items() if note is not None}

    def _others(self, kind: int) -> list[int]:
        """The places of the other processes that hold a byte of a kind."""
        return sorted(byte - kind for byte in self._bytes.held(kind, kind + _PLACES))


def _wait(attempt: Callable[[], bool], deadline: float, pause_s: float) -> bool:
    """Wait for something, and say whether it was had in time: by our own clock, since a test may
    stop the one that others wait by. It is tried once in any case."""
    while not attempt():
        if now_s() >= deadline:
            return False
        sleep(pause_s * (0.5 + Real.urandom(1)[0] / 255))
    return True


def _cannot_be_made(path: Path, error: Exception) -> str:
    """Why there is no lock, and what to do."""
    reason = getattr(error, "strerror", None) or error
    return (
        f"the lock of the GPU cannot be created: {path}: {reason}. Make its folder writable for "
        f"all (chmod 1777 {path.parent if path.suffix else path}), or set TMPDIR to a writable "
        "folder, the same one for all who measure on this machine"
    )


def tell_children() -> None:
    """Tell children the token of this process: they work for it."""
    _identity(Real.getpid())


@functools.cache
def _identity(process: int) -> tuple[str, tuple[str, ...]]:
    """The token of this process, which its children are told, and those of the processes that it
    works for."""
    owners = tuple(filter(None, os.environ.get(PARTNER_OF, "").split(",")))
    token = f"{process}-{Real.urandom(4).hex()}"
    os.environ[PARTNER_OF] = ",".join((*owners, token))
    return token, owners


# The locks of all GPUs.


def gpu_lock(
    device: inventory.Device, timeout_s: float, who: str = ""
) -> contextlib.AbstractContextManager[GpuLock]:
    """Have the GPU alone.

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
    return lock_by_uuid(inventory.gpu_uuid(device.index), timeout_s, who, device.name)


@contextlib.contextmanager
def lock_by_uuid(
    uuid: str, timeout_s: float, who: str = "", name: str = "GPU"
) -> Iterator[GpuLock]:
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


def lock_of(uuid: str) -> GpuLock:
    """This process's hold of a GPU's lock. A forked child has its own, and holds nothing.

    Raises:
        GpuBusy: it cannot be made, with the remedy.
    """
    return _lock(Real.getpid(), _folder(), uuid, file_lock.can_lock_bytes())


@functools.cache
def _lock(process: int, folder: Path, uuid: str, shared: bool) -> GpuLock:
    """One object per process and GPU, since it counts how often it is held."""
    return SharedGpuLock(folder, uuid) if shared else GpuLock(folder, uuid)


def _folder() -> Path:
    """The folder of the locks, made for all users: each may lock, none may remove another's."""
    folder = Path(TEMPORARY_FOLDER) / "kernelprof-locks"
    try:
        if not TEMPORARY_FOLDER:
            raise FileNotFoundError("there was no temporary folder at the start")
        with contextlib.suppress(FileExistsError):
            Real.mkdir(folder)
            Real.chmod(folder, 0o777 | stat.S_ISVTX)  # mkdir's own mode is cut by the umask
        mode = Real.lstat(folder).st_mode
    except OSError as error:
        raise GpuBusy(_cannot_be_made(folder, error)) from error
    if not stat.S_ISDIR(mode):  # also a link, which somebody may have put there to mislead
        raise GpuBusy(_cannot_be_made(folder, NotADirectoryError("it is not a folder")))
    return folder


@dataclass(frozen=True, slots=True)
class _Stretch:
    """A stretch of code, and the locks that it shares by the index of their GPU."""

    who: str
    timeout_s: float
    process: int = field(default_factory=Real.getpid)
    locks: dict[int, SharedGpuLock] = field(default_factory=dict)


_stretches: list[_Stretch] = []


def begin(who: str, timeout_s: float) -> None:
    """From here on code runs that may use the GPUs that are in use; wait for who times on them.

    Args:
        who: whose code it is, as others are told. timeout_s: how long to wait; then it runs anyway.
    """
    _stretches.append(_Stretch(who, timeout_s))
    try:
        with contextlib.suppress(RuntimeError):  # CUDA is broken: nothing runs on it
            for index in inventory.devices_in_use():
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
def sharing(device: inventory.Device, timeout_s: float, who: str) -> Iterator[None]:
    """Share a GPU while the code that is measured runs on it; inside of a test until the test's
    fixture, call or teardown is through. Nothing on the CPU."""
    if device.kind != "cuda":
        yield
        return
    with contextlib.ExitStack() as ending:
        if not _stretches:
            begin(who, timeout_s)
            ending.callback(end)
        _share(_stretches[-1], device.index)
        yield


def stop() -> None:
    """A debugger has the process, for minutes or hours: nobody waits for it."""
    if locks := _shared_locks():
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
    if not inventory.is_capturing():
        with contextlib.suppress(RuntimeError):  # CUDA is broken, and runs nothing
            inventory.synchronize_in_use()


def _shared_locks() -> list[SharedGpuLock]:
    ours = [one for one in _stretches if one.process == Real.getpid()]
    return list({id(lock): lock for one in ours for lock in one.locks.values()}.values())


def _share(stretch: _Stretch, index: int) -> None:
    if index in stretch.locks:
        return
    with contextlib.suppress(GpuBusy, RuntimeError):  # no lock, no CUDA: its code runs all the same
        lock = lock_of(inventory.gpu_uuid(index))
        if isinstance(lock, SharedGpuLock):
            lock.join(stretch.timeout_s, stretch.who)
            stretch.locks[index] = lock
