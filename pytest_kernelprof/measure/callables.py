"""Measure several callables in turn in one run: do they return the same, and how fast are they?"""

from __future__ import annotations

import contextlib
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple

from pytest_kernelprof.distributed.agreement import Agreement
from pytest_kernelprof.errors import IncompleteProfile, MarkerError, WrongResult, said_by
from pytest_kernelprof.gpu import inventory
from pytest_kernelprof.gpu.conditions import alone, no_times
from pytest_kernelprof.gpu.inventory import Device
from pytest_kernelprof.gpu.usage_lock import sharing
from pytest_kernelprof.measure import arguments as calls
from pytest_kernelprof.measure import policy, sessions
from pytest_kernelprof.measure.arguments import Arguments, Prepare
from pytest_kernelprof.measure.policy import Plan, Progress, Shown
from pytest_kernelprof.measure.runner import Run, agreed, warm
from pytest_kernelprof.profiler import unprofiled_rounds
from pytest_kernelprof.profiler.session import refuse_to_nest
from pytest_kernelprof.profiler.tensors import Likeness, OwnMemory, kept, likeness
from pytest_kernelprof.profiler.unprofiled_rounds import RepeatedCall
from pytest_kernelprof.records.comparison import Paired
from pytest_kernelprof.records.document import ComparedCallable, Comparison
from pytest_kernelprof.records.profile import Profile, Verdict
from pytest_kernelprof.records.recording import Conditions
from pytest_kernelprof.stats import intervals

OpenProgress = Callable[[], contextlib.AbstractContextManager[Progress]]
Agreeing = Callable[[], contextlib.AbstractContextManager[Agreement]]

Check = Callable[[Any, Any], Any] | Literal["close"] | None
"""What compares a candidate's result with the reference's; None does not."""
CLOSE: Literal["close"] = "close"
NOT_CHECKED = "not checked for remembered results"

_MOST_NAMED = 2
_REMEDY = (
    "If this is intended, pass your own check=: a function check(result, reference_result), or None"
)


class _Finding(NamedTuple):
    """How a result compares with the reference's, in words; and what is wrong, if anything."""

    words: str = ""
    wrong: str = ""
    error: Exception | None = None
    agrees: bool = False


class Checks:
    """Compares the results of the first calls of a comparison.

    Attributes:
        found: for each candidate, how its results compare, in words.
    """

    def __init__(self, check: Check, reference: str, device: Device, *, fresh: bool) -> None:
        self.found: dict[str, tuple[str, ...]] = {}
        self._check = check
        self._reference = reference
        self._device = device
        self._keeps_all = fresh
        self._firsts: dict[str, Any] = {}
        self._finding = _Finding()

    def look(self, name: str, result: Any) -> None:
        """Keep the result of the reference's first call, or compare a candidate's with it, before
        another call writes to its memory."""
        if self._check is None:
            return
        inventory.synchronize(self._device)
        if name == self._reference or self._keeps_all:
            self._firsts[name] = self._kept(result)
        if name != self._reference:
            self._finding = self._compare(result, self._firsts[self._reference])
        inventory.synchronize(self._device)

    def settle(
        self, name: str, agreement: Agreement, reference: Prepare, in_place: Sequence[str]
    ) -> None:
        """Note how ``look`` found a candidate. A result that is wrong on one rank is wrong on all.

        Args:
            reference: returns another call of the reference.
            in_place: the arguments that calls changed, so that each call has other inputs.

        Raises:
            WrongResult: the candidate returned another result, though the reference always returns
                the same.
        """
        finding = self._finding
        if self._check is None:
            finding = _Finding("results not checked (check=None)")
        elif self._check == CLOSE and in_place:
            why = f"{', '.join(in_place)} changes in place; make new ones with setup="
            finding = _Finding(f"results not compared: {why}")
        said = f"{name} returned a different result than {self._reference}: {finding.wrong}"
        first = self._firsts.get(self._reference)
        finding = self._judged(finding, said, agreement, reference, first)
        self.found[name] = (finding.words, NOT_CHECKED)

    def release(self) -> None:
        """Drop all results."""
        self._firsts.clear()
        self._finding = _Finding()

    def on_other_inputs(
        self,
        callables: Mapping[str, Callable[..., Any]],
        handed_out: Any,
        own: OwnMemory,
        agreement: Agreement,
    ) -> None:
        """Call each once more, on other inputs in the memory of the first ones.

        Raises:
            WrongResult: a candidate returned another result than the reference.
            CannotMeasureError: ``fresh`` returned something else than arguments.
        """
        args, kwargs = calls.args_and_kwargs("fresh", handed_out)

        def result_of(name: str) -> Any:
            own_args, own_kwargs = own.holding(args, kwargs)
            result = callables[name](*own_args, **own_kwargs)
            inventory.synchronize(self._device)
            return result

        again = partial(partial, result_of, self._reference)
        reference = self._kept(result_of(self._reference))
        same = likeness(reference, self._firsts.get(self._reference)).agrees
        told = "checked with other inputs"
        if same or own.moved:
            why = "inputs with the same result" if same else "tensors of other types or shapes"
            told = f"{NOT_CHECKED} (fresh= gave {why})"
        for name, (words, _) in self.found.items():
            result = result_of(name)
            finding = self._compare(result, reference)
            if likeness(result, self._firsts.get(name)).agrees and not same:
                said = (
                    f"{name} returned the result of other inputs: on those of fresh= it returned "
                    "what it did on the first ones. A result must not be remembered by the "
                    "address of its inputs"
                )
            else:
                said = (
                    f"{name}, on the inputs of fresh=, returned a different result than "
                    f"{self._reference}: {finding.wrong}"
                )
            finding = self._judged(finding, said, agreement, again, reference)
            if finding.agrees:
                self.found[name] = (words, told)

    def _kept(self, result: Any) -> Any:
        """Return a copy, or the error that prevented it: a lack of memory, for example."""
        try:
            return kept(result)
        except Exception as error:
            if self._check != CLOSE:
                raise
            return error

    def _judged(
        self, finding: _Finding, said: str, agreement: Agreement, again: Prepare, reference: Any
    ) -> _Finding:
        """Return the finding unless it is wrong on any rank. If another call of the reference
        returns something else again, results cannot be compared."""
        if self._check == CLOSE and any(agreement.gather("what differs", finding.wrong)):
            another = again()()
            inventory.synchronize(self._device)
            random = bool(likeness(another, reference).apart)
            if any(agreement.gather("what differs again", random)):
                why = f"those of {self._reference} differ between calls"
                return _Finding(f"results not compared: {why}")
        wrong = said if finding.wrong else ""
        for one in (wrong, *agreement.gather("the results", wrong)):
            if one:
                raise WrongResult(wrong or f"on another rank: {one}") from finding.error
        return finding

    def _compare(self, result: Any, reference: Any) -> _Finding:
        """Compare a result with the reference's by the check."""
        if self._check == CLOSE:
            if isinstance(reference, Exception):
                return _Finding(f"results not compared: {type(reference).__name__}")
            return _by_norm(likeness(result, reference))
        assert callable(self._check)
        name = getattr(self._check, "__name__", "the check")
        try:
            says = self._check(result, reference)
            if says is None or says:
                return _Finding(f"results pass {name}", agrees=True)
        except Exception as error:
            return _Finding(wrong=said_by(error), error=error)
        return _Finding(wrong=f"{name} says {says}")


def in_own_memory(given: Arguments, own: OwnMemory) -> Arguments:
    """Return the arguments copied to memory of our own; with ``setup``, anew for each call."""
    if given.setup is None:
        return Arguments(*own.holding(given.args, given.kwargs))
    setup = given.setup
    return given._replace(
        setup=lambda: own.holding(*calls.args_and_kwargs("setup", setup(), given))
    )


def refuse_idle(profiles: Mapping[str, Profile], reference: str) -> None:
    """Refuse candidates whose warmed-up call does nothing on the GPU though the reference's does.

    Raises:
        WrongResult: there is one, on any rank.
    """
    for name, profile in profiles.items():
        for one, other in zip(profile.ranks, profiles[reference].ranks, strict=True):
            if _activities(other) and not _activities(one):
                raise WrongResult(
                    f"{name} launched no kernels, copies or memsets, {reference} launched "
                    f"{_activities(other):.0f} a call: a remembered result has no GPU time to "
                    'compare. If this is intended, compare with metric="latency"'
                )


def _activities(profile: Profile) -> float:
    names = ("kernels", "memcpys", "memsets")
    return sum(profile.metrics[name].value or 0 for name in names if name in profile.metrics)


def _by_norm(found: Likeness) -> _Finding:
    left_out = ", ".join(found.left_out[:_MOST_NAMED]) + _more(found.left_out, _MOST_NAMED)
    if found.apart:
        return _Finding(wrong=f"{found.apart[0]}{_more(found.apart, 1)}. {_REMEDY}")
    if found.norm is None:
        return _Finding(f"results not compared: {left_out}")
    besides = f"; not compared: {left_out}" if left_out else ""
    return _Finding(f"results agree (relative norm {found.norm:.2g}{besides})", agrees=True)


def _more(of: Sequence[str], named: int) -> str:
    return f" (+{len(of) - named} more)" if len(of) > named else ""


CompareBy = Literal["cuda_time", "latency", "peak_memory"]

_FEWEST_BYTES = 1.0
"""Stands for zero bytes, which have no ratio to anything."""


def contest(
    callables: Mapping[str, Callable[..., Any]],
    plan: Plan,
    arguments: Arguments,
    *,
    reference: str,
    metric: CompareBy,
    check: Check,
    fresh: Callable[[], Any] | None,
    measuring: OpenProgress,
    agreeing: Agreeing,
) -> Contest:
    """Warm up and profile each callable, then take rounds of each in turn. Take more rounds while
    twelve or more give no interval of the ratio to the ``reference``.

    On several ranks, a round takes as long as on the slowest, so that all ranks decide alike.

    Args:
        metric: the metric that they are compared by.
        check: compares a candidate's first result with the reference's; None does not.
        fresh: returns other inputs for one more call of each, which shows a remembered result.
        agreeing: begins a call of all ranks.

    Raises:
        IncompleteProfile: the profiler is not available, a profile stayed incomplete, or (its kind
            GpuBusy) the GPU could not be locked.
        MarkerError: there is no ratio, since the metric of a round is zero.
        WrongResult: a candidate returned another result than the reference, or did no GPU work.
    """
    device, given, own = inventory.current_device(plan.device), arguments, OwnMemory()
    refuse_to_nest()

    with sharing(device, plan.lock_timeout_s, plan.who):
        if fresh is not None:
            arguments = in_own_memory(given, own)
        prepares = {name: calls.preparer(fn, arguments) for name, fn in callables.items()}
        before = calls.watch_in_place([], arguments)
        checks = Checks(check, reference, device, fresh=fresh is not None)
        profiles = dict[str, Profile]()
        with agreeing() as agreement:
            plan = agreed(f"{metric} of {', '.join(callables)}", plan, agreement)
            counts = plan._replace(rounds=policy.EXACT_ROUNDS)
            for name in sorted(callables, key=lambda name: name != reference):  # it is first
                run = Run(device, counts, callables[name], arguments, name, agreement=agreement)
                profile = warm(run, partial(checks.look, name))
                policy.require_complete(profile)
                if metric == "latency":
                    policy.require_clock(profile)
                profiles[name] = profile
                if name != reference:
                    checks.settle(name, agreement, prepares[reference], before.changed())
        if fresh is None:
            checks.release()
        profiles = {name: profiles[name] for name in callables}
        if metric == "cuda_time" and check is not None:
            refuse_idle(profiles, reference)
        why = no_times(device).get(metric) if device.kind == "cuda" else None
        if why:
            raise IncompleteProfile(f"{metric}: {why}")
        found = Contest(
            *(device, plan, metric, reference, prepares, profiles, measuring, agreeing),
            checks=checks.found,
        )
        in_rounds = calls.watch_in_place(list(callables.values()), arguments)
        found.take(plan.rounds)
        found.in_place = in_rounds.changed()
        found.take_until_sure()
        if fresh is not None:
            with agreeing() as agreement:
                checks.on_other_inputs(callables, fresh(), own, agreement)
            if given.setup is None:  # further rounds are on the first inputs
                own.holding(given.args, given.kwargs)
        return found


@dataclass(eq=False)
class Contest:
    """The rounds of all callables of a comparison; takes more of them.

    Attributes:
        metric: the metric that the callables are compared by.
        reference: the name of the callable that the others are compared with.
        prepares: for each callable, the function that returns its next call.
        profiles: for each callable, the profile of its warmed-up call.
        checks: for each candidate, how its results compare, in words.
        in_place: the tensors that the calls changed.
    """

    device: Device
    plan: Plan
    metric: CompareBy
    reference: str
    prepares: Mapping[str, Prepare]
    profiles: Mapping[str, Profile]
    measuring: OpenProgress
    agreeing: Agreeing
    checks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    in_place: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self._series: dict[str, list[float]] = {name: [] for name in self.profiles}
        self._kernels: dict[str, set[int]] = defaultdict(set)
        self._disturbed: list[Conditions] = []

    @property
    def pairs(self) -> int:
        """The number of rounds of each callable so far."""
        return len(next(iter(self._series.values())))

    def more_pairs(self, *, decided: bool) -> int:
        """Return how many more pairs to take; none on a disturbed GPU, which more pairs would not
        make quiet."""
        return 0 if decided or self._disturbed else policy.next_rounds(self.pairs)

    def take(self, pairs: int) -> None:
        """Take more rounds of each callable, in microseconds; in bytes for ``peak_memory``.

        Raises:
            IncompleteProfile: the profile was incomplete three times, or memory cannot be watched.
        """
        order = intervals.order_of_turns(list(self.prepares), self.pairs, pairs)
        with self.agreeing() as agreement:
            of_ranks = agreement.gather("values", self._values(order, agreement))
        for name, *values in zip(order, *of_ranks, strict=True):
            self._series[name].append(max(values))

    def take_until_sure(self) -> None:
        """Take more rounds while neighbours are so alike that a ratio has no interval."""
        others = [name for name in self._series if name != self.reference]
        while self.pairs >= intervals.FEWEST_FOR_BLOCKS:
            decided = all(self.paired(name).low is not None for name in others)
            if not (more := self.more_pairs(decided=decided)):
                return
            self.take(more)

    def values(self, name: str) -> tuple[float, ...]:
        """Return one callable's rounds, in the order in which they were taken."""
        return tuple(self._series[name])

    def paired(self, candidate: str) -> Paired:
        """Compare the candidate with the reference, pair by pair.

        Raises:
            MarkerError: the metric of a round is zero.
        """
        least = _FEWEST_BYTES if self.metric == "peak_memory" else 0.0
        current, baseline = (
            [max(value, least) for value in self._series[name]]
            for name in (candidate, self.reference)
        )
        found = intervals.paired_rounds(current, baseline)
        if found is None:
            raise MarkerError(
                f"{candidate} cannot be compared with {self.reference}: a round took no "
                f'{self.metric} at all; compare metric="latency"'
            )
        return found

    def record(self, names: Sequence[str] = (), verdicts: Sequence[Verdict] = ()) -> Comparison:
        """Return the comparison so far: of the named callables, or of all."""
        chosen = [name for name in self._series if not names or name in names]
        return Comparison(
            metric=self.metric,
            reference=self.reference,
            callables=tuple(self._compared_callable(name) for name in chosen),
            pairs=self.pairs,
            conditions=tuple(self._disturbed),
            verdicts=tuple(verdicts),
            environment=self.profiles[self.reference].environment,
        )

    def _compared_callable(self, name: str) -> ComparedCallable:
        values, profile = self._series[name], self.profiles[name]
        interval = intervals.median_interval(values)
        counts = {int(count) for count in profile.metrics["kernels"].rounds} | self._kernels[name]
        return ComparedCallable(
            name=name,
            kernels=profile.kernel_count,
            value=statistics.median(values),
            low=interval.low if interval else None,
            high=interval.high if interval else None,
            paired=None if name == self.reference else self.paired(name),
            unstable=tuple(sorted(counts)) if len(counts) > 1 else (),
            checks=self.checks.get(name, ()),
        )

    def _values(self, order: Sequence[str], agreement: Agreement) -> list[float]:
        if self.metric == "peak_memory":
            return [self._peak(name, agreement) for name in order]
        plan, history = self.plan, list[Shown]()
        of_device = self.metric == "cuda_time"
        take = self._device_times if of_device else self._latencies
        step = policy.ProfileRounds(len(order)) if of_device else policy.TimeCalls(len(order))
        with (
            self.measuring() as progress,
            alone(self.device, plan.lock_timeout_s, plan.who, locking=agreement.gpu_lock) as watch,
        ):
            while not history or policy.again(history):
                report = partial(progress, "comparing", of=len(order))
                prepare = calls.with_progress((self.prepares[name] for name in order), report)
                repeated = RepeatedCall(self.device, prepare, plan.flush_l2, agreement)
                values, problems = take(order, repeated)
                throttled = not watch.block(len(order))
                shown = Shown(step, not problems, problems=problems, throttled=throttled)
                history.append(policy.shown_on_ranks(agreement.gather("rounds", shown)))
        if not history[-1].complete:
            times = sum(not one.complete for one in history)
            raise IncompleteProfile(
                f"comparison: profile incomplete {times} times: {history[-1].problems}"
            )
        conditions = watch.conditions().keeping_throttled(policy.kept_throttled(history))
        of_ranks = agreement.gather("conditions", conditions)
        self._disturbed += [one for one in of_ranks if one.disturbed][:1]
        return values

    def _device_times(
        self, order: Sequence[str], repeated: RepeatedCall
    ) -> tuple[list[float], str]:
        taken = sessions.profile_rounds(repeated, len(order))
        if problems := "; ".join(taken.facts.profile.integrity.problems):
            return [], problems
        metrics = taken.facts.profile.metrics
        for name, count in zip(order, metrics["kernels"].rounds, strict=True):
            self._kernels[name].add(int(count))
        return list(metrics["cuda_time"].rounds), ""

    def _latencies(self, order: Sequence[str], repeated: RepeatedCall) -> tuple[list[float], str]:
        # Calls in a row would mix the callables.
        timings = unprofiled_rounds.time_calls(repeated, len(order), fresh_arguments=True)
        return list(timings.latency_us), ""

    def _peak(self, name: str, agreement: Agreement) -> float:
        repeated = RepeatedCall(self.device, self.prepares[name], agreement=agreement)
        memory = unprofiled_rounds.watch_memory(repeated, 1)
        if memory is None:
            raise IncompleteProfile(
                "comparison: peak_memory is not available: the allocator keeps no history to read "
                "(the CPU, another allocator than the native one, a history being recorded)"
            )
        return float(memory.peak_bytes[0])
