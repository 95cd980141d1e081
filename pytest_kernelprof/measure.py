"""The conductor: warms up, profiles, checks, profiles again on doubt, and hands back a Profile."""

from __future__ import annotations

import contextlib
import functools
import itertools
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from pytest_kernelprof.errors import IncompleteProfile
from pytest_kernelprof.profiles import Profile, What
from pytest_kernelprof.progress import no_progress
from pytest_kernelprof.trace import read_trace
from pytest_kernelprof.trace.links import source_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pytest_kernelprof.capture.devices import Device, DeviceKind
    from pytest_kernelprof.capture.session import Recording
    from pytest_kernelprof.progress import Progress

TRIES = 3
EXACT_ROUNDS = 2
TIMED_ROUNDS = 12
_GRAPH_ROUNDS = 3
_MEMORY_ROUNDS = 2
_MOST_WARMUPS = 5
_SCHEMA = 1


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
    """

    device: DeviceKind
    warmup: int = 1
    rounds: int = EXACT_ROUNDS
    host_rounds: int = 0
    memory: bool = False
    flush_l2: bool = True
    stacks: bool = False


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
    progress: Progress = no_progress,
) -> tuple[Any, Measurement]:
    """Warm up, profile and measure a callable; the first call's result comes first.

    ``progress`` is told of each round, outside of what is timed.

    Raises:
        IncompleteProfile: the profiler is not available or did not see everything in three
            tries and what it saw is nothing to judge by. Profiles that are incomplete are handed
            back with their ``integrity`` saying so: a limit that they violate is violated.
        Exception: whatever the callable raises; the profiler is closed then.
    """
    from pytest_kernelprof.capture.devices import current_device
    from pytest_kernelprof.capture.session import refuse_to_nest

    device = current_device(plan.device)
    refuse_to_nest()
    cupti = _prime(device)
    prepare = preparer(call, args, kwargs or {}, setup)
    result = prepare()()
    for done in range(1, plan.warmup):
        progress("warming up", done, plan.warmup)
        prepare()()
    profile, retakes, settled = _profile_until_sound(device, plan, prepare, label, progress)
    noted = _unprofiled(device, plan, prepare, setup is not None, cupti, progress)
    profile = profile.with_recording(noted)
    attribute = functools.partial(_attribute, profile, device, prepare)
    return result, Measurement(profile, retakes, settled, attribute)


@contextlib.contextmanager
def measure_once(plan: Plan, label: str = "") -> Iterator[list[Measurement]]:
    """Profile a block as it stands, once: no warm-up, no second try. The measurement is in the
    list after the block."""
    from pytest_kernelprof.capture.devices import current_device
    from pytest_kernelprof.capture.host import compilations
    from pytest_kernelprof.capture.session import Session

    device = current_device(plan.device)
    _prime(device)
    found: list[Measurement] = []
    before = compilations()
    session = Session(device, stacks=plan.stacks)
    with session, session.round():
        yield found
    recording = session.recording()
    noted = {"recompiles": compilations() - before, "one_shot": True}
    profile = _read(device, recording, label, noted)
    if plan.stacks:
        profile = profile.with_lines(_frames_of_kernels(profile))
    _refuse_blind(device, profile)
    found.append(Measurement(profile, 0, not profile.integrity.cold))


def _prime(device: Device) -> dict[str, float]:
    if device.kind != "cuda":
        return {}
    from pytest_kernelprof.capture.prime import prime

    return asdict(prime(device))


def preparer(
    call: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    setup: Callable[[], Any] | None,
) -> Callable[[], Callable[[], Any]]:
    """What hands back the next call, its arguments made fresh by ``setup`` where there is one."""
    if setup is None:
        ready = functools.partial(call, *args, **kwargs)
        return lambda: ready

    def prepare() -> Callable[[], Any]:
        fresh = setup()
        if fresh is None:
            return functools.partial(call, *args, **kwargs)
        if _is_args_and_kwargs(fresh):
            return functools.partial(call, *fresh[0], **fresh[1])
        if isinstance(fresh, (tuple, list)):
            return functools.partial(call, *fresh)
        raise TypeError(
            f"setup returned {type(fresh).__name__}; expected the arguments as a tuple, "
            "(args, kwargs) with a tuple and a dict, or None to keep the given ones"
        )

    return prepare


def _is_args_and_kwargs(fresh: Any) -> bool:
    return (
        isinstance(fresh, tuple)
        and len(fresh) == 2
        and isinstance(fresh[0], (tuple, list))
        and isinstance(fresh[1], dict)
    )


def _profile_until_sound(
    device: Device,
    plan: Plan,
    prepare: Callable[[], Callable[[], Any]],
    label: str,
    progress: Progress,
) -> tuple[Profile, int, bool]:
    """Profile until the code is warm and the trace complete, within bounds."""
    retakes, warmups, rounds, reason = 0, 0, plan.rounds, ""
    while True:
        told = functools.partial(progress, "profiling", of=rounds, reason=reason)
        profile = _profile(device, plan, rounds, prepare, label, told)
        _refuse_blind(device, profile)
        integrity = profile.integrity
        cold = bool(integrity.cold) or bool(profile.recording["recompiles"])
        if not integrity.complete and retakes < TRIES - 1:
            retakes += 1
            reason = f"incomplete, try {retakes + 1} of {TRIES}"
        elif cold and warmups < _MOST_WARMUPS:
            warmups += 1
            reason = "not warm yet"
        elif integrity.graph_replays == "unproven" and rounds < _GRAPH_ROUNDS:
            rounds = _GRAPH_ROUNDS
            reason = "to prove the graph's replays"
        else:
            return profile, retakes, not cold


def _profile(
    device: Device,
    plan: Plan,
    rounds: int,
    prepare: Callable[[], Callable[[], Any]],
    label: str,
    told: Callable[[int], None],
) -> Profile:
    from pytest_kernelprof.capture.devices import synchronize
    from pytest_kernelprof.capture.host import L2Flush, compilations
    from pytest_kernelprof.capture.session import Session

    timed = rounds > _GRAPH_ROUNDS
    flush = L2Flush(device) if plan.flush_l2 and timed else None
    before = compilations()
    session = Session(device, stacks=plan.stacks)
    with session:
        for done in range(rounds):
            told(done)
            call = prepare()
            if flush:
                flush()
            synchronize(device)
            with session.round():
                call()
    return _read(device, session.recording(), label, {"recompiles": compilations() - before})


def _read(device: Device, recording: Recording, label: str, noted: dict[str, Any]) -> Profile:
    from pytest_kernelprof.capture.operators import compiled_kernels_hidden, compute_operators

    trace = read_trace(recording.path)
    noted = {
        "schema": _SCHEMA,
        "device_kind": device.kind,
        "device": device.name,
        "capability": device.capability,
        "versions": device.versions,
        "rounds": recording.rounds,
        "collection_stopped": recording.collection_stopped,
        **noted,
    }
    if device.kind == "cpu":
        noted["compute_operators"] = compute_operators(trace.operators.name.tolist())
        noted["compiled_kernels_hidden"] = compiled_kernels_hidden()
    # The recording's file lives as long as the profile.
    return Profile(replace(trace, recording=noted), label, keeps=recording)


def _refuse_blind(device: Device, profile: Profile) -> None:
    """Zero activities is not zero kernels: ask the canary which it is."""
    if device.kind != "cuda" or profile.kernel_count or len(profile.trace.activities) > 0:
        return
    from pytest_kernelprof.capture.prime import canary_seen, why_blind
    from pytest_kernelprof.errors import ProfilerUnavailable

    if not canary_seen():
        raise ProfilerUnavailable(why_blind())


def _unprofiled(
    device: Device,
    plan: Plan,
    prepare: Callable[[], Callable[[], Any]],
    fresh_arguments: bool,
    cupti: dict[str, float],
    progress: Progress,
) -> dict[str, Any]:
    """What calls without the profiler tell, as plain data for the recording."""
    from pytest_kernelprof.capture.host import L2Flush, time_calls, watch_memory

    noted: dict[str, Any] = {}
    if plan.memory:
        watched = _told(prepare, progress, "watching memory", _MEMORY_ROUNDS)
        memory = watch_memory(device, watched, _MEMORY_ROUNDS)
        if memory is not None:
            noted["memory"] = asdict(memory)
        elif device.kind == "cuda":
            noted["memory_why"] = (
                "could not be had: the allocator keeps no history to read (another allocator than "
                "the native one, or a memory history that is already being recorded)"
            )
    if plan.host_rounds:
        flush = L2Flush(device) if plan.flush_l2 else _nothing
        timed = _told(prepare, progress, "timing", plan.host_rounds)
        timings = time_calls(
            device, timed, plan.host_rounds, flush=flush, fresh_arguments=fresh_arguments
        )
        noted["host_timings"] = {**asdict(timings), **cupti}
    return noted


def _told(
    prepare: Callable[[], Callable[[], Any]], progress: Progress, what: str, rounds: int
) -> Callable[[], Callable[[], Any]]:
    """``prepare``, which runs before each round and outside the clock, that tells of the round."""
    done = itertools.count()

    def prepare_and_tell() -> Callable[[], Any]:
        progress(what, min(next(done), rounds), rounds)
        return prepare()

    return prepare_and_tell


def _nothing() -> None:
    """No flush."""


def _attribute(
    profile: Profile, device: Device, prepare: Callable[[], Callable[[], Any]]
) -> Profile:
    """Profile the call once more, its source lines annotated, and carry the lines over.

    Where that run launched other kernels than the profile, their lines would be guesses: they
    stay unknown. Likewise copies and waits.
    """
    from pytest_kernelprof.capture.attribution import annotate_lines
    from pytest_kernelprof.capture.session import Session

    session = Session(device, stacks=False)
    call = prepare()
    with session, session.round(), annotate_lines():
        call()
    traced = _read(device, session.recording(), profile.label, {"recompiles": 0})
    of_operator = source_lines(traced.trace, traced.links)
    lines: dict[tuple[What, int], str] = {}
    comparisons: tuple[tuple[What, bool], ...] = (
        ("kernel", [k.name for k in traced.kernels] == [k.name for k in profile.kernels]),
        ("copy", [c.name for c in traced.copies] == [c.name for c in profile.copies]),
        ("wait", [w.call for w in traced.waits] == [w.call for w in profile.waits]),
    )
    for what, same in comparisons:
        if same:
            for i, operator in enumerate(traced.operators_of(what)):
                if operator in of_operator:
                    lines[what, i] = of_operator[operator]
    return profile.with_lines(lines)


def _frames_of_kernels(profile: Profile) -> dict[tuple[What, int], str]:
    """The innermost recorded Python frame around each kernel's operator (``--kernelprof-stacks``).

    The profiler names the line of the ``def``, not of the call.
    """
    frames, ops = profile.trace.frames, profile.trace.operators
    lines: dict[tuple[What, int], str] = {}
    for i, operator in enumerate(profile.operators_of("kernel")):
        if operator < 0:
            continue
        at, thread = ops.start[operator], ops.thread[operator]
        around = (frames.start <= at) & (frames.end >= at) & (frames.thread == thread)
        names = [str(name) for name in frames.name[around]]
        users = [n for n in names if ".py(" in n and "site-packages" not in n and "torch/" not in n]
        if users:
            file, _, rest = users[-1].partition("(")
            lines["kernel", i] = f"{file}:{rest.partition(')')[0]}"
    return lines


def require_complete(measurement: Measurement) -> None:
    """Raise unless the profile is complete.

    Raises:
        IncompleteProfile: with what is missing and how often it was tried.
    """
    problems = measurement.profile.integrity.problems
    if problems:
        tries = measurement.retakes + 1
        tried = "once" if tries == 1 else f"{tries} times"
        raise IncompleteProfile(
            f"profile incomplete (taken {tried}): {'; '.join(problems)}. A count from it could "
            "be too low, so nothing is judged by it"
        )


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
    """
    from pytest_kernelprof.capture.devices import why_no_gpu

    kind: DeviceKind = device or ("cpu" if why_no_gpu() else "cuda")
    plan = Plan(kind, rounds=rounds, host_rounds=rounds, memory=True)
    _, measurement = measure(fn, plan, args, kwargs)
    require_complete(measurement)
    return measurement.profile
