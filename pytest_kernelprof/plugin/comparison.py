"""What ``kernel_profile.compare`` hands out: how many times as fast, and how sure."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from pytest_kernelprof.api import Profile
from pytest_kernelprof.capture.torch_profiler import held_by
from pytest_kernelprof.errors import CannotMeasureError, LimitExceeded, MarkerError
from pytest_kernelprof.limits.evaluate import evaluate_comparison
from pytest_kernelprof.limits.kinds import COMPARED, Limit, checked, parse_assertion
from pytest_kernelprof.measure.arguments import Arguments
from pytest_kernelprof.measure.callables import CompareBy, Contest, contest
from pytest_kernelprof.measure.checks import CLOSE
from pytest_kernelprof.measure.policy import TIMED_ROUNDS, Plan, more_pairs
from pytest_kernelprof.plugin.conclusion import in_place_words
from pytest_kernelprof.plugin.ledger import Asked
from pytest_kernelprof.plugin.measuring import may_be_blind, nothing_to_look_at, run_plainly
from pytest_kernelprof.plugin.places import place_of_call
from pytest_kernelprof.plugin.settings import check_option
from pytest_kernelprof.report.failure import comparison_message
from pytest_kernelprof.report.kernel_tables import callable_lines
from pytest_kernelprof.report.tables import Style
from pytest_kernelprof.schema import run
from pytest_kernelprof.summary.verdicts import comparison_line, headline
from pytest_kernelprof.summary.words import line_words
from pytest_kernelprof.units import name_of

if TYPE_CHECKING:
    from pytest_kernelprof.measure.checks import Check
    from pytest_kernelprof.plugin.measuring import MeasuredTest
    from pytest_kernelprof.schema.recording import DeviceKind

_NO_TRUTH = (
    "a comparison is neither true nor false: assert one of its methods, for example compare(f, "
    'g, x).min_speedup(1.5) or .not_slower(by="2%")'
)
_UNMEASURED = "no comparison: nothing was measured"
_REMEDY = "catch expected exceptions inside the callables"


@dataclass(frozen=True, slots=True)
class Contender:
    """One of the callables: its values, one a round, and the profile of its warmed-up call.

    Attributes:
        rounds: the values, in the order in which they were taken.
        value: median, in microseconds or bytes. low, high: its interval at 99 %, or None.
    """

    name: str
    rounds: tuple[float, ...]
    profile: Profile
    value: float
    low: float | None
    high: float | None


class Group(dict[str, "Comparison"]):
    """Candidates and their reference, measured in turn: comparisons by the candidate's name. Where
    nothing was measured, it has no rounds, and whoever looks at them leaves the test."""

    def __init__(
        self, test: MeasuredTest, names: Iterable[str], reference: str, rounds: Contest | None
    ) -> None:
        super().__init__((name, Comparison(self, name)) for name in names if name != reference)
        self._test = test
        self._rounds = rounds
        self._verdicts: list[run.Verdict] = []

    def __bool__(self) -> bool:
        raise CannotMeasureError(_NO_TRUTH)

    def __str__(self) -> str:
        if self._rounds is None:
            return _UNMEASURED
        return "\n".join(callable_lines(self._record()))

    __repr__ = __str__

    @property
    def _measured(self) -> Contest:
        if self._rounds is None:
            nothing_to_look_at(self._test, "comparison")
        return self._rounds

    def _record(self) -> run.Comparison:
        return self._measured.record(verdicts=self._verdicts)


class Comparison:
    """A candidate and a reference, measured in turn in one run.

    Attributes are those of the rounds so far; an assertion that is not decided takes more.
    """

    def __init__(self, group: Group, candidate: str) -> None:
        self._group = group
        self._candidate = candidate
        self._asserted = False

    def __bool__(self) -> bool:
        if not self._asserted:
            raise CannotMeasureError(_NO_TRUTH)
        return True

    @property
    def speedup(self) -> float:
        """The reference's time over the candidate's: 2.0 is twice as fast. Of pairs of rounds, the
        median; of ``peak_memory``, the reference's bytes over the candidate's."""
        return self._group._measured.paired(self._candidate).speedup

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 99 % interval of the speedup; None with fewer than 8 pairs."""
        return self._group._measured.paired(self._candidate).speedup_interval

    @property
    def pairs(self) -> int:
        """How many pairs of rounds there are."""
        return self._group._measured.pairs

    @property
    def candidate(self) -> Contender:
        """The candidate's values and profile."""
        return self._contender(self._candidate)

    @property
    def reference(self) -> Contender:
        """The reference's values and profile."""
        return self._contender(self._group._measured.reference)

    def min_speedup(self, times: float) -> Comparison:
        """Assert that the candidate is at least so many times as fast as the reference.

        Rounds are added, up to 96 pairs, while the interval holds ``times``; what is undecided
        then warns, fails or passes by the ini key ``kernelprof_undecided``.

        Raises:
            LimitExceeded: the interval of the speedup lies below ``times``.
            MarkerError: ``times`` is no number above zero.
        """
        return self._assert(parse_assertion("min_speedup", times))

    def not_slower(self, by: str = "2%") -> Comparison:
        """Assert that the candidate takes at most so much longer than the reference.

        Raises:
            LimitExceeded: the interval of the slowdown lies above ``by``.
            MarkerError: ``by`` is no percentage.
        """
        return self._assert(parse_assertion("not_slower", by))

    def __str__(self) -> str:
        if self._group._rounds is None:
            return _UNMEASURED
        return f"{headline(self._record(), self._candidate)}\n{self.table()}"

    __repr__ = __str__

    def table(self, width: int = 100) -> str:
        """Both as a text table."""
        return "\n".join(callable_lines(self._record(), Style(width)))

    def _record(self, *verdicts: run.Verdict) -> run.Comparison:
        rounds = self._group._measured
        return rounds.record((self._candidate, rounds.reference), verdicts)

    def _contender(self, name: str) -> Contender:
        rounds = self._group._measured
        (one,) = rounds.record((name,)).contestants
        profile = Profile(rounds.profiles[name], no_trace="comparisons keep no traces")
        return Contender(name, rounds.values(name), profile, one.value, one.low, one.high)

    def _assert(self, limit: Limit) -> Comparison:
        message = judge(self, limit)
        if message:
            raise LimitExceeded(message, pytrace=False)
        return self


def judge(comparison: Comparison, limit: Limit) -> str:
    """Take rounds until the limit is decided, or there are 96 pairs; the message of a failure, or
    nothing."""
    comparison._asserted = True
    group, candidate = comparison._group, comparison._candidate
    test, rounds = group._test, group._rounds
    if rounds is None:  # and so no limit is judged
        test.ledger.leave_out(test.ledger.unmeasured, [limit])
        return ""
    place = place_of_call(test.place)
    what = f"the assertion at {line_words(place)}"
    while True:
        of_both = rounds.values(candidate), rounds.values(rounds.reference)
        verdict = evaluate_comparison(limit, rounds.record(), candidate, *of_both, place)
        decided = verdict.outcome != "undecided"
        more = more_pairs(rounds.pairs, decided=decided, disturbed=rounds.disturbed)
        if not more:
            break
        with test.ledger.asking(Asked(what, _REMEDY, instead=limit.name)), held_by(what):
            rounds.take(more)
    group._verdicts.append(verdict)
    record = comparison._record(verdict)
    if verdict.outcome == "failed" or (not decided and test.ledger.fails_undecided):
        return comparison_message(record)
    if not decided:
        test.ledger.note_undecided(comparison_line(record, verdict))
    return ""


def compare(
    test: MeasuredTest,
    callables: Mapping[str, Callable[..., Any]],
    arguments: Arguments,
    *,
    reference: str,
    metric: str | None = None,
    rounds: int | None = None,
    check: Check = CLOSE,
    fresh: Callable[[], Any] | None = None,
    judged: str = "the comparison",
    group: object = None,
) -> Group:
    """Measure callables in turn, and have the test's report tell of it.

    Args:
        judged: what is to be judged by it, in words. group: the ranks that compare.
    """
    place = line_words(place_of_call(test.place))
    what = f"the comparison at {place}"
    with test.ledger.asking(Asked(what, _REMEDY, instead=judged)), held_by(what):
        _check_callables(callables, reference)
        _check_checks(check, fresh)
        by = _metric_of(metric, test.device)
        plan = Plan(
            test.device,
            test.warmup,
            TIMED_ROUNDS if rounds is None else check_option("rounds", rounds),
            flush_l2=test.flush_l2,
            lock_timeout_s=test.settings.lock_timeout,
            who=test.id,
            ignore_children=test.ignore_children,
        )
        found: Contest | None = None
        if test.unmeasured:
            test.ledger.leave_out(test.unmeasured)
        else:
            with may_be_blind(test):
                found = contest(
                    callables,
                    plan,
                    arguments,
                    reference=reference,
                    metric=by,
                    check=check,
                    fresh=fresh,
                    measuring=test.measuring,
                    agreeing=partial(test.agreeing, f"a comparison at {place}", group),
                )
        compared = Group(test, callables, reference, found)
        if found is None:
            for fn in callables.values():
                run_plainly(fn, arguments)
            return compared
        if found.in_place:
            test.ledger.notes.append(in_place_words(found.in_place))
        test.ledger.compared = True
        test.ledger.comparisons.append(compared._record)
        return compared


def names_of(candidate: object, reference: object) -> tuple[str, str]:
    """What the callables are called in tables; told apart where both have one name."""
    names = [name_of(candidate), name_of(reference)]
    if names[0] == names[1]:
        names = [f"{names[0]} (candidate)", f"{names[1]} (reference)"]
    return names[0], names[1]


def _check_callables(callables: object, reference: object) -> None:
    """Raise MarkerError unless these are callables by name, and the reference one of them."""
    form = 'compare_all({"eager": f, "fused": g}, x, reference="eager")'
    if not isinstance(callables, Mapping) or len(callables) < 2:
        raise MarkerError(f"expected two callables or more, by name. The form is: {form}")
    for name, fn in callables.items():
        if not isinstance(name, str):
            raise MarkerError(f"{name!r}: expected a name as text. The form is: {form}")
        if not callable(fn):
            raise MarkerError(
                f"{name}: expected a callable, got {type(fn).__name__} {reprlib.repr(fn)}; write "
                "compare(f, g, x), not compare(f(x), g(x))"
            )
    if not isinstance(reference, str) or reference not in callables:
        names = ", ".join(map(repr, callables))
        raise MarkerError(f"reference={reference!r} is not one of {names}. The form is: {form}")


def _check_checks(check: object, fresh: object) -> None:
    """Raise MarkerError unless results can be held against each other by these."""
    try:
        checked(check)
    except TypeError as error:
        raise MarkerError(str(error)) from error
    if fresh is not None and not callable(fresh):
        raise MarkerError(
            f"fresh={reprlib.repr(fresh)}: expected a function that returns other inputs, as "
            "setup= does: fresh=lambda: (other_x,)"
        )
    if fresh is not None and check is None:
        raise MarkerError("fresh= gives inputs for check=, which is None: remove one of them")


def _metric_of(metric: str | None, device: DeviceKind) -> CompareBy:
    """What to compare by; by default the device's usual metric.

    Raises:
        MarkerError: there is no such metric, or none on this device.
    """
    if metric is None:
        return "latency" if device == "cpu" else "cuda_time"
    if metric not in COMPARED:
        raise MarkerError(f"metric={metric!r}: expected one of {', '.join(COMPARED)}")
    if device == "cpu" and metric != "latency":
        raise MarkerError(
            f"metric={metric!r}: the CPU has only latency; leave out metric to get cuda_time on "
            "a GPU and latency elsewhere"
        )
    return metric  # type: ignore[return-value]
