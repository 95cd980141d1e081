"""Several ranks of one program: which of them do the same, which are the odd ones, and for whom the
others wait."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_kernelprof.names.short import short_name
from pytest_kernelprof.summary.words import chain_words, line_words, source_place, value_of
from pytest_kernelprof.units import format_bytes, format_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_kernelprof.schema.run import Collective, Kernel, Profile


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


def spread_of(ranks: Sequence[Rank], metric: str) -> tuple[Rank, float] | None:
    """The rank that has most of a time, and how many times as much as the median rank, of an even
    number of them the faster one of the two in the middle; None where a rank lacks it, or where the
    median is zero."""
    values = [value_of(one.profile, metric) for one in ranks]
    there = [one for one in values if one is not None]
    middle = statistics.median_low(there) if len(there) == len(ranks) > 1 else 0.0
    if not middle:
        return None
    slowest = max(ranks, key=lambda one: value_of(one.profile, metric) or 0.0)
    return slowest, (value_of(slowest.profile, metric) or 0.0) / middle


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


_MOST_OF_IT = 0.5
_WORTH_TELLING = 0.05


def straggler_words(profiles: Sequence[Profile]) -> str:
    """The rank on which most of the waiting is, and where the one waits that waits longest for it:
    ``Rank 3 comes last to 48 of 50 collectives: rank 0 waits 1.20ms for it, of that 400.0us in
    allreduce of 4.2 MB (DistributedDataParallel.forward, train.py:31).`` Empty where waiting is
    little, or where it is not known.

    Args:
        profiles: of all ranks, with what each waited.
    """
    for_whom: dict[int, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    by_number = {one.rank or 0: one for one in profiles}
    for number, one in by_number.items():
        for met in one.collectives:
            if met.last in by_number:  # a file may say anything
                for_whom[met.last][number] += met.waited_us
    sums = {last: sum(waits.values()) for last, waits in for_whom.items()}
    if not any(sums.values()):
        return ""
    last = max(sums, key=sums.__getitem__)
    waits = for_whom[last]
    waiting = by_number[max(waits, key=waits.__getitem__)]
    busy = value_of(waiting, "gpu_busy") or 0.0
    little = waits[waiting.rank or 0] < _WORTH_TELLING * busy
    if little or sums[last] <= _MOST_OF_IT * sum(sums.values()):
        return ""
    longest = max(
        (one for one in waiting.collectives if one.last == last), key=lambda one: one.waited_us
    )
    ours = by_number[last].collectives
    times = sum(one.last == last for one in ours)
    of_that = f", of that {format_time(longest.waited_us)} in" if times > 1 else " in"
    return (
        f"Rank {last} comes last to {times} of {len(ours)} collectives: rank {waiting.rank} waits "
        f"{format_time(waits[waiting.rank or 0])} for it{of_that} "
        f"{_collective_words(longest, _kernel_of(longest, waiting, profiles))}."
    )


def _kernel_of(
    collective: Collective, profile: Profile, profiles: Sequence[Profile]
) -> Kernel | None:
    """Its kernel; of a rank whose kernels a file does not have, since it does the same as another
    one, that one's."""
    kept = profile.kernels
    if not profile.kernels_kept:
        kept = next((one.kernels for one in profiles if one.kernels_kept), ())
    return kept[collective.kernel] if 0 <= collective.kernel < len(kept) else None


def _collective_words(collective: Collective, kernel: Kernel | None) -> str:
    """What it is, how large, and who called it: as far as that is known."""
    what = collective.operation or (short_name(kernel.name) if kernel else "a collective")
    if collective.bytes is not None:
        what += f" of {format_bytes(collective.bytes)}"
    place = source_place(kernel.source) if kernel else None
    where = [chain_words(kernel.operators) if kernel else "", line_words(place)]
    told = ", ".join(filter(None, where))
    return f"{what} ({told})" if told else what
