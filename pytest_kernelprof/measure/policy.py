"""What to measure, and what to do next: a pure function of what the steps so far showed.

`runner` takes the steps and notes what each showed. Nothing here calls, times or waits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import msgspec

from pytest_kernelprof.errors import IncompleteProfile, MarkerError
from pytest_kernelprof.records.metrics import METRICS, WITH_INTERVAL
from pytest_kernelprof.records.profile import Profile, Verdict
from pytest_kernelprof.records.recording import DeviceKind

EXACT_ROUNDS = 2
"""Rounds of a session that only counts: enough to see that counts differ."""
PROVING_ROUNDS = 3
"""Replays of a CUDA graph that must have equal numbers of children. More rounds are timed."""
TIMED_ROUNDS = 12
LONG_NS, MOST_KERNELS = 50_000_000, 120_000
"""A round that takes as long may have very many kernels: two of it end the first session. Others
follow if all rounds together have no more kernels than this, since the profiler takes about 0.1 ms
for each; and for a limit on a time."""
LOCK_TIMEOUT_S = 600.0


class Needs(NamedTuple):
    """What a set of limits or a report needs.

    Attributes:
        device_times: enough rounds for an interval of the device's times.
        host_times: unprofiled calls, timed.
        memory: unprofiled calls whose memory is watched.
        spills: what ptxas says of the kernels.
        work: the shapes of operators' inputs, which tell their work.
    """

    device_times: bool = False
    host_times: bool = False
    memory: bool = False
    spills: bool = False
    work: bool = False


EVERYTHING = Needs(device_times=True, host_times=True, memory=True)


class Plan(NamedTuple):
    """How much to measure.

    Attributes:
        device: "cuda" or "cpu".
        warmup: calls before the first profiled one; more follow until the code is warm.
        rounds: profiled calls in the first session.
        host_rounds: unprofiled calls for host times; 0 measures none.
        memory: whether to watch memory in unprofiled calls.
        flush_l2: whether the L2 cache is flushed before each timed call.
        stacks: whether Python frames are recorded.
        inputs: of a block on the CPU, whether operators' inputs are recorded, which distinguish
            operators from ranges of their name.
        roofline: whether shapes are recorded, for the work of each kernel, if the device is the
            limit.
        work: whether shapes are recorded in any case, before verdicts are asked for.
        sample_on: whether rounds are added until a verdict on a time is reached.
        lock_timeout_s: how long to wait for other processes that hold the lock of the GPU.
        who: the name under which other processes see this one, a test for example.
        ignore_children: whether the user ignores the work of child processes.
        spills: whether to look at the binaries of the kernels.
    """

    device: DeviceKind
    warmup: int = 1
    rounds: int = EXACT_ROUNDS
    host_rounds: int = 0
    memory: bool = False
    flush_l2: bool = True
    stacks: bool = False
    inputs: bool = True
    roofline: bool = False
    work: bool = False
    sample_on: bool = False
    lock_timeout_s: float = LOCK_TIMEOUT_S
    who: str = ""
    ignore_children: bool = False
    spills: bool = False

    @property
    def timed(self) -> bool:
        """Whether any time is measured: that needs the GPU alone, and a cold L2."""
        return self.rounds > PROVING_ROUNDS or self.host_rounds > 0


WARMUP_OF_RANKS = 2
"""DistributedDataParallel rebuilds its buckets in its second step, with extra broadcasts."""
_OF_EACH_RANK = {"device", "inputs", "who", "ignore_children"}
"""The fields of a plan that are each rank's own; of others all take the largest of any rank."""


def plan_of_ranks(plans: Sequence[Plan]) -> Plan:
    """Return the plan that takes on each rank what any of them needs: all make the same calls.

    Raises:
        MarkerError: they measure on different kinds of devices.
    """
    kinds = sorted({plan.device for plan in plans})
    if len(kinds) > 1:
        raise MarkerError(
            f"some ranks measure on {kinds[0]}, others on {kinds[1]}: choose one for all, "
            "--kernelprof-device=cpu or cuda"
        )
    of_all = [name for name in Plan._fields if name not in _OF_EACH_RANK]
    most = {name: max(getattr(one, name) for one in plans) for name in of_all}
    most["warmup"] = max(most["warmup"], WARMUP_OF_RANKS if len(plans) > 1 else 1)
    return plans[0]._replace(**most)


def plan_of(device: DeviceKind, needs: Needs, *, rounds: int | None = None) -> Plan:
    """Return the plan that takes what is needed, and no more.

    If ``rounds`` is given, that number is taken, decided or not, and host times with it.
    """
    timed = needs.device_times or needs.host_times
    host = needs.host_times or rounds is not None
    return Plan(
        device,
        rounds=rounds or (TIMED_ROUNDS if timed else EXACT_ROUNDS),
        host_rounds=(rounds or TIMED_ROUNDS) if host else 0,
        memory=needs.memory,
        roofline=host,
        work=needs.work and device == "cuda",
        sample_on=timed and rounds is None,
        spills=needs.spills,
    )


# Steps.


class WarmUp(msgspec.Struct, frozen=True, tag=True):
    """Call once, unmeasured; ``done`` of ``of`` such calls have been made."""

    done: int
    of: int


class Batch(msgspec.Struct, frozen=True):
    """A number of rounds, which are added to the other batches of its kind.

    Attributes:
        batch: its number, from 0. A batch that is taken again keeps its number.
        reason: why more than usual is taken, in words; empty otherwise.
    """

    rounds: int
    batch: int = 0
    reason: str = ""


class ProfileRounds(Batch, frozen=True, tag=True):
    """One profiler session; the profile has the kernels of batch 0.

    Attributes:
        flush_l2: whether the L2 cache is flushed before each round.
    """

    flush_l2: bool = False


class TimeCalls(Batch, frozen=True, tag=True):
    """Unprofiled calls, timed on the host."""


class SecondLook(TimeCalls, frozen=True, tag=True):
    """Unprofiled calls, timed on the host, that are a separate measurement."""


class WatchMemory(msgspec.Struct, frozen=True, tag=True):
    """Unprofiled calls whose memory is watched."""

    rounds: int


class Judge(msgspec.Struct, frozen=True, tag=True):
    """Ask for the verdicts of the limits on what was measured so far."""


class RecordShapes(msgspec.Struct, frozen=True, tag=True):
    """One profiler session of one round that records the shapes of operators' inputs."""


Step = WarmUp | ProfileRounds | TimeCalls | SecondLook | WatchMemory | Judge | RecordShapes


class Progress(Protocol):
    """Reports how far a measurement is; called outside of what is timed."""

    def __call__(self, what: str, done: int, of: int, reason: str = "") -> None:
        """Report a round.

        Args:
            what: the present step, for example "profiling". done, of: rounds; once all are done,
                what follows takes long.
            reason: why more than usual is taken, in words; empty otherwise.
        """


def no_progress(what: str, done: int, of: int, reason: str = "") -> None:
    """Report nothing."""


# What to do next.

TRIES = 3
"""How often a batch is taken if it is incomplete or the GPU throttles."""
MOST_ROUNDS = 96
"""Where sampling ends: after 12, 24 and 48 rounds the interval was computed three times."""
MEMORY_ROUNDS = 2
_MOST_WARMUPS = 5


class Shown(NamedTuple):
    """A step that was taken, and what it showed.

    Attributes:
        complete: whether the session's trace holds everything. problems: what is missing.
        cold: whether there are signs of cold code, or torch.compile compiled.
        unproven: whether replays of a CUDA graph are not proved to be whole.
        throttled: whether the GPU throttled meanwhile.
        kernels: how many one round of a session has.
        bound: what the call is limited by, once that is known.
        verdicts: how the limits fare, of a ``Judge`` step.
    """

    step: Step
    complete: bool = True
    problems: str = ""
    cold: bool = False
    unproven: bool = False
    throttled: bool = False
    kernels: float = 0.0
    bound: str = "unknown"
    verdicts: tuple[Verdict, ...] = ()


def shown_on_ranks(shown: Sequence[Shown]) -> Shown:
    """Join what one step showed on all ranks. If one rank needs it again, all take it again: so the
    next step, a pure function, is the same on all of them."""
    first = shown[0]
    return Shown(
        first.step,
        complete=all(one.complete for one in shown),
        problems="; ".join(dict.fromkeys(one.problems for one in shown if one.problems)),
        cold=any(one.cold for one in shown),
        unproven=any(one.unproven for one in shown),
        throttled=any(one.throttled for one in shown),
        kernels=max(one.kernels for one in shown),
        bound="gpu" if any(one.bound == "gpu" for one in shown) else first.bound,
        verdicts=tuple(verdict for one in shown for verdict in one.verdicts),
    )


_Find = Callable[[Plan, Sequence[Shown]], Step | None]


def next_step(plan: Plan, history: Sequence[Shown]) -> Step | None:
    """Return the next step of a measurement; None if it is complete.

    In order: warm-up calls, a session until it is sound, shapes where a limit needs them, memory,
    host times; then, while verdicts on times need it, a second look and further rounds; at last
    shapes, where the device is the limit.
    """
    steps: tuple[_Find, ...] = (_warm_up, _session, _work, _memory, _host_times, _sampling, _shapes)
    return next((step for find in steps if (step := find(plan, history))), None)


def next_rounds(taken: int) -> int:
    """Return how many more rounds to take: as many again, up to `MOST_ROUNDS` in all."""
    return max(0, min(taken, MOST_ROUNDS - taken))


def again(batch: Sequence[Shown]) -> str:
    """Return why a batch is taken again after these tries of it; empty if it is kept.

    An incomplete session is taken three times. Cold code runs again until it is warm, at most five
    times. A batch during which the GPU throttled is taken three times and then kept.
    """
    reason, incomplete, cold, throttled = "", 0, 0, 0
    for one in batch:
        if not one.complete and incomplete < TRIES - 1:
            incomplete += 1
            reason = f"incomplete, try {incomplete + 1} of {TRIES}"
        elif one.cold and cold < _MOST_WARMUPS:
            cold += 1
            reason = "not warm yet"
        elif one.throttled and throttled < TRIES - 1:
            throttled += 1
            reason = f"the GPU throttled, try {throttled + 1} of {TRIES}"
        else:
            reason = ""
    return reason


def retakes(history: Sequence[Shown]) -> int:
    """Count the incomplete sessions before the one with the kernels of the profile."""
    return sum(not one.complete for one in _batches(history, ProfileRounds)[0][:-1])


def settled(history: Sequence[Shown]) -> bool:
    """Whether the code was warm in the session with the kernels of the profile."""
    return not _batches(history, ProfileRounds)[0][-1].cold


def kept_throttled(history: Sequence[Shown]) -> int:
    """Count the rounds that were kept although the GPU throttled in each try."""
    kept = [tries[-1] for tries in _batches(history, ProfileRounds, TimeCalls, SecondLook)]
    return sum(_rounds_of(one) for one in kept if one.throttled)


def lacks_rounds(plan: Plan, history: Sequence[Shown]) -> bool:
    """Whether rounds that should follow a first session of few stayed incomplete: two of them say
    nothing of a time."""
    batches, wanted = _batches(history, ProfileRounds), min(plan.rounds, TIMED_ROUNDS)
    is_short = len(batches) > 1 and _taken(history, ProfileRounds) < wanted
    return is_short and not all(one[-1].complete for one in batches)


def _warm_up(plan: Plan, history: Sequence[Shown]) -> WarmUp | None:
    done = sum(isinstance(one.step, WarmUp) for one in history)
    return WarmUp(done, plan.warmup) if done < plan.warmup else None


def _session(plan: Plan, history: Sequence[Shown]) -> ProfileRounds | None:
    batches = _batches(history, ProfileRounds)
    if not batches:
        return _profile(plan, plan.rounds)
    for batch, tries in enumerate(batches[:2]):
        rounds = _rounds_of(tries[-1])
        if reason := again(tries):
            return _profile(plan, rounds, batch=batch, reason=reason)
    tries, rounds = batches[0], _rounds_of(batches[0][-1])
    if tries[-1].unproven and rounds < PROVING_ROUNDS:
        return _profile(plan, PROVING_ROUNDS, reason="to prove the graph's replays")
    rest = plan.rounds - rounds
    is_much = tries[-1].kernels * plan.rounds > MOST_KERNELS
    if batches[1:] or rest <= 0 or is_much or not tries[-1].complete:
        return None
    return _profile(plan, rest, batch=1)


def _work(plan: Plan, history: Sequence[Shown]) -> RecordShapes | None:
    tries = [one.complete for one in history if isinstance(one.step, RecordShapes)]
    return RecordShapes() if plan.work and not any(tries) and len(tries) < TRIES else None


def _memory(plan: Plan, history: Sequence[Shown]) -> WatchMemory | None:
    watched = any(isinstance(one.step, WatchMemory) for one in history)
    return WatchMemory(MEMORY_ROUNDS) if plan.memory and not watched else None


def _host_times(plan: Plan, history: Sequence[Shown]) -> TimeCalls | None:
    if not plan.host_rounds:
        return None
    batches = _batches(history, TimeCalls)
    if not batches:
        return TimeCalls(plan.host_rounds)
    reason = again(batches[0])
    return TimeCalls(plan.host_rounds, reason=reason) if reason else None


def _sampling(plan: Plan, history: Sequence[Shown]) -> Step | None:
    if not plan.sample_on:
        return None
    last = history[-1].step
    if isinstance(last, Batch):
        (tries,) = (one for one in _batches(history, type(last)) if one[-1] is history[-1])
        reason = again(tries)
        return msgspec.structs.replace(last, reason=reason) if reason else Judge()
    verdicts = _verdicts(history)
    if verdicts is None:
        return Judge()
    # Enqueue times differ by 40 % between one state of a machine and another: a limit on a host
    # time fails only when a second, separate measurement confirms it.
    over = {verdict.metric for verdict in verdicts if verdict.outcome == "failed"}
    if _any_from(over, "unprofiled") and not _batches(history, SecondLook):
        rounds = max(TIMED_ROUNDS, _taken(history, TimeCalls))
        return SecondLook(rounds, reason="a second look before a limit fails")
    return _more_rounds(plan, history, verdicts)


def _more_rounds(plan: Plan, history: Sequence[Shown], verdicts: Sequence[Verdict]) -> Step | None:
    """Take more rounds for an undecided verdict; of two kinds, of the one with fewer."""
    if any(not batch[-1].complete for batch in _batches(history, ProfileRounds)):
        return None  # they stayed incomplete: the verdict stays undecided
    undecided = {verdict.metric for verdict in verdicts if verdict.outcome == "undecided"}
    timed = {one.metric for one in verdicts if one.unit in WITH_INTERVAL}
    wanted: list[tuple[int, type[Batch]]] = []
    is_short = _taken(history, ProfileRounds) < min(plan.rounds, TIMED_ROUNDS)
    if _any_from(undecided | timed if is_short else undecided, "profiled"):
        wanted.append((_taken(history, ProfileRounds), ProfileRounds))
    if _any_from(undecided, "unprofiled") and plan.host_rounds:
        wanted.append((_taken(history, TimeCalls), TimeCalls))
    wanted = [(taken, kind) for taken, kind in wanted if next_rounds(taken)]
    if not wanted:
        return None
    taken, kind = min(wanted, key=lambda one: one[0])
    more, batch = max(next_rounds(taken), TIMED_ROUNDS - taken), len(_batches(history, kind))
    reason = f"{'undecided' if undecided else 'too few'}: {taken} -> {taken + more} rounds"
    if kind is ProfileRounds:
        return _profile(plan, more, batch=batch, reason=reason)
    return TimeCalls(more, batch=batch, reason=reason)


def _shapes(plan: Plan, history: Sequence[Shown]) -> RecordShapes | None:
    recorded = any(isinstance(one.step, RecordShapes) for one in history)
    wanted = plan.roofline and not recorded and history[-1].bound == "gpu"
    return RecordShapes() if wanted else None


def _profile(plan: Plan, rounds: int, *, batch: int = 0, reason: str = "") -> ProfileRounds:
    flush = plan.flush_l2 and max(rounds, plan.rounds) > PROVING_ROUNDS
    return ProfileRounds(rounds, batch=batch, flush_l2=flush, reason=reason)


def _batches(history: Sequence[Shown], *kinds: type[Batch]) -> list[list[Shown]]:
    """Return the tries of each batch of these kinds."""
    found: dict[tuple[type[Batch], int], list[Shown]] = {}
    for one in history:
        step = one.step
        if isinstance(step, Batch) and type(step) in kinds:
            found.setdefault((type(step), step.batch), []).append(one)
    return list(found.values())


def _taken(history: Sequence[Shown], kind: type[Batch]) -> int:
    """Count the rounds of all complete batches of a kind."""
    return sum(_rounds_of(batch[-1]) for batch in _batches(history, kind) if batch[-1].complete)


def _rounds_of(shown: Shown) -> int:
    assert isinstance(shown.step, Batch)
    return shown.step.rounds


def _verdicts(history: Sequence[Shown]) -> tuple[Verdict, ...] | None:
    """Return the last verdicts; None if rounds were taken after them."""
    for one in reversed(history):
        if isinstance(one.step, (Judge, Batch)):
            return one.verdicts if isinstance(one.step, Judge) else None
    return None


def _any_from(metrics: set[str], source: str) -> bool:
    return any(source in METRICS[name].sources for name in metrics if name in METRICS)


# Whether the profile can be judged.


def require_complete(profile: Profile) -> None:
    """Raise unless the profile is complete.

    Raises:
        IncompleteProfile: the message says what is missing, and how often it was tried.
    """
    if why := incomplete_words(profile):
        raise IncompleteProfile(why)


def require_clock(profile: Profile) -> None:
    """Raise if the host's times of this process cannot be trusted.

    Raises:
        IncompleteProfile: the message says why.
    """
    if profile.integrity.clock:
        raise IncompleteProfile(f"times {profile.integrity.clock}")


def incomplete_words(profile: Profile) -> str:
    """Say what is missing and how often it was tried; empty if the profile is complete."""
    integrity = profile.integrity
    if integrity.complete:
        return ""
    tries = integrity.retakes + 1
    tried = "once" if tries == 1 else f"{tries} times"
    return (
        f"profile incomplete (tried {tried}): {'; '.join(integrity.problems)}. Its counts could "
        "be too low, so no limit is judged"
    )
