"""Several ranks of ``torch.distributed`` that make one call together: who they are, and where they
meet, which is the default store. A group of our own would need all ranks, in order, and would be
gone with the first that times out."""

from __future__ import annotations

import contextlib
import functools
import re
import threading
import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_kernelprof.capture.agreement import ALONE
from pytest_kernelprof.capture.board import (
    group_of,
    makes_no_more,
    note_back,
    note_group,
    note_left,
    note_left_run,
    note_no_call,
)
from pytest_kernelprof.capture.meeting import SETTLE_S, Call, Left, Meeting, Process
from pytest_kernelprof.capture.tries import first_missing, name_of_test, next_try
from pytest_kernelprof.capture.world import World, taking_part, world_of_several
from pytest_kernelprof.clock import now_s, sleep
from pytest_kernelprof.device.inventory import gpu_uuid
from pytest_kernelprof.device.many import lock_all
from pytest_kernelprof.device.presence import at_rest
from pytest_kernelprof.device.procfs import host_of_processes, started_at
from pytest_kernelprof.device.whole_lock import NotFree
from pytest_kernelprof.errors import IncompleteProfile
from pytest_kernelprof.system import Real

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_kernelprof.capture.agreement import Agreement
    from pytest_kernelprof.capture.meeting import Meeting
    from pytest_kernelprof.device.inventory import Device
    from pytest_kernelprof.device.whole_lock import WholeLock

_LOOK_S = 1.5
"""Rarely: it costs a timed call some microseconds. Long enough to look like a thread at rest."""
_SYNCHRONIZE = "synchronize"  # how torch's functions and ours that wait begin


class Lookout:
    """Looks as long as it is entered, after the thread that has made it.

    Args:
        break_off: makes collectives end in which this process waits.
        limit_s: how long it may wait for the device, whose kernels may wait for another rank.
    """

    def __init__(self, meeting: Meeting, break_off: Callable[[], None], limit_s: float) -> None:
        self._meeting = meeting
        self._break_off = break_off
        self._limit_s = limit_s
        self._measures = Real.this_thread()
        self._waits_since: tuple[float, float] | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look_on, name="kernelprof-ranks", daemon=True)

    def __enter__(self) -> Lookout:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()

    def _look_on(self) -> None:
        while not self._ended.wait(min(_LOOK_S, self._limit_s)):
            # The store may be gone, which the thread that measures will say.
            with contextlib.suppress(Exception):
                if self._is_left() or self._waits_too_long():
                    self._break_off()
                    return

    def _is_left(self) -> bool:
        """Whether another rank is lost, and this one does not come back."""
        since = self._meeting.inside_since
        if since is None or now_s() - since < SETTLE_S or self._meeting.look() is None:
            return False
        # Work that waits for nobody comes to its end.
        self._ended.wait(SETTLE_S)
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
        if now - self._waits_since[1] < self._limit_s:
            return False
        self._meeting.stuck()
        return True

    def _waits_for_device(self) -> bool:
        frame = Real.frames_of_threads().get(self._measures)
        return frame is not None and frame.f_code.co_name.startswith(_SYNCHRONIZE)


T = TypeVar("T")

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
_met: dict[int, Process] = {}
_met_in: list[weakref.ref[Any]] = []
_left_run: list[int] = []


def left_test(test: str, why: str) -> None:
    """A test's call has ended here, however: those who still wait in it wait in vain."""
    name = name_of_test(test)
    next_try(test)
    leave(name, why)


def leave(name: str, why: str) -> None:
    """The same of a test by the name that its calls are known by."""
    with contextlib.suppress(Exception):  # a store that is gone has nobody that waits
        ranks = world_of_several()
        if ranks is not None:
            note_left(ranks.store, name, ranks.rank, why)


def left_run() -> None:
    """pytest has come to its end here, early or not: who waits in any call waits in vain."""
    with contextlib.suppress(Exception):
        ranks = world_of_several()
        if ranks is not None:
            note_left_run(ranks.store, ranks.rank, "has ended its run")
            _left_run.append(ranks.rank)


def number_of_rank() -> int | None:
    """The number of this rank; None of one alone."""
    ranks = world_of_several()
    return None if ranks is None else ranks.rank


def group_without_this(test: str, limit_s: float) -> tuple[int, ...]:
    """The ranks that alone make a call of a test in which this rank has made none. Waits until it
    is known whether there are any.

    Args:
        test: its node id. limit_s: how long the other ranks are waited for.
    """
    with contextlib.suppress(Exception):  # a store that is gone
        world = world_of_several()
        if world is None:
            return ()
        name, store, deadline = name_of_test(test), world.store, now_s() + limit_s
        others = [one for one in range(world.size) if one != world.rank]
        waited_for = [one for one in others if first_missing(name, [one]) is None]
        note_no_call(store, name, world.rank)
        while now_s() < deadline:
            all_through = all(makes_no_more(store, name, one) for one in waited_for)
            ranks = group_of(store, name)
            if ranks:
                return () if world.rank in ranks else ranks
            if all_through:
                break
            sleep(_LOOK_S)
    return ()


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
        note_group(all_ranks.store, test, ranks)
    if all_ranks is None or len(ranks) < 2:
        yield ALONE
        return
    if _left_run:
        note_back(all_ranks.store, _left_run.pop())
    _calls[test, ranks] += 1
    together = _Together(all_ranks, Call(test, ranks, _calls[test, ranks], call), limit_s)
    lookout = Lookout(together.meeting, functools.partial(_abort, all_ranks), limit_s)
    with _shorter_waits(all_ranks, limit_s), lookout:
        try:
            together.miss(first_missing(test, ranks))
            yield together
        except BaseException as error:
            together.fail(error)
            raise
        together.meeting.end()


class _Together:
    """The agreement of several ranks."""

    def __init__(self, world: World, call: Call, limit_s: float):
        self.rank: int | None = world.rank
        self._ranks = call.ranks
        self._limit_s = limit_s
        if not _met_in or _met_in[0]() is not world.group:
            _met.clear()  # groups were made again, perhaps of other processes
            _met_in[:] = [weakref.ref(world.group)]
        self.meeting = Meeting(
            world.store,
            call,
            world.rank,
            myself=_myself(),
            lives=_lives,
            limit_s=limit_s,
            known=_met,
        )

    def miss(self, rank: int | None) -> None:
        """Raise IncompleteProfile of a rank that is known not to come, where there is one."""
        if rank is not None:
            lost = Left(rank, "does not run this test", absent=True)
            raise self.meeting.error(self.meeting.lose(lost))

    def gather(self, what: str, own: T, *, patience_s: float = 0.0) -> Sequence[T]:
        """As the protocol says."""
        return self.meeting.gather(what, own, patience_s)

    def begin(self) -> None:
        """As the protocol says."""
        self.meeting.begin()

    @contextlib.contextmanager
    def gpu_lock(self, device: Device, timeout_s: float, who: str) -> Iterator[WholeLock | None]:
        """The first rank of each host locks for all of them, in one order: two runs that each
        have some of the GPUs would wait for each other."""
        own = gpu_uuid(device)
        locks: dict[str, WholeLock] = {}
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
                self.meeting.lose(Left(self._number, _words_of(error)))

    def explained(self, error: BaseException) -> IncompleteProfile | None:
        """Which rank is behind an error of a collective, which only says that it was left alone."""
        says = str(error)
        if not isinstance(error, RuntimeError) or not _OF_A_COLLECTIVE.search(says):
            return None
        if not _LEFT_ALONE.search(says):
            return None
        try:
            return self.meeting.error(self.meeting.stuck())
        except IncompleteProfile as gone:  # the store is
            return gone

    @property
    def _number(self) -> int:
        assert self.rank is not None, "one of several"
        return self.rank


def _myself() -> Process:
    return Process(host_of_processes(), Real.getpid(), started_at(Real.getpid()))


def _lives(process: Process) -> bool:
    """Whether a process of this host lives; True where that cannot be told."""
    return not process.started or started_at(process.pid) == process.started


def _words_of(error: BaseException) -> str:
    first = next(iter(str(error).strip().splitlines()), "")
    kind = type(error).__name__
    return f"raised {kind}: {first}" if first else f"raised {kind}"


@contextlib.contextmanager
def _shorter_waits(world: World, limit_s: float) -> Iterator[None]:
    """Have gloo wait no longer than we do for a rank that does not come: it cannot be broken off.
    By itself it waits for half an hour."""
    changed: list[tuple[Any, timedelta]] = []
    limit = timedelta(seconds=limit_s)
    for backend in world.backends("gloo"):
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


def _abort(world: World) -> None:
    """End the NCCL kernels that wait for a rank that does not come: all communicators are aborted,
    as one, since each may wait for another. The groups stay, and raise when they are used again."""
    backends = list(world.backends("nccl"))
    if not backends:
        return
    backends[0]._group_start()
    for backend in reversed(backends):
        backend.abort()
    backends[0]._group_end()
