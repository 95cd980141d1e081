"""Where the ranks of one call meet: they exchange values through a store of keys.

Nothing of it is measured. Each rank also learns here of a rank that does not come.
"""

from __future__ import annotations

import hashlib
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from pytest_kernelprof.errors import IncompleteProfile
from pytest_kernelprof.gpu.procfs import host_of_processes, note_ours, started_at
from pytest_kernelprof.records import codec
from pytest_kernelprof.system import Real, now_ns, now_s, sleep

T = TypeVar("T")

_BETWEEN = "\n"

_attempts: Counter[str] = Counter()
_missing: dict[str, Collection[int]] = {}


def next_attempt(test: str) -> None:
    """Count that the test begins, perhaps once more, or that its call has ended: what fixtures
    measure after that belongs to another attempt."""
    _attempts[test] += 1


def note_missing(tests: Mapping[str, Collection[int]]) -> None:
    """Note which ranks do not run a test, by its node id, as far as any are known."""
    _missing.clear()
    _missing.update(tests)


def first_missing(name: str, ranks: Sequence[int]) -> int | None:
    """The first of these ranks that does not run the test with this name."""
    lacks = _missing.get(id_of_test(name), ())
    return next((rank for rank in ranks if rank in lacks), None)


def name_of_test(test: str) -> str:
    """The name of a running test in the calls of all ranks: its node id and its attempt."""
    return f"{test}{_BETWEEN}{_attempts[test]}"


def id_of_test(name: str) -> str:
    """The node id of the test with this name."""
    return name.partition(_BETWEEN)[0]


_LONGEST_VALUE = 4_000_000  # a TCPStore takes 8 MiB


class Store(Protocol):
    """The part of torch's stores that is used here."""

    def set(self, key: str, value: Any, /) -> None:
        """Keep a value."""

    def get(self, key: str, /) -> bytes:
        """A value that is there; torch waits for one that is missing."""

    def check(self, keys: list[str], /) -> bool:
        """Whether all of these are there, now."""

    def compare_set(self, key: str, expected: str, desired: str, /) -> bytes:
        """With nothing expected: keep a value if there is none. Returns the one there."""

    def delete_key(self, key: str, /) -> bool:
        """Remove a value."""


class RankStore:
    """A store as one rank uses it.

    Args:
        gone: makes the exception for a store that is gone.
    """

    def __init__(self, store: Store, gone: Callable[[], Exception]) -> None:
        self._store, self._gone = store, gone

    def note(self, key: str, words: str = "") -> None:
        """Write a few words."""
        self._asked(self._store.set, key, words)

    def words(self, key: str) -> str:
        """Read the words under a key."""
        return self._asked(self._store.get, key).decode()

    def first_words(self, key: str, words: str) -> str:
        """Write words if there are none. Returns those that are there then."""
        return self._asked(self._store.compare_set, key, "", words).decode()

    def has(self, *keys: str) -> bool:
        """Whether all of them are there."""
        return self._asked(self._store.check, list(keys))

    def delete(self, keys: Sequence[str]) -> None:
        """Remove them."""
        for key in keys:
            self._asked(self._store.delete_key, key)

    def put(self, key: str, data: bytes) -> list[str]:
        """Write a value of any length, its first key last. Returns all keys that it takes."""
        packed = zlib.compress(data, 1) if len(data) > _LONGEST_VALUE // 8 else data
        parts = [packed[i : i + _LONGEST_VALUE] for i in range(0, len(packed), _LONGEST_VALUE)]
        more = [f"{key}/{i}" for i in range(1, len(parts))]
        for name, part in zip(more, parts[1:], strict=True):
            self._asked(self._store.set, name, part)
        head = b"%d %d\n" % (len(parts), packed is not data)
        self._asked(self._store.set, key, head + parts[0])
        return [key, *more]

    def get(self, key: str) -> bytes:
        """Read a value of any length that is there."""
        first: bytes = self._asked(self._store.get, key)
        head, _, data = first.partition(b"\n")
        parts, is_packed = map(int, head.split())
        for i in range(1, parts):
            data += self._asked(self._store.get, f"{key}/{i}")
        return zlib.decompress(data) if is_packed else data

    def _asked(self, ask: Callable[..., T], *args: Any) -> T:
        try:
            return ask(*args)
        except RuntimeError as error:
            raise self._gone() from error


def key_of(test: str) -> str:
    """The start of the keys of a test."""
    whole = test.encode("utf-8", "backslashreplace")
    return hashlib.sha1(whole, usedforsecurity=False).hexdigest()[:16]


def note_key(test: str, what: str, rank: int | str = "") -> str:
    """The key of a note about a test: that a rank has ``left`` it, has made no call (``none``), or
    which ``group`` alone makes its call."""
    return f"{key_of(test)}/{what}/{rank}"


def run_key(rank: int) -> str:
    """The key under which a rank notes that it makes no call of any test any more."""
    return f"left/{rank}"


def left_keys(test: str, rank: int) -> list[str]:
    """The keys of the notes that a rank makes no call of a test any more.

    Args:
        test: as of ``Call``; empty without pytest.
    """
    return [note_key(test, "left", rank), run_key(rank)] if test else [run_key(rank)]


SETTLE_S = 1.0
"""How long a rank may still be inside of its call when another one is known to be lost."""
THREADS = (
    "ranks that are threads of one process cannot be profiled, since a profiler records the work "
    "of all of them: give each rank its own process (MultiProcessTestCase)"
)
_TAKE_PART = (
    ": all ranks must make the same calls, from the same line (kernel_profile(send if rank == 0 "
    "else receive)); if only some take part, name them: kernel_profile.run(..., group=[0, 1])"
)
_ORDER = (
    " (all ranks must run the same tests in the same order: pytest-randomly needs --randomly-seed)"
)
_TO_SAY = 3
_LOOK_S = 0.05
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.0001, 0.001
_TO_READ_NS, _TO_READ_EACH_NS = 1_500_000, 250_000
_LONGEST_SPIN_NS = 1_000_000_000


class Process(msgspec.Struct, frozen=True):
    """A process, as others on its host can look for it.

    Attributes:
        host: equal for processes whose numbers and clocks mean the same.
        started: tells it from a later one of its number; empty where that is not known.
    """

    host: str
    pid: int
    started: str

    @classmethod
    def of_this(cls) -> Process:
        """This one."""
        return cls(host_of_processes(), Real.getpid(), started_at(Real.getpid()))

    @property
    def lives(self) -> bool:
        """Whether it still runs; asked on its host. True where that cannot be told."""
        return not self.started or started_at(self.pid) == self.started


class LostRank(msgspec.Struct, frozen=True):
    """A rank without which a call cannot continue, and what happened to it, in words.

    Attributes:
        absent: whether the rank may not take part in the call at all.
    """

    rank: int
    why: str
    absent: bool = False


class _Post(msgspec.Struct, frozen=True):
    what: str
    call: str
    at_ns: int
    process: Process
    data: msgspec.Raw


# msgspec crashes where two threads are the first to look at a type, and the watchdog is one.
_LOST, _POST = msgspec.json.Decoder(LostRank), msgspec.json.Decoder(_Post)
_decoding = threading.Lock()


class Call(NamedTuple):
    """Which call of which test.

    Attributes:
        test: as ``name_of_test`` says; empty without pytest.
        ranks: that make it. number: of the test's calls that these make, from 1.
        words: what it is and where it stands.
    """

    test: str
    ranks: tuple[int, ...]
    number: int
    words: str

    @property
    def told(self) -> str:
        """For example ``kernel_profile at test_ddp.py:12 (call 1 of test_ddp.py::test_step)``."""
        of = f" of {id_of_test(self.test)}" if self.test else ""
        return f"{self.words} (call {self.number}{of})"

    @property
    def key(self) -> str:
        """The start of its keys."""
        return f"{key_of(f'{self.test}{self.ranks}')}/{self.number}"


@dataclass(eq=False)
class Meeting:
    """Where the ranks of one call meet.

    Attributes:
        rank: this one. myself: this process.
        limit_s: how long a rank is waited for.
        known: the processes of ranks from earlier calls; those of this call are added.
        lost: the rank for which it makes no sense to wait, once there is one.
        inside_since: when this rank went on from here; None while it waits here.
    """

    store: InitVar[Store]
    call: Call
    rank: int
    _: KW_ONLY
    myself: Process
    limit_s: float
    known: dict[int, Process]
    lost: LostRank | None = field(default=None, init=False)
    inside_since: float | None = field(default=None, init=False)
    _steps: int = field(default=0, init=False)
    _old: list[str] = field(default_factory=list, init=False)

    def __post_init__(self, store: Store) -> None:
        self._store, self._ranks = RankStore(store, self._without_store), self.call.ranks
        self._store.note(f"at/{self.rank}", self.call.told)

    @property
    def others(self) -> tuple[int, ...]:
        """The other ranks."""
        return tuple(rank for rank in self._ranks if rank != self.rank)

    def begin(self) -> None:
        """Wait for the instant at which all ranks of this host begin."""
        posts = self._meet("begin", msgspec.Raw(b"null"), 0.0)
        if len({post.process.host for post in posts}) == 1:
            read = _TO_READ_NS + _TO_READ_EACH_NS * len(posts)
            instant = max(post.at_ns for post in posts) + read
            given_up = now_ns() + _LONGEST_SPIN_NS  # of clocks that are not the same, after all
            while now_ns() < min(instant, given_up):
                pass

    def gather(self, what: str, own: T, patience_s: float = 0.0) -> tuple[T, ...]:
        """What each rank has, by number.

        Raises:
            IncompleteProfile: a rank does not come, or asks something else.
        """
        encoded = (codec if isinstance(own, msgspec.Struct) else msgspec.json).encode(own)
        posts = self._meet(what, msgspec.Raw(encoded), patience_s)
        return tuple(_decoded(post.data, type(own)) for post in posts)

    def hosts(self) -> tuple[str, ...]:
        """The host of each rank, by number."""
        return tuple(self.known[rank].host for rank in self._ranks)

    def look(self) -> LostRank | None:
        """The rank for which it makes no sense to wait, if there is one by now."""
        if self.lost is None and (lost := self._said_lost() or self._gone()):
            self.lose(lost)
        return self.lost

    def lose(self, lost: LostRank) -> LostRank:
        """Report a lost rank to all. The first report counts for all ranks."""
        key, said = f"{self.call.key}/lost", msgspec.json.encode(lost).decode()
        self.lost = _LOST.decode(self._store.first_words(key, said))
        return self.lost

    def end(self) -> None:
        """End the call, and remove its keys. The first rank, which may host the store, waits until
        all have read theirs."""
        if self.lost is None:
            self._meet("the end", msgspec.Raw(b"null"), 0.0)
        self.inside_since = None  # nobody is to be broken off any more
        ends = [f"{self.call.key}/end/{rank}" for rank in self._ranks]
        self._store.note(f"{self.call.key}/end/{self.rank}")
        if self.rank == self._ranks[0] and self.lost is None:
            self._wait_for(ends, 0.0)
            last = f"{self.call.key}/{self._steps - 1}"
            self._store.delete([*ends, *(f"{last}/{rank}" for rank in self._ranks)])

    def error(self, lost: LostRank) -> IncompleteProfile:
        """The error of this rank about a lost one."""
        which = f"rank {lost.rank}" + (" (this one)" if lost.rank == self.rank else "")
        remedy = _TAKE_PART if lost.absent else ""
        return IncompleteProfile(
            f"{which} {lost.why}, so ranks {_listed(self._ranks)} could not continue together in "
            f"{self.call.told}{remedy}"
        )

    def stuck(self) -> LostRank:
        """Find the rank that a collective waits for that has waited here for too long. The ranks in
        it note that, all within a moment."""
        self._store.note(f"{self.call.key}/stuck/{self.rank}")
        deadline = now_s() + SETTLE_S
        while self.look() is None and now_s() < deadline:
            sleep(_LOOK_S)
        if self.lost is not None:
            return self.lost
        for rank in self.others:
            if not self._store.has(f"{self.call.key}/stuck/{rank}"):
                why = "did not reach a collective in which others waited"
                return self.lose(LostRank(rank, why))
        why = "is in a collective that waits for other ranks, which wait in another one"
        return self.lose(LostRank(self._ranks[0], why))

    def _meet(self, what: str, data: msgspec.Raw, patience_s: float) -> list[_Post]:
        self.inside_since = None
        if self.lost is not None:
            raise self.error(self.lost)
        step = f"{self.call.key}/{self._steps}"
        self._steps += 1
        keys = [f"{step}/{rank}" for rank in self._ranks]
        own = f"{step}/{self.rank}"
        post = _Post(what, self.call.told, now_ns(), self.myself, data)
        posted = self._store.put(own, msgspec.json.encode(post))
        self._wait_for(keys, patience_s)
        posts = [_POST.decode(self._store.get(key)) for key in keys]
        self._store.delete(self._old)  # who has posted this step has read the one before
        self._old = posted
        self._compare(posts)
        self.inside_since = now_s()
        return posts

    def _compare(self, posts: Sequence[_Post]) -> None:
        for rank, post in zip(self._ranks, posts, strict=True):
            self.known[rank] = post.process
            if post.process.host == self.myself.host:
                note_ours(post.process.pid)
        own = posts[self._ranks.index(self.rank)]
        if len({(post.process.host, post.process.pid) for post in posts}) < len(posts):
            raise IncompleteProfile(THREADS)
        for rank, post in zip(self._ranks, posts, strict=True):
            if post.what != own.what:
                places = [(post.call, own.call), (post.what, own.what)]
                here, there = places[post.call == own.call]
                why = f"is at {here} while rank {self.rank} is at {there}"
                raise self.error(self.lose(LostRank(rank, why, absent=True)))

    def _wait_for(self, keys: list[str], patience_s: float) -> None:
        # A rank that waits in a collective, which this one has left out, says so in time.
        to_say = min(_TO_SAY * SETTLE_S, self.limit_s)
        deadline = now_s() + self.limit_s + patience_s + to_say
        next_look, pause = now_s() + _LOOK_S, _FIRST_PAUSE_S
        while not self._store.has(*keys):
            now = now_s()
            if now >= next_look:
                next_look = now + _LOOK_S
                lost = self.look()
                if lost is None and now >= deadline:
                    lost = self.lose(self._late(keys))
                # Who has posted all that is waited for here may have gone on and ended well.
                if lost is not None and not self._store.has(*keys):
                    raise self.error(lost)
            sleep(pause)
            pause = min(pause * 1.5, _LONGEST_PAUSE_S)

    def _late(self, keys: list[str]) -> LostRank:
        for rank, key in zip(self._ranks, keys, strict=True):
            if not self._store.has(key):
                why = f"did not arrive within {self.limit_s:g} s{self._seen(rank)}"
                return LostRank(rank, why, absent=True)
        return LostRank(self._ranks[0], "arrived too late")

    def _seen(self, rank: int) -> str:
        """Where a rank was last seen."""
        key = f"at/{rank}"
        if not self._store.has(key):
            return ""
        where = self._store.words(key)
        return f"; it was last seen in {where}{_ORDER}" if where != self.call.told else ""

    def _said_lost(self) -> LostRank | None:
        """The lost rank that another rank has reported, or one that has ended the test."""
        key = f"{self.call.key}/lost"
        if self._store.has(key):
            return _LOST.decode(self._store.words(key))
        for rank in self.others:
            for key in left_keys(self.call.test, rank):
                if self._store.has(key) and not self._has_ended(rank):
                    return LostRank(rank, self._store.words(key), absent=True)
        return None

    def _gone(self) -> LostRank | None:
        for rank in self.others:
            process = self.known.get(rank)
            if process is None or process.host != self.myself.host or process.lives:
                continue
            if not self._has_ended(rank):
                return LostRank(rank, f"has died (process {process.pid} is gone)")
        return None

    def _has_ended(self, rank: int) -> bool:
        """Whether a rank has ended this call, and ended it well."""
        return self._store.has(f"{self.call.key}/end/{rank}")

    def _without_store(self) -> IncompleteProfile:
        why = "has ended, and with it the store of torch.distributed"
        self.lost = LostRank(self._ranks[0], why)
        return self.error(self.lost)


def _decoded(data: msgspec.Raw, kind: type[T]) -> T:
    with _decoding:
        return msgspec.json.decode(data, type=kind)


def _listed(ranks: Sequence[int]) -> str:
    if len(ranks) > 2 and list(ranks) == list(range(ranks[0], ranks[-1] + 1)):
        return f"{ranks[0]} to {ranks[-1]}"
    return " and ".join([", ".join(map(str, ranks[:-1])), str(ranks[-1])])
