"""The rows of a run: one a profile, in the order in which they are told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_kernelprof.digest.causes import beside_of, causes_of
from pytest_kernelprof.digest.cells import broken_cells, gpu_us
from pytest_kernelprof.digest.ids import natural, parts_of, with_label
from pytest_kernelprof.digest.marks import FAILED, severity, told_of
from pytest_kernelprof.digest.records import FileRows, Row
from pytest_kernelprof.schema.run import Cause

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_kernelprof.schema.against import Compared
    from pytest_kernelprof.schema.run import Run, Test

Key = tuple[float | int | str | tuple[tuple[str, int], ...], ...]


def rows_of(run: Run) -> tuple[Row, ...]:
    """A row for each profile, file by file as ``by_file`` has them."""
    against = {
        (test.id, one.label): one
        for test in (run.against.tests if run.against else ())
        for one in test.profiles
    }
    rows = [row for test in run.tests for row in _rows_of_test(test, against)]
    return tuple(row for file in by_file(rows) for row in file.rows)


def _rows_of_test(test: Test, against: Mapping[tuple[str, str], Compared]) -> Iterable[Row]:
    file, name = parts_of(test.id)
    for number, profile in enumerate(test.profiles):
        last = test.outcome != "rerun"
        compared = against.get((test.id, profile.label)) if last else None
        worse = compared is not None and compared.is_worse and test.outcome == "failed"
        told = "over" if worse else told_of(test, profile)
        yield Row(
            test=test.id,
            file=file,
            name=with_label(name, profile.label),
            number=number,
            told=told,
            profile=profile,
            broken=broken_cells(profile, compared if worse else None),
            causes=_ended_by(test)
            if told in FAILED
            else (*causes_of(profile, told, compared), *beside_of(profile, told)),
            compared=compared,
            failed=test.outcome in FAILED,
        )


def _ended_by(test: Test) -> tuple[Cause, ...]:
    """Of a test that failed otherwise than by a limit."""
    words = "the test failed for another reason"
    return (Cause(f"{words}: {test.why}" if test.why else words),)


def by_file(rows: Iterable[Row]) -> tuple[FileRows, ...]:
    """Rows in their order, under their files: files by their worst row, then by their GPU time;
    inside of a file the same; then by name, 2 before 10."""
    files: dict[str, list[Row]] = {}
    for row in rows:
        files.setdefault(row.file, []).append(row)
    found = [FileRows(file, tuple(sorted(rows, key=worst_first))) for file, rows in files.items()]
    return tuple(sorted(found, key=_file_order))


def worst_first(row: Row) -> Key:
    """The key of the order inside of a file; on the CPU, where there is no GPU time, by number of
    operators."""
    return severity(row.told), -gpu_us(row.profile), -_operators(row), natural(row.name), row.number


def costliest_first(row: Row) -> Key:
    """The key of the order by cost alone."""
    return -gpu_us(row.profile), -row.profile.kernel_count, natural(row.name), row.number


def _operators(row: Row) -> int:
    return row.profile.kernel_count if row.profile.environment.kind == "cpu" else 0


def _file_order(file: FileRows) -> Key:
    worst = min(severity(row.told) for row in file.rows)
    time = sum(gpu_us(row.profile) for row in file.rows)
    return worst, -time, -max(map(_operators, file.rows)), natural(file.file)
