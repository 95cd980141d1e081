"""Statistics of rounds: intervals of medians, margins for noise, and pairs taken in turn.

Rounds of callables that take turns in one process are pairs, whose ratio has an interval.

Two processes that run the same code differ by up to 2.2 %, as their memory is placed differently,
and the process that starts first is faster by up to 1.3 %. So rounds of one pair of processes, one
of each code, are no replicates: the pair is the unit, and the estimate is the mean over both orders
of starting, in which the order cancels. All ratios are current over baseline: above one, the
current code is slower.
"""

from __future__ import annotations

import functools
import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from pytest_kernelprof.records.comparison import SIDES, Paired, PairedChange, Side, TimedPair
from pytest_kernelprof.units import grouped

Run = Mapping[str, Mapping[str, Sequence[float]]]
"""One process: workload -> metric -> microseconds of each round."""


FEWEST_ROUNDS = 8
"""Fewer values have no interval at 99 %."""

FEWEST_FOR_BLOCKS = 12
"""Fewer values do not show how alike neighbours are."""

ENOUGH_FOR_A_RANGE = 48
"""This many values, however alike, have the true median between the least and the greatest."""

_MOST_ALIKE = 0.95


class Interval(NamedTuple):
    """A median and the interval that covers the true one with the given confidence.

    ``block``: this many values in a row count as one, by their median, as neighbours are alike.
    """

    median: float
    low: float
    high: float
    block: int = 1


@functools.cache
def rank(n: int, confidence: float) -> int:
    """Return the rank ``k``, from each end, of the order statistics that bound the median; 0 if
    there are too few.

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
    """Return how alike neighbours are: the lag-1 autocorrelation, 0 if all values are equal.

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
    """Return how many values in a row count as one; 1 if neighbours are not alike.

    ``(1 + r) / (1 - r)``, by which the variance of a mean grows under an autocorrelation of r that
    fades geometrically, where r exceeds what independent values give one time in forty.
    """
    if len(values) < FEWEST_FOR_BLOCKS:
        return 1
    r = min(autocorrelation(values), _MOST_ALIKE)
    return 1 if r <= 2 / math.sqrt(len(values)) else math.ceil((1 + r) / (1 - r))


def median_interval(values: Sequence[float], confidence: float = 0.99) -> Interval | None:
    """Return the interval of the median; None for fewer values than it needs (8 at 99 %).

    The order statistics need independent values. Rounds in a row are not always independent (a
    clock that ramps, another process that computes): then medians of blocks replace the values.
    If even many values make too few blocks, the interval is their whole range.
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


# One-sided tolerance factors of a normal distribution, 99 % covered with 95 % confidence: Natrella,
# Experimental Statistics, table A-7 (NIST/SEMATECH e-Handbook, section 7.2.6.3). By sample size.
_TOLERANCE = {
    2: 37.094, 3: 10.553, 4: 7.042, 5: 5.741, 6: 5.062, 7: 4.642, 8: 4.354, 9: 4.143, 10: 3.981,
    11: 3.852, 12: 3.747, 13: 3.659, 14: 3.585, 15: 3.520, 20: 3.295
}  # fmt: skip

# A difference of two times may be near zero, which makes percentages meaningless.
_IN_MICROSECONDS = ("launch_overhead",)

RULE = (
    "margin = k x standard deviation of the process medians + the upper half of the 99 % "
    "interval of one process; k is the one-sided normal tolerance factor (99 % of processes, "
    "confidence 95 %) for this number of processes"
)


class Spread(NamedTuple):
    """How one metric of one workload varies, as fractions of the median.

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
        """The margin as a fraction of the median; None if either is missing."""
        if self.margin_us is None or self.median_us <= 0:
            return None
        return self.margin_us / self.median_us


class Margin(NamedTuple):
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
    """Return how many standard deviations above the mean 99 % of all processes lie, with 95 %
    confidence, from a sample of this size.

    Args:
        processes: two or more; from fewer, no spread follows.
    """
    return _TOLERANCE[max(n for n in _TOLERANCE if n <= processes)]


def variation(values: Sequence[float]) -> float:
    """Return the standard deviation over the mean; 0 for fewer than two values."""
    mean = statistics.fmean(values)
    return statistics.stdev(values) / mean if len(values) > 1 and mean > 0 else 0.0


def spreads(runs: Sequence[Run]) -> list[Spread]:
    """Return the spread of each metric of each workload that all processes measured."""
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
    scatter = statistics.median(map(variation, rounds))
    alike = statistics.median(map(autocorrelation, rounds))
    return Spread(workload, metric, median, scatter, alike, between, margin)


def _upper_half(values: Sequence[float]) -> float:
    """Return how far the interval of the median reaches above it; a limit must lie above that."""
    interval = median_interval(values)
    if interval is None:
        return max(values) - statistics.median(values)
    return interval.high - interval.median


def margins(found: Sequence[Spread]) -> list[Margin]:
    """Return the margin of each metric that suffices for all workloads; none for one process."""
    result = []
    for metric, of_metric in grouped(found, lambda spread: spread.metric).items():
        fractions = [spread.margin for spread in of_metric if spread.margin is not None]
        us = [spread.margin_us for spread in of_metric if spread.margin_us is not None]
        if metric in _IN_MICROSECONDS and us:
            result.append(Margin(metric, None, max(us)))
        elif fractions:
            result.append(Margin(metric, max(fractions), None))
    return result


TURNS = 6
MOST_TURNS = 12
ROUNDS = 12
"""Rounds of each side in a turn that count; one more before them does not."""
PAIRS = 4
DEFAULT_MARGIN = 0.05
SMALLEST_MARGIN = 0.02
"""Processes that run the same code differ by as much."""

_SCATTER = 0.01
_SUSPICION = 0.5
_EACH_ORDER = 0.6
_TINY_US = 2.0
_LEAST_OF_TINY_US = 0.2


class Turn(NamedTuple):
    """The rounds of both sides in one turn, in microseconds, the first one of each included."""

    current: tuple[float, ...]
    baseline: tuple[float, ...]


def order_of_turns(names: Sequence[str], first: int, turns: int) -> list[str]:
    """Return the order of calls in turns: A B, B A, ..., so that a drift affects all alike.

    Args:
        first: how many turns there were before; every other turn is in reverse order.
    """
    forth, back = list(names), list(reversed(names))
    return [name for turn in range(first, first + turns) for name in (back if turn % 2 else forth)]


def paired_rounds(current: Sequence[float], baseline: Sequence[float]) -> Paired | None:
    """Compare two series whose i-th values were taken directly one after the other.

    A drift of the machine is in both values of a pair and does not change their ratio. The order
    within the pairs alternates, so the effect of the first on the second cancels, too. Returns None
    if a value is zero or less.
    """
    if not current or min(*current, *baseline) <= 0:
        return None
    logs = [math.log(c / b) for c, b in zip(current, baseline, strict=True)]
    found = median_interval(logs)
    if found is None:
        return Paired(ratio=math.exp(statistics.median(logs)))
    middle, low, high = map(math.exp, (found.median, found.low, found.high))
    return Paired(ratio=middle, low=low, high=high, block=found.block)


def log_ratio_of(turn: Turn) -> float:
    """Return the log ratio of the medians of a turn, without the first rounds, whose caches differ.
    All rounds take some time."""
    return math.log(statistics.median(turn.current[1:]) / statistics.median(turn.baseline[1:]))


def more_turns(turns: Sequence[Turn]) -> int:
    """Return how many turns a pair still needs: twice as many if they scatter."""
    if len(turns) < TURNS:
        return TURNS - len(turns)
    scatters = statistics.stdev(map(log_ratio_of, turns)) > _SCATTER
    return max(0, MOST_TURNS - len(turns)) if scatters else 0


def pair_of(first: Side | None, turns: Sequence[Turn]) -> TimedPair:
    """Return the pair of two processes: the median of their turns."""
    baseline_us, current_us = (
        statistics.median(value for side in sides for value in side[1:])
        for sides in ([turn.baseline for turn in turns], [turn.current for turn in turns])
    )
    ratio = math.exp(statistics.median(map(log_ratio_of, turns)))
    return TimedPair(first, ratio, len(turns), baseline_us, current_us)


def margin_for(kernels_us: float, margin: float = DEFAULT_MARGIN) -> float:
    """Return the margin for a call: at least 0.2 us if its kernels take less than 2 us together.

    The times of such calls differ between processes of the same code by a time, not by a share: an
    addition of 1,024 numbers took 0.99, 1.02, 1.12 and 1.18 us on an H200, the same in all rounds
    of a process.

    Args:
        kernels_us: the time of all its kernels. margin: the user's margin, a fraction.
    """
    if kernels_us >= _TINY_US:
        return margin
    return max(margin, _LEAST_OF_TINY_US / kernels_us)


def decide(pairs: Sequence[TimedPair], margin: float) -> Paired:
    """Judge pairs, one or more; a change of None asks for more of them.

    One pair suffices for "same": it is at most half of the margin slower, and not faster by the
    whole margin. For "worse", ``PAIRS`` of balanced order are needed: their estimate is beyond the
    margin, and the mean of each order beyond 0.6 of it. The same holds for "better".

    Args:
        margin: a fraction, from ``margin_for``.
    """
    found = Paired(
        pairs=tuple(pairs),
        margin=margin,
        baseline_us=statistics.median(one.baseline_us for one in pairs),
        current_us=statistics.median(one.current_us for one in pairs),
    )
    most = math.log1p(margin)
    means = _orders(pairs)
    if len(pairs) < PAIRS or not means:
        cleared = -most <= math.log(pairs[0].ratio) <= _SUSPICION * most
        return replace(found, change="same" if cleared else None, ratio=pairs[0].ratio)
    estimate = statistics.fmean(means)
    change: PairedChange = "same"
    if estimate > most and min(means) > _EACH_ORDER * most:
        change = "worse"
    elif estimate < -most and max(means) < -_EACH_ORDER * most:
        change = "better"
    elif estimate > _SUSPICION * most:
        change = "undecided"
    sign = -1 if change == "better" else 1
    agreeing = sum(sign * math.log(pair.ratio) > most for pair in pairs)
    return replace(found, change=change, ratio=math.exp(estimate), agreeing=agreeing)


def unless_reconfigured(found: Paired) -> Paired:
    """Judge kernels with another launch configuration, which autotuning may choose anew in each
    process: they are slower only if all pairs are."""
    if found.change == "worse" and found.agreeing < len(found.pairs):
        return replace(found, change="undecided", why="another configuration was chosen")
    return found


def _orders(pairs: Sequence[TimedPair]) -> list[float]:
    """Return the mean of each order of starting; empty if one of them is missing."""
    of_each = [[math.log(pair.ratio) for pair in pairs if pair.first == side] for side in SIDES]
    return [statistics.fmean(values) for values in of_each] if all(of_each) else []
