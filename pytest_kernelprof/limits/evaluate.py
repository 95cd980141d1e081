"""Judge a profile by its limits: verdicts as facts, which ``report`` puts into words.

A time that is over its limit on a shared GPU fails only if the work of other processes cannot
explain it. Such work only adds to a round. The GPU gives its time to processes in turn: beside one
that never rests, a round takes up to twice as long, and the fastest of many was disturbed least. So
the code takes at least half of its *fastest* round. The median does not show that: half of the
rounds may have been disturbed fully, or by something that happened once.

- Times of the device (``cuda_time``, ``gpu_busy``): the fastest profiled round.
- Times of the host (``latency``, ``dispatch_time``): the fastest call, a second look included,
  minus what the loaded CUPTI may have added to it.
- ``launch_overhead`` is a difference of two times, which other work alone can cause. It never fails
  on a shared GPU, nor does a limit that is a share of the latency.
- Communication waits for other ranks, whatever delays them: its times never fail on a shared GPU.
- A rate (``throughput``, ``bandwidth``) is work over ``gpu_busy``: other work only lowers it. So a
  limit that is reached is proven, whatever disturbed the GPU. One that is not reached fails if
  twice the rate of the fastest round is below it; also a share of the peak, which is no time.
- A comparison: the candidate takes at least half of its fastest round, the reference at most its
  own fastest. So the true ratio is at most twice the ratio of the two.

None of this holds for a GPU that throttles: its clock falls by any factor.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from pytest_kernelprof.records.metrics import METRICS, OF_WORST_KERNEL, SHARE_OF
from pytest_kernelprof.records.profile import PARTS, STATUSES, Hit, Mismatch, Verdict
from pytest_kernelprof.stats.intervals import FEWEST_ROUNDS, median_interval
from pytest_kernelprof.units import format_bytes, format_rate

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from pytest_kernelprof.limits.kinds import Limit
    from pytest_kernelprof.records.document import Comparison
    from pytest_kernelprof.records.profile import Kernel, Metric, Place, Profile, Reason, Status
    from pytest_kernelprof.records.recording import Conditions

_NO_LINES = "; allow= needs known lines (kernel_profile(fn), or stacks=True) and rounds that agree"

EXPLAINED = 2.0
"""The largest factor by which other work makes a round longer."""


def beyond_contention(
    conditions: Conditions, metric: Metric, second: Metric | None, allowed: float
) -> float | None:
    """Return the fastest round, in the unit of the metric, if the limit is exceeded whatever else
    ran on the GPU; None if that is not certain.

    Args:
        second: the same metric by a second look, if there was one.
        allowed: the limit in the unit of the metric.
    """
    is_rate = metric.kind == "rate"
    if not _only_contended(conditions) or not (is_rate or _is_one_time(metric.name)):
        return None
    if is_rate:
        return max(metric.rounds) if EXPLAINED * max(metric.rounds) < allowed else None
    looks = [one for one in (metric, second) if one is not None and one.rounds]
    fastest = min((min(one.rounds) - _tax(one) for one in looks), default=0.0)
    return fastest if fastest > EXPLAINED * allowed else None


def ratio_beyond_contention(
    conditions: Iterable[Conditions],
    candidate: Iterable[float],
    reference: Iterable[float],
    allowed: float,
) -> float | None:
    """Return the ratio of the fastest rounds, reference over candidate, if it is too small whatever
    else ran on the GPU; None if that is not certain.

    Args:
        conditions: of the rounds that were disturbed.
        candidate, reference: their rounds in microseconds. allowed: the smallest ratio allowed.
    """
    best = min(candidate, default=0.0)
    if not all(map(_only_contended, conditions)) or best <= 0:
        return None
    found = min(reference, default=0.0) / best
    return found if found * EXPLAINED < allowed else None


def _only_contended(conditions: Conditions) -> bool:
    return conditions.contended and not conditions.kept_throttled_rounds


def _is_one_time(name: str) -> bool:
    return len(METRICS[name].sources) == 1 and name not in ("comm_time", "exposed_comm_time")


def _tax(metric: Metric) -> float:
    """Return what was subtracted from the lower bound of a host time for the loaded CUPTI."""
    plain = median_interval(metric.rounds)
    return 0.0 if plain is None or metric.low is None else max(0.0, plain.low - metric.low)


def evaluate(
    profile: Profile,
    limits: Iterable[Limit],
    operators: Callable[[], Collection[str]] | None = None,
) -> tuple[Verdict, ...]:
    """Return a verdict for each limit, in order; for a call on several ranks, their worst.

    Args:
        operators: as of ``if_names_exist``, by which verdicts are then replaced.
    """
    judges = [functools.partial(_evaluate, limit=limit) for limit in limits]
    found = tuple(on_every_rank(profile, judge, _badness) for judge in judges)
    return tuple(if_names_exist(one, profile, operators) for one in found) if operators else found


def if_names_exist(
    verdict: Verdict, profile: Profile, operators: Callable[[], Collection[str]]
) -> Verdict:
    """Replace a verdict by "not judged" if a pattern of its limit cannot match on the CPU.

    Kernels of the CPU are operators, so the name of a GPU's kernel is never found there. A limit
    that failed stays failed, whatever its other patterns are.

    Args:
        operators: returns the names of all operators of this torch.
    """
    if verdict.device != "cpu" or verdict.outcome not in ("passed", "incomplete"):
        return verdict
    patterns = () if verdict.limit == "expect_kernels" else verdict.patterns
    ran = (k for one in profile.ranks for kernels in (one.kernels, *one.variants) for k in kernels)
    named = names_nothing(patterns, ran, operators)
    if not named:
        return verdict
    version = profile.environment.versions.get("torch", "").partition("+")[0]
    why = f"no operator of torch {version} matches {', '.join(map(repr, named))}"
    why += "; name operators, for example 'aten::mul'"
    return replace(verdict, outcome="not judged", why=why, measured=None)


def evaluate_comparison(
    limit: Limit,
    comparison: Comparison,
    candidate: str,
    rounds: Sequence[float],
    of_reference: Sequence[float],
    place: Place | None = None,
) -> Verdict:
    """Judge a limit that compares, by the speedup of the candidate over the reference.

    Args:
        candidate: which of the callables is judged.
        rounds, of_reference: the rounds of both in microseconds or bytes.
    """
    (paired,) = (one.paired for one in comparison.callables if one.name == candidate)
    assert paired is not None, "the reference is no candidate"
    low, high = paired.speedup_interval or (None, None)
    allowed = limit.bound if limit.name == "min_speedup" else 1 / (1 + limit.bound)
    beyond = None
    outcome: Status = "undecided"
    reason: Reason = "interval"
    if comparison.conditions:
        beyond = ratio_beyond_contention(comparison.conditions, rounds, of_reference, allowed)
        outcome, reason = ("undecided", "disturbed") if beyond is None else ("failed", "beyond")
    elif low is None or high is None:
        reason = "few" if comparison.pairs < FEWEST_ROUNDS else "alike"
    elif low >= allowed or high < allowed:
        outcome, reason = "passed" if low >= allowed else "failed", ""
    return Verdict(
        limit=limit.name,
        qualifier=limit.qualifier,
        outcome=outcome,
        reason=reason,
        metric=comparison.metric,
        unit="times",
        device=comparison.environment.kind,
        allowed=allowed,
        measured=paired.speedup,
        low=low,
        high=high,
        rounds=comparison.pairs,
        block=paired.block,
        fastest=beyond,
        candidate=candidate,
        place=place,
    )


def on_every_rank(
    profile: Profile, judge: Callable[[Profile], Verdict], badness: Callable[[Verdict], Any]
) -> Verdict:
    """Return the verdict of a call; on several ranks the worst, with the ranks that fare alike.

    Args:
        judge: returns the verdict of one rank. badness: a key, less for worse.
    """
    if not profile.other_ranks:
        return judge(profile)
    judged = [(one.rank or 0, judge(one)) for one in profile.ranks]
    rank, worst = min(judged, key=lambda one: badness(one[1]))
    alike = (other for other, one in judged if one.outcome == worst.outcome and other != rank)
    return replace(worst, ranks=(rank, *alike), place=profile.place)


def _badness(verdict: Verdict) -> tuple[bool, int, float]:
    """A key, less for worse: the outcome, then how far the value is above what is allowed; of a
    rate how far below. What is not judged on one rank does not pass on all."""
    room = (verdict.allowed or 0.0) - (verdict.measured or 0.0)
    passed, badness = verdict.outcome == "passed", STATUSES.index(verdict.outcome)
    return passed, badness, -room if verdict.is_floor else room


def _evaluate(profile: Profile, limit: Limit) -> Verdict:
    asked = _asked(profile, limit)
    if profile.environment.kind == "cpu" and not limit.on_cpu:
        return replace(asked, outcome="not judged", why="not applicable on the CPU")
    if profile.compiled and limit.metric not in OF_WORST_KERNEL:
        return replace(asked, outcome="not judged", why=profile.metrics["kernels"].why)
    if limit.metric in OF_WORST_KERNEL:
        found = _worst_kernel(profile, limit, asked)
    elif limit.of_kernels:
        found = _named(profile, limit, asked)
    else:
        metric = profile.metrics[limit.metric]
        known = metric.low if metric.value is None else metric.value
        whole = profile.metrics[SHARE_OF[limit.metric]] if limit.relative else metric
        if metric.value is None and known == 0.0:  # nothing is known of it
            return replace(asked, outcome="not judged", why=metric.why)
        if known is None or (limit.relative and whole.value is None):
            # What no trace holds is no loss of the one that was read.
            never = profile.loaded and limit.sources != ("profiled",)
            why = (metric if known is None else whole).why or "not measured"
            return replace(asked, outcome="not judged" if never else "incomplete", why=why)
        judge = _counted if metric.kind == "exact" else _timed
        left, asked = _less_allowed(profile, limit, asked, metric)
        found = judge(profile, limit, asked, left, known if left.value is None else left.value)
    if (found.outcome != "failed" or found.unit.endswith("/s")) and not profile.integrity.complete:
        # What is missing can only add to a count: only a count over its limit is certain. Its work
        # is missing, too.
        why = "; ".join(profile.integrity.problems)
        return replace(found, outcome="incomplete", reason="", why=why)
    return found


def _asked(profile: Profile, limit: Limit) -> Verdict:
    """Return what is known about a verdict before the value is judged."""
    return Verdict(
        limit=limit.name,
        qualifier=limit.qualifier,
        outcome="passed",
        metric=limit.metric,
        unit=METRICS[limit.metric].unit if limit.metric else "",
        device=profile.environment.kind,
        allowed=limit.bound if limit.metric and not limit.relative else None,
        share=limit.bound if limit.relative else None,
        patterns=limit.patterns,
        place=profile.place,
        allow=limit.allow,
        target=profile.environment.capability if profile.compiled else "",
    )


def _counted(
    profile: Profile, limit: Limit, asked: Verdict, metric: Metric, value: float
) -> Verdict:
    """Judge a count; the verdict has its rounds if they differ."""
    return replace(
        asked,
        measured=value,
        outcome="failed" if value > limit.bound else "passed",
        rounds=len(metric.rounds),
        values=() if metric.stable else metric.rounds,
        note="" if profile.integrity.complete else "incomplete",
    )


def _less_allowed(
    profile: Profile, limit: Limit, asked: Verdict, metric: Metric
) -> tuple[Metric, Verdict]:
    """Return a count without what the limit leaves out, and the verdict that tells it.

    Lines are known of one round. Those of others are the same only if all rounds count as much, of
    the same kernels.
    """
    if not metric.rounds or not (limit.allow or metric.allowed):
        return metric, asked
    way, events = limit.qualifier, getattr(profile, PARTS[limit.metric.partition("_")[0]])
    events = [one for one in events if not way or one.direction == way]
    both = tuple(zip(metric.rounds, metric.allowed_rounds, strict=True))
    agree = len(set(both)) == 1 and not profile.variants
    asked = asked if agree else replace(asked, allow=())
    at_lines = (one for one in events if asked.leaves_out(one) and not one.allowed)
    less = sum(one.bytes if asked.unit == "bytes" else 1 for one in at_lines)
    rounds = tuple(count - allowed - less for count, allowed in both)
    told = _apart(asked, max(metric.rounds) - max(rounds), events)
    is_known = asked.allow == limit.allow and all(one.source for one in events)
    if limit.allow and max(rounds) > limit.bound and not is_known:
        told = replace(told, apart=f"{told.apart}{_NO_LINES}".removeprefix("; "))
    return replace(metric, rounds=rounds, value=max(rounds)), told


def _apart(asked: Verdict, less: float, events: Iterable[Any]) -> Verdict:
    """Return the verdict with how much its limit leaves out, and why."""
    reasons = Counter(filter(None, map(asked.leaves_out, events)))
    words = [f"{why} x{n}" if n > 1 else why for why, n in reasons.most_common(3)]
    size = format_bytes(less) if asked.unit == "bytes" else f"{less:.0f}"
    return replace(asked, apart=f"{size} more allowed: {', '.join(words)}" if less else "")


def _timed(profile: Profile, limit: Limit, asked: Verdict, metric: Metric, value: float) -> Verdict:
    whole = (profile.metrics[SHARE_OF[limit.metric]].value or 0.0) if limit.relative else 0.0
    allowed = limit.bound * whole if limit.relative else limit.bound
    outcome, reason = _of_time(metric, value, allowed)
    second = profile.second_look.get(limit.metric) if "unprofiled" in limit.sources else None
    looked = second.value if second is not None and outcome == "failed" else None
    if second is not None and looked is not None:
        least = looked if second.low is None else second.low
        if least <= allowed:
            outcome, reason = "undecided", "second look"
    beyond = beyond_contention(profile.conditions, metric, second, allowed)
    proven = metric.kind == "rate" and outcome in ("passed", "not judged")
    if profile.conditions.disturbed and not proven:
        outcome, reason = ("undecided", "disturbed") if beyond is None else ("failed", "beyond")
    return replace(
        asked,
        outcome=outcome,
        reason=reason,
        allowed=allowed,
        share_of=whole,
        measured=value,
        low=metric.low,
        high=metric.high,
        rounds=len(metric.rounds),
        block=metric.block,
        second_look=looked,
        fastest=beyond,
        note=metric.why,
        why=f"at least {format_rate(metric.unit, value)}: {metric.why}" * (outcome == "not judged"),
    )


def _of_time(metric: Metric, value: float, allowed: float) -> tuple[Status, Reason]:
    if metric.low is None and len(metric.rounds) >= FEWEST_ROUNDS:
        return "undecided", "alike"
    # With fewer rounds the median is judged; the verdict says how many there were.
    low = value if metric.low is None else metric.low
    high = value if metric.high is None else metric.high
    is_kept, is_broken = high <= allowed, low > allowed
    if metric.kind == "rate":
        is_kept, is_broken = low >= allowed, high < allowed
    if metric.value is None and not is_kept:  # the value may be any more
        return "not judged", ""
    if is_broken:
        return "failed", ""
    return ("passed", "") if is_kept else ("undecided", "interval")


def _named(profile: Profile, limit: Limit, asked: Verdict) -> Verdict:
    """Judge a limit on kernels by name, which must hold for every sequence of them."""
    sequences = (profile.kernels, *profile.variants)
    if limit.metric:
        (pattern,) = limit.patterns
        assert pattern is not None
        named = [[one for one in kernels if matches(one, pattern)] for kernels in sequences]
        found = max(sum(not asked.leaves_out(one) for one in kernels) for kernels in named)
        asked = _apart(asked, max(map(len, named)) - found, named[0])
        return _counted(profile, limit, asked, profile.metrics["kernels"], float(found))
    asked = replace(asked, measured=float(len(profile.kernels)))
    if limit.name == "forbid_kernels":
        forbidden = next(filter(None, (hits(one, limit.patterns) for one in sequences)), ())
        return replace(asked, outcome="failed" if forbidden else "passed", hits=forbidden)
    mismatches = (first_mismatch(one, limit.patterns) for one in sequences)
    mismatch = next(filter(None, mismatches), None)
    return replace(asked, outcome="failed" if mismatch else "passed", mismatch=mismatch)


def _worst_kernel(profile: Profile, limit: Limit, asked: Verdict) -> Verdict:
    """Judge what single kernels need, by the worst of them. One that needs too much fails the
    limit, whatever is not known of others; else it is not judged unless all are known."""
    counted, most = profile.metrics["kernels"], profile.metrics[limit.metric]
    if counted.value is None and not profile.compiled:
        return replace(asked, outcome="incomplete", why=counted.why)
    every = [one for some in (profile.kernels, *profile.variants) for one in enumerate(some, 1)]
    judged = [one for one in every if all(matches(one[1], p) for p in _written(limit.patterns))]
    needs = [(one.need(limit.metric), at, one.short_name) for at, one in judged]
    # Of a kernel that did not run, any configuration may be the one that a GPU chooses.
    kept = {at for need, at, _ in needs if need is None or need <= limit.bound}
    certain = [one for one in needs if not (profile.compiled and one[1] in kept)]
    need, at, name = max(certain or needs, key=lambda one: one[0] or 0, default=(0, 0, ""))
    if limit.metric == "spills" and profile.environment.is_amd:
        asked = replace(asked, unit="registers")
    asked = replace(asked, measured=float(need or 0), rounds=len(counted.rounds))
    if (need or 0) > limit.bound and certain:
        return replace(asked, outcome="failed", hits=(Hit(at, name, limit.qualifier),))
    shown = max((one.need(limit.metric) or 0 for _, one in every), default=0)
    if (most.value or 0) > max(shown, limit.bound):  # those of other rounds are not kept
        why = f"a kernel of another round has {most.value:.0f}: make all rounds launch the same"
        return replace(asked, outcome="incomplete", why=why, measured=None)
    why = _not_all_known(profile, limit, [one for _, one in judged])
    if not why and (need or 0) > limit.bound:
        why = f"some configurations of {name} need up to {need}: which one runs, a GPU decides"
    if profile.ended:  # what comes after that is not seen
        why = f"{why or 'kept by the kernels so far'}; the code ended early: {profile.ended}"
    return replace(asked, outcome="not judged", why=why, measured=None) if why else asked


def _not_all_known(profile: Profile, limit: Limit, kernels: Sequence[Kernel]) -> str:
    """Why a limit on the worst of these kernels is not judged, and what to do; else empty."""
    if not kernels:
        ran = "no Triton kernel was launched" if profile.compiled else "no kernel ran"
        ran = f"no kernel matches {limit.qualifier!r}" if limit.patterns else ran
        return f"{ran}, so there is none to judge"
    unknown = [one for one in kernels if one.need(limit.metric) is None]
    why, each = profile.metrics[limit.metric].why, limit.metric == "spills" or profile.compiled
    told = dict.fromkeys(f"{k.short_name} ({(each and k.spills) or why})" for k in unknown)
    named = "; ".join([*told][:_MOST_NAMED]) + "; ..." * (len(told) > _MOST_NAMED)
    what = limit.metric.replace("_", " ")
    of = f"{what} not known of {len(unknown)} of {len(kernels)} kernels: {named}"
    others = "; judge the others alone, with match=" if len(unknown) < len(kernels) else ""
    return f"{of}{others}" if unknown else ""


_MOST_NAMED = 3


# Patterns and kernels: which match, and where a sequence first goes wrong.

# Names of Inductor's C++ kernels and of autograd nodes, which the dispatcher does not know.
_NO_OPERATOR = re.compile(r"[\W_]*(cpp|graph_|aoti_torch_|autograd::|\w*Backward\d)", re.IGNORECASE)

Patterns = tuple[str | None, ...]
"""Regular expressions; None stands for any run of kernels."""


def matches(kernel: Kernel, pattern: str) -> bool:
    """Whether a pattern is found in the kernel's full name, short name or operator chain.

    Names differ between GPUs and the CPU, operators do not. Case is ignored.
    """
    compiled = _compiled(pattern)
    texts = (kernel.name, kernel.short_name, *kernel.operators)
    return any(compiled.search(text) for text in texts)


def hits(kernels: Sequence[Kernel], patterns: Patterns) -> tuple[Hit, ...]:
    """Return the kernels that match any of the patterns, each with the first that matches."""
    return tuple(
        Hit(position, kernel.short_name, pattern)
        for position, kernel in enumerate(kernels, 1)
        if not kernel.allowed
        and (pattern := next((one for one in patterns if one and matches(kernel, one)), None))
    )


def names_nothing(
    patterns: Patterns, kernels: Iterable[Kernel], operators: Callable[[], Collection[str]]
) -> tuple[str, ...]:
    """Find the patterns that cannot match on the CPU, where kernels are operators.

    Args:
        patterns: those of one limit.
        kernels: the kernels that ran; a pattern that matches one of them is possible.
        operators: returns the names of all operators; called only if needed.

    Returns:
        The patterns that match neither a kernel that ran nor the name of an operator, and do not
        begin like the names of compiled kernels and autograd nodes.
    """
    ran = list(kernels)
    named = (one for one in _written(patterns) if not _NO_OPERATOR.match(one))
    left = [one for one in named if not any(matches(kernel, one) for kernel in ran)]
    names = operators() if left else ()
    return tuple(one for one in left if not any(map(_compiled(one).search, names)))


def first_mismatch(kernels: Sequence[Kernel], patterns: Patterns) -> Mismatch | None:
    """Find where the kernels first differ from the patterns; None if they are as expected.

    This keeps the set of pattern positions that are reachable after each kernel, so that the time
    stays linear with many wildcards.
    """
    reachable = _skip_runs({0}, patterns)
    for position, kernel in enumerate(kernels, 1):
        stepped = reachable if kernel.allowed else _step(reachable, kernel, patterns)
        after = _skip_runs(stepped, patterns)
        if not after:
            wanted = tuple(sorted(_written({patterns[i] for i in reachable if i < len(patterns)})))
            return Mismatch(len(kernels), position, kernel.short_name, kernel.operators, wanted)
        reachable = after
    if len(patterns) in reachable:
        return None
    return Mismatch(len(kernels), wanted=_written(patterns[min(reachable) :]))


@functools.cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


def _step(at: set[int], kernel: Kernel, patterns: Patterns) -> set[int]:
    after = set()
    for i in at - {len(patterns)}:
        pattern = patterns[i]
        if pattern is None or matches(kernel, pattern):
            after.add(i if pattern is None else i + 1)
    return after


def _skip_runs(at: set[int], patterns: Patterns) -> set[int]:
    reached = set(at)
    for i, pattern in enumerate(patterns):
        if pattern is None and i in reached:
            reached.add(i + 1)
    return reached


def _written(patterns: Iterable[str | None]) -> tuple[str, ...]:
    return tuple(pattern for pattern in patterns if pattern is not None)
