"""What the work of other processes can explain of a time, and what it cannot: pure.

Other work only ever adds to a round. The GPU gives its time to processes in turn: beside one that
never rests a round takes up to twice as long, and the fastest of many met it least. So the code
takes at least half of its *fastest* round. The median says nothing of the kind: half of the rounds
may have met the other process in full, or something that it did once.

- Times of the device (``cuda_time``, ``gpu_busy``): the fastest profiled round.
- Times of the host (``latency``, ``dispatch_time``): the fastest call, those of a second look
  included, less what an attached CUPTI may have added to it.
- ``launch_overhead`` is a difference of two times, which other work may make of nothing at all: it
  is never beyond explanation, nor is a limit that is a share of the latency.
- Communication waits for other ranks, whatever holds those up: no time of it is beyond explanation.
- A comparison: the candidate takes at least half of its fastest round, the reference at most its
  own fastest, so the true ratio is at most twice the ratio of the two.

A GPU that throttles is another matter: its clock falls by any factor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_kernelprof.schema.metrics import METRICS
from pytest_kernelprof.stats.confidence import median_interval

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_kernelprof.schema.run import Conditions, Metric

EXPLAINED = 2.0
"""How many times as long other work makes a round, at most."""
_OF_COMMUNICATION = ("comm_time", "exposed_comm_time")


def beyond_contention(
    conditions: Conditions, metric: Metric, second: Metric | None, allowed: float
) -> float | None:
    """The fastest round in microseconds, where a limit is broken whatever else ran on the GPU; None
    where that is not certain.

    Args:
        second: the same metric by a second look, if there was one.
        allowed: the limit in microseconds.
    """
    if not _only_contended(conditions) or not _is_one_time(metric.name):
        return None
    looks = [one for one in (metric, second) if one is not None and one.rounds]
    fastest = min((min(one.rounds) - _tax(one) for one in looks), default=0.0)
    return fastest if fastest > EXPLAINED * allowed else None


def ratio_beyond_contention(
    conditions: Iterable[Conditions],
    candidate: Iterable[float],
    reference: Iterable[float],
    allowed: float,
) -> float | None:
    """The ratio of the fastest rounds, reference over candidate, where it is too small whatever
    else ran on the GPU; None where that is not certain.

    Args:
        conditions: of the rounds that were disturbed.
        candidate, reference: their rounds in microseconds. allowed: the smallest ratio asked for.
    """
    best = min(candidate, default=0.0)
    if not all(map(_only_contended, conditions)) or best <= 0:
        return None
    found = min(reference, default=0.0) / best
    return found if found * EXPLAINED < allowed else None


def _only_contended(conditions: Conditions) -> bool:
    return conditions.contended and not conditions.kept_throttled_rounds


def _is_one_time(name: str) -> bool:
    return len(METRICS[name].sources) == 1 and name not in _OF_COMMUNICATION


def _tax(metric: Metric) -> float:
    """What was taken from the lower bound of a host time for an attached CUPTI."""
    plain = median_interval(metric.rounds)
    return 0.0 if plain is None or metric.low is None else max(0.0, plain.low - metric.low)
