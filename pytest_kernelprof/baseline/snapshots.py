"""Kernel snapshots: what is kept of a profile, and what of another profile is more or other."""

from __future__ import annotations

import re
from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pytest_kernelprof.comparison.comparability import differences
from pytest_kernelprof.comparison.kernel_diff import diff_sides
from pytest_kernelprof.comparison.kernel_keys import STEP
from pytest_kernelprof.names.short_names import comparable_name, kept_name
from pytest_kernelprof.schema.codec import text
from pytest_kernelprof.schema.comparison import KernelSide, MetricDelta, ProfileComparison
from pytest_kernelprof.schema.metrics import METRICS
from pytest_kernelprof.schema.snapshot import COUNTS, KeptProfile, KeptTest
from pytest_kernelprof.units import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_kernelprof.schema.comparison import Change
    from pytest_kernelprof.schema.run import Kernel, Profile

MOST_KERNELS = 1_000_000
"""Kernels that one entry may stand for."""

KeptKey = tuple[str, int, int | None]

# Annotations, which are numbered by what ran before, and no operators.
_NO_OPERATORS = (STEP, "## Call CompiledFxGraph ", "Torch-Compiled Region", "autograd::engine::")
_DEVICES = {name: METRICS[name].devices for name in ("kernels", *COUNTS)}
_TIMES = re.compile(r" x(\d{1,9})\Z")


def kept_of(profile: Profile) -> KeptProfile:
    """What is kept of a profile."""
    lines = _lines(profile.kernels)
    ordered = not profile.variants
    kind = profile.environment.kind
    counts = {name: _count(profile, name) for name in COUNTS if kind in _DEVICES[name]}
    return KeptProfile(
        kernels=tuple(_run(line, n) for line, n in _runs(lines if ordered else sorted(lines))),
        label=text(profile.label),
        ordered=ordered,
        counts={name: count for name, count in counts.items() if count != 0},
    )


def kept_of_ranks(profile: Profile) -> tuple[KeptProfile, ...]:
    """What is kept of a profile and of its other ranks: of those that launch something else than
    the first."""
    first, *others = (kept_of(one) for one in profile.ranks)
    numbers = [one.rank for one in profile.ranks[1:]]
    different = [
        replace(other, rank=rank)
        for other, rank in zip(others, numbers, strict=True)
        if other != first
    ]
    return (first, *different)


def why_not_kept(profile: Profile) -> str:
    """Why a profile makes no snapshot: "incomplete", "cold" or "unstable", or that there is none;
    empty where it does. One of its ranks suffices."""
    return next(filter(None, map(_why_not_kept, profile.ranks)), "")


def _why_not_kept(profile: Profile) -> str:
    integrity = profile.integrity
    if not integrity.complete:
        return "incomplete"
    if integrity.cold or not integrity.settled:
        return "cold"
    metrics = [profile.metrics[name] for name in ("kernels", *COUNTS) if name in profile.metrics]
    lines = sorted(_lines(profile.kernels))
    others = (sorted(_lines(variant)) for variant in profile.variants)
    if not all(metric.stable for metric in metrics) or any(other != lines for other in others):
        return "unstable"
    if profile.more_kernels or profile.kernel_count != len(lines):
        return "its kernels are not recorded one by one"
    return ""


def compare(kept: KeptProfile, made: Mapping[str, str], profile: Profile) -> ProfileComparison:
    """How a profile compares with what is kept: more of a count is worse; fewer, or other kernels,
    have changed.

    Args:
        made: what the entry was made with.
    """
    before, after = sides_of(kept), _sides(profile.kernels)
    kernels = diff_sides(before, after, ordered=kept.ordered and not profile.variants)
    judged = [name for name in ("kernels", *COUNTS) if profile.environment.kind in _DEVICES[name]]
    had = _counts_of(kept)
    now = {name: _count(profile, name) for name in judged}
    metrics = tuple(_deltas({name: had[name] for name in judged}, now))
    change: Change = "changed" if kernels.changes or metrics else "same"
    return ProfileComparison(
        source="snapshot",
        label=profile.label,
        rank=profile.rank,
        change="worse" if any(one.change == "worse" for one in metrics) else change,
        kernels=kernels,
        metrics=metrics,
        differences=tuple(one.words for one in differences(made, profile.environment)),
        lost=tuple(name for name in judged if had[name] is not None and now[name] is None),
        incomplete=profile.integrity.problems,
    )


def loosened(old: KeptTest, new: KeptTest) -> dict[str, tuple[MetricDelta, ...]]:
    """By the profile's label, of which counts a new entry allows more than an old one."""
    known = dict(numbered(old.profiles))
    found = {}
    for key, profile in numbered(new.profiles):
        if key in known:
            deltas = _deltas(_counts_of(known[key]), _counts_of(profile))
            if more := tuple(one for one in deltas if one.change == "worse"):
                found[profile.label] = more
    return found


def numbered(profiles: Iterable[KeptProfile]) -> list[tuple[KeptKey, KeptProfile]]:
    """Each with what tells it from the others of its test: its label, the how manieth of that
    label it is, from 0, and the rank, where it is of one that launches something else."""
    seen: Counter[tuple[str, int | None]] = Counter()
    found = []
    for profile in profiles:
        of_one = (profile.label, profile.rank)
        found.append(((profile.label, seen[of_one], profile.rank), profile))
        seen[of_one] += 1
    return found


def parse_line(line: str) -> tuple[str, int]:
    """A line of ``KeptProfile.kernels`` without its ``x12``, and that number."""
    times = _TIMES.search(line)
    return (line[: times.start()], int(times[1])) if times else (line, 1)


def sides_of(kept: KeptProfile) -> list[KernelSide]:
    """The kernels of an entry, one by one."""
    found: list[KernelSide] = []
    for line, times in map(parse_line, kept.kernels):
        found += [_side_of(line)] * times
    return found


def _sides(kernels: Sequence[Kernel]) -> list[KernelSide]:
    """The kernels of a profile as a snapshot would have them, each with its source line."""
    known: dict[tuple[str, str], KernelSide] = {}
    found = []
    for kernel in kernels:
        key = (kernel.name, kernel.operators[0] if kernel.operators else "")
        side = known.get(key)
        if side is None:
            side = known[key] = _side(*key)
        found.append(replace(side, source=printable(kernel.source)) if kernel.source else side)
    return found


def _lines(kernels: Sequence[Kernel]) -> list[str]:
    return [side.line for side in _sides(kernels)]


def _side(name: str, operator: str) -> KernelSide:
    told = printable(text(kept_name(name)))
    is_own = comparable_name(operator) == comparable_name(name)
    if not operator or operator.startswith(_NO_OPERATORS) or is_own:
        return KernelSide(told)
    return _side_of(f"{told} | {printable(text(operator))}")


def _side_of(line: str) -> KernelSide:
    """A kernel as a snapshot's line has it: the last `` | `` parts its name and its operator."""
    name, _, operator = line.rpartition(" | ")
    return KernelSide(name or line, (operator,) if name else ())


def _runs(lines: Iterable[str]) -> Iterable[tuple[str, int]]:
    return ((line, sum(1 for _ in run)) for line, run in groupby(lines))


def _run(line: str, times: int) -> str:
    return f"{line} x{times}" if times > 1 or _TIMES.search(line) else line


def _count(profile: Profile, name: str) -> int | None:
    metric = profile.metrics.get(name)
    return None if metric is None or metric.value is None else int(metric.value)


def _counts_of(kept: KeptProfile) -> dict[str, int | None]:
    kernels = sum(times for _, times in map(parse_line, kept.kernels))
    return {"kernels": kernels, **{name: kept.counts.get(name, 0) for name in COUNTS}}


def _deltas(old: Mapping[str, int | None], new: Mapping[str, int | None]) -> Iterator[MetricDelta]:
    """Of what both sides have and is another."""
    for name, before in old.items():
        after = new.get(name)
        if before is not None and after is not None and before != after:
            yield MetricDelta(
                name=name,
                baselines=(before,),
                current=after,
                change="worse" if after > before else "better",
                judged=True,
            )
