"""Verdicts in words: how a limit or a comparison fared, and what caused it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from pytest_kernelprof.kernel_names.short_names import tell_apart
from pytest_kernelprof.records import comparison as compared
from pytest_kernelprof.records.document import ComparedCallable, Comparison
from pytest_kernelprof.records.metrics import METRICS, SHARE_OF, WITH_INTERVAL
from pytest_kernelprof.records.profile import Cause, Kernel, Mismatch, Profile, Verdict
from pytest_kernelprof.records.recording import Integrity
from pytest_kernelprof.stats.intervals import FEWEST_ROUNDS
from pytest_kernelprof.summary import wording
from pytest_kernelprof.summary.comparisons import range_words
from pytest_kernelprof.summary.kernels import times_words, with_chain
from pytest_kernelprof.summary.records import Broken, Told
from pytest_kernelprof.units import format_bytes, format_time, printable

_MOST_HITS, _MOST_NAMED = 4, 2
_WHOLES = {"latency": "the latency", "gpu_busy": "the GPU's busy time"}  # else a peak
_REASONS = {
    "interval": "too close to the limit to call",
    "alike": "neighbouring rounds are too alike",
    "few": "too few rounds for an interval",
    "second look": "the second look does not confirm it",
    "disturbed": "the GPU was disturbed",
}
"""Why a time is undecided, by the verdict's reason."""


def verdict_line(verdict: Verdict, doubt: str = "") -> str:
    """One limit of a profile and how it fared, for example ``max_kernels: 5 > limit 1``.

    Args:
        doubt: what disturbed the GPU, if it was; see ``wording.doubt``.
    """
    if verdict.outcome in ("incomplete", "not judged"):
        words = verdict.why
    elif verdict.comparison is not None:
        words = delta_words(verdict.comparison)
        paired = verdict.comparison.paired
        if paired is not None and paired.change == "undecided" and paired.pairs:
            return words  # which say how it was compared, and why nothing follows
    else:
        words = _values(verdict) if verdict.metric else _names(verdict)
    words += wording.on_ranks(verdict) + _doubt_after(verdict, doubt)
    return f"{wording.title(verdict)}: {'; '.join(filter(None, [words, verdict.apart]))}"


def _doubt_after(verdict: Verdict, doubt: str) -> str:
    """Why a time is undecided, or exceeded although other work was on the GPU; else empty."""
    if verdict.outcome == "undecided":
        disturbed = doubt if verdict.reason == "disturbed" else ""
        return f": undecided, {disturbed or _REASONS.get(verdict.reason, 'reason unknown')}"
    if verdict.reason != "beyond" or verdict.fastest is None or not verdict.allowed:
        return ""
    fastest = wording.amount(verdict.unit, verdict.fastest)
    return (
        f"; EXCEEDED THOUGH CONTENDED: the fastest rounds give {fastest}, which is off by more "
        "than a factor of 2; other work does not explain that"
    )


def _values(verdict: Verdict) -> str:
    """The value beside its limit, and how sure it is."""
    if not (words := wording.beside_limit(verdict)):
        return "not measured"
    about = _about_value(verdict)
    return f"{words} ({about})" if about else words


def _about_value(verdict: Verdict) -> str:
    if verdict.unit in WITH_INTERVAL:
        return how_sure(verdict)
    if not verdict.values:
        return ""
    values = ", ".join(f"{value:.0f}" for value in verdict.values)
    rounds = f"{values} in {len(verdict.values)} rounds, the largest counts"
    return f"{verdict.note or 'UNSTABLE'}: {rounds}"


def detail_of(verdict: Verdict) -> str:
    """What ``verdict_line`` says of a limit or comparison that failed and ``found_by`` does not:
    how sure a time is, what was expected, what was not counted; empty where they say the same."""
    if (found := verdict.comparison) is not None:
        timed = (one for one in found.worse if one.spec.unit != "count")
        told = [delta_line(one, sure=True) for one in timed]
        if found.paired is not None and found.paired.change == "worse":
            told.append(wording.how_paired(found.paired))
    else:
        about = _about_value(verdict) if verdict.metric else _names(verdict).partition("; ")[2]
        told = [about, _doubt_after(verdict, "").lstrip("; "), verdict.apart]
    return "; ".join(filter(None, told)) if verdict.outcome == "failed" else ""


def how_sure(verdict: Verdict) -> str:
    """What to know of a time beside its limit: ``+25.0 %, 99 % CI 248.0..252.0us, 12 rounds``."""
    about = ", ".join(filter(None, [_share(verdict), _excess(verdict), _spread(verdict)]))
    if verdict.note:
        about += f"; {verdict.note}"
    if verdict.second_look is not None:
        about += f"; a second look: {format_time(verdict.second_look)}"
    return about


def _share(verdict: Verdict) -> str:
    if verdict.share is None:
        return ""
    whole = _WHOLES.get(SHARE_OF.get(verdict.metric, "latency"), "the peak")
    return f"{verdict.share * 100:g}% of {whole} {wording.amount(verdict.unit, verdict.share_of)}"


def _excess(verdict: Verdict) -> str:
    if not verdict.allowed or verdict.measured is None:
        return ""
    ratio = verdict.measured / verdict.allowed
    return wording.percent(ratio - 1) if ratio <= 10 else f"x{ratio:,.0f}"


def _spread(verdict: Verdict) -> str:
    """How sure a verdict's value is: ``99 % CI 234.1..236.0us, 24 rounds``."""
    what = "pair" if verdict.unit == "times" else "round"
    interval = wording.interval((verdict.low, verdict.high), verdict.unit)
    return _sure(interval, wording.count(verdict.rounds, what), verdict.rounds, verdict.block)


def _sure(interval: str, counted: str, number: int, block: int) -> str:
    if not interval:
        return f"{counted}, {'too few for an' if number < FEWEST_ROUNDS else 'no'} interval"
    return f"{interval}, {counted}" + (f" in blocks of {block}" if block > 1 else "")


# Limits on kernel names.


def _names(verdict: Verdict) -> str:
    if (found := verdict.mismatch) is not None:
        wanted = ", ".join("..." if p is None else repr(p) for p in verdict.patterns)
        expected = f"{wording.count(found.kernels, 'kernel')}, expected {wanted or 'no kernels'}"
        return f"{_mismatch_words(found)}; {expected}"
    kernels = wording.count(int(verdict.measured or 0), "kernel")
    if verdict.limit == "expect_kernels":
        return f"all {kernels} as expected"
    if not verdict.hits:
        return f"none of {kernels} is forbidden"
    hits = [f"#{hit.position} {hit.kernel} ({hit.pattern!r})" for hit in verdict.hits]
    ran = wording.count(len(hits), "forbidden kernel")
    return f"{ran} ran: {', '.join(wording.first_of(hits, _MOST_HITS, 'and {} more'))}"


def _mismatch_words(found: Mismatch) -> str:
    """Where the kernels first differ: ``kernel 3: expected 'mm', got add (aten::add)``."""
    named = " or ".join(map(repr, found.wanted))
    if not found.position:
        return f"no kernel for {named}"
    chain = wording.chain(found.operators, found.kernel)
    by = "" if found.operators and not chain else f" ({chain or 'no operator'})"
    if named:
        return f"kernel {found.position}: expected {named}, got {found.kernel}{by}"
    return f"unexpected kernel {found.position}: {found.kernel}{by}"


# Comparisons with a baseline.


def delta_words(found: compared.ProfileComparison) -> str:
    """What differs from a baseline, and is judged: ``kernels 4 -> 5, cuda_time 200.0us -> 234.9us
    (+17.5 %)``."""
    if found.source == "snapshot" and (diff := found.kernels) is not None:
        alike = "resources changed" if diff.of("reconfigured") else "order or operators changed"
        usual = f"other {found.counted}, same number" if diff.added_or_removed else alike
        if found.change == "same":
            number = wording.count(diff.current_kernels, found.counted[:-1])
            usual = f"{number}, as in the file"
        deltas = telling(sorted(found.metrics, key=lambda one: one.change != "worse"))
        return ", ".join(count_change(one, found.counted) for one in deltas) or usual
    judged = [one for one in found.metrics if one.judged and one.change in ("worse", "undecided")]
    words = [delta_line(one, found.counted, sure=True) for one in telling(found.worse) or judged]
    paired = found.paired
    if paired is not None and paired.change in ("worse", "undecided"):
        words.append(wording.paired(paired))
    return ", ".join(words) or ("its times" if found.untimed else "no more than before")


def telling(deltas: Sequence[compared.MetricDelta]) -> list[compared.MetricDelta]:
    """Without launches where they are as many more as kernels."""
    values = {one.name: (one.baseline, one.current) for one in deltas}
    same = values.get("launches") == values.get("kernels")
    return [one for one in deltas if one.name != "launches" or not same]


def count_change(one: compared.MetricDelta, counted: str = "kernels") -> str:
    """``kernels 4 -> 5``, from the baseline to now.

    Args:
        counted: what the metric ``kernels`` counts.
    """
    change = wording.changed(one.spec.unit, one.baseline or 0.0, one.current or 0.0)
    return f"{counted if one.name == 'kernels' else one.name} {change}"


def delta_line(one: compared.MetricDelta, counted: str = "kernels", *, sure: bool = False) -> str:
    """``memcpys 1 -> 2``; of times and sizes with the share, ``latency 40us -> 43us (+7.5 %)``.

    Args:
        counted: what the metric ``kernels`` counts. sure: with the interval of a time.
    """
    words, more = count_change(one, counted), (one.current or 0.0) - (one.baseline or 0.0)
    if one.spec.unit == "count":
        return words
    share = f"{more:+.0f}" if one.share is None else wording.percent(one.share)
    interval = wording.interval(one.interval) if sure and one.spec.kind == "timed" else ""
    return f"{words} ({', '.join(filter(None, [share, interval]))})"


# Comparisons of callables.

_COMPARED = {"cuda_time": "GPU time", "latency": "latency", "peak_memory": "peak memory"}


def headline(comparison: Comparison, candidate: str = "") -> str:
    """How a candidate, by default the first, compares with the reference, in one line.

    Raises:
        ValueError: no callable has that name.
    """
    one = _candidate(comparison, candidate)
    paired = one.paired
    assert paired is not None, "it is no reference"
    interval = wording.interval(paired.speedup_interval, "times")
    pairs = wording.count(comparison.pairs, "pair")
    spread = _sure(interval, pairs, comparison.pairs, paired.block)
    return _speedup(comparison, one, paired.speedup, spread)


def comparison_line(comparison: Comparison, verdict: Verdict) -> str:
    """A limit of a comparison of callables and how it fared, with the names of both."""
    words = verdict.why
    if verdict.measured is not None:
        one = _candidate(comparison, verdict.candidate)
        doubt = "; ".join(dict.fromkeys(map(wording.doubt, comparison.conditions)))
        words = _speedup(comparison, one, verdict.measured, _spread(verdict))
        words += _doubt_after(verdict, doubt)
    return printable(f"{wording.title(verdict)}: {words}")


def compared_metric(comparison: Comparison) -> str:
    """What of callables was compared, in words."""
    return _COMPARED.get(comparison.metric, comparison.metric)


def unstable_words(comparison: Comparison) -> list[str]:
    """What to know of callables that launch another number of kernels now and then."""
    unstable = ((one.name, one.unstable) for one in comparison.callables if one.unstable)
    ends = ((name, f"{min(numbers)} to {max(numbers)}") for name, numbers in unstable)
    return [f"UNSTABLE: {name} launched {number} kernels a call" for name, number in ends]


def _speedup(comparison: Comparison, one: ComparedCallable, speedup: float, spread: str) -> str:
    sure = "; ".join([spread, *unstable_words(comparison)])
    versus = f"{one.name} over {comparison.reference}, {compared_metric(comparison)}"
    times = "as much" if comparison.metric == "peak_memory" else "slower"
    good = f"speedup {speedup:.3f}" if speedup >= 0.1 else f"{1 / speedup:,.0f}x {times}"
    return f"{versus}: {good} ({sure})"


def _candidate(comparison: Comparison, name: str) -> ComparedCallable:
    """The callable of that name; without one, the first that is not the reference."""
    for one in comparison.callables:
        if one.name == name or (not name and one.name != comparison.reference):
            return one
    names = ", ".join(repr(one.name) for one in comparison.callables)
    raise ValueError(f"{name!r} was not compared, only {names}")


# How far a profile can be trusted.


def footing(profile: Profile) -> str:
    """What a reader should know of a profile's numbers: completeness, bound, disturbances."""
    return "; ".join(filter(None, [integrity_words(profile), *_remarks(profile)]))


def reservations(profile: Profile) -> str:
    """What a reader should know of a profile's numbers, beside that they are complete."""
    if not profile.integrity.complete:
        return footing(profile)
    known = [_ON_CPU] if profile.on_cpu else []
    known += _beside_complete(profile)
    return "; ".join(filter(None, [", ".join(known), *_remarks(profile)]))


def size_words(profile: Profile) -> str:
    """Why it took long to profile, and how it takes less; empty if it did not."""
    counted = wording.count(profile.kernel_count, "operator" if profile.on_cpu else "kernel")
    told = f"{counted} in a call take long to profile: measure fewer steps, or a part of them"
    return told if profile.kernel_count >= 10_000 else ""


def _remarks(profile: Profile) -> Iterator[str]:
    if would_wait := wording.value_of(profile, "would_wait"):
        times = wording.count(int(would_wait), "time")
        yield f"would wait on a GPU {times} (.item(), if tensor)"
    if profile.in_place:
        yield f"changes {', '.join(profile.in_place)} in place"
    yield _bound_words(profile)
    yield size_words(profile)
    if profile.conditions.disturbed or profile.conditions.throttled_blocks:
        yield wording.conditions(profile.conditions)


def _bound_words(profile: Profile) -> str:
    verdict, ends = profile.bound.verdict, "" if profile.bound.verdict == "mixed" else "-bound"
    return f"{verdict}{ends} ({profile.bound.reason})" if verdict != "unknown" else ""


def completeness_words(found: Sequence[Integrity]) -> str:
    """Whether profiles are complete, in a word, or else what is not proved of them."""
    unproved = dict.fromkeys(words for one in found for words in _unproved(one))
    return ", ".join(unproved) or "complete"


_ON_CPU = "CPU operators counted, not GPU kernels"


def integrity_words(profile: Profile) -> str:
    """What is known of the profile's completeness."""
    integrity = profile.integrity
    if not integrity.complete:
        return "INCOMPLETE: " + ", ".join(integrity.problems)
    matched = f"{integrity.matched}/{integrity.launches} launches matched"
    matched = "kernels compiled, not run" if profile.compiled else matched
    rounds = f" in {profile.rounds} rounds" if profile.rounds > 1 else ""
    counted = _ON_CPU if profile.on_cpu else f"{matched}{rounds}"
    return ", ".join([f"complete: {counted}", *_beside_complete(profile)])


def _beside_complete(profile: Profile) -> list[str]:
    """What else is known of a complete profile: what is proved, and what was left out."""
    integrity = profile.integrity
    recompiles = wording.value_of(profile, "recompiles")
    why = wording.note_of(profile, "recompiles")
    compilations = f"compilations during the profiled calls: {recompiles or 0.0:.0f}"
    is_news = recompiles and "recompiles" not in failed_metrics(profile)
    parts = {
        "graph replay proved": integrity.graph_replays == "proved",
        **dict.fromkeys(_unproved(integrity), True),
        f"{integrity.leaked} activities of earlier work left out": integrity.leaked,
        f"COLD ({', '.join(integrity.cold)})": integrity.cold,
        f"{compilations} ({why})" if why else compilations: is_news,
    }
    return [words for words, holds in parts.items() if holds]


def _unproved(integrity: Integrity) -> list[str]:
    """What may be missing although no sign of it is in the trace."""
    unknown = integrity.unknown_launches
    parts = {
        "graph replay unproven": integrity.graph_replays == "unproven",
        f"{unknown} kernels without a recorded launch call": unknown,
        f"forked {integrity.forks} times: what children do is not counted": integrity.forks,
        "children not checked": not integrity.children_checked,
    }
    return [words for words, holds in parts.items() if holds]


# What is wrong.


def failed_metrics(profile: Profile) -> Iterator[str]:
    """The metrics by which limits and comparisons fail, in their order."""
    failed = (one for one in profile.verdicts if one.outcome == "failed")
    return (metric for one in failed for metric, *_ in _beyond(one))


def _beyond(verdict: Verdict) -> list[tuple[str, float | None, float | None]]:
    """The metric of a limit, its value and what is allowed; of a baseline those that are worse. One
    direction of copies is in the column of all of them."""
    if verdict.comparison is not None:
        return [(one.name, one.current, one.baseline) for one in verdict.comparison.worse]
    column = verdict.metric.removesuffix(f"_{verdict.qualifier}")
    return [(column, verdict.measured, verdict.allowed)]


def broken_cells(profile: Profile) -> dict[str, Broken]:
    """The values that exceed what is allowed, by metric: of several limits on one metric the
    strictest; a baseline only where no limit is exceeded."""
    found: dict[str, Broken] = {}
    strictest = sorted(profile.verdicts, key=lambda one: (not one.of_limit, one.allowed or 0.0))
    for one in strictest:
        rank = next(iter(one.ranks), None) if one.comparison is None else one.comparison.rank
        # The number of kernels that match a pattern is not the value of a metric.
        counts_some = one.limit == "max_kernels" and bool(one.qualifier)
        exceeded = one.outcome in ("failed", "expected failure") and not counts_some
        for metric, value, allowed in _beyond(one) if exceeded else ():
            if metric in METRICS and value is not None and allowed is not None:
                found.setdefault(metric, Broken(metric, value, allowed, wording.title(one), rank))
    return found


def counts_before(verdicts: Iterable[Verdict], *sources: compared.Source) -> dict[str, str]:
    """Return by the name of each broken limit without a pattern what a baseline of one of these
    kinds has of its count, where these counts are all that is worse than it; else nothing."""
    failed = [one for one in verdicts if one.outcome == "failed" and not one.qualifier]
    found = [one.comparison for one in failed if one.comparison and one.source in sources]
    worse = {delta.name: delta for one in found for delta in telling(one.worse)}
    limits = [one for one in failed if one.of_limit and one.unit == "count" and one.metric in worse]
    timed = [one for one in found if one.paired is not None and one.paired.change == "worse"]
    if timed or {one.metric for one in limits} != {*worse}:
        return {}
    return {one.limit: f"{worse[one.metric].baseline or 0.0:.0f}" for one in limits}


def found_by(verdicts: Sequence[Verdict], revision: str = "") -> list[str]:
    """What is wrong, what failed first, a few words for each limit and baseline: ``max_kernels: 5 >
    limit 1``, ``worse than main: kernels 3 -> 4``; of a count that alone is worse one of both:
    ``max_kernels: 4 > limit 3 (was 3 in main)``. Launches that are as many as kernels stand beside
    them.

    Args:
        revision: the name of the one, or of the environment, that is compared with, if one is.
    """
    found = list(_found_by(verdicts, revision))
    for at, kernels in enumerate(found):
        launches = kernels.replace("kernels", "launches", 1)
        if kernels.startswith("max_kernels: ") and launches in found:
            found[at] = f"max_kernels, {launches}"
            found.remove(launches)
    return found


def _found_by(verdicts: Sequence[Verdict], revision: str) -> Iterator[str]:
    in_turn = dict.fromkeys(compared.IN_TURN, revision) if revision else {}
    names = compared.BASELINE_WORDS | in_turn
    sources = (v.comparison.source for v in verdicts if v.comparison and not v.of_snapshot)
    source: compared.Source = next(sources, "revision")
    was = counts_before(verdicts, source)
    for one in sorted(verdicts, key=lambda one: one.outcome != "failed"):
        of = one.comparison.source if one.comparison and not one.of_snapshot else None
        if one.outcome in ("failed", "incomplete", "undecided") and not (was and of == source):
            words, what = str(one.outcome), wording.title(one)
            if of is not None:
                what = f"{wording.WORSE if one.outcome == 'failed' else 'against '}{names[of]}"
            values = wording.beside_limit(one) or _slower(one.comparison)
            if one.outcome == "undecided" and values:
                known, _, limit = values.partition(", limit ")
                ends = wording.interval((one.low, one.high), one.unit).removeprefix(wording.SURE)
                words = f"{ends or known}, limit {limit}" if limit else values
                what = f"undecided {what}" if one.comparison is not None else f"{what} undecided"
            elif one.outcome == "failed" and one.comparison is not None:
                worse, counted = telling(one.comparison.worse), one.comparison.counted
                more = (count_change(delta, counted) for delta in worse)
                words = ", ".join(more) or values or "slower"
            elif one.outcome == "failed":
                words = values or "exceeded"
                words = words if one.metric else _names(one).partition("; ")[0]
            before = "" if one.qualifier else was.get(one.limit, "")
            before = f" (was {before} in {names[source]})" if before else ""
            yield f"{what}: {words}{wording.on_ranks(one)}{before}"


def _slower(found: compared.ProfileComparison | None) -> str:
    """By how much, beside the margin; where that is undecided the least and the most."""
    paired = found.paired if found is not None else None
    if found is None or paired is None or not paired.pairs:
        return ""
    ends = range_words(found) if paired.change == "undecided" else ""
    share = ends or wording.percent(paired.ratio - 1)
    return f"GPU time {share}, margin {paired.margin * 100:.3g} %"


# Why.

_MOST_KINDS, _MOST_LINES = 3, 20
_LONGEST = 2_000
_OF_KERNELS = ("kernels", "launches", "cuda_time")
"""The metrics whose limits need no cause of their own where a baseline names the new kernels."""
CELLS = (*_OF_KERNELS, "latency", "launch_overhead", "syncs", "memcpys")
"""The metrics that have a column. Of the others the cause says the values, too."""


def causes_of(profile: Profile, told: Told | None) -> tuple[Cause, ...]:
    """Why a row is marked so; none where it is well."""
    if told == "incomplete":
        return (_incomplete(profile),)
    if told == "undecided":
        doubt = wording.doubt(profile.conditions)
        undecided = (one for one in profile.verdicts if one.outcome == "undecided")
        return tuple(_undecided(one, doubt) for one in undecided)
    return _over(profile) if told == "failed" else ()


def beside_of(profile: Profile, told: Told | None) -> tuple[Cause, ...]:
    """What else to know of a profile: of child processes, and which limits were not judged, beside
    others that were."""
    elsewhere = tuple(map(Cause, profile.integrity.elsewhere))
    if told == "not judged":
        return elsewhere
    left = (one for one in wording.limits_of([profile]) if one.outcome == "not judged")
    whys = wording.grouped(left, lambda one: one.why).items()
    names = ((why, ", ".join(dict.fromkeys(map(wording.title, of)))) for why, of in whys)
    return (*elsewhere, *(Cause(f"{wording.NOT_JUDGED}{of}: {why}") for why, of in names))


def explained(profile: Profile) -> Profile:
    """Return the profile with the cause in each verdict of an exceeded limit.

    Args:
        profile: a whole one. Reports and run documents keep only some of its kernels.
    """
    verdicts = [replace(one, cause=_cause_of(one, profile)) for one in profile.verdicts]
    return replace(profile, verdicts=tuple(verdicts))


def _undecided(verdict: Verdict, doubt: str) -> Cause:
    """Why a time is undecided, and how sure it is; the values stand beside it."""
    if verdict.comparison is not None or not wording.beside_limit(verdict):
        return Cause(verdict_line(verdict, doubt))
    why = _doubt_after(verdict, doubt).partition(", ")[2]
    ends = wording.interval((verdict.low, verdict.high), verdict.unit)
    sure = (part for part in how_sure(verdict).split(", ") if part != ends)
    return Cause(f"{why}: {', '.join(sure)}")


def _incomplete(profile: Profile) -> Cause:
    """What is missing, and how often it was tried."""
    tries = profile.integrity.retakes + 1
    tried = f", after {tries} tries" if tries > 1 else ""
    if profile.integrity.problems:
        return Cause(f"no number: {'; '.join(profile.integrity.problems)}{tried}")
    lost = (one for one in profile.verdicts if one.outcome == "incomplete")
    return Cause("; ".join(map(verdict_line, lost)))


def _over(profile: Profile) -> tuple[Cause, ...]:
    over = [one for one in profile.verdicts if one.outcome == "failed"]
    worse = [one.comparison for one in over if one.comparison is not None]
    found = map(tuple, map(_causes_of, worse))
    paired = (one.paired for one in worse if one.paired and one.paired.change == "worse")
    # Of several baselines, the first that names kernels.
    changes = (*next(filter(None, found), ()), *(Cause(wording.how_paired(one)) for one in paired))
    limits = [one for one in over if one.of_limit]
    if changes:
        limits = [one for one in limits if one.metric not in _OF_KERNELS]
    elif any(one.metric == "kernels" for one in limits):  # which are as many launches
        limits = [one for one in limits if one.metric != "launches"]
    return tuple(dict.fromkeys((*changes, *(_limit_cause(one, profile) for one in limits))))


def _causes_of(found: compared.ProfileComparison) -> Iterator[Cause]:
    """What its kernels show; slower ones only where a time is worse."""
    timed = any(one.spec.kind == "timed" for one in found.worse)
    is_slower = timed or (found.paired is not None and found.paired.change == "worse")
    for one in causes_of_diff(found.kernels) if found.kernels is not None else ():
        if is_slower or not one.text.startswith(wording.SLOWER):
            yield one


def causes_of_diff(diff: compared.KernelDiff) -> tuple[Cause, ...]:
    """Fusions first; then one line a change, in launch order; then what takes longer. Where the
    kernels are the same: which of them moved or have another operator."""
    fusions = compared.fusions_of(diff)
    fused = {id(change) for one in fusions for change in (*one.gone, *one.come)}
    changes = [one for one in diff.added_or_removed if id(one) not in fused]
    changes += diff.of("slower")
    changes += () if diff.added_or_removed else diff.of("moved", "operator", "reconfigured")
    both = (side for one in changes for side in (one.baseline, one.current) if side)
    names = tell_apart(side.name for side in both if side.duration_us is None)  # of a snapshot
    told = ((one.words, one.come[0].side.source) for one in fusions)
    causes = (Cause(words, wording.source_place(source)) for words, source in told)
    return (*causes, *(_change_cause(one, names) for one in changes))


def _change_cause(change: compared.KernelChange, names: Mapping[str, str]) -> Cause:
    kernel, before, now = change.side, change.baseline, change.current
    is_renamed = change.kind == "renamed"
    name = kernel.short_name if is_renamed else names.get(kernel.name, kernel.short_name)
    place, words = wording.source_place(kernel.source), times_words(name, change.times)
    us = [change.us(one) * change.times for one in (before, now)]
    if change.kind == "slower":
        return Cause(f"{wording.SLOWER}{words}, {wording.changed('us', *us)}", place)
    if change.kind == "moved":
        was, at = (", ".join(map(str, one)) for one in (change.before, change.positions))
        moved = f" was kernel {was}, is now kernel {at}" if was and at else ""
        return Cause(f"order changed: {words}{moved}", place)
    if before is None or now is None:
        words = with_chain(words, wording.chain(kernel.operators, kernel.name))
        file = kernel.source.rpartition(":")[0]
        lines = tuple(line if ":" in line else f"{file}:{line}" for line in change.lines)
        return Cause(words, place, "-" if now is None else "+", lines if place else ())
    if change.kind == "reconfigured":
        took = f", {wording.changed('us', *us)}" if all(us) else ""
        return Cause(f"{words}: {wording.configuration(before, now)}{took}", place)
    if change.kind == "operator":
        was, by = (next(iter(one.operators), "no operator") for one in (before, now))
        return Cause(f"{words}: launched by {by}, was {was}", place)
    variant = "another variant, " if change.kind == "renamed" else ""
    return Cause(f"{words}: {variant}was {before.short_name}", place)


def _limit_cause(verdict: Verdict, profile: Profile) -> Cause:
    """What an exceeded limit is about; with its values where no column has them."""
    cause = verdict.cause or _cause_of(verdict, profile) or Cause("")
    where = wording.on_ranks(verdict)
    if verdict.metric in CELLS and not verdict.qualifier and cause.text:
        said = not where or cause.text.startswith(wording.ONLY)
        return cause if said else replace(cause, text=f"{where.strip()}: {cause.text}")
    words = "; ".join(filter(None, [wording.beside_limit(verdict) + where, cause.text]))
    return replace(cause, text=f"{wording.title(verdict)}: {words}")


def _cause_of(verdict: Verdict, profile: Profile) -> Cause | None:
    about = _ABOUT.get(verdict.metric.split("_")[0])
    if about is None or verdict.outcome != "failed" or not verdict.of_limit:
        return None
    judged = wording.judged_rank(profile, verdict)
    cause = _only_on(judged, profile, verdict) or about(verdict, judged)
    return replace(cause, text=cause.text[:_LONGEST])


def offending_kernels(profile: Profile, judged: Profile) -> dict[int, str]:
    """Return the kernels that broken limits are about, from 0, each with why: those that a pattern
    forbids or another was expected for, the kind that takes longest, those that no other rank has.
    Of too many of which none is known to be new: those that the limit's pattern counts, all if none
    is allowed, or the kind that is there most often. Without any, those that moved in a baseline.

    Args:
        judged: the profile of the rank whose kernels they are.
    """
    failed = [one for one in profile.verdicts if one.outcome == "failed"]
    ours = [one for one in failed if wording.judged_rank(profile, one) is judged]
    launched = list(map(_kind_of, judged.kernels))
    whys: dict[_Kind, str] = {}
    found: dict[int, str] = {}
    for one in ours:
        wrong = (*one.hits, *((one.mismatch,) if one.mismatch else ()))
        for at, name in ((kernel.position - 1, kernel.kernel) for kernel in wrong):
            if [kind[0] for kind in launched[at : at + 1]] == [name]:  # else of a variant
                found[at] = "worst" if one.metric else "forbidden" if one.hits else "not expected"
        whys |= dict.fromkeys(_extra_on(judged, profile, one), f"only on rank {judged.rank}")
        if _ABOUT.get(one.metric.split("_")[0]) is _longest:
            whys[_longest_kind(one, judged)[0]] = "takes longest"
    is_known = bool(found or whys) or any(one.comparison for one in failed)
    for one in (one for one in ours if one.metric in ("kernels", "launches")):
        counted = [*one.counted(judged.kernels).values()]
        if pattern := one.qualifier:
            matching = map(_kind_of, _matching(counted, pattern))
            whys |= dict.fromkeys(matching, f"matches {pattern!r}")
        elif not is_known and not one.allowed:
            whys |= dict.fromkeys(map(_kind_of, counted), "none is allowed")
        elif not is_known and len(judged.kernels) >= judged.kernel_count:  # all are kept
            often = _often(list(map(_kind_of, counted)))
            whys |= dict.fromkeys(filter(None, [often]), wording.OFTEN)
    diffs = (one.comparison.kernels for one in profile.verdicts if one.comparison is not None)
    alone = (diff for diff in diffs if diff is not None and not diff.added_or_removed)
    moved = (at for diff in alone for one in diff.of("moved") for at in one.positions)
    marked = {at: whys[kind] for at, kind in enumerate(launched) if kind in whys} | found
    return marked or {at - 1: "moved" for at in moved if at <= len(launched)}


def offending_calls(profile: Profile, judged: Profile) -> tuple[frozenset[int], frozenset[int]]:
    """Return the waits and the copies, from 0, that broken limits count."""
    failed = [one for one in profile.verdicts if one.outcome == "failed" and one.of_limit]
    failed = [one for one in failed if wording.judged_rank(profile, one) is judged]
    waits = (one.counted(judged.waits) for one in failed if one.metric == "syncs")
    copies = (one.counted(judged.copies) for one in failed if one.metric.startswith("memcpy"))
    return frozenset().union(*waits), frozenset().union(*copies)


def unprofiled_words(profile: Profile) -> list[str]:
    """Return what to know of broken limits on times that no timeline shows."""
    failed = (one for one in profile.verdicts if one.outcome == "failed" and one.of_limit)
    timed = (one for one in failed if one.metric in METRICS)
    found = (one for one in timed if "unprofiled" in METRICS[one.metric].sources)
    return [f"{wording.title(one)} is measured without the profiler" for one in found]


def timed_in_turn(profile: Profile) -> bool:
    """Return whether it was timed in turn with a baseline: its own times are of another run."""
    return any(one.comparison and one.comparison.paired for one in profile.verdicts)


def _only_on(judged: Profile, profile: Profile, verdict: Verdict) -> Cause | None:
    cause = _most_of(list(_extra_on(judged, profile, verdict).elements()))
    words = f"{wording.ONLY}{judged.rank} launches {cause.text}"
    return replace(cause, text=words) if cause.text else None


def _extra_on(judged: Profile, profile: Profile, verdict: Verdict) -> Counter[_Kind]:
    """The kernels that the judged rank has and a rank within the limit has not."""
    within = (one for one in profile.ranks if one.rank not in verdict.ranks and one.kernels_kept)
    peer = next(within, None)
    if peer is None or not verdict.ranks or verdict.qualifier or verdict.metric not in _OF_KERNELS:
        return Counter()
    ours, theirs = (Counter(map(_kind_of, one.kernels)) for one in (judged, peer))
    return ours - theirs


def _kernel_names(verdict: Verdict, profile: Profile) -> Cause:
    """Of limits on kernel names, the kernels that are wrong."""
    mismatch, hits = verdict.mismatch, verdict.hits
    at = mismatch.position if mismatch else next((one.position for one in hits), 0)
    kernel = profile.kernels[at - 1] if 0 < at <= len(profile.kernels) else None
    place = wording.source_place(kernel.source) if kernel else None
    if mismatch or not hits:
        return Cause(_mismatch_words(mismatch) if mismatch else "", place)
    names = Counter(one.kernel for one in hits)
    ran = ", ".join(times_words(name, n) for name, n in names.most_common(_MOST_KINDS))
    chain = wording.chain(kernel.operators, kernel.name) if kernel and len(names) == 1 else ""
    return Cause(with_chain(ran if verdict.metric else f"ran {ran}", chain), place)


_Kind = tuple[str, str, str]
"""The short name of a kernel, or that of a copy or wait; its chain of operators; its line."""


def _kind_of(kernel: Kernel) -> _Kind:
    return kernel.short_name, wording.chain(kernel.operators, kernel.name), kernel.source


def _most_of(found: Sequence[_Kind], often: _Kind | None = None) -> Cause:
    """How many there are of each name and chain, the most frequent first, each with its lines where
    they differ. The place is the line of most of the first that has one.

    Args:
        often: the kind that comes first, with a word on why.
    """
    named = wording.grouped(found, lambda kind: kind[:2])
    lines = [(kind, [line for *_, line in several]) for kind, several in named.items()]
    kinds = sorted(lines, key=lambda one: (often is None or one[0] != often[:2], -len(one[1])))
    words: list[str] = []
    differ = len({line for *_, line in found}) > 1
    for (name, chain), several in kinds:
        there = wording.cause_lines(Cause("", lines=tuple(dict.fromkeys(filter(None, several)))))
        at = f" at {there}" if there and kinds[1:] and differ else ""
        also = f", {wording.OFTEN}" if kinds[1:] and often and often[:2] == (name, chain) else ""
        words.append(with_chain(f"{times_words(name, len(several))}{at}{also}", chain))
    known = (wording.source_place(Counter(several).most_common(1)[0][0]) for _, several in kinds)
    most = _MOST_KINDS + (len(words) == _MOST_KINDS + 1)  # else a line would say "1 more"
    told = wording.first_of(words, most, "and {} more")
    return Cause("; ".join(told), next(filter(None, known), None))


def _launched(verdict: Verdict, profile: Profile) -> Cause:
    """The kernels by kind. Which of them are extra is known only where none is allowed: else the
    place is the line of a kind that is there most often, or the call."""
    kernels = [*verdict.counted(profile.kernels).values()]
    kernels = [*_matching(kernels, verdict.qualifier)] if verdict.qualifier else kernels
    kinds = list(map(_kind_of, kernels))
    lines = tuple(dict.fromkeys(one.source for one in kernels if one.source))
    often = _often(kinds)
    cause = _most_of(kinds, often if verdict.allowed else None)
    place = wording.source_place(often[2]) if often else verdict.place or profile.place
    if not verdict.allowed or len(lines) == 1:
        place = cause.place
    tells_lines = often or not verdict.allowed or "; " in cause.text
    is_few = len(lines) == 1 or (not often and len(lines) <= 3 and all(k.source for k in kernels))
    known = lines if is_few or not tells_lines else ()
    return Cause(cause.text, place, lines=known[:_MOST_LINES])


def _often(kinds: Sequence[_Kind]) -> _Kind | None:
    """The kind that is there more often than any other, if its line is known."""
    (first, most), *others = [*Counter(kinds).most_common(2), (None, 0)]
    return first if first and first[2] and most > others[0][1] else None


def _matching(kernels: Sequence[Kernel], pattern: str) -> Sequence[Kernel]:
    """Those that ``max_kernels(match=...)`` counts, as ``limits.evaluate`` says; all where it is
    no pattern."""
    try:
        wanted = re.compile(pattern, re.IGNORECASE)
    except re.error:  # of a file that somebody has written
        return kernels
    texts = ((one, (one.name, one.short_name, *one.operators)) for one in kernels)
    return [one for one, named in texts if any(map(wanted.search, named))]


def _longest(verdict: Verdict, profile: Profile) -> Cause:
    kind, us = _longest_kind(verdict, profile)
    if not sum(us):
        return Cause(_spread(verdict))
    name, chain, line = kind
    words = f"{times_words(name, len(us))} takes {format_time(sum(us))}"
    return Cause(with_chain(words, chain), wording.source_place(line))


def _longest_kind(verdict: Verdict, profile: Profile) -> tuple[_Kind, list[float]]:
    """The kind of kernel that takes longest, of those that communicate or of all others; and what
    each takes."""
    talking = {one.kernel for one in profile.collectives}
    talks = verdict.metric == "exposed_comm_time"
    kernels = (one for at, one in enumerate(profile.kernels) if (at in talking) == talks)
    kinds = wording.grouped(kernels, _kind_of)
    times = ((kind, [one.duration_us for one in several]) for kind, several in kinds.items())
    return max(times, key=lambda one: sum(one[1]), default=(("", "", ""), []))


def _waits(verdict: Verdict, profile: Profile) -> Cause:
    call = f", called in {there}" if (there := wording.line_of(profile.place)) else ""
    waits = verdict.counted(profile.waits).values()
    names = (f"wait in {one.call}{'' if one.source else call}" for one in waits)
    chains = ((wording.chain(one.operators), one.source) for one in waits)
    return _most_of([(name, *of) for name, of in zip(names, chains, strict=True)])


def _copies(verdict: Verdict, profile: Profile) -> Cause:
    copies = verdict.counted(profile.copies).values()
    cause = _most_of([(one.name, wording.chain(one.operators), one.source) for one in copies])
    size = format_bytes(sum(one.bytes or 0 for one in copies))
    return Cause(f"copied {size}: {cause.text}", cause.place) if copies else cause


def _call_time(verdict: Verdict, profile: Profile) -> Cause:
    """How much of a call the GPU works, and what a launch costs beside its kernel."""
    busy = wording.value_of(profile, "gpu_busy") or wording.gpu_us(profile)
    latency = wording.value_of(profile, "latency")
    about = wording.overhead(profile) or _spread(verdict)
    worked = f"the GPU works {format_time(busy)} of {format_time(latency or 0.0)}"
    worked = worked if busy and latency else ""
    if verdict.metric == "latency":
        return Cause(_bound_words(profile) or worked)
    return Cause(f"{worked} ({about})" if worked else about)


_LINE = re.compile(r" at (\S+:\d+)")


def _noted(verdict: Verdict, profile: Profile) -> Cause:
    """What was noted beside the count, with the lines that it names."""
    note = wording.note_of(profile, verdict.metric)
    return Cause(_LINE.sub("", note), lines=tuple(_LINE.findall(note)))


_ABOUT: dict[str, Callable[[Verdict, Profile], Cause]] = {
    **dict.fromkeys(("kernels", "launches"), _launched),
    **dict.fromkeys(("cuda", "throughput", "bandwidth", "exposed"), _longest),
    **dict.fromkeys(("latency", "launch"), _call_time),
    "syncs": _waits,
    **dict.fromkeys(("memcpys", "memcpy"), _copies),
    **dict.fromkeys(("", "registers", "shared", "spills"), _kernel_names),
    **dict.fromkeys(("recompiles", "jit", "autotunes", "graph"), _noted),
}
"""By the first word of the metric; limits on kernel names have none."""
