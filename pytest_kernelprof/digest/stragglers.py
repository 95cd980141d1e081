"""Which rank the others wait for, and in which collective most."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_kernelprof.digest.cells import value_of
from pytest_kernelprof.digest.words import chain_words, line_words, source_place
from pytest_kernelprof.names.short import short_name
from pytest_kernelprof.units import format_bytes, format_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_kernelprof.schema.run import Collective, Kernel, Profile

_MOST_OF_IT = 0.5
_WORTH_TELLING = 0.05


@dataclass(frozen=True, slots=True)
class Straggler:
    """A rank that comes last.

    Attributes:
        rank: its number. last: to how many collectives it came last, of ``number``.
        waiting: the rank that waits longest for it. waited_us: for how long, in microseconds.
        collective: where that rank waits longest for it. kernel: that one's, where it is known.
    """

    rank: int
    last: int
    number: int
    waiting: Profile
    waited_us: float
    collective: Collective
    kernel: Kernel | None

    @property
    def words(self) -> str:
        """For example ``Rank 3 comes last to 48 of 50 collectives: rank 0 waits 1.20ms for it, of
        that 400.0us in allreduce of 4.2 MB (DistributedDataParallel.forward, train.py:31).``"""
        told = f"Rank {self.rank} comes last to {self.last} of {self.number} collectives: "
        told += f"rank {self.waiting.rank} waits {format_time(self.waited_us)} for it"
        us = self.collective.waited_us
        told += f", of that {format_time(us)} in" if self.last > 1 else " in"
        return f"{told} {_collective_words(self.collective, self.kernel)}."


def straggler_of(profiles: Sequence[Profile]) -> Straggler | None:
    """The rank on which most of the waiting is; None where waiting is little, or where it is not
    known.

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
        return None
    last = max(sums, key=sums.__getitem__)
    waits = for_whom[last]
    waiting = by_number[max(waits, key=waits.__getitem__)]
    busy = value_of(waiting, "gpu_busy") or 0.0
    little = waits[waiting.rank or 0] < _WORTH_TELLING * busy
    if little or sums[last] <= _MOST_OF_IT * sum(sums.values()):
        return None
    longest = max(
        (one for one in waiting.collectives if one.last == last), key=lambda one: one.waited_us
    )
    ours = by_number[last].collectives
    return Straggler(
        rank=last,
        last=sum(one.last == last for one in ours),
        number=len(ours),
        waiting=waiting,
        waited_us=waits[waiting.rank or 0],
        collective=longest,
        kernel=_kernel_of(longest, waiting, profiles),
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
    where = [chain_words(kernel.operators) if kernel else "", line_words(place) if place else ""]
    told = ", ".join(filter(None, where))
    return f"{what} ({told})" if told else what
