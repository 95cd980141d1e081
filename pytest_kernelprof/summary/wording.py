"""Facts in a few words, each in one form everywhere: names of tests, limits, places, chains of
operators, and what the GPU was like while it was timed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence

from pytest_kernelprof.records.comparison import KernelSide, Paired
from pytest_kernelprof.records.metrics import OF_WORST_KERNEL
from pytest_kernelprof.records.profile import Cause, Place, Profile, Verdict
from pytest_kernelprof.records.recording import Conditions, Environment
from pytest_kernelprof.units import TimeUnit, format_bytes, format_rate, format_time, time_unit
from pytest_kernelprof.units import first_of as first_of
from pytest_kernelprof.units import grouped as grouped

OFTEN = "launched most often"
SLOWER, ONLY, WORSE, SURE = "slower: ", "only rank ", "worse than ", "99 % CI "
"""Before a kernel that takes longer than in a baseline, before a rank with kernels that no other
has, before a baseline, and before an interval."""
NOT_JUDGED, MEAN, MEDIANS = "not judged: ", "mean of ", "medians "
"""Before limits that say nothing of what was measured, and before how sure a time is."""
ASIDE = (NOT_JUDGED, MEAN, MEDIANS)
"""How causes begin that name no kernel."""
_MOST_RANKS = 8
_NO_CALLERS = (
    *("autograd::engine::", "## Call CompiledFxGraph ", "ProfilerStep#", "record_param_comms"),
)


def value_of(profile: Profile, metric: str) -> float | None:
    """The value of a metric; None if it is not available."""
    found = profile.metrics.get(metric)
    return None if found is None else found.value


def note_of(profile: Profile, metric: str) -> str:
    """Why a metric has no value, or what a reader of the value should know; empty without."""
    found = profile.metrics.get(metric)
    return "" if found is None else found.why


def gpu_us(profile: Profile) -> float:
    """The GPU time of a profile, in microseconds; 0 where it has none."""
    return value_of(profile, "cuda_time") or 0.0


def title(verdict: Verdict) -> str:
    """A limit as it was written, for example ``max_memcpys(d2h)``; with the target that kernels
    were compiled for, if they were."""
    on = f" on {verdict.target}" if verdict.target else ""
    if not verdict.qualifier or verdict.limit == "forbid_kernels":
        return f"{verdict.limit}{on}"
    if verdict.limit.removeprefix("max_") in ("kernels", *OF_WORST_KERNEL):
        return f"{verdict.limit}(match={verdict.qualifier!r}){on}"
    return f"{verdict.limit}({verdict.qualifier}){on}"


def compiled_for(targets: Iterable[str]) -> str:
    """What became of kernels: ``compiled for sm_90, gfx942, not run``."""
    return f"compiled for {', '.join(targets)}, not run"


def limits_of(profiles: Iterable[Profile]) -> list[Verdict]:
    """One verdict for each limit of a test, however many of its profiles it judges; what is kept
    of it, or was before, is none."""
    verdicts = [verdict for profile in profiles for verdict in profile.verdicts if verdict.of_limit]
    return list({(one.limit, one.qualifier, one.target): one for one in verdicts}.values())


def machine(environment: Environment) -> str:
    """Device and versions, for example ``NVIDIA H200, torch 2.11.0+cu130, triton 3.6.0``."""
    versions = environment.versions
    named = [f"{key} {versions[key]}" for key in ("torch", "triton") if key in versions]
    return ", ".join([environment.device, *named])


def line_of(place: Place | None) -> str:
    """A line of a file, for example ``test_mlp.py:31``; empty where it is not known."""
    return f"{os.path.basename(place.file)}:{place.line}" if place is not None else ""


_MOST_LINES = 4


def cause_lines(*causes: Cause) -> str:
    """The lines of causes: ``model.py:11, 12, 14``, or ``model.py:6 or 7`` of one kernel that is
    launched at one of them; empty where none is known."""
    found = [line for one in causes for line in one.lines or [line_of(one.place)] if line]
    parts = (os.path.basename(one).rpartition(":") for one in found[:_MOST_LINES])
    files = grouped(dict.fromkeys(parts), lambda one: one[0])
    between = " or " if len(causes) == 1 and causes[0].sign else ", "
    told = [f"{file}:{between.join(one[2] for one in of)}" for file, of in files.items()]
    return between.join([*told, *(["..."] if len(found) > _MOST_LINES else [])])


def places_of(cause: Cause) -> list[Place]:
    """The lines of a cause."""
    found = [*map(source_place, cause.lines)] or [cause.place]
    return [one for one in found if one is not None]


def shown_lines(cause: Cause) -> str:
    """The lines of a cause; none where its text has that of each kernel."""
    return "" if _AT.search(cause.text) else cause_lines(cause)


_AT = re.compile(r" at \S+:\d")
_DETAIL = re.compile(rf", from | \(|{_AT.pattern}|, {OFTEN}")


def brief(cause: Cause) -> str:
    """A cause without its operators and other details."""
    return _DETAIL.split(cause.text)[0]


def without_operators(text: str) -> str:
    """The text of a cause without what called its kernels."""
    return _OPERATORS.sub("", text)


_OPERATORS = re.compile(r", from [^;]*")


in_code = re.compile(
    r"(--kernelprof-[\w-]+(?:=[\w.%-]+)?|(?<![\w/])[\w./-]+\.py:\d+"
    r"|\b(?:(?:max|min|expect|forbid)_\w+|kernelprof|kernel_profile[.\w]*)\([^()]*\))"
).split
"""The parts of a sentence: every second one is a limit, an option or a line of code."""


def either_line(line: str, lines: Sequence[str]) -> str:
    """``model.py:6 or 7`` for a change that may be at each of several lines; else its line."""
    several = " or ".join(first_of(lines, _MOST_LINES, "..."))
    return f"{line.rpartition(':')[0]}:{several}" if lines else line


def signed(cause: Cause) -> str:
    """A cause with its sign: ``+ elementwise [copy]``."""
    return f"{cause.sign} {cause.text}".lstrip()


def located(cause: Cause) -> list[str]:
    """A cause without its operators, and where it is, one thing after another: ``+ elementwise
    [copy] at model.py:17``."""
    lines = shown_lines(cause)
    told = f"{without_operators(signed(cause))}{f' at {lines}' if lines else ''}"
    return told.split("; ")


def without_lines(words: str, lines: str) -> str:
    """Words without ``at model.py:4`` where that is said beside them; ``at model.py:42`` and ``at
    model.py:4 or 5`` stay."""
    others = r"(?!\d|, \d|, \.\.\.| or )"
    return re.sub(rf" at {re.escape(lines)}{others}", "", words) if lines else words


def source_place(source: str) -> Place | None:
    """The place of a ``file:line``; None where it is none."""
    file, _, line = source.rpartition(":")
    return Place(file, int(line)) if file and line.isascii() and line.isdigit() else None


def chain(operators: tuple[str, ...], own: str = "") -> str:
    """The innermost and the outermost of a chain of operators, for example ``aten::mm in
    aten::linear``: the outermost is mostly the one that the user called. One where they are the
    same; empty without.

    Args:
        operators: the innermost first.
        own: the name of what they led to: an operator of the CPU, and what Inductor annotates,
            stands under its own name.
    """
    callers = operators[1:] if own and operators[:1] == (own,) else operators
    called = [name for name in callers if not name.startswith(_NO_CALLERS)]
    return ends(called[0], called[-1], " in ") if called else ""


def on_ranks(verdict: Verdict) -> str:
    """The ranks on which a limit is not kept, the worst first: `` on ranks 3, 1``; empty where it
    is kept, where there is one rank, and where the reason names one."""
    ranks = verdict.ranks
    says_rank = verdict.outcome == "incomplete" and verdict.why.startswith("rank ")
    if not ranks or says_rank or verdict.outcome in ("passed", "not judged"):
        return ""
    named = ", ".join(first_of(list(map(str, ranks)), _MOST_RANKS, "and {} more"))
    return f" on rank{'s' if len(ranks) > 1 else ''} {named}"


def judged_rank(profile: Profile, verdict: Verdict) -> Profile:
    """The profile of the rank that a verdict is of; the first where it has no kernels to show."""
    found = (one for one in profile.ranks if verdict.ranks and one.rank == verdict.ranks[0])
    judged = next(found, profile)
    return judged if judged.kernels_kept else profile


def shown_rank(profile: Profile) -> Profile:
    """The profile of the rank that the first failed verdict is of."""
    failed = [one for one in profile.verdicts if one.outcome == "failed"]
    return judged_rank(profile, failed[0]) if failed else profile


def pair(unit: str, value: float, allowed: float) -> tuple[str, str]:
    """A value and what is allowed, in words that differ where they do."""
    pair = amount(unit, value), amount(unit, allowed)
    if pair[0] == pair[1] and unit == "bytes" and value != allowed:
        return f"{value:.0f} B", f"{allowed:.0f} B"
    return pair[0], f"{allowed:g}us" if allowed and pair[1] == "0.0us" else pair[1]


def beside_limit(verdict: Verdict) -> str:
    """The value beside its limit: ``5 > limit 1``; empty where there are none."""
    if verdict.measured is None or verdict.allowed is None:
        return ""
    over, kept = (" < limit ", " >= ") if verdict.is_floor else (" > limit ", " <= ")
    both = pair(verdict.unit, verdict.measured, verdict.allowed)
    return {"passed": kept, "undecided": ", limit "}.get(verdict.outcome, over).join(both)


def changed(unit: str, baseline: float, current: float) -> str:
    """A value of both sides: ``40.0us -> 43.3us``."""
    return " -> ".join(pair(unit, baseline, current))


def interval(bounds: tuple[float | None, float | None] | None, unit: str = "us") -> str:
    """``99 % CI 234.1..236.0us``, or of a ratio ``99 % CI 1.190..1.215``; empty without bounds."""
    low, high = bounds or (None, None)
    if low is None or high is None:
        return ""
    scale = TimeUnit("", 1.0, 3) if unit == "times" else time_unit((low, high), unit)
    return f"{SURE}{scale.words(low)}..{scale.words(high)}{scale.name}"


def ends(first: str, last: str, between: str = "..") -> str:
    """``1..3``; one of them where they are equal."""
    return between.join(dict.fromkeys((first, last)))


def paired(paired: Paired) -> str:
    """``GPU time +8.4 %, mean of 4 interleaved pairs, all beyond the margin; medians 40.0us ->
    43.3us``: the mean ratio is not the ratio of medians. With the latencies if they are known, and
    why nothing follows; empty where no times were taken and no reason is known. A profile of its
    own has another GPU time."""
    if not paired.pairs:
        return f"GPU time was not compared: {paired.why}" if paired.why else ""
    return f"GPU time {percent(paired.ratio - 1)}, {how_paired(paired)}"


def how_paired(paired: Paired) -> str:
    """The same without the share."""
    words = f"{MEAN}{count(len(paired.pairs), 'interleaved pair')}"
    if paired.change in ("worse", "better"):
        is_all = paired.agreeing == len(paired.pairs)
        words += f", {'all' if is_all else paired.agreeing} beyond the margin"
    words += f"; {MEDIANS}{changed('us', paired.baseline_us, paired.current_us)}"
    if paired.baseline_latency_us:
        sides = paired.baseline_latency_us, paired.current_latency_us
        words += f"; latency {changed('us', *sides)}, not judged"
    state = "undecided" if paired.change == "undecided" else ""
    doubt = ", ".join(filter(None, [state, why_unsure(paired)]))
    return f"{words}; {doubt}" if doubt else words


def why_unsure(paired: Paired) -> str:
    """Why nothing follows of times that were taken in turn; empty if something does."""
    return doubt(paired.disturbed) if paired.disturbed is not None else paired.why


def overhead(profile: Profile) -> str:
    """What a launch costs beside its kernel; empty where that is not known."""
    launches, each = value_of(profile, "launches"), value_of(profile, "overhead_per_launch")
    if not launches or each is None:
        return ""
    kernels_us = gpu_us(profile) + (value_of(profile, "comm_time") or 0.0)
    times = "1 launch" if launches == 1 else f"each of {launches:,.0f} launches"
    kernel_us = format_time(kernels_us / max(1, profile.kernel_count))
    return f"host overhead {format_time(each)} in {times}, for kernels of {kernel_us}"


def percent(share: float) -> str:
    """``+3.9 %``."""
    return f"{share * 100:+.1f} %"


def amount(unit: str, value: float) -> str:
    """A value: a time of microseconds, a rate, a size of bytes, a ratio, or a count."""
    if unit == "us" or unit.endswith("/s"):
        return format_time(value) if unit == "us" else format_rate(unit, value)
    if unit == "times":
        return f"{value:.3f} times"
    words = f"{value:.0f}{' registers' * (unit == 'registers')}"
    return format_bytes(value) if unit == "bytes" else words


def configuration(old: KernelSide, new: KernelSide) -> str:
    """What of a kernel's launch and resources is different, of what both sides know:
    ``registers 128 -> 255``."""
    shared = (old.shared_memory, new.shared_memory)
    pairs = {
        "grid": ["x".join(map(str, one.grid)) for one in (old, new) if one.grid and any(one.grid)],
        "block": ["x".join(map(str, b)) for b in (old.block, new.block) if b and any(b)],
        "registers": [str(one.registers) for one in (old, new) if one.registers],
        "shared memory": [format_bytes(one) for one in shared if one is not None],
        "spills": [str(one.spills) for one in (old, new) if isinstance(one.spills, int)],
    }
    return ", ".join(f"{it} {' -> '.join(two)}" for it, two in pairs.items() if len({*two}) == 2)


def more_exceeded(limits: int) -> str:
    """`` (+1 more limit exceeded)``; empty for none."""
    return f" (+{count(limits, 'more limit')} exceeded)" if limits > 0 else ""


def count(number: int, one: str, several: str = "") -> str:
    """A number, with commas, and what it counts: ``1 test``, ``30,615 kernels``."""
    return f"{number:,} {one if number == 1 else several or one + 's'}"


_DIGITS = re.compile(r"(\d{1,18})")


def parts_of(test: str) -> tuple[str, str]:
    """The file of a node id, and what follows it; an id without a file is all name."""
    file, separator, name = test.partition("::")
    return (file, name) if separator else ("", test)


def with_label(name: str, label: str) -> str:
    """A name with that of the profile: ``test_it [backward]``, ``test_it, profile 2``."""
    if label.startswith("profile "):  # in brackets it would look like a parameter
        return f"{name}, {label}"
    return f"{name} [{label}]" if label else name


def shortened(test: str) -> str:
    """A test's node id from its file's name on; a slash in a parameter is no folder."""
    path, separator, rest = test.partition("::")
    return path.rsplit("/", 1)[-1] + separator + rest


def natural(text: str) -> tuple[tuple[str, int], ...]:
    """A key that puts 2 before 10."""
    pieces = _DIGITS.split(text)
    numbers = [int(one) for one in pieces[1::2]]
    return tuple(zip(pieces[::2], [*numbers, -1], strict=True))


def conditions(conditions: Conditions) -> str:
    """What the GPU was like while it was timed; empty where nothing was looked at."""
    if not conditions.blocks and not conditions.why_unknown:
        return ""
    blocks, capped = conditions.blocks, conditions.power_capped_blocks
    throttled = (
        f"THROTTLED ({', '.join(conditions.throttle_reasons)}) in {conditions.throttled_blocks} of "
        f"{blocks} blocks, {conditions.discarded_rounds} rounds discarded"
    )
    parts = {
        _clock(conditions): True,
        throttled: conditions.throttled_blocks,
        f"at the power limit in {capped} of {blocks} blocks": capped,
        _others(conditions): True,
    }
    return "; ".join(words for words, holds in parts.items() if words and holds)


def doubt(conditions: Conditions) -> str:
    """Why no timed verdict can stand on these rounds; empty where one can."""
    if conditions.contended:
        return _others(conditions)
    if conditions.kept_throttled_rounds:
        return f"the GPU throttled ({', '.join(conditions.throttle_reasons)}) in three tries"
    return ""


def _clock(conditions: Conditions) -> str:
    if conditions.why_unknown:
        return f"clock and throttling unknown: {conditions.why_unknown}"
    low, high = conditions.sm_clock_mhz_low, conditions.sm_clock_mhz_high
    if low is None or high is None:
        return ""
    clock = f"SM clock {low} MHz" if low == high else f"SM clock {low} to {high} MHz"
    most = conditions.sm_clock_mhz_max
    return f"{clock} of {most}" if most else clock


def _others(conditions: Conditions) -> str:
    told = []
    if conditions.contenders:
        named = ", ".join(f"pid {c.pid} up to {c.utilisation} %" for c in conditions.contenders)
        told.append(f"other processes worked on this GPU ({named})")
    if conditions.not_alone:
        told.append(conditions.not_alone)
    if told:
        return f"CONTENDED: {'; '.join(told)}"
    why = conditions.why_contention_unknown
    return f"other processes unknown: {why}" if why and why != conditions.why_unknown else ""
