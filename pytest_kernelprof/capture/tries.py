"""What the calls of a test are known by to all ranks: its node id, and which try of it this is."""

from __future__ import annotations

from collections import Counter

_BETWEEN = "\n"

_tries: Counter[str] = Counter()


def next_try(test: str) -> None:
    """The test begins, perhaps once more, or its call has ended: what fixtures measure as they end
    is another matter."""
    _tries[test] += 1


def name_of_test(test: str) -> str:
    """What the calls of a test are known by that runs."""
    return f"{test}{_BETWEEN}{_tries[test]}"


def id_of_test(name: str) -> str:
    """The node id of a test that is known so."""
    return name.partition(_BETWEEN)[0]
