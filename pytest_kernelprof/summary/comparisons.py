"""How a run compares with a baseline, in all: rows, counts and words, the same for each kind of
baseline and for each format."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from pytest_kernelprof.records import comparison
from pytest_kernelprof.records.comparison import IN_TURN, ProfileComparison, RunComparison, Source
from pytest_kernelprof.records.document import Run
from pytest_kernelprof.summary import wording

Result = Literal[
    "worse", "not judged", "not compared", "undecided", "accepted", "better", "changed", "same"
]
"""How a profile compares, worst first: as ``Change``, but that "not judged" is worse in a metric
that fails nothing, and "accepted" is more of a count, which the test's snapshot allows."""
RESULTS: dict[Result, str] = {
    "worse": "worse",
    "not judged": "worse (not checked)",
    "not compared": "not compared",
    "undecided": "undecided",
    "accepted": "accepted by snapshot",
    "better": "better",
    "changed": "changed (other kernels, same counts)",
    "same": "unchanged",
}
"""All results in words, worst first."""
_ORDER = list(RESULTS)
_FEW, _MOST_NAMED = 3, 5


def shown_name(name: str, source: Source) -> str:
    """Return how reports name a baseline: documents and folders without the folders around them."""
    is_long = source == "run" or (source == "revision" and os.path.isabs(name))
    return os.path.basename(name) if is_long else name


@dataclass(frozen=True)
class BaselineSummary:
    """All that was compared with one baseline.

    Attributes:
        baseline: what it is.
        profiles: all that were to be compared, in the order of the run.
    """

    baseline: RunComparison
    profiles: tuple[ProfileComparison, ...]

    @property
    def what(self) -> Literal["test", "profile"]:
        """What is counted: of what runs in turn tests, by their worst profile."""
        return "test" if self.baseline.source in IN_TURN else "profile"

    @property
    def base(self) -> str:
        """The baseline's name in full: ``main (abc1234)``, ``old/python (torch 2.9 -> 2.11)``."""
        day, at, time = self.baseline.began.partition("T")
        began = f"{day} {time[:5]} UTC" if at else day
        return f"{self.short} ({began})" if began else self._name

    @property
    def short(self) -> str:
        """The same without its commit, time or versions."""
        return self._name.partition(" (")[0]

    @property
    def _name(self) -> str:
        return shown_name(self.baseline.name, self.baseline.source)

    @cached_property
    def counts(self) -> Counter[Result]:
        """How many there are of each result."""
        if self.what == "profile":
            return Counter(map(result_of, self.profiles))
        tests = wording.grouped(self.profiles, lambda one: one.test).values()
        return Counter(min(map(result_of, several), key=_ORDER.index) for several in tests)

    @property
    def compared(self) -> int:
        """How many could be compared."""
        return self.counts.total() - self.counts["not compared"]

    @property
    def sentence(self) -> str:
        """``3 of 31 tests are worse than main (abc1234)``."""
        worse, number = self.counts["worse"], self.compared
        if self.what == "test" and not self.profiles:
            hint = "--kernelprof-all measures each"
            return f"no test is measured, so nothing is compared with {self.base} ({hint})"
        if not number:
            return f"no {self.what} could be compared with {self.base}"
        are = "are" if worse > 1 else "is"
        what = f"compared {self.what}" if self.counts["not compared"] else self.what
        compared = wording.count(number, what)
        return f"{worse or 'none'} of {compared} {are} {wording.WORSE}{self.base}"

    @property
    def words(self) -> str:
        """The counts that are not zero, with sums: ``3 worse, 26 unchanged; 3 more kernels in
        total; 31 calls timed (interleaved), margin 5 %, GPU time +1.0 %``."""
        known = (one for one in RESULTS if self.counts[one])
        counted = ", ".join(f"{self.counts[one]:,} {RESULTS[one]}" for one in known)
        if not self.compared:
            return counted or "nothing was compared"
        return "; ".join(filter(None, [counted, self._kernels(), self._turns()]))

    @property
    def lacking(self) -> str:
        """What was to be compared and could not be, so that the run fails, in words; empty if all
        was."""
        lost = Counter(name for one in self.profiles for name in one.lost)
        counted = {name: wording.count(n, "profile") for name, n in lost.items()}
        lacking = [f"{name} is missing in {n} that had it before" for name, n in counted.items()]
        if not self.compared and not lacking:
            return "nothing could be compared"
        return ", ".join([*lacking, *(f"no profile has {name}" for name in self.baseline.nowhere)])

    @property
    def failure(self) -> str:
        """What of it fails a run, in words; empty if nothing does."""
        if self.what == "test":
            n = self.counts["worse"]
            is_worse = wording.count(n, "test is", "tests are")
            worse = [f"{is_worse} worse than {self.short}"] if n else []
        else:
            judged = Counter(delta.name for one in self.profiles for delta in one.worse)
            worse = [f"{name} rose in {wording.count(n, 'profile')}" for name, n in judged.items()]
        return ", ".join(filter(None, [*worse, self.lacking]))

    def fails(self, *, warn_only: bool) -> bool:
        """Whether a run fails by it; if it only warns, where something could not be compared."""
        return bool(self.lacking) or (bool(self.failure) and not warn_only)

    @property
    def uncompared(self) -> list[str]:
        """Each reason why something was not compared, with the names; the most frequent first."""
        left = (one for one in self.profiles if one.change == "not compared")
        return _by_reason((one.reason, self._name_of(one)) for one in left)

    @property
    def notes(self) -> list[str]:
        """What else there is to know: of some tests, and of the run."""
        found = [(note, wording.shortened(one.test)) for one in self.profiles for note in one.notes]
        notes, baseline = _by_reason(found), self.baseline
        if baseline.source == "run":
            compared = [one for one in self.profiles if one.change != "not compared"]
            notes += _counted("times not compared for", [one.untimed for one in compared])
            notes += _counted("differences fail nothing in", map(forbidden_words, compared))
        earlier = "the earlier run" if baseline.source == "run" else self.short
        lists = {
            f"only in {earlier}": baseline.gone,
            "only in this run": baseline.fresh,
            "not a whole run": baseline.unfinished,
        }
        for words, several in lists.items():
            named = ", ".join(wording.first_of(several, _MOST_NAMED, "and {} more"))
            notes += [f"{words}: {named}"] if several else []
        return [*notes, *baseline.notes]

    def _name_of(self, one: ProfileComparison) -> str:
        label = one.label if self.what == "profile" else ""
        return wording.with_label(wording.shortened(one.test), label)

    def _kernels(self) -> str:
        diffs = [one.kernels for one in self.profiles if one.kernels is not None]
        kinds = {one.what for one in diffs}
        counted = kinds.pop() if len(kinds) == 1 else "kernels"
        changes = [one.current_kernels - one.baseline_kernels for one in diffs]
        more, fewer = sum(n for n in changes if n > 0), -sum(n for n in changes if n < 0)
        if more and fewer:
            return f"{more:,} more and {fewer:,} fewer {counted}"
        if not more + fewer:
            return f"same number of {counted}" if diffs else ""
        words = f"{'more' if more else 'fewer'} {counted[:-1]}"
        return f"{wording.count(more + fewer, words)} in total"

    def _turns(self) -> str:
        """How much was timed; empty where nothing was."""
        if not (timed := [one.paired for one in self.profiles if one.paired and one.paired.pairs]):
            return ""
        margins = [f"{one * 100:.3g}" for one in sorted(one.margin for one in timed)]
        margin = wording.ends(margins[0], margins[-1], " to ")
        words = f"{wording.count(len(timed), 'call')} timed (interleaved), margin {margin} %"
        before = sum(one.baseline_us for one in timed)
        now = sum(one.baseline_us * one.ratio for one in timed)
        change = wording.percent(now / before - 1) if before else ""
        return f"{words}, their GPU time {change}" if before else words


def baseline_summary(run: Run, baseline: RunComparison) -> BaselineSummary:
    """How the run compares with a baseline, as far as it has come."""
    return BaselineSummary(baseline, (*comparisons_of(run, baseline.source), *baseline.profiles))


def baseline_summaries(run: Run) -> tuple[BaselineSummary, ...]:
    """How the run compares with what ran in turn and with an earlier run, where it was asked."""
    found = map(run.baseline, (*IN_TURN, "run"))
    return tuple(baseline_summary(run, one) for one in found if one is not None)


def comparisons_of(run: Run, source: Source) -> Iterator[ProfileComparison]:
    """What verdicts say; of a test that ran again, those of the last try."""
    last_tries = {test.id: test for test in run.tests}.values()
    found = (verdict.comparison for test in last_tries for verdict in test.verdicts)
    return (one for one in found if one is not None and one.source == source)


def result_of(one: ProfileComparison) -> Result:
    """How a profile compares, as it is told."""
    if one.change == "worse" and not one.fails:
        return "not judged"
    return "accepted" if one.accepted and one.change == "changed" else one.change


def weight_of(one: ProfileComparison) -> tuple[int, float, float, tuple[tuple[str, int], ...]]:
    """A key for rows that changed: worst first; of one result the largest changes of times first,
    then of the number of kernels, then by name."""
    diff = one.kernels
    more = diff.current_kernels - diff.baseline_kernels if diff is not None else 0
    name = wording.natural(wording.with_label(one.test, one.label))
    return _ORDER.index(result_of(one)), -abs(share_of(one) or 0.0), -abs(more), name


def deltas_of(one: ProfileComparison) -> dict[str, comparison.MetricDelta]:
    """The values of both sides that are told, by metric: ``kernels`` also where they are the same;
    times where they were compared; of those that were taken in turn the latency alone."""
    found = []
    if one.kernels is not None:
        sides = one.kernels.baseline_kernels, one.kernels.current_kernels
        found.append(comparison.MetricDelta(name="kernels", baselines=sides[:1], current=sides[1]))
    found += (one for one in one.metrics if one.change not in (None, "not compared"))
    paired = one.paired if result_of(one) != "same" else None
    if paired is not None and paired.pairs and paired.baseline_latency_us:
        times = paired.baseline_latency_us, paired.current_latency_us
        found.append(comparison.MetricDelta(name="latency", baselines=times[:1], current=times[1]))
    return {one.name: one for one in found}


def differs(delta: comparison.MetricDelta | None) -> bool:
    """Whether a baseline has another value."""
    return delta is not None and any(one not in (None, delta.current) for one in delta.baselines)


def share_of(one: ProfileComparison) -> float | None:
    """By which fraction it takes longer on the GPU, without a GPU by its latency; None where times
    were not compared."""
    if one.paired is not None and one.paired.pairs:
        return one.paired.ratio - 1
    on_cpu = one.kernels is not None and one.kernels.what == "operators"
    delta = deltas_of(one).get("latency" if on_cpu else "cuda_time")
    return delta.share if delta is not None else None


def range_words(one: ProfileComparison) -> str:
    """The least and the greatest change by pairs of processes; empty of a single pair."""
    ratios = [pair.ratio for pair in one.paired.pairs] if one.paired is not None else []
    if len(ratios) < 2:
        return ""
    return f"{(min(ratios) - 1) * 100:+.1f}..{wording.percent(max(ratios) - 1)}"


def why_of(one: ProfileComparison) -> str:
    """How many pairs agree; why nothing fails by it, or why there is no verdict."""
    if one.change == "not compared":
        return one.reason
    if (paired := one.paired) is not None:
        if paired.change in ("worse", "better") and len(paired.pairs) > 1:
            slower = "slower" if paired.change == "worse" else "faster"
            return f"{slower} in {paired.agreeing} of {len(paired.pairs)} pairs"
        return wording.why_unsure(paired) if paired.change == "undecided" else ""
    if one.source == "run" and (different := forbidden_words(one)):
        return f"not judged: {different}"
    undecided = [delta for delta in one.metrics if delta.change == "undecided"]
    if any(delta.spec.kind == "exact" for delta in undecided):
        return "not judged: a block ran only once, and was cold"
    few = "its rounds are too few, or too alike, for an interval"
    judged = (one for one in undecided if one.judged)
    told = (f"{one.name} undecided: {wording.interval(one.interval) or few}" for one in judged)
    return "; ".join(told)


def forbidden_words(one: ProfileComparison) -> str:
    """The differences for which not even counts are judged."""
    return one.reason if one.differences else ""


def _counted(words: str, reasons: Iterable[str]) -> list[str]:
    numbers = Counter(filter(None, reasons))
    return [f"{words} {wording.count(n, 'profile')}: {why}" for why, n in numbers.items()]


def _by_reason(found: Iterable[tuple[str, str]]) -> list[str]:
    """Each reason after the tests that it is of, a few by name; the most frequent first."""
    reasons = wording.grouped(found, lambda one: one[0]).items()
    tests = [(why, dict.fromkeys(test for _, test in of)) for why, of in reasons if why]
    return [
        f"{wording.count(len(of), 'test') if len(of) > _FEW else ', '.join(of)}: {why}"
        for why, of in sorted(tests, key=lambda one: -len(one[1]))
    ]
