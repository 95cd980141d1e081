"""The median of rounds and its exact order-statistic confidence interval."""

from __future__ import annotations

import functools
import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Interval:
    """A median and the interval that covers the true one with the asked confidence."""

    median: float
    low: float
    high: float


@functools.cache
def rank(n: int, confidence: float) -> int:
    """Rank ``k``, from each end, of the order statistics that bound the median; 0 if too few.

    The largest ``k`` with ``2 * sum(C(n, i) for i < k) / 2**n <= 1 - confidence``: the
    distribution-free interval (Conover, Practical Nonparametric Statistics, section 3.2).
    """
    tail, k = 0.0, 0
    while k < n // 2:
        tail += 2 * math.comb(n, k) / 2**n
        if tail > 1 - confidence:
            break
        k += 1
    return k


def median_interval(values: Sequence[float], confidence: float = 0.99) -> Interval | None:
    """The interval of the median, or None for fewer values than any interval needs (8 at 99 %)."""
    k = rank(len(values), confidence)
    if k == 0:
        return None
    ordered = sorted(values)
    return Interval(statistics.median(ordered), ordered[k - 1], ordered[-k])
