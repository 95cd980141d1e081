"""What runs found, their file (one JSON line a shape, written when it is done), and the tables."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from .candidates import NO_RIVALS, TITLES
from .floors import Floors
from .shapes import REGIMES, Shape

CLOCKS = ("gpu", "wall", "graph")

HEADER = (
    *("shape", "candidate", "kernels", "GPU us [99 %]", "wall us [99 %]", "graph us [99 %]"),
    *("of floor", "error"),
)
EXPLANATION = """\
Medians and their 99 % order-statistic intervals, of isolated calls on cold data. GPU: sum of the
kernels' durations under the profiler. wall: from the call until the device is done, without a
profiler, right after another call of the candidate. graph: an event pair around the replay of a
CUDA graph of the one call. of floor: the time that the matrix rate or the bandwidth of a copy
allows, over the GPU time; `floors.py` says what it assumes. error: relative norm against
float64."""
VERDICT = ("shape", "GPU: of the best other", "wall: of eager", "graph: of the best other")


class Spread(NamedTuple):
    """Median and its 99 % order-statistic interval, microseconds; no interval below 8 values."""

    median: float
    low: float | None = None
    high: float | None = None


def spread(values: Sequence[float]) -> Spread | None:
    """The k-th smallest and largest of n values hold the median with a chance of 1 - 2 P(B < k),
    B binomial with n and 1/2: the largest k for which that is 99 %."""
    n, ordered = len(values), sorted(values)
    if n < 8:
        return Spread(statistics.median(values)) if values else None
    k, tail = 0, 2 / 2**n
    while tail <= 0.01:
        k += 1
        tail += 2 * math.comb(n, k) / 2**n
    return Spread(statistics.median(ordered), ordered[k - 1], ordered[n - k])


@dataclass
class Result:
    """One candidate at one shape; ``None`` where nothing was or could be measured.

    ``kernels``: name and median microseconds of each. ``error``: relative, against float64.
    """

    kernels: list[tuple[str, float]] | None = None
    gpu: Spread | None = None
    wall: Spread | None = None
    graph: Spread | None = None
    error: float | None = None
    notes: list[str] = field(default_factory=list)


@dataclass
class Measured:
    """One shape in one run, with the floors of that run."""

    shape: Shape
    place: str
    floors: Floors
    results: dict[str, Result]

    def median(self, name: str, clock: str) -> float | None:
        result = self.results.get(name)
        time = getattr(result, clock) if result else None
        return time.median if time else None

    def best_rival(self, clock: str) -> tuple[str, float] | None:
        """Name and median of the fastest candidate that is not ours."""
        times = {
            name: time
            for name in self.results
            if name not in NO_RIVALS and (time := self.median(name, clock))
        }
        return min(times.items(), key=lambda one: one[1]) if times else None

    def write(self, path: Path | None) -> None:
        """Append a line: a run that is cut short loses only the shape that it was at."""
        if path:
            with path.open("a") as file:
                file.write(json.dumps(asdict(self)) + "\n")

    @property
    def is_whole(self) -> bool:
        return any(result.gpu for result in self.results.values())


def read(paths: Iterable[Path]) -> dict[Shape, Measured]:
    """The shapes of some runs' files; of a shape's lines the last counts, whole."""
    found: dict[Shape, Measured] = {}
    for path in paths:
        for line in map(json.loads, path.read_text().splitlines() if path.exists() else ()):
            shape = Shape(**line["shape"])
            results = {name: _result(fields) for name, fields in line["results"].items()}
            found[shape] = Measured(shape, line["place"], Floors(**line["floors"]), results)
    return found


def report(measured: Sequence[Measured]) -> str:
    """Everything, as Markdown."""
    parts = [f"- {place}" for place in dict.fromkeys(one.place for one in measured)]
    parts += ["", EXPLANATION]
    for regime in REGIMES:
        rows = [row for one in measured if one.shape.regime == regime for row in _rows(one)]
        if rows:
            parts += ["", f"## {regime}", "", _render(HEADER, rows, left=2)]
    parts += ["", "## How many times as fast fused_mlp is", ""]
    parts += [_render(VERDICT, [_verdict(one) for one in measured], left=1)]
    notes: dict[str, list[str]] = {}
    for one in measured:
        for name, result in one.results.items():
            for note in result.notes:
                notes.setdefault(f"{TITLES[name]}: {note}", []).append(one.shape.label)
    if notes:
        parts += ["", "## Notes", ""]
        parts += [f"- {note} ({'; '.join(labels)})" for note, labels in notes.items()]
    return "\n".join(parts) + "\n"


def _verdict(one: Measured) -> tuple[str, ...]:
    cells = []
    for clock in CLOCKS:
        eager = one.median("eager", clock)
        rival = ("eager", eager) if clock == "wall" and eager else one.best_rival(clock)
        mine = one.median("ours", clock)
        name = "" if clock == "wall" or rival is None else f" ({TITLES[rival[0]]})"
        cells.append(f"{rival[1] / mine:.2f}{name}" if rival and mine else "-")
    return (one.shape.label, *cells)


def _rows(one: Measured) -> Iterator[tuple[str, ...]]:
    label = one.shape.label
    for name, result in one.results.items():
        if not (result.gpu or result.wall):
            continue  # the notes say why
        least = one.floors.least_us(one.shape)
        yield (
            label,
            TITLES[name],
            "-" if result.kernels is None else str(len(result.kernels)),
            *(_time(getattr(result, clock)) for clock in CLOCKS),
            f"{100 * least / result.gpu.median:.0f} %" if result.gpu else "-",
            "-" if result.error is None else f"{result.error:.1e}",
        )
        label = ""


def _render(header: Sequence[str], rows: Sequence[Sequence[str]], left: int) -> str:
    """A Markdown table whose source is aligned, too: all but the first columns to the right."""
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        padded = [
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return f"| {' | '.join(padded)} |"

    rule = ["-" * w if i < left else "-" * (w - 1) + ":" for i, w in enumerate(widths)]
    return "\n".join([line(header), line(rule), *map(line, rows)])


def _time(time: Spread | None) -> str:
    if time is None:
        return "-"
    if time.low is None or time.high is None:
        return _us(time.median)
    return f"{_us(time.median)} [{_us(time.low)}, {_us(time.high)}]"


def _us(time: float) -> str:
    return f"{time:.2f}" if time < 10 else f"{time:.1f}" if time < 1000 else f"{time:.0f}"


def _result(fields: dict[str, Any]) -> Result:
    clocks = {name: Spread(*fields[name]) for name in CLOCKS if fields[name]}
    return Result(**{**fields, **clocks})
