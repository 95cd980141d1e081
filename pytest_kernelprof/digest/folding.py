"""Rows of one test that agree are told as one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pytest_kernelprof.digest.cells import gpu_us, value_of
from pytest_kernelprof.digest.ids import parameters_of, with_label
from pytest_kernelprof.digest.rows import worst_first
from pytest_kernelprof.schema.metrics import METRICS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_kernelprof.digest.records import Row

_ALIKE = 0.05
_LONGEST_SHARED = 24
_UNSTABLE = ("recompiles", "memsets")
"""Counts that keep no rows apart: of what ran before, and of what healthy traces miss some."""
_COUNTS = tuple(
    n
    for n, one in METRICS.items()
    if one.kind == "exact" and one.unit == "count" and n not in _UNSTABLE
)


def folded(rows: Iterable[Row]) -> tuple[Row, ...]:
    """The rows with those of one parametrised test that agree in mark, causes and every count told
    as one: its cells are of the one with the most GPU time. Others stand alone."""
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        groups.setdefault(_what_agrees(row), []).append(row)
    return tuple(_as_one(group) for group in groups.values())


def _what_agrees(row: Row) -> Any:
    profile = row.profile
    stem, parameters = parameters_of(_bare(row))
    if not parameters:  # never across tests; several profiles or tries of one are no parameters
        return id(row)
    counts = tuple(value_of(profile, name) for name in _COUNTS)
    broken = tuple((one.metric, one.allowed) for one in row.broken.values())
    causes = tuple(one.text for one in row.causes)
    told = row.told, broken, causes, profile.environment.kind, profile.environment.device
    return row.file, stem, profile.label, counts, told


def _bare(row: Row) -> str:
    """The name without the label of the profile."""
    end = with_label("", row.profile.label)
    return row.name[: -len(end)] if end and row.name.endswith(end) else row.name


def _as_one(rows: Sequence[Row]) -> Row:
    if len(rows) == 1:
        return rows[0]
    first, *others = sorted(rows, key=worst_first)
    most, least = gpu_us(first.profile), min(gpu_us(one.profile) for one in others)
    stem, _ = parameters_of(_bare(first))
    shared = _shared([parameters_of(_bare(one))[1] for one in rows])
    name = f"{stem}[{shared}x{len(rows)}]"
    return replace(
        first,
        name=with_label(name, first.profile.label),
        others=tuple(others),
        least_us=least if most - least > _ALIKE * most else None,
    )


def _shared(parameters: Sequence[str]) -> str:
    """What is one in all of them, with ``*`` for what differs: ``*-bf16 ``; empty without."""
    pieces = [one.split("-") for one in parameters]
    if len(set(map(len, pieces))) != 1:
        return ""
    columns = [set(column) for column in zip(*pieces, strict=True)]
    if all(len(column) > 1 for column in columns):
        return ""
    told = "-".join(next(iter(one)) if len(one) == 1 else "*" for one in columns)
    return f"{told} " if len(told) <= _LONGEST_SHARED else ""


def name_from(row: Row, least: str) -> str:
    """The name of a folded row with the smallest GPU time: ``test_it[x3, from 98.2]``."""
    return row.name.replace(f"x{row.count}]", f"x{row.count}, from {least}]", 1)
