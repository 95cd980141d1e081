"""The lock of a GPU: shared while code runs on it, exclusive while one process times.

The files of a GPU lie in a folder for all users of the machine and begin with its UUID:

- ``.lock`` is held by the process that times, or that waits until it may. ``.holder`` names it.
- ``.turn`` is the queue before that. A process that wants to time holds it alone until it has
  ``.lock``; code that is to start shares it until it has started. So a stream of code keeps no
  timing process waiting, and code that a stream of timing processes keeps waiting starts together,
  before the next of them.
- ``.TOKEN.user`` is one for each process. It is held alone while the process's code runs, shared
  while the process is at rest, and by nobody once the process is gone. Its text is a note.

A process has the GPU to itself when it holds ``.lock`` and no other code runs. Nobody goes from
shared to exclusive in one step, where two would wait for each other: its own code rests first.

A process that works for another one (a subprocess of a test, a rank) is its partner, and may run
whenever its owner does. If it had to wait until the owner rests, both would wait for each other.
While it asks for the GPU alone, its owner counts as at rest: an owner that waits for its partner
does nothing meanwhile. Each partner holds a file of its own for that, and holds it alone. So who
looks only shares the file, and nobody who looks can be taken for a partner.

A process that has not brought up CUDA holds nothing and pays nothing. One that brings it up inside
a test shares the GPU from its first measurement on, or from its next fixture, call or teardown.
"""

from __future__ import annotations

import atexit
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

from pytest_kernelprof.device.bindings import bound_already
from pytest_kernelprof.device.file_lock import (
    FOR_ALL_USERS,
    FileLock,
    can_share,
    held_alone,
    is_refused,
    open_file,
    open_or_make,
)
from pytest_kernelprof.device.inventory import (
    Device,
    devices_in_use,
    gpu_uuid,
    is_capturing,
    synchronize_in_use,
    uuid_of_index,
)
from pytest_kernelprof.errors import GpuBusy
from pytest_kernelprof.system import TEMPORARY_FOLDER, Real, now_s, sleep, unix_ns

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from filelock import BaseFileLock

# Notes of processes.

_LONGEST_NAME = 200
_LONGEST_NOTE = 4096


class Note(msgspec.Struct, frozen=True):
    """What a process says about itself in a file. Anyone may have written it: it is only text.

    Attributes:
        pid: its number. namespace: where that number holds; empty where it holds everywhere.
        who: what it does, a test for example. user: whose it is. since: seconds since 1970.
        token: identifies the process in names of files. owners: the tokens of those it works for.
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


def _write_note(path: Path, who: str, token: str = "", owners: tuple[str, ...] = ()) -> None:
    """Write the note of this process."""
    command = Path(sys.argv[0]).name if sys.argv else ""
    name, since = _printable(who or command), unix_ns() / 1e9
    note = Note(Real.getpid(), name, _user(), since, _namespace(), token, owners)
    _write(path, msgspec.json.encode(note))


def _write(path: Path, text: bytes) -> None:
    """Write a file in place: another user's in this folder cannot be replaced.

    What cannot be written is left out: the lock holds all the same.
    """
    with contextlib.suppress(OSError), Real.file(open_or_make(path, os.O_WRONLY), "w") as file:
        file.truncate(0)
        file.write(text)


def _read_note(path: Path) -> Note | None:
    """A note; None where there is none that can be read."""
    try:
        with Real.file(open_file(path, os.O_RDONLY)) as file:
            note = _NOTE.decode(file.read(_LONGEST_NOTE))
        return note if note.words else None  # a time that no clock shows cannot be told
    except (OSError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
        return None


@functools.cache
def _namespace() -> str:
    """Where numbers of processes mean the same as for this one, as Linux names it."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


@functools.cache
def _user() -> str:
    try:
        return _printable(getpass.getuser())
    except (OSError, KeyError):  # a user id without a name, as in containers
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
_TRIES = 50
_RETRY_S = 0.001
_USER, _AWAY = ".user", ".away"


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
        self._folder, self._uuid = folder, uuid
        self._holder = folder / f"{uuid}.holder"
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

    def join(self, timeout_s: float, who: str) -> None:
        """Share it; may be asked for again, and is left as often. Who cannot goes on as well."""

    def leave(self) -> None:
        """The code has run, and the device is done."""

    def stop(self) -> None:
        """Give up what is held while a debugger has the process."""

    def go_on(self, timeout_s: float, who: str) -> None:
        """Have it back."""

    def _take(self, timeout_s: float, who: str) -> bool:
        from filelock import FileLock, Timeout

        lock = FileLock(self.path, mode=FOR_ALL_USERS, thread_local=False)

        def attempt() -> bool:
            with contextlib.suppress(Timeout):
                lock.acquire(timeout=0)
                return True
            return False

        if not _wait(attempt, now_s() + timeout_s, _BEHIND_S):
            return False
        self._file = lock
        _write_note(self._holder, who)
        return True

    def _give_back(self) -> None:
        _write(self._holder, b"")
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
        note = _read_note(self._holder)
        return [] if note is None else [note.words]


class SharedGpuLock(GpuLock):
    """What this process holds of it: its share while its code runs, all of it while it times.

    Attributes:
        shares: whether others wait for the code of this process.
    """

    def __init__(self, folder: Path, uuid: str) -> None:
        super().__init__(folder, uuid)
        self._token, self._owners = _identity(Real.getpid())
        self._turn, self._lock = FileLock(folder / f"{uuid}.turn"), FileLock(self.path)
        self._own = FileLock(folder / f"{uuid}.{self._token}{_USER}")
        self._away: list[FileLock] = []
        self._noted = ""
        self.shares = False
        self._joined = 0
        self._under_owner = self._alone = False
        self._patient = True
        self._timeout_s = 0.0
        atexit.register(self._remove)

    def join(self, timeout_s: float, who: str) -> None:
        """Share it, or go on without where there are no files or no locks."""
        self._joined += 1
        if self._joined == 1 and not self._taken:
            self._say_and_start(timeout_s, who)

    def leave(self) -> None:
        """Come to rest."""
        self._joined -= 1
        if not self._joined and self.shares:
            self._rest()

    def stop(self) -> None:
        """Come to rest, or time no more."""
        if self._alone:
            self._leave_alone()
        elif self.shares:
            self._rest()

    def go_on(self, timeout_s: float, who: str) -> None:
        """What cannot be had back in time is gone; ``lost`` says so where it was held alone."""
        if self._taken and not self._under_owner:
            with contextlib.suppress(OSError):
                if not self._enter(now_s() + timeout_s, who):
                    self.lost = f"after a stop in the debugger the GPU {self._not_free(timeout_s)}"
        elif self._joined:
            self._say_and_start(timeout_s, who)

    def kept_at_rest(self) -> frozenset[int]:
        """While this process times: whoever lives and does not run, and its owners."""
        if not self._alone:
            return frozenset()
        found = [note for note, runs in self._living() if not runs or note.token in self._owners]
        return frozenset(note.pid for note in found)

    def partners(self) -> frozenset[int]:
        """Of one that times those that work for it, and of each of these the others and it itself.

        Only those with a note: of others nothing is known but what they do.
        """
        ours = self._owners if self._under_owner else (self._token,)
        found = (note for note, _ in self._living())
        return frozenset(
            note.pid for note in found if not {note.token, *note.owners}.isdisjoint(ours)
        )

    def _take(self, timeout_s: float, who: str) -> bool:
        self._under_owner = self._owner_is_alone()
        if self._under_owner:
            return True
        self._timeout_s = timeout_s
        self._away = [FileLock(self._file_of(one, self._token + _AWAY)) for one in self._running()]
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
        found = super()._holders() if held_alone(self.path) else []
        with contextlib.suppress(OSError):
            running = list(self._others_that_run())
            named = [note.words for note in running if note is not None][:_MOST_NAMED]
            more = len(running) - len(named)
            found += [*named, *([f"{more} more"] if more else [])]
        return found

    def _enter(self, deadline: float, who: str) -> bool:
        """Hold the lock, and wait until no other code runs."""
        entered = False
        try:
            self._have_owners_rest()
            self._alone = _wait(self._turn.take, deadline, _BEHIND_S) and _wait(
                self._lock.take, deadline, _NEXT_S
            )
            if self._alone:
                self._turn.release()
                _write_note(self._holder, who, self._token)
                entered = _wait(self._all_rest, deadline, _NEXT_S)
        finally:
            self._turn.release()
            if not entered:
                self._leave_alone()
        return entered

    def _leave_alone(self) -> None:
        if self._alone:
            _write(self._holder, b"")
        self._alone = False
        self._lock.release()

    def _all_rest(self) -> bool:
        self._have_owners_rest()
        return not any(True for _ in self._others_that_run())

    def _have_owners_rest(self) -> None:
        """Ask again as long as it matters: who looks may be in the way, for long on a busy
        machine."""
        for one in self._away:
            _insist(one.take)

    def _say_and_start(self, timeout_s: float, who: str) -> None:
        """Note what this process does, and for whom, once for all that a test does; then start."""
        with contextlib.suppress(OSError):
            if not who or who != self._noted:
                self._noted = who
                _write_note(self._own.path, who, self._token, self._owners)
            self._start(timeout_s)

    def _start(self, timeout_s: float) -> None:
        """Pass the queue and start, with the owners that count as at rest; or go on without: who
        times sees this process by its work.

        Who was kept out once does not wait again until it gets in: whoever is in the way is stuck.
        """
        if not self._away and not self._joined:
            return
        deadline = now_s() + (timeout_s if self._patient else 0.0)
        try:
            self._patient = _wait(
                lambda: self._turn.share() or self._may_pass(), deadline, _BEHIND_S
            ) and _wait(self._starts, deadline, _NEXT_S)
        finally:
            self._turn.release()
            self._lock.release()
            for one in self._away:
                one.release()
            self._away = []
        late = self._joined and not self._patient
        if late and not (self._may_pass() and self._run()):
            self._rest()

    def _starts(self) -> bool:
        """Look once more whether it is open after the start: who has taken the lock meanwhile looks
        at who runs. And before it, so that one that waits does not see others start and stop."""
        if not self._is_open() or (self._joined and not self._run()):
            return False
        for one in self._away:
            one.release()
        if self._is_open():
            return True
        if self._joined:
            self._rest()
        self._have_owners_rest()
        return False

    def _run(self) -> bool:
        """Have others wait for the code of this process. Whoever looks whether it runs shares the
        file for that moment."""
        self.shares = _insist(self._own.take)
        return self.shares

    def _rest(self) -> None:
        """The code of this process rests; the process lives on."""
        self.shares = False
        with contextlib.suppress(OSError):
            _insist(self._own.share)

    def _is_open(self) -> bool:
        """Whether nobody times, or it does not matter to this process."""
        if self._lock.share():
            self._lock.release()
            return True
        return self._may_pass()

    def _may_pass(self) -> bool:
        """Whether nobody but an owner can have the GPU to itself. Then one may start at any time,
        but not where this process has its owners rest."""
        if self._away:
            return False
        return not all(map(self._is_away, self._running())) or self._owner_is_alone()

    def _owner_is_alone(self) -> bool:
        if not self._owners or not held_alone(self.path):
            return False
        note = _read_note(self._holder)
        return note is not None and note.token in self._owners

    def _running(self) -> list[str]:
        """The owners whose code runs, or would but for a partner."""
        return [one for one in self._owners if held_alone(self._file_of(one, _USER[1:]))]

    def _is_away(self, owner: str) -> bool:
        """Whether a partner has the process of that token count as at rest."""
        return any(map(held_alone, self._files(f"{owner}.", _AWAY)))

    def _others_that_run(self) -> Iterator[Note | None]:
        """The note of each other process whose code runs; None of one that left none. Files of
        processes that are gone are removed.

        Raises:
            OSError: the folder cannot be read.
        """
        for path in self._files("", _USER):
            token = path.name[len(self._uuid) + 1 : -len(_USER)]
            if token == self._token:
                continue
            if not held_alone(path):
                self._remove_if_gone(path, token)
            elif not self._is_away(token):
                yield _read_note(path)

    def _living(self) -> Iterator[tuple[Note, bool]]:
        """The notes of the processes that live, and whether their code runs.

        Only of those that count processes as this one does: in another container the numbers are
        those of other processes.
        """
        with contextlib.suppress(OSError):
            for path in self._files("", _USER):
                note = _read_note(path)
                if note is None or note.namespace != _namespace():
                    continue
                if is_refused(path, FileLock.take):
                    yield note, held_alone(path)

    def _remove_if_gone(self, path: Path, token: str) -> None:
        """While nobody holds it. Who is about to start sees that its file is gone, and makes
        another."""
        look = FileLock(path)
        with contextlib.suppress(OSError):
            if look.opens() and look.take():
                for one in (path, *self._files(f"{token}.", _AWAY)):
                    Real.unlink(one)
        look.release()

    def _files(self, start: str, end: str) -> list[Path]:
        start = f"{self._uuid}.{start}"
        names = sorted(Real.listdir(self._folder))
        return [self._folder / one for one in names if one.startswith(start) and one.endswith(end)]

    def _file_of(self, owner: str, name: str) -> Path:
        return self._folder / f"{self._uuid}.{owner}.{name}"

    def _remove(self) -> None:
        if Real.getpid() == self._process:  # and not a child of it
            self._own.release()
            with contextlib.suppress(OSError):
                Real.unlink(self._own.path)


def _wait(attempt: Callable[[], bool], deadline: float, pause_s: float) -> bool:
    """Wait for something, and say whether it was had in time: by our own clock, since a test may
    stop the one that others wait by. It is tried once in any case."""
    while not attempt():
        if now_s() >= deadline:
            return False
        sleep(pause_s * (0.5 + Real.urandom(1)[0] / 255))
    return True


def _insist(attempt: Callable[[], bool]) -> bool:
    """Try until it is had; whoever is in the way only looks, and is gone in microseconds."""
    for _ in range(_TRIES):
        if attempt():
            return True
        sleep(_RETRY_S)
    return False


def _cannot_be_made(path: Path, error: Exception) -> str:
    """Why there is no lock, and what to do."""
    reason = getattr(error, "strerror", None) or error
    return (
        f"the lock of the GPU cannot be created: {path}: {reason}. Make its folder writable for "
        f"all (chmod 1777 {path.parent if path.suffix else path}), or set TMPDIR to a writable "
        "folder, the same one for all who measure on this machine"
    )


def tell_children() -> None:
    """Tell children what the files of this process are called: they work for it."""
    _identity(Real.getpid())


@functools.cache
def _identity(process: int) -> tuple[str, tuple[str, ...]]:
    """What the files of this process are called, which its children are told, and those of the
    processes that it works for."""
    owners = tuple(filter(None, os.environ.get(PARTNER_OF, "").split(",")))
    token = f"{process}-{Real.urandom(4).hex()}"
    os.environ[PARTNER_OF] = ",".join((*owners, token))
    return token, owners


# The locks of all GPUs.

_FOLDER = "kernelprof-locks"


def gpu_lock(
    device: Device, timeout_s: float, who: str = ""
) -> AbstractContextManager[GpuLock | None]:
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
        return contextlib.nullcontext()
    return lock_by_uuid(gpu_uuid(device), timeout_s, who, device.name)


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
    return _lock(Real.getpid(), _folder(), uuid, can_share())


@functools.cache
def _lock(process: int, folder: Path, uuid: str, shared: bool) -> GpuLock:
    """One object per process and GPU, since it counts how often it is held."""
    return SharedGpuLock(folder, uuid) if shared else GpuLock(folder, uuid)


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
    locks: dict[int, GpuLock] = field(default_factory=dict)


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
    with contextlib.ExitStack() as ending:
        if not _stretches:
            begin(who, timeout_s)
            ending.callback(end)
        _share(_stretches[-1], device.index)
        yield


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


def _shared_locks() -> list[GpuLock]:
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
