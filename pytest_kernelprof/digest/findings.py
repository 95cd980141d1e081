"""What is wrong with a row or a comparison, limit by limit, each with its numbers in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_kernelprof.digest.cells import more_than_before
from pytest_kernelprof.digest.ids import parts_of
from pytest_kernelprof.digest.marks import FAILED, severity, told_of_test
from pytest_kernelprof.digest.records import SLOWER, Ending, Found
from pytest_kernelprof.digest.words import pair_words, rank_words, title

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_kernelprof.digest.records import Broken, Row
    from pytest_kernelprof.schema.run import Test, Verdict

_WRONG = ("over", "incomplete", "undecided")


def findings_of(row: Row) -> tuple[Found, ...]:
    """All that is wrong with a row, limits first; of one that is marked at least one."""
    found = [*_by_verdicts(row.profile.verdicts), *_by_what_was_before(row)]
    if not any(one.limit.startswith("against") for one in found):
        # The cells hold limits of the row's own.
        more = more_than_before(row.compared) if row.compared and row.failed else ()
        found += [_found(one) for one in more][:1]
    if not found and row.told is not None:  # over, but of no count: of times in turn
        found = [Found(row.told, SLOWER if row.told == "over" else "")]
    return tuple(found)


def endings_of(tests: Iterable[Test], rows: Iterable[Row]) -> tuple[Ending, ...]:
    """What no row says of tests, worst first."""
    told = {row.test for row in rows}
    found = [one for test in tests for one in _endings(test, has_rows=test.id in told)]
    return tuple(sorted(found, key=lambda one: severity(one.found.told)))


def left_out(tests: Iterable[Test], rows: Iterable[Row]) -> tuple[Test, ...]:
    """The tests without a row none of whose limits was judged."""
    told = {row.test for row in rows}
    return tuple(one for one in tests if one.id not in told and told_of_test(one) == "not judged")


def _endings(test: Test, *, has_rows: bool) -> Iterator[Ending]:
    file, name = parts_of(test.id)
    if test.outcome == "rerun":
        return
    for comparison in test.comparisons:
        for verdict in comparison.verdicts:
            for found in _by_verdicts([verdict]):
                yield Ending(test, file, name, found, comparison, verdict)
    told = told_of_test(test)
    if not has_rows and told in FAILED:
        yield Ending(test, file, name, Found(told))


def _by_verdicts(verdicts: Iterable[Verdict]) -> Iterator[Found]:
    for one in verdicts:
        if one.outcome in _WRONG and (one.of_limit or one.outcome != "over"):
            yield Found(one.outcome, title(one), *_values(one), rank_words(one))


def _values(verdict: Verdict) -> tuple[str, str]:
    if verdict.measured is None or verdict.allowed is None:
        return "", ""
    if verdict.unit == "times":
        return f"{verdict.measured:.3f} times", f"{verdict.allowed:.3f} times"
    return pair_words(verdict.unit, verdict.measured, verdict.allowed)


def _by_what_was_before(row: Row) -> Iterator[Found]:
    """A launch more for each kernel more is nothing else that is wrong."""
    kernels, launches = row.broken.get("kernels"), row.broken.get("launches")
    alike = (
        kernels
        and launches
        and launches.measured - kernels.measured == (launches.allowed - kernels.allowed)
    )
    for one in row.broken.values():
        is_told = alike and one.metric == "launches"
        if one.by in ("snapshot", "compare", "against") and not is_told:
            yield _found(one)


def _found(one: Broken) -> Found:
    values = pair_words(one.unit, one.measured, one.allowed)
    return Found("over", f"{one.by}: {one.metric}", *values)
