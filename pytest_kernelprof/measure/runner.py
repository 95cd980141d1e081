"""Take the steps of a measurement, which `policy` decides, and note what each showed."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Any, NamedTuple

from msgspec.structs import replace

from pytest_kernelprof.analysis.collectives import with_waiting
from pytest_kernelprof.analysis.metric_values import with_said
from pytest_kernelprof.analysis.roofline import peaks_of, rates, roofline_of, work_of
from pytest_kernelprof.analysis.session_profile import SessionFacts, profile_of, with_lines
from pytest_kernelprof.distributed.agreement import ALONE, Agreement
from pytest_kernelprof.errors import IncompleteProfile
from pytest_kernelprof.gpu import inventory
from pytest_kernelprof.gpu.conditions import Watch, alone, unwatched
from pytest_kernelprof.gpu.usage_lock import sharing
from pytest_kernelprof.measure import arguments as calls
from pytest_kernelprof.measure import policy, sessions
from pytest_kernelprof.measure.policy import Plan, Progress, Shown, Step
from pytest_kernelprof.profiler import torch_profiler, unprofiled_rounds
from pytest_kernelprof.profiler.compiled_code import compilations, graph_breaks
from pytest_kernelprof.profiler.line_annotations import annotate_lines
from pytest_kernelprof.profiler.session import Session, refuse_to_nest
from pytest_kernelprof.profiler.trace_folder import TraceFile
from pytest_kernelprof.profiler.triton_kernels import spills_of
from pytest_kernelprof.profiler.unfinished_work import at_work, left_for_good
from pytest_kernelprof.profiler.unprofiled_rounds import RepeatedCall
from pytest_kernelprof.records.metrics import METRICS, Rated
from pytest_kernelprof.records.profile import Profile, Timeline, Verdict
from pytest_kernelprof.records.recording import HostTimings, KernelSpills, Recording
from pytest_kernelprof.trace.correlation import annotated_lines, frame_lines
from pytest_kernelprof.trace.integrity import left_words

JudgeProfile = Callable[[Profile], Sequence[Verdict]]

_OF_ROUNDS = [n for n, one in METRICS.items() if one.kind == "timed" and "profiled" in one.sources]
"""The times that profiled rounds tell."""


class Measurement(NamedTuple):
    """A profile, and what is left from taking it.

    Attributes:
        file: the trace of the profile; removed with the last reference to it.
        recording: the notes beside the trace.
        timeline: returns one round event by event, from the trace that was read.
        attribute: runs the call once more and returns the profile with source lines; None if the
            call cannot be run again.
        more: takes more rounds of the call; None if it cannot be run again.
        agreement: of the ranks that made the call together.
    """

    profile: Profile
    file: TraceFile
    recording: Recording
    timeline: Callable[[], Timeline]
    attribute: Callable[[], Profile] | None = None
    more: sessions.MoreRounds | None = None
    agreement: Agreement = ALONE


def measure(
    call: Callable[..., Any],
    plan: Plan,
    arguments: calls.Arguments = calls.NO_ARGUMENTS,
    *,
    label: str = "",
    judge: JudgeProfile | None = None,
    progress: Progress = policy.no_progress,
    agreement: Agreement = ALONE,
    said: Mapping[Rated, int] | None = None,
) -> tuple[Any, Measurement]:
    """Warm up, profile and measure a callable.

    Args:
        judge: returns the verdicts of the limits on a profile; called only if the plan adds rounds
            until a verdict is reached.
        progress: called before each round, outside of what is timed.
        agreement: of the ranks that make this call together.
        said: the work of a call, as the test says it.

    Returns:
        The result of the first call, and the measurement. A profile that stays incomplete is
        returned, too, and its ``integrity`` says so: a limit that it exceeds is exceeded.

    Raises:
        IncompleteProfile: the profiler is not available, the GPU could not be locked (GpuBusy), or
            a rank did not come.
        CannotMeasureError: the callable returned a generator or coroutine, whose body has not run.
        Exception: whatever the callable raises; the profiler is closed then.
    """
    device = inventory.current_device(plan.device)
    refuse_to_nest()
    with sharing(device, plan.lock_timeout_s, plan.who):
        torch_profiler.prime(device)
        plan = agreed("the plan", plan, agreement)
        run = Run(device, plan, call, arguments, label, judge, progress, agreement, said or {})
        while isinstance(step := run.next_step(), policy.WarmUp):
            run.execute(step)
        # What the first call alone changes is the same in all rounds.
        watched = calls.watch_in_place([call], arguments)
        with (
            alone(device, plan.lock_timeout_s, plan.who, locking=agreement.gpu_lock)
            if plan.timed
            else contextlib.nullcontext(unwatched())  # counts need neither lock nor watch
        ) as run.watch:
            run.execute_all_from(step)
        run.in_place = watched.changed()
        return run.result, run.measurement()


def agreed(what: str, plan: Plan, agreement: Agreement) -> Plan:
    """Return the plan of all ranks of a call, with which each of them begins."""
    # Another rank may have waited for its GPU until now.
    patience_s = plan.lock_timeout_s if plan.device == "cuda" else 0.0
    return policy.plan_of_ranks(agreement.gather(what, plan, patience_s=patience_s))


@contextlib.contextmanager
def measure_once(
    plan: Plan, label: str = "", said: Callable[[], Mapping[Rated, int]] = dict
) -> Iterator[list[Measurement]]:
    """Profile a block once, without warm-up or retry. After the block, the measurement is in the
    list.

    Args:
        said: returns the work of the block, as the test says it; called after the block.
    """
    device = inventory.current_device(plan.device)
    with sharing(device, plan.lock_timeout_s, plan.who):
        torch_profiler.prime(device)
        found: list[Measurement] = []
        shapes = plan.work or (device.kind == "cpu" and plan.inputs)
        session = Session(device, stacks=plan.stacks, shapes=shapes)
        with session, session.autotuning.watched(), session.round():
            yield found
        taken = sessions.read(session.export(), inputs="all" if plan.work else "presence")
        settled = not taken.facts.profile.integrity.cold
        work = with_said(work_of(taken.reading, 0, device.name) if plan.work else {}, said())
        noted = {"one_shot": True, "settled": settled, "spills": _spills(plan, taken)}
        noted |= graph_breaks(taken.facts.regions, session.compiled_before)
        recording = _ignoring(plan, replace(taken.recording, **noted, work=work))
        profile = profile_of(taken.facts, recording, label)
        if plan.stacks:
            rows = itertools.chain.from_iterable(taken.facts.operators.values())
            profile = with_lines(profile, taken.facts, frame_lines(taken.reading.trace, rows))
        sessions.refuse_blind(device, taken.facts)
        found.append(Measurement(profile, taken.file, recording, taken.timeline))


def with_other_ranks(profile: Profile, agreement: Agreement, what: str = "the profile") -> Profile:
    """Return this rank's profile with those of the others; ``what`` is new in it."""
    rank = agreement.rank
    if rank is None:
        return profile
    ranks = with_waiting(agreement.gather(what, replace(profile, rank=rank, other_ranks=())))
    (own,) = (one for one in ranks if one.rank == rank)
    return replace(own, other_ranks=tuple(one for one in ranks if one.rank != rank))


def warm(run: Run, look: Callable[[Any], None]) -> Profile:
    """Warm a callable up, and profile it until it is warm and the trace complete.

    Args:
        look: called with the first call's result.
    """
    torch_profiler.prime(run.device)
    run.execute(policy.WarmUp(0, run.plan.warmup))
    look(run.result)
    run.result = None
    run.execute_all_from(run.next_step())
    return run.measurement().profile


@dataclass(eq=False)
class Run:
    """A measurement that is being taken: its history, and what its steps returned so far."""

    device: inventory.Device
    plan: Plan
    call: Callable[..., Any]
    arguments: calls.Arguments
    label: str
    judge: JudgeProfile | None = None
    progress: Progress = policy.no_progress
    agreement: Agreement = ALONE
    said: Mapping[Rated, int] = field(default_factory=dict)
    result: Any = None
    in_place: tuple[str, ...] = ()
    watch: Watch = field(default_factory=unwatched)
    _history: list[Shown] = field(default_factory=list)
    _taken: sessions.Taken | None = None
    _noted: dict[str, Any] = field(default_factory=dict)
    _later_sessions: dict[int, SessionFacts] = field(default_factory=dict)
    _timings: dict[int, HostTimings] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._prepare = calls.preparer(self.call, self.arguments)
        self._repeated = RepeatedCall(
            self.device, self._prepare, self.plan.flush_l2, self.agreement
        )
        self._began = self._session_ended = compilations()

    def next_step(self) -> Step | None:
        """Return the next step, if any."""
        return policy.next_step(self.plan, self._history)

    def execute_all_from(self, step: Step | None) -> None:
        """Take this step and all that follow."""
        while step is not None:
            self.execute(step)
            step = self.next_step()

    def execute(self, step: Step) -> None:
        """Take a step, and note what it showed on this rank and the others."""
        takes: dict[type[Step], Callable[[Any], Shown]] = {
            policy.WarmUp: self._warm_up,
            policy.ProfileRounds: self._profile,
            policy.TimeCalls: self._time,
            policy.SecondLook: self._time,
            policy.WatchMemory: self._watch_memory,
            policy.Judge: self._ask_verdicts,
            policy.RecordShapes: self._record_shapes,
        }
        shown = takes[type(step)](step)
        self._history.append(policy.shown_on_ranks(self.agreement.gather(repr(step), shown)))

    def measurement(self) -> Measurement:
        """Return what all steps together measured."""
        taken = self._session()
        conditions = self.watch.conditions()
        kept = policy.kept_throttled(self._history)
        recording = replace(
            self._recording(),
            conditions=conditions.keeping_throttled(kept),
            in_place=self.in_place,
            retakes=policy.retakes(self._history),
            settled=policy.settled(self._history),
            spills=_spills(self.plan, taken),
        )
        profile = with_other_ranks(profile_of(taken.facts, recording, self.label), self.agreement)
        attribute = partial(lines_of_another_run, profile, self._repeated)
        more = sessions.MoreRounds(self._repeated._replace(agreement=ALONE))
        return Measurement(
            profile, taken.file, recording, taken.timeline, attribute, more, self.agreement
        )

    def _session(self) -> sessions.Taken:
        assert self._taken is not None, "the policy begins with a session"
        return self._taken

    def _recording(self) -> Recording:
        noted = self._noted | self._compiled()
        noted["work"] = with_said(self._noted.get("work", {}), self.said)
        if self._timings:
            noted["host_timings"] = reduce(HostTimings.followed_by, self._timings.values())
        if self._later_sessions:
            later = list(self._later_sessions.values())
            noted["more_rounds"] = _joined(later, "rounds")
            more = _joined(later, "allowed_rounds")
            noted["more_allowed"] = {name: of for name, of in more.items() if any(of)}
        if policy.lacks_rounds(self.plan, self._history):
            noted["no_times"] = dict.fromkeys(_OF_ROUNDS, "further rounds stayed incomplete")
        return _ignoring(self.plan, replace(self._session().recording, **noted))

    def _compiled(self) -> dict[str, Any]:
        """Return what the compilers did in the session and in all calls since; what torch.compile
        refused since the first call, as a warm-up can use its limit up; and the breaks of what it
        compiled."""
        now, session = compilations(), self._session().recording
        later = now.since(self._session_ended)
        both = {name: (getattr(session, name), more) for name, more in later.noted().items()}
        found = {name: None if None in of else of[0] + of[1] for name, of in both.items()}
        return found | {
            "refused": max(session.refused, now.since(self._began).refused),
            "may_refuse": session.may_refuse or now.may_refuse,
            "reused": session.reused,
            **graph_breaks(self._session().facts.regions, self._began),
        }

    def _profile_so_far(self) -> Profile:
        return profile_of(self._session().facts, self._recording(), self.label)

    def _warm_up(self, step: policy.WarmUp) -> Shown:
        before = at_work()
        if step.done == 0:
            self.result = calls.first_call(self._prepare)
        else:
            self.progress("warming up", step.done, step.of)
            self._prepare()()
        if left := left_for_good(before):
            raise IncompleteProfile(left_words(left))
        return Shown(step)

    def _profile(self, step: policy.ProfileRounds) -> Shown:
        repeated = self._with_progress("profiling", step.rounds, step.reason)
        repeated = repeated._replace(flush_l2=step.flush_l2)
        # Ranks take the same number of rounds.
        may_end = self.plan.sample_on and self.agreement.rank is None and not step.batch
        is_first = may_end and step.rounds > policy.PROVING_ROUNDS
        least = policy.EXACT_ROUNDS if is_first else step.rounds
        reads = partial(self.progress, "reading the trace of round", step.rounds, step.rounds)
        taken = sessions.profile_rounds(
            repeated, step.rounds, least, stacks=self.plan.stacks, on_long=reads
        )
        step = replace(step, rounds=taken.recording.rounds or step.rounds)
        throttled = not self.watch.block(step.rounds)
        sessions.refuse_blind(self.device, taken.facts)
        integrity = taken.facts.profile.integrity
        if step.batch == 0:
            self._taken, self._session_ended = taken, compilations()
        elif integrity.complete:
            self._later_sessions[step.batch] = taken.facts
        else:
            self._later_sessions.pop(step.batch, None)  # of an earlier try, which does not count
        return Shown(
            step,
            complete=integrity.complete,
            cold=bool(integrity.cold) or bool(taken.recording.recompiles),
            unproven=integrity.graph_replays == "unproven",
            throttled=throttled,
            kernels=taken.facts.profile.metrics["kernels"].value or 0.0,
        )

    def _time(self, step: policy.TimeCalls) -> Shown:
        timings = unprofiled_rounds.time_calls(
            self._with_progress("timing", step.rounds, step.reason),
            step.rounds,
            fresh_arguments=self.arguments.setup is not None,
        )
        throttled = not self.watch.block(step.rounds)
        timings = replace(timings, **torch_profiler.prime(self.device)._asdict())
        if isinstance(step, policy.SecondLook):
            self._noted["second_look"] = timings
        else:
            self._timings[step.batch] = timings
        return Shown(step, throttled=throttled, bound=self._profile_so_far().bound.verdict)

    def _watch_memory(self, step: policy.WatchMemory) -> Shown:
        repeated = self._with_progress("watching memory", step.rounds)
        memory = unprofiled_rounds.watch_memory(repeated, step.rounds)
        if memory is not None:
            self._noted["memory"] = memory
        elif self.device.kind == "cuda":
            self._noted["memory_why"] = unprofiled_rounds.NO_HISTORY
        return Shown(step)

    def _ask_verdicts(self, step: policy.Judge) -> Shown:
        profile = self._profile_so_far()
        verdicts = tuple(self.judge(profile)) if self.judge else ()
        if self.agreement.rank is not None:  # each reads only these of the others
            verdicts = tuple(
                Verdict(limit=one.limit, outcome=one.outcome, metric=one.metric) for one in verdicts
            )
        return Shown(step, bound=profile.bound.verdict, verdicts=verdicts)

    def _record_shapes(self, step: policy.RecordShapes) -> Shown:
        """Note which roof limits the call and why."""
        shaped = sessions.profile_rounds(self._repeated, 1, shapes=True)
        facts, peaks = shaped.facts, peaks_of(self.device.name)
        operators, kernels = facts.operators["kernels"], facts.profile.kernels
        found = rates(shaped.reading, operators, kernels, peaks)
        busy = facts.profile.metrics["gpu_busy"].value or 0.0
        self._noted["roofline"] = roofline_of(found, busy, peaks)
        names = [[one.name for one in of.profile.kernels] for of in (facts, self._session().facts)]
        is_whole = facts.profile.integrity.complete and names[0] == names[1]
        if is_whole:
            self._noted["work"] = work_of(shaped.reading, facts.fullest, self.device.name)
        return Shown(step, complete=is_whole)

    def _with_progress(self, what: str, rounds: int, reason: str = "") -> RepeatedCall:
        """Return the call with progress, which is reported before each round and is not timed."""
        prepare = calls.with_progress(
            itertools.repeat(self._prepare),
            lambda done: self.progress(what, min(done, rounds - 1), rounds, reason),
        )
        return self._repeated._replace(prepare=prepare)


def _ignoring(plan: Plan, recording: Recording) -> Recording:
    """Note in the recording whether the user ignores the work of child processes."""
    return replace(recording, children=replace(recording.children, ignored=plan.ignore_children))


def _spills(plan: Plan, taken: sessions.Taken) -> tuple[KernelSpills, ...] | None:
    """Return what the session's kernels spill, if a limit asks for it."""
    profile = taken.facts.profile
    if not plan.spills or profile.on_cpu:
        return None
    return spills_of([*profile.kernels, *itertools.chain(*profile.variants)], taken.gone)


def _joined(later: Sequence[SessionFacts], of: str) -> dict[str, tuple[float, ...]]:
    """Return a field of metrics with a value for each round, of further sessions, by metric."""
    names = [name for name in later[0].profile.metrics if "profiled" in METRICS[name].sources]
    return {
        name: tuple(value for facts in later for value in getattr(facts.profile.metrics[name], of))
        for name in names
    }


def lines_of_another_run(profile: Profile, repeated: RepeatedCall) -> Profile:
    """Profile the call once more, on all ranks, with its source lines annotated, and add them to
    the profiles.

    If that run launched other kernels than the profile, their lines would be guesses and stay
    unknown; so do those of copies and waits.
    """
    session = Session(repeated.device, stacks=False)
    call = repeated.prepare()
    with session, session.round(), annotate_lines(session.names):
        call()
    again = sessions.read(session.export())
    own = with_lines(profile, again.facts, annotated_lines(again.reading))
    return with_other_ranks(own, repeated.agreement, "the lines")
