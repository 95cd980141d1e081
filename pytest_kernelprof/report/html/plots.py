"""The rounds of a profile's times as plots, each with interval and limit, and what was before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_kernelprof.digest.words import count_words
from pytest_kernelprof.report.html.full_names import cut
from pytest_kernelprof.report.html.pictures import Rounds, Strip, strip_of
from pytest_kernelprof.units import format_time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_kernelprof.schema.against import Compared
    from pytest_kernelprof.schema.run import Metric, Profile, Verdict

_LONGEST = 1_000
_STRIPS = ("cuda_time", "latency")
_TITLES = {
    "cuda_time": "GPU time of each round",
    "latency": "Latency of each call",
    "launch_overhead": "Launch overhead of each call",
    "dispatch_time": "Dispatch time of each call",
    "gpu_busy": "GPU busy in each round",
}


@dataclass(frozen=True, slots=True)
class Plot:
    """Rounds of one metric."""

    title: str
    strip: Strip
    limit: str
    facts: tuple[str, ...]


def plots_of(profile: Profile, compared: Compared | None, before: str, most: int) -> Iterator[Plot]:
    """The times that everybody looks at, what has a limit, and pairs with a revision.

    Args:
        before: the revision's name.
        most: so many of the times that have no limit, on a GPU.
    """
    on_gpu = profile.environment.kind == "cuda"
    limits = {one.metric: one for one in profile.verdicts if one.of_limit and one.unit == "us"}
    for name in dict.fromkeys((*(_STRIPS[:most] if on_gpu else _STRIPS), *limits)):
        metric = profile.metrics.get(name)
        if metric is not None and metric.value is not None and name in _TITLES:
            plot = _metric_plot(profile, metric, limits.get(name))
            if plot is not None:
                yield plot
    pairs = _pairs_plot(compared, before)
    if pairs is not None:
        yield pairs


def _metric_plot(profile: Profile, metric: Metric, limit: Verdict | None) -> Plot | None:
    assert metric.value is not None  # as the caller has seen
    earlier = [
        one
        for verdict in profile.verdicts
        if verdict.comparison is not None
        for one in verdict.comparison.metrics
        if one.name == metric.name
    ]
    rows = [Rounds("this run", metric.rounds, metric.value, metric.low, metric.high)]
    for one in earlier:
        olds = [(i, old) for i, old in enumerate(one.olds, 1) if old is not None]
        rows += [Rounds(_run_name(i, len(one.olds)), (old,), old, now=False) for i, old in olds]
    allowed = limit.allowed if limit is not None else None
    strip = strip_of(rows[:6], allowed)
    if strip is None:
        return None
    facts = [f"median {format_time(metric.value)}"]
    if metric.low is not None and metric.high is not None:
        interval = f"{format_time(metric.low)} to {format_time(metric.high)}"
        facts.append(f"99 % interval {interval}, {count_words(len(metric.rounds), 'round')}")
    if metric.why:
        facts.append(cut(metric.why, _LONGEST))
    words = f"limit {format_time(allowed)}" if allowed is not None else ""
    return Plot(_TITLES[metric.name], strip, words, (", ".join(facts),))


def _run_name(number: int, of: int) -> str:
    return "earlier run" if of == 1 else f"run {number} of {of}"


def _pairs_plot(compared: Compared | None, before: str) -> Plot | None:
    """What each pair of processes says of the time, in percent of the revision's."""
    timing = compared.timing if compared is not None else None
    if timing is None or len(timing.pairs) < 1:
        return None
    values = tuple((one.ratio - 1) * 100 for one in timing.pairs)
    middle = (timing.ratio - 1) * 100
    margin = timing.margin * 100
    strip = strip_of([Rounds("% slower", (*values, 0.0), middle)], margin)
    if strip is None:
        return None
    old, new = format_time(timing.old_us), format_time(timing.new_us)
    facts = (
        f"{old} with {before}, {new} now: {middle:+.1f} % by "
        f"{count_words(len(values), 'pair')} of processes, margin {margin:.3g} %",
    )
    return Plot(f"GPU time against {before}", strip, f"margin {margin:.3g} %", facts)
