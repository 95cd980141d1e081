"""What a run found, and its file: one JSON line for the run, one for each shape when it is done."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pytest_kernelprof.stats.confidence import median_interval

from .candidates import NO_RIVALS
from .floors import Floors
from .shapes import Shape, Target


@dataclass(frozen=True)
class Spread:
    """Median and its 99 % order-statistic interval, microseconds; no interval below 8 values."""

    median: float
    low: float | None = None
    high: float | None = None


def spread(values: Sequence[float]) -> Spread | None:
    interval = median_interval(values)
    if interval:
        return Spread(interval.median, interval.low, interval.high)
    return Spread(statistics.median(values)) if values else None


@dataclass
class Result:
    """One candidate at one shape; ``None`` where nothing was or could be measured.

    ``kernels``: operator, name and median microseconds of each. ``error``: relative, against
    float64.
    """

    kernels: list[tuple[str, str, float]] | None = None
    gpu: Spread | None = None
    wall: Spread | None = None
    graph: Spread | None = None
    error: float | None = None
    held_bytes: int | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def us(self) -> float | None:
        """The time that counts: on the GPU."""
        return self.gpu.median if self.gpu else None


@dataclass
class Measured:
    """One shape in one run, with the floors of that run."""

    shape: Shape
    floors: Floors
    results: dict[str, Result]

    def best_rival(self, clock: str) -> tuple[str, float] | None:
        """Name and median of the fastest candidate that is not ours, by "gpu", "wall", "graph"."""
        times = {
            name: getattr(result, clock).median
            for name, result in self.results.items()
            if name not in NO_RIVALS and getattr(result, clock)
        }
        return min(times.items(), key=lambda one: one[1]) if times else None

    def faster(self, clock: str) -> float | None:
        """How many times as fast as the best rival ours is."""
        mine, rival = self.results.get("ours"), self.best_rival(clock)
        time = getattr(mine, clock) if mine else None
        return rival[1] / time.median if rival and time else None


def write_line(path: Path | None, line: dict[str, Any]) -> None:
    """Append at once: a run that is cut short loses only the shape that it was at."""
    if path:
        with path.open("a") as file:
            file.write(json.dumps(line) + "\n")


def line_of(measured: Measured, run: str) -> dict[str, Any]:
    results = {name: asdict(result) for name, result in measured.results.items()}
    return {"run": run, "shape": asdict(measured.shape), "results": results}


def read(paths: Iterable[Path]) -> tuple[list[str], list[Measured]]:
    """The places and shapes of some runs' files; of a shape's lines the last counts, whole."""
    floors: dict[str, Floors] = {}
    places: dict[str, None] = {}
    found: dict[Shape, Measured] = {}
    for path in paths:
        for line in map(json.loads, path.read_text().splitlines()):
            if "floors" in line:
                floors[line["run"]] = Floors(**line["floors"])
                places[line["place"]] = None
                continue
            shape = Shape(**{**line["shape"], "target": Target(**line["shape"]["target"])})
            results = {name: _result(found) for name, found in line["results"].items()}
            found[shape] = Measured(shape, floors[line["run"]], results)
    return list(places), list(found.values())


def _result(fields: dict[str, Any]) -> Result:
    clocks = {name: Spread(**fields[name]) for name in ("gpu", "wall", "graph") if fields[name]}
    return Result(**{**fields, **clocks})
