"""What is another than before, profile by profile: against a revision's code, and against earlier
runs. Each report tells its rows, words and order from here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from pytest_kernelprof.digest.conditions import doubt_words
from pytest_kernelprof.digest.diff_causes import causes_of_diff
from pytest_kernelprof.digest.ids import natural, with_label
from pytest_kernelprof.schema.metrics import METRICS
from pytest_kernelprof.units import format_time

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_kernelprof.digest.records import Cause
    from pytest_kernelprof.schema.against import AgainstTest, Compared
    from pytest_kernelprof.schema.runs import MetricComparison, ProfileComparison, RunsComparison
    from pytest_kernelprof.schema.turns import Timing

Group = Literal["worse", "not judged", "undecided", "accepted", "better", "changed"]
GROUPS: tuple[Group, ...] = (
    *("worse", "not judged", "undecided", "accepted", "better", "changed"),
)
"""What became of a row, in the order in which they are told: it fails; more or slower, which
nothing judges; perhaps; more, which its snapshot allows; fewer or faster; other kernels at the same
counts."""


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
    """A profile of which something is another.

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
    group: Group
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


def in_groups(changes: Sequence[Changed]) -> dict[Group, list[Changed]]:
    """Rows by what became of them, worst first; inside of a group the largest changes of times
    first, then by name."""
    found: dict[Group, list[Changed]] = {}
    for group in GROUPS:
        rows = [one for one in changes if one.group == group]
        if rows:
            found[group] = sorted(rows, key=_largest_first)
    return found


def _largest_first(one: Changed) -> tuple[float, tuple[tuple[str, int], ...]]:
    time = one.values.get("cuda_time")
    share = one.ratio - 1 if one.ratio is not None else time.share if time is not None else None
    return -abs(share or 0.0), natural(one.name)


def changes_against(tests: Sequence[AgainstTest]) -> tuple[Changed, ...]:
    """Of a run against a revision: a row for each profile that is another."""
    return tuple(row for test in tests for one in test.profiles for row in _row(test, one))


def _row(test: AgainstTest, one: Compared) -> Iterator[Changed]:
    group = _group(test, one)
    if group is None:
        return
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
    yield Changed(
        test=test.id,
        group=group,
        label=one.label,
        values=values,
        ratio=timing.ratio if timing is not None and timed else None,
        ratios=tuple(pair.ratio for pair in timing.pairs) if timing is not None else (),
        why=_why(timing) if timing is not None else "",
        causes=causes_of_diff(diff),
        counted=diff.what,
    )


def _group(test: AgainstTest, one: Compared) -> Group | None:
    if test.result in ("cannot run", "not compared", "another work"):
        return None  # what its counts say is no verdict
    if one.is_worse:
        return "worse"
    if one.is_timed("undecided"):
        return "undecided"
    if one.accepted:
        return "accepted"
    if one.better or one.is_timed("better"):
        return "better"
    return "changed" if one.diff.hunks else None


def _why(timing: Timing) -> str:
    """How many pairs agree, and why there is no verdict."""
    if timing.outcome in ("worse", "better") and len(timing.pairs) > 1:
        slower = "slower" if timing.outcome == "worse" else "faster"
        return f"{slower} in {timing.agreeing} of {len(timing.pairs)} pairs"
    if timing.outcome != "undecided":
        return ""
    return doubt_words(timing.disturbed) if timing.disturbed is not None else timing.why


def changes_of_runs(found: RunsComparison) -> tuple[Changed, ...]:
    """Of a run and earlier ones: a row for each profile that is another."""
    return tuple(map(_row_of_runs, found.profiles))


def _row_of_runs(one: ProfileComparison) -> Changed:
    values = {metric.name: _was(metric) for metric in one.metrics}
    if one.diff is not None and "kernels" not in values:
        values["kernels"] = Was((one.diff.old_kernels,), one.diff.new_kernels)
    return Changed(
        test=one.test,
        group=_group_of_runs(one),
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


def _group_of_runs(one: ProfileComparison) -> Group:
    verdicts = {metric.verdict for metric in one.metrics}
    judged = {metric.verdict for metric in one.metrics if metric.judged}
    groups: tuple[tuple[Group, bool], ...] = (
        ("worse", one.regressed),
        ("not judged", "worse" in verdicts),
        ("undecided", "undecided" in judged),
        ("better", "better" in verdicts),
        ("undecided", "undecided" in verdicts),
    )
    return next((group for group, holds in groups if holds), "changed")
