"""A rank that ``kernel_profile.ranks`` has started: joins the others, runs the function, and sends
home what that took, returned or raised."""

from __future__ import annotations

import contextlib
import os
import pickle
import traceback
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from pytest_kernelprof import api
from pytest_kernelprof.capture.agreement import agreeing, in_group, leave
from pytest_kernelprof.capture.torch_profiler import held_by
from pytest_kernelprof.limits.evaluate import evaluate
from pytest_kernelprof.measure.arguments import Arguments, preparer
from pytest_kernelprof.measure.runner import Measurement, measure
from pytest_kernelprof.plugin.ledger import Asked, with_lines_if
from pytest_kernelprof.report.files import trace_path
from pytest_kernelprof.schema import codec
from pytest_kernelprof.trace.trace_text import write_trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.connection import Connection

    from pytest_kernelprof.limits.kinds import Limit
    from pytest_kernelprof.measure.policy import Plan
    from pytest_kernelprof.schema import run


@dataclass(frozen=True, slots=True)
class Job:
    """What all ranks are told.

    Attributes:
        port: of the store. gpus: those that they may use, by UUID; empty for all.
        plan, limits: of the test, of that name. limit_s: how long a rank is waited for.
        trace_dir: where traces are written; None where they are not.
        unmeasured: why nothing is measured; empty where it is.
    """

    size: int
    backend: str
    port: int
    gpus: tuple[str, ...]
    plan: Plan
    limits: tuple[Limit, ...]
    test: str
    limit_s: float
    trace_dir: str | None
    unmeasured: str


@dataclass(slots=True)
class Ended:
    """What became of a rank.

    Attributes:
        profiles: the records that it took. unfinished: what it asked for beside these.
        returned: what the function returned, pickled.
        raised: what it raised, pickled; None where nothing. told: that with its traceback.
        skipped: why it skipped the test; None where it did not.
    """

    profiles: list[bytes] = field(default_factory=list)
    unfinished: list[Asked] = field(default_factory=list)
    returned: bytes = b""
    raised: bytes | None = None
    told: str = ""
    skipped: str | None = None


def run_rank(rank: int, job: Job, task: bytes, home: Connection) -> None:
    """Be a rank, to the end."""
    ended = Ended()
    try:
        if job.gpus:
            os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(job.gpus)
        fn, args, kwargs = pickle.loads(task)
        with (
            api.measured_by(partial(_measured, job, ended)),
            in_group(rank, job.size, job.backend, job.port),
        ):
            ended.returned = pickle.dumps(fn(*args, **kwargs))
    except pytest.skip.Exception as skipped:
        ended.skipped = str(skipped)
        leave(job.test, f"skipped: {skipped}")
    except BaseException as error:
        ended.told = "".join(traceback.format_exception(error))
        ended.raised = _pickled(error)
        leave(job.test, f"raised {type(error).__name__}: {error}")
    home.send(ended)
    home.close()


def _pickled(error: BaseException) -> bytes:
    try:
        pickle.loads(data := pickle.dumps(error))
    except Exception:
        return pickle.dumps(RuntimeError(f"{type(error).__name__}: {error}"))
    return data


def _measured(
    job: Job, ended: Ended, called: str, fn: Callable[..., Any], given: Arguments, ranks: object
) -> api.Profile:
    """``profile(fn)``, by the plan and the limits of the test."""
    if job.unmeasured:
        preparer(fn, given)()()
        pytest.skip(f"{job.unmeasured}; there is no profile to look at")
    with (
        _asking(ended, called),
        held_by(called),
        agreeing(called, test=job.test, group=ranks, limit_s=job.limit_s) as agreement,
    ):
        api.refuse_no_callable(fn)
        agreement.gather("profile", None)
        judge = partial(_verdicts, job.limits)
        _, found = measure(fn, job.plan, given, judge=judge, agreement=agreement)
        over = any(one.outcome == "failed" for one in judge(found.profile))
        record = with_lines_if(over, found)
    ended.profiles.append(codec.encode(record))
    _save(job, found, len(ended.profiles))
    return api.Profile.of(found)


@contextlib.contextmanager
def _asking(ended: Ended, called: str) -> Iterator[None]:
    """The function may catch what is raised here; the test hears of it."""
    asked = Asked(called, "catch expected exceptions inside the callable")
    ended.unfinished.append(asked)
    try:
        yield
    except BaseException as error:
        asked.raised = type(error).__name__
        raise
    ended.unfinished.remove(asked)


def _verdicts(limits: tuple[Limit, ...], profile: run.Profile) -> tuple[run.Verdict, ...]:
    return tuple(evaluate(profile, limits))


def _save(job: Job, found: Measurement, number: int) -> None:
    if job.trace_dir is not None:
        path = trace_path(job.trace_dir, job.test, number, "", found.profile.rank)
        write_trace(found.file.path, found.recording, path)
