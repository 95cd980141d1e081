"""All that a run says, in one record: how many tests there are of each mark, the verdict, and the
sentence that says so."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pytest_kernelprof.summary.advice import loose_limits, near_limits, short_kernels
from pytest_kernelprof.summary.comparisons import digests_of
from pytest_kernelprof.summary.findings import endings_of, left_out
from pytest_kernelprof.summary.kernel_groups import hottest_kernels
from pytest_kernelprof.summary.records import FAILED, Counts, Summary, severity, told_of_test
from pytest_kernelprof.summary.rows import by_file, folded, rows_of
from pytest_kernelprof.summary.totals import places_of, totals_of, trust_of, unjudged_limits
from pytest_kernelprof.summary.words import count_words, first_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_kernelprof.schema.run import Run, Test, Verdict
    from pytest_kernelprof.summary.comparisons import BaselineDigest
    from pytest_kernelprof.summary.records import Overall, Row, Told, Unjudged


_MOST_REASONS = 2
_OPEN: tuple[Told, ...] = ("failed", "incomplete", "undecided")
_JUDGED: tuple[Told, ...] = ("passed", "expected failure")
_LEFT_OUT: tuple[Told | None, ...] = ("expected failure", "xfailed", "rerun", "skipped")


def counts_of(rows: Sequence[Row], tests: Sequence[Test]) -> Counts:
    """Each test once, by its worst row, or by how it ended."""
    worst: dict[str, Told | None] = {}
    by_kind: dict[str, set[str]] = {"limit": set(), "snapshot": set(), "baseline": set()}
    limited: set[str] = set()
    for row in rows:
        if row.test not in worst or severity(row.told) < severity(worst[row.test]):
            worst[row.test] = row.told
    profiled, unjudged, failed = len(worst), Counter[str](), 0
    for test in tests:
        told = told_of_test(test) if test.comparisons or test.id not in worst else None
        if test.id not in worst or severity(told) < severity(worst[test.id]):
            worst[test.id] = told
        if test.limits or not all(one.is_uncompared for one in test.verdicts):
            limited.add(test.id)
        if test.outcome != "rerun":
            for kind in _broken(test.verdicts):
                by_kind[kind].add(test.id)
            failed += test.outcome in FAILED
            if worst[test.id] == "not judged" and test.not_judged:
                unjudged[test.not_judged] += 1
    marked = Counter(one for one in worst.values() if one is not None)
    on_cpu = bool(rows) and all(row.profile.environment.kind == "cpu" for row in rows)
    return Counts(
        tests=len(worst),
        limited=len(limited),
        held=sum(worst[one] not in _LEFT_OUT for one in limited),
        told=dict(marked),
        on_cpu=on_cpu,
        profiled=profiled,
        breaking=len(by_kind["limit"]),
        exceeding=len(by_kind["snapshot"]),
        worse=len(by_kind["baseline"]),
        failed=failed,
        unjudged=dict(unjudged),
    )


def _broken(verdicts: Iterable[Verdict]) -> Iterator[str]:
    """What a test is held to and exceeds."""
    for one in verdicts:
        if one.outcome == "failed":
            source = one.comparison.source if one.comparison is not None else ""
            yield "limit" if not source else "snapshot" if source == "snapshot" else "baseline"


def overall_of(
    run: Run, counts: Counts, unjudged: Sequence[Unjudged], compared: Sequence[BaselineDigest]
) -> Overall:
    """The verdict of a run, the same in every format; see ``Overall``."""
    if counts.failed or any(one.lacking for one in compared):
        return "failed"
    found = sum((one.counts for one in compared), Counter[str]())
    if run.unfinished or found["undecided"] or any(counts.told.get(one) for one in _OPEN):
        return "undecided"
    is_judged = any(counts.told.get(one) for one in _JUDGED) or any(
        one.compared for one in compared
    )
    left = counts.told.get("not judged") or unjudged or found["not compared"]
    return "passed" if is_judged and not left else "not judged"


def sentence_of(counts: Counts, open_words: str, compared: Sequence[BaselineDigest]) -> str:
    """What happened, with the counts that are not zero: ``3 of 33 tests break a limit; 1
    incomplete, 1 undecided.``

    Args:
        open_words: what was not judged.
    """
    told, base = counts.told, " or ".join(one.short for one in compared)
    expected = told.get("expected failure", 0) + told.get("xfailed", 0)
    wrong = []
    if counts.breaking:
        breaks = "breaks" if counts.breaking == 1 else "break"
        wrong.append(f"{counts.breaking} of {count_words(counts.limited, 'test')} {breaks} a limit")
    if counts.exceeding:
        one, several = "test exceeds its snapshot", "tests exceed their snapshots"
        wrong.append(count_words(counts.exceeding, one, several))
    if counts.worse:
        wrong.append(f"{count_words(counts.worse, 'test is', 'tests are')} worse than {base}")
    if not counts.tests:
        first = "No test has a profile"
    elif not counts.limited:
        have = count_words(counts.profiled, "test has a profile", "tests have a profile")
        first = f"No test has a limit{f'. {have}' if counts.profiled else ''}"
    else:
        kept = told.get("passed", 0)
        is_one = 1 in (kept, counts.held)
        within = "is within its limits" if is_one else "are within their limits"
        first = f"{kept} of {count_words(counts.held, 'test')} {within}"
        first = first if counts.held else "No limit applied"
    otherwise = " for another reason" if wrong else ""
    after = [
        _number(told.get("incomplete", 0), "incomplete"),
        _number(told.get("failed otherwise", 0), f"failed{otherwise}"),
        _number(told.get("error", 0), "error", "errors"),
        _number(told.get("undecided", 0), "undecided"),
        _number(expected, "expected failure", "expected failures"),
        _number(told.get("skipped", 0), "skipped"),
        open_words,
    ]
    words = "; ".join(filter(None, [", ".join(wrong) or first, ", ".join(filter(None, after))]))
    return f"{words}{'; CPU operators counted, not GPU kernels' if counts.on_cpu else ''}."


def open_words(counts: Counts, unjudged: Sequence[Unjudged]) -> str:
    """The tests and limits that were not judged, and why: ``30 not judged (no CUDA device)``."""
    told = []
    number = counts.told.get("not judged", 0)
    if number:
        told.append(f"{number} not judged{_reasons(counts.unjudged)}")
    for one in unjudged[:_MOST_REASONS]:
        tests = count_words(len(one.tests), "test")
        told.append(f"{', '.join(one.limits)} not judged in {tests} ({one.why})")
    return ", ".join(told)


def _reasons(found: Mapping[str, int]) -> str:
    """The most frequent reasons, with their numbers if there are several."""
    most = sorted(found.items(), key=lambda one: -one[1])
    told = [f"{number} {why}" if len(most) > 1 else why for why, number in most]
    return f" ({', '.join(first_of(told, _MOST_REASONS, '{} more reasons'))})" if told else ""


def _number(number: int, one: str, several: str = "") -> str:
    return count_words(number, one, several or one) if number else ""


def summary_of(run: Run) -> Summary:
    """What a run says. Takes time in proportion to its profiles and their kernels."""
    rows = rows_of(run)
    profiles = [row.profile for row in rows]
    last = [row for row in rows if row.told != "rerun"]  # a test tried again is no second test
    counts, totals = counts_of(rows, run.tests), totals_of(last)
    unjudged = unjudged_limits(run.tests)
    compared = digests_of(run)
    left = open_words(counts, unjudged)
    return Summary(
        counts=counts,
        overall=overall_of(run, counts, unjudged, compared),
        sentence=sentence_of(counts, left, compared),
        open=left,
        rows=rows,
        endings=endings_of(run.tests, rows),
        left_out=left_out(run.tests, rows),
        folded=by_file(folded(rows)),
        totals=totals,
        hottest=hottest_kernels(last, totals.gpu_us),
        short=short_kernels(last),
        near=near_limits(last),
        tighten=loose_limits(last),
        unjudged=unjudged,
        trust=trust_of(profiles),
        places=places_of(profiles),
        unfinished=run.unfinished,
    )
