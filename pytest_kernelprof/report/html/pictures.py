"""Small pictures: a value beside its limit, the rounds of a metric, each with its interval."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

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
