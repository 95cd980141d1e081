"""The verdict of a run: how many tests there are of each mark, and the sentence that says so."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pytest_kernelprof.digest.marks import severity, told_of_comparisons
from pytest_kernelprof.digest.records import Counts
from pytest_kernelprof.digest.words import count_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_kernelprof.digest.marks import Told
    from pytest_kernelprof.digest.records import Row
    from pytest_kernelprof.schema.run import Test

_AFTER: dict[Told, str] = {
    "incomplete": "incomplete",
    "failed": "failed otherwise",
    "error": "ended in an error",
    "undecided": "undecided",
    "expected": "over as expected",
    "xfailed": "xfailed",
    "rerun": "tried again",
    "skipped": "skipped",
    "not judged": "not judged here",
}


def counts_of(rows: Sequence[Row], tests: Sequence[Test]) -> Counts:
    """Each test once, by its worst row, or by what it asserted of callables in turn."""
    worst: dict[str, Told | None] = {}
    limited: set[str] = set()
    for row in rows:
        if row.test not in worst or severity(row.told) < severity(worst[row.test]):
            worst[row.test] = row.told
        if row.profile.verdicts or row.told == "over":  # by a revision, too
            limited.add(row.test)
    profiled = len(worst)
    for test in tests:
        if test.comparisons:
            compared = told_of_comparisons(test)
            if test.id not in worst or severity(compared) < severity(worst[test.id]):
                worst[test.id] = compared
            if any(one.verdicts for one in test.comparisons):
                limited.add(test.id)
    told = Counter(one for one in worst.values() if one is not None)
    on_cpu = bool(rows) and all(row.profile.environment.kind == "cpu" for row in rows)
    return Counts(len(worst), len(limited), dict(told), on_cpu, profiled)


def sentence_of(counts: Counts) -> str:
    """What happened, with the counts that are not zero: ``3 of 33 tests break a limit; 1 is
    incomplete, 1 undecided.``"""
    over, kept = counts.told.get("over", 0), counts.told.get("kept", 0)
    more = [(counts.told.get(told, 0), words) for told, words in _AFTER.items()]
    after = ", ".join(f"{number} {words}" for number, words in more if number)
    if not counts.limited:
        after = after.replace("failed otherwise", "failed")
    expected = counts.told.get("expected", 0)  # they are told by themselves
    if not counts.tests:
        first = "No test has a profile"
    elif not counts.limited:
        first = f"No test has a limit. {_measured(counts)}"
    elif over:
        breaks = "breaks" if over == 1 else "break"
        first = f"{over} of {count_words(counts.limited, 'test')} {breaks} a limit"
    else:
        keep, held = "keeps" if kept == 1 else "keep", counts.limited - expected
        first = "No limit was to be kept"
        if held:
            first = f"{kept} of {count_words(held, 'test')} with a limit {keep} it"
    where = ", on the CPU: operators, not kernels" if counts.on_cpu else ""
    return f"{first}; {after}{where}." if after else f"{first}{where}."


def _measured(counts: Counts) -> str:
    """What tests have, where they have no limit."""
    compared = counts.tests - counts.profiled
    told = [(counts.profiled, "a profile"), (compared, "a comparison alone")]
    found = [
        f"{count_words(number, 'test')} {'has' if number == 1 else 'have'} {what}"
        for number, what in told
        if number
    ]
    return ", ".join(found)
