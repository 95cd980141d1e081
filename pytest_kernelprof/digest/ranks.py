"""Several ranks of one program: which of them do the same, and which are the odd ones."""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_kernelprof.digest.cells import value_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_kernelprof.schema.run import Profile

SLOWER_BY = 0.05
"""A rank whose own kernels take so much more than the median of all is told."""
COUNTED = ("kernels", "memcpys", "syncs")


@dataclass(frozen=True, slots=True)
class Rank:
    """One process of a program.

    Attributes:
        name: "3", or what its file is called. file: where its trace is.
    """

    name: str
    file: str
    profile: Profile

    @property
    def own_us(self) -> float:
        """What its kernels take, those of communication apart."""
        return value_of(self.profile, "cuda_time") or 0.0

    @property
    def counts(self) -> tuple[float | None, ...]:
        """What ranks that do the same have the same of."""
        return tuple(value_of(self.profile, name) for name in COUNTED)


def ranks_of(profile: Profile) -> tuple[Rank, ...]:
    """The ranks of a call on several, by number; none of a call on one."""
    if not profile.other_ranks:
        return ()
    return tuple(Rank(str(one.rank), one.trace, one) for one in profile.ranks)


@dataclass(frozen=True, slots=True)
class Spread:
    """How far the ranks are apart in one time.

    Attributes:
        slowest: the rank that takes longest. times: as many times as the median rank, of an even
            number of them the faster one of the two in the middle.
    """

    slowest: Rank
    times: float


def spread_of(ranks: Sequence[Rank], metric: str) -> Spread | None:
    """That of a metric; None where a rank lacks it, or where the median is zero."""
    values = [value_of(one.profile, metric) for one in ranks]
    there = [one for one in values if one is not None]
    middle = statistics.median_low(there) if len(there) == len(ranks) > 1 else 0.0
    if not middle:
        return None
    slowest = max(ranks, key=lambda one: value_of(one.profile, metric) or 0.0)
    return Spread(slowest, (value_of(slowest.profile, metric) or 0.0) / middle)


@dataclass(frozen=True, slots=True)
class Odd:
    """A rank that is not as most are.

    Attributes:
        like: one of those that most are like.
        counts: by how much its counts are others, by metric.
        slower: how much more its own kernels take than those of the median rank, as a fraction; 0
            where that is little.
    """

    rank: Rank
    like: Rank
    counts: dict[str, float]
    slower: float


def odd_ones(ranks: Sequence[Rank]) -> tuple[Odd, ...]:
    """The ranks that are not as most are; none where no more than half are alike."""
    usual, number = Counter(one.counts for one in ranks).most_common(1)[0]
    if len(ranks) < 2 or 2 * number <= len(ranks):
        return ()
    like = next(one for one in ranks if one.counts == usual)
    middle = statistics.median(one.own_us for one in ranks)
    found = []
    for one in ranks:
        counts = {
            name: (mine or 0) - (theirs or 0)
            for name, mine, theirs in zip(COUNTED, one.counts, usual, strict=True)
            if mine != theirs
        }
        slower = one.own_us / middle - 1 if middle else 0.0
        if counts or slower > SLOWER_BY:
            found.append(Odd(one, like, counts, slower if abs(slower) > SLOWER_BY else 0.0))
    return tuple(found)


def alike_neighbours(ranks: Sequence[Rank], odd: Sequence[Odd]) -> list[list[Rank]]:
    """The ranks in their order, those that stand together and are alike as one."""
    apart = {one.rank.name for one in odd}
    found: list[list[Rank]] = []
    for one in ranks:
        before = found[-1][-1] if found else None
        folds = before is not None and one.name not in apart and before.name not in apart
        if folds and before is not None and before.counts == one.counts:
            found[-1].append(one)
        else:
            found.append([one])
    return found
