"""Slower than before? By pairs of processes that take rounds in turn, one of each code: pure.

Two processes that run the same code differ by up to 2.2 %, since memory is placed otherwise, and
whoever is started first is faster by up to 1.3 %. So rounds of one pair are no replicates: the pair
is the unit, and the estimate is the mean over both orders of starting, in which the order cancels.
All ratios are logarithms of candidate over reference: above zero the candidate is slower.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pytest_kernelprof.schema.turns import Side as Side
from pytest_kernelprof.stats.noise import tolerance_factor

if TYPE_CHECKING:
    from collections.abc import Sequence

PairOutcome = Literal["worse", "better", "held", "undecided", "more"]
"""What follows from pairs: "more" of them are needed, else as it is told."""

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

    candidate: tuple[float, ...]
    reference: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """What a pair of processes says.

    Attributes:
        first: who was started first.
        log_ratio: of candidate over reference.
    """

    first: Side
    log_ratio: float


@dataclass(frozen=True, slots=True)
class Decision:
    """What follows from the pairs that there are.

    Attributes:
        ratio: how many times as long the candidate takes, by all pairs.
        agreeing: how many pairs are beyond the margin on the side of the outcome.
    """

    outcome: PairOutcome
    ratio: float
    pairs: int
    agreeing: int = 0


def log_ratio_of(turn: Turn) -> float:
    """Of the medians of a turn, without the first round of each side, which finds other caches.

    Raises:
        ValueError: there is no round beside the first one, or one takes no time.
    """
    candidate, reference = turn.candidate[1:], turn.reference[1:]
    if not candidate or not reference or min(*candidate, *reference) <= 0:
        raise ValueError("a turn needs at least 2 rounds of each side, all above zero")
    return math.log(statistics.median(candidate) / statistics.median(reference))


def more_turns(turns: Sequence[Turn]) -> int:
    """How many turns a pair still has to take: twice as many where they scatter."""
    if len(turns) < TURNS:
        return TURNS - len(turns)
    scatters = statistics.stdev(map(log_ratio_of, turns)) > _SCATTER
    return max(0, MOST_TURNS - len(turns)) if scatters else 0


def pair_of(first: Side, turns: Sequence[Turn]) -> Pair:
    """What the turns of two processes say together: their median."""
    return Pair(first, statistics.median(map(log_ratio_of, turns)))


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


def decide(pairs: Sequence[Pair], margin: float) -> Decision:
    """What follows from pairs.

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
    most = math.log1p(margin)
    if len(pairs) < PAIRS or not _orders(pairs):
        value = pairs[0].log_ratio
        cleared = -most <= value <= _SUSPICION * most
        return Decision("held" if cleared else "more", math.exp(value), len(pairs))
    means = _orders(pairs)
    estimate = statistics.fmean(means)
    outcome: PairOutcome = "held"
    if estimate > most and min(means) > _EACH_ORDER * most:
        outcome = "worse"
    elif estimate < -most and max(means) < -_EACH_ORDER * most:
        outcome = "better"
    elif estimate > _SUSPICION * most:
        outcome = "undecided"
    sign = -1 if outcome == "better" else 1
    agreeing = sum(sign * pair.log_ratio > most for pair in pairs)
    return Decision(outcome, math.exp(estimate), len(pairs), agreeing)


def unless_reconfigured(decision: Decision) -> Decision:
    """Of kernels that were launched in another configuration, which autotuning may choose anew in
    each process: slower only where all pairs are."""
    if decision.outcome == "worse" and decision.agreeing < decision.pairs:
        return Decision("undecided", decision.ratio, decision.pairs, decision.agreeing)
    return decision


def _orders(pairs: Sequence[Pair]) -> list[float]:
    """The mean of each order of starting; none where one of them is missing."""
    sides: tuple[Side, ...] = ("candidate", "reference")
    of_each = [[pair.log_ratio for pair in pairs if pair.first == side] for side in sides]
    return [statistics.fmean(values) for values in of_each] if all(of_each) else []


@dataclass(frozen=True, slots=True)
class PairNoise:
    """How pairs of processes differ that run the same code; fractions.

    Attributes:
        order: by how much the side that was started first is faster.
        spread: standard deviation of the pairs beyond that.
        largest: how far the pair that is farthest off is off.
        margin: the smallest one that raises no alarm, rounded up to half a percent.
    """

    order: float
    spread: float
    largest: float
    margin: float


def noise_of(found: Sequence[tuple[Side, float]]) -> PairNoise:
    """The noise of pairs, each with who was first and how many times as long the candidate took.

    An estimate is the mean of two means of two, so it scatters half as much as pairs do. The margin
    is beyond 99 % of all estimates, judged from so many pairs with 95 % confidence.

    Raises:
        ValueError: there are not two of each order at least.
    """
    logs = {
        side: [math.log(ratio) for first, ratio in found if first == side]
        for side in ("candidate", "reference")
    }
    if min(map(len, logs.values())) < PAIRS // 2:
        raise ValueError(f"the noise of pairs needs {PAIRS // 2} of each order at least")
    means = {side: statistics.fmean(values) for side, values in logs.items()}
    squares = sum((v - means[side]) ** 2 for side, values in logs.items() for v in values)
    spread = math.sqrt(squares / (len(found) - 2))
    off = abs(statistics.fmean(means.values()))
    needed = off + tolerance_factor(len(found) - 1) * spread / 2
    return PairNoise(
        order=(means["reference"] - means["candidate"]) / 2,
        spread=spread,
        largest=max(abs(value) for values in logs.values() for value in values),
        margin=max(SMALLEST_MARGIN, math.ceil(math.expm1(needed) * 200) / 200),
    )
