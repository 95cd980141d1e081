"""Values taken in turn, by rounds of one process and by pairs of processes: pure.

Rounds of callables that take turns in one process are pairs, whose ratio has an interval.

Two processes that run the same code differ by up to 2.2 %, since memory is placed otherwise, and
whoever is started first is faster by up to 1.3 %. So rounds of one pair of processes, one of each
code, are no replicates: the pair is the unit, and the estimate is the mean over both orders of
starting, in which the order cancels. All ratios are of the current over the baseline: above one,
the current is slower.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pytest_kernelprof.schema.paired import Paired, PairedChange, TimedPair
from pytest_kernelprof.schema.paired import Side as Side
from pytest_kernelprof.stats.confidence import median_interval

if TYPE_CHECKING:
    from collections.abc import Sequence

TURNS = 6
MOST_TURNS = 12
ROUNDS = 12
"""Rounds of each side in a turn that count; one more before them is dropped."""
PAIRS = 4
DEFAULT_MARGIN = 0.05
SMALLEST_MARGIN = 0.02

_SCATTER = 0.01
_SUSPICION = 0.5
_EACH_ORDER = 0.6
_TINY_US = 2.0
_LEAST_OF_TINY_US = 0.2


@dataclass(frozen=True, slots=True)
class Turn:
    """The rounds of both sides in one turn, in microseconds, the first one of each included."""

    current: tuple[float, ...]
    baseline: tuple[float, ...]


def order_of_turns(names: Sequence[str], first: int, turns: int) -> list[str]:
    """Whose call is when, in so many turns: A B, B A, ..., so that a drift meets all alike.

    Args:
        first: how many turns there were before: every other is in reverse order.
    """
    forth, back = list(names), list(reversed(names))
    return [name for turn in range(first, first + turns) for name in (back if turn % 2 else forth)]


def paired_rounds(
    current: Sequence[float], baseline: Sequence[float], confidence: float = 0.99
) -> Paired | None:
    """How two series compare whose i-th values were taken one right after the other.

    A drift of the machine is in both values of a pair and leaves their ratio alone; the order
    within the pairs alternates, so what the first does to the second does not add up either.
    None where a value is zero or less: nothing can be said of such a pair.
    """
    if len(current) != len(baseline):
        raise ValueError(f"{len(current)} current rounds, {len(baseline)} of the baseline")
    if not current or min(*current, *baseline) <= 0:
        return None
    logs = [math.log(c / b) for c, b in zip(current, baseline, strict=True)]
    found = median_interval(logs, confidence)
    if found is None:
        return Paired(ratio=math.exp(statistics.median(logs)))
    middle, low, high = map(math.exp, (found.median, found.low, found.high))
    return Paired(ratio=middle, low=low, high=high, block=found.block)


def log_ratio_of(turn: Turn) -> float:
    """Of the medians of a turn, without the first round of each side, which finds other caches.

    Raises:
        ValueError: there is no round beside the first one, or one takes no time.
    """
    current, baseline = turn.current[1:], turn.baseline[1:]
    if not current or not baseline or min(*current, *baseline) <= 0:
        raise ValueError("a turn needs at least 2 rounds of each side, all above zero")
    return math.log(statistics.median(current) / statistics.median(baseline))


def more_turns(turns: Sequence[Turn]) -> int:
    """How many turns a pair still has to take: twice as many where they scatter."""
    if len(turns) < TURNS:
        return TURNS - len(turns)
    scatters = statistics.stdev(map(log_ratio_of, turns)) > _SCATTER
    return max(0, MOST_TURNS - len(turns)) if scatters else 0


def pair_of(first: Side | None, turns: Sequence[Turn]) -> TimedPair:
    """What the turns of two processes say together: their median."""
    baseline_us, current_us = (
        statistics.median(value for side in sides for value in side[1:])
        for sides in ([turn.baseline for turn in turns], [turn.current for turn in turns])
    )
    ratio = math.exp(statistics.median(map(log_ratio_of, turns)))
    return TimedPair(first, ratio, len(turns), baseline_us, current_us)


def margin_for(kernels_us: float, margin: float = DEFAULT_MARGIN) -> float:
    """The margin for a call: for kernels below 2 us in all at least 0.2 us.

    Of these it is not a share that differs between processes of the same code but a time: an
    addition of 1,024 numbers took 0.99, 1.02, 1.12 and 1.18 us on an H200, in each process the
    same in all of its rounds.

    Args:
        kernels_us: what all its kernels take. margin: as the user has it, a fraction.

    Raises:
        ValueError: it is smaller than what pairs of processes can tell.
    """
    if not margin >= SMALLEST_MARGIN:
        raise ValueError(
            f"a margin of {margin:.1%} is below {SMALLEST_MARGIN:.0%}: processes that run the same "
            "code differ by as much"
        )
    if kernels_us >= _TINY_US:
        return margin
    return max(margin, _LEAST_OF_TINY_US / kernels_us)


def decide(pairs: Sequence[TimedPair], margin: float) -> Paired:
    """What follows from pairs; a change of None asks for more of them.

    One pair clears a test: it is at most half of the margin slower. ``PAIRS`` of balanced order
    convict it: their estimate is beyond the margin, and each order's mean beyond 0.6 of it. So with
    "better": the first pair asks for more where it is faster by the whole margin.

    Args:
        margin: a fraction, of ``margin_for``.

    Raises:
        ValueError: there is no pair.
    """
    if not pairs:
        raise ValueError("no pair, no decision")
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
    """Of kernels that were launched in another configuration, which autotuning may choose anew in
    each process: slower only where all pairs are."""
    if found.change == "worse" and found.agreeing < len(found.pairs):
        return replace(found, change="undecided", why="another configuration was chosen")
    return found


def _orders(pairs: Sequence[TimedPair]) -> list[float]:
    """The mean of each order of starting; none where one of them is missing."""
    sides: tuple[Side, ...] = ("current", "baseline")
    of_each = [[math.log(pair.ratio) for pair in pairs if pair.first == side] for side in sides]
    return [statistics.fmean(values) for values in of_each] if all(of_each) else []
