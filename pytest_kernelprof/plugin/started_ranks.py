"""Ranks that a test starts: a function runs on each, in a process of its own. What it profiles with
``pytest_kernelprof.profile`` is judged by the test's limits; what it raises fails the test."""

from __future__ import annotations

import os
import pickle
import signal
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import connection, get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

import pytest

from pytest_kernelprof import api
from pytest_kernelprof.distributed.agreement import hosted_store, in_group, leave
from pytest_kernelprof.errors import CannotMeasureError, IncompleteProfile, MarkerError, NotJudged
from pytest_kernelprof.gpu.allocation import several_gpus
from pytest_kernelprof.gpu.procfs import note_ours
from pytest_kernelprof.limits.kinds import Limit
from pytest_kernelprof.limits.marks import Marks
from pytest_kernelprof.measure.policy import Plan
from pytest_kernelprof.plugin import measuring
from pytest_kernelprof.plugin.ledger import Ledger
from pytest_kernelprof.plugin.outcome import Request
from pytest_kernelprof.plugin.settings import Settings
from pytest_kernelprof.records.metrics import Rated
from pytest_kernelprof.records.profile import Place, Profile
from pytest_kernelprof.system import now_s
from pytest_kernelprof.units import whole_number

REMEDY = "catch expected exceptions inside the function"
_TO_END_S = 5.0
"""How long the other ranks may take when one has failed: they end by themselves and name it."""


class Ranks:
    """A number of ranks of ``torch.distributed`` on this machine, for one function."""

    def __init__(self, test: measuring.MeasuredTest, number: object, backend: str | None) -> None:
        try:
            self._number = whole_number(number)
        except ValueError as error:
            raise MarkerError(f"kernel_profile.ranks({number!r}): {error}") from None
        self._test = test
        self._backend = backend or ("nccl" if test.device == "cuda" else "gloo")

    def run(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> list[Any]:
        """Run ``fn(*args, **kwargs)`` on each rank, and return what each returned, by rank.

        In each process ``torch.distributed`` is initialised and, with NCCL, the rank's GPU is the
        current one. What ``fn`` hands to ``pytest_kernelprof.profile`` is profiled on all ranks
        together, by the limits and options of this test, and is a profile of this test.

        Raises:
            CannotMeasureError: ``fn``, its arguments or what it returns cannot be pickled.
            IncompleteProfile: a rank died, or there are not so many free GPUs.
            BaseException: what a rank raised, its traceback as text in the cause.
        """
        __tracebackhide__ = True
        test, request = self._test, self._test.request("kernel_profile.ranks", remedy=REMEDY)
        if test.unmeasured and self._backend == "nccl":
            test.ledger.leave_out(test.unmeasured)
            measuring.nothing_to_look_at(test, "GPU for a rank")
        with test.ledger.asking(request):
            ended = self._ended(fn, args, kwargs)
            for rank, one in enumerate(ended):
                for record in one.profiles:
                    if record.rank in (None, record.ranks[0].rank):  # it has the others in it
                        test.ledger.keep_record(record, request)
                test.ledger.unsaved += one.unsaved
                for left in one.unfinished:  # only the rank knows of it
                    test.ledger.ask(replace(left, what=f"{left.what} on rank {rank}"))
        return [pickle.loads(one.returned) for one in ended]

    def _ended(self, fn: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[Ended]:
        __tracebackhide__ = True
        test = self._test
        try:
            task = pickle.dumps((fn, args, kwargs))
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise CannotMeasureError(
                f"ranks({self._number}).run: {error}: each rank is a separate process, so the "
                "function must be at the top level of a module, and its arguments must be "
                "picklable"
            ) from error
        number = self._number if self._backend == "nccl" else 0
        with (
            several_gpus(number, test.settings.lock_timeout, test.id) as gpus,
            hosted_store(self._number) as port,
        ):
            job = Job(
                size=self._number,
                backend=self._backend,
                port=port,
                gpus=gpus,
                plan=test.plan(test.needs()),
                limits=test.ledger.limits,
                # A revision is compared with the test, not with each of its ranks.
                settings=test.settings.changed(revision=None),
                place=test.place,
                unmeasured=test.unmeasured,
                work=test.ledger.take_work(),
            )
            return _run(job, task)


def _run(job: Job, task: bytes) -> Sequence[Ended]:
    """Start the ranks and wait for all; whatever happens, no process is left.

    Raises:
        BaseException: what a rank raised.
        IncompleteProfile: a rank died.
    """
    __tracebackhide__ = True
    context = get_context("spawn")
    processes: list[BaseProcess] = []
    homes: dict[Any, int] = {}
    with ExitStack() as stack:
        stack.callback(_end, processes)
        for rank in range(job.size):
            home, away = context.Pipe(duplex=False)
            stack.callback(home.close)
            process: BaseProcess = context.Process(
                target=run_rank, args=(rank, job, task, away), name=f"rank {rank}", daemon=True
            )
            process.start()
            note_ours(process.pid or 0)
            away.close()  # so that the other end of a dead process is closed
            processes.append(process)
            homes[home] = rank
        ended = _heard(homes)
        _raise_first(ended, processes, job)
        for process in processes:
            process.join(_TO_END_S)
        return [ended[rank] for rank in range(job.size)]  # type: ignore[misc]


def _heard(homes: dict[Any, int]) -> dict[int, Ended | None]:
    """What each rank sent; None for one that died. When one has failed, the others have a moment
    left."""
    found: dict[int, Ended | None] = {}
    waiting = dict(homes)
    deadline: float | None = None
    while waiting:
        left = None if deadline is None else max(0.0, deadline - now_s())
        ready: list[Any] = list(connection.wait(list(waiting), left))
        if not ready:
            return found
        for home in ready:
            one = None
            with suppress(EOFError):
                one = home.recv()
            found[waiting.pop(home)] = one
            is_well = one is not None and not one.raised and one.skipped is None
            if not is_well and deadline is None:
                deadline = now_s() + _TO_END_S
    return found


def _raise_first(
    ended: dict[int, Ended | None], processes: Sequence[BaseProcess], job: Job
) -> None:
    """Raise the cause: a rank that is left alone only names another one."""
    __tracebackhide__ = True
    if dead := [rank for rank, one in ended.items() if one is None]:
        processes[dead[0]].join(_TO_END_S)
        how = _how_ended(processes[dead[0]].exitcode)
        raise IncompleteProfile(f"rank {dead[0]} of {job.size} died ({how}) in {job.plan.who}")
    there = {rank: one for rank, one in sorted(ended.items()) if one is not None}
    skipped = {rank: one.skipped for rank, one in there.items() if one.skipped is not None}
    raised = [(pickle.loads(one.raised), rank) for rank, one in there.items() if one.raised]
    if raised:
        error, rank = min(raised, key=lambda one: isinstance(one[0], IncompleteProfile))
        if not isinstance(error, IncompleteProfile) or not skipped:
            raise error from RankTraceback(f"\n\nrank {rank}:\n{there[rank].told}")
    if len(skipped) == job.size:
        words = next(iter(skipped.values()))
        raise NotJudged(words) if job.unmeasured else pytest.skip.Exception(words)
    for rank, why in skipped.items():
        raise IncompleteProfile(
            f"rank {rank} of {job.size} skipped {job.plan.who}, others did not: {why}"
        )


class RankTraceback(Exception):  # noqa: N818 (it is shown as the cause of another one)
    """Where a rank raised, as text."""


def _how_ended(status: int | None) -> str:
    if status is not None and status < 0:
        with suppress(ValueError):
            return signal.Signals(-status).name
        return f"signal {-status}"
    return f"exit status {status}"


def _end(processes: Sequence[BaseProcess]) -> None:
    for process in processes:
        if process.is_alive():
            process.kill()
    for process in processes:
        process.join()


class Job(NamedTuple):
    """What all ranks get.

    Attributes:
        port: of the store. gpus: those that the ranks may use, by UUID; empty for all.
        plan, limits, settings, place: of the test.
        unmeasured: why nothing is measured; empty if it is.
        work: of the first call of each rank, as the test says it.
    """

    size: int
    backend: str
    port: int
    gpus: tuple[str, ...]
    plan: Plan
    limits: tuple[Limit, ...]
    settings: Settings
    place: Place
    unmeasured: str
    work: Mapping[Rated, int]

    def test(self) -> measuring.MeasuredTest:
        """The test as each rank measures it, with a ledger of its own."""
        given = self.plan.who, self.place, self.plan.device, self.settings
        ledger = Ledger(Marks(self.limits))
        if self.work:
            ledger.say_work(self.work, Request("work", limits=("kernel_profile.work",)))
        return measuring.MeasuredTest(*given, ledger, unmeasured=self.unmeasured)


@dataclass(slots=True)
class Ended:
    """How a rank ended.

    Attributes:
        profiles: the records that it made. unfinished: requests without a record.
        unsaved: why traces were not written.
        returned: what the function returned, pickled.
        raised: what it raised, pickled; empty for nothing. told: the same with its traceback.
        skipped: why it skipped the test; None if it did not.
    """

    profiles: tuple[Profile, ...] = ()
    unfinished: tuple[Request, ...] = ()
    unsaved: tuple[str, ...] = ()
    returned: bytes = b""
    raised: bytes = b""
    told: str = ""
    skipped: str | None = None


def run_rank(rank: int, job: Job, task: bytes, home: Connection) -> None:
    """Run the function as a rank, and send how that ended."""
    ended, test = Ended(), job.test()
    try:
        if job.gpus:
            os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(job.gpus)
        fn, args, kwargs = pickle.loads(task)
        api.measure_by(partial(_measured, test, job.plan))
        with in_group(rank, job.size, job.backend, job.port):
            ended.returned = pickle.dumps(fn(*args, **kwargs))
    except pytest.skip.Exception as skipped:
        ended.skipped = str(skipped)
        leave(test.id, f"skipped: {skipped}")
    except BaseException as error:
        ended.told = "".join(traceback.format_exception(error))
        ended.raised = _pickled(error)
        leave(test.id, f"raised {type(error).__name__}: {error}")
    ended.profiles = test.ledger.judged()
    left = test.ledger.records().unfinished
    ended.unfinished = tuple(replace(one, group=None) for one in left)  # which no other process has
    ended.unsaved = tuple(test.ledger.unsaved)
    home.send(ended)
    home.close()


def _pickled(error: BaseException) -> bytes:
    try:
        pickle.loads(data := pickle.dumps(error))
    except Exception:
        return pickle.dumps(RuntimeError(f"{type(error).__name__}: {error}"))
    return data


def _measured(
    test: measuring.MeasuredTest, plan: Plan, called: str, fn: Callable[..., Any], *given: Any
) -> api.Profile:
    """``profile(fn)``, by the plan and the limits of the test, with its arguments and ranks."""
    # The function may catch what is raised here; the test reports it all the same.
    request = Request(called, remedy=measuring.IN_CALLABLE, group=given[1])
    with test.ledger.asking(request):
        api.refuse_no_callable(fn)
        measuring.measure_call(test, plan, fn, given[0], request)
    return test.ledger.last or measuring.nothing_to_look_at(test, "profile")
