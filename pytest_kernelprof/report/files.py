"""The files that a run is written to: one table for options and commands. And numbers for other
tools: pytest-benchmark's JSON, which trackers of benchmarks read, and the properties of a test in
JUnit files. A metric's name ends there in its unit: ``cuda_time_us``."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from pytest_kernelprof.records import codec
from pytest_kernelprof.records.document import Comparison, Run, Test
from pytest_kernelprof.records.profile import STATUSES, Metric, Place, Profile
from pytest_kernelprof.records.recording import Environment
from pytest_kernelprof.summary import wording
from pytest_kernelprof.units import format_bytes, printable

Content = tuple[bytes, str]
"""What is in a file, and a few words on how much that is."""


# Each loads its format when it is called: most runs write no file.
def _json(run: Run) -> Content:
    from pytest_kernelprof.records.document import pack

    profiles = sum(len(test.profiles) for test in run.tests)
    return codec.encode(pack(run)), f"tests {len(run.tests)}, profiles {profiles}"


def _benchmark_json(run: Run) -> Content:
    import json

    document, left_out = benchmarks_of(run)
    without = [f"left out {why} {count}" for why, count in left_out.items()]
    words = ", ".join([f"benchmarks {len(document['benchmarks'])}", *without])
    return json.dumps(document, indent=1, allow_nan=False).encode(), words


def _link() -> Callable[[Place], str]:
    """Where lines of code lead to, if this is a step of GitHub Actions."""
    from pytest_kernelprof.report import github

    address_of = github.links(os.getcwd(), os.environ)
    return lambda place: address_of(place) if os.path.exists(place.file) else ""


def _markdown(run: Run) -> Content:
    from pytest_kernelprof.report.markdown import markdown_of

    return _text(markdown_of(run, link=_link()))


def _html(run: Run) -> Content:
    from pytest_kernelprof.report.html.page import html_of

    return _text(html_of(run, _link()))


def _text(told: str) -> Content:
    data = told.encode()
    return data, format_bytes(len(data))


FORMS: Mapping[str, Callable[[Run], Content]] = {
    "json": _json,
    "html": _html,
    "markdown": _markdown,
    "benchmark_json": _benchmark_json,
}
"""The function that makes a file's content, by the name of its option."""


def why_no_file(form: str, path: str) -> str:
    """Return why a form of a run cannot be written to a path; empty if it can. The path's folder is
    made if needed.

    Args:
        form: a key of ``FORMS``.
    """
    if form == "benchmark_json" and find_spec("pytest_benchmark") is None:
        return "it needs pytest-benchmark: pip install 'pytest-kernelprof[benchmark]'"
    return codec.why_no_file(path)


def write_file(path: str, form: str, run: Run) -> str:
    """Write a run as a file, whole or not at all.

    Args:
        form: a key of ``FORMS``.

    Returns:
        How much is in it, in words.

    Raises:
        OSError: it cannot be written; nothing is left behind.
    """
    data, words = FORMS[form](run)
    codec.write_atomically(path, data)
    return words


# Numbers for other tools.


def named_with_unit(metric: Metric) -> tuple[str, int | float | None]:
    """Return a metric's name, which ends in its unit, and its value."""
    suffix = "" if metric.unit == "count" else f"_{metric.unit}".replace("/", "_per_").lower()
    name = metric.name if metric.name.endswith(suffix) else metric.name + suffix
    if metric.value is None:
        return name, None
    return name, int(metric.value) if metric.kind == "exact" else float(metric.value)


# Properties in JUnit files.

# What several profiles of a test have together.
_TOGETHER: Mapping[str, Callable[[list[float]], float]] = {
    **dict.fromkeys(("kernels", "cuda_time", "latency", "syncs"), sum),
    "peak_memory": max,
}


def properties_of(
    profiles: Sequence[Profile], comparisons: Sequence[Comparison]
) -> list[tuple[str, str | int | float]]:
    """Return names and values, eight at most: the worst outcome of all limits, then numbers of the
    test's profiles together, one call of each. A number that one profile lacks is left out."""
    outcomes = {profile.outcome for profile in profiles}
    outcomes |= {verdict.outcome for one in comparisons for verdict in one.verdicts}
    if not outcomes:
        return []
    worst = next((outcome for outcome in STATUSES if outcome in outcomes), "no limit")
    found: list[tuple[str, str | int | float]] = [("verdict", worst)]
    if not profiles:
        return found
    for name, together in _TOGETHER.items():
        numbers = [named_with_unit(one.metrics[name]) for one in profiles if name in one.metrics]
        values = [value for _, value in numbers if value is not None]
        if len(values) == len(profiles) and all(one.integrity.complete for one in profiles):
            found.append((numbers[0][0], round(together(values), 3)))
    devices = dict.fromkeys(profile.environment.device for profile in profiles)
    return [*found, ("profiles", len(profiles)), ("device", printable(", ".join(devices)))]


# pytest-benchmark's JSON.

_TIMES = {"cuda": "cuda_time", "cpu": "latency"}
"""The metric that is a profile's time, by the kind of its device."""
_FORMAT = "5.0.0"
"""The version of pytest-benchmark whose format this is."""
_LONGEST = 1000
"""Bencher refuses a file for one name of more than 1024 bytes."""


def benchmarks_of(run: Run) -> tuple[dict[str, Any], dict[str, int]]:
    """Return a benchmark for each profile that has a time: on a GPU the rounds of ``cuda_time``, on
    the CPU those of ``latency``, in seconds; its other metrics are in ``extra_info``.

    Incomplete profiles are left out, since their numbers may be wrong, and so are tries that were
    repeated.

    Returns:
        The document, and how many profiles were left out, by reason.
    """
    left_out, seen = Counter[str](), Counter[str]()
    benchmarks: list[dict[str, Any]] = []
    environments: list[Environment] = []
    for test, profile in ((of, one) for of in run.tests for one in of.profiles):
        if why := _why_left_out(test, profile):
            left_out[why] += 1
            continue
        whole = codec.text(wording.with_label(test.id, profile.label))
        name = whole.encode()[:_LONGEST].decode("utf-8", "ignore")
        seen[name] += 1
        fullname = name if seen[name] == 1 else f"{name} #{seen[name]}"
        benchmarks.append(_benchmark(fullname, profile))
        environments.append(profile.environment)
    versions = [set(one.versions.items()) for one in environments] or [set()]
    document = {
        "machine_info": {
            "device": ", ".join(dict.fromkeys(one.device for one in environments)),
            **dict(sorted(set.intersection(*versions))),  # where all have the same
        },
        "commit_info": {},
        "benchmarks": benchmarks,
        "datetime": run.began.replace("Z", "+00:00"),
        "version": _FORMAT,
    }
    return document, dict(left_out)


def _why_left_out(test: Test, profile: Profile) -> str:
    if test.outcome == "rerun":
        return "of a try that was repeated"
    if not profile.integrity.complete:
        return "incomplete"
    return "" if any(_rounds(profile)) else "without a time"


def _rounds(profile: Profile) -> tuple[float, ...]:
    time = profile.metrics.get(_TIMES[profile.environment.kind])
    return () if time is None else time.rounds


def _benchmark(fullname: str, profile: Profile) -> dict[str, Any]:
    """Without the metrics that are not available; times among them are medians in microseconds."""
    time, device = _TIMES[profile.environment.kind], profile.environment.device
    path, bracket, parameters = fullname.partition("[")  # parameters may hold colons
    facts = {"time": time, "device": device, "one_shot": profile.one_shot}
    known = (metric for metric in profile.metrics.values() if metric.value is not None)
    return {
        # By default pytest-benchmark compares within a group.
        "group": f"{time} ({device})",
        "name": path.rpartition("::")[2] + bracket + parameters,
        "fullname": fullname,
        "params": None,
        "param": None,
        "extra_info": {"kernelprof": {**facts, **dict(map(named_with_unit, known))}},
        "options": {"timer": f"kernelprof: {time}", "warmup": not profile.one_shot},
        "stats": _stats_of([us / 1e6 for us in _rounds(profile)]),
    }


def _stats_of(seconds: Sequence[float]) -> dict[str, Any]:
    """All statistics that pytest-benchmark has of rounds, by itself."""
    stats: Any = import_module("pytest_benchmark.stats").Stats()
    for one in seconds:
        stats.update(one)
    return {**stats.as_dict(), "data": list(seconds), "iterations": 1}
