"""The columns of a table of profiles: one unit and one number of decimals each, broken values in
their cells, and none that says the same in every row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_kernelprof.digest.findings import value_of
from pytest_kernelprof.report.tables import Numbers
from pytest_kernelprof.units import format_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_kernelprof.digest.records import Row

_MILLI, _MANY_MS = 1_000.0, 100_000.0
_FEWEST_ALIKE = 3
_BROKEN = 10


@dataclass(frozen=True, slots=True)
class Unit:
    """How the values of a column are written: scaled, with so many decimals."""

    name: str
    scale: float
    decimals: int

    def words(self, us: float, decimals: int | None = None) -> str:
        """A value."""
        return f"{us / self.scale:.{self.decimals if decimals is None else decimals}f}"


def time_unit(values: Sequence[float]) -> Unit:
    """Of microseconds: one decimal while the largest is below 1 ms, none above, and milliseconds
    with two once it is above 100 ms."""
    largest = max(values, default=0.0)
    if largest < _MILLI:
        return Unit("us", 1.0, 1)
    return Unit("us", 1.0, 0) if largest <= _MANY_MS else Unit("ms", 1e3, 2)


_COUNT = Unit("", 1.0, 0)


def columns_of(rows: Sequence[Row], *, verbose: bool) -> list[Numbers]:
    """The columns that say something, with what gives way first where space is short.

    Args:
        verbose: also with launches and latency where the rest does not ask for them.
    """
    on_cpu = all(row.profile.environment.kind == "cpu" for row in rows)
    kernels = _counted(rows, "kernels", "operators" if on_cpu else "kernels")
    launches = _counted(rows, "launches", "launches", 2)
    latency = _timed(rows, "latency", "latency", 5)
    columns = [
        kernels,
        *([launches] if verbose or _are_launches_others(rows) else []),
        _timed(rows, "cuda_time", "GPU"),
        *([latency] if verbose or _is_asked(rows, "latency", on_cpu=on_cpu) else []),
        _timed(rows, "launch_overhead", "overhead", 6),
        _counted(rows, "syncs", "waits", 4),
        _counted(rows, "would_wait", "would wait", 4),
        _counted(rows, "memcpys", "copies", 3),
        Numbers("bound", tuple(map(_bound, rows)), gives_way=1),
        Numbers("headroom", tuple(map(_headroom, rows)), gives_way=0),
    ]
    return [columns[0], *(one for one in columns[1:] if _says_something(one))]


def _says_something(column: Numbers) -> bool:
    """Not zero or unknown in every row, nor the same in several; that is told with the totals."""
    values = set(column.cells)
    alike = len(values) == 1 and len(column.cells) >= _FEWEST_ALIKE
    return bool(values - {"", "0"}) and not alike


def alike_words(rows: Sequence[Row]) -> list[str]:
    """What columns would say that say the same in every row, in words."""
    found = []
    told = {"syncs": "waits", "would_wait": "would wait on a GPU", "memcpys": "copies"}
    for metric, words in told.items():
        values = {value_of(row.profile, metric) for row in rows}
        value = next(iter(values), None)
        if len(values) == 1 and value and len(rows) >= _FEWEST_ALIKE:
            found.append(f"{value:.0f} {words} in each")
    bounds = {_bound(row) for row in rows}
    if len(bounds) == 1 and bounds != {""} and len(rows) >= _FEWEST_ALIKE:
        found.append(f"{next(iter(bounds))}-bound all")
    return found


def _are_launches_others(rows: Sequence[Row]) -> bool:
    """Whether launches are not as many as kernels anywhere, or broken where kernels are not."""
    values = [(value_of(r.profile, "launches"), value_of(r.profile, "kernels")) for r in rows]
    return any(launches is not None and launches != kernels for launches, kernels in values) or any(
        "launches" in row.broken and "kernels" not in row.broken for row in rows
    )


def _is_asked(rows: Sequence[Row], metric: str, *, on_cpu: bool) -> bool:
    """Whether it is broken; on the CPU, which has no other times, whether a limit is on it."""
    broken = any(metric in row.broken for row in rows)
    limited = (row for row in rows if any(one.metric == metric for one in row.profile.verdicts))
    return broken or (on_cpu and any(_cell(row, metric, _COUNT) for row in limited))


def _counted(rows: Sequence[Row], metric: str, title: str, gives_way: int | None = None) -> Numbers:
    cells = tuple(_cell(row, metric, _COUNT) for row in rows)
    return Numbers(title, cells, _yields(rows, metric, gives_way), metric)


def _timed(rows: Sequence[Row], metric: str, title: str, gives_way: int | None = None) -> Numbers:
    unit = unit_of(rows, metric)
    cells = tuple(_cell(row, metric, unit) for row in rows)
    return Numbers(f"{title} {unit.name}", cells, _yields(rows, metric, gives_way), metric)


def _yields(rows: Sequence[Row], metric: str, gives_way: int | None) -> int | None:
    """What is broken somewhere gives way after all that is not."""
    if gives_way is None:
        return None
    return gives_way + _BROKEN if any(metric in row.broken for row in rows) else gives_way


def unit_of(rows: Sequence[Row], metric: str) -> Unit:
    """What a column of times is written in."""
    return time_unit([value_of(row.profile, metric) or 0.0 for row in rows])


def _cell(row: Row, metric: str, unit: Unit) -> str:
    """A value, with its limit where it is beyond that; empty where it could not be had, which of an
    incomplete profile is everything."""
    if row.told == "incomplete":
        return ""
    broken = row.broken.get(metric)
    value = broken.measured if broken else value_of(row.profile, metric)
    if value is None:
        return ""
    if broken is None or row.told not in ("failed", "failed otherwise"):
        return unit.words(value)
    return f"{_more_than(value, broken.allowed, unit)} > {_as_written(broken.allowed, unit)}"


def _as_written(allowed: float, unit: Unit) -> str:
    """A limit without decimals that say nothing: ``40``, ``0.001``."""
    return f"{allowed / unit.scale:.6g}" if unit.name else f"{allowed:.0f}"


def _more_than(value: float, allowed: float, unit: Unit) -> str:
    """A value with as many decimals as it takes to see that it is beyond its limit."""
    told = unit.words(value)
    for decimals in range(unit.decimals + 1, 7):
        if float(told) > float(_as_written(allowed, unit)):
            break
        told = unit.words(value, decimals)
    return told


def _bound(row: Row) -> str:
    verdict = row.profile.bound.verdict
    return "" if verdict == "unknown" else verdict


def _headroom(row: Row) -> str:
    """How much is left of the timed limit that is nearest: ``3 % of 240us``."""
    left = [
        (1 - one.measured / one.allowed, one.allowed)
        for one in row.profile.verdicts
        if one.outcome in ("passed", "undecided") and one.unit == "us"
        if one.measured is not None and one.allowed
    ]
    if not left:
        return ""
    share, allowed = min(left)
    percent = f"{share * 100:.0f}" if abs(share) >= 0.01 else f"{share * 100:.1f}"
    return f"{percent} % of {_short_time(allowed)}"


def _short_time(us: float) -> str:
    """A limit as people write it: ``240us``, not ``240.0us``."""
    told = format_time(us)
    number = told.rstrip("mnus")
    return f"{number.rstrip('0').rstrip('.') if '.' in number else number}{told[len(number) :]}"
