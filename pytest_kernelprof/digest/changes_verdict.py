"""What else there is to say of a comparison: what was not compared, times, what fails by it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pytest_kernelprof.digest.changes import UNCOMPARED, percent_words
from pytest_kernelprof.digest.ids import parts_of, with_label
from pytest_kernelprof.digest.words import count_words
from pytest_kernelprof.units import format_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_kernelprof.schema.against import AgainstTest
    from pytest_kernelprof.schema.runs import RunsComparison
    from pytest_kernelprof.schema.turns import Timing


def why_not_compared(tests: Sequence[AgainstTest]) -> dict[str, tuple[str, ...]]:
    """Each reason why tests were not compared, with their ids; the most frequent first."""
    uncompared = (test for test in tests if test.result in UNCOMPARED and test.why)
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
    if latency := latency_words(tests):
        told += f"; {latency}"
    took = sum(one.took_s for one in known)
    return f"{told}; {took:.0f}s" if took >= 1 else told


def latency_words(tests: Sequence[AgainstTest]) -> str:
    """The latencies of calls that were timed, changed or not: of one call both, of more calls the
    smallest and the largest change; empty without any."""
    found = [
        (one.timing.new_latency_us / one.timing.old_latency_us - 1, name, one.timing)
        for test in tests
        for one in test.profiles
        for name in [with_label(parts_of(test.id)[1], one.label)]
        if one.timing is not None and one.timing.old_latency_us
    ]
    if not found:
        return ""
    (least, first, timing), (most, last, _) = (pick(found, key=_share) for pick in (min, max))
    told = f"from {percent_words(least)} ({first}) to {percent_words(most)} ({last})"
    if len(found) == 1:
        old, new = format_time(timing.old_latency_us), format_time(timing.new_latency_us)
        told = f"{old} -> {new}, {percent_words(least)}"
    return f"latency (not judged): {told}"


def _share(found: tuple[float, str, Timing]) -> float:
    return found[0]


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
    told += [
        f"{name} is missing in {count_words(n, 'profile')} that had it before"
        for name, n in found.lost.items()
    ]
    told += [f"no profile has {name}" for name in found.nowhere]
    return ", ".join(told)


def is_failed(tests: Sequence[AgainstTest], *, warn_only: bool = False) -> bool:
    """Whether a run against a revision has failed by it: something is worse, unless that is only
    warned of, or nothing could be compared."""
    results = {test.result for test in tests}
    return ("worse" in results and not warn_only) or results <= set(UNCOMPARED)


def fails_nothing_words(*, run_fails: bool) -> str:
    """The last line of a comparison that fails nothing.

    Args:
        run_fails: whether the run fails all the same.
    """
    other = "; the run fails for another reason" if run_fails else ""
    return f"this comparison fails nothing{other}"
