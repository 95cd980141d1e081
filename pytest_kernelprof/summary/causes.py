"""What is wrong with a row, limit by limit, and why: by its baseline if it has one, else by what
ran."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pytest_kernelprof.schema.metrics import METRICS
from pytest_kernelprof.schema.run import Cause
from pytest_kernelprof.summary.kernels import alike, fusions_of, times_words, with_chain
from pytest_kernelprof.summary.records import MARKS, Broken
from pytest_kernelprof.summary.verdicts import REASONS, mismatch_words
from pytest_kernelprof.summary.words import (
    chain_words,
    count_words,
    doubt_words,
    gpu_us,
    is_judged,
    judged_rank,
    limits_of,
    lines_words,
    measured_words,
    pair_words,
    paired_words,
    rank_words,
    source_place,
    title,
    value_of,
)
from pytest_kernelprof.units import format_bytes, format_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pytest_kernelprof.schema.comparison import KernelChange, KernelDiff
    from pytest_kernelprof.schema.paired import Paired
    from pytest_kernelprof.schema.run import Kernel, Profile, Verdict
    from pytest_kernelprof.summary.records import Told

_MOST_KINDS = 3
_LONGEST = 2_000
_BY_WHAT_LAUNCHED = {"kernels", "launches"}


CELLS = ("kernels", "launches", "cuda_time", "latency", "launch_overhead", "syncs", "memcpys")
"""The metrics that have a cell in a table; a limit on another is told in the line of its cause."""
_WRONG = ("failed", "incomplete", "undecided")


def broken_cells(profile: Profile) -> dict[str, Broken]:
    """The values that are beyond what is allowed, by metric: of several on one metric that of a
    limit, and of several limits the strictest; else a baseline's."""
    found: dict[str, Broken] = {}
    for verdict in profile.verdicts:
        # Of kernels that match a pattern a limit is not about the value of a metric.
        counts_some = verdict.limit == "max_kernels" and bool(verdict.qualifier)
        known = verdict.measured is not None and verdict.allowed is not None
        if verdict.metric not in METRICS or counts_some or not known:
            continue
        if verdict.outcome in ("failed", "expected failure"):
            unit = METRICS[verdict.metric].unit
            measured, allowed = verdict.measured or 0.0, verdict.allowed or 0.0
            rank = next(iter(verdict.ranks), None)
            one = Broken(verdict.metric, unit, measured, allowed, title(verdict), rank)
            if one.metric not in found or one.allowed < found[one.metric].allowed:
                found[one.metric] = one
    for one in _more_than_baselines(profile):
        found.setdefault(one.metric, one)
    return found


def _more_than_baselines(profile: Profile) -> Iterator[Broken]:
    """What there is more of than in a baseline that it is held to."""
    for verdict in profile.verdicts:
        if verdict.outcome == "failed" and verdict.comparison is not None:
            for one in verdict.comparison.worse:
                if one.current is not None and one.baseline is not None:
                    unit = one.spec.unit
                    rank = verdict.comparison.rank
                    yield Broken(one.name, unit, one.current, one.baseline, verdict.limit, rank)


def found_in(profile: Profile, told: Told | None, *, failed: bool) -> tuple[str, ...]:
    """All that is wrong with a profile, limits first; of one that is marked at least one.

    Args:
        failed: whether its test did.
    """
    found = [*found_by(profile.verdicts), *_found_by_baselines(profile)]
    # A cell has the value of a limit: a baseline that is exceeded by the same metric has none.
    for one in _more_than_baselines(profile) if failed else ():
        if not any(other.startswith(f"{one.by}: ") for other in found):
            found.append(_broken_words(one))
    if not found and told is not None:  # over, but of no count: of times in turn
        found = ["against: slower" if told == "failed" else MARKS[told].word]
    return tuple(found)


def found_by(verdicts: Iterable[Verdict]) -> Iterator[str]:
    """What is wrong by limits, and what baselines leave open."""
    for one in verdicts:
        if one.outcome in _WRONG and (one.of_limit or one.outcome != "failed"):
            told: str = one.outcome
            if one.outcome == "failed":
                sign = " < " if one.limit.startswith("min_") else " > "
                told = sign.join(filter(None, measured_words(one))) or "exceeded"
            yield f"{title(one)}: {told}{rank_words(one)}"


def _found_by_baselines(profile: Profile) -> Iterator[str]:
    """A launch more for each kernel more is nothing else that is wrong."""
    broken = broken_cells(profile)
    baselines = {one.limit for one in profile.verdicts if not one.of_limit}
    kernels, launches = broken.get("kernels"), broken.get("launches")
    alike = (
        kernels
        and launches
        and launches.measured - kernels.measured == (launches.allowed - kernels.allowed)
    )
    for one in broken.values():
        if one.by in baselines and not (alike and one.metric == "launches"):
            yield _broken_words(one)


def _broken_words(one: Broken) -> str:
    return f"{one.by}: {one.metric} {' > '.join(pair_words(one.unit, one.measured, one.allowed))}"


def causes_of(profile: Profile, told: Told | None) -> tuple[Cause, ...]:
    """Why a row is marked so; none where it is well."""
    if told == "incomplete":
        return (_incomplete(profile),)
    if told == "undecided":
        return tuple(
            _undecided(one, profile) for one in profile.verdicts if one.outcome == "undecided"
        )
    if told == "failed":
        return _over(profile)
    return ()


def beside_of(profile: Profile, told: Told | None) -> tuple[Cause, ...]:
    """What else to know of a profile: of child processes, and which limits were not judged, beside
    others that were."""
    elsewhere = tuple(map(Cause, profile.integrity.elsewhere))
    if told == "not judged":
        return elsewhere
    left = dict.fromkeys(title(one) for one in limits_of([profile]) if not is_judged(one))
    unjudged = (Cause(f"not judged on the CPU: {', '.join(left)}"),) if left else ()
    return (*elsewhere, *unjudged)


def explained(profile: Profile) -> Profile:
    """Return the profile with the cause in each verdict of an exceeded limit.

    Args:
        profile: a whole one. Reports and run documents keep only some of its kernels.
    """
    verdicts = (
        replace(one, cause=_cause_of(one, profile))
        if one.of_limit and one.outcome == "failed"
        else one
        for one in profile.verdicts
    )
    return replace(profile, verdicts=tuple(verdicts))


def causes_of_diff(diff: KernelDiff) -> tuple[Cause, ...]:
    """Kernels that do what others did; then one line a change, in launch order; then what takes
    longer; of the same kernels, which are launched at another place or by another operator."""
    fusions = fusions_of(diff)
    fused = {id(change) for one in fusions for change in (*one.gone, *one.come)}
    return (
        *(Cause(one.words, source_place(one.come[0].side.source)) for one in fusions),
        *(_change_cause(one) for one in diff.came_or_went if id(one) not in fused),
        *map(_slower_cause, diff.of("slower")),
        *([] if diff.came_or_went else map(_elsewhere_cause, diff.of("moved", "operator"))),
    )


def _change_cause(change: KernelChange) -> Cause:
    kernel = change.side
    place = source_place(kernel.source)
    words = times_words(kernel.short_name, change.times)
    if change.baseline is not None and change.current is not None:
        variant = "another variant, " if change.kind == "renamed" else ""
        return Cause(f"{words}: {variant}was {change.baseline.short_name}", place)
    words = with_chain(words, chain_words(kernel.operators, kernel.name))
    words += lines_words(change.lines)
    return Cause(words, place, "-" if change.current is None else "+")


def _elsewhere_cause(change: KernelChange) -> Cause:
    kernel, name = change.side, times_words(change.side.short_name, change.times)
    place = source_place(kernel.source)
    if change.kind == "moved":
        positions = ", ".join(map(str, change.positions))
        return Cause(f"moved: {name}{f', now kernel {positions}' if positions else ''}", place)
    sides = [one.operators[:1] if one else () for one in (change.baseline, change.current)]
    before, now = (next(iter(one), "no operator") for one in sides)
    return Cause(f"{name}: launched by {now}, was {before}", place)


def _slower_cause(change: KernelChange) -> Cause:
    sides = (change.baseline, change.current)
    told = " -> ".join(format_time(change.us(one) * change.times) for one in sides)
    kernel = change.side
    words = f"slower: {times_words(kernel.short_name, change.times)}, {told}"
    return Cause(words, source_place(kernel.source))


def _over(profile: Profile) -> tuple[Cause, ...]:
    over = [one for one in profile.verdicts if one.outcome == "failed"]
    worse = [one.comparison for one in over if one.comparison is not None]
    found = (causes_of_diff(one.kernels) for one in worse if one.kernels is not None)
    # Of what there is to compare with, the first that names kernels.
    changes = (*next(filter(None, found), ()), *(c for one in worse for c in _slower(one.paired)))
    named = set()
    if changes:  # they say which kernels, so the limits on kernels need not
        named = {one.limit for one in over if one.metric in (*_BY_WHAT_LAUNCHED, "cuda_time")}
    limits = (one for one in over if one.of_limit and one.limit not in named)
    return tuple(dict.fromkeys((*changes, *(_limit_cause(one, profile) for one in limits))))


def _slower(paired: Paired | None) -> tuple[Cause, ...]:
    """How much longer it takes than the baseline, where that is what is worse."""
    return (Cause(paired_words(paired)),) if paired and paired.change == "worse" else ()


def _limit_cause(verdict: Verdict, profile: Profile) -> Cause:
    """What a limit that is broken is about. What has no cell says its numbers, too."""
    cause, where = verdict.cause or _cause_of(verdict, profile), rank_words(verdict)
    if verdict.metric in CELLS and not verdict.qualifier and cause.text:
        return Cause(f"{where.strip()}: {cause.text}", cause.place) if where else cause
    values = " > ".join(filter(None, measured_words(verdict)))
    told = "; ".join(filter(None, [values + where, cause.text]))
    return Cause(f"{title(verdict)}: {told}", cause.place)


def _cause_of(verdict: Verdict, profile: Profile) -> Cause:
    about = _ABOUT.get(verdict.metric.split("_")[0])
    cause = about(verdict, judged_rank(profile, verdict)) if about else Cause("")
    return replace(cause, text=cause.text[:_LONGEST])


def _what_launched(verdict: Verdict, profile: Profile) -> Cause:
    """The kernels by how many there are of each kind, else in launch order.

    Which of them are extra is known only where none is allowed: else the place is the call.
    """
    pattern = verdict.qualifier
    kinds = alike(_matching(profile.kernels, pattern) if pattern else profile.kernels)
    if not kinds:
        return Cause("")
    numbers: Counter[tuple[str, str]] = Counter()
    for one in kinds:  # one for each line
        numbers[one.name, one.chain] += one.number
    words = _kinds_words([(name, by, n) for (name, by), n in numbers.most_common()])
    most = max(kinds, key=lambda one: one.number)
    place = verdict.place or profile.place if verdict.allowed else most.place
    return Cause(words, place)


def _kinds_words(kinds: Sequence[tuple[str, str, int]]) -> str:
    """Of kinds by name, operators and number, the most frequent first: a few, and how many more."""
    told = [with_chain(times_words(name, n), chain) for name, chain, n in kinds[:_MOST_KINDS]]
    left = sum(n for *_, n in kinds[_MOST_KINDS:])
    return "; ".join([*told, *([f"{left} more"] if left else [])])


def _matching(kernels: Sequence[Kernel], pattern: str) -> Sequence[Kernel]:
    """Those that ``max_kernels(match=...)`` counts, as ``limits.patterns`` says; all where it is
    no pattern."""
    try:
        wanted = re.compile(pattern, re.IGNORECASE)
    except re.error:  # of a file that somebody has written
        return kernels
    texts = ((one, (one.name, one.short_name, *one.operators)) for one in kernels)
    return [one for one, named in texts if any(map(wanted.search, named))]


def _what_takes_time(verdict: Verdict, profile: Profile) -> Cause:
    talking = {one.kernel for one in profile.collectives}
    computing = [one for at, one in enumerate(profile.kernels) if at not in talking]
    return _longest_of(computing, verdict)


def _what_communicates(verdict: Verdict, profile: Profile) -> Cause:
    kernels = profile.kernels
    talking = [one.kernel for one in profile.collectives if 0 <= one.kernel < len(kernels)]
    return _longest_of([kernels[at] for at in talking], verdict)


def _longest_of(kernels: Sequence[Kernel], verdict: Verdict) -> Cause:
    """The kind of them that takes longest."""
    most = max(alike(kernels), key=lambda one: one.us, default=None)
    if most is None or not most.us:
        return Cause(_spread(verdict))
    words = f"{times_words(most.name, most.number)} takes {format_time(most.us)}"
    return Cause(with_chain(words, most.chain), most.place)


def _what_waits(verdict: Verdict, profile: Profile) -> Cause:
    return _most_of([(one.call, one.operators, one.source) for one in profile.waits])


def _what_is_copied(verdict: Verdict, profile: Profile) -> Cause:
    way = verdict.qualifier
    copies = [one for one in profile.copies if not way or one.direction == way]
    cause = _most_of([(one.name, one.operators, one.source) for one in copies])
    size = sum(one.bytes for one in copies)
    return Cause(f"{format_bytes(size)}: {cause.text}", cause.place) if copies else cause


def _most_of(found: Sequence[tuple[str, tuple[str, ...], str]]) -> Cause:
    """Copies or waits by how many there are of each kind: name, operators, line."""
    numbers = Counter((name, chain_words(operators), source) for name, operators, source in found)
    kinds = numbers.most_common()
    words = _kinds_words([(name, chain, n) for (name, chain, _), n in kinds])
    return Cause(words, source_place(kinds[0][0][2]) if kinds else None)


def _where_the_overhead_is(verdict: Verdict, profile: Profile) -> Cause:
    """How much of a call the GPU has nothing to do, and what a launch costs beside its kernel."""
    overhead, latency = verdict.measured, value_of(profile, "latency")
    launches, each = value_of(profile, "launches"), value_of(profile, "overhead_per_launch")
    parts = []
    if overhead is not None and latency:
        parts.append(f"{overhead / latency * 100:.0f} % of a call the GPU is idle")
    if launches and each is not None:
        kernels_us = gpu_us(profile) + (value_of(profile, "comm_time") or 0.0)
        each_us = kernels_us / max(1, profile.kernel_count)
        parts.append(
            f"{count_words(int(launches), 'launch', 'launches')} of {format_time(each)} each for "
            f"kernels of {format_time(each_us)}"
        )
    return Cause(": ".join(parts))


def _why_it_compiled(verdict: Verdict, profile: Profile) -> Cause:
    return Cause(profile.metrics["recompiles"].why if "recompiles" in profile.metrics else "")


def _spread(verdict: Verdict) -> str:
    if verdict.low is None or verdict.high is None:
        return ""
    low, high = format_time(verdict.low), format_time(verdict.high)
    return f"99 % CI {low}..{high} by {count_words(verdict.rounds, 'round')}"


def _what_matches(verdict: Verdict, profile: Profile) -> Cause:
    """Of limits on kernel names, the kernels that are wrong."""
    kernels = profile.kernels
    found = verdict.mismatch
    if found is not None:
        at = found.position
        place = source_place(kernels[at - 1].source) if 0 < at <= len(kernels) else None
        return Cause(mismatch_words(found), place)
    hits = verdict.hits
    if not hits:
        return Cause("")
    first = hits[0].position
    known = kernels[first - 1] if 0 < first <= len(kernels) else None
    place = source_place(known.source) if known else None
    names = Counter(one.kernel for one in hits)
    ran = ", ".join(times_words(name, n) for name, n in names.most_common(_MOST_KINDS))
    chain = chain_words(known.operators, known.name) if known and len(names) == 1 else ""
    return Cause(with_chain(f"forbidden kernel ran: {ran}", chain), place)


_ABOUT: dict[str, Callable[[Verdict, Profile], Cause]] = {
    "": _what_matches,
    "kernels": _what_launched,
    "launches": _what_launched,
    "cuda": _what_takes_time,
    "exposed": _what_communicates,
    "latency": lambda verdict, _: Cause(_spread(verdict)),
    "launch": _where_the_overhead_is,
    "syncs": _what_waits,
    "memcpys": _what_is_copied,
    "memcpy": _what_is_copied,
    "recompiles": _why_it_compiled,
}
"""By the first word of the metric; of limits on names there is none."""


def _incomplete(profile: Profile) -> Cause:
    """What is missing, and how often it was tried."""
    tries = profile.integrity.retakes + 1
    tried = f", after {tries} tries" if tries > 1 else ""
    if profile.integrity.problems:
        return Cause(f"no number: {'; '.join(profile.integrity.problems)}{tried}")
    lost = [one for one in profile.verdicts if one.outcome == "incomplete"]
    return Cause("; ".join(f"{title(one)}: {one.why}" for one in lost))


def _undecided(verdict: Verdict, profile: Profile) -> Cause:
    paired = verdict.comparison.paired if verdict.comparison is not None else None
    if paired is not None:
        return Cause(f"{title(verdict)}: {paired_words(paired)}")
    if verdict.allowed is None or verdict.measured is None:
        return Cause(f"{title(verdict)}: {REASONS.get(verdict.reason, 'undecided')}")
    value, limit = pair_words(verdict.unit, verdict.measured, verdict.allowed)
    rounds = count_words(verdict.rounds, "round")
    if verdict.reason == "interval" and verdict.low is not None and verdict.high is not None:
        low, high = format_time(verdict.low), format_time(verdict.high)
        return Cause(f"{title(verdict)} {limit} lies inside {low}..{high} after {rounds}")
    why = doubt_words(profile.conditions) if verdict.reason == "disturbed" else ""
    why = why or REASONS.get(verdict.reason, "reason unknown")
    return Cause(f"{title(verdict)} {limit}, measured {value} in {rounds}: {why}")
