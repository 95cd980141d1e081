"""What a round spends on communication: its kernels' time, and how much of that nothing hides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pytest_kernelprof.analysis.kernels import kernel_rows

if TYPE_CHECKING:
    from pytest_kernelprof.trace.arrays import Ints
    from pytest_kernelprof.trace.reading import Reading

_OF_A_LIBRARY = ("nccl", "rccl", "oneccl")


@dataclass(frozen=True, slots=True)
class Communication:
    """Of one round, in microseconds.

    Attributes:
        us: the kernels of a library for communication, together. They spin while they wait for
            others, so that is no time of transfers alone.
        exposed_us: time in which one of them ran, and no other kernel.
    """

    us: float
    exposed_us: float


def communication_of(reading: Reading, number: int) -> Communication:
    """That of a round.

    Args:
        number: which round.
    """
    rows = kernel_rows(reading)[number]
    acts = reading.trace.activities
    of_a_library = acts.name[rows].that(lambda name: any(w in name.lower() for w in _OF_A_LIBRARY))
    talking, computing = rows[of_a_library], rows[~of_a_library]
    if not len(talking):
        return Communication(0.0, 0.0)
    busy, hidden = _covered(acts.start[rows], acts.end[rows]), 0
    if len(computing):
        hidden = _covered(acts.start[computing], acts.end[computing])
    us = int((acts.end[talking] - acts.start[talking]).sum()) / 1e3
    return Communication(us, (busy - hidden) / 1e3)


def _covered(start: Ints, end: Ints) -> int:
    """How much time intervals cover together, in ns."""
    order = np.argsort(start, kind="stable")
    start, reached = start[order], np.maximum.accumulate(end[order])
    begun = np.maximum(start[1:], reached[:-1])
    return int(reached[0] - start[0] + np.maximum(0, reached[1:] - begun).sum())
