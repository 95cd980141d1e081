"""The kernels of a profile: how many of a kind, which take the most, what repeats, which are new
since a baseline."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from pytest_kernelprof.kernel_names.short_names import tell_apart
from pytest_kernelprof.records.comparison import KernelChange, KernelSide, Source
from pytest_kernelprof.records.document import grouped
from pytest_kernelprof.records.profile import Kernel, KernelGroup, Profile
from pytest_kernelprof.summary import wording
from pytest_kernelprof.summary.records import HotKernel, Row


def times_words(name: str, number: int) -> str:
    """``elementwise [copy] x2``; the name alone of one."""
    return f"{name} x{number}" if number > 1 else name


def with_chain(words: str, chain: str) -> str:
    """With what launched it, where that is known."""
    return f"{words}, from {chain}" if chain else words


def groups_of(profile: Profile) -> list[KernelGroup]:
    """A profile's kernels by full name; under the empty name those of which no more is known. Of a
    name that the document has kept in part one by one there are two groups."""
    return [*grouped(profile.kernels), *profile.more_kernels]


Order = Literal["name", "calls", "each", "total"]


@dataclass(frozen=True, slots=True)
class Named:
    """Kernels of one name.

    Attributes:
        name: the short one, told apart from the others here.
        calls: how many there are. us: what they take together.
        callers: what launched them, each once, in words.
    """

    name: str
    calls: int
    us: float
    callers: tuple[str, ...] = ()


_KEYS: dict[Order, Callable[[Named], tuple[object, ...]]] = {
    "name": lambda one: (wording.natural(one.name.lower()),),
    "calls": lambda one: (-one.calls, -one.us, wording.natural(one.name)),
    "each": lambda one: (-one.us / one.calls, wording.natural(one.name)),
    "total": lambda one: (-one.us, wording.natural(one.name)),
}


def by_name(kernels: Sequence[Kernel], order: Order = "total") -> list[Named]:
    """Group kernels by name, in one of the orders."""
    names = tell_apart(kernel.name for kernel in kernels)
    found = wording.grouped(kernels, lambda kernel: names[kernel.name])
    named = []
    for name, several in found.items():
        callers = dict.fromkeys(wording.chain(one.operators, one.name) for one in several)
        us = sum(one.duration_us for one in several)
        named.append(Named(name, len(several), us, tuple(callers)))
    return sorted(named, key=_KEYS[order])


_HOTTEST, _MOST_TOLD_APART = 50, 500


def hottest_kernels(rows: Sequence[Row]) -> tuple[HotKernel, ...]:
    """By time, the largest first; on the CPU, where there is no GPU time, none. Shares are of the
    GPU time, or of all these kernels where they take longer: a profile that is incomplete has
    kernels, though no GPU time."""
    calls, tests = Counter[str](), defaultdict[str, set[str]](set)
    us = defaultdict[str, float](float)
    for row in rows:
        for one in () if row.profile.on_cpu else groups_of(row.profile):
            if one.name:
                calls[one.name] += one.count
                us[one.name] += one.duration_us
                tests[one.name].add(row.test.id)
    whole = max(sum(wording.gpu_us(row.profile) for row in rows), sum(us.values())) or 1.0
    hottest = sorted(us, key=lambda name: (-us[name], name))
    short = tell_apart(hottest[:_MOST_TOLD_APART])
    return tuple(
        HotKernel(short[name], name, calls[name], us[name], us[name] / whole, len(tests[name]))
        for name in hottest[:_HOTTEST]
    )


# What is new or slower since a baseline.


@dataclass(frozen=True, slots=True)
class NewKernels:
    """What is another since a baseline.

    Attributes:
        source: what that is.
        marks: of the kernels that are new, by their positions from 0: ``+``, and ``?`` of equal
            ones that stand next to each other, of which some are new.
        gone: the changes by which kernels are gone.
    """

    source: Source
    marks: Mapping[int, str]
    gone: tuple[KernelChange, ...]


def new_kernels(profile: Profile) -> NewKernels | None:
    """Find what is new by the first comparison that names kernels, those first that are worse; None
    if there is none, or if it does not tell which kernels are new."""
    worst_first = sorted(profile.verdicts, key=lambda one: one.outcome != "failed")
    found = (one.comparison for one in worst_first if one.comparison is not None)
    one = next((one for one in found if one.changes and one.rank in (None, profile.rank)), None)
    if one is None or one.kernels is None:
        return None
    positions = one.kernels.new_positions
    gone = tuple(change for change in one.changes if change.baseline is not None)
    places = (*(positions or ()), *(change.at - 1 for change in gone))
    if positions is None or max(places, default=0) > len(profile.kernels):
        return None  # perhaps only some of the kernels are kept
    marks = dict.fromkeys(positions, "+")
    unsure = {at - 1 for change in one.changes if change.lines for at in change.positions}
    equals = [(each.name, each.operators[:1]) for each in profile.kernels] if unsure else []
    for _, run in groupby(range(len(equals)), equals.__getitem__):
        if unsure & {*(several := list(run))}:
            marks |= dict.fromkeys(several, "?")
    return NewKernels(one.source, marks, gone)


def slower_kernels(profile: Profile) -> frozenset[int]:
    """Find the kernels, from 0, that take longer than in a baseline that the profile is worse than;
    none of a kind of which some take as long as there."""
    launched = list(map(_launched_kind, profile.kernels))
    kinds = wording.grouped(range(len(launched)), launched.__getitem__)
    failed = (one.comparison for one in profile.verdicts if one.outcome == "failed")
    diffs = (one.kernels for one in failed if one and one.rank in (None, profile.rank))
    told = (one for diff in diffs if diff for one in diff.of("slower", "reconfigured"))
    slower = (one for one in told if one.us(one.current) > one.us(one.baseline))
    found = ((one.times, kinds.get(_launched_kind(one.side), [])) for one in slower)
    return frozenset(at for times, places in found if len(places) == times for at in places)


def _launched_kind(one: Kernel | KernelSide) -> object:
    return one.name, one.operators, tuple(one.grid or ()), tuple(one.block or ())
