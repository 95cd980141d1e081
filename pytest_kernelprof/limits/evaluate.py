"""Judges a profile by its limits: verdicts with the words that a failure shows."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pytest_kernelprof.units import format_bytes, format_time

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_kernelprof.analysis.metrics import Metric
    from pytest_kernelprof.analysis.profile import Kernel, Profile
    from pytest_kernelprof.limits.kinds import Limit

FEWEST_ROUNDS = 8
"""With fewer no interval has 99 %; the median alone is judged, and the verdict says so."""

Outcome = Literal["pass", "fail", "inconclusive", "not applicable", "unavailable"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """How one limit fared: its outcome and one line that says so, verdict first."""

    limit: Limit
    outcome: Outcome
    text: str


def judge(profile: Profile, limits: Iterable[Limit]) -> list[Verdict]:
    """A verdict for each limit. "unavailable" is a value that could not be had: never a pass."""
    return [_judge(profile, limit) for limit in limits]


def _judge(profile: Profile, limit: Limit) -> Verdict:
    if profile.device_kind == "cpu" and not limit.on_cpu:
        return Verdict(limit, "not applicable", f"{limit.name}: not applicable on the CPU")
    if limit.name == "expect_kernels":
        return _expected(profile, limit)
    if limit.name == "forbid_kernels":
        return _forbidden(profile, limit)
    if limit.patterns:
        return _matching(profile, limit)
    metric = profile.metrics[limit.metric]
    if metric.value is None:
        return Verdict(limit, "unavailable", f"{limit.name}: {limit.metric} {metric.why}")
    if metric.kind == "exact":
        return _exact(profile, limit, metric)
    return _timed(profile, limit, metric)


def _exact(profile: Profile, limit: Limit, metric: Metric) -> Verdict:
    assert metric.value is not None
    shown = format_bytes if metric.unit == "bytes" else "{:.0f}".format
    outcome: Outcome = "fail" if metric.value > limit.bound else "pass"
    value, noun = shown(metric.value), _noun(profile, metric)
    text = f"{_title(limit)}: {value} {noun}, limit {shown(limit.bound)}"
    return Verdict(limit, outcome, text + _stability(metric.rounds, profile))


def _stability(rounds: tuple[float, ...], profile: Profile) -> str:
    if len(set(rounds)) <= 1:
        return ""
    values = ", ".join(f"{value:.0f}" for value in rounds)
    state = "UNSTABLE" if profile.integrity.complete else "incomplete"
    return f" ({state}: {values} in {len(rounds)} rounds, the largest counts)"


def _timed(profile: Profile, limit: Limit, metric: Metric) -> Verdict:
    assert metric.value is not None
    bound, limit_words = limit.bound, format_time(limit.bound)
    if limit.relative:
        latency = profile.metrics["latency"].value or 0.0
        bound = limit.bound * latency
        limit_words = f"{limit.bound:.0%} of the latency {format_time(latency)}"
    low = metric.value if metric.low is None else metric.low
    high = metric.value if metric.high is None else metric.high
    outcome: Outcome = "fail" if low > bound else "pass" if high <= bound else "inconclusive"
    if metric.low is None and len(metric.rounds) >= FEWEST_ROUNDS:
        outcome = "inconclusive"
    spread = _spread(metric, bound)
    why = _why_inconclusive(metric) if outcome == "inconclusive" else ""
    doubt = profile.conditions.doubt
    second = profile.second_look.get(limit.metric) if limit.host_time else None
    if outcome == "fail" and second is not None and second.value is not None:
        spread += f"; a second look: {format_time(second.value)}"
        if (second.value if second.low is None else second.low) <= bound:
            outcome, why = "inconclusive", "the second look does not confirm it"
    if doubt:
        outcome, why = "inconclusive", doubt
    text = f"{limit.name}: {format_time(metric.value)}, limit {limit_words} ({spread})"
    return Verdict(limit, outcome, text + (f": INCONCLUSIVE, {why}" if why else ""))


def _why_inconclusive(metric: Metric) -> str:
    return (
        "neighbouring rounds are too alike"
        if metric.low is None
        else "the interval holds the limit"
    )


def _spread(metric: Metric, bound: float) -> str:
    assert metric.value is not None
    ratio = metric.value / bound if bound else 0.0
    over = f"x{ratio:.3g}, " if ratio > 10 else f"{(ratio - 1) * 100:+.1f} %, " if bound else ""
    rounds = len(metric.rounds)
    if metric.low is None or metric.high is None:
        few = "one round" if rounds == 1 else f"{rounds} rounds"
        what = "too few for an interval" if rounds < FEWEST_ROUNDS else "no interval"
        return f"{over}{few}, {what}"
    interval = f"99 % CI {metric.low:.1f}..{metric.high:.1f}us, {rounds} rounds"
    if metric.block > 1:
        interval += f" in blocks of {metric.block}"
    return f"{over}{interval}" + (f"; {metric.why}" if metric.why else "")


def _title(limit: Limit) -> str:
    return f"{limit.name}({limit.qualifier})" if limit.qualifier else limit.name


_NOUNS = {
    "kernels": ("kernel launched", "kernels launched"),
    "launches": ("launch call", "launch calls"),
    "memcpys": ("memory copy", "memory copies"),
    "memcpy_bytes": ("copied", "copied"),
    "syncs": ("wait for the device", "waits for the device"),
    "allocations": ("device allocation or free", "device allocations and frees"),
    "peak_memory": ("peak memory", "peak memory"),
    "recompiles": ("compilation", "compilations"),
}


def _noun(profile: Profile, metric: Metric) -> str:
    """What a metric counts, in the number of its value."""
    many = metric.value != 1
    if metric.name == "kernels" and profile.device_kind == "cpu":
        return "compute operators" if many else "compute operator"
    return _NOUNS[re.sub(r"_(h2d|d2h|d2d|p2p)$", "", metric.name)][many]


def matches(kernel: Kernel, pattern: str) -> bool:
    """Whether a pattern is found in the kernel's full name, short name or operator chain.

    Names differ between GPUs and on the CPU, operators don't. Case is ignored.
    """
    compiled = _compiled(pattern)
    texts = (kernel.name, kernel.short_name, *kernel.operators)
    return any(compiled.search(text) for text in texts)


@functools.cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


def _matching(profile: Profile, limit: Limit) -> Verdict:
    (pattern,) = limit.patterns
    assert pattern is not None
    found = max(sum(matches(one, pattern) for one in kernels) for kernels in profile.variants)
    outcome: Outcome = "fail" if found > limit.bound else "pass"
    words = "1 kernel matches" if found == 1 else f"{found} kernels match"
    text = f"max_kernels(match={pattern!r}): {words}, limit {limit.bound:.0f}"
    return Verdict(limit, outcome, text + _stability(profile.metrics["kernels"].rounds, profile))


def _forbidden(profile: Profile, limit: Limit) -> Verdict:
    hits = next(filter(None, (_hits(kernels, limit) for kernels in profile.variants)), [])
    if not hits:
        return Verdict(limit, "pass", f"forbid_kernels: none of {len(profile.kernels)} kernels")
    more = f" and {len(hits) - 4} more" if len(hits) > 4 else ""
    return Verdict(
        limit, "fail", f"forbid_kernels: {len(hits)} forbidden: {', '.join(hits[:4])}{more}"
    )


def _hits(kernels: tuple[Kernel, ...], limit: Limit) -> list[str]:
    """The forbidden kernels of one round, each with the first pattern that it matches."""
    hits = []
    for i, kernel in enumerate(kernels, 1):
        pattern = next((p for p in limit.patterns if p and matches(kernel, p)), None)
        if pattern:
            hits.append(f"#{i} {kernel.short_name} ({pattern!r})")
    return hits


def _expected(profile: Profile, limit: Limit) -> Verdict:
    kernels = next((k for k in profile.variants if not _fits(k, limit.patterns)), None)
    if kernels is None:
        kernels = profile.kernels
        return Verdict(limit, "pass", f"expect_kernels: all {len(kernels)} as expected")
    wanted = ", ".join("..." if p is None else repr(p) for p in limit.patterns) or "no kernels"
    where = _first_misfit(kernels, limit.patterns)
    return Verdict(
        limit, "fail", f"expect_kernels: {len(kernels)} kernels, expected {wanted}; {where}"
    )


def _fits(kernels: tuple[Kernel, ...], patterns: tuple[str | None, ...]) -> bool:
    """Match kernels to patterns, ``None`` for any run: the set of pattern positions reachable
    after each kernel, so that many wildcards stay linear."""
    reachable = _skip_runs({0}, patterns)
    for kernel in kernels:
        reachable = _skip_runs(_step(reachable, kernel, patterns), patterns)
    return len(patterns) in reachable


def _step(at: set[int], kernel: Kernel, patterns: tuple[str | None, ...]) -> set[int]:
    after = set()
    for i in at:
        if i < len(patterns):
            pattern = patterns[i]
            if pattern is None:
                after.add(i)
            elif matches(kernel, pattern):
                after.add(i + 1)
    return after


def _skip_runs(at: set[int], patterns: tuple[str | None, ...]) -> set[int]:
    reached = set(at)
    for i in range(len(patterns)):
        if i in reached and patterns[i] is None:
            reached.add(i + 1)
    return reached


def _first_misfit(kernels: tuple[Kernel, ...], patterns: tuple[str | None, ...]) -> str:
    reachable = _skip_runs({0}, patterns)
    for i, kernel in enumerate(kernels, 1):
        wanted = sorted({patterns[j] for j in reachable if j < len(patterns)} - {None}, key=str)
        reachable = _skip_runs(_step(reachable, kernel, patterns), patterns)
        if not reachable:
            chain = " < ".join(kernel.operators[:2]) or "no operator"
            want = " or ".join(map(repr, wanted))
            after = f"not {want}" if want else "where no more were expected"
            return f"kernel {i} is {kernel.short_name} ({chain}), {after}"
    left = [repr(p) for p in patterns[min(reachable) :] if p is not None]
    return f"nothing is left for {', '.join(left)}"
