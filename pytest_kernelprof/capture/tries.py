"""What the calls of a test are known by to all ranks: its node id, and which try of it this is; and
which ranks do not run it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

_BETWEEN = "\n"

_tries: Counter[str] = Counter()
_missing: dict[str, Collection[int]] = {}


def next_try(test: str) -> None:
    """The test begins, perhaps once more, or its call has ended: what fixtures measure as they end
    is another matter."""
    _tries[test] += 1


def note_missing(tests: Mapping[str, Collection[int]]) -> None:
    """The ranks that do not run a test, by its node id, as far as any are known."""
    _missing.clear()
    _missing.update(tests)


def first_missing(name: str, ranks: Sequence[int]) -> int | None:
    """The first of these ranks that does not run the test that is known so."""
    lacks = _missing.get(id_of_test(name), ())
    return next((rank for rank in ranks if rank in lacks), None)


def name_of_test(test: str) -> str:
    """What the calls of a test are known by that runs."""
    return f"{test}{_BETWEEN}{_tries[test]}"


def id_of_test(name: str) -> str:
    """The node id of a test that is known so."""
    return name.partition(_BETWEEN)[0]
