"""One profiler session and the profile read from it; and sessions until one is sound."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import TYPE_CHECKING, Any

from pytest_kernelprof.analysis.profile import Profile
from pytest_kernelprof.errors import IncompleteProfile
from pytest_kernelprof.measure.progress import no_progress
from pytest_kernelprof.trace import read_trace

if TYPE_CHECKING:
    from pytest_kernelprof.capture.session import Recording
    from pytest_kernelprof.device.inventory import Device
    from pytest_kernelprof.measure.progress import Progress

TRIES = 3
EXACT_ROUNDS = 2
GRAPH_ROUNDS = 3
"""Replays of a CUDA graph that must have equal numbers of children. Beyond it rounds are timed."""

_MOST_WARMUPS = 5
_SCHEMA = 1

_LAZY = (GeneratorType, CoroutineType, AsyncGeneratorType, map, filter)

Call = Callable[[], Any]
Prepare = Callable[[], Call]
"""Hands back the next call, its arguments ready; runs outside of what is measured."""


def prime(device: Device) -> dict[str, float]:
    """Bring the profiler up, once a process; what an attached CUPTI costs launches."""
    if device.kind != "cuda":
        return {}
    from pytest_kernelprof.capture import canary as bring_up

    return asdict(bring_up.prime(device))


def preparer(
    call: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    setup: Callable[[], Any] | None,
) -> Prepare:
    """What hands back the next call, its arguments made fresh by ``setup`` where there is one.

    Raises:
        TypeError: ``args`` are no tuple or list, ``kwargs`` no mapping, ``setup`` no callable.
    """
    if not isinstance(args, (tuple, list)):  # a tensor would be taken apart into its rows
        raise TypeError(
            f"args: expected the arguments as a tuple, got {type(args).__name__}; write (x,) for "
            "one argument, or call without .run: kernel_profile(fn, x)"
        )
    if not isinstance(kwargs, Mapping):
        raise TypeError(
            f"kwargs: expected keyword arguments as a dict, got {type(kwargs).__name__}"
        )
    if setup is not None and not callable(setup):
        raise TypeError(
            f"setup={setup!r}: expected a callable that hands back the arguments of a call"
        )
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


def first_call(prepare: Prepare) -> Any:
    """Call once, before anything is measured; hands back the result.

    Raises:
        TypeError: the call only made an object that would do the work later: measured, it would
            look as if there were none.
    """
    call = prepare()
    result = call()
    if isinstance(result, _LAZY):
        name = getattr(getattr(call, "func", call), "__name__", "the callable")
        kind = type(result).__name__.replace("_", " ")
        if isinstance(result, CoroutineType):
            result.close()  # Python would warn of it as well
        raise TypeError(
            f"{name} returned a {kind}: its body has not run, so there is nothing to measure; hand "
            "over a callable that runs it to its end, such as lambda: list(f(x)) for a generator "
            "and lambda: asyncio.run(f(x)) for a coroutine"
        )
    return result


def _is_args_and_kwargs(fresh: Any) -> bool:
    return (
        isinstance(fresh, tuple)
        and len(fresh) == 2
        and isinstance(fresh[0], (tuple, list))
        and isinstance(fresh[1], dict)
    )


def profile_until_sound(
    device: Device,
    prepare: Prepare,
    rounds: int,
    *,
    flush_l2: bool = False,
    stacks: bool = False,
    label: str = "",
    progress: Progress = no_progress,
    reason: str = "",
) -> tuple[Profile, int, bool]:
    """Profile until the code is warm and the trace complete, within bounds.

    Returns:
        The profile, how many incomplete ones were taken before it, and whether the code is warm.
    """
    retakes, warmups = 0, 0
    while True:
        told = functools.partial(progress, "profiling", of=rounds, reason=reason)
        profile = profile_rounds(
            device, prepare, rounds, flush_l2=flush_l2, stacks=stacks, label=label, told=told
        )
        refuse_blind(device, profile)
        integrity = profile.integrity
        cold = bool(integrity.cold) or bool(profile.recording["recompiles"])
        if not integrity.complete and retakes < TRIES - 1:
            retakes += 1
            reason = f"incomplete, try {retakes + 1} of {TRIES}"
        elif cold and warmups < _MOST_WARMUPS:
            warmups += 1
            reason = "not warm yet"
        elif integrity.graph_replays == "unproven" and rounds < GRAPH_ROUNDS:
            rounds = GRAPH_ROUNDS
            reason = "to prove the graph's replays"
        else:
            return profile, retakes, not cold


def profile_rounds(
    device: Device,
    prepare: Prepare,
    rounds: int,
    *,
    flush_l2: bool,
    stacks: bool = False,
    shapes: bool = False,
    label: str = "",
    told: Callable[[int], None] = lambda done: None,
) -> Profile:
    """One session of so many rounds, as it is: complete or not, warm or not."""
    from pytest_kernelprof.capture.host_timing import L2Flush, compilations
    from pytest_kernelprof.capture.session import Session
    from pytest_kernelprof.device.inventory import synchronize

    flush = L2Flush(device) if flush_l2 else None
    before = compilations()
    session = Session(device, stacks=stacks, shapes=shapes)
    with session:
        for done in range(rounds):
            told(done)
            call = prepare()
            if flush:
                flush()
            synchronize(device)
            with session.round():
                call()
    return read(device, session.recording(), label, {"recompiles": compilations() - before})


def read(device: Device, recording: Recording, label: str, noted: dict[str, Any]) -> Profile:
    """The profile of a finished session; ``noted`` goes into its recording."""
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


def refuse_blind(device: Device, profile: Profile) -> None:
    """Zero activities is not zero kernels: ask the canary which it is."""
    if device.kind != "cuda" or profile.kernel_count or len(profile.trace.activities) > 0:
        return
    from pytest_kernelprof.capture.canary import canary_seen, why_blind
    from pytest_kernelprof.errors import ProfilerUnavailable

    if not canary_seen():
        raise ProfilerUnavailable(why_blind())


def warm_profile(device: Device, prepare: Prepare, label: str) -> Profile:
    """Call once, then profile until the code is warm and the trace complete.

    Raises:
        IncompleteProfile: the profiler is not available, or the profile stayed incomplete.
        TypeError: the call does its work later; see ``first_call``.
    """
    prime(device)
    first_call(prepare)
    profile, retakes, _ = profile_until_sound(device, prepare, EXACT_ROUNDS, label=label)
    require_complete(profile, retakes)
    return profile


def require_complete(profile: Profile, retakes: int) -> None:
    """Raise unless the profile is complete.

    Raises:
        IncompleteProfile: with what is missing and how often it was tried.
    """
    problems = profile.integrity.problems
    if problems:
        tries = retakes + 1
        tried = "once" if tries == 1 else f"{tries} times"
        raise IncompleteProfile(
            f"profile incomplete (taken {tried}): {'; '.join(problems)}. A count from it could "
            "be too low, so nothing is judged by it"
        )
