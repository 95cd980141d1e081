"""A run in pytest-benchmark's JSON, which trackers of benchmarks read: a time for each profile."""

from __future__ import annotations

import hashlib
import statistics
from bisect import bisect_left, bisect_right
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_kernelprof.schema.codec import text

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pytest_kernelprof.schema.run import Environment, Metric, Profile, Run, Test

TIMES = {"cuda": "cuda_time", "cpu": "latency"}
"""What is told of a profile as its time, by the kind of its device."""

_FORMAT = "5.0.0"
"""The version of pytest-benchmark whose format this is."""
_LONGEST = 1000
"""Bencher refuses a file for one name of more than 1024 bytes."""
_SUFFIXES = {"us": "_us", "bytes": "_bytes", "count": ""}


class Benchmarks(NamedTuple):
    """The document, plain builtins, and how many profiles are not in it, by why."""

    document: dict[str, Any]
    left_out: dict[str, int]


def benchmarks_of(run: Run) -> Benchmarks:
    """A benchmark for each profile that has a time: on a GPU the rounds of ``cuda_time``, on the
    CPU those of ``latency``, in seconds; its other metrics are in ``extra_info``.

    What is not complete has no number that is right, and tries that were repeated are told by the
    last: neither is in it.
    """
    left_out: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    benchmarks: list[dict[str, Any]] = []
    environments: dict[str, Environment] = {}
    for test in run.tests:
        for profile in test.profiles:
            if why := _why_left_out(test, profile):
                left_out[why] += 1
                continue
            name = f"{test.id} [{profile.label}]" if profile.label else test.id
            seen[name] += 1
            fullname = name if seen[name] == 1 else f"{name} #{seen[name]}"
            benchmarks.append(_benchmark(fullname, profile))
            environments[repr(profile.environment)] = profile.environment
    document = {
        "machine_info": _machine(environments.values()),
        "commit_info": {},
        "benchmarks": benchmarks,
        "datetime": run.began.replace("Z", "+00:00"),
        "version": _FORMAT,
    }
    return Benchmarks(document, dict(left_out))


def _why_left_out(test: Test, profile: Profile) -> str:
    if test.outcome == "rerun":
        return "of a try that was repeated"
    if not profile.integrity.complete:
        return "incomplete"
    return "" if any(_rounds(profile)) else "without a time"


def _rounds(profile: Profile) -> tuple[float, ...]:
    time = profile.metrics.get(TIMES[profile.environment.kind])
    return () if time is None else time.rounds


def _benchmark(fullname: str, profile: Profile) -> dict[str, Any]:
    time = TIMES[profile.environment.kind]
    fullname = _bounded(text(fullname))
    return {
        # By default pytest-benchmark compares within a group.
        "group": f"{time} ({profile.environment.device})",
        "name": _function_of(fullname),
        "fullname": fullname,
        "params": None,
        "param": None,
        "extra_info": {"kernelprof": _facts(profile, time)},
        "options": {"timer": f"kernelprof: {time}", "warmup": not profile.one_shot},
        "stats": stats_of([us / 1e6 for us in _rounds(profile)]),
    }


def _function_of(fullname: str) -> str:
    """The function with its parameters, which may hold colons."""
    path, bracket, parameters = fullname.partition("[")
    return path.rpartition("::")[2] + bracket + parameters


def _facts(profile: Profile, time: str) -> dict[str, Any]:
    """Each metric that there is under its name and unit; times are medians in microseconds."""
    known = (metric for metric in profile.metrics.values() if metric.value is not None)
    return {
        "time": time,
        "device": profile.environment.device,
        "one_shot": profile.one_shot,
        **dict(named_with_unit(metric) for metric in known),
    }


def named_with_unit(metric: Metric) -> tuple[str, int | float | None]:
    """A metric's name, which ends in its unit, and its value."""
    suffix = _SUFFIXES[metric.unit]
    name = metric.name if metric.name.endswith(suffix) else metric.name + suffix
    if metric.value is None:
        return name, None
    return name, float(metric.value) if metric.unit == "us" else int(metric.value)


def stats_of(seconds: Sequence[float]) -> dict[str, Any]:
    """All that pytest-benchmark tells of rounds: quartiles by the medians of halves (Tukey's
    hinges, where the halves of an odd number share their middle as pytest-benchmark's do)."""
    data = sorted(seconds)
    q1, q3 = _quartiles(data)
    iqr = q3 - q1
    mean, total = statistics.mean(data), sum(data)
    stddev = statistics.stdev(data) if len(data) > 1 else 0.0
    low, high = bisect_left(data, q1 - 1.5 * iqr), bisect_right(data, q3 + 1.5 * iqr)
    beyond = sum(value < mean - stddev or value > mean + stddev for value in data)
    iqr_outliers = len(data) - (high - low)
    return {
        "min": data[0],
        "max": data[-1],
        "mean": mean,
        "stddev": stddev,
        "rounds": len(data),
        "median": statistics.median(data),
        "iqr": iqr,
        "q1": q1,
        "q3": q3,
        "iqr_outliers": iqr_outliers,
        "stddev_outliers": beyond,
        "outliers": f"{beyond};{iqr_outliers}",
        "ld15iqr": data[low],
        "hd15iqr": data[high - 1],
        "ops": len(data) / total,
        "total": total,
        "data": list(seconds),
        "iterations": 1,
    }


def _quartiles(data: Sequence[float]) -> tuple[float, float]:
    n = len(data)
    if n == 1:
        return data[0], data[0]
    if n % 2 == 0:
        return statistics.median(data[: n // 2]), statistics.median(data[n // 2 :])
    k = n // 4
    if n % 4 == 1:
        return 0.25 * data[k - 1] + 0.75 * data[k], 0.75 * data[3 * k] + 0.25 * data[3 * k + 1]
    return (
        0.75 * data[k] + 0.25 * data[k + 1],
        0.25 * data[3 * k + 1] + 0.75 * data[3 * k + 2],
    )


def _bounded(name: str) -> str:
    """The name, or of one that is too long its beginning and a digest of the whole."""
    data = name.encode()
    if len(data) <= _LONGEST:
        return name
    begin = data[: _LONGEST - 20].decode("utf-8", "ignore")
    return f"{begin}...{hashlib.sha1(data, usedforsecurity=False).hexdigest()[:8]}"


def _machine(environments: Collection[Environment]) -> dict[str, Any]:
    """Where it was measured, as far as the run says; versions where all have the same."""
    versions = [set(one.versions.items()) for one in environments] or [set()]
    return {
        "device": ", ".join(dict.fromkeys(one.device for one in environments)),
        **dict(sorted(set.intersection(*versions))),
    }
