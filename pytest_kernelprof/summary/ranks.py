"""The ranks of one program: which of them do the same, which differs, whom the others wait for; and
the table that has a row for each."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pytest_kernelprof.records.profile import Collective, Profile
from pytest_kernelprof.summary import wording
from pytest_kernelprof.units import format_bytes, format_time

_SLOWER_BY = 0.05
"""A rank is told if its own kernels take so much longer than those of the median rank."""
_COUNTED = {
    "kernels": ("kernel", "kernels"),
    "memcpys": ("copy", "copies"),
    "syncs": ("wait", "waits"),
}
"""The counts that ranks are compared by: one of it, and several."""
_UNMATCHED = "not available: "


@dataclass(frozen=True, slots=True)
class Rank:
    """One process of a program.

    Attributes:
        name: "3", or the name of its file. file: where its trace is.
    """

    name: str
    file: str
    profile: Profile

    @property
    def counts(self) -> tuple[float | None, ...]:
        """The counts that are equal in ranks that do the same."""
        return tuple(wording.value_of(self.profile, name) for name in _COUNTED)


def ranks_of(profile: Profile) -> tuple[Rank, ...]:
    """Return the ranks of a call on several, by number; none of a call on one."""
    if not profile.other_ranks:
        return ()
    return tuple(Rank(str(one.rank), one.trace, one) for one in profile.ranks)


@dataclass(frozen=True, slots=True)
class Odd:
    """A rank that differs from most.

    Attributes:
        like: one of the ranks that most are like.
        counts: the differences of its counts, by metric.
        slower: how much longer its own kernels take than those of the median rank, as a fraction;
            0 if that is little.
    """

    rank: Rank
    like: Rank
    counts: dict[str, float]
    slower: float

    @property
    def words(self) -> str:
        """For example ``2 more kernels, 2 more waits, 16 % more GPU time``."""
        words = []
        for name, by in self.counts.items():
            more = "more" if by > 0 else "fewer"
            words.append(wording.count(abs(int(by)), *(f"{more} {one}" for one in _COUNTED[name])))
        if self.slower:
            words.append(f"{self.slower * 100:.0f} % more GPU time")
        return ", ".join(words)


def odd_ones(ranks: Sequence[Rank]) -> tuple[Odd, ...]:
    """Find the ranks that differ from most; none if no more than half are alike."""
    usual, number = Counter(one.counts for one in ranks).most_common(1)[0]
    if len(ranks) < 2 or 2 * number <= len(ranks):
        return ()
    like = next(one for one in ranks if one.counts == usual)
    # Of an even number, the faster one of the two in the middle.
    middle = statistics.median_low(wording.gpu_us(one.profile) for one in ranks)
    found = []
    for one in ranks:
        both = zip(_COUNTED, one.counts, usual, strict=True)
        counts = {name: (mine or 0) - (most or 0) for name, mine, most in both if mine != most}
        slower = wording.gpu_us(one.profile) / middle - 1 if middle else 0.0
        if counts or slower > _SLOWER_BY:
            found.append(Odd(one, like, counts, slower if slower > _SLOWER_BY else 0.0))
    return tuple(found)


def waiting_words(ranks: Sequence[Rank]) -> Iterator[str]:
    """Yield whom the others wait for; why that is unknown, if they communicate."""
    if straggler := _straggler_words([one.profile for one in ranks]):
        yield straggler
    whys = [wording.note_of(one.profile, "comm_wait") for one in ranks]
    if unmatched := next((why for why in whys if why.startswith(_UNMATCHED)), ""):
        yield f"It is unknown who waits for whom: {unmatched.removeprefix(_UNMATCHED)}."


_MOST_OF_IT = 0.5
_WORTH_TELLING = 0.05


def _straggler_words(profiles: Sequence[Profile]) -> str:
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
    last = max(sums, key=sums.__getitem__, default=0)
    if not sums or sums[last] <= _MOST_OF_IT * sum(sums.values()):
        return ""
    number, us = max(for_whom[last].items(), key=lambda one: one[1])
    waiting = by_number[number]
    if us < _WORTH_TELLING * (wording.value_of(waiting, "gpu_busy") or 0.0):
        return ""
    waited = [one for one in waiting.collectives if one.last == last]
    longest = max(waited, key=lambda one: one.waited_us)
    ours = by_number[last].collectives
    times = sum(one.last == last for one in ours)
    of_that = f", of that {format_time(longest.waited_us)} in" if times > 1 else " in"
    return (
        f"Rank {last} comes last to {times} of {len(ours)} collectives: rank {number} waits "
        f"{format_time(us)} for it{of_that} {_collective_words(longest, waiting, profiles)}."
    )


def _collective_words(collective: Collective, profile: Profile, profiles: Sequence[Profile]) -> str:
    """What it is, how large, and who called it: as far as that is known. A file may have the
    kernels of one rank alone, where others do the same."""
    kept = (one.kernels for one in (profile, *profiles) if one.kernels_kept)
    kernels = dict(enumerate(next(kept, ())))
    kernel = kernels.get(collective.kernel)
    what = collective.operation or (kernel.short_name if kernel else "a collective")
    if collective.bytes is not None:
        what += f" of {format_bytes(collective.bytes)}"
    if kernel is None:
        return what
    where = wording.chain(kernel.operators), wording.line_of(wording.source_place(kernel.source))
    return f"{what} ({', '.join(filter(None, where))})" if any(where) else what
