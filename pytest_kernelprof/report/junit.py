"""What JUnit files say of a test, as properties: flat, few, and none that is not known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_kernelprof.schema.run import STATUSES
from pytest_kernelprof.units import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_kernelprof.schema.run import Comparison, Profile

# Of each property the metric, and what several profiles make of it.
_NUMBERS: Mapping[str, tuple[str, Callable[[list[float]], float]]] = {
    "kernels": ("kernels", sum),
    "cuda_time_us": ("cuda_time", sum),
    "latency_us": ("latency", sum),
    "syncs": ("syncs", sum),
    "peak_memory_bytes": ("peak_memory", max),
}


def properties_of(
    profiles: Sequence[Profile], comparisons: Sequence[Comparison]
) -> list[tuple[str, str | int | float]]:
    """Names and values, eight at most: the worst outcome of all limits, then numbers of the test's
    profiles together, one call of each. A number that one of them does not have is not there."""
    outcomes = {profile.outcome for profile in profiles}
    outcomes |= {verdict.outcome for one in comparisons for verdict in one.verdicts}
    if not profiles and not outcomes:
        return []
    worst = next((outcome for outcome in STATUSES if outcome in outcomes), "no limit")
    found: dict[str, str | int | float] = {"verdict": worst}
    if not profiles:
        return list(found.items())
    devices = dict.fromkeys(profile.environment.device for profile in profiles)
    for name, (metric, together) in _NUMBERS.items():
        values = [_value(profile, metric) for profile in profiles]
        known = [value for value in values if value is not None]
        if len(known) == len(values):
            number = together(known)
            found[name] = round(number, 3) if name.endswith("_us") else int(number)
    found["profiles"] = len(profiles)
    found["device"] = printable(", ".join(devices))
    return list(found.items())


def _value(profile: Profile, metric: str) -> float | None:
    found = profile.metrics.get(metric)
    return None if found is None or not profile.integrity.complete else found.value
