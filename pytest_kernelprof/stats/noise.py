"""How far times scatter, and the margin that a limit needs so that it raises no false alarm."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_kernelprof.stats.confidence import autocorrelation, median_interval

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Run = Mapping[str, Mapping[str, Sequence[float]]]
    """One process: workload -> metric -> microseconds of each round."""

# One-sided tolerance factors of a normal distribution, 99 % covered with 95 % confidence: Natrella,
# Experimental Statistics, table A-7 (NIST/SEMATECH e-Handbook, section 7.2.6.3). By sample size.
_TOLERANCE = {
    2: 37.094, 3: 10.553, 4: 7.042, 5: 5.741, 6: 5.062, 7: 4.642, 8: 4.354, 9: 4.143, 10: 3.981,
    11: 3.852, 12: 3.747, 13: 3.659, 14: 3.585, 15: 3.520, 20: 3.295,
}  # fmt: skip

# A difference of two times may be near zero: percentages of it say nothing.
_IN_MICROSECONDS = ("launch_overhead",)

RULE = (
    "margin = k x standard deviation of the process medians + the upper half of the 99 % "
    "interval of one process; k is the one-sided normal tolerance factor (99 % of processes, "
    "confidence 95 %) for this number of processes"
)


@dataclass(frozen=True, slots=True)
class Spread:
    """How one metric of one workload scatters. Fractions, of the median.

    Attributes:
        median_us: median of the processes' medians, in microseconds.
        within: coefficient of variation of the rounds of a process; the median of the processes'.
        autocorrelation: of rounds that follow each other (lag 1), likewise.
        between: range of the processes' medians; None for a single process.
        margin_us: what to add to a median for a limit; None for a single process.
    """

    workload: str
    metric: str
    median_us: float
    within: float
    autocorrelation: float
    between: float | None
    margin_us: float | None

    @property
    def margin(self) -> float | None:
        """The margin as a fraction of the median; None where there is none to take it of."""
        if self.margin_us is None or self.median_us <= 0:
            return None
        return self.margin_us / self.median_us


@dataclass(frozen=True, slots=True)
class Margin:
    """What to add to today's median for a limit on a metric: a fraction or microseconds."""

    metric: str
    fraction: float | None
    us: float | None

    @property
    def text(self) -> str:
        """For example ``max_cuda_time: median + 3 %``; rounded up."""
        if self.fraction is not None:
            return f"max_{self.metric}: median + {max(1, math.ceil(self.fraction * 100))} %"
        return f"max_{self.metric}: median + {math.ceil(self.us or 0)}us"


def tolerance_factor(processes: int) -> float:
    """How many standard deviations above the mean 99 % of all processes lie, at 95 % confidence,
    judged from so many of them.

    Raises:
        ValueError: fewer than two, from which no spread follows.
    """
    if processes < 2:
        raise ValueError(f"{processes} process has no spread; at least 2 are needed")
    return _TOLERANCE[max(n for n in _TOLERANCE if n <= processes)]


def variation(values: Sequence[float]) -> float:
    """The coefficient of variation: standard deviation over mean; 0 for fewer than two values."""
    mean = statistics.fmean(values)
    return statistics.stdev(values) / mean if len(values) > 1 and mean > 0 else 0.0


def spreads(runs: Sequence[Run]) -> list[Spread]:
    """The spread of each metric of each workload that all processes measured."""
    return [
        _spread(workload, metric, [run[workload][metric] for run in runs])
        for workload, metrics in runs[0].items()
        for metric in metrics
        if all(run.get(workload, {}).get(metric) for run in runs)
    ]


def _spread(workload: str, metric: str, rounds: Sequence[Sequence[float]]) -> Spread:
    medians = [statistics.median(values) for values in rounds]
    median = statistics.median(medians)
    between = margin = None
    if len(medians) > 1:
        between = (max(medians) - min(medians)) / median if median > 0 else 0.0
        margin = tolerance_factor(len(medians)) * statistics.stdev(medians)
        margin += max(_upper_half(values) for values in rounds)
    return Spread(
        workload,
        metric,
        median,
        statistics.median(variation(values) for values in rounds),
        statistics.median(autocorrelation(values) for values in rounds),
        between,
        margin,
    )


def _upper_half(values: Sequence[float]) -> float:
    """How far the interval of the median reaches above it; a limit is kept only below that."""
    interval = median_interval(values)
    if interval is None:
        return max(values) - statistics.median(values)
    return interval.high - interval.median


def margins(found: Sequence[Spread]) -> list[Margin]:
    """For each metric the margin that suffices for all workloads; none for a single process."""
    result = []
    for metric in dict.fromkeys(spread.metric for spread in found):
        of_metric = [spread for spread in found if spread.metric == metric]
        fractions = [spread.margin for spread in of_metric if spread.margin is not None]
        us = [spread.margin_us for spread in of_metric if spread.margin_us is not None]
        if metric in _IN_MICROSECONDS and us:
            result.append(Margin(metric, None, max(us)))
        elif fractions:
            result.append(Margin(metric, max(fractions), None))
    return result
