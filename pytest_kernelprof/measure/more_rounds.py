"""More rounds of a call that has been measured: in one session, some now and some later."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_kernelprof.analysis.round_events import kernel_rows
from pytest_kernelprof.capture.tensors import describe
from pytest_kernelprof.measure import sessions
from pytest_kernelprof.schema.comparison import Sampled
from pytest_kernelprof.trace.correlation import reading_of

if TYPE_CHECKING:
    from pytest_kernelprof.device.inventory import Device
    from pytest_kernelprof.measure.arguments import Prepare
    from pytest_kernelprof.measure.sessions import OpenSession, Taken

_METRIC = "cuda_time"


@dataclass(frozen=True, slots=True, eq=False)
class MoreRounds:
    """A call, with all that a round of it needs.

    Attributes:
        prepare: hands back the next call, its arguments ready.
        flush_l2: whether the L2 cache is flushed before each round.
    """

    device: Device
    prepare: Prepare
    flush_l2: bool

    def work(self, result: Any) -> tuple[str, ...]:
        """The arguments and the result of the call, a line for each tensor."""
        call = self.prepare()
        args, kwargs = getattr(call, "args", ()), getattr(call, "keywords", {})
        return describe(args, kwargs, result)

    def why_untimed(self) -> str:
        """Why kernels cannot be timed here; empty where they can."""
        return why_untimed(self.device)

    def series(self) -> Series:
        """Rounds that are taken now and then."""
        return Series(self)


class Series:
    """Rounds of a call: ``open``, ``take`` as often as wanted, ``close``, ``sample``."""

    def __init__(self, call: MoreRounds) -> None:
        self._call = call
        self._session: OpenSession | None = None

    def open(self) -> None:
        """Open a session.

        Raises:
            KernelprofError: the profiler is not available.
        """
        call = self._call
        opened = sessions.OpenSession(call.device, call.prepare, flush_l2=call.flush_l2)
        self._session = opened.__enter__()

    def take(self, rounds: int) -> None:
        """Take rounds now.

        Raises:
            Exception: whatever the call raises; the session is closed then.
        """
        assert self._session is not None, "open"
        try:
            self._session.take(rounds)
        except BaseException as error:
            session, self._session = self._session, None
            session.__exit__(type(error), error, error.__traceback__)
            raise

    def sample(self) -> Sampled:
        """Close the session; what its rounds took.

        Raises:
            KernelprofError: it could not be ended or read.
        """
        session, self._session = self._session, None
        assert session is not None, "open"
        session.__exit__(None, None, None)
        return _sampled(session.read())

    def leave(self) -> None:
        """Close the session, if one is open; nobody wants what it has."""
        session, self._session = self._session, None
        if session is not None:
            session.__exit__(None, None, None)


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
    """What the kernels of each round took, in microseconds."""
    return taken.facts.profile.metrics[_METRIC].rounds


def why_untimed(device: Device) -> str:
    """Why kernels cannot be timed on a device; empty where they can."""
    from pytest_kernelprof.device.conditions import no_times

    if device.kind != "cuda":
        return "on the CPU there are no kernels to time"
    return no_times(device).get(_METRIC, "")


def _medians(taken: Taken) -> tuple[float, ...]:
    """Of each kernel, in launch order, the median over the rounds; none where rounds differ."""
    reading = reading_of(taken.trace)
    acts, rows = reading.trace.activities, kernel_rows(reading)
    names = [acts.name[one].tolist() for one in rows]
    if not rows or any(other != names[0] for other in names):
        return ()
    took = np.array([acts.end[one] - acts.start[one] for one in rows])
    return tuple((np.median(took, axis=0) / 1e3).tolist())
