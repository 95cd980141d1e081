"""Ranks of ``torch.distributed`` that make one call together: who they are, how they agree.

What each rank has seen is told to all before any of them goes on. They meet in the default store: a
group of our own would need all ranks, in order, and would be gone with the first that times out.
torch's functions are not asked for its groups: tests of code for several ranks
patch them, to run on one.

The thread that measures may wait in a collective or for the device. The thread of a ``Watchdog``
checks whether another rank is lost, and whether the wait is too long. Then it aborts the
collective.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

from pytest_kernelprof.distributed import rendezvous
from pytest_kernelprof.errors import IncompleteProfile, MarkerError, said_by
from pytest_kernelprof.gpu.allocation import lock_all
from pytest_kernelprof.gpu.inventory import Device, gpu_uuid, load_torch
from pytest_kernelprof.gpu.usage_lock import GpuLock, NotFree, at_rest, gpu_lock
from pytest_kernelprof.system import Real, now_s, sleep

_FORM = "group= takes a torch.distributed group that this rank is in, or ranks, such as [0, 1]"


class World(NamedTuple):
    """The ranks of the default group.

    Attributes:
        c10d: torch's module of process groups. group: the default one.
    """

    c10d: ModuleType
    group: Any

    @property
    def rank(self) -> int:
        """The number of this one."""
        return int(self.group.rank())

    @property
    def size(self) -> int:
        """How many they are."""
        return int(self.group.size())

    @property
    def is_made_up(self) -> bool:
        """Whether only this rank exists: the backend ``fake`` stands for the others."""
        config = self.c10d._world.pg_backend_config.get(self.group, "")
        return {one.rpartition(":")[2] for one in str(config).split(",")} == {"fake"}

    @property
    def is_of_threads(self) -> bool:
        """Whether they are threads of this process, as PyTorch's MultiThreadedTestCase has them."""
        name = self.c10d._world.pg_map[self.group][0]
        return type(self.c10d._world).__name__ != "_World" or name == "threaded"

    @property
    def store(self) -> Any:
        """The default store of the group, under a prefix of ours.

        Raises:
            IncompleteProfile: the group has none, as with MPI.
        """
        name, store = self.c10d._world.pg_map[self.group]
        if store is None:
            raise IncompleteProfile(
                f"ranks agree through the store of torch.distributed, and the backend {name} has "
                "none: initialise it with nccl or gloo"
            )
        return self.c10d.PrefixStore("kernelprof", store)

    def ranks_of(self, group: object) -> tuple[int, ...]:
        """Those that a group names, in order.

        Raises:
            MarkerError: it is no group and no ranks, or this rank is not among them.
        """
        if group is None:
            return tuple(range(self.size))
        ranks = self._named(group)
        if self.rank not in ranks:
            raise MarkerError(f"group={group!r}: this is rank {self.rank}, not in it. {_FORM}")
        return ranks

    def _named(self, group: object) -> tuple[int, ...]:
        if isinstance(group, Sequence) and not isinstance(group, str):
            known = range(self.size)
            if group and all(isinstance(one, int) and one in known for one in group):
                return tuple(sorted(set(group)))
            raise MarkerError(f"group={group!r}: expected ranks below {len(known)}. {_FORM}")
        if isinstance(group, self.c10d.ProcessGroup):
            return tuple(sorted(self.c10d._world.pg_group_ranks.get(group, ())))
        raise MarkerError(f"group={group!r}: got {type(group).__name__}. {_FORM}")

    def backends(self, name: str) -> Iterator[Any]:
        """The backends of that name of all groups that this rank is in."""
        torch = sys.modules["torch"]
        for group in list(self.c10d._world.pg_map):
            for device in ("cpu", "cuda"):
                with contextlib.suppress(RuntimeError, AttributeError):
                    backend = group._get_backend(torch.device(device))
                    if backend.name() == name:
                        yield backend


def world_of_several() -> World | None:
    """The ranks of this program, where it has several; torch is not imported."""
    found = _initialised()
    return None if found is None or found.size < 2 or found.is_made_up else found


def taking_part(group: object) -> tuple[int, ...]:
    """The ranks that make a call together: those of a group, by default all.

    Raises:
        MarkerError: ``group`` is no group and no ranks, or this rank is not among them.
        IncompleteProfile: ranks are threads.
    """
    ranks = world_of_several()
    if ranks is None:
        if group is None or (isinstance(group, Sequence) and list(group) == [0]):
            return (0,)
        only = _initialised()
        if only is None:
            raise MarkerError(f"group={group!r}: torch.distributed has one rank here. {_FORM}")
        only.ranks_of(group)  # a group that this rank is in makes sense, too
        return (0,)
    if ranks.is_of_threads:
        raise IncompleteProfile(rendezvous.THREADS)
    return ranks.ranks_of(group)


def _initialised() -> World | None:
    """The default group, of however many ranks."""
    c10d = sys.modules.get("torch.distributed.distributed_c10d")
    kind = getattr(c10d, "ProcessGroup", None)
    group = getattr(getattr(c10d, "_world", None), "default_pg", None)
    if c10d is None or not isinstance(kind, type) or not isinstance(group, kind):
        return None
    return World(c10d, group)


_HOST = "127.0.0.1"


@contextlib.contextmanager
def hosted_store(size: int) -> Iterator[int]:
    """The store of a process group, in this process, which outlives any rank; its port."""
    dist = load_torch().distributed
    store = dist.TCPStore(_HOST, 0, size, is_master=True, wait_for_workers=False)
    yield store.port


@contextlib.contextmanager
def in_group(rank: int, size: int, backend: str, port: int) -> Iterator[None]:
    """Be a rank of the default group; with NCCL on the GPU of its number."""
    os.environ.update(dict.fromkeys(("RANK", "LOCAL_RANK"), str(rank)))
    os.environ.update(dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), str(size)))
    os.environ.update(MASTER_ADDR=_HOST, MASTER_PORT=str(port))
    torch = load_torch()
    given: dict[str, Any] = {}
    if backend == "nccl":
        torch.cuda.set_device(rank)
        given["device_id"] = torch.device("cuda", rank)
    store = torch.distributed.TCPStore(_HOST, port, size, is_master=False)
    torch.distributed.init_process_group(backend, store=store, rank=rank, world_size=size, **given)
    # One that leaves at once would break the connections that another still makes.
    store.set(f"connected/{rank}", "")
    store.wait([f"connected/{one}" for one in range(size)])
    yield
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


_WATCH_S = 1.5
"""Rarely, since each look costs a timed call some microseconds; and long enough for the thread to
count as idle."""


class Watchdog:
    """Watches the thread that has made it, as long as it is entered.

    Args:
        meeting: its limit is how long this process may wait for the device, too, whose kernels may
            wait for another rank.
        break_off: makes collectives end in which this process waits.
    """

    def __init__(self, meeting: rendezvous.Meeting, break_off: Callable[[], None]) -> None:
        self._meeting = meeting
        self._break_off = break_off
        self._measures = Real.this_thread()
        self._waits_since: tuple[float, float] | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="kernelprof-ranks", daemon=True)

    def __enter__(self) -> Watchdog:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()

    def _watch(self) -> None:
        while not self._ended.wait(min(_WATCH_S, self._meeting.limit_s)):
            # The store may be gone, which the thread that measures will say.
            with contextlib.suppress(Exception):
                if self._is_left() or self._waits_too_long():
                    self._break_off()
                    return

    def _is_left(self) -> bool:
        """Whether another rank is lost, and this one does not return from its call."""
        since = self._meeting.inside_since
        if since is None or now_s() - since < rendezvous.SETTLE_S or self._meeting.look() is None:
            return False
        # Work that waits for nobody comes to its end.
        self._ended.wait(rendezvous.SETTLE_S)
        return self._meeting.inside_since == since and not self._ended.is_set()

    def _waits_too_long(self) -> bool:
        """Whether it has waited for the device, and for nothing else, for as long as a rank may be
        waited for. Who compiles does not come back either, but does not wait."""
        inside, now = self._meeting.inside_since, now_s()
        if inside is None or not self._waits_for_device():
            self._waits_since = None
            return False
        if self._waits_since is None or self._waits_since[0] != inside:
            self._waits_since = inside, now
        if now - self._waits_since[1] < self._meeting.limit_s:
            return False
        self._meeting.stuck()
        return True

    def _waits_for_device(self) -> bool:
        frame = Real.frames_of_threads().get(self._measures)
        # So the functions begin that wait, torch's and ours.
        return frame is not None and frame.f_code.co_name.startswith("synchronize")


@contextlib.contextmanager
def shorter_waits(backends: Iterable[Any], limit_s: float) -> Iterator[None]:
    """Have gloo wait no longer than we do for a rank that does not come: it cannot be broken off.
    By itself it waits for half an hour."""
    changed: list[tuple[Any, timedelta]] = []
    limit = timedelta(seconds=limit_s)
    for backend in backends:
        with contextlib.suppress(AttributeError, RuntimeError):
            before = backend.options._timeout
            if before > limit:
                backend._set_default_timeout(limit)
                changed.append((backend, before))
    try:
        yield
    finally:
        for backend, before in changed:
            backend._set_default_timeout(before)


def abort(backends: Iterable[Any]) -> None:
    """End the NCCL kernels that wait for a rank that does not come: all communicators are aborted,
    as one, since each may wait for another. The groups stay, and raise when they are used again."""
    every = list(backends)
    if not every:
        return
    every[0]._group_start()
    for backend in reversed(every):
        backend.abort()
    every[0]._group_end()


T = TypeVar("T")


class Agreement:
    """What the ranks of one call tell each other. All of them ask the same, in the same order.

    This is the agreement of an only rank, with itself.

    Attributes:
        rank: the number of this rank; None where it is the only one.
    """

    rank: int | None = None

    def gather(self, what: str, own: T, *, patience_s: float = 0.0) -> Sequence[T]:
        """What each rank has, by number; a barrier, too.

        Args:
            what: which question it is, the same on all ranks.
            own: a record (msgspec's, a named tuple), or builtins.
            patience_s: how long others may take beyond the usual limit.

        Raises:
            IncompleteProfile: a rank does not come; the message names it.
        """
        return (own,)

    def gpu_lock(
        self, device: Device, timeout_s: float, who: str
    ) -> contextlib.AbstractContextManager[GpuLock | None]:
        """Have the GPUs of all ranks alone; None of those that another rank has locked.

        Raises:
            NotFree: a rank could not have its GPU in time.
            GpuBusy: it cannot be locked at all.
        """
        return gpu_lock(device, timeout_s, who)

    def begin(self) -> None:
        """Wait for the instant at which all ranks begin."""

    def broke(self, error: BaseException) -> None:
        """Tell the others that this rank does not go on."""


ALONE = Agreement()


RANK_TIMEOUT_S = 120.0
_LOOK_S = 0.02

# What gloo and NCCL say where another rank does not come, or goes; they also raise of what is wrong
# on this one.
_OF_A_COLLECTIVE = re.compile(r"gloo|nccl|process group|pair closure", re.IGNORECASE)
_LEFT_ALONE = re.compile(
    r"tim(ed|e) ?out|connection (closed|reset|refused)|broken pipe|closure|abort|remote process",
    re.IGNORECASE,
)

_calls: Counter[tuple[str, tuple[int, ...]]] = Counter()
# By the default group, which may be made again, perhaps of other processes.
_met: weakref.WeakKeyDictionary[Any, dict[int, rendezvous.Process]] = weakref.WeakKeyDictionary()
_left_run: list[int] = []


def left_test(test: str, why: str) -> None:
    """Note that a test's call has ended here, so that no other rank waits in it."""
    name = rendezvous.name_of_test(test)
    rendezvous.next_attempt(test)
    leave(name, why)


def leave(name: str, why: str) -> None:
    """Note the same for a test by the name of its calls."""
    with contextlib.suppress(Exception):  # a store that is gone has nobody that waits
        if (ranks := world_of_several()) is not None:
            ranks.store.set(rendezvous.note_key(name, "left", ranks.rank), why)


def left_run() -> None:
    """Note that pytest has ended here, early or not, so that no other rank waits in any call."""
    with contextlib.suppress(Exception):
        if (ranks := world_of_several()) is not None:
            ranks.store.set(rendezvous.run_key(ranks.rank), "has ended its run")
            _left_run.append(ranks.rank)


def number_of_rank() -> int | None:
    """The number of this rank; None of one alone."""
    ranks = world_of_several()
    return None if ranks is None else ranks.rank


def group_without_this(test: str, limit_s: float) -> tuple[int, ...]:
    """The ranks that make a call of a test in which this rank has made none. Waits until it is
    known whether there are any.

    Args:
        test: its node id. limit_s: how long the other ranks are waited for.
    """
    with contextlib.suppress(Exception):  # a store that is gone
        world = world_of_several()
        if world is None:
            return ()
        name, store, deadline = rendezvous.name_of_test(test), world.store, now_s() + limit_s
        group = rendezvous.note_key(name, "group")
        others = [one for one in range(world.size) if one != world.rank]
        waited_for = [one for one in others if rendezvous.first_missing(name, [one]) is None]
        store.set(rendezvous.note_key(name, "none", world.rank), "")
        while now_s() < deadline:
            all_through = all(_makes_no_call(store, name, one) for one in waited_for)
            if store.check([group]):
                ranks = tuple(map(int, store.get(group).decode().split(",")))
                return () if world.rank in ranks else ranks
            if all_through:
                break
            sleep(_LOOK_S)
    return ()


def _makes_no_call(store: Any, test: str, rank: int) -> bool:
    keys = [rendezvous.note_key(test, "none", rank), *rendezvous.left_keys(test, rank)]
    return any(store.check([key]) for key in keys)


@contextlib.contextmanager
def agreeing(
    call: str, *, test: str = "", group: object = None, limit_s: float = RANK_TIMEOUT_S
) -> Iterator[Agreement]:
    """Make a call together with the other ranks, if there are any.

    Args:
        call: what is called, in words. test: as ``name_of_test`` says; empty without pytest.
        group: the ranks that take part, or a group of them; by default all.
        limit_s: how long a rank is waited for.

    Raises:
        MarkerError: ``group`` is neither, or this rank is not in it.
        IncompleteProfile: on entry, where ranks are threads; later, where a rank does not come.
    """
    ranks, all_ranks = taking_part(group), world_of_several()
    if all_ranks is not None and test and len(ranks) < all_ranks.size:
        all_ranks.store.set(rendezvous.note_key(test, "group"), ",".join(map(str, ranks)))
    if all_ranks is None or len(ranks) < 2:
        yield ALONE
        return
    if _left_run:
        all_ranks.store.delete_key(rendezvous.run_key(_left_run.pop()))
    _calls[test, ranks] += 1
    this_call = rendezvous.Call(test, ranks, _calls[test, ranks], call)
    together = _Together(all_ranks, this_call, limit_s)
    watchdog = Watchdog(together.meeting, lambda: abort(all_ranks.backends("nccl")))
    with shorter_waits(all_ranks.backends("gloo"), limit_s), watchdog:
        try:
            if (missing := rendezvous.first_missing(test, ranks)) is not None:
                lost = rendezvous.LostRank(missing, "does not run this test", absent=True)
                raise together.meeting.error(together.meeting.lose(lost))
            yield together
        except BaseException as error:
            together.fail(error)
            raise
        together.meeting.end()


class _Together(Agreement):
    """The agreement of several ranks."""

    def __init__(self, world: World, call: rendezvous.Call, limit_s: float):
        self.rank = self._number = world.rank
        self._ranks = call.ranks
        known = _met.setdefault(world.group, {})
        own = rendezvous.Process.of_this()
        self.meeting = rendezvous.Meeting(
            world.store, call, world.rank, myself=own, limit_s=limit_s, known=known
        )

    def gather(self, what: str, own: T, *, patience_s: float = 0.0) -> Sequence[T]:
        """What each rank has, by number."""
        return self.meeting.gather(what, own, patience_s)

    def begin(self) -> None:
        """Wait for the instant at which all ranks begin."""
        self.meeting.begin()

    @contextlib.contextmanager
    def gpu_lock(self, device: Device, timeout_s: float, who: str) -> Iterator[GpuLock | None]:
        """The first rank of each host locks for all of them, in one order: two runs that each
        have some of the GPUs would wait for each other."""
        own = gpu_uuid(device.index)
        locks: dict[str, GpuLock] = {}
        why = ""
        with contextlib.ExitStack() as held:
            to_lock = self._gpus_to_lock(own)
            if own not in to_lock:  # who locks it waits until this process does not share it
                held.enter_context(at_rest())
            try:
                locks = held.enter_context(lock_all(to_lock, timeout_s, who, device.name))
            except NotFree as busy:
                why = str(busy)
            whys = self.gather("the locks", why, patience_s=timeout_s)
            if any(whys):
                raise NotFree(next(filter(None, whys)))
            try:
                yield locks.get(own)
            except BaseException as error:
                # Before this process shares its GPU again: the first rank has it, and waits here.
                self.fail(error)
                raise

    def _gpus_to_lock(self, own: str) -> tuple[str, ...]:
        """Those of all ranks of this host, by UUID, or none."""
        gpus, hosts = self.gather("the GPUs", own), self.meeting.hosts()
        here = hosts[self._ranks.index(self._number)]
        if self._ranks[hosts.index(here)] != self._number:
            return ()
        return tuple(sorted({gpu for gpu, host in zip(gpus, hosts, strict=True) if host == here}))

    def fail(self, error: BaseException) -> None:
        """Tell the others of an error.

        Raises:
            IncompleteProfile: it only says that another rank is lost: which one.
        """
        explained = self.explained(error)
        self.broke(error)
        if explained is not None:
            raise explained from error

    def broke(self, error: BaseException) -> None:
        """Tell the others, unless they know of one that broke before."""
        with contextlib.suppress(IncompleteProfile):  # of a store that is gone nobody hears
            if self.meeting.lost is None:
                self.meeting.lose(rendezvous.LostRank(self._number, f"raised {said_by(error)}"))

    def explained(self, error: BaseException) -> IncompleteProfile | None:
        """Which rank is behind an error of a collective, which only says that it was left alone."""
        says = str(error)
        of_a_collective = isinstance(error, RuntimeError) and _OF_A_COLLECTIVE.search(says)
        if not of_a_collective or not _LEFT_ALONE.search(says):
            return None
        try:
            return self.meeting.error(self.meeting.stuck())
        except IncompleteProfile as gone:  # the store is
            return gone
