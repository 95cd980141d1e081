"""What ``kernel_profile.compare`` took of each callable, as a profile that compares with others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_kernelprof.schema.metrics import METRICS
from pytest_kernelprof.schema.run import Conditions, Metric, Profile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_kernelprof.schema.run import Comparison, Contestant, Environment, Test


def contestants_of(test: Test) -> Iterator[Profile]:
    """The callables of a test's comparisons, each with its kernels and what was compared, under
    the label ``compare NAME``; none of a run that did not note where it compared."""
    for comparison in test.comparisons:
        if comparison.environment is not None:
            for one in comparison.contestants:
                yield _as_profile(one, comparison, comparison.environment)


def _as_profile(one: Contestant, comparison: Comparison, environment: Environment) -> Profile:
    spec = METRICS[comparison.metric]
    counts = one.unstable or (one.kernels,)
    return Profile(
        label=f"compare {one.name}",
        environment=environment,
        conditions=next(iter(comparison.conditions), Conditions()),
        metrics={
            "kernels": Metric("kernels", "exact", "count", rounds=counts, value=float(max(counts))),
            spec.name: Metric(
                spec.name, spec.kind, spec.unit, value=one.value, low=one.low, high=one.high
            ),
        },
        kernels_kept=False,
    )
