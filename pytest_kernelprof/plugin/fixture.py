"""What a test talks to: ``KernelProfile``, its regions, and the comparisons that it returns."""

from __future__ import annotations

import contextlib
import os
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar

import pytest
from msgspec.structs import replace

from pytest_kernelprof.analysis.metric_values import rate_metrics, with_said
from pytest_kernelprof.api import Profile, refuse_no_callable
from pytest_kernelprof.errors import CannotMeasureError, LimitExceeded, MarkerError
from pytest_kernelprof.limits import kinds
from pytest_kernelprof.limits.evaluate import evaluate_comparison
from pytest_kernelprof.limits.kinds import COMPARED, Limit, checked, parse_assertion, parse_keyword
from pytest_kernelprof.measure.arguments import Arguments
from pytest_kernelprof.measure.callables import CLOSE, Check, CompareBy, Contest, contest
from pytest_kernelprof.measure.policy import TIMED_ROUNDS, Needs
from pytest_kernelprof.plugin import measuring, outcome, settings
from pytest_kernelprof.profiler.torch_profiler import held_by
from pytest_kernelprof.records.document import Comparison as ComparisonRecord
from pytest_kernelprof.records.profile import Verdict
from pytest_kernelprof.report import failure, kernel_tables, tables
from pytest_kernelprof.summary.verdicts import comparison_line, headline
from pytest_kernelprof.units import name_of

if TYPE_CHECKING:
    from pytest_kernelprof.plugin.measuring import MeasuredTest
    from pytest_kernelprof.plugin.started_ranks import Ranks
    from pytest_kernelprof.records.recording import DeviceKind


R = TypeVar("R")
_NO_TRUTH = (
    "a comparison is neither true nor false: assert one of its methods, for example compare(f, "
    'g, x).min_speedup(1.5) or .not_slower(by="2%")'
)

_UNMEASURED = "no comparison: nothing was measured"
_REMEDY = "catch expected exceptions inside the callables"


class KernelprofWarning(pytest.PytestWarning):
    """A verdict that was not reached (the interval of a time holds its limit), or cold code."""


class Region:
    """What ``with kernel_profile.region(...) as region`` yields."""

    def __init__(self, profile: Callable[[], Profile] | None = None) -> None:
        self._profile = profile

    @property
    def profile(self) -> Profile:
        """The block's profile, after the block.

        Raises:
            RuntimeError: the block has not ended.
        """
        if self._profile is None:
            raise RuntimeError("region.profile is available only after the with block")
        return self._profile()


class KernelProfile:
    """Profiles callables and blocks of one test, which is judged when it has run.

    Calling it, ``kernel_profile(fn, *args, **kwargs)``, warms up, profiles and measures ``fn`` and
    returns the first call's result.
    """

    def __init__(self, test: MeasuredTest) -> None:
        self._test = test

    def __repr__(self) -> str:
        return "<kernel_profile>"

    def __call__(self, fn: Callable[..., R], /, *args: Any, **kwargs: Any) -> R:
        """Warm up, profile and measure ``fn(*args, **kwargs)``; returns the first call's result."""
        return self.run(fn, args, kwargs)

    def run(
        self,
        fn: Callable[..., R],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        setup: Callable[[], Any] | None = None,
        warmup: int | None = None,
        rounds: int | None = None,
        flush_l2: bool | None = None,
        group: object = None,
    ) -> R:
        """The explicit form of a call.

        Args:
            setup: runs before each call, outside the region, and returns fresh arguments: a
                tuple, a pair of tuple and dict, or None to keep the given ones.
            warmup: calls before the first profiled one. rounds: profiled calls.
            flush_l2: whether the L2 cache is flushed before each timed round.
            group: which ranks of ``torch.distributed`` make this call, as a group or as numbers; by
                default all, where it is initialised.

        Raises:
            IncompleteProfile: the profiler cannot be used here, or a rank did not come; the
                message says why.
            MarkerError: an option is not of its form, or this rank is not in the group.
            CannotMeasureError: a TypeError; ``fn`` is no callable, or returns a generator or
                coroutine, whose body would not be measured.
        """
        test, arguments = self._test, Arguments(args, {} if kwargs is None else kwargs, setup)
        request = measuring.call_request(test, group)
        with test.ledger.asking(request):
            refuse_no_callable(fn, "kernel_profile", "profiles")
            asked = {"warmup": warmup, "rounds": rounds, "flush_l2": flush_l2}
            chosen = {k: settings.check_option(k, v) for k, v in asked.items() if v is not None}
            plan = test.plan(test.needs(), **chosen)
            result = measuring.measure_call(test, plan, fn, arguments, request)
        if not test.unmeasured:
            hold_comparisons(test, fn, arguments, group)
        return result

    def compare(
        self,
        candidate: Callable[..., Any],
        reference: Callable[..., Any],
        /,
        *args: Any,
        metric: str | None = None,
        rounds: int | None = None,
        setup: Callable[[], Any] | None = None,
        check: Check = CLOSE,
        fresh: Callable[[], Any] | None = None,
        **kwargs: Any,
    ) -> Comparison:
        """Measure two callables on the same arguments in turn (A B, B A, ...), in one run.

        The comparison has ``speedup``, ``interval``, ``min_speedup(1.5)`` and
        ``not_slower(by="2%")``. The test's markers do not judge these profiles.

        Args:
            metric: "cuda_time" (default; on the CPU "latency"), "latency" or "peak_memory".
            rounds: pairs to begin with; 12 by default. More are added while there is no interval
                and, by assertions, while they are undecided. Fewer than 8 have none.
            setup: as in ``run``; called before each round of each callable.
            check: what holds the candidate's result against the reference's. By default floating
                tensors have to be close; ``check(result, reference_result)`` raises or returns
                False where they are not; None checks nothing.
            fresh: returns other inputs, as ``setup`` does, for one more call of each: a candidate
                that remembers results by the address of its inputs fails there. Tensors among the
                arguments are then copied, and the copies overwritten.

        Raises:
            IncompleteProfile: the profiler cannot be used here, or a profile stayed incomplete.
            MarkerError: an option is not of its form, or a round took none of what is compared.
            WrongResult: the candidate returned another result than the reference, or did no GPU
                work to compare by ``cuda_time``.
        """
        first, second = names_of(candidate, reference)
        callables, given = {first: candidate, second: reference}, Arguments(args, kwargs, setup)
        return compare(self._test, callables, given, second, metric, rounds, check, fresh)[first]

    def compare_all(
        self,
        callables: Mapping[str, Callable[..., Any]],
        /,
        *args: Any,
        reference: str,
        metric: str | None = None,
        rounds: int | None = None,
        setup: Callable[[], Any] | None = None,
        check: Check = CLOSE,
        fresh: Callable[[], Any] | None = None,
        **kwargs: Any,
    ) -> Mapping[str, Comparison]:
        """Measure several callables in turn; ``reference`` names the one that all others are
        compared with. A mapping from their names to comparisons; ``print`` it for a table.

        Args and errors are those of ``compare``.
        """
        given = Arguments(args, kwargs, setup)
        return compare(self._test, callables, given, reference, metric, rounds, check, fresh)

    def region(
        self, name: str = "region", *, group: object = None, **limits: Any
    ) -> contextlib.AbstractContextManager[Region]:
        """Profile a block as it stands, once. A limit given here replaces the same of a marker.

        Args:
            group: which ranks of ``torch.distributed`` have this block, as in ``run``: at its end
                they wait for each other.

        Raises:
            MarkerError: the name is no text, a limit is unknown or not of its form; as the block
                ends, this rank is not in the group.
            IncompleteProfile: the profiler cannot be used here, or a rank did not come; the
                message says why.
        """
        own = {limit.key: limit for limit in self._parsed(limits)}
        test = self._test
        with test.ledger.asking(test.request("kernel_profile.region", limits=("the region",))):
            if not isinstance(name, str):
                raise MarkerError(f"region({reprlib.repr(name)}): expected a name as text")
        if test.unmeasured:
            test.ledger.leave_out(test.unmeasured, own.values())
            inside = Region(self._no_profile)
            if test.compiles is None:
                return self._ending(contextlib.nullcontext(inside))
            asked = test.request(name, own=own)
            return self._ending(measuring.compile_block(test, asked, name=name, inside=inside))
        remedy = "enter it in a with statement, and catch expected exceptions inside it"
        request = test.request(f"region {name!r}", remedy=remedy, own=own, group=group)
        test.ledger.ask(request)
        return self._ending(self._region(name, request))

    @contextlib.contextmanager
    def _ending(self, block: contextlib.AbstractContextManager[Region]) -> Iterator[Region]:
        """The block, which leaves no work that was said of it, whether or not it was measured."""
        try:
            with block as region:
                yield region
        finally:
            self._test.ledger.take_work()

    @contextlib.contextmanager
    def _region(self, name: str, request: outcome.Request) -> Iterator[Region]:
        region = Region()
        with (
            self._test.ledger.asking(request),
            measuring.measure_block(self._test, name, request) as kept,
        ):
            yield region
        region._profile = (lambda: kept[0]) if kept else self._no_profile

    def load(
        self, path: str | os.PathLike[str], process: int | None = None, step: int | None = None
    ) -> Profile:
        """Judge a recorded trace as if the test had measured it here: by its markers, its snapshot
        and baselines. Needs no GPU.

        Args:
            path: a Chrome trace of torch.profiler, plain or gzip, from any process or machine.
            process: which of several in the file, from 0.
            step: which of several, by its range ``ProfilerStep#N``.

        Raises:
            TraceError: as of ``Profile.load``.
        """
        test, said = self._test, self._test.ledger.take_work()
        request = test.request("kernel_profile.load", loads=not test.settings.disable)
        with test.ledger.asking(request):
            loaded = Profile.load(path, process=process, step=step)
            if test.settings.disable:
                test.ledger.leave_out(test.unmeasured)
                return loaded
            named = {"process": process, "step": step}
            label = ", ".join(f"{k} {v}" for k, v in named.items() if v is not None)
            file = os.fsdecode(os.path.abspath(path))
            record = replace(loaded.record, label=label, trace=file)
            if said and not record.on_cpu:
                work = with_said(loaded._recording.work, said)
                rates = rate_metrics(work, record.metrics["gpu_busy"])
                record = replace(record, metrics=record.metrics | rates)
            if test.keeps_timelines:
                record = replace(record, timeline=loaded.timeline())
            if not len(test.ledger):
                test.ledger.judge_by(test.snapshot_of(record.environment))
            return test.ledger.keep_record(record, request, loaded)

    def ranks(self, number: int | None = None, *, backend: str | None = None) -> Ranks:
        """So many ranks of ``torch.distributed``, each a process: ``ranks(2).run(fn, *args)``.

        Args:
            number: by default what the marker ``kernelprof(ranks=2)`` says.
            backend: by default "nccl", on the CPU "gloo".

        Raises:
            MarkerError: no number is said, or none of one or more.
        """
        from pytest_kernelprof.plugin.started_ranks import REMEDY, Ranks

        if number is None:
            number = self._test.settings.ranks
        with self._test.ledger.asking(self._test.request("kernel_profile.ranks", remedy=REMEDY)):
            if number is None:
                raise MarkerError(
                    "kernel_profile.ranks: the number of ranks is missing; write "
                    "kernel_profile.ranks(2).run(fn), or mark the test with kernelprof(ranks=2)"
                )
            return Ranks(self._test, number, backend)

    def limit(self, **limits: Any) -> None:
        """Set limits at run time, by the markers' names: ``kernel_profile.limit(max_kernels=3)``.

        Replaces the same limit of a marker, for every profile of the test. Several arguments are a
        tuple, keyword arguments a dict: ``max_memcpys={"n": 0, "direction": "d2h"}``.

        Raises:
            MarkerError: there is no such limit, or it is not of its form.
        """
        for limit in self._parsed(limits):
            self._test.ledger.set_limit(limit)

    def work(self, *, flops: Any = None, bytes: Any = None) -> None:
        """Say the work of the next call or loaded trace, or of the region around this line, for
        ``min_throughput`` and ``min_bandwidth``. It counts instead of what shapes tell, once.

        Args:
            flops: floating-point operations of one call; of a matrix product ``2 * m * n * k``.
            bytes: bytes that one call has to read and write.

        Raises:
            MarkerError: nothing is said, no number from 1 to 10**18, or the same twice.
        """
        request = partial(self._test.request, limits=("kernel_profile.work",))
        with self._test.ledger.asking(request("it was refused")):
            self._test.ledger.say_work(kinds.parse_work(flops, bytes), request("the work said"))

    def _parsed(self, limits: dict[str, Any]) -> Iterator[Limit]:
        """Limits by their keywords. A test may catch that one is refused; the conclusion does not,
        since nothing is judged by it."""
        for name, value in limits.items():
            with self._test.ledger.asking(self._test.request("it was refused", limits=(name,))):
                limit = parse_keyword(name, value)
            yield limit

    @property
    def profiles(self) -> tuple[Profile, ...]:
        """All profiles of this test so far, in order. Of very many only the newest have kernels
        (100,000 in all) and traces (100)."""
        self._leave_if_unmeasured()
        return self._test.ledger.profiles

    @property
    def last(self) -> Profile:
        """The newest profile.

        Raises:
            RuntimeError: nothing has been profiled yet.
        """
        self._leave_if_unmeasured()
        found = self._test.ledger.last
        if found is None:
            raise RuntimeError(
                "nothing has been profiled yet: call kernel_profile(fn, *args) first"
            )
        return found

    def _leave_if_unmeasured(self) -> None:
        if self._test.ledger.unmeasured or self._test.ledger.blind:
            self._no_profile()

    def _no_profile(self) -> NoReturn:
        measuring.nothing_to_look_at(self._test, "profile")


def hold_comparisons(
    test: MeasuredTest, fn: Callable[..., Any], arguments: Arguments, group: object = None
) -> None:
    """Compare what was profiled with the reference of each marker, on the ranks that have made the
    call; a failure is reported at the end."""
    for limit in test.ledger.marks.comparisons:
        assert limit.reference is not None
        one, other = names_of(fn, limit.reference)
        found = compare(
            test,
            {one: fn, other: limit.reference},
            arguments,
            other,
            limit.metric or None,
            check=limit.check,
            judged=limit.name,
            group=group,
        )[one]
        if message := judge(found, limit):
            test.ledger.broken.append(message)
        test.ledger.compared_by.append(limit)


class Contender(NamedTuple):
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
    nothing was measured, it has no rounds, and reading them skips the test."""

    def __init__(
        self, test: MeasuredTest, names: Iterable[str], reference: str, rounds: Contest | None
    ) -> None:
        super().__init__((name, Comparison(self, name)) for name in names if name != reference)
        self._test = test
        self._rounds = rounds
        self._verdicts: list[Verdict] = []

    def __bool__(self) -> bool:
        raise CannotMeasureError(_NO_TRUTH)

    def __str__(self) -> str:
        if self._rounds is None:
            return _UNMEASURED
        return "\n".join(kernel_tables.callable_lines(self._record()))

    __repr__ = __str__

    @property
    def _measured(self) -> Contest:
        if self._rounds is None:
            measuring.nothing_to_look_at(self._test, "comparison")
        return self._rounds

    def _record(self) -> ComparisonRecord:
        return self._measured.record(verdicts=self._verdicts)


@dataclass(slots=True, eq=False, repr=False)
class Comparison:
    """A candidate and a reference, measured in turn in one run.

    Attributes are those of the rounds so far; an assertion that is not decided takes more.
    """

    _group: Group
    _candidate: str
    _asserted: bool = False

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
        return "\n".join(kernel_tables.callable_lines(self._record(), tables.Style(width)))

    def _record(self, *verdicts: Verdict) -> ComparisonRecord:
        rounds = self._group._measured
        return rounds.record((self._candidate, rounds.reference), verdicts)

    def _contender(self, name: str) -> Contender:
        rounds = self._group._measured
        (one,) = rounds.record((name,)).callables
        profile = Profile(rounds.profiles[name], no_trace="comparisons keep no traces")
        return Contender(name, rounds.values(name), profile, one.value, one.low, one.high)

    def _assert(self, limit: Limit) -> Comparison:
        if message := judge(self, limit):
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
    request = test.request("the assertion", limits=(limit.name,), remedy=_REMEDY)
    while True:
        of_both = rounds.values(candidate), rounds.values(rounds.reference)
        verdict = evaluate_comparison(limit, rounds.record(), candidate, *of_both, request.place)
        decided = verdict.outcome != "undecided"
        if not (more := rounds.more_pairs(decided=decided)):
            break
        with test.ledger.asking(request), held_by(request.what):
            rounds.take(more)
    group._verdicts.append(verdict)
    record = comparison._record(verdict)
    if verdict.outcome == "failed" or (not decided and test.settings.undecided == "fail"):
        return failure.comparison_message(record)
    if not decided and test.settings.undecided == "warn":
        test.ledger.notes.append(comparison_line(record, verdict))
    return ""


def compare(
    test: MeasuredTest,
    callables: Mapping[str, Callable[..., Any]],
    arguments: Arguments,
    reference: str,
    metric: str | None = None,
    rounds: int | None = None,
    check: Check = CLOSE,
    fresh: Callable[[], Any] | None = None,
    *,
    judged: str = "the comparison",
    group: object = None,
) -> Group:
    """Measure callables in turn, and have the test's report tell of it.

    Args:
        judged: what is judged by it, in words. group: the ranks that compare.
    """
    request = test.request("the comparison", limits=(judged,), remedy=_REMEDY)
    with test.ledger.asking(request), held_by(request.what):
        _check_callables(callables, reference)
        _check_checks(check, fresh)
        by = _metric_of(metric, test.device)
        number = TIMED_ROUNDS if rounds is None else settings.check_option("rounds", rounds)
        plan = test.plan(Needs(), rounds=None, stacks=False)._replace(rounds=number)
        if test.unmeasured:
            test.ledger.leave_out(test.unmeasured)
        else:
            with measuring.may_be_blind(test):
                found = contest(
                    callables,
                    plan,
                    arguments,
                    reference=reference,
                    metric=by,
                    check=check,
                    fresh=fresh,
                    measuring=test.measuring,
                    agreeing=partial(test.agreeing, test.request("a comparison", group=group)),
                )
                if found.in_place:
                    test.ledger.notes.append(outcome.in_place_words(found.in_place))
                compared = Group(test, callables, reference, found)
                test.ledger.compared = True
                test.ledger.comparisons.append(compared._record)
                return compared
        for fn in callables.values():
            measuring.run_plainly(fn, arguments)
        return Group(test, callables, reference, None)


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
        raise MarkerError(f"expected two callables or more, by name. Write {form}")
    for name, fn in callables.items():
        if not isinstance(name, str):
            raise MarkerError(f"{name!r}: expected a name as text. Write {form}")
        if not callable(fn):
            raise MarkerError(
                f"{name}: expected a callable, got {type(fn).__name__} {reprlib.repr(fn)}; write "
                "compare(f, g, x), not compare(f(x), g(x))"
            )
    if not isinstance(reference, str) or reference not in callables:
        names = ", ".join(map(repr, callables))
        raise MarkerError(f"reference={reference!r} is not one of {names}. Write {form}")


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
