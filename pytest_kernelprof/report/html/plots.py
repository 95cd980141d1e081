"""Small pictures: a value beside its limit, the rounds of a time with interval, limit and what was
before."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_kernelprof.report.html.kernel_names import cut
from pytest_kernelprof.summary.words import count_words
from pytest_kernelprof.units import format_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pytest_kernelprof.schema.paired import Paired
    from pytest_kernelprof.schema.run import Metric, Profile, Verdict


_SCALE_WIDTH = 240
_STRIP_LEFT, _STRIP_RIGHT = 112, 560
_ROW = 44
_MOST_DOTS = 400


@dataclass(frozen=True, slots=True)
class Scale:
    """A value and its limit on one scale from zero, in pixels of 240; None where there is no
    interval."""

    value: float
    limit: float
    low: float | None
    high: float | None


def scale_of(value: float, limit: float, low: float | None, high: float | None) -> Scale | None:
    """None where there is nothing to see: both are zero."""
    top = max(value, limit, high or 0.0) * 1.12
    if not 0 < top < math.inf:
        return None

    def x(us: float) -> float:
        return round(2 + us / top * (_SCALE_WIDTH - 4), 1)

    has_interval = low is not None and high is not None
    return Scale(
        x(value),
        x(limit),
        x(max(low, 0.0)) if has_interval and low is not None else None,
        x(high) if has_interval and high is not None else None,
    )


@dataclass(frozen=True, slots=True)
class Rounds:
    """What a strip shows in one row.

    Attributes:
        name: what it is of. values: one a round. middle: their median, or what was judged.
        low, high: its interval at 99 %, where there is one.
        now: whether it is this run's.
    """

    name: str
    values: tuple[float, ...]
    middle: float
    low: float | None = None
    high: float | None = None
    now: bool = True


@dataclass(frozen=True, slots=True)
class StripRow:
    """A row in pixels.

    Attributes:
        dots: the commands of a path with a point for each round.
        band: where the interval begins, and how wide it is; None without one.
    """

    name: str
    y: int
    dots: str
    middle: float
    band: tuple[float, float] | None
    now: bool


@dataclass(frozen=True, slots=True)
class Strip:
    """Rounds as dots on one scale, with what is allowed; the width is 560 pixels.

    Attributes:
        ticks: places and numbers. limit: where it is; None without one.
    """

    height: int
    rows: tuple[StripRow, ...]
    ticks: tuple[tuple[float, str], ...]
    limit: float | None
    limit_left: bool


def strip_of(rows: Sequence[Rounds], limit: float | None = None) -> Strip | None:
    """None where there are no rounds to see."""
    seen = [v for row in rows for v in (*row.values, row.middle, row.low, row.high, limit)]
    values = [v for v in seen if v is not None and math.isfinite(v)]
    if not any(len(row.values) > 1 or row.low is not None for row in rows):
        return None
    pad = (max(values) - min(values)) * 0.06 or abs(values[0]) * 0.01 or 1.0
    low, high = min(values) - pad, max(values) + pad

    def x(value: float) -> float:
        share = (value - low) / (high - low)
        return round(_STRIP_LEFT + share * (_STRIP_RIGHT - 16 - _STRIP_LEFT), 1)

    return Strip(
        34 + _ROW * len(rows),
        tuple(_row(row, 30 + _ROW * i, x) for i, row in enumerate(rows)),
        tuple((x(at), f"{at:.10g}") for at in _ticks(low, high)),
        None if limit is None else x(limit),
        limit is not None and x(limit) > _STRIP_RIGHT - 100,
    )


def _row(row: Rounds, y: int, x: Callable[[float], float]) -> StripRow:
    kept = row.values[:: max(1, math.ceil(len(row.values) / _MOST_DOTS))]
    # Scattered, so that equal rounds are seen to be several, and always the same.
    dots = (f"M{x(v)} {y + round((i * 0.618) % 1 * 22 - 11)}h0" for i, v in enumerate(kept))
    band = None
    if row.low is not None and row.high is not None:
        band = (x(row.low), round(max(x(row.high) - x(row.low), 1), 1))
    return StripRow(row.name, y, "".join(dots), x(row.middle), band, row.now)


def _ticks(low: float, high: float) -> Iterator[float]:
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * one for one in (1, 2, 5, 10) if power * one >= rough)
    first = math.ceil(low / step)
    for i in range(first, math.floor(high / step) + 1):
        yield i * step


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


def plots_of(profile: Profile, most: int) -> Iterator[Plot]:
    """The times that everybody looks at, what has a limit, and pairs with a revision.

    Args:
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
    found = (one.comparison for one in profile.verdicts)
    paired = (one.paired for one in found if one is not None and one.paired is not None)
    yield from filter(None, map(_pairs_plot, paired))


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
        number = len(one.baselines)
        olds = [(i, old) for i, old in enumerate(one.baselines, 1) if old is not None]
        rows += [Rounds(_run_name(i, number), (old,), old, now=False) for i, old in olds]
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


def _pairs_plot(paired: Paired) -> Plot | None:
    """What each pair of processes says of the time, in percent of the revision's."""
    values = tuple((one.ratio - 1) * 100 for one in paired.pairs)
    middle, margin = (paired.ratio - 1) * 100, paired.margin * 100
    strip = strip_of([Rounds("% slower", (*values, 0.0), middle)], margin) if values else None
    if strip is None:
        return None
    old, new = format_time(paired.baseline_us), format_time(paired.current_us)
    facts = (
        f"{old} before, {new} now: {middle:+.1f} % by "
        f"{count_words(len(values), 'pair')} of processes, margin {margin:.3g} %",
    )
    return Plot("GPU time against the revision", strip, f"margin {margin:.3g} %", facts)
