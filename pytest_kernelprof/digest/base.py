"""What changed against the base: a revision's code (--kernelprof-against), else an earlier run
(--kernelprof-compare)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pytest_kernelprof.digest.cells import value_of
from pytest_kernelprof.digest.ids import natural
from pytest_kernelprof.digest.words import count_words
from pytest_kernelprof.schema.against import RESULTS, Result

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_kernelprof.schema.against import AgainstTest, Compared
    from pytest_kernelprof.schema.run import Profile, Run
    from pytest_kernelprof.schema.runs import ProfileComparison
    from pytest_kernelprof.schema.turns import Timing

Came = Result | Literal["not judged"]
"""What came of a comparison; "not judged": worse, in a metric that fails nothing."""
ORDER: tuple[Came, ...] = (RESULTS[0], "not judged", *RESULTS[1:])
_COMPARED = [one for one in ORDER if one not in ("cannot run", "not compared", "another work")]
_WORDS: dict[Came, str] = {
    "worse": "worse",
    "not judged": "worse, which nothing judges",
    "cannot run": "that it cannot run",
    "not compared": "not compared",
    "another work": "of another work",
    "undecided": "undecided",
    "accepted": "accepted by their snapshots",
    "better": "better",
    "same": "the same",
}


@dataclass(frozen=True, slots=True)
class Change:
    """How one profile compares; of a test without one, why.

    Attributes:
        test: the node id. label: which of its profiles.
        result: what came of it.
        old_kernels, new_kernels: how many; None where it was not compared.
        old_us, new_us: the GPU time, where both were measured so that they compare.
        low, high: bounds of the ratio of times by pairs of processes, least and greatest.
        agreeing, pairs: how many pairs of processes agree, of how many; 0 without.
        why: of what was not compared.
    """

    test: str
    label: str
    result: Came
    old_kernels: int | None = None
    new_kernels: int | None = None
    old_us: float | None = None
    new_us: float | None = None
    low: float | None = None
    high: float | None = None
    agreeing: int = 0
    pairs: int = 0
    why: str = ""

    @property
    def ratio(self) -> float | None:
        """How many times as long it takes; None where that is not known."""
        return self.new_us / self.old_us if self.old_us and self.new_us is not None else None


@dataclass(frozen=True, slots=True)
class Changes:
    """All that were compared with one base.

    Attributes:
        base: how it is told, for example ``main (abc1234)``.
        how: "against" a revision, or by "compare" with an earlier run.
        rows: what is not the same, worst first.
        counts: tests (of "compare": profiles) by their result, worst first.
        more_kernels: how many kernels there are more (fewer below zero), over all that compare.
        ratio: of the GPU times of all that were timed on both sides; None where none were.
    """

    base: str
    how: Literal["against", "compare"]
    rows: tuple[Change, ...]
    counts: dict[Came, int]
    more_kernels: int
    ratio: float | None

    @property
    def told(self) -> str:
        """``3 worse, 26 the same; together 3 kernels more``: together, where any were compared."""
        if all(self.counts.get(result, 0) == 0 for result in _COMPARED):
            return self.words
        return f"{self.words}; together {self.together}"

    @property
    def words(self) -> str:
        """The counts that are not zero: ``3 worse, 1 better, 26 the same``."""
        told = [f"{n:,} {_WORDS[result]}" for result, n in self.counts.items() if n]
        return ", ".join(told) or "nothing was compared"

    @property
    def together(self) -> str:
        """``3 kernels more, GPU time +1.9 %``; as many kernels are none more."""
        n = abs(self.more_kernels)
        more = "more" if self.more_kernels > 0 else "fewer"
        told = f"{count_words(n, 'kernel')} {more}" if n else "as many kernels"
        return told if self.ratio is None else f"{told}, GPU time {percent_words(self.ratio)}"


def changes_of(run: Run) -> Changes | None:
    """How the run compares with its base; None where it has none."""
    if run.against is not None:
        rows = [row for test in run.against.tests for row in _of_test(test)]
        counts: dict[Came, int] = {result: run.against.counts.get(result, 0) for result in RESULTS}
        return _changes(run.against.name, "against", rows, counts, _ratio(rows))
    if run.earlier is not None:
        rows = list(_of_earlier(run))
        counts = {result: sum(one.result == result for one in rows) for result in ORDER}
        counts["same"] += max(0, run.earlier.comparison.compared - len(rows))
        counts["not compared"] += len(run.earlier.comparison.uncompared)
        base = f"{run.earlier.path} ({run.earlier.began})"
        # Of what takes as long as before the times are not in it: there is no sum to be had.
        return _changes(base, "compare", rows, counts, None)
    return None


def percent_words(ratio: float) -> str:
    """``+3.9 %``."""
    return f"{(ratio - 1) * 100:+.1f} %"


def _changes(
    base: str,
    how: Literal["against", "compare"],
    rows: Sequence[Change],
    counts: dict[Came, int],
    ratio: float | None,
) -> Changes:
    kernels = [(one.old_kernels, one.new_kernels) for one in rows if one.old_kernels is not None]
    return Changes(
        base,
        how,
        tuple(sorted((one for one in rows if one.result != "same"), key=_worst_first)),
        counts,
        sum((new or 0) - (old or 0) for old, new in kernels),
        ratio,
    )


def _ratio(rows: Sequence[Change]) -> float | None:
    """Of the GPU times of all that were timed, together."""
    timed = [one for one in rows if one.ratio is not None]
    old = sum(one.old_us or 0.0 for one in timed)
    new = sum(one.new_us or 0.0 for one in timed)
    return new / old if old else None


def _worst_first(one: Change) -> tuple[int, int, float, tuple[tuple[str, int], ...]]:
    more = (one.new_kernels or 0) - (one.old_kernels or 0)
    return ORDER.index(one.result), -more, -(one.ratio or 0.0), natural(one.test)


def _of_test(test: AgainstTest) -> Iterator[Change]:
    if not test.profiles:
        yield Change(test.id, "", test.result, why=test.why)
    for one in test.profiles:
        timing = one.timing if one.timing is not None and one.timing.pairs else None
        ratios = [pair.ratio for pair in timing.pairs] if timing else []
        yield Change(
            test.id,
            one.label,
            _result(test, one),
            old_kernels=one.diff.old_kernels,
            new_kernels=one.diff.new_kernels,
            old_us=timing.old_us if timing else None,
            new_us=timing.new_us if timing else None,
            low=min(ratios, default=None),
            high=max(ratios, default=None),
            agreeing=timing.agreeing if timing else 0,
            pairs=len(ratios),
            why=test.why or _why(timing),
        )


def _why(timing: Timing | None) -> str:
    return timing.why if timing is not None and timing.outcome == "undecided" else ""


def _result(test: AgainstTest, one: Compared) -> Result:
    """Of one of a test's profiles, the test's only where that is what it is about."""
    if len(test.profiles) == 1:
        return test.result
    if one.is_worse:
        return "worse"
    if one.is_timed("undecided"):
        return "undecided"
    if one.accepted:
        return "accepted"
    return "better" if one.better or one.is_timed("better") else "same"


def _of_earlier(run: Run) -> Iterator[Change]:
    """What is another than in the earlier run; what is the same has no verdict that says so."""
    for test in run.tests:
        for profile in test.profiles:
            for verdict in profile.verdicts:
                if verdict.comparison is not None:
                    yield _of_comparison(test.id, profile, verdict.comparison)


def _of_comparison(test: str, profile: Profile, found: ProfileComparison) -> Change:
    metrics = {one.name: one for one in found.metrics}
    verdicts = {one.verdict for one in found.metrics}
    result: Came = "worse" if found.regressed else "same"
    if result == "same" and verdicts:
        result = "not judged" if "worse" in verdicts else min(verdicts, key=RESULTS.index)
    times, counts = metrics.get("cuda_time"), metrics.get("kernels")
    kernels = value_of(profile, "kernels")
    new_kernels = None if kernels is None else int(kernels)
    olds = [one for one in counts.olds if one is not None] if counts else []
    old_us = [one for one in times.olds if one is not None] if times else []
    return Change(
        test,
        profile.label,
        result,
        old_kernels=int(olds[-1]) if olds else new_kernels,
        new_kernels=new_kernels,
        old_us=old_us[-1] if old_us else None,
        new_us=times.new if times else None,
    )
