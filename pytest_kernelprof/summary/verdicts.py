"""Verdicts in words: how a limit fared, a comparison with a baseline, or one of callables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_kernelprof.schema.metrics import SHARE_OF
from pytest_kernelprof.stats.intervals import FEWEST_ROUNDS
from pytest_kernelprof.summary.words import (
    chain_words,
    conditions_words,
    count_words,
    doubt_words,
    is_judged,
    pair_words,
    paired_words,
    percent_words,
    rank_words,
    title,
    value_of,
    value_words,
)
from pytest_kernelprof.units import format_time, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_kernelprof.schema.comparison import MetricDelta, ProfileComparison
    from pytest_kernelprof.schema.run import (
        Comparison,
        Contestant,
        Integrity,
        Mismatch,
        Profile,
        Verdict,
    )

_MOST_HITS = 4
_WHOLES = {"latency": "the latency", "gpu_busy": "the GPU's busy time"}
_COMPARED = {"cuda_time": "GPU time", "latency": "latency", "peak_memory": "peak memory"}

REASONS = {
    "interval": "the interval holds the limit",
    "alike": "neighbouring rounds are too alike",
    "few": "too few rounds for an interval",
    "second look": "the second look does not confirm it",
    "disturbed": "the GPU was disturbed",
}
"""Of an undecided time, by the verdict's reason."""


def verdict_line(verdict: Verdict, doubt: str = "") -> str:
    """One limit and how it fared, for example ``max_kernels: 5 > 1``.

    Args:
        doubt: what disturbed the GPU, if it was; see ``doubt_words``.
    """
    if verdict.outcome in ("incomplete", "not judged"):
        return f"{title(verdict)}: {verdict.why}{rank_words(verdict)}"
    found = verdict.comparison
    if found is not None:
        where = "" if found.source == "snapshot" else rank_words(verdict)
        return f"{verdict.limit}: {delta_words(found)}{where}{undecided_words(verdict, doubt)}"
    if not verdict.metric:
        return f"{title(verdict)}: {_names(verdict)}{rank_words(verdict)}"
    if verdict.unit == "times":
        told = f"speedup {verdict.measured:.3f} ({_spread_of_ratio(verdict)})"
    else:
        told = _values(verdict)
    after = f"{undecided_words(verdict, doubt)}{beyond_words(verdict)}"
    return f"{title(verdict)}: {told}{rank_words(verdict)}{after}"


def judged_words(limits: Sequence[Verdict]) -> str:
    """How many limits were judged and why others were not, for example ``1 of 3 limits judged:
    max_syncs, max_launches need a GPU``; empty if all were."""
    left = [one for one in limits if not is_judged(one)]
    if not left:
        return ""
    # A limit on kernel names says why its patterns cannot match; all others need a GPU.
    gpu = list(dict.fromkeys(title(one) for one in left if not one.patterns))
    whys = [f"{', '.join(gpu)} {'needs' if len(gpu) == 1 else 'need'} a GPU"] if gpu else []
    whys += dict.fromkeys(verdict_line(one) for one in left if one.patterns)
    return f"{len(limits) - len(left)} of {len(limits)} limits judged: {'; '.join(whys)}"


def undecided_words(verdict: Verdict, doubt: str = "") -> str:
    """What follows a verdict that was not reached; empty where it was."""
    if verdict.outcome != "undecided":
        return ""
    if verdict.comparison is not None and verdict.comparison.paired is not None:
        return ": UNDECIDED"  # the words of its pairs say why
    disturbed = doubt if verdict.reason == "disturbed" else ""
    return f": UNDECIDED, {disturbed or REASONS.get(verdict.reason, 'reason unknown')}"


def beyond_words(verdict: Verdict) -> str:
    """Why a limit is exceeded although other work was on the GPU; empty of all other verdicts."""
    if verdict.reason != "beyond" or verdict.fastest is None or not verdict.allowed:
        return ""
    if verdict.unit == "times":
        fastest = f"the fastest rounds give {verdict.fastest:.3f} times"
        return f"; EXCEEDED THOUGH CONTENDED: {fastest}, less than half of {verdict.allowed:.3f}"
    return (
        f"; EXCEEDED THOUGH CONTENDED: the fastest round took {format_time(verdict.fastest)}, more "
        "than twice the limit; other work does not explain that"
    )


def ratio_spread(low: float | None, high: float | None, pairs: int, block: int = 1) -> str:
    """How sure a ratio is, for example ``99 % CI 1.190..1.215, 12 pairs``."""
    sure = "too few pairs for an interval" if pairs < FEWEST_ROUNDS else "no interval"
    if low is not None and high is not None:
        sure = f"99 % CI {low:.3f}..{high:.3f}"
    return f"{sure}, {pairs} pairs" + (f" in blocks of {block}" if block > 1 else "")


def _spread_of_ratio(verdict: Verdict) -> str:
    return ratio_spread(verdict.low, verdict.high, verdict.rounds, verdict.block)


def _values(verdict: Verdict) -> str:
    """The value beside its limit, and how sure it is."""
    if verdict.measured is None or verdict.allowed is None:
        return "not measured"
    value, allowed = pair_words(verdict.unit, verdict.measured, verdict.allowed)
    spread = _spread(verdict) if verdict.unit == "us" else _stability(verdict)
    if verdict.outcome == "undecided":
        return f"{value}, limit {allowed}{spread}"
    return f"{value} {'<=' if verdict.outcome == 'passed' else '>'} {allowed}{spread}"


def _stability(verdict: Verdict) -> str:
    if not verdict.values:
        return ""
    values = ", ".join(f"{value:.0f}" for value in verdict.values)
    state = verdict.note or "UNSTABLE"
    return f" ({state}: {values} in {len(verdict.values)} rounds, the largest counts)"


def _spread(verdict: Verdict) -> str:
    told = ", ".join(filter(None, [_share(verdict), _excess(verdict), _interval(verdict)]))
    if verdict.note:
        told += f"; {verdict.note}"
    if verdict.second_look is not None:
        told += f"; a second look: {format_time(verdict.second_look)}"
    return f" ({told})"


def _share(verdict: Verdict) -> str:
    if verdict.share is None:
        return ""
    whole = _WHOLES[SHARE_OF.get(verdict.metric, "latency")]
    return f"{verdict.share * 100:g}% of {whole} {format_time(verdict.share_of)}"


def _excess(verdict: Verdict) -> str:
    if not verdict.allowed or verdict.measured is None:
        return ""
    ratio = verdict.measured / verdict.allowed
    if ratio <= 10:
        return percent_words(ratio - 1)
    return f"x{ratio:,.0f}" if ratio >= 99.95 else f"x{ratio:.3g}"


def _interval(verdict: Verdict) -> str:
    rounds = "one round" if verdict.rounds == 1 else f"{verdict.rounds} rounds"
    if verdict.low is None or verdict.high is None:
        few = verdict.rounds < FEWEST_ROUNDS
        return f"{rounds}, {'too few for an interval' if few else 'no interval'}"
    blocks = f" in blocks of {verdict.block}" if verdict.block > 1 else ""
    return f"99 % CI {verdict.low:.1f}..{verdict.high:.1f}us, {rounds}{blocks}"


def _names(verdict: Verdict) -> str:
    if verdict.mismatch is not None:
        return _mismatch(verdict.mismatch, verdict.patterns)
    kernels = count_words(int(verdict.measured or 0), "kernel")
    if verdict.limit == "expect_kernels":
        return f"all {kernels} as expected"
    if not verdict.hits:
        return f"none of {kernels} is forbidden"
    told = [f"#{hit.position} {hit.kernel} ({hit.pattern!r})" for hit in verdict.hits[:_MOST_HITS]]
    left = len(verdict.hits) - len(told)
    ran = count_words(len(verdict.hits), "forbidden kernel")
    return f"{ran} ran: {', '.join(told)}{f' and {left} more' if left else ''}"


def _mismatch(found: Mismatch, patterns: Sequence[str | None]) -> str:
    wanted = ", ".join("..." if p is None else repr(p) for p in patterns) or "no kernels"
    return f"{found.kernels} kernels, expected {wanted}; {mismatch_words(found)}"


def mismatch_words(found: Mismatch) -> str:
    """Where the kernels first differ: ``kernel 3: expected 'mm', got add (aten::add)``."""
    named = " or ".join(map(repr, found.wanted))
    if not found.position:
        return f"no kernel for {named}"
    chain = chain_words(found.operators, found.kernel)
    by = "" if found.operators and not chain else f" ({chain or 'no operator'})"
    if named:
        return f"kernel {found.position}: expected {named}, got {found.kernel}{by}"
    return f"unexpected kernel {found.position}: {found.kernel}{by}"


def delta_words(found: ProfileComparison) -> str:
    """What differs from a baseline, and is judged: ``kernels 5 > 4, cuda_time 234.9us > 200.0us
    (+17.5 %)``."""
    if found.source == "snapshot":
        return _snapshot_words(found)
    judged = [one for one in found.metrics if one.judged and one.change in ("worse", "undecided")]
    worse = [one for one in judged if one.change == "worse"]
    told = list(map(_more_words, worse or judged))
    if found.paired is not None and found.paired.change in ("worse", "undecided"):
        told.append(turns_words(found))
    usual = "its times" if found.untimed else "no more than before"
    return ", ".join(told) or usual


def turns_words(found: ProfileComparison) -> str:
    """The times that both sides took in turn; empty where nothing is known of them."""
    paired = found.paired
    if paired is None:
        return ""
    if not paired.pairs:
        return f"GPU time was not measured in turn: {paired.why}" if paired.why else ""
    return paired_words(paired)


def _snapshot_words(found: ProfileComparison) -> str:
    kernels = found.kernels
    if found.change == "same":
        return f"{kernels.current_kernels if kernels is not None else 0} kernels, as in the file"
    deltas = sorted(found.metrics, key=lambda one: one.change != "worse")
    told = [count_change(one, ">" if one.change == "worse" else "<") for one in deltas]
    if not told:
        operators = kernels is not None and kernels.of("operator")
        changed = "other operators" if operators else "another order"
        told = ["other kernels" if found.changes else changed]
    return ", ".join(told)


def count_change(one: MetricDelta, sign: str) -> str:
    """``kernels 5 > 4``, with ``->`` from the baseline to now."""
    old, new = pair_words(one.spec.unit, one.baseline or 0.0, one.current or 0.0)
    return f"{one.name} {old} -> {new}" if sign == "->" else f"{one.name} {new} {sign} {old}"


def _more_words(one: MetricDelta) -> str:
    words = count_change(one, ">")
    if one.spec.unit == "count":
        return words
    sure = ""
    if one.interval is not None and one.spec.kind == "timed":
        sure = f", 99 % CI {'..'.join(value_words('us', at) for at in one.interval)}"
    return f"{words} ({change_words(one)}{sure})"


def change_words(one: MetricDelta) -> str:
    """By how much a metric differs, for example ``+7.7 %`` or ``+1``."""
    if one.spec.unit == "count" or one.share is None:
        return f"{(one.current or 0.0) - (one.baseline or 0.0):+.0f}"
    return percent_words(one.share)


def headline(comparison: Comparison, candidate: str = "") -> str:
    """How a candidate, by default the first, does against the reference, in one line."""
    one = candidate_of(comparison, candidate)
    assert one.paired is not None, "it is no reference"
    low, high = one.paired.speedup_interval or (None, None)
    spread = ratio_spread(low, high, comparison.pairs, one.paired.block)
    return _speedup(comparison, one, one.paired.speedup, spread)


def comparison_line(comparison: Comparison, verdict: Verdict) -> str:
    """A limit of a comparison of callables and how it fared, with the names of both."""
    if verdict.measured is None:
        return printable(f"{title(verdict)}: {verdict.why}")
    one = candidate_of(comparison, verdict.candidate)
    told = _speedup(comparison, one, verdict.measured, _spread_of_ratio(verdict))
    doubt = "; ".join(dict.fromkeys(map(doubt_words, comparison.conditions)))
    after = f"{undecided_words(verdict, doubt)}{beyond_words(verdict)}"
    return printable(f"{title(verdict)}: {told}{after}")


def compared_metric(comparison: Comparison) -> str:
    """What of callables was compared, in words."""
    return _COMPARED.get(comparison.metric, comparison.metric)


def unstable_words(comparison: Comparison) -> list[str]:
    """What to know of callables that launch another number of kernels now and then."""
    return [
        f"UNSTABLE: {one.name} launched {min(one.unstable)} to {max(one.unstable)} kernels a call"
        for one in comparison.contestants
        if one.unstable
    ]


def _speedup(comparison: Comparison, one: Contestant, speedup: float, spread: str) -> str:
    unstable = "".join(f"; {note}" for note in unstable_words(comparison))
    versus = f"{one.name} over {comparison.reference}, {compared_metric(comparison)}"
    times = "as much" if comparison.metric == "peak_memory" else "slower"
    good = f"speedup {speedup:.3f}" if speedup >= 0.1 else f"{1 / speedup:,.0f}x {times}"
    return f"{versus}: {good} ({spread}{unstable})"


def candidate_of(comparison: Comparison, name: str) -> Contestant:
    """The callable of that name; without one, the first that is not the reference.

    Raises:
        ValueError: no callable has that name.
    """
    wanted = [
        one
        for one in comparison.contestants
        if (one.name == name if name else one.name != comparison.reference)
    ]
    if not wanted:
        names = ", ".join(repr(one.name) for one in comparison.contestants)
        raise ValueError(f"{name!r} was not compared, only {names}")
    return wanted[0]


def footing(profile: Profile) -> str:
    """What a reader should know of a profile's numbers: completeness, bound, disturbances."""
    parts = [integrity_words(profile), would_wait_words(profile)]
    if profile.in_place:
        parts.append(f"changes {', '.join(profile.in_place)} in place")
    if profile.bound.verdict != "unknown":
        bound = "launch-bound" if profile.bound.verdict == "overhead" else "not launch-bound"
        parts.append(f"{bound} ({profile.bound.reason})")
    if profile.conditions.disturbed or profile.conditions.throttled_blocks:
        parts.append(conditions_words(profile.conditions))
    return "; ".join(filter(None, parts))


def completeness_words(found: Sequence[Integrity]) -> str:
    """Whether profiles are complete, in a word, or else what is not proved of them."""
    unproved = dict.fromkeys(words for one in found for words in _unproved(one))
    return ", ".join(unproved) or "complete"


def integrity_words(profile: Profile) -> str:
    """What is known of the profile's completeness."""
    integrity = profile.integrity
    if not integrity.complete:
        return "INCOMPLETE: " + ", ".join(integrity.problems)
    parts = [_matched(profile)]
    if integrity.graph_replays == "proved":
        parts.append("graph replay proved")
    parts += _unproved(integrity)
    if integrity.leaked:
        parts.append(f"{integrity.leaked} activities of earlier work left out")
    if integrity.cold:
        parts.append(f"COLD ({', '.join(integrity.cold)})")
    recompiles = profile.metrics.get("recompiles")
    if recompiles is not None and recompiles.value:
        why = f" ({recompiles.why})" if recompiles.why else ""
        parts.append(f"compilations during the profiled calls: {recompiles.value:.0f}{why}")
    return ", ".join(parts)


def _unproved(integrity: Integrity) -> list[str]:
    """What may be missing although no sign of it is in the trace."""
    parts = []
    if integrity.graph_replays == "unproven":
        parts.append("graph replay unproven")
    if integrity.unknown_launches:
        parts.append(f"{integrity.unknown_launches} kernels without a recorded launch call")
    if integrity.forks:
        parts.append(f"forked {integrity.forks} times: what children do is not counted")
    if not integrity.children_checked:
        parts.append("children not checked")
    return parts


def _matched(profile: Profile) -> str:
    if profile.environment.kind == "cpu":
        return "complete: CPU operators counted, not GPU kernels"
    integrity = profile.integrity
    words = f"complete: {integrity.matched}/{integrity.launches} launches matched"
    return f"{words} in {profile.rounds} rounds" if profile.rounds > 1 else words


def would_wait_words(profile: Profile) -> str:
    """How often code that ran on the CPU would wait on a GPU; empty where it would not."""
    number = value_of(profile, "would_wait")
    times = count_words(int(number or 0), "time")
    return f"would wait on a GPU {times} (.item(), if tensor)" if number else ""
