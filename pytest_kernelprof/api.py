"""The API without pytest: ``profile(fn)`` and the ``Profile`` that it returns."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from msgspec import structs

from pytest_kernelprof.errors import CannotMeasureError, IncompleteProfile, TraceError
from pytest_kernelprof.records import profile as records
from pytest_kernelprof.records.recording import (
    NOTHING_NOTED,
    Conditions,
    DeviceKind,
    Environment,
    Integrity,
    Origin,
    Recording,
)
from pytest_kernelprof.units import name_of, whole_number

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_kernelprof.measure.arguments import Arguments
    from pytest_kernelprof.measure.runner import Measurement
    from pytest_kernelprof.trace.correlation import Reading

_NO_KERNELS = (
    "{}: no kernels in {}, so limits would pass on nothing. Record the process that launches them, "
    "with ProfilerActivity.CUDA or XPU (see docs/reference.md#recorded-traces)"
)
_loaded = [0]

_Part = tuple[int | None, int | None]
"""A process and a step of a trace, as of ``Profile.load``."""


def traces_loaded() -> int:
    """Return how many traces this process has loaded so far."""
    return _loaded[0]


class Profile:
    """What one measurement recorded. Made by ``profile(fn)``, the fixture, or
    ``Profile.from_trace(path)``.

    Every metric is in ``metrics`` under its name and, except ``kernels``, an attribute:
    ``profile.launches``, ``profile.cuda_time``, ... (None if it is not available;
    ``metrics[name].why`` says why). ``kernels`` is the tuple of kernels in launch order and
    ``kernel_count`` their number.

    Attributes:
        record: the whole profile as one record, from which reports are made.
        origin: for a trace that was read, the runtime that recorded it (CUDA, ROCm, XPU, ...) and
            how many processes and devices it has; None for a measurement of this process.
    """

    def __init__(
        self,
        record: records.Profile,
        *,
        trace: str = "",
        recording: Recording = NOTHING_NOTED,
        keeps: object = None,
        origin: Origin | None = None,
        part: _Part | None = None,
        no_kernels: str = "",
        no_trace: str = "",
        max_bytes: int = 8_000_000_000,
    ) -> None:
        """Use ``profile(fn)``, the fixture or ``from_trace`` instead.

        Args:
            trace: the trace file. recording: the notes beside it.
            keeps: an object that must live as long as the profile, such as its trace file.
            origin: the runtime of the trace file.
            part: the process and the step that it is of, as of ``load``; None for all of the
                trace.
            no_kernels: why kernels, copies and waits were dropped; empty if they were not.
            no_trace: likewise, for the trace file.
            max_bytes: the largest size of the trace file when unpacked.
        """
        self.record = record
        self._trace = trace
        self._recording = recording
        self._keeps = keeps
        self.origin = origin
        self._part = part
        self._no_kernels = no_kernels
        self._no_trace = no_trace
        self._max_bytes = max_bytes

    @classmethod
    def from_trace(cls, path: str | os.PathLike[str], *, max_bytes: int = 8_000_000_000) -> Profile:
        """Read a Chrome trace, plain or gzip, of ours or of another tool; see ``origin``.

        Args:
            max_bytes: refuse a file that is larger when unpacked: now, and in
                ``kernels_of_rounds`` and ``save_trace``, which read it again.

        Raises:
            TraceError: the file cannot be read as a trace.
        """
        return cls._read(path, max_bytes, None)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        process: int | None = None,
        step: int | None = None,
        max_bytes: int = 8_000_000_000,
    ) -> Profile:
        """Read one process and one step of a Chrome trace, for limits to judge.

        Args:
            process: its position in the file, from 0.
            step: N of ``ProfilerStep#N``, the ranges of torch.profiler's schedule. What the host
                launched in it counts, on any thread.
            max_bytes: as of ``from_trace``.

        Raises:
            TraceError: the file cannot be read as a trace or has no kernels there; it has several
                processes or steps and none is chosen, or not this one. The message lists them.
        """
        found = cls._read(path, max_bytes, (process, step))
        is_empty = found.metrics["kernels"].value == 0 or found.device_kind == "cpu"
        if is_empty and not found._recording.schema:
            where = "the trace" if step is None else f"step {step}"
            raise TraceError(_NO_KERNELS.format(os.fspath(path), where))
        return found

    @classmethod
    def _read(cls, path: str | os.PathLike[str], max_bytes: int, part: _Part | None) -> Profile:
        from pytest_kernelprof.analysis.session_profile import profile_of, session_facts
        from pytest_kernelprof.trace.correlation import part_of, reading_of
        from pytest_kernelprof.trace.reader import read_trace
        from pytest_kernelprof.trace.vocabulary import origin_of

        trace = read_trace(path, max_bytes=max_bytes)
        facts = session_facts(part_of(trace, *part) if part else reading_of(trace))
        record = structs.replace(profile_of(facts, trace.recording), loaded=part is not None)
        _loaded[0] += 1
        return cls(
            record,
            trace=os.path.abspath(trace.source),
            recording=trace.recording,
            origin=origin_of(trace),
            part=part,
            max_bytes=max_bytes,
        )

    @classmethod
    def of(cls, measurement: Measurement) -> Profile:
        """Return the profile of a measurement; it keeps the trace file."""
        file = measurement.file
        return cls(
            measurement.profile, trace=file.path, recording=measurement.recording, keeps=file
        )

    @property
    def label(self) -> str:
        """The name of the profile in its test (a region's name); empty for the only one."""
        return self.record.label

    @property
    def device_kind(self) -> DeviceKind:
        """Either "cuda" or "cpu"."""
        return self.record.environment.kind

    @property
    def environment(self) -> Environment:
        """The device and the software around it."""
        return self.record.environment

    @property
    def rounds(self) -> int:
        """How many calls were profiled in the session that the kernels are of, as many as
        ``kernels_of_rounds`` has. A metric has the rounds of later sessions, too."""
        return self.record.rounds

    @property
    def integrity(self) -> Integrity:
        """Whether the profile is complete, and what is missing if not."""
        return self.record.integrity

    @property
    def kernel_count(self) -> int:
        """Number of kernels of one call; the largest if rounds differ."""
        return self.record.kernel_count

    @property
    def kernels(self) -> tuple[records.Kernel, ...]:
        """The kernels of one call in launch order, from the round that had most of them.

        Raises:
            IncompleteProfile: they were dropped, as the test took very many profiles.
        """
        return self._whole().kernels

    @property
    def collectives(self) -> tuple[records.Collective, ...]:
        """The communication kernels of one call, in launch order."""
        return self.record.collectives

    @property
    def ranks(self) -> tuple[records.Profile, ...]:
        """The records of all ranks, by number, if the call ran on several; else this one's."""
        return self.record.ranks

    @property
    def variants(self) -> tuple[tuple[records.Kernel, ...], ...]:
        """The different sequences of kernels among the rounds, by name and operators; ``kernels``
        comes first, and is nearly always the only one."""
        record = self._whole()
        return (record.kernels, *record.variants)

    def kernels_of_rounds(self) -> tuple[tuple[records.Kernel, ...], ...]:
        """Read the kernels of each profiled round from the trace again, in launch order and without
        source lines. A large trace takes long.

        Raises:
            IncompleteProfile: the trace was dropped, as the test took very many profiles.
        """
        from pytest_kernelprof.analysis.session_profile import kernels_of_rounds

        return kernels_of_rounds(self._read_again())

    def timeline(self) -> records.Timeline:
        """Read one round from the trace again, event by event: the one that the kernels are of.

        Raises:
            IncompleteProfile: the trace was dropped, as the test took very many profiles.
        """
        from pytest_kernelprof.analysis.round_events import timeline_of_round
        from pytest_kernelprof.analysis.session_profile import session_facts

        reading = self._read_again()
        return timeline_of_round(reading, session_facts(reading).fullest)

    def _read_again(self) -> Reading:
        from dataclasses import replace

        from pytest_kernelprof.trace.correlation import part_of, reading_of
        from pytest_kernelprof.trace.reader import read_trace

        trace = read_trace(self._whole_trace(), max_bytes=self._max_bytes)
        trace = replace(trace, recording=self._recording)
        return part_of(trace, *self._part) if self._part else reading_of(trace)

    @property
    def copies(self) -> tuple[records.Copy, ...]:
        """The memory copies of one call in order; none on the CPU."""
        return self._whole().copies

    @property
    def waits(self) -> tuple[records.Wait, ...]:
        """The waits of the host for the device in one call, in order; on the CPU, the reads of a
        tensor's value that would wait on a GPU."""
        return self._whole().waits

    @property
    def metrics(self) -> dict[str, records.Metric]:
        """All metrics by name."""
        return self.record.metrics

    @property
    def bound(self) -> records.Bound:
        """What limits the call, with the reason in words."""
        return self.record.bound

    @property
    def gaps(self) -> records.Gaps:
        """Why the device was idle between the activities of each round; none on the CPU."""
        return self.record.gaps

    @property
    def host_shares(self) -> records.HostShares | None:
        """How the host spent its time in the profiled rounds: dispatch, launch calls, waiting. None
        on the CPU and for traces without our rounds."""
        return self.record.host_shares

    @property
    def conditions(self) -> Conditions:
        """The state of the GPU while it was timed; unknown if it was not timed."""
        return self.record.conditions

    def __getattr__(self, name: str) -> float | None:
        if name.startswith("_") or name == "record":
            raise AttributeError(name)
        try:
            return self.record.metrics[name].value
        except KeyError:
            raise AttributeError(
                f"a Profile has no attribute or metric {name!r}; metrics: {', '.join(self.metrics)}"
            ) from None

    def __repr__(self) -> str:
        from pytest_kernelprof.summary import wording

        state = "complete" if self.integrity.complete else "INCOMPLETE"
        place = wording.machine(self.environment)
        return f"<Profile {self.label or ''}: {self.kernel_count} kernels, {state}, {place}>"

    def table(self, width: int = 100) -> str:
        """Return the kernels of one call as a text table: name, operators, source line, time."""
        from pytest_kernelprof.report.kernel_tables import kernel_table
        from pytest_kernelprof.report.tables import Style

        return "\n".join(kernel_table(self._whole()).lines(Style(width)))

    def save_trace(self, path: str | os.PathLike[str]) -> None:
        """Write the Chrome trace (gzip if the name ends in ``.gz``), with our notes beside the
        events, so that ``from_trace`` returns this profile. Of a trace that was read, all of it.

        Raises:
            IncompleteProfile: the trace was dropped, as the test took very many profiles.
            OSError: it cannot be written.
        """
        from pytest_kernelprof.trace.trace_text import write_trace

        write_trace(self._whole_trace(), self._recording, path, max_bytes=self._max_bytes)

    def _whole_trace(self) -> str:
        if self._no_trace:
            raise IncompleteProfile(self._no_trace)
        return self._trace

    def _whole(self) -> records.Profile:
        if self._no_kernels:
            raise IncompleteProfile(self._no_kernels)
        return self.record


_measured_by: list[Callable[[str, Callable[..., Any], Arguments, object], Profile]] = []


def measure_by(measures: Callable[[str, Callable[..., Any], Arguments, object], Profile]) -> None:
    """Let ``profile`` measure by this function from now on: in a process that a test started, by
    the options of the test. Its arguments are the call in words, the callable, the callable's
    arguments and the ranks."""
    _measured_by.append(measures)


def profile(
    fn: Callable[..., Any],
    *args: Any,
    device: DeviceKind | None = None,
    rounds: int = 12,
    ranks: object = None,
    **kwargs: Any,
) -> Profile:
    """Warm up, profile and measure ``fn(*args, **kwargs)`` without pytest.

    Args:
        device: "cuda" or "cpu"; by default "cuda" where there is a usable GPU.
        rounds: profiled rounds, and as many unprofiled ones for host times.
        ranks: the ranks of ``torch.distributed`` that make this call, as a group or as numbers; by
            default all, if it is initialised.

    Raises:
        IncompleteProfile: the profile is incomplete, or a rank did not come.
        MarkerError: ``ranks`` are malformed, or this rank is not one of them.
        CannotMeasureError: a TypeError; ``fn`` is no callable, or returns a generator or coroutine.
        ValueError: ``device`` or ``rounds`` is none of the above.
    """
    from pytest_kernelprof.measure.arguments import Arguments

    called = f"profile({name_of(fn)})"
    if _measured_by:
        return _measured_by[-1](called, fn, Arguments(args, kwargs), ranks)
    refuse_no_callable(fn)
    try:
        rounds = whole_number(rounds)
    except ValueError as error:
        raise ValueError(f"rounds={rounds!r}: {error}") from None
    if device not in (None, "cuda", "cpu"):
        raise ValueError(f'device={device!r}: expected "cuda", "cpu" or None')
    from pytest_kernelprof.distributed.agreement import agreeing
    from pytest_kernelprof.gpu.inventory import usual_kind
    from pytest_kernelprof.measure.policy import EVERYTHING, plan_of, require_complete
    from pytest_kernelprof.measure.runner import measure
    from pytest_kernelprof.profiler.torch_profiler import held_by

    plan = plan_of(device or usual_kind(), EVERYTHING, rounds=rounds)
    with held_by("pytest_kernelprof.profile"), agreeing(called, group=ranks) as agreement:
        agreement.gather("profile", None)  # all ranks came; what follows may take longer on one
        _, measurement = measure(fn, plan, Arguments(args, kwargs), agreement=agreement)
    require_complete(measurement.profile)
    return Profile.of(measurement)


def refuse_no_callable(fn: object, who: str = "profile", does: str = "takes") -> None:
    """Raise CannotMeasureError unless the object can be called.

    Args:
        who: what it was given to. does: what that does with a callable.
    """
    if not callable(fn):
        raise CannotMeasureError(
            f"{who} {does} a callable, got {type(fn).__name__}; write {who}(fn, *args), not "
            f"{who}(fn(*args))"
        )
