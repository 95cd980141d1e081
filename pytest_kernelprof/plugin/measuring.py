"""How a test's measurements are made: its settings and limits become a plan, its profiles go into
the ledger."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NoReturn, TypeVar

from pytest_kernelprof.capture.holder import held_by
from pytest_kernelprof.capture.ranks import agreeing, number_of_rank
from pytest_kernelprof.capture.tries import name_of_test
from pytest_kernelprof.errors import IncompleteProfile, NotJudged, ProfilerUnavailable
from pytest_kernelprof.measure.arguments import Arguments, preparer
from pytest_kernelprof.measure.plan import EVERYTHING, Needs, Plan, plan_of
from pytest_kernelprof.measure.runner import (
    Measurement,
    measure,
    measure_once,
    of_all_ranks,
    of_this_rank,
)
from pytest_kernelprof.plugin.ledger import Asked, Ledger
from pytest_kernelprof.report.files import trace_path
from pytest_kernelprof.schema import run
from pytest_kernelprof.summary.words import line_words
from pytest_kernelprof.trace.writer import write_trace

if TYPE_CHECKING:
    from pytest_kernelprof.api import Profile
    from pytest_kernelprof.capture.agreement import Agreement
    from pytest_kernelprof.limits.kinds import Key, Limit
    from pytest_kernelprof.measure.more_rounds import MoreRounds
    from pytest_kernelprof.plugin.settings import Options, Settings
    from pytest_kernelprof.schema.recording import DeviceKind
    from pytest_kernelprof.schema.steps import Progress

    OpenProgress = Callable[[], contextlib.AbstractContextManager[Progress]]
    AfterCall = Callable[["MeasuredTest", "MeasuredCall"], None]

R = TypeVar("R")

_NOT_AGAINST = (
    "--kernelprof-against=REV cannot compare code on several ranks: run such tests without it, "
    "or compare with an earlier run, --kernelprof-against=RUN.json"
)


@dataclass(frozen=True, slots=True)
class MeasuredTest:
    """One test, and all that its measurements depend on.

    Attributes:
        id: its node id. place: where it stands.
        device: where its code is measured.
        unmeasured: why its code runs without being measured; empty where it is.
        measuring: opens a progress line for one measurement.
        everything: whether all metrics are read, whatever its limits need.
        keeps_timelines: whether somebody reads rounds event by event.
        after_call: is handed each call when it has been measured, its arguments still there.
    """

    id: str
    place: run.Place
    device: DeviceKind
    settings: Settings
    options: Options
    ledger: Ledger
    measuring: OpenProgress
    everything: bool
    keeps_timelines: bool
    after_call: AfterCall | None = None
    unmeasured: str = ""

    @property
    def flush_l2(self) -> bool:
        """Whether the L2 cache is flushed before each timed round."""
        asked = self.options.flush_l2
        return self.settings.flush_l2 if asked is None else asked

    @property
    def rounds(self) -> int | None:
        """The number of rounds that somebody asked for."""
        return self.options.rounds or self.settings.rounds

    @property
    def warmup(self) -> int:
        """Calls before the first measured one, as somebody asked for them; else one."""
        return self.options.warmup or self.settings.warmup or 1

    @property
    def ignore_children(self) -> bool:
        """Whether child processes are meant to do work that is not counted."""
        return self.options.other_processes == "ignore"

    def plan(
        self,
        needs: Needs,
        *,
        warmup: int | None = None,
        rounds: int | None = None,
        flush_l2: bool | None = None,
    ) -> Plan:
        """What to take: what the call says, else the test's marker, else the run's settings."""
        return plan_of(
            self.device,
            needs,
            rounds=rounds or self.rounds,
            warmup=warmup or self.warmup,
            flush_l2=self.flush_l2 if flush_l2 is None else flush_l2,
            stacks=bool(self.options.stacks or self.settings.stacks),
            lock_timeout_s=self.settings.lock_timeout,
            who=self.id,
            ignore_children=self.ignore_children,
        )

    @contextlib.contextmanager
    def agreeing(self, call: str, group: object = None) -> Iterator[Agreement]:
        """Make a call of this test together with the other ranks, if there are any, which have to
        make the same one, from the same line: else one that a rank left out would be mixed up with
        its next.

        Raises:
            IncompleteProfile: there are ranks, and the run compares with a revision.
        """
        limit_s = self.settings.rank_timeout
        with agreeing(call, test=name_of_test(self.id), group=group, limit_s=limit_s) as agreement:
            if agreement.rank is not None and self.settings.revision:
                raise IncompleteProfile(_NOT_AGAINST)
            agreement.gather(call, None)
            yield agreement

    def needs(self) -> Needs:
        """Everything where nothing says less, else what the limits need."""
        limits = self.ledger.limits
        against = bool(self.settings.revision)  # which compares all that is exact
        if self.everything or not (limits or against):
            return EVERYTHING
        return Needs(
            device_times=any(limit.device_time for limit in limits),
            host_times=any(limit.host_time for limit in limits),
            memory=against or any(limit.memory for limit in limits),
        )


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredCall:
    """A call that has just been measured and can be made again.

    Attributes:
        label: of its profile. result: of its first call.
        profile: with the verdicts of the limits of its test.
    """

    label: str
    more: MoreRounds
    result: object
    profile: run.Profile


def measure_call(
    test: MeasuredTest,
    plan: Plan,
    fn: Callable[..., R],
    arguments: Arguments,
    place: run.Place,
    group: object = None,
) -> R:
    """Measure a callable and keep its profile; hands back the first call's result.

    Args:
        place: the line that made the call. group: the ranks that make it together.
    """
    ledger = test.ledger
    words = _call_words(place)
    with held_by(words), may_be_blind(test):
        with test.agreeing(words, group) as agreement, test.measuring() as progress:
            label = f"profile {len(ledger) + 1}" if len(ledger) else ""
            result, measurement = measure(
                fn,
                plan,
                arguments,
                label=label,
                judge=ledger.so_far,
                progress=progress,
                agreement=agreement,
            )
            _keep(test, measurement, place)
            if test.after_call is not None and measurement.more is not None:
                judged = ledger.judged()[-1]
                test.after_call(test, MeasuredCall(label, measurement.more, result, judged))
        return result  # type: ignore[no-any-return]
    return run_plainly(fn, arguments)


@contextlib.contextmanager
def may_be_blind(test: MeasuredTest, limits: Iterable[Limit] = ()) -> Iterator[None]:
    """Measure something that the test can do without: where the device cannot be profiled the test
    goes on, and is an error at its end, or by ``kernelprof_blind`` not judged.

    Args:
        limits: what would be judged by it, beside the limits of the test.

    Raises:
        ProfilerUnavailable: other ranks wait for this one.
    """
    try:
        yield
    except ProfilerUnavailable as error:
        if number_of_rank() is not None:
            raise
        if test.settings.blind == "error":
            test.ledger.blind = str(error)
            return
        test.ledger.leave_out(f"the device cannot be profiled: {error}", limits)
        words = f"not judged (kernelprof_blind = not-judged): {error}"
        test.ledger.notes += [] if words in test.ledger.notes else [words]


def nothing_to_look_at(test: MeasuredTest, what: str) -> NoReturn:
    """Leave a test that looks at what was not measured, at the line that does.

    Raises:
        NotJudged: there is no device, or nothing is to be measured.
        ProfilerUnavailable: the device cannot be profiled.
    """
    if test.ledger.blind:
        raise ProfilerUnavailable(test.ledger.blind)
    raise NotJudged(f"{test.ledger.unmeasured}; there is no {what} to look at")


@contextlib.contextmanager
def measure_block(
    test: MeasuredTest,
    name: str = "",
    own: dict[Key, Limit] | None = None,
    place: run.Place | None = None,
    group: object = None,
    *,
    asked: bool = True,
) -> Iterator[list[Profile]]:
    """Measure a block as it stands, once; its profile is in the list after the block. Ranks run
    it as they do without us, and have each other's profiles when all are through; but where nobody
    asked for numbers, each has its own.

    Args:
        group: the ranks that have such a block.
        asked: whether anything is to be kept to: a limit, or a snapshot.
    """
    kept: list[Profile] = []
    plan = test.plan(test.needs())
    unlimited = own is None and not test.ledger.limits
    if unlimited:  # as cheap as can be
        plan = replace(plan, inputs=False)
    who = region_words(name, place) if place else f"the whole call of {test.id}"
    found: list[Measurement] = []
    limits = own.values() if own else ()
    with held_by(who, gives_way=unlimited), contextlib.ExitStack() as block:
        with may_be_blind(test, limits) if asked else contextlib.nullcontext():
            found = block.enter_context(measure_once(plan, name))
        yield kept
        with may_be_blind(test, limits) if asked else contextlib.nullcontext():
            block.close()
    if not found:
        return
    measurement = found[0]
    if asked:
        with test.agreeing(who, group) as agreement:
            measurement = of_all_ranks(measurement, agreement)
    else:
        measurement = of_this_rank(measurement, number_of_rank())
    kept.append(_keep(test, measurement, place or test.place, own))


def asked_call(place: run.Place) -> Asked:
    """What ``kernel_profile(fn)`` asks for; the limits that compare are about it, too."""
    remedy = "catch expected exceptions inside the callable"
    return Asked(_call_words(place), remedy, compares=True)


def asked_region(name: str, own: dict[Key, Limit], place: run.Place) -> Asked:
    """What ``kernel_profile.region(name)`` asks for."""
    remedy = "enter it in a with statement, and catch expected exceptions inside it"
    return Asked(region_words(name, place), remedy, own)


def region_words(name: str, place: run.Place) -> str:
    """A region, for example ``region 'backward' at test_mlp.py:31``."""
    return f"region {name!r} at {line_words(place)}"


def _call_words(place: run.Place) -> str:
    return f"kernel_profile at {line_words(place)}"


def run_plainly(fn: Callable[..., R], arguments: Arguments) -> R:
    """Call once, and measure nothing."""
    return preparer(fn, arguments)()()  # type: ignore[no-any-return]


def _keep(
    test: MeasuredTest,
    measurement: Measurement,
    place: run.Place,
    own: dict[Key, Limit] | None = None,
) -> Profile:
    timeline = measurement.timeline() if test.keeps_timelines else None
    profile = test.ledger.keep(measurement, own, place, timeline)
    folder = test.settings.trace_dir
    if folder:
        path = trace_path(folder, test.id, len(test.ledger), profile.label, number_of_rank())
        try:
            write_trace(measurement.file.path, measurement.recording, path)
        except OSError as error:  # the profile is judged all the same
            why = f"{path} cannot be written ({error.strerror or error})"
            test.ledger.unsaved.append(f"--kernelprof-trace-dir: {why}")
        else:
            test.ledger.note_trace(path)
    return profile
