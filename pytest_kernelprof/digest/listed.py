"""Which rows a report lists, and what it says of the others: the eye has only those to visit that
ask for it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_kernelprof.digest.cells import gpu_us
from pytest_kernelprof.digest.marks import NEEDS_A_LOOK
from pytest_kernelprof.digest.rows import by_file, costliest_first

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_kernelprof.digest.marks import Told
    from pytest_kernelprof.digest.records import Digest, FileRows, Row

MOST_KEPT = 50
COSTLIEST = 10
_AS_EXPECTED: tuple[Told, ...] = ("expected", "xfailed")


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
        files: the rows, by file.
        expected: how many further tests of a file fail as expected, by file.
        kept: further tests that keep their limits.
        unlimited: further tests that have none.
        costliest: whether the rows are those that cost the most, as nothing has a limit.
    """

    files: tuple[FileRows, ...]
    expected: dict[str, int]
    kept: Rest
    unlimited: Rest
    costliest: bool = False


def all_of(digest: Digest) -> Listed:
    """Each row, unfolded."""
    return Listed(by_file(digest.rows), {}, _rest(()), _rest(()))


def listed(digest: Digest, *, unfolded: bool = False) -> Listed:
    """Rows that ask for a look; if there are none, those that are kept, of very many the costliest.
    Where nothing has a limit, those that cost the most.

    Args:
        unfolded: whether what is kept and what fails as expected is listed in any case.
    """
    rows = [row for file in digest.files for row in file.rows]
    if not digest.counts.marked:
        return _costliest(rows)
    asking = [row for row in rows if row.told in NEEDS_A_LOOK]
    kept = [row for row in rows if row.told == "kept"]
    shown = kept if unfolded else [] if asking else sorted(kept, key=costliest_first)[:MOST_KEPT]
    expected = [row for row in rows if row.told in _AS_EXPECTED]
    told = [*asking, *shown, *(expected if unfolded else [])]
    return Listed(
        files=by_file(told),
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
