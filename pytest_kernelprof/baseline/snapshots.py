"""Kernel snapshots: what is kept of a profile, and what of another profile is more or other."""

from __future__ import annotations

import re
from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pytest_kernelprof.baseline.hunks import Sides
from pytest_kernelprof.baseline.keys import STEP, Keys
from pytest_kernelprof.names.apart import comparable_name, kept_name
from pytest_kernelprof.schema.codec import text
from pytest_kernelprof.schema.metrics import METRICS
from pytest_kernelprof.schema.run import Kernel
from pytest_kernelprof.schema.snapshot import (
    COUNTS,
    CountChange,
    Finding,
    KeptProfile,
    KeptTest,
    LineChange,
)
from pytest_kernelprof.units import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_kernelprof.schema.run import Environment, Profile
    from pytest_kernelprof.schema.snapshot import State

MOST_KERNELS = 1_000_000
"""Kernels that one entry may stand for."""

KeptKey = tuple[str, int, int | None]

# Annotations, which are numbered by what ran before, and no operators.
_NO_OPERATORS = (STEP, "## Call CompiledFxGraph ", "Torch-Compiled Region", "autograd::engine::")
_TIMES = re.compile(r" x(\d{1,9})\Z")


def kept_of(profile: Profile) -> KeptProfile:
    """What is kept of a profile."""
    lines = _lines(profile.kernels)
    ordered = not profile.variants
    counts = {name: _count(profile, name) for name in COUNTS if _is_had(profile, name)}
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
        return "its kernels are not kept one by one"
    return ""


def made_with(environment: Environment) -> dict[str, str]:
    """The device and the software that a snapshot is of, as far as a difference may come of them.

    On the CPU that is not whether this torch has CUDA as well.
    """
    versions = {k: v for k, v in environment.versions.items() if k != "python"}
    if environment.kind == "cpu":
        versions = {k: v.partition("+")[0] for k, v in versions.items() if k in ("torch", "mkldnn")}
    return {"device": environment.device, **versions}


def find(kept: KeptProfile, made: Mapping[str, str], profile: Profile) -> Finding:
    """How a profile compares with what is kept.

    Args:
        made: what the entry was made with.
    """
    before = [line for line, times in map(parse_line, kept.kernels) for _ in range(times)]
    after = _lines(profile.kernels)
    ordered = kept.ordered and not profile.variants
    same = before == after if ordered else Counter(before) == Counter(after)
    counts, unknown = _changed_counts(kept, len(before), profile)
    return Finding(
        state=_state(counts, same=same),
        kernels=len(after),
        changes=() if same else _changes(before, after, profile.kernels, ordered=ordered),
        counts=counts,
        moved=not same and Counter(before) == Counter(after),
        other=_other(made, made_with(profile.environment)),
        unknown=unknown,
    )


def loosened(old: KeptTest, new: KeptTest) -> dict[str, tuple[CountChange, ...]]:
    """By the profile's label, of which counts a new entry allows more than an old one."""
    known = dict(numbered(old.profiles))
    found = {}
    for key, profile in numbered(new.profiles):
        if key in known:
            counts = _counts_of(known[key]), _counts_of(profile)
            changes = _count_changes(*counts)
            more = tuple(one for one in changes if one.found > one.kept)
            if more:
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


def _lines(kernels: Sequence[Kernel]) -> list[str]:
    known: dict[tuple[str, str], str] = {}
    found = []
    for kernel in kernels:
        key = (kernel.name, kernel.operators[0] if kernel.operators else "")
        line = known.get(key)
        if line is None:
            line = known[key] = _line(*key)
        found.append(line)
    return found


def _line(name: str, operator: str) -> str:
    told = printable(text(kept_name(name)))
    if (
        not operator
        or operator.startswith(_NO_OPERATORS)
        or comparable_name(operator) == comparable_name(name)
    ):
        return told
    return f"{told} | {printable(text(operator))}"


def _runs(lines: Iterable[str]) -> Iterable[tuple[str, int]]:
    return ((line, sum(1 for _ in run)) for line, run in groupby(lines))


def _run(line: str, times: int) -> str:
    return f"{line} x{times}" if times > 1 or _TIMES.search(line) else line


def _is_had(profile: Profile, name: str) -> bool:
    """Whether the device of a profile has this metric."""
    return profile.environment.kind in METRICS[name].devices


def _count(profile: Profile, name: str) -> int | None:
    metric = profile.metrics.get(name)
    return None if metric is None or metric.value is None else int(metric.value)


def _counts_of(kept: KeptProfile) -> dict[str, int | None]:
    kernels = sum(times for _, times in map(parse_line, kept.kernels))
    return {"kernels": kernels, **{name: kept.counts.get(name, 0) for name in COUNTS}}


def _count_changes(
    old: Mapping[str, int | None], new: Mapping[str, int | None]
) -> tuple[CountChange, ...]:
    """Of what both sides have."""
    found = []
    for name, before in old.items():
        after = new.get(name)
        if before is not None and after is not None and before != after:
            found.append(CountChange(name, METRICS[name].unit, before, after))
    return tuple(found)


def _changed_counts(
    kept: KeptProfile, kernels: int, profile: Profile
) -> tuple[tuple[CountChange, ...], tuple[str, ...]]:
    old = {**_counts_of(kept), "kernels": kernels}
    new = {name: _count(profile, name) for name in ("kernels", *COUNTS)}
    judged = [name for name in old if _is_had(profile, name)]
    unknown = tuple(name for name in judged if old[name] is not None and new[name] is None)
    return _count_changes({name: old[name] for name in judged}, new), unknown


def _state(counts: Iterable[CountChange], *, same: bool) -> State:
    changes = tuple(counts)
    if any(one.found > one.kept for one in changes):
        return "more"
    return "held" if same and not changes else "changed"


def _changes(
    before: Sequence[str], after: Sequence[str], kernels: Sequence[Kernel], *, ordered: bool
) -> tuple[LineChange, ...]:
    """What only one side has, by the diff that all comparisons are made of."""
    keys = Keys(comparable=str)  # a line is a short name already
    old = [_as_kernel(line, "") for line in before]
    new = [_as_kernel(line, kernel.source) for line, kernel in zip(after, kernels, strict=True)]
    sides = Sides.of(keys.of(old), keys.of(new), keys)
    found = []
    for hunk in sides.hunks(ordered=ordered):
        for change in hunk.changes:
            if change.old is not None:
                found.append(LineChange("-", change.old.name, hunk.times, at=hunk.new_at))
            if change.new is not None:
                line, source = change.new.name, printable(change.new.source)
                found.append(LineChange("+", line, hunk.times, source, hunk.new_at, change.lines))
    return tuple(found)


def _as_kernel(line: str, source: str) -> Kernel:
    name, _, operator = line.rpartition(" | ")
    nothing = (0, 0, 0)
    operators = (operator if name else line,)
    return Kernel(line, 0.0, nothing, nothing, 0, 0, 0, 0, "", operators, source)


def _other(made: Mapping[str, str], now: Mapping[str, str]) -> tuple[str, ...]:
    told = ((name, made.get(name, "none"), now.get(name, "none")) for name in sorted({*made, *now}))
    return tuple(printable(f"{name} {old} -> {new}") for name, old, new in told if old != new)
