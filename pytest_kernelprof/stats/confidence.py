"""The median of rounds and its exact order-statistic confidence interval."""

from __future__ import annotations

import functools
import itertools
import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

FEWEST_ROUNDS = 8
"""Fewer values have no interval at 99 %."""

FEWEST_FOR_BLOCKS = 12
"""Fewer values tell nothing of how alike neighbours are."""

ENOUGH_FOR_A_RANGE = 48
"""So many values, however alike, hold the true median between the least and the greatest."""

_MOST_ALIKE = 0.95


@dataclass(frozen=True, slots=True)
class Interval:
    """A median and the interval that covers the true one with the asked confidence.

    ``block``: so many values in a row count as one, by their median, since neighbours are alike.
    """

    median: float
    low: float
    high: float
    block: int = 1


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


def autocorrelation(values: Sequence[float]) -> float:
    """How alike neighbours are: the lag-1 autocorrelation, 0 where all values are equal.

    The plain estimate is too low by about ``(1 + 3 r) / n`` (Kendall, Biometrika 41, 1954), which
    is added back.
    """
    n, mean = len(values), statistics.fmean(values)
    away = [value - mean for value in values]
    total = sum(a * a for a in away)
    if not total:
        return 0.0
    r = sum(a * b for a, b in itertools.pairwise(away)) / total
    return r + (1 + 3 * r) / n


def block_size(values: Sequence[float]) -> int:
    """How many values in a row count as one; 1 where neighbours are not seen to be alike.

    ``(1 + r) / (1 - r)``, by which the variance of a mean grows under an autocorrelation of r that
    fades geometrically, where r exceeds what independent values give one time in forty.
    """
    if len(values) < FEWEST_FOR_BLOCKS:
        return 1
    r = min(autocorrelation(values), _MOST_ALIKE)
    return 1 if r <= 2 / math.sqrt(len(values)) else math.ceil((1 + r) / (1 - r))


def median_interval(values: Sequence[float], confidence: float = 0.99) -> Interval | None:
    """The interval of the median, or None for fewer values than any interval needs (8 at 99 %).

    The order statistics want independent values. Rounds next to each other are not always that (a
    clock that ramps, a neighbour that computes): then medians of blocks take the values' place.
    Where even many values make too few blocks, the interval is their whole range.
    """
    size = block_size(values)
    blocks = [
        statistics.median(values[i : i + size]) for i in range(0, len(values) - size + 1, size)
    ]
    k = rank(len(blocks), confidence)
    if k == 0 and len(values) >= ENOUGH_FOR_A_RANGE:
        return Interval(statistics.median(values), min(values), max(values), size)
    if k == 0:
        return None
    ordered = sorted(blocks)
    return Interval(statistics.median(values), ordered[k - 1], ordered[-k], size)
