"""The rows of a run: one a profile, in the order in which they are told; which of one test are told
as one, and which a report lists."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pytest_kernelprof.schema.metrics import METRICS
from pytest_kernelprof.schema.run import Cause
from pytest_kernelprof.summary.causes import beside_of, causes_of
from pytest_kernelprof.summary.findings import broken_cells, gpu_us, value_of
from pytest_kernelprof.summary.records import (
    FAILED,
    FAILED_OTHERWISE,
    NEEDS_A_LOOK,
    Row,
    severity,
    told_of,
)
from pytest_kernelprof.summary.words import natural, parameters_of, parts_of, with_label

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_kernelprof.schema.run import Run, Test
    from pytest_kernelprof.summary.records import Summary, Told


Key = tuple[float | int | str | tuple[tuple[str, int], ...], ...]


def rows_of(run: Run) -> tuple[Row, ...]:
    """A row for each profile, file by file as ``by_file`` has them."""
    return by_file(row for test in run.tests for row in _rows_of_test(test))


def _rows_of_test(test: Test) -> Iterable[Row]:
    file, name = parts_of(test.id)
    for number, profile in enumerate(test.profiles):
        told = told_of(test, profile)
        yield Row(
            test=test.id,
            file=file,
            name=with_label(name, profile.label),
            number=number,
            told=told,
            profile=profile,
            broken=broken_cells(profile),
            causes=_ended_by(test)
            if told in FAILED_OTHERWISE
            else (*causes_of(profile, told), *beside_of(profile, told)),
            failed=test.outcome in FAILED,
        )


def _ended_by(test: Test) -> tuple[Cause, ...]:
    """Of a test that failed otherwise than by a limit."""
    words = "the test failed for another reason"
    return (Cause(f"{words}: {test.why}" if test.why else words),)


def by_file(rows: Iterable[Row]) -> tuple[Row, ...]:
    """Rows in their order, file by file: files by their worst row, then by their GPU time;
    inside of a file the same; then by name, 2 before 10."""
    files: dict[str, list[Row]] = {}
    for row in rows:
        files.setdefault(row.file, []).append(row)
    ordered = sorted(files.values(), key=_file_order)
    return tuple(row for several in ordered for row in sorted(several, key=worst_first))


def worst_first(row: Row) -> Key:
    """The key of the order inside of a file; on the CPU, where there is no GPU time, by number of
    operators."""
    return severity(row.told), -gpu_us(row.profile), -_operators(row), natural(row.name), row.number


def costliest_first(row: Row) -> Key:
    """The key of the order by cost alone."""
    return -gpu_us(row.profile), -row.profile.kernel_count, natural(row.name), row.number


def _operators(row: Row) -> int:
    return row.profile.kernel_count if row.profile.environment.kind == "cpu" else 0


def _file_order(rows: Sequence[Row]) -> Key:
    worst = min(severity(row.told) for row in rows)
    time = sum(gpu_us(row.profile) for row in rows)
    return worst, -time, -max(map(_operators, rows)), natural(rows[0].file)


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


MOST_KEPT = 50
COSTLIEST = 10
_AS_EXPECTED: tuple[Told, ...] = ("expected failure", "xfailed")


@dataclass(frozen=True, slots=True)
class Rest:
    """Rows that are told as a number.

    Attributes:
        tests: how many, in so many files.
        kernels, us: of all of them, times in microseconds. silent: how many of them launch nothing.
    """

    tests: int
    files: int
    kernels: int
    us: float
    silent: int


@dataclass(frozen=True, slots=True)
class Listed:
    """What a report lists.

    Attributes:
        rows: file by file.
        expected: how many further tests of a file fail as expected, by file.
        kept: further tests that keep their limits.
        unlimited: further tests that have none.
        costliest: whether the rows are those that cost the most, as nothing has a limit.
    """

    rows: tuple[Row, ...]
    expected: dict[str, int]
    kept: Rest
    unlimited: Rest
    costliest: bool = False


def all_of(digest: Summary) -> Listed:
    """Each row, unfolded."""
    return Listed(by_file(digest.rows), {}, _rest(()), _rest(()))


def listed(digest: Summary, *, unfolded: bool = False) -> Listed:
    """Rows that ask for a look; if there are none, those that are kept, of very many the costliest.
    Where nothing has a limit, those that cost the most.

    Args:
        unfolded: whether what is kept and what fails as expected is listed in any case.
    """
    rows = digest.folded
    if not digest.counts.marked:
        return _costliest(rows)
    asking = [row for row in rows if row.told in NEEDS_A_LOOK]
    kept = [row for row in rows if row.told == "passed"]
    shown = kept if unfolded else [] if asking else sorted(kept, key=costliest_first)[:MOST_KEPT]
    expected = [row for row in rows if row.told in _AS_EXPECTED]
    told = [*asking, *shown, *(expected if unfolded else [])]
    return Listed(
        rows=by_file(told),
        expected={} if unfolded else dict(Counter(f for f, _ in _tests(expected))),
        kept=_rest(_without(kept, shown)),
        unlimited=_rest([row for row in rows if row.told is None]),
    )


def _costliest(rows: Sequence[Row]) -> Listed:
    """The rows that could not be had, and those that cost the most."""
    lost = [row for row in rows if row.told == "incomplete"]
    others = sorted(_without(rows, lost), key=costliest_first)
    told, rest = others[:COSTLIEST], others[COSTLIEST:]
    return Listed(by_file([*lost, *told]), {}, _rest(()), _rest(rest), costliest=True)


def _without(rows: Iterable[Row], shown: Iterable[Row]) -> list[Row]:
    there = set(map(id, shown))  # a test that was tried again has several of one name
    return [row for row in rows if id(row) not in there]


def _tests(rows: Iterable[Row]) -> set[tuple[str, str]]:
    """Files and tests of rows, folded ones among them."""
    return {(row.file, one.test) for row in rows for one in (row, *row.others)}


def _rest(rows: Sequence[Row]) -> Rest:
    each = [one for row in rows for one in (row, *row.others)]
    tests = _tests(rows)
    working = {row.test for row in each if row.profile.kernel_count}
    return Rest(
        tests=len(tests),
        files=len({file for file, _ in tests}),
        kernels=sum(row.profile.kernel_count for row in each),
        us=sum(gpu_us(row.profile) for row in each),
        silent=len(tests) - len(working),
    )
