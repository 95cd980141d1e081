"""Facts in words: verdicts, places, completeness and conditions, each in one form everywhere."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from pytest_kernelprof.report.baselines import delta_words
from pytest_kernelprof.report.snapshots import snapshot_words
from pytest_kernelprof.schema.metrics import SHARE_OF
from pytest_kernelprof.stats.confidence import FEWEST_ROUNDS
from pytest_kernelprof.summary.findings import value_of
from pytest_kernelprof.summary.words import (
    REASONS,
    chain_words,
    conditions_words,
    count_words,
    is_judged,
    pair_words,
    place_words,
    rank_words,
    title,
)
from pytest_kernelprof.units import format_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_kernelprof.schema.run import Integrity, Mismatch, Profile, Verdict

_MOST_HITS = 4
_WHOLES = {"latency": "the latency", "gpu_busy": "the GPU's busy time"}


def verdict_line(verdict: Verdict, doubt: str = "") -> str:
    """One limit and how it fared, for example ``max_kernels: 5 > 1``.

    Args:
        doubt: what disturbed the GPU, if it was; see ``doubt_words``.
    """
    if verdict.outcome in ("incomplete", "not judged"):
        return f"{title(verdict)}: {verdict.why}{rank_words(verdict)}"
    found = verdict.comparison
    if found is not None:
        told = snapshot_words(found) if found.source == "snapshot" else delta_words(found)
        where = "" if found.source == "snapshot" else rank_words(verdict)
        return f"{verdict.limit}: {told}{where}{undecided_words(verdict, doubt)}"
    if not verdict.metric:
        return f"{title(verdict)}: {_names(verdict)}{rank_words(verdict)}"
    if verdict.unit == "times":
        told = f"{verdict.measured:.3f} times as good ({spread_of_ratio(verdict)})"
    else:
        told = _values(verdict)
    where = rank_words(verdict)
    return (
        f"{title(verdict)}: {told}{where}{undecided_words(verdict, doubt)}{beyond_words(verdict)}"
    )


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
    judged = len(limits) - len(left)
    return f"{judged} of {len(limits)} limits judged: {'; '.join(whys)}"


def undecided_words(verdict: Verdict, doubt: str = "") -> str:
    """What follows a verdict that was not reached; empty where it was."""
    if verdict.outcome != "undecided":
        return ""
    if verdict.comparison is not None and verdict.comparison.paired is not None:
        return ": UNDECIDED"  # the words of its pairs say why
    disturbed = doubt if verdict.reason == "disturbed" else ""
    return f": UNDECIDED, {disturbed or REASONS.get(verdict.reason, 'not told why')}"


def beyond_words(verdict: Verdict) -> str:
    """Why a limit is broken although other work was on the GPU; empty of all other verdicts."""
    if verdict.reason != "beyond" or verdict.fastest is None or not verdict.allowed:
        return ""
    if verdict.unit == "times":
        fastest = f"by the fastest rounds it is {verdict.fastest:.3f} times"
        return f"; BROKEN THOUGH CONTENDED: {fastest}, less than half of {verdict.allowed:.3f}"
    return (
        f"; BROKEN THOUGH CONTENDED: the fastest round took {format_time(verdict.fastest)}, more "
        "than twice the limit, which other work does not explain"
    )


def spread_of_ratio(verdict: Verdict) -> str:
    """How sure a ratio is, for example ``99 % CI 1.190..1.215, 12 pairs``."""
    return ratio_spread(verdict.low, verdict.high, verdict.rounds, verdict.block)


def ratio_spread(low: float | None, high: float | None, pairs: int, block: int = 1) -> str:
    """The same of a ratio's numbers."""
    sure = "too few pairs for an interval" if pairs < FEWEST_ROUNDS else "no interval"
    if low is not None and high is not None:
        sure = f"99 % CI {low:.3f}..{high:.3f}"
    return f"{sure}, {pairs} pairs" + (f" in blocks of {block}" if block > 1 else "")


def footing(profile: Profile) -> str:
    """Device, versions, completeness and bound, in one line."""
    parts = [place_words(profile.environment), integrity_words(profile)]
    parts += filter(None, [would_wait_words(profile)])
    if profile.in_place:
        parts.append(f"changes {', '.join(profile.in_place)} in place")
    if profile.environment.kind == "cpu" and not profile.integrity.complete:
        parts.append("counts are of compute operators of the CPU")
    if profile.bound.verdict != "unknown":
        overhead = "yes" if profile.bound.verdict == "overhead" else "no"
        parts.append(f"overhead-bound: {overhead} ({profile.bound.reason})")
    if profile.conditions.disturbed or profile.conditions.throttled_blocks:
        parts.append(conditions_words(profile.conditions))
    return "; ".join(parts)


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
        return "complete: compute operators of the CPU, no kernels"
    integrity = profile.integrity
    words = f"complete: {integrity.matched}/{integrity.launches} launches matched"
    return f"{words} in {profile.rounds} rounds" if profile.rounds > 1 else words


def would_wait_words(profile: Profile) -> str:
    """How often code that ran on the CPU would wait on a GPU; empty where it would not."""
    number = value_of(profile, "would_wait")
    times = count_words(int(number or 0), "time")
    return f"would wait on a GPU {times} (.item(), if tensor)" if number else ""


def overhead_words(profile: Profile) -> list[str]:
    """Where the overhead lies, as far as the trace tells: the host's time, the device's gaps."""
    lines, shares = [], profile.host_shares
    one = profile.metrics.get("overhead_per_launch")
    if one is not None and one.value is not None:
        lines.append(f"overhead of each launch: {format_time(one.value)}")
    if shares is not None:
        lines.append(
            f"host, profiled: {shares.dispatch:.0%} operator dispatch, {shares.launch_calls:.0%} "
            f"launch calls, {shares.waiting:.0%} waiting"
        )
    rounds = profile.gaps.rounds
    if rounds:
        classes = {
            "waits for the host": [one.host_wait for one in rounds],
            "between queued kernels": [one.kernel_wait for one in rounds],
            "other": [one.other for one in rounds],
        }
        told = [f"{format_time(statistics.median(us))} {name}" for name, us in classes.items()]
        lines.append(f"device idle between activities, profiled: {', '.join(told)}")
    return lines


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
    parts = [_share(verdict), _excess(verdict), _interval(verdict)]
    told = ", ".join(part for part in parts if part)
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
        return f"{(ratio - 1) * 100:+.1f} %"
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
    kernels = f"{verdict.measured or 0:.0f}"
    if verdict.limit == "expect_kernels":
        return f"all {kernels} as expected"
    if not verdict.hits:
        return f"none of {kernels} kernels"
    told = [f"#{hit.position} {hit.kernel} ({hit.pattern!r})" for hit in verdict.hits[:_MOST_HITS]]
    left = len(verdict.hits) - len(told)
    more = f" and {left} more" if left else ""
    return f"{len(verdict.hits)} forbidden: {', '.join(told)}{more}"


def _mismatch(found: Mismatch, patterns: Sequence[str | None]) -> str:
    wanted = ", ".join("..." if p is None else repr(p) for p in patterns) or "no kernels"
    return f"{found.kernels} kernels, expected {wanted}; {_where(found)}"


def _where(found: Mismatch) -> str:
    named = [repr(pattern) for pattern in found.wanted]
    if not found.position:
        return f"nothing is left for {', '.join(named)}"
    chain = chain_words(found.operators, found.kernel)
    by = "" if found.operators and not chain else f" ({chain or 'no operator'})"
    instead = f"not {' or '.join(named)}" if named else "where no more were expected"
    return f"kernel {found.position} is {found.kernel}{by}, {instead}"
