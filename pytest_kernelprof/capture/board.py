"""What ranks leave for each other in a store of keys: values of any length, and notes of those who
do not come any more."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

_LONGEST_VALUE = 4_000_000  # a TCPStore takes 8 MiB


class Store(Protocol):
    """What is used of torch's stores."""

    def set(self, key: str, value: Any, /) -> None:
        """Keep a value."""

    def get(self, key: str, /) -> bytes:
        """A value that is there; for one that is not torch's would wait."""

    def check(self, keys: list[str], /) -> bool:
        """Whether all of these are there, now."""

    def compare_set(self, key: str, expected: str, desired: str, /) -> bytes:
        """With nothing expected: keep a value if there is none; the one that is there then."""

    def delete_key(self, key: str, /) -> bool:
        """Keep it no more."""


class Board:
    """A store as one rank uses it.

    Args:
        gone: makes what is raised where the store is gone.
    """

    def __init__(self, store: Store, gone: Callable[[], Exception]) -> None:
        self._store, self._gone = store, gone

    def note(self, key: str, words: str = "") -> None:
        """Leave a few words."""
        self._asked(self._store.set, key, words)

    def words(self, key: str) -> str:
        """The words that are there."""
        return self._asked(self._store.get, key).decode()

    def first_words(self, key: str, words: str) -> str:
        """Leave words if there are none; those that are there then."""
        return self._asked(self._store.compare_set, key, "", words).decode()

    def has(self, *keys: str) -> bool:
        """Whether all of them are there."""
        return self._asked(self._store.check, list(keys))

    def delete(self, keys: Sequence[str]) -> None:
        """Take them away."""
        for key in keys:
            self._asked(self._store.delete_key, key)

    def put(self, key: str, data: bytes) -> list[str]:
        """Leave a value of any length; all keys that it takes. It is there with its first."""
        packed = zlib.compress(data, 1) if len(data) > _LONGEST_VALUE // 8 else data
        parts = [packed[i : i + _LONGEST_VALUE] for i in range(0, len(packed), _LONGEST_VALUE)]
        more = [f"{key}/{i}" for i in range(1, len(parts))]
        for name, part in zip(more, parts[1:], strict=True):
            self._asked(self._store.set, name, part)
        head = b"%d %d\n" % (len(parts), packed is not data)
        self._asked(self._store.set, key, head + parts[0])
        return [key, *more]

    def get(self, key: str) -> bytes:
        """A value that is there, of any length."""
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
    """What the keys of a test begin with."""
    return hashlib.sha1(
        test.encode("utf-8", "backslashreplace"), usedforsecurity=False
    ).hexdigest()[:16]


def note_left(store: Store, test: str, rank: int, why: str) -> None:
    """Tell those who wait in a call of this test that this rank has ended it."""
    store.set(_of_test(test, rank), why)


def note_left_run(store: Store, rank: int, why: str) -> None:
    """Tell those who wait in any call that this rank makes none any more."""
    store.set(_of_run(rank), why)


def note_back(store: Store, rank: int) -> None:
    """Tell them that it does, after all: a process may run pytest again."""
    store.delete_key(_of_run(rank))


def note_group(store: Store, test: str, ranks: Sequence[int]) -> None:
    """Tell the other ranks that these alone make a call of this test."""
    store.set(_of_group(test), ",".join(map(str, ranks)))


def note_no_call(store: Store, test: str, rank: int) -> None:
    """Tell them that this rank has made no call of this test, and makes none any more."""
    store.set(f"{key_of(test)}/none/{rank}", "")


def group_of(store: Store, test: str) -> tuple[int, ...]:
    """The ranks that have said that they alone make a call of this test."""
    if not store.check([_of_group(test)]):
        return ()
    return tuple(map(int, store.get(_of_group(test)).decode().split(",")))


def makes_no_more(store: Store, test: str, rank: int) -> bool:
    """Whether a rank has said that it makes no call of this test any more."""
    keys = [f"{key_of(test)}/none/{rank}", *notes_of(test, rank)]
    return any(store.check([key]) for key in keys)


def notes_of(test: str, rank: int) -> Iterator[str]:
    """The keys of what a rank leaves that makes no call of a test any more.

    Args:
        test: as of ``Call``; empty without pytest.
    """
    if test:
        yield _of_test(test, rank)
    yield _of_run(rank)


def _of_test(test: str, rank: int) -> str:
    return f"{key_of(test)}/left/{rank}"


def _of_group(test: str) -> str:
    return f"{key_of(test)}/group"


def _of_run(rank: int) -> str:
    return f"left/{rank}"
