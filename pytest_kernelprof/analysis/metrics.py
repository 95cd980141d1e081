"""Metrics made of numbers: a count, a time with its interval, one that could not be had."""

from __future__ import annotations

import functools
import statistics
from typing import TYPE_CHECKING

from pytest_kernelprof.schema.metrics import METRICS
from pytest_kernelprof.schema.run import Metric
from pytest_kernelprof.stats.confidence import median_interval

if TYPE_CHECKING:
    from collections.abc import Sequence


def metric_of(name: str, rounds: Sequence[float], why: str = "") -> Metric:
    """The metric of that name from the value of each round.

    A count is its largest round; a time the median of its rounds, with the interval of that.
    """
    spec = METRICS[name]
    if spec.kind == "exact":
        values = tuple(int(value) for value in rounds)
        most = max(values, default=0)
        return Metric(name, spec.kind, spec.unit, rounds=values, value=most, why=why)
    times = tuple(float(value) for value in rounds)
    interval = median_interval(times)
    if interval is None:
        median = statistics.median(times)
        return Metric(name, spec.kind, spec.unit, rounds=times, value=median, why=why)
    return Metric(
        name,
        spec.kind,
        spec.unit,
        rounds=times,
        value=interval.median,
        low=interval.low,
        high=interval.high,
        why=why,
        block=interval.block,
    )


def extended(metric: Metric, more: Sequence[float]) -> Metric:
    """The metric with the rounds of further sessions; one that could not be had stays absent."""
    if not more or metric.value is None:
        return metric
    return metric_of(metric.name, (*metric.rounds, *more), metric.why)


def most_launches(launches: Metric, kernels: Metric) -> float:
    """How many launch calls a call has, or may have where that could not be had: one a kernel."""
    found = kernels.value if launches.value is None else launches.value
    return found or 0


@functools.lru_cache(maxsize=256)
def absent(name: str, why: str) -> Metric:
    """A metric that could not be had, with the reason. All profiles share it."""
    spec = METRICS[name]
    return Metric(name, spec.kind, spec.unit, why=why)
