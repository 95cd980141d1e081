"""What a comparison with what was before comes to: a sentence first, and last what fails by it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pytest_kernelprof.digest.words import count_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_kernelprof.digest.changes import Changed, Group
    from pytest_kernelprof.schema.against import AgainstTest, Result
    from pytest_kernelprof.schema.runs import RunsComparison
    from pytest_kernelprof.schema.turns import Timing

COMPARED: tuple[Result, ...] = ("worse", "undecided", "accepted", "better", "same")
_OF_TESTS: dict[Result, str] = {
    "undecided": "undecided",
    "accepted": "accepted by their snapshots",
    "better": "better",
    "same": "the same",
    "cannot run": "that {name} cannot run",
    "not compared": "not compared",
    "another work": "not the same work",
}
_OF_ROWS: dict[Group, str] = {
    "not judged": "worse, which nothing judges",
    "undecided": "undecided",
    "better": "better",
    "changed": "with other kernels at equal counts",
}


def short_revision(name: str) -> str:
    """A revision as it was named, without its commit: of ``main (abc1234)`` the first."""
    return name.partition(" (")[0]


def against_sentence(name: str, tests: Sequence[AgainstTest]) -> str:
    """``3 of 31 tests are worse than main; 1 undecided, 1 better, 26 the same.``

    Args:
        name: the revision's.
    """
    short = short_revision(name)
    if not tests:
        return "No test of this run is measured (--kernelprof-all measures each)."
    counts = Counter(test.result for test in tests)
    compared = sum(counts[one] for one in COMPARED)
    rest = [f"{counts[one]} {w.format(name=short)}" for one, w in _OF_TESTS.items() if counts[one]]
    if not compared:
        return f"No test could be compared with {short}: {', '.join(rest)}."
    return _sentence(counts["worse"], compared, "test", short, rest)


def runs_sentence(found: RunsComparison, changes: Sequence[Changed], than: str) -> str:
    """``2 of 31 profiles are worse than old.json; 1 better, 28 the same.``

    Args:
        changes: its rows. than: what it was compared with, in words.
    """
    if not found.compared:
        return f"No profile could be compared with {than}."
    counts = Counter(one.group for one in changes)
    rest = [f"{counts[one]} {words}" for one, words in _OF_ROWS.items() if counts[one]]
    same = found.compared - len(changes)
    if same > 0:
        rest.append(f"{same} the same")
    return _sentence(counts["worse"], found.compared, "profile", than, rest)


def _sentence(worse: int, compared: int, what: str, than: str, rest: Sequence[str]) -> str:
    are = "are" if worse > 1 else "is"
    head = f"{worse or 'None'} of {count_words(compared, what)} {are} worse than {than}"
    if compared == 1 and not worse:
        head = f"The only {what} is no worse than {than}"
    return f"{head}; {', '.join(rest)}." if rest else f"{head}."


def why_not_compared(tests: Sequence[AgainstTest]) -> dict[str, tuple[str, ...]]:
    """Each reason why tests were not compared, with their ids; the most frequent first."""
    uncompared = (test for test in tests if test.result not in COMPARED and test.why)
    return _by_words((test.why, test.id) for test in uncompared)


def notes_of(tests: Sequence[AgainstTest]) -> dict[str, tuple[str, ...]]:
    """What else there is to say of some tests, with their ids; the most frequent first."""
    return _by_words((note, test.id) for test in tests for note in test.notes)


def _by_words(found: Iterable[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    together: dict[str, list[str]] = {}
    for words, test in found:
        together.setdefault(words, []).append(test)
    several = sorted(together.items(), key=lambda one: -len(one[1]))
    return {words: tuple(ids) for words, ids in several}


def turns_words(tests: Sequence[AgainstTest]) -> str:
    """How much was timed in turn: ``31 calls in turn, margin 5 %, 3 of them in 4 pairs; 41s``;
    empty where nothing was."""
    timings = [one.timing for test in tests for one in test.profiles if _is_timed(one.timing)]
    known = [one for one in timings if one is not None]
    if not known:
        return ""
    margins = sorted({one.margin * 100 for one in known})
    margin = f"{margins[0]:.3g}" if len(margins) == 1 else f"{margins[0]:.3g} to {margins[-1]:.3g}"
    told = f"{count_words(len(known), 'call')} timed in turn, margin {margin} %"
    several = [len(one.pairs) for one in known if len(one.pairs) > 1]
    if several:
        told += f", {len(several)} of them in {max(several)} pairs"
    if any(one.old_latency_us for one in known):
        told += "; latency is shown, not judged"
    took = sum(one.took_s for one in known)
    return f"{told}; {took:.0f}s" if took >= 1 else told


def _is_timed(timing: Timing | None) -> bool:
    return timing is not None and bool(timing.pairs)


def why_runs_fail(found: RunsComparison) -> str:
    """What fails a comparison of runs, in words; empty where it passes."""
    if not found.compared:
        return "nothing was compared"
    judged = [
        metric.name
        for profile in found.profiles
        for metric in profile.metrics
        if metric.judged and metric.verdict == "worse"
    ]
    told = [f"{name} rose in {count_words(n, 'profile')}" for name, n in Counter(judged).items()]
    told += [f"{name} could be had before in {n}, and not now" for name, n in found.lost.items()]
    told += [f"no profile has {name}" for name in found.nowhere]
    return ", ".join(told)


def is_failed(tests: Sequence[AgainstTest], *, warn_only: bool = False) -> bool:
    """Whether a run against a revision has failed by it: something is worse, unless that is only
    warned of, or nothing could be compared."""
    results = {test.result for test in tests}
    return ("worse" in results and not warn_only) or not results & set(COMPARED)
