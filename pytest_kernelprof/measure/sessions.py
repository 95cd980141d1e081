"""Take rounds in profiler sessions, and read their traces."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from msgspec import structs

from pytest_kernelprof.analysis.round_events import timeline_of_round
from pytest_kernelprof.analysis.session_profile import SessionFacts, session_facts
from pytest_kernelprof.errors import IncompleteProfile, ProfilerUnavailable, TraceError
from pytest_kernelprof.gpu import conditions
from pytest_kernelprof.gpu.inventory import Device
from pytest_kernelprof.measure.policy import LONG_NS
from pytest_kernelprof.profiler import operators as dispatcher
from pytest_kernelprof.profiler import torch_profiler
from pytest_kernelprof.profiler.compiled_code import WatchedCalls, code_of_graphs, together
from pytest_kernelprof.profiler.session import Recorded, Session
from pytest_kernelprof.profiler.tensors import describe
from pytest_kernelprof.profiler.trace_folder import TraceFile
from pytest_kernelprof.profiler.unprofiled_rounds import RepeatedCall
from pytest_kernelprof.records.comparison import Sampled
from pytest_kernelprof.records.profile import Timeline
from pytest_kernelprof.records.recording import Recording
from pytest_kernelprof.system import now_ns
from pytest_kernelprof.trace.columns import NO_ID
from pytest_kernelprof.trace.correlation import Reading, reading_of, repeated
from pytest_kernelprof.trace.events import InputsRead
from pytest_kernelprof.trace.reader import read_trace


class Taken(NamedTuple):
    """A session that was taken and read.

    Attributes:
        file: its trace file. reading: what was read from it, the notes beside it among that.
        facts: what follows from both. gone: as of ``Recorded``.
    """

    file: TraceFile
    reading: Reading
    facts: SessionFacts
    gone: int = 0

    @property
    def recording(self) -> Recording:
        """The notes beside the trace."""
        return self.reading.trace.recording

    def timeline(self) -> Timeline:
        """Return the round whose kernels the profile has, event by event."""
        return timeline_of_round(self.reading, self.facts.fullest)


def profile_rounds(
    repeated: RepeatedCall,
    rounds: int,
    least: int | None = None,
    *,
    stacks: bool = False,
    shapes: bool = False,
    on_long: Callable[[], None] = lambda: None,
) -> Taken:
    """Take one session of so many rounds, complete or not, warm or not. After the least number, by
    default all, a long round is the last.

    On the CPU, inputs are always recorded: they distinguish operators from ranges of their name.

    Args:
        on_long: called after a long last round, before its trace is made, which takes longer.
    """
    device = repeated.device
    with Session(device, stacks=stacks, shapes=shapes or device.kind == "cpu") as session:
        if _take(session, repeated, rounds, rounds if least is None else least):
            on_long()
    return read(session.export(), inputs="all" if shapes else "presence")


def _take(session: Session, repeated: RepeatedCall, rounds: int, least: int) -> bool:
    """Take so many rounds, or the least number where they are long; ranks begin each together.
    Returns whether the last one was long."""
    for done in range(1, rounds + 1):
        with session.setup():
            call = repeated.prepare()
        repeated.begin()
        began = now_ns()
        with session.round():
            call()
        is_long = now_ns() - began > LONG_NS
        if done == rounds or (done >= least and is_long):
            return is_long
    return False


def read(recorded: Recorded, *, inputs: InputsRead = "presence") -> Taken:
    """Read the trace of a finished session, link its events, and work out what follows.

    Args:
        inputs: how much of the recorded inputs of operators is read.

    Raises:
        IncompleteProfile: it cannot be read.
    """
    try:
        trace = read_trace(recorded.file.path, inputs=inputs)
    except TraceError as error:
        raise IncompleteProfile(f"the profiler's own trace: {error}") from error
    reading = reading_of(replace(trace, recording=recorded.recording))
    if recorded.recording.device_kind == "cpu":
        told = structs.replace(recorded.recording, **_of_the_cpu(reading, recorded.calls))
        reading = replace(reading, trace=replace(trace, recording=told))
    return Taken(recorded.file, reading, session_facts(reading), recorded.gone)


def _of_the_cpu(reading: Reading, watched: WatchedCalls | None) -> dict[str, Any]:
    """Ask what only the process that ran the operators knows about them."""
    ops = reading.trace.operators
    inside = reading.round_of_operator != NO_ID
    operators = ops.name[inside & ~ops.annotation].distinct()
    code = code_of_graphs(operators, ops.name[inside & ops.annotation].distinct())
    if watched is not None:
        code = together((code, watched.code(operators)))
    known = ops.name[~ops.annotation].distinct()
    computing = tuple(dispatcher.compute_operators(known, code.kernels))
    told = inside & ~ops.annotation & (False if ops.has_inputs is None else ops.has_inputs)
    bare, given = operators - ops.name[told].distinct(), watched.given if watched else ()
    unclear = dispatcher.unclear(operators, bare, given)
    return {
        "compute_operators": computing,
        "idle_operators": tuple(sorted(known.difference(computing))),
        "decomposing_operators": tuple(dispatcher.decomposing_operators(known)),
        "bare_operators": tuple(dispatcher.bare_operators(known)),
        "unseen": (*code.all_unseen(repeated(reading)), *unclear),
    }


def refuse_blind(device: Device, facts: SessionFacts) -> None:
    """Raise if the profiler saw nothing because it is blind: the canary kernel shows that.

    Raises:
        ProfilerUnavailable: the profiler does not see the device; the message names the cause.
    """
    if device.kind == "cuda" and not facts.activities and not torch_profiler.canary_seen():
        raise ProfilerUnavailable(torch_profiler.why_blind())


# More rounds of a call that has been measured, some now and some later.

_METRIC = "cuda_time"


@dataclass(eq=False)
class MoreRounds:
    """Takes rounds of a call now and then: ``open`` a session, ``take`` as often as wanted, then
    ``sample`` or ``leave``."""

    repeated: RepeatedCall
    _session: Session | None = field(default=None, init=False)
    _open: contextlib.ExitStack = field(default_factory=contextlib.ExitStack, init=False)

    def work(self, result: Any) -> tuple[str, ...]:
        """Describe the arguments and the result of the call, a line for each tensor."""
        call = self.repeated.prepare()
        args, kwargs = getattr(call, "args", ()), getattr(call, "keywords", {})
        return describe(args, kwargs, result)

    def why_untimed(self) -> str:
        """Return why kernels cannot be timed here; empty if they can."""
        device = self.repeated.device
        if device.kind != "cuda":
            return "on the CPU there are no kernels to time"
        return conditions.no_times(device).get(_METRIC, "")

    def open(self) -> None:
        """Open a session.

        Raises:
            KernelprofError: the profiler is not available.
        """
        device = self.repeated.device
        session = Session(device, stacks=False, shapes=device.kind == "cpu")
        self._session = self._open.enter_context(session)

    def take(self, rounds: int) -> None:
        """Take rounds now.

        Raises:
            Exception: whatever the call raises; the session is closed then.
        """
        session, self._session = self._session, None
        assert session is not None, "open"
        with self._open.pop_all() as closed_by_an_error:
            _take(session, self.repeated, rounds, rounds)
            self._session, self._open = session, closed_by_an_error.pop_all()

    def sample(self) -> Sampled:
        """Close the session, and return what its rounds took.

        Raises:
            KernelprofError: it could not be ended or read.
        """
        session, self._session = self._session, None
        assert session is not None, "open"
        self._open.close()
        return _sampled(read(session.export()))

    def leave(self) -> None:
        """Close the session unread, if one is open."""
        self._open.close()


def _sampled(taken: Taken) -> Sampled:
    profile = taken.facts.profile
    integrity, counts = profile.integrity, profile.metrics["kernels"].rounds
    if not integrity.complete:
        return Sampled(problem=f"the profile is incomplete: {'; '.join(integrity.problems)}")
    if integrity.cold or taken.recording.recompiles:
        return Sampled(problem="the code was cold")
    if len(set(counts)) > 1:
        return Sampled(problem=f"a call has {min(counts):.0f} to {max(counts):.0f} kernels")
    return Sampled(times_of(taken), _medians(taken))


def times_of(taken: Taken) -> tuple[float, ...]:
    """Return the time of the kernels of each round, in microseconds."""
    return taken.facts.profile.metrics[_METRIC].rounds


def _medians(taken: Taken) -> tuple[float, ...]:
    """Return the median of each kernel in launch order; empty if the rounds differ."""
    acts, rows = taken.reading.trace.activities, taken.reading.kernels
    names = [acts.name[one].tolist() for one in rows]
    if not rows or any(other != names[0] for other in names):
        return ()
    took = np.array([acts.end[one] - acts.start[one] for one in rows])
    return tuple((np.median(took, axis=0) / 1e3).tolist())
