"""The verdict of a run: how many tests there are of each mark, and the sentence that says so."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pytest_kernelprof.digest.marks import severity
from pytest_kernelprof.digest.records import Counts
from pytest_kernelprof.digest.words import count_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_kernelprof.digest.marks import Told
    from pytest_kernelprof.digest.records import Row

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


def counts_of(rows: Sequence[Row]) -> Counts:
    """Each test once, by its worst row."""
    worst: dict[str, Told | None] = {}
    limited: set[str] = set()
    for row in rows:
        if row.test not in worst or severity(row.told) < severity(worst[row.test]):
            worst[row.test] = row.told
        if row.profile.verdicts or row.told == "over":  # by a revision, too
            limited.add(row.test)
    told = Counter(one for one in worst.values() if one is not None)
    on_cpu = bool(rows) and all(row.profile.environment.kind == "cpu" for row in rows)
    return Counts(len(worst), len(limited), dict(told), on_cpu)


def sentence_of(counts: Counts) -> str:
    """What happened, with the counts that are not zero: ``3 of 33 tests break a limit; 1 is
    incomplete, 1 undecided.``"""
    over, kept = counts.told.get("over", 0), counts.told.get("kept", 0)
    more = [(counts.told.get(told, 0), words) for told, words in _AFTER.items()]
    after = ", ".join(f"{number} {words}" for number, words in more if number)
    if not counts.limited:
        after = after.replace("failed otherwise", "failed")
    expected = counts.told.get("expected", 0)  # they are told by themselves
    if not counts.limited:
        first = f"No test has a limit. {count_words(counts.tests, 'test')} " + (
            "has a profile" if counts.tests == 1 else "have a profile"
        )
    elif over:
        breaks = "breaks" if over == 1 else "break"
        first = f"{over} of {count_words(counts.limited, 'test')} {breaks} a limit"
    else:
        keep, held = "keeps" if kept == 1 else "keep", counts.limited - expected
        first = f"{kept} of {count_words(held, 'test')} with a limit {keep} it"
    where = ", on the CPU: operators, not kernels" if counts.on_cpu else ""
    return f"{first}; {after}{where}." if after else f"{first}{where}."
