"""The conductor: warms up, profiles, times, samples on while undecided, hands back a Profile."""

from __future__ import annotations

import contextlib
import functools
import itertools
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from pytest_kernelprof.analysis.profile import Profile
from pytest_kernelprof.device.conditions import LOCK_TIMEOUT_S, Quiet, quiet, unwatched
from pytest_kernelprof.measure import taking
from pytest_kernelprof.measure.lines import frames_of_kernels, with_lines_of_another_run
from pytest_kernelprof.measure.policy import next_rounds
from pytest_kernelprof.measure.progress import no_progress
from pytest_kernelprof.units import whole_number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pytest_kernelprof.device.inventory import Device, DeviceKind
    from pytest_kernelprof.measure.policy import Needs
    from pytest_kernelprof.measure.progress import Progress
    from pytest_kernelprof.measure.taking import Prepare
    from pytest_kernelprof.schema.recording import HostTimings

TIMED_ROUNDS = 12
_MEMORY_ROUNDS = 2
_OF_THE_DEVICE = frozenset(
    {"kernels", "launches", "memsets", "syncs", "cuda_time", "gpu_busy", "gpu_span", "gpu_idle"}
)


@dataclass(frozen=True, slots=True)
class Plan:
    """How much to measure.

    Attributes:
        device: "cuda" or "cpu".
        warmup: calls before the first profiled one; more follow until the code is warm.
        rounds: profiled calls in one session.
        host_rounds: unprofiled calls for host times; 0 measures none.
        memory: whether to watch memory in unprofiled calls.
        flush_l2: whether the L2 cache is flushed before each timed call.
        stacks: whether Python frames are recorded.
        roofline: whether shapes are recorded, for the work behind each kernel, where the device is
            the limit.
        lock_timeout_s: how long to wait for another process that times on the same GPU.
        who: what that process is told of this one, a test for example.
    """

    device: DeviceKind
    warmup: int = 1
    rounds: int = taking.EXACT_ROUNDS
    host_rounds: int = 0
    memory: bool = False
    flush_l2: bool = True
    stacks: bool = False
    roofline: bool = False
    lock_timeout_s: float = LOCK_TIMEOUT_S
    who: str = ""

    @property
    def timed(self) -> bool:
        """Whether any time is measured: that wants the GPU alone, and a cold L2."""
        return self.rounds > taking.GRAPH_ROUNDS or self.host_rounds > 0


@dataclass(frozen=True, slots=True)
class Measurement:
    """A profile and what it took.

    Attributes:
        retakes: sessions that were incomplete and taken again; none for one-shot captures.
        settled: whether the code became warm; False leaves cold records in the profile.
        attribute: profiles the call once more to learn the source line of each kernel; None
            where the call cannot be run again.
    """

    profile: Profile
    retakes: int
    settled: bool
    attribute: Callable[[], Profile] | None = None


def measure(
    call: Callable[..., Any],
    plan: Plan,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    setup: Callable[[], tuple[Sequence[Any], Mapping[str, Any]] | Sequence[Any]] | None = None,
    label: str = "",
    needs: Callable[[Profile], Needs] | None = None,
    progress: Progress = no_progress,
) -> tuple[Any, Measurement]:
    """Warm up, profile and measure a callable; the first call's result comes first.

    ``needs`` says what the verdicts on the profile still need: sampling goes on until that is
    nothing, or until there are 96 rounds. ``progress`` is told of each round, outside of what is
    timed.

    Raises:
        IncompleteProfile: the profiler is not available or did not see everything in three
            tries and what it saw is nothing to judge by. Profiles that are incomplete are handed
            back with their ``integrity`` saying so: a limit that they violate is violated.
            GpuBusy, a kind of it: another process kept the GPU's lock.
        TypeError: the callable returned a generator or coroutine, whose body has not run.
        Exception: whatever the callable raises; the profiler is closed then.
    """
    from pytest_kernelprof.capture.mutation import changed, versions
    from pytest_kernelprof.capture.session import refuse_to_nest
    from pytest_kernelprof.device.inventory import current_device

    device = current_device(plan.device)
    refuse_to_nest()
    cupti = taking.prime(device)
    prepare = taking.preparer(call, args, kwargs or {}, setup)
    before = versions(args, kwargs or {})
    result = taking.first_call(prepare)
    in_place = changed(before, versions(args, kwargs or {})) if setup is None else []
    for done in range(1, plan.warmup):
        progress("warming up", done, plan.warmup)
        prepare()()
    alone = quiet(device, plan.lock_timeout_s, plan.who) if plan.timed else unwatched()
    with alone as gpu:
        rounds = _Rounds(device, plan, prepare, setup is not None, cupti, gpu, label, progress)
        profile, retakes, settled = rounds.profiled(plan.rounds)
        profile = profile.with_recording(rounds.unprofiled())
        if needs is not None:
            profile = _sample_on(profile, rounds, needs)
        if plan.roofline and profile.bound.verdict == "gpu":  # its memory, or its arithmetic?
            profile = profile.with_recording({"roofline": rounds.roofline()})
    conditions = gpu.conditions().plain()
    profile = profile.with_recording({"conditions": conditions, "in_place": in_place})
    attribute = functools.partial(with_lines_of_another_run, profile, device, prepare)
    return result, Measurement(profile, retakes, settled, attribute)


@contextlib.contextmanager
def measure_once(plan: Plan, label: str = "") -> Iterator[list[Measurement]]:
    """Profile a block as it stands, once: no warm-up, no second try. The measurement is in the
    list after the block."""
    from pytest_kernelprof.capture.host_timing import compilations
    from pytest_kernelprof.capture.session import Session
    from pytest_kernelprof.device.inventory import current_device

    device = current_device(plan.device)
    taking.prime(device)
    found: list[Measurement] = []
    before = compilations()
    session = Session(device, stacks=plan.stacks)
    with session, session.round():
        yield found
    recording = session.recording()
    noted = {"recompiles": compilations() - before, "one_shot": True}
    profile = taking.read(device, recording, label, noted)
    if plan.stacks:
        profile = profile.with_lines(frames_of_kernels(profile))
    taking.refuse_blind(device, profile)
    found.append(Measurement(profile, 0, not profile.integrity.cold))


@dataclass(frozen=True, slots=True)
class _Rounds:
    """The ways to take rounds of one callable."""

    device: Device
    plan: Plan
    prepare: Prepare
    fresh_arguments: bool
    cupti: Mapping[str, Any]
    gpu: Quiet
    label: str
    progress: Progress

    def profiled(self, rounds: int, reason: str = "") -> tuple[Profile, int, bool]:
        """A session of so many rounds, and again until it is sound."""
        plan = self.plan
        once = functools.partial(
            taking.profile_until_sound,
            self.device,
            self.prepare,
            rounds,
            flush_l2=plan.flush_l2 and rounds > taking.GRAPH_ROUNDS,
            stacks=plan.stacks,
            label=self.label,
            progress=self.progress,
            reason=reason,
        )
        return self.gpu.take(rounds, once)

    def host_timings(self, rounds: int, reason: str = "") -> HostTimings:
        """Times of so many unprofiled calls, with what an attached CUPTI costs beside them."""
        from pytest_kernelprof.capture.host_timing import L2Flush, time_calls

        flush = L2Flush(self.device) if self.plan.flush_l2 else _nothing
        once = functools.partial(
            time_calls,
            self.device,
            self._told("timing", rounds, reason),
            rounds,
            flush=flush,
            fresh_arguments=self.fresh_arguments,
        )
        timings = self.gpu.take(rounds, once)
        return replace(timings, **self.cupti) if self.cupti else timings

    def unprofiled(self) -> dict[str, Any]:
        """What calls without the profiler tell, as plain data for the recording."""
        from pytest_kernelprof.capture.host_timing import watch_memory

        noted: dict[str, Any] = {}
        if self.plan.memory:
            told = self._told("watching memory", _MEMORY_ROUNDS)
            memory = watch_memory(self.device, told, _MEMORY_ROUNDS)
            if memory is not None:
                noted["memory"] = asdict(memory)
            elif self.device.kind == "cuda":
                noted["memory_why"] = (
                    "could not be had: the allocator keeps no history to read (another allocator "
                    "than the native one, or a memory history that is already being recorded)"
                )
        if self.plan.host_rounds:
            noted["host_timings"] = asdict(self.host_timings(self.plan.host_rounds))
        return noted

    def roofline(self) -> dict[str, Any]:
        """Which roof limits the call and why, from one more session that records shapes."""
        from pytest_kernelprof.analysis.roofline.model import rates, roofline_of, work_of
        from pytest_kernelprof.analysis.roofline.peaks import peaks_of

        shaped = taking.profile_rounds(
            self.device, self.prepare, 1, flush_l2=self.plan.flush_l2, shapes=True, label=self.label
        )
        kernels, peaks = shaped.kernels, peaks_of(self.device.name)
        works = work_of(
            shaped.trace,
            shaped.links,
            shaped.operators_of("kernel"),
            [kernel.name for kernel in kernels],
        )
        found = rates(works, [kernel.duration_us for kernel in kernels], peaks)
        busy = shaped.metrics["gpu_busy"].value or 0.0
        return asdict(roofline_of(found, busy, peaks))

    def _told(self, what: str, rounds: int, reason: str = "") -> Prepare:
        """``prepare``, which runs before each round and outside the clock, that tells of it."""
        done = itertools.count()

        def prepare_and_tell() -> Callable[[], Any]:
            self.progress(what, min(next(done), rounds), rounds, reason)
            return self.prepare()

        return prepare_and_tell


def _sample_on(profile: Profile, rounds: _Rounds, needs: Callable[[Profile], Needs]) -> Profile:
    """Take more rounds while a verdict needs them; see `sampling`."""
    taken = rounds.plan.rounds
    while True:
        wanted = needs(profile)
        if wanted.second_look and "second_look" not in profile.recording:
            number = max(TIMED_ROUNDS, len(profile.metrics["latency"].rounds))
            second = rounds.host_timings(number, "a second look before a limit fails")
            profile = profile.with_recording({"second_look": asdict(second)})
            continue
        more = next_rounds(taken)
        if not (wanted.device_rounds or wanted.host_rounds) or not more:
            return profile
        reason = f"undecided: {taken} -> {taken + more} rounds"
        if wanted.device_rounds:
            further, _, _ = rounds.profiled(more, reason)
            if not further.integrity.complete:
                return profile  # the verdict stays what it is: not reached
            profile = profile.with_recording({"more_rounds": _with_rounds_of(profile, further)})
        timings = profile.host_timings
        if wanted.host_rounds and timings is not None:
            series = timings.followed_by(rounds.host_timings(more, reason))
            profile = profile.with_recording({"host_timings": asdict(series)})
        taken += more


def _with_rounds_of(profile: Profile, further: Profile) -> dict[str, list[float]]:
    """The rounds of all sessions after the first, by metric."""
    before = profile.recording.get("more_rounds", {})
    return {
        metric.name: [*before.get(metric.name, ()), *metric.rounds]
        for metric in further.metrics.values()
        if metric.rounds and metric.name in _OF_THE_DEVICE
    }


def _nothing() -> None:
    """No flush."""


def profile(
    fn: Callable[..., Any],
    *args: Any,
    device: DeviceKind | None = None,
    rounds: int = TIMED_ROUNDS,
    **kwargs: Any,
) -> Profile:
    """Warm up, profile and measure ``fn(*args, **kwargs)`` without pytest.

    Args:
        device: "cuda" or "cpu"; by default "cuda" where there is a usable GPU.
        rounds: profiled rounds, and as many unprofiled ones for host times.

    Raises:
        IncompleteProfile: the profile could not be taken completely.
        TypeError: ``fn`` is no callable, or returns a generator or coroutine.
        ValueError: ``device`` or ``rounds`` is none of the above.
    """
    from pytest_kernelprof.device.inventory import usual_kind

    if not callable(fn):
        raise TypeError(
            f"profile takes a callable, got {type(fn).__name__}; write profile(fn, *args), not "
            "profile(fn(*args))"
        )
    try:
        whole_number(rounds)
    except ValueError as error:
        raise ValueError(f"rounds={rounds!r}: {error}") from None
    if device not in (None, "cuda", "cpu"):
        raise ValueError(f'device={device!r}: expected "cuda", "cpu" or None')
    kind = device or usual_kind()
    plan = Plan(kind, rounds=rounds, host_rounds=rounds, memory=True, roofline=True)
    _, measurement = measure(fn, plan, args, kwargs)
    taking.require_complete(measurement.profile, measurement.retakes)
    return measurement.profile
