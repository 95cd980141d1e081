"""How each profile compares with its baseline, a revision or earlier runs: a row a profile. All
reports read rows, words and order from here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from pytest_kernelprof.digest.conditions import doubt_words
from pytest_kernelprof.digest.diff_causes import causes_of_diff
from pytest_kernelprof.digest.ids import natural, with_label
from pytest_kernelprof.digest.words import first_of, line_words
from pytest_kernelprof.schema.against import RESULTS, Result
from pytest_kernelprof.schema.metrics import METRICS
from pytest_kernelprof.units import format_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_kernelprof.schema.against import AgainstTest, Compared
    from pytest_kernelprof.schema.run import Cause
    from pytest_kernelprof.schema.runs import MetricComparison, ProfileComparison
    from pytest_kernelprof.schema.turns import Timing

RowResult = Result | Literal["not judged"]
"""The result of a row; "not judged": worse in a metric that fails nothing."""
WORDS: dict[RowResult, str] = {
    "worse": "worse",
    "not judged": "worse (not checked)",
    "undecided": "undecided",
    "accepted": "accepted by snapshot",
    "better": "better",
    "changed": "changed (other kernels, same counts)",
    "same": "unchanged",
    "cannot run": "cannot run on {base}",
    "not compared": "not compared",
    "different work": "did different work",
}
"""The words for each result, in the order in which they are counted."""
UNCOMPARED: tuple[Result, ...] = ("cannot run", "not compared", "different work")
_WORST_FIRST: tuple[RowResult, ...] = (RESULTS[0], "not judged", *RESULTS[1:])
_MOST_CAUSES = 3


@dataclass(frozen=True, slots=True)
class Was:
    """The value of a metric, before and now.

    Attributes:
        olds: of each earlier run, None where it has none that compares.
        low, high: bounds of the new value at 99 %.
    """

    olds: tuple[float | None, ...]
    new: float
    low: float | None = None
    high: float | None = None

    @property
    def old(self) -> float:
        """The newest that there is; what it is now where there is none."""
        return next((one for one in reversed(self.olds) if one is not None), self.new)

    @property
    def share(self) -> float | None:
        """By which fraction it is more; None of nothing before."""
        return self.new / self.old - 1 if self.old else None


@dataclass(frozen=True, slots=True)
class Changed:
    """How a profile compares; of a test that was not compared, why.

    Attributes:
        test: its node id. label: which of the test's profiles it is.
        values: of metrics that are others, by name; ``kernels`` also where that is the same.
        ratios: how many times as long it takes, by each pair of processes.
        ratio: the same, by all of them; None without turns.
        why: what else there is to say, in words.
        causes: which kernels, and where.
        counted: what the count of kernels is of: on the CPU, of operators.
    """

    test: str
    result: RowResult
    label: str = ""
    values: dict[str, Was] = field(default_factory=dict)
    ratio: float | None = None
    ratios: tuple[float, ...] = ()
    why: str = ""
    causes: tuple[Cause, ...] = ()
    counted: str = "kernels"

    @property
    def name(self) -> str:
        """The test's node id with the profile's label."""
        return with_label(self.test, self.label)

    @property
    def kernels(self) -> Was | None:
        """How many there are, before and now."""
        return self.values.get("kernels")

    @property
    def gpu_time(self) -> Was | None:
        """The time on the GPU, before and now; None where that was not compared."""
        return self.values.get("cuda_time")

    @property
    def share(self) -> float | None:
        """By which fraction it takes longer; None where times were not compared."""
        if self.ratio is not None:
            return self.ratio - 1
        return self.gpu_time.share if self.gpu_time is not None else None

    @property
    def range(self) -> str:
        """The least and the greatest change by pairs of processes; empty of a single pair."""
        if len(self.ratios) < 2:
            return ""
        low, high = min(self.ratios) - 1, max(self.ratios) - 1
        return f"{low * 100:+.1f}..{high * 100:+.1f} %"

    @property
    def reasons(self) -> str:
        """Which kernels changed, the first of them, and what else there is to say: one line."""
        told = first_of(list(map(_cause_words, self.causes)), _MOST_CAUSES)
        return "; ".join(filter(None, [*told, self.why]))


def percent_words(share: float) -> str:
    """``+3.9 %``."""
    return f"{share * 100:+.1f} %"


def worst_first(rows: Iterable[Changed]) -> tuple[Changed, ...]:
    """Rows by their result; of one result the largest changes of times first, then of the number
    of kernels, then by name."""
    return tuple(sorted(rows, key=_weight))


def _weight(one: Changed) -> tuple[int, float, float, tuple[tuple[str, int], ...]]:
    more = one.kernels.new - one.kernels.old if one.kernels is not None else 0
    return _WORST_FIRST.index(one.result), -abs(one.share or 0.0), -abs(more), natural(one.name)


def _cause_words(cause: Cause) -> str:
    place = line_words(cause.place) if cause.place is not None else ""
    return ", ".join(filter(None, [f"{cause.sign} {cause.text}".lstrip(), place]))


def rows_against(tests: Sequence[AgainstTest]) -> Iterator[Changed]:
    """Of a run against a revision: a row for each profile, or for a test that was not compared."""
    for test in tests:
        if test.result in UNCOMPARED:
            yield Changed(test.id, test.result, why=test.why)
        else:
            yield from (_row(test, one) for one in test.profiles)


def _row(test: AgainstTest, one: Compared) -> Changed:
    timing, diff = one.timing, one.diff
    values = {"kernels": Was((diff.old_kernels,), diff.new_kernels)}
    for change in diff.metrics:
        if change.name in (*one.worse, *one.accepted, *one.better) and change.name != "kernels":
            values[change.name] = Was((change.old,), change.new or 0.0)
    timed = timing is not None and bool(timing.pairs)
    if timing is not None and timed:
        values["cuda_time"] = Was((timing.old_us,), timing.new_us)
        if timing.old_latency_us:
            values["latency"] = Was((timing.old_latency_us,), timing.new_latency_us)
    return Changed(
        test=test.id,
        result=one.result,
        label=one.label,
        values=values,
        ratio=timing.ratio if timing is not None and timed else None,
        ratios=tuple(pair.ratio for pair in timing.pairs) if timing is not None else (),
        why=_why(timing) if timing is not None else "",
        causes=causes_of_diff(diff),
        counted=diff.what,
    )


def _why(timing: Timing) -> str:
    """How many pairs agree, and why there is no verdict."""
    if timing.outcome in ("worse", "better") and len(timing.pairs) > 1:
        slower = "slower" if timing.outcome == "worse" else "faster"
        return f"{slower} in {timing.agreeing} of {len(timing.pairs)} pairs"
    if timing.outcome != "undecided":
        return ""
    return doubt_words(timing.disturbed) if timing.disturbed is not None else timing.why


def row_of_runs(one: ProfileComparison) -> Changed:
    """Of a run and earlier ones: the row of a profile."""
    values = {metric.name: _was(metric) for metric in one.metrics}
    if one.diff is not None and "kernels" not in values:
        values["kernels"] = Was((one.diff.old_kernels,), one.diff.new_kernels)
    return Changed(
        test=one.test,
        result=_result_of_runs(one),
        label=one.label,
        values=values,
        why=_why_of_runs(one),
        causes=causes_of_diff(one.diff) if one.diff is not None else (),
        counted=one.diff.what if one.diff is not None else "kernels",
    )


def _why_of_runs(one: ProfileComparison) -> str:
    """Why nothing fails by it, or there is no verdict."""
    if one.other:
        return f"not judged: {one.other}"
    undecided = [metric for metric in one.metrics if metric.verdict == "undecided"]
    if any(metric.kind == "exact" for metric in undecided):
        return "a block that ran once, and was cold"
    return "; ".join(_how_sure(metric) for metric in undecided if metric.judged)


def _how_sure(metric: MetricComparison) -> str:
    if metric.low is None or metric.high is None:
        return f"{metric.name} undecided: its rounds are too few, or too alike, for an interval"
    low, high = format_time(metric.low), format_time(metric.high)
    return f"{metric.name} undecided: {low} to {high} at 99 %"


def _was(metric: MetricComparison) -> Was:
    timed = METRICS[metric.name].kind == "timed"
    bounds = (metric.low, metric.high) if timed else (None, None)
    return Was(metric.olds, metric.new, *bounds)


def _result_of_runs(one: ProfileComparison) -> RowResult:
    verdicts = {metric.verdict for metric in one.metrics}
    judged = {metric.verdict for metric in one.metrics if metric.judged}
    results: tuple[tuple[RowResult, bool], ...] = (
        ("worse", one.regressed),
        ("not judged", "worse" in verdicts),
        ("undecided", "undecided" in judged),
        ("better", "better" in verdicts),
        ("undecided", "undecided" in verdicts),
        ("changed", one.diff is not None and bool(one.diff.hunks)),
    )
    return next((result for result, holds in results if holds), "same")
