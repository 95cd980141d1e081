"""How a run compares with its baseline, in all: a revision's code (--kernelprof-against), else
earlier runs. Computed once; the terminal, Markdown and HTML read it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace

from pytest_kernelprof.digest.changes import (
    UNCOMPARED,
    WORDS,
    percent_words,
    row_of_runs,
    rows_against,
    worst_first,
)
from pytest_kernelprof.digest.changes_verdict import latency_words
from pytest_kernelprof.digest.words import count_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_kernelprof.digest.changes import Changed, RowResult
    from pytest_kernelprof.schema.against import AgainstTest
    from pytest_kernelprof.schema.run import Run
    from pytest_kernelprof.schema.runs import RunsComparison


@dataclass(frozen=True, slots=True)
class Changes:
    """All that was compared with one baseline.

    Attributes:
        base: its name in full, for example ``main (abc1234)``. short: the same in a sentence.
        what: what ``counts`` counts.
        rows: what is not the same, worst first.
        counts: how many there are of each result.
        more_kernels: how many kernels there are more (fewer below zero), over all that compare.
        counted: what these are: on the CPU, operators.
        ratio: of the GPU times of all that were timed on both sides; None where none were.
        latency: the latencies, which nothing judges, in words.
    """

    base: str
    short: str
    what: Literal["test", "profile"]
    rows: tuple[Changed, ...]
    counts: Counter[RowResult]
    more_kernels: int
    counted: str
    ratio: float | None = None
    latency: str = ""

    @property
    def compared(self) -> int:
        """How many could be compared."""
        return sum(n for result, n in self.counts.items() if result not in UNCOMPARED)

    def word(self, result: RowResult) -> str:
        """The words for a result."""
        return WORDS[result].format(base=self.short)

    @property
    def words(self) -> str:
        """The counts that are not zero: ``3 worse, 1 better, 26 unchanged``."""
        return self._counted(*WORDS) or "nothing was compared"

    @property
    def told(self) -> str:
        """The same with sums: ``3 worse, 26 unchanged, 3 more kernels in total``."""
        if not self.compared:
            return self.words
        told = f"{self.words}, {self._kernels()}"
        if self.ratio is not None:
            told += f", GPU time {percent_words(self.ratio - 1)}"
        return f"{told}; {self.latency}" if self.latency else told

    @property
    def sentence(self) -> str:
        """``3 of 31 tests are worse than main; 1 undecided, 1 better, 26 unchanged.``"""
        worse = self.counts["worse"]
        rest = self._counted(*(one for one in WORDS if one != "worse"))
        if not self.compared:
            head = f"No {self.what} could be compared with {self.short}"
            return f"{head}: {rest}." if rest else f"{head}."
        of_all = f"{worse or 'None'} of {count_words(self.compared, self.what)}"
        head = f"{of_all} {'are' if worse > 1 else 'is'} worse than {self.short}"
        if self.compared == 1 and not worse:
            head = f"The only {self.what} is no worse than {self.short}"
        return f"{head}; {rest}." if rest else f"{head}."

    def _counted(self, *results: RowResult) -> str:
        counted = (one for one in results if self.counts[one])
        return ", ".join(f"{self.counts[one]:,} {self.word(one)}" for one in counted)

    def _kernels(self) -> str:
        n, more = abs(self.more_kernels), "more" if self.more_kernels > 0 else "fewer"
        if not n:
            return f"same number of {self.counted}"
        return f"{count_words(n, f'{more} {self.counted[:-1]}')} in total"


def changes_of(run: Run) -> Changes | None:
    """How the run compares with its baseline; None where it has none."""
    if run.against is not None:
        return changes_against(run.against.name, run.against.tests)
    if run.earlier is None:
        return None
    last = {test.id: test for test in run.tests}  # of a test that ran again, the last try
    profiles = [profile for test in last.values() for profile in test.profiles]
    verdicts = [verdict for profile in profiles for verdict in profile.verdicts]
    found = replace(
        run.earlier.comparison,
        profiles=tuple(one.comparison for one in verdicts if one.comparison is not None),
    )
    on_cpu = {one.environment.kind for one in profiles} == {"cpu"}
    return changes_of_runs(
        found,
        run.earlier.path,
        base=f"{run.earlier.path} ({run.earlier.began})",
        counted="operators" if on_cpu else "kernels",
    )


def changes_against(name: str, tests: Sequence[AgainstTest]) -> Changes:
    """How a run compares with a revision.

    Args:
        name: the revision's, for example ``main (abc1234)``.
    """
    rows = tuple(rows_against(tests))
    timed = [one.gpu_time for one in rows if one.gpu_time is not None]
    old, new = (sum(values) for values in ([one.old for one in timed], [one.new for one in timed]))
    counted = {one.counted for one in rows if one.kernels is not None}
    return Changes(
        base=name,
        short=name.partition(" (")[0],
        what="test",
        rows=_changed(rows),
        counts=Counter(test.result for test in tests),
        more_kernels=_more_kernels(rows),
        counted=counted.pop() if len(counted) == 1 else "kernels",
        ratio=new / old if old else None,
        latency=latency_words(tests),
    )


def changes_of_runs(
    found: RunsComparison, than: str, *, base: str = "", counted: str = "kernels"
) -> Changes:
    """How a run compares with earlier ones. Times have no sum: those of profiles that are the same
    are not known.

    Args:
        than: what it was compared with, in a sentence. base: the same in full.
        counted: what ran: on the CPU, operators.
    """
    rows = tuple(map(row_of_runs, found.profiles))
    changed = _changed(rows)
    counts = Counter(one.result for one in changed)
    counts["same"] = max(0, found.compared - len(changed))
    counts["not compared"] = len(found.uncompared)
    return Changes(base or than, than, "profile", changed, counts, _more_kernels(rows), counted)


def _changed(rows: Sequence[Changed]) -> tuple[Changed, ...]:
    return worst_first(one for one in rows if one.result != "same")


def _more_kernels(rows: Sequence[Changed]) -> int:
    return round(sum(one.kernels.new - one.kernels.old for one in rows if one.kernels is not None))
