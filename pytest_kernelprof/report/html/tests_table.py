"""The table of all profiles, and which of them need a look."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_kernelprof.report.html.kernel_names import cut
from pytest_kernelprof.summary.records import MARKS, Mark, severity
from pytest_kernelprof.summary.words import (
    gpu_us,
    line_words,
    pair_words,
    title,
    value_of,
    value_words,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_kernelprof.schema.run import Verdict
    from pytest_kernelprof.summary.records import Broken, Row

_BAR = 64
_LONGEST = 400
_MOST_TO_LOOK_AT = 12
_MOST_CAUSES = 3
_TIMES = 10
"""From so many times a limit on, percents say nothing."""


@dataclass(frozen=True, slots=True)
class TableRow:
    """One profile; None where a value could not be had.

    Attributes:
        place: of its detail on the page; empty where it has none.
        rank: of the mark, 0 the worst. stem, rest: its name, and the parameters and label.
        more: how many kernels there are more than allowed, or than before; 0 without.
        bar: of the GPU time, in pixels. closest: the limit that is nearest, in words.
        share: the measured value over that limit, -1 without. room: what is left, in words.
    """

    place: str
    mark: Mark
    rank: int
    file: str
    stem: str
    rest: str
    kernels: int | None
    more: int
    us: float | None
    bar: float
    overhead: float | None
    latency: float | None
    bound: str
    waits: int | None
    closest: str
    share: float
    room: str
    over: bool


@dataclass(frozen=True, slots=True)
class Look:
    """One that needs a look: by how much, which, why."""

    place: str
    figure: str
    tone: str
    name: str
    causes: tuple[tuple[str, str], ...]


def table_rows(rows: Sequence[Row], places: Sequence[str]) -> list[TableRow]:
    """In the order that is given."""
    slowest = max((gpu_us(row.profile) for row in rows), default=0.0)
    return [_row(row, place, slowest) for row, place in zip(rows, places, strict=True)]


def _row(row: Row, place: str, slowest: float) -> TableRow:
    stem, bracket, rest = row.name.partition("[")
    profile, us = row.profile, value_of(row.profile, "cuda_time")
    kernels, waits = value_of(profile, "kernels"), value_of(profile, "syncs")
    trusted = profile.integrity.complete
    closest, share, room = _closest(row)
    more = row.broken.get("kernels")
    if more is not None:  # of several ranks that of the worst
        kernels = more.measured
    return TableRow(
        place=place,
        mark=MARKS[row.told],
        rank=severity(row.told),
        file=cut(row.file, _LONGEST),
        stem=cut(stem, _LONGEST),
        rest=cut(bracket + rest, _LONGEST),
        kernels=None if kernels is None else int(kernels),
        more=int(more.measured - more.allowed) if more else 0,
        us=us if trusted else None,
        bar=round(max(us / slowest * _BAR, 0.8), 1) if us and slowest and trusted else 0.0,
        overhead=value_of(profile, "launch_overhead"),
        latency=value_of(profile, "latency"),
        bound="" if profile.bound.verdict == "unknown" else profile.bound.verdict,
        waits=None if waits is None else int(waits),
        closest=cut(closest, _LONGEST),
        share=share,
        room=room,
        over=row.told in ("failed", "failed otherwise") or share > 1,
    )


def _closest(row: Row) -> tuple[str, float, str]:
    """The limit that is nearest in words, how much of it is used, what is left in words."""
    if row.told == "incomplete":
        return "; ".join(one.text for one in row.causes), -1.0, ""
    limits = [(one, _used(one)) for one in row.profile.verdicts if one.of_limit]
    known = [(one, used) for one, used in limits if used is not None]
    by_before = row.told in ("failed", "failed otherwise") and not any(
        one.outcome == "failed" for one, _ in limits
    )
    if known and not (by_before and row.broken):
        worst = {"failed": 3, "expected failure": 3, "undecided": 2}
        one, used = max(known, key=lambda pair: (worst.get(pair[0].outcome, 0), pair[1]))
        value, allowed = pair_words(one.unit, one.measured or 0.0, one.allowed or 0.0)
        return f"{title(one)} {value} of {allowed}", used, _room(one, used)
    if row.broken:
        first = next(iter(row.broken.values()))
        value, allowed = pair_words(first.unit, first.measured, first.allowed)
        return f"{first.by}: {first.metric} {value} of {allowed}", -1.0, ""
    named = dict.fromkeys(title(one) for one in row.profile.verdicts if one.outcome != "not judged")
    return ", ".join(named), -1.0, ""


def _used(verdict: Verdict) -> float | None:
    if verdict.measured is None or verdict.allowed is None or verdict.unit in ("", "times"):
        return None
    if verdict.allowed:
        return verdict.measured / verdict.allowed
    return 2.0 if verdict.measured else 1.0


def _room(verdict: Verdict, used: float) -> str:
    if verdict.unit == "count" or not verdict.allowed:
        return ""
    if used > _TIMES:
        return f"x{used:,.0f}"
    return f"+{used - 1:.1%}" if used > 1 else f"{1 - used:.1%} left"


def to_look_at(found: Sequence[Any], places: Sequence[str]) -> tuple[list[Look], int]:
    """Those that need a look."""
    looks = [
        Look(
            place,
            _figure(row),
            MARKS[row.told].tone,
            cut(row.name, _LONGEST),
            tuple(
                (cut(one.text, _LONGEST), line_words(one.place))
                for one in row.causes[:_MOST_CAUSES]
                if one.text
            ),
        )
        for row, place in list(zip(found, places, strict=True))[:_MOST_TO_LOOK_AT]
    ]
    return looks, max(0, len(found) - _MOST_TO_LOOK_AT)


def _figure(row: Any) -> str:
    """By how much: ``+2 kernels``, ``+38.6us``; else the mark in a word."""
    if row.told in ("failed", "failed otherwise") and getattr(row, "broken", None):
        return more_words(next(iter(row.broken.values())))
    return MARKS[row.told].word


def more_words(broken: Broken) -> str:
    """How much more it is than allowed."""
    more = broken.measured - broken.allowed
    if broken.unit != "count":
        return f"+{value_words(broken.unit, more)}"
    what = {"syncs": "waits", "memcpys": "copies"}.get(broken.metric, broken.metric)
    if more == 1 and what.endswith("s"):
        what = {"copies": "copy", "launches": "launch"}.get(what, what[:-1])
    return f"+{more:.0f} {what.replace('_', ' ')}"
