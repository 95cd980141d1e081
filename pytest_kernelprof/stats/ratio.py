"""How many times as fast: the ratio of two series of rounds that were taken in turn."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_kernelprof.stats.confidence import median_interval

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Ratio:
    """The reference over the candidate: above 1 where the candidate takes less.

    Attributes:
        median: exponential of the median of the pairs' log ratios.
        low, high: its interval; both None where there are too few pairs.
        pairs: how many pairs there are. block: how many count as one, neighbours being alike.
    """

    median: float
    low: float | None
    high: float | None
    pairs: int
    block: int = 1


def ratio(
    candidate: Sequence[float], reference: Sequence[float], confidence: float = 0.99
) -> Ratio | None:
    """The ratio of two series whose i-th values were taken one right after the other.

    A drift of the machine is in both values of a pair and leaves their ratio alone; the order
    within the pairs alternates, so what the first does to the second does not add up either.
    None where a value is zero or less: nothing can be said of such a pair.
    """
    if len(candidate) != len(reference):
        raise ValueError(f"{len(candidate)} candidate rounds, {len(reference)} of the reference")
    if not candidate or min(*candidate, *reference) <= 0:
        return None
    logs = [math.log(r / c) for c, r in zip(candidate, reference, strict=True)]
    interval = median_interval(logs, confidence)
    if interval is None:
        return Ratio(math.exp(statistics.median(logs)), None, None, len(logs))
    return Ratio(
        math.exp(interval.median),
        math.exp(interval.low),
        math.exp(interval.high),
        len(logs),
        interval.block,
    )
