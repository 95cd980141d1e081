"""Tables of the results, one for each regime, and the verdict on each target; in Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .candidates import TITLES
from .floors import Floors
from .results import Measured, Result, Spread
from .shapes import REGIMES

HEADER = (
    *("shape", "candidate", "kernels", "GPU us [99 %]", "wall us", "graph us", "rate", "of floor"),
    *("ours is faster", "error"),
)
EXPLANATION = """\
Medians. GPU: sum of the kernels' durations under the profiler, with the 99 % order-statistic
interval of its median. wall: from the call until the device is done, without a profiler. graph: an
event pair around the replay of a CUDA graph of the one call. rate: floating-point operations of the
GEMMs, or the fewest bytes that can move, over the GPU time, whichever bounds the shape; of floor:
that bound's time over the GPU time. ours is faster: so many times in GPU time, wall time, under
graph replay. error: relative norm against float64."""


def report(places: Sequence[str], measured: Sequence[Measured]) -> str:
    """Everything, as Markdown."""
    parts = [f"- {place}" for place in places]
    parts += ["", EXPLANATION]
    for regime in REGIMES:
        rows = [row for one in measured if one.shape.regime == regime for row in _rows(one)]
        if rows:
            parts += ["", f"## {regime}", "", render(HEADER, rows)]
    verdicts = [row for one in measured for row in targets(one)]
    if verdicts:
        header = ("shape", "to reach", "found", "")
        parts += ["", "## Targets", "", render(header, verdicts)]
    notes: dict[str, list[str]] = {}
    for one in measured:
        for name, result in one.results.items():
            for note in result.notes:
                notes.setdefault(f"{TITLES[name]}: {note}", []).append(one.shape.label)
    if notes:
        parts += ["", "## Notes", ""]
        parts += [f"- {note} ({'; '.join(labels)})" for note, labels in notes.items()]
    return "\n".join(parts) + "\n"


def targets(one: Measured) -> Iterator[tuple[str, str, str, str]]:
    """Shape, what is to be reached, what was found, and "met", "short" or "not measured"."""
    target, ours = one.shape.target, one.results.get("ours", Result())
    for clock, times in (("gpu", target.faster), ("wall", target.wall_faster)):
        if times is not None:
            ratio, rival = one.faster(clock), one.best_rival(clock)
            against = f" (against {TITLES[rival[0]]})" if rival else ""
            found = f"{ratio:.2f}{against}" if ratio else "-"
            met = None if ratio is None else ratio >= times
            name = "GPU" if clock == "gpu" else "wall"
            yield one.shape.label, f"{times:.2f} times as fast, {name} time", found, _word(met)
    for name, most in (("", target.at_most_us), (" (stretch)", target.stretch_us)):
        if most is not None:
            met = None if ours.us is None else ours.us <= most
            yield one.shape.label, f"at most {most:g} us{name}", _us(ours.us), _word(met)
    if target.floor_percent is not None:
        reached = 100 * one.floors.least_us(one.shape) / ours.us if ours.us else None
        met = None if reached is None else reached >= target.floor_percent
        found = "-" if reached is None else f"{reached:.0f} %"
        yield one.shape.label, f"{target.floor_percent:g} % of the floor", found, _word(met)
    if target.memory:
        theirs = one.results.get("liger", Result()).held_bytes
        mine = ours.held_bytes
        met = None if mine is None or theirs is None else mine <= theirs
        found = f"{_megabytes(mine)}; Liger {_megabytes(theirs)}"
        yield one.shape.label, "hold no more for the backward than Liger", found, _word(met)


def render(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose source is aligned, too: numbers to the right."""
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
    left = 2 if header is HEADER else len(header)

    def line(cells: Sequence[str]) -> str:
        padded = [
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return f"| {' | '.join(padded)} |"

    rule = ["-" * w if i < left else "-" * (w - 1) + ":" for i, w in enumerate(widths)]
    return "\n".join([line(header), line(rule), *map(line, rows)])


def _rows(one: Measured) -> Iterator[tuple[str, ...]]:
    label = one.shape.label
    for name, result in one.results.items():
        if not (result.gpu or result.wall):
            continue  # the notes say why
        least = one.floors.least_us(one.shape)
        ratios = [one.faster(clock) for clock in ("gpu", "wall", "graph")]
        shown = " / ".join(f"{ratio:.2f}" for ratio in ratios if ratio)
        yield (
            label,
            TITLES[name],
            "-" if result.kernels is None else str(len(result.kernels)),
            _with_interval(result.gpu),
            _us(result.wall and result.wall.median),
            _us(result.graph and result.graph.median),
            _rate(one, result.us, one.floors),
            f"{100 * least / result.us:.0f} %" if result.us else "-",
            shown if name == "ours" else "",
            "-" if result.error is None else f"{result.error:.1e}",
        )
        label = ""


def _rate(one: Measured, us: float | None, floors: Floors) -> str:
    if not us:
        return "-"
    if floors.bound(one.shape) == "B/s":
        return f"{one.shape.bytes(floors.itemsize) / us / 1e3:.0f} GB/s"
    return f"{one.shape.flops / us / 1e6:.0f} TFLOP/s"


def _with_interval(time: Spread | None) -> str:
    if time is None:
        return "-"
    if time.low is None or time.high is None:
        return _us(time.median)
    return f"{_us(time.median)} [{_us(time.low)}, {_us(time.high)}]"


def _us(time: float | None) -> str:
    if time is None:
        return "-"
    return f"{time:.2f}" if time < 10 else f"{time:.1f}" if time < 1000 else f"{time:.0f}"


def _megabytes(number: int | None) -> str:
    return "-" if number is None else f"{number / 1e6:.1f} MB"


def _word(met: bool | None) -> str:
    return "not measured" if met is None else "met" if met else "short"
