"""The table of ``--kernelprof-report`` and the integrity line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_kernelprof.plugin.collect import severity
from pytest_kernelprof.report.tables import Column, render
from pytest_kernelprof.units import format_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

_COLUMNS = (
    Column("test", shrinks=True, keep_end=True),
    Column("kernels", number=True),
    Column("launch", number=True),
    Column("sync", number=True),
    Column("copy", number=True),
    Column("cuda time", number=True),
    Column("overhead", number=True),
    Column("bound"),
    Column("verdict"),
)
_GLYPHS = {"pass": "✓ pass", "fail": "✗ FAIL", "incomplete": "! lost", "unavailable": "! none"}
_GLYPHS |= {"inconclusive": "? unsure", "xfail": "x xfail", "no limit": "-"}


def write_report(terminal: pytest.TerminalReporter, rows: Sequence[dict[str, Any]]) -> None:
    """Write the table, worst first, as wide as the terminal."""
    ordered = sorted(rows, key=_worst_first)
    terminal.section("kernel profiles")
    lines = render(_COLUMNS, [_cells(row) for row in ordered], terminal._tw.fullwidth)
    terminal.write_line(lines[0], bold=True)
    for row, line in zip(ordered, lines[1:], strict=True):
        terminal.write_line(line, **_markup(row["verdict"]))
    for place in sorted({row["place"] for row in rows}):
        terminal.write_line(f"on {place}")
    terminal.write_line(integrity_line(rows))


def _worst_first(row: dict[str, Any]) -> tuple[int, str, int, str]:
    """Then by test, and "profile 2" before "profile 10"."""
    return severity(row["verdict"]), row["test"], len(row["label"]), row["label"]


def write_comparisons(terminal: pytest.TerminalReporter, tables: Sequence[tuple[str, str]]) -> None:
    """Write the tables of comparisons, each under the test that made it."""
    terminal.section("comparisons")
    for test, table in sorted(tables):
        terminal.write_line(_without_folders(test))
        for line in table.splitlines():
            terminal.write_line(f"  {line}")


def integrity_line(rows: Sequence[dict[str, Any]]) -> str:
    """How many profiles there were, and how many could not be trusted, at first or at all."""
    parts = [
        f"{len(rows)} profile{'s' if len(rows) != 1 else ''}",
        f"{sum(row['integrity']['retakes'] > 0 for row in rows)} taken again",
        f"{sum(not row['integrity']['complete'] for row in rows)} incomplete",
    ]
    cold = sum(bool(row["integrity"]["cold"]) or not row["integrity"]["settled"] for row in rows)
    unproven = sum(row["integrity"]["graph_replays"] == "unproven" for row in rows)
    on_cpu = sum(row["device_kind"] == "cpu" for row in rows)
    if cold:
        parts.append(f"{cold} cold")
    if unproven:
        parts.append(f"{unproven} with unproven graph replays")
    contended = sum(row["conditions"]["contended"] for row in rows)
    discarded = sum(row["conditions"]["discarded_rounds"] for row in rows)
    if contended:
        parts.append(f"{contended} timed while other processes worked on the GPU")
    if discarded:
        parts.append(f"{discarded} rounds discarded, since the GPU throttled")
    if on_cpu:
        parts.append(f"{on_cpu} of CPU operators, which are no kernels")
    return ", ".join(parts)


def _cells(row: dict[str, Any]) -> list[str]:
    name, metrics = _without_folders(row["test"]), row["metrics"]
    overhead = metrics["launch_overhead"]["value"]
    return [
        f"{name} [{row['label']}]" if row["label"] else name,
        *(_count(metrics[key]["value"]) for key in ("kernels", "launches", "syncs", "memcpys")),
        _time_and_spread(metrics["cuda_time"]),
        "-" if overhead is None else format_time(overhead),
        "-" if row["bound"]["verdict"] == "unknown" else row["bound"]["verdict"],
        _GLYPHS[row["verdict"]],
    ]


def _without_folders(test: str) -> str:
    """A test's node id from its file's name on; a slash in a parameter is no folder."""
    path, separator, rest = test.partition("::")
    return path.rsplit("/", 1)[-1] + separator + rest


def _count(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"


def _time_and_spread(metric: dict[str, Any]) -> str:
    value, low, high = metric["value"], metric["low"], metric["high"]
    if value is None:
        return "-"
    if low is None or high is None or not value:
        return format_time(value)
    return f"{format_time(value)} ±{(high - low) / 2 / value * 100:.1f}%"


def _markup(verdict: str) -> dict[str, bool]:
    if verdict in ("fail", "incomplete", "unavailable"):
        return {"red": True}
    if verdict == "inconclusive":
        return {"yellow": True}
    return {"green": True} if verdict == "pass" else {}
