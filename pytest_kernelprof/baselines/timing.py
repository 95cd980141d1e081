"""Whether a call is slower than the revision's: rounds that two workers take in turn.

One pair of processes, this one and the reference, clears a call that is not slower. Where that pair
makes the call suspect, more pairs of fresh workers confirm it. They stay for later calls.

The process whose CUDA context is made first is up to 1.3 % faster, so in two of four pairs each
side has to be first. Everything that does not decide that order happens at the same time in all
fresh workers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from pytest_kernelprof.baselines.protocol import At, Collect, Done, DoStep, Go, RunTest, do_step
from pytest_kernelprof.baselines.worker import START_STEPS, ContextOrder, Worker, WorkerError
from pytest_kernelprof.gpu.usage_lock import at_rest
from pytest_kernelprof.records.comparison import SIDES, Paired, Sampled, Side, TimedPair
from pytest_kernelprof.stats import intervals

if TYPE_CHECKING:
    from pytest_kernelprof.baselines.worker import Answer, Process, Reference, StartStep
    from pytest_kernelprof.gpu.conditions import Watch
    from pytest_kernelprof.measure.sessions import MoreRounds
    from pytest_kernelprof.records.recording import Conditions

    Alone = Callable[[], contextlib.AbstractContextManager[Watch]]
    BringsUp = Mapping[Side, StartStep]  # the first step of each side after which CUDA is up

Rounds = Callable[[DoStep], Callable[[], Sampled]]
"""Rounds of one side's call: asks for a step, and hands back what waits for its answer. Both raise
``WorkerError`` where the side is gone."""

Sides = Mapping[str, Rounds]
_TRIES = 3
_OF_A_TURN = intervals.ROUNDS + 1


def own_rounds(call: MoreRounds) -> Rounds:
    """Rounds of this process."""
    return lambda asked: lambda: do_step(call, asked)


class Taken(NamedTuple):
    """What the turns of a pair say.

    Attributes:
        sampled: the last session of rounds of each side.
        conditions: of the GPU meanwhile.
    """

    pair: TimedPair
    sampled: Mapping[str, Sampled]
    conditions: Conditions


def take_turns(sides: Sides, alone: Alone, first: Side | None) -> Taken:
    """Take six turns; twice as many where they scatter. Six turns share one session on each side,
    as a session costs more than its rounds.

    A batch is taken again where the GPU throttled or a session is incomplete. All turns are taken
    again, once, where other work ran on the GPU.

    Args:
        alone: has the GPU alone, and watches it.
        first: the side whose CUDA context was made first; None where that is not known.

    Raises:
        WorkerError: there are no rounds to judge by.
    """
    taken = _take_turns(sides, alone, first)
    return _take_turns(sides, alone, first) if taken.conditions.contended else taken


def _take_turns(sides: Sides, alone: Alone, first: Side | None) -> Taken:
    turns: list[intervals.Turn] = []
    kept = 0
    with alone() as watch:
        while more := intervals.more_turns(turns):
            sampled, throttled = _batch(sides, len(turns), more, watch)
            for i in range(0, more * _OF_A_TURN, _OF_A_TURN):
                rounds = (sampled[side].us[i : i + _OF_A_TURN] for side in SIDES)
                turns.append(intervals.Turn(*rounds))
            kept += throttled
    conditions = watch.conditions().keeping_throttled(kept)
    return Taken(intervals.pair_of(first, turns), sampled, conditions)


def _batch(sides: Sides, first: int, turns: int, watch: Watch) -> tuple[Mapping[str, Sampled], int]:
    """Both sides' sessions, and how many rounds were kept although the GPU throttled."""
    rounds = 2 * turns * _OF_A_TURN
    for _ in range(_TRIES):
        sampled = _in_turn(sides, first, turns)
        is_steady = watch.block(rounds)
        problem = _problem(sampled, turns * _OF_A_TURN)
        if is_steady and not problem:
            break
    if problem:
        raise WorkerError(problem)
    return sampled, 0 if is_steady else rounds


def _problem(sampled: Mapping[str, Sampled], rounds: int) -> str:
    for where, one in sampled.items():
        if one.problem:
            return f"{where}: {one.problem}"
        if len(one.us) != rounds:
            return f"{where}: {len(one.us)} rounds of {rounds} were seen"
        if min(one.us) <= 0:
            return f"{where}: no kernel was launched, so there is no time"
    return ""


def _in_turn(sides: Sides, first: int, turns: int) -> Mapping[str, Sampled]:
    try:
        problem = next((one.problem for one in _at_once(sides, DoStep("open")) if one.problem), "")
        for name in intervals.order_of_turns(SIDES, first, turns):
            problem = problem or sides[name](DoStep("take", _OF_A_TURN))().problem
        if problem:
            raise WorkerError(problem)
    except WorkerError:  # at Ctrl-C no side is waited for
        for rounds in sides.values():
            with contextlib.suppress(WorkerError):
                rounds(DoStep("leave"))()
        raise
    return dict(zip(SIDES, _at_once(sides, DoStep("close")), strict=True))


def _at_once(sides: Sides, step: DoStep) -> tuple[Sampled, Sampled]:
    """Have both sides, in their order, do a step in which nothing is timed, at the same time."""
    other = sides["baseline"](step)
    try:
        return sides["current"](step)(), other()
    except WorkerError:
        with contextlib.suppress(WorkerError):
            other()  # else it would be taken for the answer to the next record
        raise


class Timed(NamedTuple):
    """The times of a call on both sides.

    Attributes:
        another_work: how the baseline's work differs; empty if it does not.
        kernels_us: what each kernel of a side takes, in launch order.
    """

    paired: Paired
    another_work: str = ""
    kernels_us: Mapping[str, tuple[float, ...]] = MappingProxyType({})


def not_timed(why: str) -> Paired:
    """A call that was not timed, and why."""
    return Paired("not compared", why)


def time_call(
    call: RunTest,
    work: Sequence[str],
    margin: float,
    current: Rounds,
    reference: Reference,
    fresh: FreshPairs,
    alone: Alone,
    judged: Paired | None,
) -> Timed:
    """Take turns with the reference, which holds in the same call. If that makes the call suspect,
    have fresh pairs take turns too.

    Args:
        call: what brings a fresh worker to it. work: of the call, as it was made here.
        margin: how much slower it may be, a fraction.
        alone: has the GPU alone, and watches it.
        judged: if the test is judged already, what a suspect call becomes without more pairs.
    """
    assert reference.at is not None, "it holds"
    if other := first_difference(work, reference.at.work):
        return Timed(not_timed(f"different work: {other}"), other)
    try:
        sides: Sides = {"current": current, "baseline": reference.ask}
        taken = take_turns(sides, alone, reference.order.first)
    except WorkerError as error:
        return Timed(not_timed(str(error)))
    margin = intervals.margin_for(taken.pair.baseline_us, margin)
    paired = _decided([taken], margin)
    if paired.disturbed is None and (firsts := more_pairs([taken.pair], margin)):
        if judged is not None:
            paired = replace(paired, change=judged.change, why=judged.why)
        else:
            try:
                more = _take_more(firsts, call, work, fresh, alone)
            except WorkerError as error:
                paired = replace(paired, why=f"no more pairs could be measured: {error}")
            else:
                paired = _confirmed([taken, *more], margin, paired)
    kernels_us = {side: one.kernels_us for side, one in taken.sampled.items()}
    return Timed(paired, kernels_us=kernels_us)


def first_difference(current: Sequence[str], baseline: Sequence[str]) -> str:
    """How the work of two sides first differs, in words; empty if it does not."""
    for one, other in zip(current, baseline, strict=False):
        if one != other:
            place, _, words = one.partition(": ")
            return f"{place} is {words}, in the baseline {other.removeprefix(f'{place}: ')}"
    if len(current) > len(baseline):
        more, where = current[len(baseline) :], "not in the baseline"
    else:
        more, where = baseline[len(current) :], "only in the baseline"
    return f"{more[0].partition(': ')[0]} is {where}" if more else ""


def _take_more(
    firsts: Sequence[Side], call: RunTest, work: Sequence[str], fresh: FreshPairs, alone: Alone
) -> list[Taken]:
    """The turns of fresh pairs.

    Raises:
        WorkerError: a worker does not come to the call, or there are no rounds.
    """
    found = []
    with fresh.at(firsts, call) as chosen:
        for pair in chosen:
            for worker in pair.workers.values():
                other = first_difference(work, worker.at.work) if worker.at is not None else ""
                if other:
                    raise WorkerError(f"a fresh process does different work: {other}")
            sides: Sides = {side: worker.ask for side, worker in pair.workers.items()}
            found.append(take_turns(sides, alone, pair.order.first))
    return found


def _decided(taken: Sequence[Taken], margin: float) -> Paired:
    """Judge pairs; "undecided" where they do not suffice, or the GPU was disturbed."""
    paired = intervals.decide([one.pair for one in taken], margin)
    disturbed = next((one.conditions for one in taken if one.conditions.disturbed), None)
    if disturbed is not None or paired.change is None:
        return replace(paired, change="undecided", disturbed=disturbed)
    return paired


def _confirmed(taken: Sequence[Taken], margin: float, suspicion: Paired) -> Paired:
    """Judge a suspect call by all pairs of which it is known whose context was first."""
    known = [one for one in taken if one.pair.first is not None]
    paired = _decided(known, margin) if known else suspicion
    if missing_firsts([one.pair.first for one in known]):
        why = "it is unknown which process of a pair started first"
        return replace(paired, change="undecided", why=why)
    return paired


def more_pairs(taken: Sequence[TimedPair], margin: float) -> list[Side]:
    """The pairs that a call still needs, each by the side that has to be first; none where those
    that were taken decide."""
    decided = intervals.decide(taken, margin).change is not None
    return [] if decided else missing_firsts([pair.first for pair in taken])


def missing_firsts(firsts: Sequence[Side | None]) -> list[Side]:
    """Whose context has to be first in more pairs, so that two of four begin with each side; in
    turn, the side with more of them first."""
    missing = {side: intervals.PAIRS // 2 - firsts.count(side) for side in SIDES}
    order = sorted(SIDES, key=lambda side: -missing[side])
    return [side for i in range(max(missing.values())) for side in order if i < missing[side]]


def next_steps(
    firsts: Sequence[Side], workers: Mapping[tuple[int, Side], Worker], brings_up: BringsUp
) -> dict[tuple[int, Side], StartStep]:
    """The steps that workers take next, at the same time; none once all are at the call.

    The second of a pair waits with a step that may bring up CUDA until the first has it, or is at
    the call without it.

    Args:
        firsts: for each pair, whose CUDA context has to be made first.
        workers: of all pairs, by the pair's number and the side.
    """
    found: dict[tuple[int, Side], StartStep] = {}
    for (pair, side), worker in workers.items():
        first = workers[pair, firsts[pair]]
        is_free = worker is first or not first.left or first.cuda or worker.cuda
        if worker.left and (is_free or not may_bring_up(side, worker.left[0], brings_up)):
            found[pair, side] = worker.left[0]
    return found


def may_bring_up(side: Side, step: StartStep, brings_up: BringsUp) -> bool:
    """Whether a step may bring up CUDA: to run a test always may."""
    return START_STEPS.index(step) >= START_STEPS.index(brings_up.get(side, "run"))


class FreshPair(NamedTuple):
    """A fresh worker of each side, and whose CUDA context was made first."""

    workers: dict[Side, Worker]
    order: ContextOrder


@dataclass(eq=False)
class FreshPairs:
    """The fresh pairs of a process that runs tests; none is started before it is needed.

    Attributes:
        start: starts a process of a side; the number tells it from all others.
        files: what each side collects. brings_up: as of ``next_steps``.
    """

    start: Callable[[Side, int], Process]
    files: Mapping[Side, Sequence[str]]
    brings_up: BringsUp
    _pairs: dict[tuple[Side, int], FreshPair] = field(default_factory=dict, init=False)
    _started: int = field(default=0, init=False)

    @contextlib.contextmanager
    def at(self, firsts: Sequence[Side], call: RunTest) -> Iterator[list[FreshPair]]:
        """Pairs of workers that hold in a call; they run on to the end of its test after the block.

        Args:
            firsts: for each pair, whose CUDA context has to be made first.

        Raises:
            WorkerError: one of them does not come to the call.
        """
        chosen = [self._pair((first, firsts[:i].count(first))) for i, first in enumerate(firsts)]
        problem: WorkerError | None = None
        try:
            try:
                self._bring(chosen, firsts, call)
                yield chosen
            except WorkerError as error:
                problem = error
            # A problem of these is told when the worker is used next.
            holding = [one for one in _workers(chosen) if one.at is not None]
            _do_all(partial(one.ask, Go(holds=False)) for one in holding)
        except BaseException:  # Ctrl-C, a time limit of the test: nobody is waited for
            self.end()
            raise
        if problem is not None:
            raise problem

    def _bring(self, chosen: Sequence[FreshPair], firsts: Sequence[Side], call: RunTest) -> None:
        """Bring all to the call, in steps that all take at the same time."""
        workers = {(i, side): one.workers[side] for i, one in enumerate(chosen) for side in SIDES}
        for worker in workers.values():
            worker.raise_if_given_up()
        while steps := next_steps(firsts, workers, self.brings_up):
            on_gpu = any(may_bring_up(key[1], steps[key], self.brings_up) for key in steps)
            with contextlib.nullcontext() if on_gpu else at_rest():
                problems = _do_all(
                    partial(self._begin, steps[key], key[1], workers[key], call) for key in steps
                )
            for problem in problems[:1]:
                raise problem
            for pair in chosen:
                pair.order.see(*(pair.workers[side].cuda for side in SIDES))

    def _begin(self, step: StartStep, side: Side, worker: Worker, call: RunTest) -> Answer:
        if step == "start":
            return worker.start()
        if step == "collect":
            return worker.ask(Collect(tuple(self.files[side])))
        if worker.collected is None or call.id not in worker.collected.ids:
            raise WorkerError("a fresh process does not collect the test")
        answer = worker.ask(call)
        return lambda: _refuse_past_the_call(answer())

    def finish(self) -> None:
        """Have all end their fixtures, which they do at the same time."""
        _do_all(partial(one.ask, RunTest()) for one in _workers(self._pairs.values()))

    def leave(self) -> None:
        """Begin to end all: those that have ended their fixtures, once they have exited."""
        for worker in _workers(self._pairs.values()):
            worker.leave()

    def end(self) -> None:
        """End all at once."""
        for worker in _workers(self._pairs.values()):
            worker.end()

    def _pair(self, key: tuple[Side, int]) -> FreshPair:
        """The pair of a key. If one of its workers is gone, both are started again, because their
        order would be another one."""
        known = self._pairs.get(key)
        if known is None or not all(one.is_there for one in known.workers.values()):
            workers = known.workers if known is not None else {s: self._worker(s) for s in SIDES}
            for worker in workers.values():
                worker.end()
            self._pairs[key] = FreshPair(workers, ContextOrder())
        return self._pairs[key]

    def _worker(self, side: Side) -> Worker:
        self._started += 1
        return Worker(partial(self.start, side, self._started), "a fresh process")


def _workers(pairs: Iterable[FreshPair]) -> list[Worker]:
    return [one for pair in pairs for one in pair.workers.values()]


def _do_all(steps: Iterable[Callable[[], Answer]]) -> list[WorkerError]:
    """Begin all steps, and wait for all of their answers; the workers that failed say why."""
    problems: list[WorkerError] = []

    def tried(step: Callable[[], Any]) -> Any:
        try:
            return step()
        except WorkerError as error:
            problems.append(error)

    for answer in list(map(tried, steps)):
        if answer is not None:
            tried(answer)
    return problems


def _refuse_past_the_call(answer: At | Done) -> None:
    """Raise ``WorkerError`` unless a worker holds in the call that it was to run up to."""
    if isinstance(answer, Done):
        why = answer.failure or answer.skipped or answer.wrong or "it does not make this call"
        raise WorkerError(f"a fresh process does not reach the call: {why}")
