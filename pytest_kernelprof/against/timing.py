"""Whether a call is slower than the revision's: rounds that two workers take in turn.

One pair of processes, this one and the reference, clears a call. Where that pair makes the call
suspect, three more pairs of fresh workers confirm it. They stay for later calls.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from pytest_kernelprof.against.protocol import (
    At,
    Collect,
    Done,
    DoStep,
    Go,
    RunTest,
    do_step,
)
from pytest_kernelprof.against.schedule import (
    SIDES,
    ContextOrder,
    Next,
    Shown,
    may_bring_up,
    missing_firsts,
    more_pairs,
    next_steps,
)
from pytest_kernelprof.against.worker import Worker, WorkerError
from pytest_kernelprof.device.usage_lock import at_rest
from pytest_kernelprof.schema.comparison import Paired, Sampled, TimedPair
from pytest_kernelprof.stats import intervals

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_kernelprof.against.protocol import ToWorker
    from pytest_kernelprof.against.schedule import BringsUp
    from pytest_kernelprof.against.worker import Answer, Process, Reference
    from pytest_kernelprof.device.conditions import Watch
    from pytest_kernelprof.measure.sessions import Series
    from pytest_kernelprof.schema.comparison import Side
    from pytest_kernelprof.schema.environment import Conditions

    Alone = Callable[[], contextlib.AbstractContextManager[Watch]]

R = TypeVar("R")
Rounds = Callable[[DoStep], Callable[[], Sampled]]
"""Rounds of one side's call: asks for a step, and hands back what waits for its answer. Both raise
``WorkerError`` where the side is gone."""

_TRIES = 3
_OF_A_TURN = intervals.ROUNDS + 1


def own_rounds(series: Series) -> Rounds:
    """Rounds of this process."""
    return lambda asked: lambda: do_step(series, asked)


@dataclass(frozen=True, slots=True)
class Taken:
    """The turns of a pair.

    Attributes:
        current, baseline: the last session of rounds of each.
        conditions: what the GPU was like.
    """

    turns: tuple[intervals.Turn, ...]
    current: Sampled
    baseline: Sampled
    conditions: Conditions

    def pair(self, first: Side | None) -> TimedPair:
        """The ratio of the pair."""
        return intervals.pair_of(first, self.turns)


def take_turns(current: Rounds, baseline: Rounds, alone: Alone) -> Taken:
    """Take six turns; twice as many where they scatter. Six turns share one session on each side,
    as a session costs more than its rounds.

    A batch is taken again where the GPU throttled or a session is incomplete. All turns are taken
    again, once, where other work ran on the GPU.

    Args:
        alone: has the GPU alone, and watches it.

    Raises:
        WorkerError: there are no rounds to judge by.
    """
    taken = _take_turns(current, baseline, alone)
    if taken.conditions.contended:
        taken = _take_turns(current, baseline, alone)
    return taken


def _take_turns(current: Rounds, baseline: Rounds, alone: Alone) -> Taken:
    turns: list[intervals.Turn] = []
    one = other = Sampled()
    kept = 0
    with alone() as watch:
        while more := intervals.more_turns(turns):
            one, other, throttled = _batch(current, baseline, len(turns), more, watch)
            turns += _turns_of(one.us, other.us)
            kept += throttled
    conditions = watch.conditions().keeping_throttled(kept)
    return Taken(tuple(turns), one, other, conditions)


def _batch(
    current: Rounds, baseline: Rounds, first: int, turns: int, watch: Watch
) -> tuple[Sampled, Sampled, int]:
    """Both sides' sessions, and how many rounds were kept although the GPU throttled."""
    rounds = 2 * turns * _OF_A_TURN
    for _ in range(_TRIES):
        one, other = _in_turn(current, baseline, first, turns)
        is_steady = watch.block(rounds)
        problem = _problem(one, other, turns * _OF_A_TURN)
        if is_steady and not problem:
            break
    if problem:
        raise WorkerError(problem)
    return one, other, 0 if is_steady else rounds


def _problem(current: Sampled, baseline: Sampled, rounds: int) -> str:
    for where, one in (("current", current), ("baseline", baseline)):
        if one.problem:
            return f"{where}: {one.problem}"
        if len(one.us) != rounds:
            return f"{where}: {len(one.us)} rounds of {rounds} were seen"
        if min(one.us) <= 0:
            return f"{where}: no kernel was launched, so there is no time"
    return ""


def _in_turn(current: Rounds, baseline: Rounds, first: int, turns: int) -> tuple[Sampled, Sampled]:
    sides = {"current": current, "baseline": baseline}
    try:
        for rounds in sides.values():
            _do(rounds, DoStep("open"))
        for name in intervals.order_of_turns(SIDES, first, turns):
            _do(sides[name], DoStep("take", _OF_A_TURN))
    except WorkerError:  # at Ctrl-C nobody is waited for
        for rounds in sides.values():
            with contextlib.suppress(WorkerError):
                rounds(DoStep("leave"))()
        raise
    reading = baseline(DoStep("close"))  # they read at the same time
    try:
        return current(DoStep("close"))(), reading()
    except WorkerError:
        with contextlib.suppress(WorkerError):
            reading()  # it is not the answer to what is asked next
        raise


def _do(rounds: Rounds, asked: DoStep) -> None:
    if problem := rounds(asked)().problem:
        raise WorkerError(problem)


def _turns_of(current: Sequence[float], baseline: Sequence[float]) -> list[intervals.Turn]:
    starts = range(0, len(current), _OF_A_TURN)
    return [
        intervals.Turn(tuple(current[i : i + _OF_A_TURN]), tuple(baseline[i : i + _OF_A_TURN]))
        for i in starts
    ]


@dataclass(frozen=True, slots=True)
class Timed:
    """A call whose kernels were to be timed.

    Attributes:
        another_work: how the baseline's work differs; empty where it does not.
        baseline_kernels_us, current_kernels_us: of each kernel in launch order what it takes.
    """

    paired: Paired
    another_work: str = ""
    baseline_kernels_us: tuple[float, ...] = ()
    current_kernels_us: tuple[float, ...] = ()


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
    why_judged: Callable[[], str],
) -> Timed:
    """Take turns with the reference, which holds in the same call, and where that makes the call
    suspect, have fresh pairs do so.

    Args:
        call: what brings a fresh worker to it. work: of the call, as it was made here.
        margin: how much slower it may be, a fraction.
        alone: has the GPU alone, and watches it.
        why_judged: why the test is judged already, in words; asked where the call is suspect.
    """
    assert reference.at is not None, "it holds"
    other = first_difference(work, reference.at.work)
    if other:
        return Timed(not_timed(f"different work: {other}"), other)
    try:
        taken = take_turns(current, reference.ask, alone)
    except WorkerError as error:
        return Timed(not_timed(str(error)))
    pair = taken.pair(reference.first)
    margin = intervals.margin_for(pair.baseline_us, margin)
    paired = _decided([pair], margin, _disturbed([taken]))
    firsts = more_pairs([pair], margin) if paired.disturbed is None else []
    if firsts and (why := why_judged()):
        paired = replace(paired, change="not compared", why=why)
    elif firsts:
        try:
            more = _take_more(firsts, call, work, fresh, alone)
        except WorkerError as error:
            paired = replace(paired, why=f"no more pairs could be measured: {error}")
        else:
            found = [one for one in (pair, *(two for _, two in more)) if one.first is not None]
            paired = _decided(found, margin, _disturbed([one for one, _ in more]))
            if missing_firsts([one.first for one in found]):
                why = "it is unknown which process of a pair started first"
                paired = replace(paired, change="undecided", why=why)
    return Timed(
        paired,
        baseline_kernels_us=taken.baseline.kernels_us,
        current_kernels_us=taken.current.kernels_us,
    )


def first_difference(current: Sequence[str], baseline: Sequence[str]) -> str:
    """How the work of two sides first differs, in words; empty where it does not."""
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
) -> list[tuple[Taken, TimedPair]]:
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
            workers = pair.workers
            taken = take_turns(workers["current"].ask, workers["baseline"].ask, alone)
            found.append((taken, taken.pair(pair.order.first)))
    return found


def _decided(found: Sequence[TimedPair], margin: float, disturbed: Conditions | None) -> Paired:
    """Judge pairs; "undecided" where they do not suffice, or the GPU was disturbed."""
    paired = intervals.decide(found, margin) if found else Paired(margin=margin)
    if disturbed is not None or paired.change is None:
        return replace(paired, change="undecided", disturbed=disturbed)
    return paired


def _disturbed(taken: Sequence[Taken]) -> Conditions | None:
    """The conditions of turns on which no verdict can stand."""
    return next((one.conditions for one in taken if one.conditions.disturbed), None)


@dataclass(frozen=True, slots=True)
class FreshPair:
    """A fresh worker of each side, and whose CUDA context was made first."""

    workers: dict[Side, Worker]
    order: ContextOrder

    def see_contexts(self) -> None:
        """Note who has one now."""
        self.order.see(*(self.workers[side].cuda for side in SIDES))


class FreshPairs:
    """The fresh pairs of a process that runs tests; none is started before it is needed.

    Args:
        start: starts a process of a side; the number tells it from all others.
        files: what each side collects. brings_up: as of ``next_steps``.
    """

    def __init__(
        self,
        start: Callable[[Side, int], Process],
        files: Mapping[Side, Sequence[str]],
        brings_up: BringsUp,
    ) -> None:
        self._start = start
        self._files = files
        self._brings_up = brings_up
        self._pairs: dict[tuple[Side, int], FreshPair] = {}
        self._started = 0

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
            self._let_go(chosen)
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
        history = [
            Shown(Next(*key, step), worker.cuda)
            for key, worker in workers.items()
            for step in worker.steps
        ]
        while steps := next_steps(firsts, history, self._brings_up):
            on_gpu = any(may_bring_up(one.side, one.step, self._brings_up) for one in steps)
            with contextlib.nullcontext() if on_gpu else at_rest():
                self._take([(one, workers[one.pair, one.side]) for one in steps], call)
            history += [Shown(one, workers[one.pair, one.side].cuda) for one in steps]
            for pair in chosen:
                pair.see_contexts()

    def _take(self, steps: Sequence[tuple[Next, Worker]], call: RunTest) -> None:
        """Have workers take a step each, and wait for all of them."""
        problems: list[WorkerError] = []
        waiting = [_tried(partial(self._begin, *one, call), problems) for one in steps]
        for answer in filter(None, waiting):
            _tried(answer, problems)
        if problems:
            raise problems[0]

    def _begin(self, step: Next, worker: Worker, call: RunTest) -> Answer:
        if step.step == "start":
            return worker.start()
        if step.step == "collect":
            return worker.ask(Collect(tuple(self._files[step.side])))
        if worker.collected is None or call.id not in worker.collected.ids:
            raise WorkerError("a fresh process does not collect the test")
        answer = worker.ask(call)
        return lambda: _held(answer())

    def _let_go(self, chosen: Sequence[FreshPair]) -> None:
        """Have those that hold run to the end of their test, at the same time."""
        workers = [one for pair in chosen for one in pair.workers.values()]
        _ask_all([one for one in workers if one.at is not None], Go(holds=False))

    def finish(self) -> None:
        """End all when they have ended their fixtures, which they do at the same time."""
        workers = [one for pair in self._pairs.values() for one in pair.workers.values()]
        _ask_all(workers, RunTest())
        for worker in workers:
            worker.leave()

    def end(self) -> None:
        """End all at once."""
        for pair in self._pairs.values():
            for worker in pair.workers.values():
                worker.end()

    def _pair(self, key: tuple[Side, int]) -> FreshPair:
        """The pair of a key. Where one of its workers is gone, both are started again, as their
        order is another."""
        known = self._pairs.get(key)
        if known is None or not all(one.is_there for one in known.workers.values()):
            workers = known.workers if known is not None else {s: self._worker(s) for s in SIDES}
            for worker in workers.values():
                worker.end()
            self._pairs[key] = FreshPair(workers, ContextOrder())
        return self._pairs[key]

    def _worker(self, side: Side) -> Worker:
        self._started += 1
        return Worker(partial(self._start, side, self._started), "a fresh process")


def _ask_all(workers: Sequence[Worker], asked: ToWorker) -> None:
    """Ask all, and wait for them. A problem is told when the worker is used next."""
    problems: list[WorkerError] = []
    for answer in [_tried(partial(one.ask, asked), problems) for one in workers]:
        if answer is not None:
            _tried(answer, problems)


def _tried(step: Callable[[], R], problems: list[WorkerError]) -> R | None:
    """What a step gives; None, with the problem noted, where a worker fails."""
    try:
        return step()
    except WorkerError as error:
        problems.append(error)
        return None


def _held(answer: At | Done) -> At:
    """See that a worker holds in the call that it was to run up to."""
    if isinstance(answer, Done):
        why = answer.failure or answer.skipped or answer.wrong or "it does not make this call"
        raise WorkerError(f"a fresh process does not reach the call: {why}")
    return answer
