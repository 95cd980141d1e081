"""Ranks that a test starts: a function runs on each, in a process of its own; what it profiles with
``pytest_kernelprof.profile`` comes home and is judged, what it raises is raised here."""

from __future__ import annotations

import os
import pickle
import signal
from contextlib import ExitStack
from dataclasses import replace
from multiprocessing import connection, get_context
from typing import TYPE_CHECKING, Any

import pytest

from pytest_kernelprof.capture.agreement import hosted_store
from pytest_kernelprof.clock import now_s
from pytest_kernelprof.device.allocation import several_gpus
from pytest_kernelprof.device.procfs import note_ours
from pytest_kernelprof.errors import CannotMeasureError, IncompleteProfile, MarkerError, NotJudged
from pytest_kernelprof.plugin.ledger import Asked
from pytest_kernelprof.plugin.measuring import nothing_to_look_at
from pytest_kernelprof.plugin.places import place_of_call
from pytest_kernelprof.plugin.rank_process import Ended, Job, run_rank
from pytest_kernelprof.schema import codec
from pytest_kernelprof.schema.run import Place, Profile
from pytest_kernelprof.summary.words import line_words
from pytest_kernelprof.units import whole_number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from multiprocessing.process import BaseProcess

    from pytest_kernelprof.plugin.measuring import MeasuredTest

_TO_END_S = 5.0
"""How long the other ranks may take when one has failed: they end by themselves, and name it."""


class Ranks:
    """So many ranks of ``torch.distributed`` on this machine, for one function."""

    def __init__(self, test: MeasuredTest, number: object, backend: str | None) -> None:
        try:
            self._number = whole_number(number)
        except ValueError as error:
            raise MarkerError(f"kernel_profile.ranks({number!r}): {error}") from None
        self._test = test
        self._backend = backend or ("nccl" if test.device == "cuda" else "gloo")

    def run(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> list[Any]:
        """Run ``fn(*args, **kwargs)`` on each rank; what it returns, by rank.

        In each process ``torch.distributed`` is initialised and, with NCCL, the rank's GPU is the
        current one. What ``fn`` hands to ``pytest_kernelprof.profile`` is profiled on all ranks
        together, by the limits and options of this test, and is a profile of this test.

        Raises:
            CannotMeasureError: ``fn``, its arguments or what it returns cannot be pickled.
            IncompleteProfile: a rank died, or there are not so many free GPUs.
            BaseException: what a rank raised, its traceback as text in the cause.
        """
        __tracebackhide__ = True
        test, place = self._test, place_of_call(self._test.place)
        if test.unmeasured and self._backend == "nccl":
            test.ledger.leave_out(test.unmeasured)
            nothing_to_look_at(test, "GPU for a rank")
        with test.ledger.asking(asked_ranks(place)):
            ended = self._ended(fn, args, kwargs)
            for record in _of_first_ranks(ended):
                test.ledger.keep_record(record, place)
            for rank, one in enumerate(ended):
                for asked in one.unfinished:  # of which only the rank heard
                    test.ledger.ask(replace(asked, what=f"{asked.what} on rank {rank}"))
        return [pickle.loads(one.returned) for one in ended]

    def _ended(self, fn: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[Ended]:
        __tracebackhide__ = True
        test, folder = self._test, self._test.settings.trace_dir
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
                test=test.id,
                limit_s=test.settings.rank_timeout,
                trace_dir=folder and os.path.abspath(folder),
                unmeasured=test.unmeasured,
            )
            return _run(job, task)


def asked_ranks(place: Place) -> Asked:
    """What ``kernel_profile.ranks(n).run(fn)`` asks for."""
    remedy = "catch expected exceptions inside the function"
    return Asked(f"kernel_profile.ranks at {line_words(place)}", remedy)


def _run(job: Job, task: bytes) -> Sequence[Ended]:
    """Start the ranks and wait for all; whatever happens, none is left.

    Raises:
        BaseException: what one has raised.
        IncompleteProfile: one has died.
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
    """What each rank sent home; None of one that died. When one has failed, the others have a
    moment."""
    found: dict[int, Ended | None] = {}
    waiting = dict(homes)
    deadline: float | None = None
    while waiting:
        left = None if deadline is None else max(0.0, deadline - now_s())
        ready: list[Any] = list(connection.wait(list(waiting), left))
        if not ready:
            return found
        for home in ready:
            one = found[waiting.pop(home)] = _received(home)
            is_well = one is not None and one.raised is None and one.skipped is None
            if not is_well and deadline is None:
                deadline = now_s() + _TO_END_S
    return found


def _received(home: Any) -> Ended | None:
    try:
        ended: Ended = home.recv()
    except EOFError:
        return None
    return ended


def _raise_first(
    ended: dict[int, Ended | None], processes: Sequence[BaseProcess], job: Job
) -> None:
    """Raise what is the cause: a rank that is left alone only names another one."""
    __tracebackhide__ = True
    dead = [rank for rank, one in ended.items() if one is None]
    if dead:
        processes[dead[0]].join(_TO_END_S)
        how = _how_ended(processes[dead[0]].exitcode)
        raise IncompleteProfile(f"rank {dead[0]} of {job.size} died ({how}) in {job.test}")
    skipped = {
        rank: one.skipped
        for rank, one in sorted(ended.items())
        if one is not None and one.skipped is not None
    }
    raised = [
        (rank, pickle.loads(one.raised), one.told)
        for rank, one in sorted(ended.items())
        if one is not None and one.raised is not None
    ]
    if raised:
        rank, error, told = min(raised, key=lambda one: isinstance(one[1], IncompleteProfile))
        if not isinstance(error, IncompleteProfile) or not skipped:
            raise error from RankTraceback(f"\n\nrank {rank}:\n{told}")
    if len(skipped) == job.size:
        words = next(iter(skipped.values()))
        raise NotJudged(words) if job.unmeasured else pytest.skip.Exception(words)
    for rank, why in skipped.items():
        raise IncompleteProfile(
            f"rank {rank} of {job.size} skipped {job.test}, others did not: {why}"
        )


class RankTraceback(Exception):  # noqa: N818 (it is shown as the cause of another one)
    """Where a rank raised, as text."""


def _how_ended(status: int | None) -> str:
    if status is not None and status < 0:
        try:
            return signal.Signals(-status).name
        except ValueError:
            return f"signal {-status}"
    return f"exit status {status}"


def _end(processes: Sequence[BaseProcess]) -> None:
    for process in processes:
        if process.is_alive():
            process.kill()
    for process in processes:
        process.join()


def _of_first_ranks(ended: Sequence[Ended]) -> Iterator[Profile]:
    """Each call once: of its lowest rank, with the others in it."""
    for one in ended:
        for data in one.profiles:
            record = codec.decode(data, Profile)
            if record.rank in (None, record.ranks[0].rank):
                yield record
