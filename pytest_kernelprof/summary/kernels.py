"""The kernels of a profile: how many of a kind, which take the most, what repeats, which are new
since a baseline, which fail a limit on names, and which do the work of others."""

from __future__ import annotations

import re
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pytest_kernelprof.names.short_names import tell_apart
from pytest_kernelprof.schema.comparison import BASELINE_WORDS
from pytest_kernelprof.summary.records import HotKernel
from pytest_kernelprof.summary.words import chain_words, judged_rank, natural, source_place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pytest_kernelprof.schema.comparison import KernelChange, KernelDiff
    from pytest_kernelprof.schema.run import Kernel, Place, Profile
    from pytest_kernelprof.summary.records import Row


@dataclass(frozen=True, slots=True)
class Alike:
    """Kernels of one short name, one chain of operators and one line.

    Attributes:
        name: the short name. chain: in words; empty where there is none.
        number: how many. us: what they take.
    """

    name: str
    chain: str
    place: Place | None
    number: int
    us: float


def alike(kernels: Iterable[Kernel]) -> list[Alike]:
    """Kernels that are alike, in the order of the first of each kind."""
    found: defaultdict[tuple[str, str, str], list[float]] = defaultdict(list)
    for one in kernels:
        chain = chain_words(one.operators, one.name)
        found[one.short_name, chain, one.source].append(one.duration_us)
    return [
        Alike(name, chain, source_place(source), len(us), sum(us))
        for (name, chain, source), us in found.items()
    ]


def times_words(name: str, number: int) -> str:
    """``elementwise [copy] x2``; the name alone of one."""
    return f"{name} x{number}" if number > 1 else name


def with_chain(words: str, chain: str) -> str:
    """With what launched it, where that is known."""
    return f"{words}, from {chain}" if chain else words


def groups_of(profile: Profile) -> dict[str, tuple[int, float]]:
    """Of each full name of a profile's kernels, how many there are and what they take; under the
    empty name those of which no more is known."""
    found: defaultdict[str, tuple[int, float]] = defaultdict(lambda: (0, 0.0))
    for kernel in profile.kernels:
        number, us = found[kernel.name]
        found[kernel.name] = number + 1, us + kernel.duration_us
    for group in profile.more_kernels:
        number, us = found[group.name]
        found[group.name] = number + group.count, us + group.duration_us
    return dict(found)


Order = Literal["name", "calls", "each", "total"]
_ENOUGH_SHARE, _MOST_NAMES = 0.85, 20


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
    "name": lambda one: (natural(one.name.lower()),),
    "calls": lambda one: (-one.calls, -one.us, natural(one.name)),
    "each": lambda one: (-one.us / one.calls, natural(one.name)),
    "total": lambda one: (-one.us, natural(one.name)),
}


def by_name(kernels: Sequence[Kernel], order: Order = "total") -> list[Named]:
    """Group kernels by name, in one of the orders."""
    names = tell_apart(kernel.name for kernel in kernels)
    found: defaultdict[str, list[Kernel]] = defaultdict(list)
    for kernel in kernels:
        found[names[kernel.name]].append(kernel)
    named = [
        Named(
            name,
            len(several),
            sum(one.duration_us for one in several),
            tuple(dict.fromkeys(chain_words(one.operators, one.name) for one in several)),
        )
        for name, several in found.items()
    ]
    return sorted(named, key=_KEYS[order])


def enough(ranked: Sequence[Named]) -> int:
    """Return how many names make up 85 % of the time, at most 20. A single one that would be left
    is among them."""
    total, reached = sum(one.us for one in ranked), 0.0
    for number, one in enumerate(ranked, 1):
        reached += one.us
        if number == _MOST_NAMES or (total and reached >= _ENOUGH_SHARE * total):
            return len(ranked) if len(ranked) == number + 1 else number
    return len(ranked)


_MOST_TOLD_APART = 500


def hottest_kernels(
    rows: Sequence[Row], gpu_us: float | None, most: int = 50
) -> tuple[HotKernel, ...]:
    """By time, the largest first; on the CPU, where there is no GPU time, none.

    Args:
        gpu_us: of the run; shares are of it, or of all these kernels where they take longer:
            a profile that is incomplete has kernels, though no GPU time.
        most: how many.
    """
    found: dict[str, tuple[int, float, set[str]]] = {}
    for row in rows:
        if row.profile.environment.kind == "cuda":
            for name, (number, us) in groups_of(row.profile).items():
                calls, total, tests = found.get(name, (0, 0.0, set()))
                tests.add(row.test.id)
                found[name] = calls + number, total + us, tests
    found.pop("", None)
    whole = max(gpu_us or 0.0, sum(us for _, us, _ in found.values()))
    hottest = sorted(found.items(), key=lambda one: (-one[1][1], one[0]))
    told = tell_apart(name for name, _ in hottest[: max(most, _MOST_TOLD_APART)])
    return tuple(
        HotKernel(told[name], name, calls, us, us / whole if whole else 0.0, len(tests))
        for name, (calls, us, tests) in hottest[:most]
    )


# What repeats.

_LONGEST, _LEAST_SAVED = 2048, 4
_WORK = 2_000_000
"""So many parts of a sequence are compared: a second or so."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of a sequence.

    Attributes:
        unit: what it repeats. times: how often, 1 if it is there once.
    """

    unit: tuple[str, ...]
    times: int


def stretches(names: Sequence[str]) -> tuple[Stretch, ...]:
    """Fold a sequence: of the repeats that begin at a name, the one that saves most.

    Units have up to 2,048 names. The time is bounded: in a long sequence repeats may be left.
    """
    found, end = [], 0
    for start, period, times in [*_repeats(names), (len(names), 0, 1)]:
        if start > end:
            found.append(Stretch(tuple(names[end:start]), 1))
        if period:
            found.append(Stretch(tuple(names[start : start + period]), times))
        end = start + period * times
    return tuple(found)


def _repeats(names: Sequence[str]) -> Iterator[tuple[int, int, int]]:
    """Start, period and times of each."""
    codes = {name: at for at, name in enumerate(dict.fromkeys(names))}
    if len(codes) > sys.maxunicode:
        return
    text = "".join(chr(codes[name]) for name in names)  # whose parts are quickly compared
    at, work = 0, _WORK
    while at < len(text):
        saved, best = _LEAST_SAVED - 1, (1, 1)
        there = text.find(text[at], at + 1, at + 1 + _LONGEST)
        while there > 0 and work > 0:
            unit, times = text[at:there], 1
            while text.startswith(unit, at + times * len(unit)):
                times += 1
            work -= times
            if len(unit) * (times - 1) > saved:
                saved, best = len(unit) * (times - 1), (len(unit), times)
            there = text.find(text[at], there + 1, at + 1 + _LONGEST)
        period, times = best
        if times > 1:
            yield at, period, times
        at += period * times


def whole_repeats(names: Sequence[str]) -> int:
    """Return how often the whole sequence repeats one unit; 1 if it does not."""
    found = stretches(names)
    return found[0].times if len(found) == 1 else 1


# What is new since a baseline.


@dataclass(frozen=True, slots=True)
class NewKernels:
    """What is another since a baseline.

    Attributes:
        since: what that is, in words.
        positions: of the kernels that are new, from 0.
        gone: the changes by which kernels are gone.
    """

    since: str
    positions: frozenset[int]
    gone: tuple[KernelChange, ...]


def new_kernels(profile: Profile) -> NewKernels | None:
    """Find what is new by the first comparison that is worse and names kernels; None if there is
    none, or if it does not tell which kernels are new."""
    worse = (one.comparison for one in profile.verdicts if one.outcome == "failed")
    for one in filter(None, worse):
        if one.changes and one.kernels is not None:
            positions = positions_in(one.kernels)
            gone = tuple(change for change in one.changes if change.baseline is not None)
            if positions is None or one.rank not in (None, profile.rank):
                return None
            places = (*positions, *(change.at - 1 for change in gone))
            if max(places, default=0) > len(profile.kernels):
                return None  # only some of the kernels are kept
            return NewKernels(BASELINE_WORDS[one.source], positions, gone)
    return None


def guilty_kernels(profile: Profile, judged: Profile) -> frozenset[int]:
    """Find the kernels that ``forbid_kernels`` and ``expect_kernels`` fail by, from 0.

    Args:
        judged: the profile of the rank whose kernels they are.
    """
    over = [
        one
        for one in profile.verdicts
        if one.outcome == "failed" and judged_rank(profile, one) is judged
    ]
    named = [(hit.position, hit.kernel) for one in over for hit in one.hits]
    named += [(one.mismatch.position, one.mismatch.kernel) for one in over if one.mismatch]
    names = [kernel.short_name for kernel in judged.kernels]
    return frozenset(at - 1 for at, name in named if names[at - 1 : at] == [name])  # else a variant


def positions_in(diff: KernelDiff) -> frozenset[int] | None:
    """The kernels that the current side alone has, by their positions from 0; None where it cannot
    be told of each which one it is."""
    come = [one for one in diff.came_or_went if one.current is not None]
    if diff.left_out or any(one.lines or len(one.positions) != one.times for one in come):
        return None
    return frozenset(at - 1 for one in come for at in one.positions)


_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_MOST_KERNELS = 200


@dataclass(frozen=True, slots=True)
class Fusion:
    """One kernel that does the work of several of the baseline, or the other way round.

    Attributes:
        gone, come: the changes, one of the sides with a single one.
    """

    gone: tuple[KernelChange, ...]
    come: tuple[KernelChange, ...]

    @property
    def words(self) -> str:
        """For example ``triton_poi_fused [gelu, mul] is now gelu + mul``: several kernels with one
        operator each are named by the operators."""
        return " is now ".join(
            one[0].side.short_name
            if len(one) == 1
            else " + ".join(", ".join(sorted(_operators(part).elements())) for part in one)
            for one in (self.gone, self.come)
        )

    @property
    def us(self) -> tuple[float, float]:
        """The times of both sides in microseconds, without repeats."""
        return sum(one.us(one.baseline) for one in self.gone), sum(
            one.us(one.current) for one in self.come
        )


def fusions_of(diff: KernelDiff) -> tuple[Fusion, ...]:
    """Find fusions by the operators in the names of kernels, wherever they are launched."""
    gone, come = diff.of("removed"), diff.of("added")
    if len(gone) + len(come) > _MOST_KERNELS:
        return ()
    taken: set[int] = set()  # changes by identity: kernels that are alike may be one object
    found = [Fusion((one,), parts) for one in gone if (parts := _parts(one, come, taken))]
    found += [Fusion(parts, (one,)) for one in come if (parts := _parts(one, gone, taken))]
    return tuple(found)


def _parts(
    whole: KernelChange, others: Sequence[KernelChange], taken: set[int]
) -> tuple[KernelChange, ...]:
    """Find the others that together do what one does, each as often; none if there are none.

    Args:
        taken: those that are parts already; these are added.
    """
    left, parts = _operators(whole), []
    for change in others if left.total() > 1 and id(whole) not in taken else ():
        does = _operators(change)
        if change.times == whole.times and id(change) not in taken and does and does <= left:
            parts.append(change)
            left -= does
    if left or len(parts) < 2:
        return ()
    taken.update(map(id, (whole, *parts)))
    return tuple(parts)


def _operators(change: KernelChange) -> Counter[str]:
    """The operators in a kernel's short name: of ``triton_poi_fused [gelu, mul]`` two."""
    brackets = _BRACKETS.search(change.side.short_name)
    return Counter(re.split(r"\s*,\s*", brackets[1])) if brackets else Counter()
