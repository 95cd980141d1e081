"""``KernelProfile``: the object that a test talks to."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from _pytest.outcomes import OutcomeException

from pytest_kernelprof.errors import IncompleteProfile, LimitExceeded
from pytest_kernelprof.limits.evaluate import Verdict, judge
from pytest_kernelprof.limits.kinds import parse_keyword
from pytest_kernelprof.measure.comparison import (
    Comparison,
    Comparisons,
    NoComparisons,
    check_callables,
    clock_for,
    contend,
    names_of,
)
from pytest_kernelprof.measure.policy import Needs
from pytest_kernelprof.measure.progress import Progress, silently
from pytest_kernelprof.measure.runner import TIMED_ROUNDS, Measurement, Plan, measure, measure_once
from pytest_kernelprof.measure.taking import EXACT_ROUNDS, preparer, require_complete
from pytest_kernelprof.plugin.collect import row, text
from pytest_kernelprof.plugin.settings import check_option
from pytest_kernelprof.report.failure import failure_message, integrity_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pytest_kernelprof.analysis.profile import Profile
    from pytest_kernelprof.device.inventory import DeviceKind
    from pytest_kernelprof.limits.comparisons import Promise
    from pytest_kernelprof.limits.kinds import Limit
    from pytest_kernelprof.plugin.settings import Options, Settings

R = TypeVar("R")
_DISABLED = "--kernelprof-disable: there is no profile to look at"


class KernelprofWarning(pytest.PytestWarning):
    """A verdict that was not reached (the interval of a time holds its limit), or cold code."""


@dataclass(slots=True)
class _Taken:
    """A measurement and the limits given to it alone."""

    measurement: Measurement
    own_limits: dict[tuple[str, str], Limit] = field(default_factory=dict)


class Region:
    """What ``with kernel_profile.region(...) as region`` hands out."""

    def __init__(self, *, disabled: bool) -> None:
        self._profile: Profile | None = None
        self._disabled = disabled

    @property
    def profile(self) -> Profile:
        """The block's profile, after the block.

        Raises:
            RuntimeError: the block has not ended.
        """
        if self._disabled:
            pytest.skip(_DISABLED)
        if self._profile is None:
            raise RuntimeError("region.profile is there only after the with block")
        return self._profile


class KernelProfile:
    """Profiles callables and blocks of one test, and judges them when the test has run.

    Calling it, ``kernel_profile(fn, *args, **kwargs)``, warms up, profiles and measures ``fn`` and
    returns the first call's result.
    """

    def __init__(
        self,
        settings: Settings,
        device: DeviceKind,
        limits: Sequence[Limit] = (),
        options: Options | None = None,
        measuring: Callable[[], contextlib.AbstractContextManager[Progress]] = silently,
        test: str = "",
        promises: Sequence[Promise] = (),
    ) -> None:
        self._promises = {promise.key: promise for promise in promises}
        self._broken: list[str] = []
        self._held: set[tuple[Any, ...]] = set()
        self._unmeasured: list[tuple[str, dict[tuple[str, str], Limit]]] = []
        self._test = test
        self._settings = settings
        self._device: DeviceKind = device
        self._measuring = measuring
        self._limits = {limit.key: limit for limit in limits}
        self._options = options
        self._taken: list[_Taken] = []
        self._ran_disabled = False
        self._judged = 0
        self._compared = False
        self._comparisons: list[Comparisons] = []
        self._undecided: list[str] = []

    def __call__(self, fn: Callable[..., R], /, *args: Any, **kwargs: Any) -> R:
        """Warm up, profile and measure ``fn(*args, **kwargs)``; returns the first call's result."""
        __tracebackhide__ = True
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
    ) -> R:
        """The explicit form of a call.

        Args:
            setup: runs before each call, outside the region, and hands back fresh arguments: a
                tuple, a pair of tuple and dict, or None to keep the given ones.
            warmup: calls before the first profiled one. rounds: profiled calls.
            flush_l2: whether the L2 cache is flushed before each timed round.

        Raises:
            IncompleteProfile: the profiler cannot be used here; the message says why.
            MarkerError: an option is not of its form.
            TypeError: ``fn`` is no callable, or returns a generator or coroutine: its body would
                not be measured.
        """
        __tracebackhide__ = True
        if not callable(fn):
            raise TypeError(
                f"kernel_profile profiles a callable, got {type(fn).__name__}; "
                "write kernel_profile(fn, *args), not kernel_profile(fn(*args))"
            )
        asked = {"warmup": warmup, "rounds": rounds, "flush_l2": flush_l2}
        chosen = {k: check_option(k, v) for k, v in asked.items() if v is not None}
        if self._settings.disable:
            self._ran_disabled = True
            return self._run_plainly(fn, args, kwargs, setup)
        plan = replace(self._plan(chosen.get("rounds")), **chosen)
        # Who asks for a number of rounds gets that number, decided or not.
        fixed = chosen.get("rounds") or self._asked_rounds
        return self._measure(fn, plan, args, kwargs, setup, None if fixed else self._needs)

    def compare(
        self,
        candidate: Callable[..., Any],
        reference: Callable[..., Any],
        /,
        *args: Any,
        metric: str | None = None,
        rounds: int | None = None,
        setup: Callable[[], Any] | None = None,
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

        Raises:
            IncompleteProfile: the profiler cannot be used here, or a profile stayed incomplete.
            MarkerError: an option is not of its form, or a round took none of what is compared.
        """
        __tracebackhide__ = True
        first, second = names_of(candidate, reference)
        found = self.compare_all(
            {first: candidate, second: reference},
            *args,
            reference=second,
            metric=metric,
            rounds=rounds,
            setup=setup,
            **kwargs,
        )
        return found[first]

    def compare_all(
        self,
        callables: Mapping[str, Callable[..., Any]],
        /,
        *args: Any,
        reference: str,
        metric: str | None = None,
        rounds: int | None = None,
        setup: Callable[[], Any] | None = None,
        **kwargs: Any,
    ) -> Comparisons:
        """Measure several callables in turn; ``reference`` names the one that all others are
        compared with. A mapping from their names to comparisons; ``print`` it for a table.

        Args and errors are those of ``compare``.
        """
        __tracebackhide__ = True
        return self._compare(
            callables, args, kwargs, reference=reference, metric=metric, rounds=rounds, setup=setup
        )

    def _compare(
        self,
        callables: Mapping[str, Callable[..., Any]],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        *,
        reference: str,
        metric: str | None,
        rounds: int | None,
        setup: Callable[[], Any] | None,
    ) -> Comparisons:
        __tracebackhide__ = True
        check_callables(callables, reference)
        clock = clock_for(metric, self._device)
        pairs = TIMED_ROUNDS if rounds is None else check_option("rounds", rounds)
        self._compared = True
        if self._settings.disable:
            for fn in callables.values():
                self._run_plainly(fn, args, kwargs, setup)
            return NoComparisons(_DISABLED)
        found = contend(
            callables,
            args,
            kwargs,
            reference=reference,
            device=self._device,
            clock=clock,
            pairs=pairs,
            setup=setup,
            flush_l2=self._flush_l2,
            lock_timeout_s=self._settings.lock_timeout,
            who=self._test,
            measuring=self._measuring,
        )
        if found.in_place:
            self._undecided.append(_in_place_words(found.in_place))
        comparisons = Comparisons(found, list(callables), reference, self._note_undecided)
        self._comparisons.append(comparisons)
        return comparisons

    def region(
        self, name: str = "region", **limits: Any
    ) -> contextlib.AbstractContextManager[Region]:
        """Profile a block as it stands, once. A limit given here replaces the same of a marker.

        Raises:
            MarkerError: a limit is unknown or not of its form.
            IncompleteProfile: the profiler cannot be used here; the message says why.
        """
        own = {limit.key: limit for limit in (parse_keyword(k, v) for k, v in limits.items())}
        if self._settings.disable:
            self._ran_disabled = True
            return contextlib.nullcontext(Region(disabled=True))
        begun = (name, own)
        self._unmeasured.append(begun)
        return self._region(begun)

    @contextlib.contextmanager
    def _region(self, begun: tuple[str, dict[tuple[str, str], Limit]]) -> Iterator[Region]:
        name, own = begun
        region = Region(disabled=False)
        with measure_once(self._plan(None), name) as found:
            yield region
        self._keep(_Taken(found[0], own))
        self._unmeasured.remove(begun)
        region._profile = self._taken[-1].measurement.profile

    def limit(self, **limits: Any) -> None:
        """Set limits at run time, by the markers' names: ``kernel_profile.limit(max_kernels=3)``.

        Replaces the same limit of a marker, for every profile of the test. Several arguments are a
        tuple, keyword arguments a dict: ``max_memcpys={"n": 0, "direction": "d2h"}``.

        Raises:
            MarkerError: there is no such limit, or it is not of its form.
        """
        for name, value in limits.items():
            limit = parse_keyword(name, value)
            self._limits[limit.key] = limit

    def also(self, limits: Sequence[Limit], promises: Sequence[Promise]) -> None:
        """Judge by these, too, where none of the same key is known."""
        for limit in limits:
            self._limits.setdefault(limit.key, limit)
        for promise in promises:
            self._promises.setdefault(promise.key, promise)

    @property
    def profiles(self) -> tuple[Profile, ...]:
        """All profiles of this test so far, in order."""
        if self._ran_disabled:
            pytest.skip(_DISABLED)
        return tuple(taken.measurement.profile for taken in self._taken)

    @property
    def last(self) -> Profile:
        """The newest profile.

        Raises:
            RuntimeError: nothing has been profiled yet.
        """
        if self._ran_disabled:
            pytest.skip(_DISABLED)
        if not self._taken:
            raise RuntimeError(
                "nothing has been profiled yet: call kernel_profile(fn, *args) first"
            )
        return self._taken[-1].measurement.profile

    # What the plugin calls.

    @property
    def device(self) -> DeviceKind:
        """Where this test's code is measured."""
        return self._device

    def run_for_benchmark(
        self,
        fn: Callable[..., R],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        setup: Callable[[], Any] | None,
        rounds: int | None,
    ) -> R:
        """As ``run``, but takes every metric, whatever the limits need."""
        __tracebackhide__ = True
        plan = self._plan(rounds, everything=True)
        needs = None if rounds or self._asked_rounds else self._needs
        return self._measure(fn, plan, args, kwargs, setup, needs)

    @contextlib.contextmanager
    def whole_call(self) -> Iterator[None]:
        """Profile the call phase of a marked test that does not use the fixture."""
        with measure_once(self._plan(None)) as found:
            yield
        self._keep(_Taken(found[0]))

    def rows(self, test: str) -> list[dict[str, Any]]:
        """The report's rows of what is not judged yet, plain builtins."""
        new = self._taken[self._judged :]
        return [row(test, taken.measurement, self._judge(taken)) for taken in new]

    @property
    def new_profiles(self) -> tuple[Profile, ...]:
        """The profiles that are not judged yet."""
        return tuple(taken.measurement.profile for taken in self._taken[self._judged :])

    def dismiss(self) -> None:
        """Judge nothing of what was taken so far: the test has failed by itself."""
        self._judged = len(self._taken)

    def conclude(self) -> list[str]:
        """Judge what is not judged yet; hands back warnings.

        Raises:
            LimitExceeded: with all violations of all profiles.
            IncompleteProfile: nothing was profiled, or a kept limit cannot be trusted.
        """
        undecided, self._undecided = self._undecided, []
        if not self._taken and (self._ran_disabled or self._compared):
            self._refuse_unjudged()
            return undecided
        if not self._taken:
            raise IncompleteProfile(
                "the test asks for kernel_profile but profiled nothing: call kernel_profile(fn, "
                "*args), use kernel_profile.region(...), or drop the fixture"
            )
        new = self._taken[self._judged :]
        self._judged = len(self._taken)
        judged = [(taken.measurement, self._judge(taken)) for taken in new]
        failing = {"fail", "inconclusive"} if self._settings.undecided == "fail" else {"fail"}
        failures = [
            failure_message(measurement.profile, verdicts)
            for measurement, verdicts in judged
            if any(verdict.outcome in failing for verdict in verdicts)
        ]
        failures += self._broken
        self._broken = []
        if failures:
            raise LimitExceeded("\n".join(failures), pytrace=False)
        self._refuse_unjudged()
        if not self._compared:
            _skip_if_none_applies([verdict for _, verdicts in judged for verdict in verdicts])
        for measurement, verdicts in judged:
            require_complete(measurement.profile, measurement.retakes)
            missing = [v.text for v in verdicts if v.outcome == "unavailable"]
            if missing:
                raise IncompleteProfile("; ".join(missing))
        cold = [
            f"the code never became warm: {integrity_words(measurement.profile)}"
            for measurement, _ in judged
            if not measurement.settled and not measurement.profile.recording.get("one_shot")
        ]
        cold += [
            _in_place_words(measurement.profile.recording["in_place"])
            for measurement, verdicts in judged
            if measurement.profile.recording.get("in_place")
            and any(verdict.limit.device_time or verdict.limit.host_time for verdict in verdicts)
        ]
        cold += [
            _unstable_words(measurement.profile.metrics["kernels"].rounds)
            for measurement, verdicts in judged
            if len(set(measurement.profile.metrics["kernels"].rounds)) > 1
            and any(verdict.limit.device_time or verdict.limit.host_time for verdict in verdicts)
        ]
        if self._settings.undecided == "pass":
            return cold + undecided
        unsure = [v.text for _, verdicts in judged for v in verdicts if v.outcome == "inconclusive"]
        return cold + unsure + undecided

    def _refuse_unjudged(self) -> None:
        """A marker about nothing would pass: raise for it.

        Raises:
            IncompleteProfile: with the marker, and what it is about.
        """
        if self._settings.disable:
            return
        if self._limits and not self._taken:
            names = ", ".join(limit.name for limit in self._limits.values())
            raise IncompleteProfile(
                f"{names} was not judged: the test only compares, and a comparison's profiles are "
                "exempt from limits; call kernel_profile(fn, *args) for what the limit is about"
            )
        for name, own in self._unmeasured:
            if own or self._limits:
                limits = ", ".join(limit.name for limit in {**self._limits, **own}.values())
                raise IncompleteProfile(
                    f"{limits} was not judged: region {name!r} was not measured to its end; enter "
                    "it in a with statement, and catch what is expected to be raised inside of it"
                )
        missed = [promise.name for key, promise in self._promises.items() if key not in self._held]
        if missed:
            names = ", ".join(missed)
            raise IncompleteProfile(
                f"{names} was not judged: it compares what is handed to kernel_profile(fn, *args), "
                "and nothing was; compare in the test, kernel_profile.compare(f, g, *args), or "
                "hand it over"
            )

    def _note_undecided(self, text: str) -> None:
        """What becomes of an assertion of a comparison that 96 pairs do not decide."""
        __tracebackhide__ = True
        if self._settings.undecided == "fail":
            raise LimitExceeded(text, pytrace=False)
        if self._settings.undecided == "warn":
            self._undecided.append(text)

    def new_tables(self) -> list[str]:
        """The comparisons made since the last call, as text tables."""
        new, self._comparisons = self._comparisons, []
        return [text(comparisons.table()) for comparisons in new]

    def _needs(self, profile: Profile) -> Needs:
        """What the verdicts on a profile still need."""
        verdicts = judge(profile, self._limits.values())
        open_ones = [v for v in verdicts if v.outcome == "inconclusive"]
        failing = [v for v in verdicts if v.outcome == "fail" and v.limit.host_time]
        return Needs(
            device_rounds=any(v.limit.device_time for v in open_ones),
            host_rounds=any(v.limit.host_time for v in open_ones),
            second_look=bool(failing) and not profile.second_look,
        )

    def _judge(self, taken: _Taken) -> list[Verdict]:
        limits = {**self._limits, **taken.own_limits}
        return judge(taken.measurement.profile, limits.values())

    def _measure(
        self,
        fn: Callable[..., R],
        plan: Plan,
        args: Sequence[Any],
        kwargs: Mapping[str, Any] | None,
        setup: Callable[[], Any] | None,
        needs: Callable[[Profile], Needs] | None,
    ) -> R:
        __tracebackhide__ = True
        label = f"profile {len(self._taken) + 1}" if self._taken else ""
        with self._measuring() as progress:
            result, measurement = measure(
                fn, plan, args, kwargs, setup=setup, label=label, needs=needs, progress=progress
            )
            self._keep(_Taken(measurement))
        for promise in self._promises.values():
            self._hold(promise, fn, args, kwargs or {}, setup)
        return result  # type: ignore[no-any-return]

    def _hold(
        self,
        promise: Promise,
        fn: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        setup: Callable[[], Any] | None,
    ) -> None:
        """Compare what was profiled with a marker's reference; a failure is told at the end."""
        one, other = names_of(fn, promise.reference)
        found = self._compare(
            {one: fn, other: promise.reference},
            args,
            kwargs,
            reference=other,
            metric=promise.metric,
            rounds=None,
            setup=setup,
        )[one]
        try:
            if promise.name == "min_speedup":
                found.min_speedup(promise.value)
            else:
                found.not_slower(by=promise.value)
        except LimitExceeded as error:
            self._broken.append(str(error.msg))
        self._held.add(promise.key)

    def _keep(self, taken: _Taken) -> None:
        """Keep a measurement; if a limit fails, learn the source lines while the arguments live."""
        self._taken.append(taken)
        attribute = taken.measurement.attribute
        # The callable and its arguments must not outlive the call.
        profile = taken.measurement.profile
        if attribute and any(verdict.outcome == "fail" for verdict in self._judge(taken)):
            # The verdict stands without lines: an error of the extra run must not hide it.
            with contextlib.suppress(Exception, OutcomeException):
                profile = attribute()
        taken.measurement = replace(taken.measurement, profile=profile, attribute=None)

    def _plan(self, rounds: int | None, *, everything: bool = False) -> Plan:
        """How much to measure: everything where nothing says less, else what the limits need."""
        options, settings = self._options, self._settings
        limits = self._limits.values()
        everything = everything or not limits or settings.report
        timed = everything or any(limit.device_time or limit.host_time for limit in limits)
        asked = rounds or self._asked_rounds
        profiled = asked or (TIMED_ROUNDS if timed else EXACT_ROUNDS)
        host = everything or asked is not None or any(limit.host_time for limit in limits)
        return Plan(
            self._device,
            warmup=(options.warmup if options else None) or settings.warmup,
            rounds=profiled,
            host_rounds=(asked or TIMED_ROUNDS) if host else 0,
            memory=everything or any(limit.memory for limit in limits),
            flush_l2=self._flush_l2,
            stacks=bool((options and options.stacks) or settings.stacks),
            roofline=host,
            lock_timeout_s=settings.lock_timeout,
            who=self._test,
        )

    @property
    def _flush_l2(self) -> bool:
        asked = self._options.flush_l2 if self._options else None
        return self._settings.flush_l2 if asked is None else asked

    @property
    def _asked_rounds(self) -> int | None:
        return (self._options.rounds if self._options else None) or self._settings.rounds

    @staticmethod
    def _run_plainly(
        fn: Callable[..., R],
        args: Sequence[Any],
        kwargs: Mapping[str, Any] | None,
        setup: Callable[[], Any] | None,
    ) -> R:
        return preparer(fn, args, kwargs or {}, setup)()()  # type: ignore[no-any-return]


def _skip_if_none_applies(verdicts: Sequence[Verdict]) -> None:
    """As a test skips whose markers need a GPU: its limits came as it ran."""
    if verdicts and all(verdict.outcome == "not applicable" for verdict in verdicts):
        names = ", ".join(dict.fromkeys(verdict.limit.name for verdict in verdicts))
        pytest.skip(f"not applicable on the CPU: {names}")


def _unstable_words(counts: Sequence[float]) -> str:
    return (
        f"UNSTABLE: the code launches {min(counts):.0f} to {max(counts):.0f} kernels a call, so "
        "its times are those of different work"
    )


def _in_place_words(names: Sequence[str]) -> str:
    return (
        f"the code changes {', '.join(names)} in place, so each round has other inputs: give fresh "
        "ones, kernel_profile.run(fn, setup=make_arguments)"
    )
